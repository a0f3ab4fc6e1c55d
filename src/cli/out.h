/* What people see: tables, times, sizes, colours, progress. Text that comes from a guest or a server is escaped before
 * it reaches a terminal. */
#ifndef SPACE_CLI_OUT_H
#define SPACE_CLI_OUT_H

#include <jansson.h>

#include "base/buf.h"
#include "cli/cli.h"

enum color { COLOR_NONE, COLOR_GOOD, COLOR_BAD, COLOR_WARN, COLOR_DIM, COLOR_BOLD };

#define TABLE_COLUMNS_MAX 10

struct table {
    const char *const *titles;
    size_t columns;
    char **cells; /* rows × columns, escaped */
    enum color *colors;
    size_t rows, capacity;
};

/* `titles` must outlive the table. A title that begins with '>' is set to the right. */
void table_init(struct table *t, const char *const *titles, size_t columns);
/* One row; NULL cells show "-". The colour is that of the whole cell `colored` (or no cell: -1). */
void table_row(struct table *t, const char *const *cells, int colored, enum color color);
void table_render(const struct table *t, bool color, struct buf *out);
void table_print(const struct table *t, const struct cli *cli);
void table_done(struct table *t);
#define _cleanup_table_ _cleanup_(table_done)

const char *color_on(enum color c, bool enabled);
const char *color_off(bool enabled);

/* Each writes into a buffer of the caller's and returns it. */
char *format_bytes(uint64_t bytes, char ret[24]);                      /* "1.5 GiB" */
char *format_duration(int64_t ms, char ret[24]);                       /* "1m 5s", "230 ms" */
char *format_since(const char *rfc3339, int64_t now_ms, char ret[24]); /* "3m ago", "in 4m", "-" */

/* Escaped for a terminal; the caller frees. */
char *escaped(const char *text);

/* Pretty JSON on standard output. */
void print_json(const json_t *value);
/* "name   value" lines; NULL values are left out. */
void print_pairs(const struct cli *cli, const char *const (*pairs)[2], size_t count);
/* A line on standard error unless --quiet. */
void say(const struct cli *cli, const char *format, ...) ATTR_PRINTF(2, 3);
void report_error(const struct cli *cli, const struct err *e);

/* A progress line on standard error, drawn in place on a terminal and not at all elsewhere. */
struct progress {
    bool on, drawn, color;
    uint64_t started_ms, drawn_ms;
};
void progress_init(struct progress *p, const struct cli *cli);
void progress_draw(struct progress *p, const char *text, uint64_t done, uint64_t total);
void progress_draw_bytes(struct progress *p, const char *text, uint64_t done, uint64_t total);
void progress_clear(struct progress *p);
/* How the line looks; for tests. */
void progress_render(struct buf *out, const char *text, uint64_t done, uint64_t total, uint64_t elapsed_ms, bool bytes,
                     bool color);

/* Members by path: "template.digest". NULL, 0 or false when they are not there. */
const json_t *json_at(const json_t *value, const char *path);
const char *json_text(const json_t *value, const char *path);
int64_t json_number(const json_t *value, const char *path);

#endif

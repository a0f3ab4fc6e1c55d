/* Options as tables. A command describes its options once; parsing, `--help`, man pages and shell completion all come
 * from that table. Values go into the command's own struct by offset.
 *
 * The parser knows `-a`, `-ab`, `-aVALUE`, `-a VALUE`, `--name`, `--name VALUE`, `--name=VALUE`, `--`. Options and
 * other arguments may be mixed, except in commands that run something else: there the first other argument ends
 * options. */
#ifndef SPACE_CLI_OPT_H
#define SPACE_CLI_OPT_H

#include "base/err.h"

enum opt_kind {
    OPT_FLAG,   /* bool */
    OPT_TEXT,   /* const char *, into argv */
    OPT_LIST,   /* struct opt_list, may be repeated */
    OPT_NUMBER, /* uint64_t between min and max */
    OPT_TIME,   /* uint64_t, milliseconds */
    OPT_BYTES,  /* uint64_t */
    OPT_CHOICE, /* const char *, one of `choices` (separated by '|') */
};

#define OPT_LIST_MAX 128

struct opt_list {
    const char *items[OPT_LIST_MAX];
    size_t len;
};

struct opt {
    char key;         /* short form or '\0' */
    const char *name; /* long form */
    const char *arg;  /* name of its value in help; NULL for flags */
    const char *help; /* one line, lower case, no full stop */
    enum opt_kind kind;
    size_t offset;       /* of the member that takes the value */
    uint64_t min, max;   /* OPT_NUMBER, OPT_TIME, OPT_BYTES; max 0 stands for no limit */
    const char *choices; /* OPT_CHOICE */
};

struct opt_table {
    const struct opt *opts;
    size_t len;
    void *values; /* the struct that the offsets are in */
};

/* Take options out of argv: what is left is moved to the front, and its count given in inout_argc. `words`: how many
 * arguments that are no options may stand before options end by themselves; negative: they never do. "--" ends them
 * too and is taken away. `tables` are searched in order. ERR_INVALID with a text that names the option. */
int opt_parse(const struct opt_table *tables, size_t table_count, int words, char **argv, int *inout_argc,
              struct err *e);

#endif

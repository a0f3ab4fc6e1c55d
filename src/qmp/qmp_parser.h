/* QMP without I/O: bytes in, messages out. */
#ifndef SPACE_QMP_QMP_PARSER_H
#define SPACE_QMP_QMP_PARSER_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

struct qmp_parser {
    struct buf line;         /* an unfinished line */
    uint64_t window_start_ms;/* of the event budget */
    uint32_t events;         /* in this window */
};

enum qmp_kind { QMP_GREETING, QMP_ANSWER, QMP_ERROR, QMP_EVENT };

struct qmp_message {
    enum qmp_kind kind;
    uint64_t id;        /* of an answer or error */
    json_t *body;       /* "return", "error" or "data"; borrowed from `root`, may be NULL for an event */
    const char *name;   /* of an event */
    json_t *root;       /* to be released by the taker with json_decref */
};

void qmp_parser_init(struct qmp_parser *p, size_t line_max);
void qmp_parser_done(struct qmp_parser *p);

/* Take whole lines from data; for each `on_message` is called (it does not own root). Stops when on_message returns
 * false. ERR_PROTOCOL for a line that is too long or no QMP message, or for too many events within a second. */
int qmp_parser_feed(struct qmp_parser *p, const void *data, size_t len, uint64_t now_ms,
                    bool (*on_message)(void *arg, const struct qmp_message *m), void *arg, struct err *e);

#endif

/* QMP client: commands to one QEMU over its Unix socket, on the libuv loop.
 *
 * Theory of operation. A command gets an id, its callback waits in a list, answers are matched by id, and every callback
 * is called exactly once: with the answer, with QEMU's error, with ERR_TIMEOUT, or with what closed the connection.
 * Commands may be sent before the greeting has come; they leave in order. A command that carries a descriptor is sent
 * alone: QEMU forgets an unused descriptor when the next one arrives, so commands behind it wait for its answer.
 *
 * QEMU is not trusted: a line is at most QMP_LINE_MAX bytes, nesting is bounded by the JSON library, an answer with an
 * unknown id, a line that is no object, or more than QMP_EVENTS_PER_SECOND events end the connection. Descriptors that
 * QEMU sends are closed by the kernel (no control buffer is given). */
#ifndef SPACE_QMP_QMP_H
#define SPACE_QMP_QMP_H

#include <jansson.h>
#include <uv.h>

#include "base/err.h"

#define QMP_LINE_MAX (256 * KIB)
#define QMP_EVENTS_PER_SECOND 2000
#define QMP_PENDING_MAX 64

struct qmp;

/* `answer` is the "return" value (borrowed) or NULL with `e` set. */
typedef void (*qmp_answer_cb)(void *arg, json_t *answer, const struct err *e);

struct qmp_callbacks {
    void (*on_ready)(void *arg);                                    /* greeting seen, capabilities agreed */
    void (*on_event)(void *arg, const char *name, json_t *data);    /* data may be NULL */
    void (*on_close)(void *arg, const struct err *e);               /* once; qmp_free is still the owner's to call */
};

/* Connect to the listening Unix socket `path` (at most 107 bytes) and agree on capabilities. */
int qmp_open(uv_loop_t *loop, const char *path, const struct qmp_callbacks *callbacks, void *arg, struct qmp **ret_qmp,
             struct err *e);

/* Send `command` with `arguments` (stolen; may be NULL) and, when fd >= 0, that descriptor (not closed here; it must
 * stay open until the callback). timeout_ms 0: 10 s. */
void qmp_command(struct qmp *q, const char *command, json_t *arguments, int fd, uint64_t timeout_ms, qmp_answer_cb cb,
                 void *arg);

/* Close. Outstanding commands get ERR_CANCELLED before it returns, on_close is not called. NULL is fine. */
void qmp_free(struct qmp *q);

#endif

/* Several QMP commands as one: sent in order, one answer for all. */
#ifndef SPACE_QMP_QMP_BATCH_H
#define SPACE_QMP_QMP_BATCH_H

#include "qmp/qmp.h"

#define QMP_BATCH_MAX 16

struct qmp_step {
    const char *command;
    json_t *arguments; /* stolen; may be NULL */
    bool has_fd;
    int fd;            /* borrowed until `done`, when has_fd */
};

/* Queue every step at once. `done` comes exactly once: after the last answer, or after the first error (the steps behind
 * it may still be carried out: what follows an error has to be the end of the machine). */
void qmp_batch(struct qmp *q, struct qmp_step *steps, size_t count, void (*done)(void *arg, const struct err *e),
               void *arg);

#endif

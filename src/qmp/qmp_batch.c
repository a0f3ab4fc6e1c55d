/* Several QMP commands as one (see qmp_batch.h). */
#include "qmp/qmp_batch.h"

struct batch {
    size_t waiting;
    void (*done)(void *arg, const struct err *e);
    void *arg;
};

static void on_answer(void *arg, json_t *answer, const struct err *e)
{
    struct batch *b = arg;
    (void)answer;
    /* This answer counts until the owner has been told: the owner may close the connection, which answers the rest. */
    if (b->done && (e || b->waiting == 1)) {
        void (*done)(void *, const struct err *) = b->done;
        b->done = NULL;
        done(b->arg, e);
    }
    if (--b->waiting == 0)
        free(b);
}

void qmp_batch(struct qmp *q, struct qmp_step *steps, size_t count, void (*done)(void *arg, const struct err *e),
               void *arg)
{
    struct batch *b = NEW(struct batch);
    *b = (struct batch){.waiting = count + 1, .done = done, .arg = arg};
    for (size_t i = 0; i < count; i++)
        qmp_command(q, steps[i].command, steps[i].arguments, steps[i].has_fd ? steps[i].fd : -1, 0, on_answer, b);
    /* The count was one too high so that no answer could end the batch before all were queued. */
    if (--b->waiting == 0) {
        if (b->done)
            b->done(b->arg, NULL);
        free(b);
    }
}


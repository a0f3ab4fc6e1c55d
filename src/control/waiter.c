/* Waiters by id: a hash of lists. */
#include "control/waiter.h"

#include "control/internal.h"

struct waiter {
    struct control *control;
    struct waiter_list *list;
    waiter_cb cb;
    void *arg;
    uv_timer_t *timer;
    TAILQ_ENTRY(waiter) link;
};

struct waiter_list {
    char id[ID_SIZE];
    bool taken; /* out of the table, being woken */
    TAILQ_HEAD(, waiter) waiters;
    UT_hash_handle hh;
};

static void waiter_remove(struct waiter *w)
{
    struct control *c = w->control;
    TAILQ_REMOVE(&w->list->waiters, w, link);
    if (TAILQ_EMPTY(&w->list->waiters) && !w->list->taken) {
        HASH_DEL(c->waiters, w->list);
        free(w->list);
    }
    timer_done(c, &w->timer);
}

static void on_timeout(uv_timer_t *timer)
{
    struct waiter *w = timer->data;
    waiter_cb cb = w->cb;
    void *arg = w->arg;
    waiter_remove(w);
    free(w);
    cb(arg, true);
}

/* Wait for `id`, at most timeout_ms. */
struct waiter *waiter_add(struct control *c, const char *id, uint64_t timeout_ms, waiter_cb cb, void *arg)
{
    struct waiter_list *list;
    HASH_FIND_STR(c->waiters, id, list);
    if (!list) {
        list = NEW(struct waiter_list);
        snprintf(list->id, sizeof(list->id), "%s", id);
        TAILQ_INIT(&list->waiters);
        HASH_ADD_STR(c->waiters, id, list);
    }
    struct waiter *w = NEW(struct waiter);
    *w = (struct waiter){.control = c, .list = list, .cb = cb, .arg = arg};
    TAILQ_INSERT_TAIL(&list->waiters, w, link);
    w->timer = timer_new(c, w);
    uv_timer_start(w->timer, on_timeout, c->stopping ? 0 : timeout_ms, 0);
    return w;
}

void waiter_cancel(struct waiter *w)
{
    if (!w)
        return;
    waiter_remove(w);
    free(w);
}

bool waiter_any(struct control *c, const char *id)
{
    struct waiter_list *list;
    HASH_FIND_STR(c->waiters, id, list);
    return list != NULL;
}

/* The list is taken out of the table whole: who waits anew for the same id, from within a callback, is in a new one. A
 * callback may cancel its neighbours. */
static void wake_list(struct control *c, struct waiter_list *list, bool timed_out)
{
    HASH_DEL(c->waiters, list);
    list->taken = true;
    while (!TAILQ_EMPTY(&list->waiters)) {
        struct waiter *w = TAILQ_FIRST(&list->waiters);
        waiter_cb cb = w->cb;
        void *arg = w->arg;
        waiter_remove(w);
        free(w);
        cb(arg, timed_out);
    }
    free(list);
}

void waiter_wake(struct control *c, const char *id)
{
    struct waiter_list *list;
    HASH_FIND_STR(c->waiters, id, list);
    if (list)
        wake_list(c, list, false);
}

void waiters_stop(struct control *c)
{
    while (c->waiters)
        wake_list(c, c->waiters, true);
}

/* The end of every sandbox, when the platform is stopped with its machines (see control_end_all). */
#include "control/internal.h"

static void on_end(uv_timer_t *timer)
{
    struct control *c = timer->data;
    void (*done)(void *arg) = c->on_ended;
    c->on_ended = NULL;
    timer_done(c, &c->end);
    done(c->on_ended_arg);
}

void end_all_check(struct control *c)
{
    /* From the loop: whoever freed the last one may still be at work. */
    if (c->end && !c->lives)
        uv_timer_start(c->end, on_end, 0, 0);
}

void end_all_stop(struct control *c)
{
    c->on_ended = NULL;
    timer_done(c, &c->end);
}

static void end_one(struct control *c, const char *id, const char *reason)
{
    struct live *l = live_find(c, id);
    if (!l || l->state == LIFE_DELETING || l->state == LIFE_FAILED)
        return; /* its machine is being removed already */
    bool creating = l->state == LIFE_CREATING;
    if (creating)
        live_unclaim(l);
    live_event(c, id, creating ? LIFE_CLAIM_FAILED : LIFE_LOST, ERR_CANCELLED, reason);
}

void control_end_all(struct control *c, const char *reason, uint64_t timeout_ms, void (*done)(void *arg), void *arg)
{
    c->ending = true;
    c->on_ended = done;
    c->on_ended_arg = arg;
    c->end = timer_new(c, c);
    uv_timer_start(c->end, on_end, timeout_ms, 0);
    size_t count = HASH_COUNT(c->lives), i = 0;
    _cleanup_free_ char(*ids)[ID_SIZE] = xcalloc(count + 1, ID_SIZE);
    for (struct live *l = c->lives; l; l = l->hh.next)
        memcpy(ids[i++], l->id, ID_SIZE);
    for (i = 0; i < count; i++)
        end_one(c, ids[i], reason);
    end_all_check(c);
}

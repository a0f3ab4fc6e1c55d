/* Deadlines: one timer for the earliest of all. The wall clock can be set, so the timer never sleeps for longer than
 * LOOK_AGAIN_MS without looking. */
#include "base/clock.h"
#include "control/internal.h"

#define LOOK_AGAIN_MS 10000

static void on_timer(uv_timer_t *timer)
{
    struct control *c = timer->data;
    c->deadline_at_ms = 0;
    deadline_look(c);
}

void deadline_add(struct control *c, int64_t expires_at_ms)
{
    if (!expires_at_ms || c->stopping || !c->deadline)
        return;
    if (c->deadline_at_ms && c->deadline_at_ms <= expires_at_ms)
        return;
    int64_t wait = expires_at_ms - clock_wall_ms();
    c->deadline_at_ms = expires_at_ms;
    uv_timer_start(c->deadline, on_timer, wait < 0 ? 0 : (uint64_t)MIN(wait, LOOK_AGAIN_MS), 0);
}

static bool has_deadline(const struct live *l)
{
    return l->expires_at_ms && l->state != LIFE_DELETING && l->state != LIFE_FAILED;
}

/* End what is over, and set the timer for the next one. */
void deadline_look(struct control *c)
{
    if (!c->ready || c->stopping)
        return;
    int64_t now = clock_wall_ms(), next = 0;
    struct live *l, *tmp;
    HASH_ITER(hh, c->lives, l, tmp) {
        if (!has_deadline(l))
            continue;
        if (l->expires_at_ms <= now) {
            l->expires_at_ms = 0;
            /* May free this one, and no other. */
            live_event(c, l->id, LIFE_DEADLINE, 0, NULL);
        } else if (!next || l->expires_at_ms < next)
            next = l->expires_at_ms;
    }
    c->deadline_at_ms = 0;
    uv_timer_stop(c->deadline);
    deadline_add(c, next);
}

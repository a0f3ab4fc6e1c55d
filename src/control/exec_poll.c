/* Learning how execs end while nobody reads their output: by the agent's list, at growing intervals; and by a stream
 * from the end of the output while somebody waits for the result. */
#include "control/exec_internal.h"

#include "base/clock.h"
#include "control/sandbox.h"
#include "control/waiter.h"

/* ---- the list ---- */

static bool needs_poll(const struct live *l)
{
    for (const struct exec_live *x = l->execs; x; x = x->hh.next)
        if (x->phase == EXEC_RUNNING && !x->streams && !x->watch)
            return true;
    return false;
}

/* One that the store has as reserved or running and the list as something else: an earlier life of the daemon, or the
 * disk was full when it should have been recorded. */
static void take_unknown(struct live *l, const struct guest_exec_state *state)
{
    struct control *c = l->control;
    _cleanup_store_exec_ struct store_exec *row = NULL;
    if (store_exec_get(c->store, NULL, l->id, state->id, &row, NULL) < 0)
        return;
    if (row->state != STORE_EXEC_RESERVED && row->state != STORE_EXEC_RUNNING)
        return;
    if (row->state == STORE_EXEC_RESERVED || state->running)
        exec_is_running(c, l->id, state->id, (int32_t)state->pid);
    if (!state->running)
        exec_ended(c, l->id, state->id, &state->exit);
}

static void on_list(void *arg, const struct guest_exec_state *execs, size_t count, const struct err *e)
{
    struct exec_call *call = arg;
    struct control *c = call->control;
    struct live *l = live_find(c, call->sandbox_id);
    unsigned round = call->round;
    char sandbox_id[ID_SIZE];
    memcpy(sandbox_id, call->sandbox_id, ID_SIZE);
    free(call);
    if (!l)
        return;
    l->poll_running = false;
    if (e) {
        exec_poll_soon(l, false);
        return;
    }
    bool all = l->poll_all;
    l->poll_all = false;
    for (size_t i = 0; i < count; i++) {
        struct exec_live *x = exec_live_find(l, execs[i].id);
        if (x)
            x->seen_round = round;
        if (x && x->phase == EXEC_RUNNING && !execs[i].running)
            exec_ended(c, sandbox_id, execs[i].id, &execs[i].exit);
        else if (!x && (all || execs[i].running))
            take_unknown(l, &execs[i]);
        if (!(l = live_find(c, sandbox_id)))
            return;
    }
    struct exec_live *x, *tmp;
    HASH_ITER(hh, l->execs, x, tmp) {
        /* Began before the question was asked, and the agent does not have it. */
        if (x->phase != EXEC_RUNNING || x->seen_round == round || x->since_round == round)
            continue;
        struct err why = {0};
        err_set(&why, ERR_GONE, "the agent does not have exec %s any more", x->id);
        if (store_exec_fail(c->store, x->id, STORE_EXEC_LOST, "the sandbox's agent does not have it any more",
                            clock_wall_ms(), NULL) < 0)
            continue;
        c->stats.execs_lost++;
        l->execs_open -= l->execs_open > 0;
        exec_rest(l, x, &why);
    }
    if (needs_poll(l))
        exec_poll_soon(l, false);
}

static void poll_now(struct live *l)
{
    struct err e = {0};
    if (l->poll_running || l->state != LIFE_RUNNING)
        return; /* one that stands still is asked when it goes on */
    struct guest *g = node_guest(l->control->node, l->machine_id, &e);
    if (!g) {
        if (e.code == ERR_UNAVAILABLE)
            exec_poll_soon(l, false);
        return;
    }
    struct exec_call *call = exec_call_new(l->control, l->id, "");
    call->round = ++l->poll_round;
    l->poll_running = true;
    guest_exec_list(g, on_list, call);
}

static void on_poll(uv_timer_t *timer)
{
    poll_now(timer->data);
}

void exec_poll_soon(struct live *l, bool again_from_the_shortest)
{
    if (l->control->stopping)
        return;
    if (again_from_the_shortest || !l->poll_interval_ms)
        l->poll_interval_ms = EXEC_POLL_MIN_MS;
    else
        l->poll_interval_ms = MIN(l->poll_interval_ms * 2, (uint64_t)EXEC_POLL_MAX_MS);
    if (!l->poll)
        l->poll = timer_new(l->control, l);
    uv_timer_start(l->poll, on_poll, l->poll_interval_ms, 0);
}

void execs_find(struct live *l)
{
    if (!l->execs_open && !l->execs)
        return;
    l->poll_all = true;
    l->poll_interval_ms = 0;
    poll_now(l);
    if (!l->poll_running)
        exec_poll_soon(l, true);
}

/* ---- from the end of the output ---- */

static void on_watch_data(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    (void)stream, (void)offset, (void)data;
    struct exec_call *call = arg;
    struct live *l = live_find(call->control, call->sandbox_id);
    struct exec_live *x = l ? exec_live_find(l, call->id) : NULL;
    if (!x || x->watch_call != call)
        return;
    if (waiter_any(call->control, call->id))
        guest_call_consume(x->watch, len);
    else {
        exec_watch_end(x);
        exec_poll_soon(l, true);
    }
}

static void on_watch_exit(void *arg, uint64_t end_offset, const struct guest_exit *g)
{
    (void)end_offset;
    struct exec_call *call = arg;
    /* Ends the watch, and frees `call` with it. */
    exec_ended(call->control, call->sandbox_id, call->id, g);
}

static void on_watch_done(void *arg, const struct err *e)
{
    (void)e;
    struct exec_call *call = arg;
    struct live *l = live_find(call->control, call->sandbox_id);
    struct exec_live *x = l ? exec_live_find(l, call->id) : NULL;
    if (x && x->watch_call == call) {
        x->watch = NULL;
        x->watch_call = NULL;
        exec_poll_soon(l, false);
    }
    free(call);
}

static void on_watch_state(void *arg, const struct guest_exec_state *state, const struct err *e)
{
    static const struct guest_output_callbacks callbacks = {
        .on_data = on_watch_data, .on_exit = on_watch_exit, .done = on_watch_done};
    struct exec_call *call = arg;
    struct control *c = call->control;
    struct live *l = live_find(c, call->sandbox_id);
    struct exec_live *x = l ? exec_live_find(l, call->id) : NULL;
    struct guest *g;
    if (x && x->watch_asked) {
        x->watch_asked = false;
        if (e)
            exec_poll_soon(l, false);
        else if (!state->running)
            exec_ended(c, call->sandbox_id, call->id, &state->exit);
        else if (!x->watch && !x->streams && (g = node_guest(c->node, l->machine_id, NULL))) {
            x->watch_call = call;
            x->watch = guest_exec_output(g, x->id, state->end, true, &callbacks, call);
            return;
        }
    }
    free(call);
}

void exec_watch_begin(struct live *l, struct exec_live *x)
{
    if (x->watch || x->watch_asked || x->streams || x->phase != EXEC_RUNNING)
        return;
    struct guest *g = node_guest(l->control->node, l->machine_id, NULL);
    if (!g)
        return;
    x->watch_asked = true;
    guest_exec_state(g, x->id, on_watch_state, exec_call_new(l->control, l->id, x->id));
}

void exec_watch_end(struct exec_live *x)
{
    if (!x->watch)
        return;
    guest_call_drop(x->watch);
    free(x->watch_call);
    x->watch = NULL;
    x->watch_call = NULL;
}

void exec_watch(struct control *c, const char *sandbox_id, const char *id)
{
    struct live *l = live_find(c, sandbox_id);
    struct exec_live *x = l ? exec_live_find(l, id) : NULL;
    if (!l)
        return;
    if (!x)
        exec_live_add(l, id, EXEC_WAITED_FOR);
    else
        exec_watch_begin(l, x);
}

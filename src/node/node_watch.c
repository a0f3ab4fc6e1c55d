/* A machine that is up: its agent is asked now and then whether it is there, and is connected to again when the
 * connection broke; it stands still and goes on when asked to. */
#include "base/clock.h"
#include "node/node_internal.h"

/* ---- watching ---- */

static void on_heartbeat_timer(uv_timer_t *timer);

static void on_heartbeat(void *arg, const struct guest_hello *hello, const struct err *e)
{
    struct node_entry *m = arg;
    (void)hello;
    m->call = NULL;
    m->checking = false;
    if (m->stage == STAGE_REMOVING)
        return;
    if (!e)
        m->lost_since_ms = 0;
    else if (!m->lost_since_ms)
        m->lost_since_ms = clock_mono_ms();
    uv_timer_start(&m->timer, on_heartbeat_timer, e ? NODE_LOST_RETRY_MS : m->node->config->heartbeat_interval_ms, 0);
}

static void on_heartbeat_timer(uv_timer_t *timer)
{
    struct node_entry *m = timer->data;
    struct err e = {0};
    if (m->pub.paused || m->call || m->lost_reason || m->stage == STAGE_REMOVING)
        return;
    if (m->lost_since_ms && clock_mono_ms() - m->lost_since_ms > m->node->config->agent_timeout_ms) {
        entry_lost(m, "the guest agent does not answer any more");
        return;
    }
    if (machine_guest_open(m->machine, &e) < 0) {
        if (!m->lost_since_ms)
            m->lost_since_ms = clock_mono_ms();
        uv_timer_start(&m->timer, on_heartbeat_timer, NODE_LOST_RETRY_MS, 0);
        return;
    }
    m->checking = true;
    m->call = guest_hello(machine_guest(m->machine), on_heartbeat, m);
}

void entry_watch(struct node_entry *m)
{
    m->lost_since_ms = 0;
    uv_timer_start(&m->timer, on_heartbeat_timer, m->node->config->heartbeat_interval_ms, 0);
}

void entry_guest_lost(void *arg, struct machine *machine, const struct err *e)
{
    struct node_entry *m = arg;
    (void)machine;
    (void)e;
    if ((m->stage != STAGE_HOT && m->stage != STAGE_CLAIMED) || m->lost_reason)
        return; /* the call under way tells */
    if (!m->lost_since_ms)
        m->lost_since_ms = clock_mono_ms();
    if (!m->pub.paused)
        uv_timer_start(&m->timer, on_heartbeat_timer, 1, 0);
}

/* ---- pause and resume ---- */

static void step_finish(struct node_entry *m, const struct err *e)
{
    node_done_cb step = m->step;
    m->step = NULL;
    if (step)
        step(m->step_arg, e);
}

static struct node_entry *step_begin(struct node *n, const char *machine_id, node_done_cb cb, void *arg)
{
    struct node_entry *m = NULL;
    struct err e = {0};
    HASH_FIND_STR(n->machines, machine_id, m);
    if (!m || m->stage != STAGE_CLAIMED || m->lost_reason)
        err_set(&e, ERR_NOT_FOUND, "the machine is not there");
    else if (m->step)
        err_set(&e, ERR_CONFLICT, "the machine is being paused or resumed");
    if (e.code) {
        cb(arg, &e);
        return NULL;
    }
    m->step = cb;
    m->step_arg = arg;
    return m;
}

static void on_paused(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    if (e && machine_state(m->machine) == MACHINE_ENDED)
        return; /* entry_lost tells */
    m->pub.paused = !e;
    step_finish(m, e);
}

void node_pause(struct node *n, const char *machine_id, node_done_cb cb, void *arg)
{
    struct node_entry *m = step_begin(n, machine_id, cb, arg);
    if (!m)
        return;
    if (m->call && m->checking) { /* a heartbeat would only wait for the guest to go on */
        guest_call_drop(m->call);
        m->call = NULL;
        m->checking = false;
    }
    uv_timer_stop(&m->timer);
    machine_pause(m->machine, on_paused);
}

static void on_renewed(void *arg, const struct guest_confirm *confirm, const struct err *e)
{
    struct node_entry *m = arg;
    (void)confirm;
    m->call = NULL;
    if (e) {
        char reason[400];
        snprintf(reason, sizeof(reason), "the guest agent did not answer after the machine went on: %.300s", e->text);
        entry_lost(m, reason);
        return;
    }
    entry_watch(m);
    step_finish(m, NULL);
}

static void on_resumed(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    struct err own = {0};
    if (e) {
        if (machine_state(m->machine) != MACHINE_ENDED)
            step_finish(m, e);
        return;
    }
    m->pub.paused = false;
    if (!m->hostname && !identity_load(m)) {
        entry_lost(m, "the identity of the sandbox is lost");
        return;
    }
    if (machine_guest_open(m->machine, &own) < 0) {
        entry_lost(m, own.text);
        return;
    }
    identity_send(m, on_renewed); /* the clock stood still, and so did the entropy */
}

void node_resume(struct node *n, const char *machine_id, node_done_cb cb, void *arg)
{
    struct node_entry *m = step_begin(n, machine_id, cb, arg);
    if (m)
        machine_resume(m->machine, on_resumed);
}

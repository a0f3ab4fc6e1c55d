/* Start, reconcile, housekeeping, stop. */
#include "control/control.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"
#include "control/internal.h"
#include "control/operation.h"
#include "store/api_key.h"
#include "store/operation.h"
#include "store/sandbox.h"

#define PRUNE_MS 60000
#define PRUNE_BATCH 200
#define PRUNE_AGAIN_MS 200

const double control_latency_bounds[CONTROL_LATENCY_BUCKETS] = {0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05,
                                                                0.1,   0.2,   0.5,   1,     2,    5,    10};

void control_histogram_add(struct control_histogram *h, double seconds)
{
    size_t i = 0;
    while (i < CONTROL_LATENCY_BUCKETS && seconds > control_latency_bounds[i])
        i++;
    h->count[i]++;
    h->total++;
    h->sum_seconds += seconds;
}

/* ---- timers ---- */

uv_timer_t *timer_new(struct control *c, void *data)
{
    uv_timer_t *timer = NEW(uv_timer_t);
    uv_timer_init(c->loop, timer);
    timer->data = data;
    c->handles++;
    return timer;
}

static void stopped_if_done(struct control *c)
{
    if (c->stopping && !c->handles && c->on_stopped) {
        void (*done)(void *arg) = c->on_stopped;
        c->on_stopped = NULL;
        done(c->on_stopped_arg);
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct control *c = handle->data;
    free(handle);
    c->handles--;
    stopped_if_done(c);
}

void timer_done(struct control *c, uv_timer_t **timer)
{
    if (!*timer)
        return;
    uv_timer_stop(*timer);
    (*timer)->data = c;
    uv_close((uv_handle_t *)*timer, on_timer_closed);
    *timer = NULL;
}

/* ---- the node tells ---- */

static void on_machine_lost(void *arg, const char *machine_id, const char *sandbox_id, const char *reason)
{
    struct control *c = arg;
    struct live *l = live_find(c, sandbox_id);
    if (!l || (l->machine_id[0] && !str_eq(l->machine_id, machine_id)))
        return;
    c->stats.machines_lost++;
    log_warn("machine lost", F_STR("machine", machine_id), F_STR("sandbox", sandbox_id), F_STR("reason", reason));
    if (!c->ready) {
        /* Found missing while the node looks for its machines: the step comes when it has looked at all. */
        if (l->state != LIFE_DELETING)
            snprintf(l->reason, sizeof(l->reason), "%s", reason);
        return;
    }
    live_event(c, sandbox_id, LIFE_LOST, ERR_UNAVAILABLE, reason);
}

static void on_spare_lost(void *arg, const char *machine_id, const char *reason)
{
    (void)arg;
    log_warn("machine lost before it was used", F_STR("machine", machine_id), F_STR("reason", reason));
}

static void on_helper_gone(void *arg, const struct err *why)
{
    (void)arg;
    log_error("no machine can be started any more: restart the platform; its sandboxes run on", F_STR("error", why->text));
}

const struct node_callbacks *control_node_callbacks(void)
{
    static const struct node_callbacks callbacks = {
        .on_machine_lost = on_machine_lost, .on_spare_lost = on_spare_lost, .on_helper_gone = on_helper_gone};
    return &callbacks;
}

/* ---- housekeeping ---- */

static void on_prune(uv_timer_t *timer)
{
    struct control *c = timer->data;
    const struct config *config = c->config;
    const struct store_retention retention = {
        .deleted_ms = config->deleted_retention_ms,
        .operation_ms = config->operation_retention_ms,
        .idempotency_ms = config->idempotency_ttl_ms,
        .event_ms = config->event_retention_ms,
        .events_max = config->event_max,
    };
    int rows = store_prune(c->store, &retention, clock_wall_ms(), PRUNE_BATCH, NULL);
    uv_timer_start(c->prune, on_prune, rows > 0 ? PRUNE_AGAIN_MS : PRUNE_MS, 0);
}

static void on_minute(uv_timer_t *timer)
{
    struct control *c = timer->data;
    store_api_key_flush_used(c->store, NULL);
}

/* ---- start ---- */

/* Changes that cannot go on after a restart. */
static int end_interrupted(struct control *c, struct err *e)
{
    struct store_operation_filter filter = {.state_mask = STORE_OPERATION_OPEN};
    char cursor[STORE_CURSOR_SIZE] = "";
    do {
        _cleanup_store_operation_list_ struct store_operation_list ops = {0};
        struct store_page page = {.limit = STORE_PAGE_MAX, .cursor = cursor[0] ? cursor : NULL};
        int r = store_operation_list(c->store, NULL, &filter, &page, &ops, e);
        if (r < 0)
            return r;
        for (size_t i = 0; i < ops.count; i++)
            if (!str_eq(ops.items[i]->target_type, "sandbox"))
                operation_close(c, ops.items[i]->id, ERR_CANCELLED, "interrupted by a restart of the platform", NULL);
        memcpy(cursor, ops.next_cursor, sizeof(cursor));
    } while (cursor[0]);
    return 0;
}

static int load_lives(struct control *c, struct err *e)
{
    struct store_sandbox_filter filter = {.state_mask = STORE_SANDBOX_LIVE};
    char cursor[STORE_CURSOR_SIZE] = "";
    do {
        _cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
        struct store_page page = {.limit = STORE_PAGE_MAX, .cursor = cursor[0] ? cursor : NULL};
        int r = store_sandbox_list(c->store, NULL, &filter, &page, &list, e);
        if (r < 0)
            return r;
        for (size_t i = 0; i < list.count; i++) {
            struct live *l = live_load(c, list.items[i]->id, e);
            if (!l)
                return ERR_INTERNAL;
            execs_load(l);
        }
        memcpy(cursor, list.next_cursor, sizeof(cursor));
    } while (cursor[0]);
    return 0;
}

/* Each sandbox goes on from what the store says and what the node has found. */
static void go_on(struct control *c)
{
    struct live *l, *tmp;
    HASH_ITER(hh, c->lives, l, tmp) {
        const struct node_machine *m = l->machine_id[0] ? node_machine_find(c->node, l->machine_id) : NULL;
        char reason[sizeof(l->reason)];
        snprintf(reason, sizeof(reason), "%s",
                 l->reason[0] ? l->reason : "its machine ended while the platform was not running");
        live_event(c, l->id, !m ? LIFE_GONE : m->paused ? LIFE_FOUND_PAUSED : LIFE_FOUND, ERR_UNAVAILABLE, reason);
    }
}

static void on_reconciled(void *arg, const struct err *e)
{
    struct control *c = arg;
    void (*ready)(void *arg, const struct err *e) = c->on_ready;
    if (c->stopping)
        return;
    if (!e) {
        c->ready = true;
        go_on(c);
        deadline_look(c);
        uv_timer_start(c->prune, on_prune, PRUNE_AGAIN_MS, 0);
        uv_timer_start(c->minute, on_minute, PRUNE_MS, PRUNE_MS);
    }
    ready(c->on_ready_arg, e);
}

int control_new(uv_loop_t *loop, const struct config *config, struct store *store, struct control **ret_control,
                struct err *e)
{
    (void)e;
    struct control *c = NEW(struct control);
    c->loop = loop;
    c->config = config;
    c->store = store;
    c->deadline = timer_new(c, c);
    c->prune = timer_new(c, c);
    c->minute = timer_new(c, c);
    c->sweep = timer_new(c, c);
    *ret_control = c;
    return 0;
}

void control_start(struct control *c, struct node *node, void (*ready)(void *arg, const struct err *e), void *arg)
{
    c->node = node;
    c->on_ready = ready;
    c->on_ready_arg = arg;
    struct err e = {0};
    if (load_lives(c, &e) < 0 || end_interrupted(c, &e) < 0) {
        err_prefix(&e, "read the sandboxes from the store");
        ready(arg, &e);
        return;
    }
    node_reconcile(node, on_reconciled, c);
}

bool control_ready(const struct control *c)
{
    return c->ready && !c->stopping && !c->ending;
}

void control_stop(struct control *c, void (*done)(void *arg), void *arg)
{
    c->stopping = true;
    c->on_stopped = done;
    c->on_stopped_arg = arg;
    end_all_stop(c);
    waiters_stop(c);
    templates_stop(c);
    struct live *l, *tmp;
    HASH_ITER(hh, c->lives, l, tmp)
        live_free(l);
    store_api_key_flush_used(c->store, NULL);
    timer_done(c, &c->deadline);
    timer_done(c, &c->prune);
    timer_done(c, &c->minute);
    timer_done(c, &c->sweep);
}

void control_free(struct control *c)
{
    free(c);
}

uv_loop_t *control_loop(struct control *c)
{
    return c->loop;
}

struct store *control_store(struct control *c)
{
    return c->store;
}

struct node *control_node(struct control *c)
{
    return c->node;
}

const struct config *control_config(struct control *c)
{
    return c->config;
}

void control_stats_get(struct control *c, struct control_stats *ret_stats)
{
    *ret_stats = c->stats;
    struct live *l, *tmp;
    uint32_t failed = c->stats.sandboxes[LIFE_FAILED], deleted = c->stats.sandboxes[LIFE_DELETED];
    memset(ret_stats->sandboxes, 0, sizeof(ret_stats->sandboxes));
    HASH_ITER(hh, c->lives, l, tmp) {
        ret_stats->sandboxes[l->state]++;
        ret_stats->execs_running += execs_running(l);
    }
    ret_stats->sandboxes[LIFE_FAILED] = failed;
    ret_stats->sandboxes[LIFE_DELETED] = deleted;
}

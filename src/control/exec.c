/* Execs: reserve, start, record the start and the end. Output: exec_stream.c; learning of ends: exec_poll.c. */
#include "control/exec.h"

#include "base/clock.h"
#include "base/str.h"
#include "config/config.h"
#include "control/exec_internal.h"
#include "control/exec_spec.h"
#include "control/sandbox.h"
#include "control/waiter.h"

struct exec_call *exec_call_new(struct control *c, const char *sandbox_id, const char *id)
{
    struct exec_call *call = NEW(struct exec_call);
    call->control = c;
    snprintf(call->sandbox_id, sizeof(call->sandbox_id), "%s", sandbox_id);
    snprintf(call->id, sizeof(call->id), "%s", id);
    return call;
}

struct exec_live *exec_live_find(struct live *l, const char *id)
{
    struct exec_live *x;
    HASH_FIND_STR(l->execs, id, x);
    return x;
}

struct exec_live *exec_live_add(struct live *l, const char *id, enum exec_phase phase)
{
    struct exec_live *x = NEW(struct exec_live);
    snprintf(x->id, sizeof(x->id), "%s", id);
    x->phase = phase;
    x->since_round = l->poll_round;
    TAILQ_INIT(&x->start_waits);
    HASH_ADD_STR(l->execs, id, x);
    return x;
}

static void answer_start_waits(struct exec_live *x, const struct err *why)
{
    struct exec_start_wait *w;
    while ((w = TAILQ_FIRST(&x->start_waits))) {
        TAILQ_REMOVE(&x->start_waits, w, link);
        w->done(w->arg, why);
        free(w);
    }
}

void exec_rest(struct live *l, struct exec_live *x, const struct err *why)
{
    struct control *c = l->control;
    char id[ID_SIZE];
    memcpy(id, x->id, ID_SIZE);
    HASH_DEL(l->execs, x);
    exec_watch_end(x);
    answer_start_waits(x, why);
    free(x);
    waiter_wake(c, id);
}

/* ---- making ---- */

int exec_create(struct control *c, const char *project_id, const char *sandbox_id, const char *spec_json,
                char ret_exec[ID_SIZE], char ret_token[STORE_TOKEN_SIZE], struct err *e)
{
    int r = sandbox_require_running(c, project_id, sandbox_id, e);
    if (r < 0)
        return r;
    struct live *l = live_find(c, sandbox_id);
    if (l->execs_open >= c->config->max_execs_per_sandbox)
        return err_set(e, ERR_LIMIT, "sandbox %s has %u execs that have not ended, which is as many as it may have",
                       sandbox_id, l->execs_open);
    int64_t now = clock_wall_ms();
    struct store_exec x = {
        .state = STORE_EXEC_RESERVED,
        .spec_json = (char *)spec_json,
        .created_at_ms = now,
        .token_expires_at_ms = now + (int64_t)c->config->attach_token_ttl_ms,
    };
    id_new(ID_EXEC, x.id);
    memcpy(x.sandbox_id, l->id, ID_SIZE);
    memcpy(x.project_id, l->project_id, ID_SIZE);
    if ((r = store_exec_insert(c->store, &x, ret_token, e)) < 0)
        return r;
    l->execs_open++;
    /* Rows of those that ended long ago go, now and then. */
    if (++l->execs_made % EXEC_TRIM_EVERY == 0)
        store_exec_trim(c->store, l->id, c->config->max_execs_per_sandbox, NULL);
    memcpy(ret_exec, x.id, ID_SIZE);
    execs_sweep_at(c, x.token_expires_at_ms);
    return 0;
}

/* ---- starting ---- */

/* The token is good for as long as the exec can live: readers come back with it. */
static int record_start(struct control *c, const char *id, int32_t pid)
{
    int64_t now = clock_wall_ms();
    int r;
    _cleanup_store_tx_ struct store_tx tx = {0};
    if ((r = store_begin(c->store, &tx, NULL)) < 0 || (r = store_exec_start(c->store, id, pid, now, NULL)) < 0 ||
        (r = store_exec_extend_token(c->store, id, now + (int64_t)c->config->max_timeout_ms, NULL)) < 0)
        return r;
    return store_commit(&tx, NULL);
}

void exec_is_running(struct control *c, const char *sandbox_id, const char *id, int32_t pid)
{
    struct live *l = live_find(c, sandbox_id);
    if (!l)
        return;
    /* When the store cannot take it (disk full), the next poll comes here again. */
    if (record_start(c, id, pid) >= 0)
        c->stats.execs_started++;
    struct exec_live *x = exec_live_find(l, id);
    if (!x)
        x = exec_live_add(l, id, EXEC_RUNNING);
    x->phase = EXEC_RUNNING;
    x->since_round = l->poll_round;
    answer_start_waits(x, NULL);
    /* The callbacks may have changed everything. */
    if (!(l = live_find(c, sandbox_id)) || !(x = exec_live_find(l, id)))
        return;
    if (waiter_any(c, id) && !x->streams)
        exec_watch_begin(l, x);
    exec_poll_soon(l, true);
}

static void start_failed(struct control *c, struct live *l, struct exec_live *x, const struct err *e)
{
    (void)c;
    switch (e->code) {
    case ERR_CANCELLED:
    case ERR_UNAVAILABLE:
    case ERR_TIMEOUT:
    case ERR_STATE:
    case ERR_LIMIT:
    case ERR_PROTOCOL:
    case ERR_SYSTEM:
        /* Nobody knows whether it was started: it stays reserved, and who attaches again finds out. */
        break;
    default:
        if (store_exec_fail(l->control->store, x->id, STORE_EXEC_FAILED, e->text, clock_wall_ms(), NULL) >= 0) {
            l->control->stats.execs_failed++;
            l->execs_open -= l->execs_open > 0;
        }
    }
    exec_rest(l, x, e);
}

static void on_state_after_conflict(void *arg, const struct guest_exec_state *state, const struct err *e)
{
    struct exec_call *call = arg;
    struct live *l = live_find(call->control, call->sandbox_id);
    struct exec_live *x = l ? exec_live_find(l, call->id) : NULL;
    if (x && x->phase == EXEC_STARTING) {
        if (e)
            start_failed(call->control, l, x, e);
        else {
            exec_is_running(call->control, call->sandbox_id, call->id, (int32_t)state->pid);
            if (!state->running)
                exec_ended(call->control, call->sandbox_id, call->id, &state->exit);
        }
    }
    free(call);
}

static void on_started(void *arg, const struct guest_exec_started *started, const struct err *e)
{
    struct exec_call *call = arg;
    struct live *l = live_find(call->control, call->sandbox_id);
    struct exec_live *x = l ? exec_live_find(l, call->id) : NULL;
    if (x && x->phase == EXEC_STARTING) {
        struct guest *g;
        if (!e)
            exec_is_running(call->control, call->sandbox_id, call->id, (int32_t)started->pid);
        else if (e->code == ERR_CONFLICT && (g = node_guest(call->control->node, l->machine_id, NULL))) {
            /* An earlier life of the daemon started it and died before it could say so. */
            guest_exec_state(g, call->id, on_state_after_conflict, call);
            return;
        } else
            start_failed(call->control, l, x, e);
    }
    free(call);
}

struct exec_start_wait *exec_start_begin(struct control *c, const char *project_id, const char *sandbox_id,
                                         const char *id, exec_started_cb done, void *arg)
{
    struct err e = {0};
    _cleanup_store_exec_ struct store_exec *row = NULL;
    struct guest *g = NULL;
    struct live *l = live_find(c, sandbox_id);
    if (store_exec_get(c->store, project_id, sandbox_id, id, &row, &e) >= 0)
        switch (row->state) {
        case STORE_EXEC_RUNNING:
        case STORE_EXEC_EXITED:
            done(arg, NULL);
            return NULL;
        case STORE_EXEC_FAILED:
            err_set(&e, ERR_STATE, "exec %s could not be started: %s", id, row->reason ? row->reason : "no reason");
            break;
        case STORE_EXEC_LOST:
            err_set(&e, ERR_GONE, "exec %s is lost: %s", id, row->reason ? row->reason : "its sandbox ended");
            break;
        case STORE_EXEC_RESERVED:
            g = sandbox_guest(c, project_id, sandbox_id, &e);
        }
    if (!g || !l) {
        done(arg, &e);
        return NULL;
    }
    struct exec_live *x = exec_live_find(l, id);
    if (!x)
        x = exec_live_add(l, id, EXEC_WAITED_FOR);
    struct exec_start_wait *w = NEW(struct exec_start_wait);
    *w = (struct exec_start_wait){.done = done, .arg = arg};
    TAILQ_INSERT_TAIL(&x->start_waits, w, link);
    if (x->phase == EXEC_WAITED_FOR) {
        struct exec_spec spec;
        x->phase = EXEC_STARTING;
        if (exec_spec_init(&spec, row->spec_json, &e) < 0) {
            start_failed(c, l, x, &e);
            return NULL;
        }
        guest_exec_start(g, id, &spec.guest, on_started, exec_call_new(c, sandbox_id, id));
        exec_spec_done(&spec);
    } else if (x->phase == EXEC_RUNNING) {
        /* It runs, and the store has not taken that yet. */
        TAILQ_REMOVE(&x->start_waits, w, link);
        free(w);
        done(arg, NULL);
        return NULL;
    }
    return w;
}

void exec_start_cancel(struct live *l, const char *id, struct exec_start_wait *w)
{
    struct exec_live *x = exec_live_find(l, id);
    struct exec_start_wait *other;
    if (x)
        TAILQ_FOREACH(other, &x->start_waits, link)
            if (other == w) {
                TAILQ_REMOVE(&x->start_waits, w, link);
                free(w);
                return;
            }
}

void exec_start(struct control *c, const char *project_id, const char *sandbox_id, const char *id, exec_started_cb done,
                void *arg)
{
    exec_start_begin(c, project_id, sandbox_id, id, done, arg);
}

/* ---- ending ---- */

void exec_ended(struct control *c, const char *sandbox_id, const char *id, const struct guest_exit *g)
{
    struct live *l = live_find(c, sandbox_id);
    struct store_exec_exit x = {
        .exit_code = g->signalled ? -1 : g->code,
        .exit_signal = g->signalled ? g->signal : 0,
        .output_bytes = g->total_bytes,
        .dropped_bytes = g->dropped_bytes,
        .cpu_user_us = g->user_us,
        .cpu_system_us = g->system_us,
        .max_rss_bytes = g->max_rss_kib < UINT64_MAX / 1024 ? g->max_rss_kib * 1024 : UINT64_MAX,
        .oom = g->oom,
        .timed_out = g->timed_out,
        .started_at_ms = g->started_ms,
        .ended_at_ms = g->ended_ms,
    };
    int r = store_exec_finish(c->store, id, &x, clock_wall_ms(), NULL);
    if (r < 0 && r != ERR_STATE && r != ERR_NOT_FOUND) {
        /* The store does not take it at this moment: a later poll sees the end again. */
        if (l)
            exec_poll_soon(l, false);
        return;
    }
    if (r >= 0) {
        c->stats.execs_ended++;
        if (l)
            l->execs_open -= l->execs_open > 0;
    }
    struct exec_live *live = l ? exec_live_find(l, id) : NULL;
    if (live)
        exec_rest(l, live, NULL);
    else
        waiter_wake(c, id);
}

struct guest *exec_guest(struct control *c, const char *project_id, const char *sandbox_id, const char *id,
                         struct err *e)
{
    struct live *l = live_find_in(c, project_id, sandbox_id);
    struct exec_live *x = l ? exec_live_find(l, id) : NULL;
    if (!x || x->phase != EXEC_RUNNING) {
        _cleanup_store_exec_ struct store_exec *row = NULL;
        if (store_exec_get(c->store, project_id, sandbox_id, id, &row, e) < 0)
            return NULL;
        err_set(e, ERR_STATE, "exec %s is %s, not running", id, store_exec_state_name(row->state));
        return NULL;
    }
    return sandbox_guest(c, project_id, sandbox_id, e);
}

/* ---- forgetting ---- */

struct forget {
    struct control *control;
    char project_id[ID_SIZE];
    char sandbox_id[ID_SIZE];
    char id[ID_SIZE];
    exec_started_cb done;
    void *arg;
};

static void forgotten(void *arg, const struct err *e)
{
    struct forget *f = arg;
    struct control *c = f->control;
    struct err error = {0};
    if (e && e->code != ERR_NOT_FOUND)
        error = *e;
    else {
        _cleanup_store_exec_ struct store_exec *row = NULL;
        bool open = store_exec_get(c->store, NULL, f->sandbox_id, f->id, &row, NULL) >= 0 &&
                    (row->state == STORE_EXEC_RESERVED || row->state == STORE_EXEC_RUNNING);
        int r = store_exec_delete(c->store, f->project_id, f->sandbox_id, f->id, &error);
        struct live *l = live_find(c, f->sandbox_id);
        if (r >= 0 && l) {
            struct exec_live *x = exec_live_find(l, f->id);
            struct err why = {0};
            err_set(&why, ERR_GONE, "exec %s was deleted", f->id);
            l->execs_open -= open && l->execs_open > 0;
            if (x)
                exec_rest(l, x, &why);
        }
    }
    f->done(f->arg, error.code ? &error : NULL);
    free(f);
}

void exec_delete(struct control *c, const char *project_id, const char *sandbox_id, const char *id,
                 exec_started_cb done, void *arg)
{
    struct err e = {0};
    _cleanup_store_exec_ struct store_exec *row = NULL;
    if (store_exec_get(c->store, project_id, sandbox_id, id, &row, &e) < 0) {
        done(arg, &e);
        return;
    }
    struct forget *f = NEW(struct forget);
    *f = (struct forget){.control = c, .done = done, .arg = arg};
    memcpy(f->project_id, row->project_id, ID_SIZE);
    memcpy(f->sandbox_id, row->sandbox_id, ID_SIZE);
    memcpy(f->id, row->id, ID_SIZE);
    struct live *l = live_find(c, sandbox_id);
    struct exec_live *x = l ? exec_live_find(l, id) : NULL;
    bool in_guest = row->state == STORE_EXEC_RUNNING || row->state == STORE_EXEC_EXITED || (x && x->phase != EXEC_WAITED_FOR);
    if (!l || !life_holds_machine(l->state) || l->state == LIFE_DELETING || !in_guest) {
        forgotten(f, NULL);
        return;
    }
    struct guest *g = sandbox_guest(c, project_id, sandbox_id, &e);
    if (!g)
        forgotten(f, &e);
    else
        guest_exec_forget(g, id, forgotten, f);
}

/* ---- a sandbox's steps ---- */

void execs_load(struct live *l)
{
    char cursor[STORE_CURSOR_SIZE] = "";
    uint32_t mask = STORE_MASK(STORE_EXEC_RESERVED) | STORE_MASK(STORE_EXEC_RUNNING);
    do {
        _cleanup_store_exec_list_ struct store_exec_list list = {0};
        struct store_page page = {.limit = STORE_PAGE_MAX, .cursor = cursor[0] ? cursor : NULL};
        if (store_exec_list(l->control->store, NULL, l->id, mask, &page, &list, NULL) < 0)
            return;
        for (size_t i = 0; i < list.count; i++) {
            l->execs_open++;
            if (list.items[i]->state == STORE_EXEC_RUNNING)
                exec_live_add(l, list.items[i]->id, EXEC_RUNNING);
            else
                execs_sweep_at(l->control, list.items[i]->token_expires_at_ms);
        }
        memcpy(cursor, list.next_cursor, sizeof(cursor));
    } while (cursor[0]);
}

void execs_end(struct live *l, const char *reason)
{
    struct control *c = l->control;
    char sandbox_id[ID_SIZE];
    memcpy(sandbox_id, l->id, ID_SIZE);
    struct err why = {0};
    err_set(&why, ERR_GONE, "%s", reason ? reason : "its sandbox ended");
    l->execs_open = 0;
    /* Callbacks may start others or end the sandbox's entry: look again each time. */
    while ((l = live_find(c, sandbox_id)) && l->execs)
        exec_rest(l, l->execs, &why);
}

void execs_free(struct live *l)
{
    struct exec_live *x, *tmp;
    HASH_ITER(hh, l->execs, x, tmp) {
        struct err why = {0};
        err_set(&why, ERR_UNAVAILABLE, "the platform is stopping");
        HASH_DEL(l->execs, x);
        exec_watch_end(x);
        answer_start_waits(x, &why);
        free(x);
    }
}

uint32_t execs_running(const struct live *l)
{
    uint32_t n = 0;
    for (const struct exec_live *x = l->execs; x; x = x->hh.next)
        n += x->phase == EXEC_RUNNING;
    return n;
}

/* ---- reserved ones whose token has expired ---- */

static void on_sweep(uv_timer_t *timer)
{
    struct control *c = timer->data;
    c->sweep_at_ms = 0;
    execs_sweep(c);
}

void execs_sweep_at(struct control *c, int64_t at_ms)
{
    if (c->stopping || (c->sweep_at_ms && c->sweep_at_ms <= at_ms))
        return;
    int64_t wait = at_ms - clock_wall_ms();
    c->sweep_at_ms = at_ms;
    uv_timer_start(c->sweep, on_sweep, wait < 0 ? 0 : (uint64_t)wait + 1, 0);
}

void execs_sweep(struct control *c)
{
    char cursor[STORE_CURSOR_SIZE] = "";
    int64_t now = clock_wall_ms(), next = 0;
    if (c->stopping)
        return;
    do {
        _cleanup_store_exec_list_ struct store_exec_list list = {0};
        struct store_page page = {.limit = STORE_PAGE_MAX, .cursor = cursor[0] ? cursor : NULL};
        if (store_exec_list(c->store, NULL, NULL, STORE_MASK(STORE_EXEC_RESERVED), &page, &list, NULL) < 0) {
            next = now + RETRY_MS;
            break;
        }
        for (size_t i = 0; i < list.count; i++) {
            const struct store_exec *row = list.items[i];
            struct live *l = live_find(c, row->sandbox_id);
            struct exec_live *x = l ? exec_live_find(l, row->id) : NULL;
            if (x && x->phase != EXEC_WAITED_FOR)
                continue;
            if (row->token_expires_at_ms > now) {
                next = next ? MIN(next, row->token_expires_at_ms) : row->token_expires_at_ms;
                continue;
            }
            if (store_exec_fail(c->store, row->id, STORE_EXEC_FAILED, "nobody attached in time", now, NULL) < 0) {
                next = now + RETRY_MS;
                continue;
            }
            c->stats.execs_failed++;
            if (l)
                l->execs_open -= l->execs_open > 0;
            if (x)
                exec_rest(l, x, NULL);
        }
        memcpy(cursor, list.next_cursor, sizeof(cursor));
    } while (cursor[0]);
    if (next)
        execs_sweep_at(c, next);
}

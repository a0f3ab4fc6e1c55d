/* A sandbox in memory: events in, a step of the table in lifecycle.h, the step into the store, then its actions. */
#include "control/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "control/exec.h"
#include "control/operation.h"
#include "control/sandbox_internal.h"
#include "store/exec.h"
#include "store/sandbox.h"

#include <jansson.h>

_Static_assert((int)LIFE_CREATING == STORE_SANDBOX_CREATING && (int)LIFE_RUNNING == STORE_SANDBOX_RUNNING &&
                   (int)LIFE_PAUSING == STORE_SANDBOX_PAUSING && (int)LIFE_PAUSED == STORE_SANDBOX_PAUSED &&
                   (int)LIFE_RESUMING == STORE_SANDBOX_RESUMING && (int)LIFE_DELETING == STORE_SANDBOX_DELETING &&
                   (int)LIFE_DELETED == STORE_SANDBOX_DELETED && (int)LIFE_FAILED == STORE_SANDBOX_FAILED,
               "states are the same numbers in the store");

/* What a callback of the node carries: it misses when the sandbox is gone or a later action was begun. */
struct life_action_call {
    struct control *control;
    char id[ID_SIZE];
    unsigned generation;
    enum life_event done, failed;
};

struct live *live_find(struct control *c, const char *id)
{
    struct live *l;
    HASH_FIND_STR(c->lives, id, l);
    return l;
}

struct live *live_find_in(struct control *c, const char *project_id, const char *id)
{
    struct live *l = live_find(c, id);
    return l && (!project_id || str_eq(l->project_id, project_id)) ? l : NULL;
}

struct live *live_load(struct control *c, const char *id, struct err *e)
{
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    if (store_sandbox_get(c->store, NULL, id, &sb, e) < 0)
        return NULL;
    if (sb->state == STORE_SANDBOX_DELETED) {
        err_set(e, ERR_GONE, "sandbox %s is deleted", id);
        return NULL;
    }
    struct live *l = NEW(struct live);
    l->control = c;
    memcpy(l->id, sb->id, ID_SIZE);
    memcpy(l->project_id, sb->project_id, ID_SIZE);
    memcpy(l->machine_id, sb->machine_id, ID_SIZE);
    l->state = (enum life_state)sb->state;
    l->expires_at_ms = sb->expires_at_ms;
    if (sb->reason)
        snprintf(l->reason, sizeof(l->reason), "%s", sb->reason);
    HASH_ADD_STR(c->lives, id, l);
    if (life_busy(l->state)) {
        _cleanup_store_operation_list_ struct store_operation_list ops = {0};
        struct store_operation_filter filter = {.state_mask = STORE_OPERATION_OPEN, .target_id = id};
        struct store_page page = {.limit = 1};
        if (store_operation_list(c->store, NULL, &filter, &page, &ops, NULL) >= 0 && ops.count)
            memcpy(l->op_id, ops.items[0]->id, ID_SIZE);
    }
    return l;
}

void live_free(struct live *l)
{
    struct control *c = l->control;
    execs_free(l);
    timer_done(c, &l->retry);
    timer_done(c, &l->poll);
    if (l->claim) {
        node_claim_cancel(c->node, l->claim);
        free(l->claim_call);
    }
    HASH_DEL(c->lives, l);
    free(l);
    end_all_check(c);
}

/* ---- actions ---- */

static struct life_action_call *call_new(struct live *l, enum life_event done, enum life_event failed)
{
    struct life_action_call *call = NEW(struct life_action_call);
    *call = (struct life_action_call){
        .control = l->control, .generation = ++l->generation, .done = done, .failed = failed};
    memcpy(call->id, l->id, ID_SIZE);
    return call;
}

/* The sandbox that the answer is for, if it still matters. */
static struct live *call_target(const struct life_action_call *call)
{
    struct live *l = live_find(call->control, call->id);
    return l && l->generation == call->generation ? l : NULL;
}

static void on_claimed(void *arg, const struct node_machine *m, const struct err *e)
{
    struct life_action_call *call = arg;
    struct control *c = call->control;
    struct live *l = call_target(call);
    if (l) {
        l->claim = 0;
        l->claim_call = NULL;
        if (m) {
            memcpy(l->machine_id, m->id, ID_SIZE);
            l->source = m->source;
            l->source_known = true;
            control_histogram_add(&c->stats.claim[m->source], (double)m->claim_us / 1e6);
            live_event(c, call->id, LIFE_CLAIMED, 0, NULL);
        } else
            live_event(c, call->id, LIFE_CLAIM_FAILED, e->code, e->text);
    }
    free(call);
}

static void on_done(void *arg, const struct err *e)
{
    struct life_action_call *call = arg;
    if (call_target(call))
        live_event(call->control, call->id, e ? call->failed : call->done, e ? e->code : 0, e ? e->text : NULL);
    free(call);
}

static void on_retry_timer(uv_timer_t *timer);

static void retry_later(struct live *l)
{
    if (l->control->stopping)
        return;
    l->control->stats.store_retries++;
    if (!l->retry)
        l->retry = timer_new(l->control, l);
    uv_timer_start(l->retry, on_retry_timer, RETRY_MS, 0);
}

static void on_removed(void *arg, const struct err *e)
{
    struct life_action_call *call = arg;
    struct live *l = call_target(call);
    if (l && e)
        retry_later(l);
    else if (l) {
        l->machine_id[0] = '\0';
        live_event(call->control, call->id, LIFE_REMOVED, 0, NULL);
    }
    free(call);
}

/* The machine as the store has it: the node binds one before control hears of it. */
static void look_up_machine(struct live *l)
{
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    if (store_sandbox_get(l->control->store, NULL, l->id, &sb, NULL) >= 0 && sb->machine_id[0])
        memcpy(l->machine_id, sb->machine_id, ID_SIZE);
}

static void do_remove(struct live *l)
{
    struct control *c = l->control;
    look_up_machine(l);
    struct life_action_call *call = call_new(l, LIFE_REMOVED, LIFE_REMOVED);
    if (l->machine_id[0])
        node_remove(c->node, l->machine_id, on_removed, call);
    else
        on_removed(call, NULL);
}

static void claim_now(struct live *l)
{
    struct control *c = l->control;
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    struct err e = {0};
    if (store_sandbox_get(c->store, NULL, l->id, &sb, &e) < 0) {
        live_event(c, l->id, LIFE_CLAIM_FAILED, e.code, e.text);
        return;
    }
    struct shape shape = {.vcpus = sb->vcpus, .mem_mib = sb->memory_mib, .disk_mib = sb->disk_mib};
    struct env_list env;
    env_list_init(&env, sb->env_json);
    struct node_identity identity = {.sandbox_id = l->id, .hostname = l->id, .env = (const char *const *)env.items};
    struct life_action_call *call = call_new(l, LIFE_CLAIMED, LIFE_CLAIM_FAILED);
    char id[ID_SIZE];
    unsigned generation = l->generation;
    memcpy(id, l->id, ID_SIZE);
    l->claim_call = call;
    uint64_t claim = node_claim(c->node, sb->template_digest, &shape, &identity, on_claimed, call);
    env_list_done(&env);
    /* The answer may have come already, and everything may have happened since. */
    l = live_find(c, id);
    if (l && l->generation == generation && l->state == LIFE_CREATING && l->claim_call)
        l->claim = claim;
}

static void on_removed_before_claim(void *arg, const struct err *e)
{
    struct life_action_call *call = arg;
    struct live *l = call_target(call);
    if (l && e)
        live_event(call->control, call->id, LIFE_CLAIM_FAILED, e->code, e->text);
    else if (l) {
        l->machine_id[0] = '\0';
        claim_now(l);
    }
    free(call);
}

static void do_claim(struct live *l)
{
    if (l->machine_id[0])
        node_remove(l->control->node, l->machine_id, on_removed_before_claim,
                    call_new(l, LIFE_CLAIMED, LIFE_CLAIM_FAILED));
    else
        claim_now(l);
}

void live_unclaim(struct live *l)
{
    if (!l->claim_call)
        return;
    if (l->claim)
        node_claim_cancel(l->control->node, l->claim);
    free(l->claim_call);
    l->claim_call = NULL;
    l->claim = 0;
}

/* The actions of a step. `l` may be gone afterwards. */
static void perform(struct live *l, uint32_t actions, const char *op_ended, const char *reason)
{
    struct control *c = l->control;
    char id[ID_SIZE];
    memcpy(id, l->id, ID_SIZE);
    if (actions & LIFE_DO_UNCLAIM)
        live_unclaim(l);
    if (actions & LIFE_DO_END_EXECS)
        execs_end(l, reason);
    if (op_ended[0])
        operation_wake(c, op_ended);
    if (!(l = live_find(c, id)))
        return;
    if (actions & LIFE_DO_FIND_EXECS)
        execs_find(l);
    if (actions & LIFE_DO_CLAIM)
        do_claim(l);
    else if (actions & LIFE_DO_PAUSE)
        node_pause(c->node, l->machine_id, on_done, call_new(l, LIFE_PAUSE_DONE, LIFE_PAUSE_FAILED));
    else if (actions & LIFE_DO_RESUME)
        node_resume(c->node, l->machine_id, on_done, call_new(l, LIFE_RESUME_DONE, LIFE_RESUME_FAILED));
    else if (actions & LIFE_DO_REMOVE)
        do_remove(l);
}

/* ---- steps ---- */

/* Why a sandbox is in a state, as the API shows it; NULL for those that need no reason. */
static const char *state_reason(const struct live *l, enum life_state next, const char *reason)
{
    if (next == LIFE_FAILED)
        return reason ? reason : "its machine ended";
    if (next == LIFE_DELETING || next == LIFE_DELETED)
        return l->reason[0] ? l->reason : NULL;
    return NULL;
}

/* Put a step into the store: one transaction. `new_op` is empty or the operation that the step begins, inserted by the
 * caller within the same transaction. */
static int record(struct live *l, struct life_step step, int code, const char *reason, struct err *e)
{
    struct store *s = l->control->store;
    int r;
    if (step.actions & LIFE_DO_OP_SUCCEED)
        r = operation_close(l->control, l->op_id, 0, NULL, e);
    else if (step.actions & LIFE_DO_OP_FAIL)
        r = operation_close(l->control, l->op_id, code ? code : ERR_UNAVAILABLE, reason ? reason : "its machine ended",
                            e);
    else if (step.actions & LIFE_DO_OP_CANCEL)
        r = operation_close(l->control, l->op_id, ERR_CANCELLED, "given up because the sandbox is being deleted", e);
    else
        r = 0;
    if (r < 0)
        return r;
    if (step.next != l->state &&
        (r = store_sandbox_set_state(s, l->id, STORE_MASK(l->state), (enum store_sandbox_state)step.next,
                                     state_reason(l, step.next, reason), clock_wall_ms(), e)) < 0)
        return r;
    if (step.actions & LIFE_DO_END_EXECS) {
        int lost = store_exec_lose_all(s, l->id, reason ? reason : "its sandbox ended", clock_wall_ms(), e);
        if (lost < 0)
            return lost;
        l->control->stats.execs_lost += (uint64_t)lost;
    }
    return 0;
}

/* After the transaction: memory follows, then the actions. */
static void follow(struct live *l, struct life_step step, const char *new_op, const char *reason)
{
    struct control *c = l->control;
    char ended[ID_SIZE] = "";
    enum life_state before = l->state;
    if (step.actions & (LIFE_DO_OP_SUCCEED | LIFE_DO_OP_FAIL | LIFE_DO_OP_CANCEL)) {
        memcpy(ended, l->op_id, ID_SIZE);
        l->op_id[0] = '\0';
    }
    if (new_op)
        memcpy(l->op_id, new_op, ID_SIZE);
    l->state = step.next;
    if (step.next == LIFE_FAILED && before != LIFE_FAILED) {
        c->stats.sandboxes[LIFE_FAILED]++;
        log_warn("sandbox failed", F_STR("sandbox", l->id), F_STR("machine", l->machine_id[0] ? l->machine_id : NULL),
                 F_STR("was", life_state_name(before)), F_STR("reason", reason));
    }
    if (before == LIFE_CREATING && step.next == LIFE_RUNNING && l->asked_mono_ns)
        control_histogram_add(&c->stats.create, (double)(clock_mono_ns() - l->asked_mono_ns) / 1e9);
    if (step.next == LIFE_DELETED) {
        c->stats.sandboxes[LIFE_DELETED]++;
        node_console_forget(c->node, l->id);
        execs_end(l, "its sandbox was deleted");
        live_free(l);
        operation_wake(c, ended);
        return;
    }
    perform(l, step.actions, ended, reason);
}

/* One event, recorded and performed; negative when the store does not take it. */
static int step_now(struct live *l, enum life_event event, int code, const char *reason, struct err *e)
{
    struct control *c = l->control;
    struct life_step step = life_step(l->state, event);
    if (step.verdict != LIFE_MOVE) {
        /* What was left of a machine that failed is gone: the sandbox rests. */
        if (l->state == LIFE_FAILED && event == LIFE_REMOVED)
            live_free(l);
        return 0;
    }
    char op[ID_SIZE] = "";
    bool deadline = event == LIFE_DEADLINE;
    _cleanup_store_tx_ struct store_tx tx = {0};
    int r = store_begin(c->store, &tx, e);
    if (r < 0)
        return r;
    if (deadline) {
        snprintf(l->reason, sizeof(l->reason), "deadline");
        r = operation_open(c, l->project_id, "sandbox.delete", "sandbox", l->id, NULL, op, e);
    }
    if (r < 0 || (r = record(l, step, code, reason, e)) < 0 || (r = store_commit(&tx, e)) < 0)
        return r;
    if (deadline)
        c->stats.deadlines++;
    follow(l, step, deadline ? op : NULL, deadline ? "its sandbox reached its deadline" : reason);
    return 0;
}

static void on_retry_timer(uv_timer_t *timer)
{
    struct live *l = timer->data;
    struct control *c = l->control;
    char id[ID_SIZE];
    memcpy(id, l->id, ID_SIZE);
    while (l && l->waiting_count) {
        struct life_answer answer = l->waiting[0];
        struct err e = {0};
        memmove(l->waiting, l->waiting + 1, sizeof(l->waiting[0]) * --l->waiting_count);
        if (step_now(l, answer.event, answer.code, answer.reason[0] ? answer.reason : NULL, &e) < 0) {
            memmove(l->waiting + 1, l->waiting, sizeof(l->waiting[0]) * l->waiting_count++);
            l->waiting[0] = answer;
            retry_later(l);
            return;
        }
        l = live_find(c, id);
    }
    if (l && (l->state == LIFE_DELETING || l->state == LIFE_FAILED))
        do_remove(l);
}

void live_event(struct control *c, const char *id, enum life_event event, int code, const char *reason)
{
    struct live *l = live_find(c, id);
    if (!l)
        return;
    struct err e = {0};
    if (!l->waiting_count && step_now(l, event, code, reason, &e) >= 0)
        return;
    if (l->waiting_count < EVENTS_WAITING_MAX) {
        struct life_answer *a = &l->waiting[l->waiting_count++];
        *a = (struct life_answer){.event = event, .code = code};
        snprintf(a->reason, sizeof(a->reason), "%s", reason ? reason : "");
    }
    retry_later(l);
}

/* A request for a change, on a sandbox that is in memory. */
int live_request(struct live *l, enum life_event request, const char *request_id, char ret_op[ID_SIZE], struct err *e)
{
    static const char *const kinds[] = {
        [LIFE_PAUSE] = "sandbox.pause", [LIFE_RESUME] = "sandbox.resume", [LIFE_DELETE] = "sandbox.delete"};
    struct control *c = l->control;
    struct life_step step = life_step(l->state, request);
    switch (step.verdict) {
    case LIFE_JOIN:
        memcpy(ret_op, l->op_id, ID_SIZE);
        return 0;
    case LIFE_ALREADY:
        return operation_open_done(c, l->project_id, kinds[request], "sandbox", l->id, request_id, ret_op, e);
    case LIFE_MOVE:
        break;
    default:
        return err_set(e, ERR_STATE, "cannot %s sandbox %s: it is %s", life_event_name(request), l->id,
                       life_state_name(l->state));
    }
    char op[ID_SIZE];
    char old_reason[sizeof(l->reason)];
    memcpy(old_reason, l->reason, sizeof(old_reason));
    if (request == LIFE_DELETE)
        snprintf(l->reason, sizeof(l->reason), "deleted by request");
    _cleanup_store_tx_ struct store_tx tx = {0};
    int r = store_begin(c->store, &tx, e);
    if (r < 0 ||
        (r = operation_open(c, l->project_id, kinds[request], "sandbox", l->id, request_id, op, e)) < 0 ||
        (r = record(l, step, 0, request == LIFE_DELETE ? "its sandbox was deleted" : NULL, e)) < 0 ||
        (r = store_commit(&tx, e)) < 0) {
        memcpy(l->reason, old_reason, sizeof(old_reason));
        return r;
    }
    memcpy(ret_op, op, ID_SIZE);
    follow(l, step, op, request == LIFE_DELETE ? "its sandbox was deleted" : NULL);
    return 0;
}

/* Pause, resume, delete, and waiting for the operations of sandboxes. */
#include "api/changes.h"

#include "api/render.h"
#include "api/wait.h"
#include "control/lifecycle.h"
#include "control/sandbox.h"

struct pending_change {
    enum change change;
    uint64_t wait_ms;
    char op_id[ID_SIZE];
    char sandbox_id[ID_SIZE];
};

static void free_pending(void *data)
{
    free(data);
}

static void answer(struct http_request *r, struct api *api, void *data)
{
    const struct pending_change *p = data;
    _cleanup_store_operation_ struct store_operation *op = NULL;
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    struct err e = {0};
    char location[64];
    if (store_operation_get(api->store, NULL, p->op_id, &op, &e) < 0 ||
        store_sandbox_get(api->store, NULL, p->sandbox_id, &sb, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    wait_applied(r, p->wait_ms);
    if (op->state == STORE_OPERATION_FAILED) {
        err_set(&e, op->error_code ? op->error_code : ERR_INTERNAL, "%s", op->error_text ? op->error_text : "");
        reply_problem(r, &e, json_pack("{s:s}", "operation_id", op->id));
        return;
    }
    int status = 202;
    if (op->state == STORE_OPERATION_SUCCEEDED && p->wait_ms)
        status = p->change == CHANGE_CREATE ? 201 : 200;
    if (status == 202)
        snprintf(location, sizeof(location), "/v1/operations/%s", op->id);
    else
        snprintf(location, sizeof(location), "/v1/sandboxes/%s", sb->id);
    if (status != 200)
        http_reply_header(r, "Location", location);
    http_reply_json(r, status,
                    json_pack("{s:o, s:o}", "operation", render_operation(op), "sandbox", render_sandbox(api, sb)));
}

void change_wait(struct http_request *r, struct api *api, enum change change, const char *op_id,
                 const char *sandbox_id, uint64_t wait_ms)
{
    struct pending_change *p = NEW(struct pending_change);
    *p = (struct pending_change){.change = change, .wait_ms = wait_ms};
    snprintf(p->op_id, ID_SIZE, "%s", op_id);
    snprintf(p->sandbox_id, ID_SIZE, "%s", sandbox_id);
    _cleanup_store_operation_ struct store_operation *op = NULL;
    bool open = store_operation_get(api->store, NULL, op_id, &op, NULL) >= 0 &&
                (STORE_MASK(op->state) & STORE_OPERATION_OPEN);
    wait_then(r, api, op_id, open ? wait_ms : 0, answer, p, free_pending);
}

void change_replay(struct http_request *r, struct api *api, const struct idempotency *idem, enum change change,
                   uint64_t wait_ms)
{
    _cleanup_store_operation_ struct store_operation *op = NULL;
    if (wait_ms && idem->kept.target_id && store_operation_get(api->store, NULL, idem->kept.target_id, &op, NULL) >= 0)
        change_wait(r, api, change, op->id, op->target_id, wait_ms);
    else
        idempotency_replay(r, idem);
}

/* These join or repeat by themselves, so the key is noted before and the answer kept after: a crash in between leaves a
 * key that the start of the daemon forgets. */
static void request_change(struct http_request *r, struct api *api, enum life_event event)
{
    const char *id = http_request_param(r, "sandbox_id");
    _cleanup_idempotency_ struct idempotency idem = {0};
    struct err e = {0};
    uint64_t wait_ms = 0;
    char op_id[ID_SIZE];
    int result = http_query_only(http_request_query(r), (const char *[]){"wait", NULL}, &e);
    if (result >= 0)
        result = wait_wanted(r, &wait_ms, &e);
    if (result >= 0)
        result = idempotency_begin(r, api, &idem, &e);
    if (result > 0) {
        change_replay(r, api, &idem, CHANGE_OTHER, wait_ms);
        return;
    }
    if (result >= 0) {
        result = sandbox_request(api->control, project_of(r), id, event, http_request_id(r), op_id, &e);
        if (result < 0)
            idempotency_forget(api, &idem);
    }
    if (result < 0) {
        http_reply_error(r, &e);
        return;
    }
    if (idem.key) {
        _cleanup_store_operation_ struct store_operation *op = NULL;
        _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
        char location[64];
        snprintf(location, sizeof(location), "/v1/operations/%s", op_id);
        if (store_operation_get(api->store, NULL, op_id, &op, NULL) >= 0 &&
            store_sandbox_get(api->store, NULL, id, &sb, NULL) >= 0) {
            json_t *body = json_pack("{s:o, s:o}", "operation", render_operation(op), "sandbox", render_sandbox(api, sb));
            idempotency_keep(api, &idem, 202, location, body, op_id, NULL);
            json_decref(body);
        }
    }
    change_wait(r, api, CHANGE_OTHER, op_id, id, wait_ms);
}

void api_sandbox_pause(struct http_request *r, void *arg)
{
    request_change(r, arg, LIFE_PAUSE);
}

void api_sandbox_resume(struct http_request *r, void *arg)
{
    request_change(r, arg, LIFE_RESUME);
}

void api_sandbox_delete(struct http_request *r, void *arg)
{
    request_change(r, arg, LIFE_DELETE);
}

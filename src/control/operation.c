/* Operations in the store, and waking who waits for them. */
#include "control/operation.h"

#include "base/clock.h"
#include "base/log.h"
#include "control/internal.h"
#include "control/waiter.h"

static int insert(struct control *c, const char *project_id, const char *kind, const char *target_type,
                  const char *target_id, const char *request_id, bool done, char ret_op[ID_SIZE], struct err *e)
{
    int64_t now = clock_wall_ms();
    struct store_operation op = {
        .kind = (char *)kind,
        .target_type = (char *)target_type,
        .target_id = (char *)target_id,
        .request_id = (char *)request_id,
        .state = done ? STORE_OPERATION_SUCCEEDED : STORE_OPERATION_RUNNING,
        .created_at_ms = now,
        .started_at_ms = now,
        .ended_at_ms = done ? now : 0,
    };
    id_new(ID_OPERATION, op.id);
    if (project_id)
        snprintf(op.project_id, sizeof(op.project_id), "%s", project_id);
    int r = store_operation_insert(c->store, &op, e);
    if (r < 0)
        return r;
    memcpy(ret_op, op.id, ID_SIZE);
    return 0;
}

int operation_open(struct control *c, const char *project_id, const char *kind, const char *target_type,
                   const char *target_id, const char *request_id, char ret_op[ID_SIZE], struct err *e)
{
    return insert(c, project_id, kind, target_type, target_id, request_id, false, ret_op, e);
}

int operation_open_done(struct control *c, const char *project_id, const char *kind, const char *target_type,
                        const char *target_id, const char *request_id, char ret_op[ID_SIZE], struct err *e)
{
    return insert(c, project_id, kind, target_type, target_id, request_id, true, ret_op, e);
}

/* The client is told no more than the code of a host's fault: the log has the rest, under the request's id. */
static void log_failure(struct control *c, const char *op_id, int code, const char *text)
{
    _cleanup_store_operation_ struct store_operation *op = NULL;
    if (store_operation_get(c->store, NULL, op_id, &op, NULL) < 0)
        return;
    log_at(code == ERR_CANCELLED ? LOG_LEVEL_INFO : code == ERR_SYSTEM || code == ERR_INTERNAL ? LOG_LEVEL_ERROR : LOG_LEVEL_WARN,
           "operation failed", F_STR("operation", op_id), F_STR("kind", op->kind), F_STR("target", op->target_id),
           F_STR("request_id", op->request_id), F_STR("code", err_info(code)->name), F_STR("error", text));
}

int operation_close(struct control *c, const char *op_id, int error_code, const char *error_text, struct err *e)
{
    if (!op_id[0])
        return 0;
    int r = store_operation_finish(c->store, op_id, error_code, error_text, clock_wall_ms(), e);
    if (r >= 0 && error_code)
        log_failure(c, op_id, error_code, error_text);
    return r == ERR_STATE || r == ERR_NOT_FOUND ? 0 : r;
}

void operation_wake(struct control *c, const char *op_id)
{
    if (op_id[0])
        waiter_wake(c, op_id);
}

/* Operations (see operation.h). */
#include "store/operation.h"
#include "store/internal.h"

#include "base/str.h"

#define COLUMNS                                                                                                        \
    "id, project_id, kind, target_type, target_id, state, progress_done, progress_total, progress_step, error_code,"   \
    " error_text, request_id, created_at, started_at, ended_at"

static const char *const state_names[STORE_OPERATION_STATES] = {"pending", "running", "succeeded", "failed"};

const char *store_operation_state_name(enum store_operation_state state)
{
    return (unsigned)state < STORE_OPERATION_STATES ? state_names[state] : "unknown";
}

bool store_operation_state_by_name(const char *name, enum store_operation_state *ret_state)
{
    for (int i = 0; i < STORE_OPERATION_STATES; i++) {
        if (str_eq(state_names[i], name)) {
            *ret_state = (enum store_operation_state)i;
            return true;
        }
    }
    return false;
}

void store_operation_free(struct store_operation *op)
{
    if (!op)
        return;
    free(op->kind);
    free(op->target_type);
    free(op->target_id);
    free(op->progress_step);
    free(op->error_text);
    free(op->request_id);
    free(op);
}

void store_operation_list_done(struct store_operation_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        store_operation_free(list->items[i]);
    free(list->items);
    *list = (struct store_operation_list){0};
}

static struct store_operation *row(sqlite3_stmt *stmt)
{
    struct store_operation *op = NEW(struct store_operation);
    int c = 0;
    column_id(stmt, c++, op->id);
    column_id(stmt, c++, op->project_id);
    op->kind = column_text(stmt, c++);
    op->target_type = column_text(stmt, c++);
    op->target_id = column_text(stmt, c++);
    op->state = (enum store_operation_state)sqlite3_column_int(stmt, c++);
    op->progress_done = (uint64_t)sqlite3_column_int64(stmt, c++);
    op->progress_total = (uint64_t)sqlite3_column_int64(stmt, c++);
    op->progress_step = column_text(stmt, c++);
    const char *code = (const char *)sqlite3_column_text(stmt, c++);
    op->error_code = code ? err_code_by_name(code) : 0;
    op->error_text = column_text(stmt, c++);
    op->request_id = column_text(stmt, c++);
    op->created_at_ms = sqlite3_column_int64(stmt, c++);
    op->started_at_ms = sqlite3_column_int64(stmt, c++);
    op->ended_at_ms = sqlite3_column_int64(stmt, c++);
    return op;
}

int store_operation_insert(struct store *s, const struct store_operation *op, struct err *e)
{
    _cleanup_free_ char *error_text = reason_clean(op->error_text, STORE_REASON_MAX);
    bool ended = op->state == STORE_OPERATION_SUCCEEDED || op->state == STORE_OPERATION_FAILED;
    int r;
    if ((r = check_id(ID_OPERATION, op->id, e)) < 0 || (r = check_text("operation kind", op->kind, 1, 64, e)) < 0 ||
        (r = check_text("target type", op->target_type, 1, 32, e)) < 0 ||
        (r = check_text("target", op->target_id, 1, STORE_DIGEST_MAX, e)) < 0 ||
        (op->progress_step && (r = check_text("progress step", op->progress_step, 0, 256, e)) < 0) ||
        (op->request_id && (r = check_text("request id", op->request_id, 0, 128, e)) < 0))
        return r;
    r = statement_run(s,
                      "INSERT INTO operations (" COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                      BINDS(B_TEXT(op->id), B_ID(op->project_id), B_TEXT(op->kind), B_TEXT(op->target_type),
                            B_TEXT(op->target_id), B_INT(op->state), B_INT(op->progress_done),
                            B_INT(op->progress_total), B_TEXT(op->progress_step),
                            B_TEXT(op->error_code ? err_info(op->error_code)->name : NULL), B_TEXT(error_text),
                            B_TEXT(op->request_id), B_INT(op->created_at_ms), B_TIME(op->started_at_ms),
                            ended ? B_INT(op->ended_at_ms) : B_TIME(0)),
                      e);
    if (r == ERR_CONFLICT)
        return err_set(e, ERR_CONFLICT, "an operation %s exists already", op->id);
    if (r == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "no project %s", op->project_id);
    return r < 0 ? r : 0;
}

int store_operation_get(struct store *s, const char *project_id, const char *id, struct store_operation **ret_op,
                        struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, "SELECT " COLUMNS " FROM operations WHERE id = ?1 AND (?2 IS NULL OR project_id = ?2)",
                           BINDS(B_TEXT(id), B_TEXT(project_id)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no operation %s", id);
    *ret_op = row(stmt);
    return 0;
}

int store_operation_list(struct store *s, const char *project_id, const struct store_operation_filter *filter,
                         const struct store_page *page, struct store_operation_list *ret_list, struct err *e)
{
    _cleanup_query_ struct query q = QUERY_INIT;
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    _cleanup_store_operation_list_ struct store_operation_list list = {0};
    uint32_t states = filter ? filter->state_mask & STORE_OPERATION_ANY : 0;
    query_add(&q, "SELECT " COLUMNS " FROM operations WHERE 1");
    /* A unary plus keeps SQLite from choosing the project's index where the target's is the narrow one. */
    if (project_id)
        query_bind(&q, filter && filter->target_id ? " AND +project_id = ?" : " AND project_id = ?",
                   B_TEXT(project_id));
    if (filter && filter->target_id)
        query_bind(&q, " AND target_id = ?", B_TEXT(filter->target_id));
    if (filter && filter->kind)
        query_bind(&q, " AND kind = ?", B_TEXT(filter->kind));
    if (states && !(states & ~STORE_OPERATION_OPEN) && !project_id)
        query_add(&q, " AND state IN (0, 1)"); /* the words of the index of open operations */
    if (states && states != STORE_OPERATION_ANY)
        query_bind(&q, " AND (1 << state) & ?", B_INT(states));
    int r = query_page(&q, page, "created_at", "id", e);
    if (r < 0 || (r = query_open(s, &q, &stmt, e)) < 0)
        return r;
    while ((r = statement_step(s, stmt, e)) > 0) {
        if (list.count == q.limit) {
            struct store_operation *last = list.items[list.count - 1];
            store_cursor_encode(last->created_at_ms, last->id, list.next_cursor);
            break;
        }
        list_push(&list.items, &list.count, row(stmt));
    }
    if (r < 0)
        return r;
    *ret_list = list;
    list = (struct store_operation_list){0};
    return 0;
}

static int not_in_state(struct store *s, const char *id, struct err *e)
{
    _cleanup_store_operation_ struct store_operation *op = NULL;
    int r = store_operation_get(s, NULL, id, &op, e);
    if (r < 0)
        return r;
    return err_set(e, ERR_STATE, "operation %s is %s", id, state_names[op->state]);
}

int store_operation_start(struct store *s, const char *id, int64_t now_ms, struct err *e)
{
    int r = statement_run(s, "UPDATE operations SET state = 1, started_at = ? WHERE id = ? AND state = 0",
                          BINDS(B_INT(now_ms), B_TEXT(id)), e);
    if (r == 0)
        return not_in_state(s, id, e);
    return r < 0 ? r : 0;
}

int store_operation_progress(struct store *s, const char *id, uint64_t done, uint64_t total, const char *step_given,
                             struct err *e)
{
    _cleanup_free_ char *step = reason_clean(step_given, 256);
    int r = statement_run(s,
                          "UPDATE operations SET progress_done = ?, progress_total = ?, progress_step = ?"
                          " WHERE id = ? AND state IN (0, 1)",
                          BINDS(B_INT(done), B_INT(total), B_TEXT(step), B_TEXT(id)), e);
    return r < 0 ? r : 0;
}

int store_operation_set_target(struct store *s, const char *id, const char *target_id, struct err *e)
{
    int r = check_text("target", target_id, 1, STORE_DIGEST_MAX, e);
    if (r < 0)
        return r;
    r = statement_run(s, "UPDATE operations SET target_id = ? WHERE id = ? AND state IN (0, 1)",
                      BINDS(B_TEXT(target_id), B_TEXT(id)), e);
    if (r == 0)
        return not_in_state(s, id, e);
    return r < 0 ? r : 0;
}

int store_operation_finish(struct store *s, const char *id, int error_code, const char *error_text_given,
                           int64_t now_ms, struct err *e)
{
    _cleanup_free_ char *error_text = reason_clean(error_text_given, STORE_REASON_MAX);
    int r = statement_run(s,
                          "UPDATE operations SET state = ?1, error_code = ?2, error_text = ?3, ended_at = ?4,"
                          " started_at = coalesce(started_at, ?4),"
                          " progress_done = CASE WHEN ?1 = 2 THEN progress_total ELSE progress_done END"
                          " WHERE id = ?5 AND state IN (0, 1)",
                          BINDS(B_INT(error_code ? STORE_OPERATION_FAILED : STORE_OPERATION_SUCCEEDED),
                                B_TEXT(error_code ? err_info(error_code)->name : NULL),
                                B_TEXT(error_code ? error_text : NULL), B_INT(now_ms), B_TEXT(id)),
                          e);
    if (r == 0)
        return not_in_state(s, id, e);
    return r < 0 ? r : 0;
}

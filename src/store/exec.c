/* Execs (see exec.h). */
#include "store/exec.h"
#include "store/internal.h"

#include "base/str.h"

#define COLUMNS                                                                                                        \
    "id, sandbox_id, project_id, state, reason, spec, guest_pid, token_expires_at, created_at, started_at, ended_at,"  \
    " exit_code, exit_signal, output_bytes, dropped_bytes, cpu_user_us, cpu_system_us, max_rss_bytes, oom,"            \
    " guest_started_at, guest_ended_at, timed_out, token_hash"
#define TOKEN_HASH_COLUMN 22

static const char *const state_names[STORE_EXEC_STATES] = {"reserved", "running", "exited", "failed", "lost"};

const char *store_exec_state_name(enum store_exec_state state)
{
    return (unsigned)state < STORE_EXEC_STATES ? state_names[state] : "unknown";
}

bool store_exec_state_by_name(const char *name, enum store_exec_state *ret_state)
{
    for (int i = 0; i < STORE_EXEC_STATES; i++) {
        if (str_eq(state_names[i], name)) {
            *ret_state = (enum store_exec_state)i;
            return true;
        }
    }
    return false;
}

void store_exec_free(struct store_exec *x)
{
    if (!x)
        return;
    free(x->reason);
    free(x->spec_json);
    free(x);
}

void store_exec_list_done(struct store_exec_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        store_exec_free(list->items[i]);
    free(list->items);
    *list = (struct store_exec_list){0};
}

static struct store_exec *row(sqlite3_stmt *stmt)
{
    struct store_exec *x = NEW(struct store_exec);
    int c = 0;
    column_id(stmt, c++, x->id);
    column_id(stmt, c++, x->sandbox_id);
    column_id(stmt, c++, x->project_id);
    x->state = (enum store_exec_state)sqlite3_column_int(stmt, c++);
    x->reason = column_text(stmt, c++);
    x->spec_json = column_text(stmt, c++);
    x->guest_pid = sqlite3_column_int(stmt, c++);
    x->token_expires_at_ms = sqlite3_column_int64(stmt, c++);
    x->created_at_ms = sqlite3_column_int64(stmt, c++);
    x->started_at_ms = sqlite3_column_int64(stmt, c++);
    x->ended_at_ms = sqlite3_column_int64(stmt, c++);
    x->exit.exit_code = sqlite3_column_int(stmt, c++);
    x->exit.exit_signal = sqlite3_column_int(stmt, c++);
    x->exit.output_bytes = (uint64_t)sqlite3_column_int64(stmt, c++);
    x->exit.dropped_bytes = (uint64_t)sqlite3_column_int64(stmt, c++);
    x->exit.cpu_user_us = (uint64_t)sqlite3_column_int64(stmt, c++);
    x->exit.cpu_system_us = (uint64_t)sqlite3_column_int64(stmt, c++);
    x->exit.max_rss_bytes = (uint64_t)sqlite3_column_int64(stmt, c++);
    x->exit.oom = sqlite3_column_int(stmt, c++) != 0;
    x->exit.started_at_ms = sqlite3_column_int64(stmt, c++);
    x->exit.ended_at_ms = sqlite3_column_int64(stmt, c++);
    x->exit.timed_out = sqlite3_column_int(stmt, c++) != 0;
    return x;
}

int store_exec_insert(struct store *s, const struct store_exec *x, char ret_token[STORE_TOKEN_SIZE], struct err *e)
{
    _cleanup_free_ char *reason = reason_clean(x->reason, STORE_REASON_MAX);
    char token[STORE_TOKEN_SIZE];
    uint8_t hash[STORE_HASH_LEN];
    bool ended = x->state >= STORE_EXEC_EXITED;
    int r;
    if ((r = check_id(ID_EXEC, x->id, e)) < 0 || (r = check_json("exec", x->spec_json, STORE_EXEC_SPEC_MAX, e)) < 0)
        return r;
    secret_new(STORE_TOKEN_PREFIX, token, sizeof(token));
    sha256_of(token, strlen(token), hash);
    r = statement_run(s,
                      "INSERT INTO execs (id, sandbox_id, project_id, state, reason, spec, token_hash,"
                      " token_expires_at, guest_pid, created_at, started_at, ended_at)"
                      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                      BINDS(B_TEXT(x->id), B_TEXT(x->sandbox_id), B_TEXT(x->project_id), B_INT(x->state),
                            B_TEXT(reason), B_TEXT(x->spec_json ? x->spec_json : "{}"), B_BLOB(hash, sizeof(hash)),
                            B_INT(x->token_expires_at_ms), B_INT(x->guest_pid), B_INT(x->created_at_ms),
                            B_TIME(x->started_at_ms), ended ? B_INT(x->ended_at_ms) : B_TIME(0)),
                      e);
    if (r == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "no sandbox %s", x->sandbox_id);
    if (r == ERR_CONFLICT)
        return err_set(e, ERR_CONFLICT, "an exec %s exists already", x->id);
    if (r < 0)
        return r;
    memcpy(ret_token, token, sizeof(token));
    wipe(token, sizeof(token));
    return 0;
}

#define ONE_EXEC                                                                                                       \
    "SELECT " COLUMNS " FROM execs WHERE id = ?1 AND (?2 IS NULL OR sandbox_id = ?2) AND (?3 IS NULL OR project_id = ?3)"

int store_exec_get(struct store *s, const char *project_id, const char *sandbox_id, const char *id,
                   struct store_exec **ret_exec, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, ONE_EXEC, BINDS(B_TEXT(id), B_TEXT(sandbox_id), B_TEXT(project_id)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no exec %s", id);
    *ret_exec = row(stmt);
    return 0;
}

int store_exec_verify_token(struct store *s, const char *sandbox_id, const char *id, const char *token,
                            int64_t now_ms, struct store_exec **ret_exec, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    uint8_t hash[STORE_HASH_LEN];
    size_t len = token ? strnlen(token, STORE_TOKEN_SIZE) : 0;
    if (!id || !sandbox_id || len != STORE_TOKEN_SIZE - 1)
        goto refused;
    sha256_of(token, len, hash);
    int r = statement_open(s, ONE_EXEC, BINDS(B_TEXT(id), B_TEXT(sandbox_id), B_TEXT(NULL)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0 || sqlite3_column_bytes(stmt, TOKEN_HASH_COLUMN) != STORE_HASH_LEN ||
        !equal_constant_time(sqlite3_column_blob(stmt, TOKEN_HASH_COLUMN), hash, STORE_HASH_LEN))
        goto refused;
    struct store_exec *x = row(stmt);
    if (x->token_expires_at_ms <= now_ms) {
        store_exec_free(x);
        goto refused;
    }
    *ret_exec = x;
    return 0;
refused:
    return err_set(e, ERR_UNAUTHENTICATED, "the attach token is not valid");
}

int store_exec_list(struct store *s, const char *project_id, const char *sandbox_id, uint32_t state_mask,
                    const struct store_page *page, struct store_exec_list *ret_list, struct err *e)
{
    _cleanup_query_ struct query q = QUERY_INIT;
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    _cleanup_store_exec_list_ struct store_exec_list list = {0};
    query_add(&q, "SELECT " COLUMNS " FROM execs WHERE 1");
    if (sandbox_id)
        query_bind(&q, " AND sandbox_id = ?", B_TEXT(sandbox_id));
    if (project_id)
        query_bind(&q, " AND project_id = ?", B_TEXT(project_id));
    if (state_mask & STORE_EXEC_ANY)
        query_bind(&q, " AND (1 << state) & ?", B_INT(state_mask & STORE_EXEC_ANY));
    int r = query_page(&q, page, "created_at", "id", e);
    if (r < 0 || (r = query_open(s, &q, &stmt, e)) < 0)
        return r;
    while ((r = statement_step(s, stmt, e)) > 0) {
        if (list.count == q.limit) {
            struct store_exec *last = list.items[list.count - 1];
            store_cursor_encode(last->created_at_ms, last->id, list.next_cursor);
            break;
        }
        list_push(&list.items, &list.count, row(stmt));
    }
    if (r < 0)
        return r;
    *ret_list = list;
    list = (struct store_exec_list){0};
    return 0;
}

/* What a compare-and-set that changed `r` rows returns. */
static int changed_one(struct store *s, const char *id, int r, struct err *e)
{
    _cleanup_store_exec_ struct store_exec *x = NULL;
    if (r != 0)
        return r < 0 ? r : 0;
    if ((r = store_exec_get(s, NULL, NULL, id, &x, e)) < 0)
        return r;
    return err_set(e, ERR_STATE, "exec %s is %s", id, store_exec_state_name(x->state));
}

int store_exec_extend_token(struct store *s, const char *id, int64_t token_expires_at_ms, struct err *e)
{
    int r = statement_run(s, "UPDATE execs SET token_expires_at = ? WHERE id = ?",
                          BINDS(B_INT(token_expires_at_ms), B_TEXT(id)), e);
    return changed_one(s, id, r, e);
}

int store_exec_renew_token(struct store *s, const char *id, int64_t token_expires_at_ms,
                           char ret_token[STORE_TOKEN_SIZE], struct err *e)
{
    char token[STORE_TOKEN_SIZE];
    uint8_t hash[STORE_HASH_LEN];
    secret_new(STORE_TOKEN_PREFIX, token, sizeof(token));
    sha256_of(token, strlen(token), hash);
    int r = statement_run(s, "UPDATE execs SET token_hash = ?, token_expires_at = ? WHERE id = ? AND state = 0",
                          BINDS(B_BLOB(hash, sizeof(hash)), B_INT(token_expires_at_ms), B_TEXT(id)), e);
    if ((r = changed_one(s, id, r, e)) < 0)
        return r;
    memcpy(ret_token, token, sizeof(token));
    wipe(token, sizeof(token));
    return 0;
}

int store_exec_start(struct store *s, const char *id, int32_t guest_pid, int64_t now_ms, struct err *e)
{
    int r = statement_run(s, "UPDATE execs SET state = 1, guest_pid = ?, started_at = ? WHERE id = ? AND state = 0",
                          BINDS(B_INT(guest_pid), B_INT(now_ms), B_TEXT(id)), e);
    return changed_one(s, id, r, e);
}

/* Times of an exec are the host's, but how long it ran the guest knows: the end lies that long after the start. When that
 * would be in the future (the start was heard of late), both move. A guest whose clock jumped, or that lies, cannot make
 * its exec longer than the time since it was asked for. */
#define RAN "min(?14, max(0, ?11 - created_at))"
#define FINISH_TIMES                                                                                                   \
    " ended_at = CASE WHEN ?14 < 0 THEN ?11 ELSE min(?11, coalesce(started_at, ?11 - " RAN ") + " RAN ") END,"          \
    " started_at = CASE WHEN ?14 < 0 THEN coalesce(started_at, ?11)"                                                   \
    " ELSE min(?11 - " RAN ", coalesce(started_at, ?11)) END,"

int store_exec_finish(struct store *s, const char *id, const struct store_exec_exit *x, int64_t now_ms, struct err *e)
{
    bool known = x->started_at_ms && x->ended_at_ms && x->started_at_ms <= INT64_MAX / 2;
    int64_t ran_ms = !known ? -1 : x->ended_at_ms > x->started_at_ms ? x->ended_at_ms - x->started_at_ms : 0;
    int r = statement_run(s,
                          "UPDATE execs SET state = 2, exit_code = ?1, exit_signal = ?2, output_bytes = ?3,"
                          " dropped_bytes = ?4, cpu_user_us = ?5, cpu_system_us = ?6, max_rss_bytes = ?7, oom = ?8,"
                          " guest_started_at = ?9, guest_ended_at = ?10," FINISH_TIMES
                          " timed_out = ?13 WHERE id = ?12 AND state IN (0, 1)",
                          BINDS(B_INT(x->exit_code), B_INT(x->exit_signal), B_INT(x->output_bytes),
                                B_INT(x->dropped_bytes), B_INT(x->cpu_user_us), B_INT(x->cpu_system_us),
                                B_INT(x->max_rss_bytes), B_INT(x->oom), B_TIME(x->started_at_ms),
                                B_TIME(x->ended_at_ms), B_INT(now_ms), B_TEXT(id), B_INT(x->timed_out),
                                B_INT(ran_ms)),
                          e);
    return changed_one(s, id, r, e);
}

int store_exec_fail(struct store *s, const char *id, enum store_exec_state to, const char *reason_given,
                    int64_t now_ms, struct err *e)
{
    _cleanup_free_ char *reason = reason_clean(reason_given, STORE_REASON_MAX);
    if (to != STORE_EXEC_FAILED && to != STORE_EXEC_LOST)
        return err_set(e, ERR_INVALID, "an exec becomes %s in another way", store_exec_state_name(to));
    int r = statement_run(s, "UPDATE execs SET state = ?, reason = ?, ended_at = ? WHERE id = ? AND state IN (0, 1)",
                          BINDS(B_INT(to), B_TEXT(reason), B_INT(now_ms), B_TEXT(id)), e);
    return changed_one(s, id, r, e);
}

int store_exec_lose_all(struct store *s, const char *sandbox_id, const char *reason_given, int64_t now_ms,
                        struct err *e)
{
    _cleanup_free_ char *reason = reason_clean(reason_given, STORE_REASON_MAX);
    return statement_run(s,
                         "UPDATE execs SET state = 4, reason = ?, ended_at = ? WHERE sandbox_id = ? AND state IN (0, 1)",
                         BINDS(B_TEXT(reason), B_INT(now_ms), B_TEXT(sandbox_id)), e);
}

int store_exec_trim(struct store *s, const char *sandbox_id, unsigned keep, struct err *e)
{
    return statement_run(s,
                         "DELETE FROM execs WHERE id IN (SELECT id FROM execs WHERE sandbox_id = ?1"
                         " AND state IN (2, 3, 4) ORDER BY created_at, id"
                         " LIMIT max(0, (SELECT count(*) FROM execs WHERE sandbox_id = ?1) - ?2))",
                         BINDS(B_TEXT(sandbox_id), B_INT(keep)), e);
}

int store_exec_delete(struct store *s, const char *project_id, const char *sandbox_id, const char *id, struct err *e)
{
    int r = statement_run(s,
                          "DELETE FROM execs WHERE id = ?1 AND (?2 IS NULL OR sandbox_id = ?2)"
                          " AND (?3 IS NULL OR project_id = ?3)",
                          BINDS(B_TEXT(id), B_TEXT(sandbox_id), B_TEXT(project_id)), e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no exec %s", id);
    return r < 0 ? r : 0;
}

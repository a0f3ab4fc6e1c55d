/* Idempotency keys (see idempotency.h). */
#include "store/idempotency.h"
#include "store/internal.h"

void store_idempotency_answer_done(struct store_idempotency_answer *answer)
{
    free(answer->location);
    free(answer->body);
    free(answer->target_id);
    *answer = (struct store_idempotency_answer){0};
}

void store_request_hash(const char *method, const char *path, const void *body, size_t body_len,
                        uint8_t ret_hash[STORE_HASH_LEN])
{
    struct sha256 *hash = sha256_new();
    sha256_add(hash, method, strlen(method) + 1);
    sha256_add(hash, path, strlen(path) + 1);
    sha256_add(hash, body, body_len);
    sha256_end(hash, ret_hash);
}

static int check_key(const char *key, struct err *e)
{
    size_t len = key ? strnlen(key, STORE_IDEMPOTENCY_KEY_MAX + 1) : 0;
    if (len > STORE_IDEMPOTENCY_KEY_MAX)
        return err_set(e, ERR_TOO_LARGE, "idempotency key: longer than %d characters", STORE_IDEMPOTENCY_KEY_MAX);
    for (size_t i = 0; i < len; i++)
        if (key[i] < 0x21 || key[i] > 0x7e)
            return err_set(e, ERR_INVALID, "idempotency key: has other than printable ASCII");
    if (len == 0)
        return err_set(e, ERR_INVALID, "idempotency key: must not be empty");
    return 0;
}

/* The row of a key, when it is younger than ttl_ms: 1, else 0. */
static int look(struct store *s, const char *project_id, const char *key, const uint8_t request_hash[STORE_HASH_LEN],
                int64_t oldest_ms, struct store_idempotency_answer *ret_answer, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s,
                           "SELECT request_hash, status, location, body, target_id, created_at FROM idempotency_keys"
                           " WHERE project_id = ? AND key = ? AND created_at > ?",
                           BINDS(B_TEXT(project_id), B_TEXT(key), B_INT(oldest_ms)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) <= 0)
        return r;
    if (memcmp(sqlite3_column_blob(stmt, 0), request_hash, STORE_HASH_LEN) != 0)
        return err_set(e, ERR_CONFLICT, "this idempotency key was used with another request");
    struct store_idempotency_answer answer = {
        .status = sqlite3_column_int(stmt, 1),
        .location = column_text(stmt, 2),
        .target_id = column_text(stmt, 4),
        .created_at_ms = sqlite3_column_int64(stmt, 5),
    };
    const void *body = sqlite3_column_blob(stmt, 3);
    answer.body_len = (size_t)sqlite3_column_bytes(stmt, 3);
    if (body) {
        answer.body = xmalloc(answer.body_len + 1);
        memcpy(answer.body, body, answer.body_len);
        answer.body[answer.body_len] = '\0';
    }
    *ret_answer = answer;
    return 1;
}

int store_idempotency_begin(struct store *s, const char *project_id, const char *key,
                            const uint8_t request_hash[STORE_HASH_LEN], uint64_t ttl_ms, int64_t now_ms,
                            struct store_idempotency_answer *ret_answer, struct err *e)
{
    int r = check_key(key, e);
    if (r < 0 || (r = look(s, project_id, key, request_hash, now_ms - (int64_t)ttl_ms, ret_answer, e)) < 0)
        return r;
    if (r > 0)
        return ret_answer->status ? STORE_IDEMPOTENCY_REPLAY : STORE_IDEMPOTENCY_RUNNING;
    r = statement_run(s,
                      "INSERT OR REPLACE INTO idempotency_keys (project_id, key, request_hash, created_at)"
                      " VALUES (?, ?, ?, ?)",
                      BINDS(B_TEXT(project_id), B_TEXT(key), B_BLOB(request_hash, STORE_HASH_LEN), B_INT(now_ms)), e);
    if (r == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "no project %s", project_id);
    return r < 0 ? r : STORE_IDEMPOTENCY_NEW;
}

int store_idempotency_finish(struct store *s, const char *project_id, const char *key,
                             const struct store_idempotency_answer *answer, struct err *e)
{
    if (answer->body_len > STORE_IDEMPOTENCY_BODY_MAX)
        return err_set(e, ERR_TOO_LARGE, "an answer of %zu bytes is not kept", answer->body_len);
    if (answer->status < 100 || answer->status > 599)
        return err_set(e, ERR_INVALID, "no HTTP status %d", answer->status);
    int r = statement_run(s,
                          "UPDATE idempotency_keys SET status = ?, location = ?, body = ?, target_id = ?"
                          " WHERE project_id = ? AND key = ?",
                          BINDS(B_INT(answer->status), B_TEXT(answer->location),
                                B_BLOB(answer->body, answer->body_len), B_TEXT(answer->target_id), B_TEXT(project_id),
                                B_TEXT(key)),
                          e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "this idempotency key is not in use");
    return r < 0 ? r : 0;
}

int store_idempotency_forget(struct store *s, const char *project_id, const char *key, struct err *e)
{
    int r = statement_run(s, "DELETE FROM idempotency_keys WHERE project_id = ? AND key = ?",
                          BINDS(B_TEXT(project_id), B_TEXT(key)), e);
    return r < 0 ? r : 0;
}

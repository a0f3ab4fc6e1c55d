/* API keys and the table of keys found valid (see api_key.h). */
#include "store/api_key.h"
#include "store/internal.h"
#include "store/project.h"

#include <uthash.h>

#include "base/str.h"

#define COLUMNS                                                                                                        \
    "id, project_id, name, scopes, created_at, expires_at, revoked_at, last_used_at, coalesce(secret_start, '"          \
    STORE_SECRET_PREFIX "')"
#define HASH_START 8
#define CACHE_MAX 1024
#define USED_STEP_MS 60000

static const char *const scope_names[] = {"sandboxes:read", "sandboxes:write",  "execs", "files",
                                          "ports",          "templates:write", "keys",  "admin"};

const char *store_scope_name(uint32_t scope)
{
    for (size_t i = 0; i < ARRAY_LEN(scope_names); i++)
        if (scope == 1u << i)
            return scope_names[i];
    return NULL;
}

uint32_t store_scope_by_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(scope_names); i++)
        if (str_eq(scope_names[i], name))
            return 1u << i;
    return 0;
}

/* ---- keys found valid, by hash; the list's order is that of use ---- */

struct cached_key {
    uint8_t hash[STORE_HASH_LEN];
    struct store_caller caller;
    int64_t expires_at_ms;
    int64_t last_used_at_ms;
    bool used_dirty; /* last_used_at_ms is newer than the row */
    UT_hash_handle hh;
};

struct key_cache {
    struct cached_key *by_hash;
};

static void cached_free(struct store *s, struct cached_key *k)
{
    HASH_DEL(s->keys->by_hash, k);
    wipe(k->hash, sizeof(k->hash));
    free(k);
}

void key_cache_clear(struct store *s)
{
    struct cached_key *k, *next;
    if (s->keys)
        HASH_ITER(hh, s->keys->by_hash, k, next)
            cached_free(s, k);
}

uint64_t key_cache_count(const struct store *s)
{
    return s->keys ? HASH_COUNT(s->keys->by_hash) : 0;
}

static int write_used(struct store *s, struct cached_key *k, struct err *e)
{
    if (!k->used_dirty)
        return 0;
    k->used_dirty = false;
    int r = statement_run(s, "UPDATE api_keys SET last_used_at = ?1 WHERE id = ?2 AND coalesce(last_used_at, 0) < ?1",
                          BINDS(B_INT(k->last_used_at_ms), B_TEXT(k->caller.key_id)), e);
    return r < 0 ? r : 0;
}

int store_api_key_flush_used(struct store *s, struct err *e)
{
    _cleanup_store_tx_ struct store_tx tx = {0};
    struct cached_key *k, *next;
    bool any = false;
    int r;
    if (!s->keys)
        return 0;
    for (k = s->keys->by_hash; k && !any; k = k->hh.next)
        any = k->used_dirty;
    if (!any)
        return 0;
    if ((r = store_begin(s, &tx, e)) < 0)
        return r;
    HASH_ITER(hh, s->keys->by_hash, k, next)
        if ((r = write_used(s, k, e)) < 0)
            return r;
    return store_commit(&tx, e);
}

static void cache_put(struct store *s, const uint8_t hash[STORE_HASH_LEN], const struct store_caller *caller,
                      int64_t expires_at_ms, int64_t last_used_at_ms, int64_t now_ms)
{
    if (!s->keys)
        s->keys = NEW(struct key_cache);
    if (HASH_COUNT(s->keys->by_hash) >= CACHE_MAX) {
        write_used(s, s->keys->by_hash, NULL);
        cached_free(s, s->keys->by_hash);
    }
    struct cached_key *k = NEW(struct cached_key);
    memcpy(k->hash, hash, STORE_HASH_LEN);
    k->caller = *caller;
    k->expires_at_ms = expires_at_ms;
    k->last_used_at_ms = now_ms;
    k->used_dirty = now_ms - last_used_at_ms >= USED_STEP_MS;
    if (!k->used_dirty)
        k->last_used_at_ms = last_used_at_ms;
    HASH_ADD(hh, s->keys->by_hash, hash, STORE_HASH_LEN, k);
}

static void cache_drop_id(struct store *s, const char *id)
{
    struct cached_key *k, *next;
    if (s->keys)
        HASH_ITER(hh, s->keys->by_hash, k, next)
            if (str_eq(k->caller.key_id, id))
                cached_free(s, k);
}

/* ---- rows ---- */

void store_api_key_free(struct store_api_key *k)
{
    if (!k)
        return;
    free(k->name);
    free(k);
}

void store_api_key_list_done(struct store_api_key_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        store_api_key_free(list->items[i]);
    free(list->items);
    *list = (struct store_api_key_list){0};
}

static struct store_api_key *row(sqlite3_stmt *stmt)
{
    struct store_api_key *k = NEW(struct store_api_key);
    column_id(stmt, 0, k->id);
    column_id(stmt, 1, k->project_id);
    k->name = column_text(stmt, 2);
    k->scopes = (uint32_t)sqlite3_column_int64(stmt, 3);
    k->created_at_ms = sqlite3_column_int64(stmt, 4);
    k->expires_at_ms = sqlite3_column_int64(stmt, 5);
    k->revoked_at_ms = sqlite3_column_int64(stmt, 6);
    k->last_used_at_ms = sqlite3_column_int64(stmt, 7);
    column_copy(stmt, 8, k->prefix, sizeof(k->prefix));
    return k;
}

static int check_count(struct store *s, const char *project_id, int64_t now_ms, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s,
                           "SELECT count(*) FROM api_keys WHERE project_id = ? AND revoked_at IS NULL"
                           " AND (expires_at IS NULL OR expires_at > ?)",
                           BINDS(B_TEXT(project_id), B_INT(now_ms)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (sqlite3_column_int64(stmt, 0) >= STORE_KEYS_PER_PROJECT_MAX)
        return err_set(e, ERR_LIMIT, "the project has %d keys already", STORE_KEYS_PER_PROJECT_MAX);
    return 0;
}

static int key_make(struct store *s, const char *project_id, const char *name, uint32_t scopes, bool bootstrap,
                    int64_t expires_at_ms, int64_t now_ms, char ret_secret[STORE_SECRET_SIZE],
                    struct store_api_key **ret_key, struct err *e)
{
    char id[ID_SIZE], secret[STORE_SECRET_SIZE], start[STORE_SECRET_START_SIZE];
    uint8_t hash[STORE_HASH_LEN];
    int r = check_text("key name", name, 1, STORE_NAME_MAX, e);
    if (r < 0)
        return r;
    if (scopes == 0 || (scopes & ~(uint32_t)STORE_SCOPE_ALL))
        return err_set(e, ERR_INVALID, "a key needs at least one scope, and known ones alone");
    if (expires_at_ms != 0 && expires_at_ms <= now_ms)
        return err_set(e, ERR_INVALID, "the key would have expired already");
    if ((r = check_count(s, project_id, now_ms, e)) < 0)
        return r;
    id_new(ID_KEY, id);
    secret_new(STORE_SECRET_PREFIX, secret, sizeof(secret));
    snprintf(start, sizeof(start), "%.*s", (int)sizeof(start) - 1, secret);
    sha256_of(secret, strlen(secret), hash);
    r = statement_run(s,
                      "INSERT INTO api_keys (id, project_id, name, scopes, hash, hash_start, bootstrap, created_at,"
                      " expires_at, secret_start) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                      BINDS(B_TEXT(id), B_TEXT(project_id), B_TEXT(name), B_INT(scopes), B_BLOB(hash, sizeof(hash)),
                            B_BLOB(hash, HASH_START), B_INT(bootstrap), B_INT(now_ms), B_TIME(expires_at_ms),
                            B_TEXT(start)),
                      e);
    if (r == ERR_NOT_FOUND)
        r = err_set(e, ERR_NOT_FOUND, "no project %s", project_id);
    if (r >= 0 && ret_key)
        r = store_api_key_get(s, project_id, id, ret_key, e);
    if (r >= 0)
        memcpy(ret_secret, secret, sizeof(secret));
    wipe(secret, sizeof(secret));
    return r < 0 ? r : 0;
}

int store_api_key_make(struct store *s, const char *project_id, const char *name, uint32_t scopes,
                       int64_t expires_at_ms, int64_t now_ms, char ret_secret[STORE_SECRET_SIZE],
                       struct store_api_key **ret_key, struct err *e)
{
    return key_make(s, project_id, name, scopes, false, expires_at_ms, now_ms, ret_secret, ret_key, e);
}

static bool secret_well_formed(const char *secret)
{
    uint8_t raw[20];
    size_t prefix = strlen(STORE_SECRET_PREFIX);
    return strnlen(secret, STORE_SECRET_SIZE) == STORE_SECRET_SIZE - 1 && str_starts(secret, STORE_SECRET_PREFIX) &&
           hex_decode(secret + prefix, 40, raw);
}

static int refuse(struct err *e)
{
    return err_set(e, ERR_UNAUTHENTICATED, "the API key is not valid");
}

/* From the table: 1 found (then *ret_row's times are known), 0 none. */
static int find_row(struct store *s, const uint8_t hash[STORE_HASH_LEN], struct store_caller *ret_caller,
                    int64_t *ret_expires, int64_t *ret_used, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s,
                           "SELECT id, project_id, scopes, hash, expires_at, last_used_at FROM api_keys"
                           " WHERE hash_start = ? AND revoked_at IS NULL",
                           BINDS(B_BLOB(hash, HASH_START)), &stmt, e);
    if (r < 0)
        return r;
    while ((r = statement_step(s, stmt, e)) > 0) {
        const void *stored = sqlite3_column_blob(stmt, 3);
        if (sqlite3_column_bytes(stmt, 3) != STORE_HASH_LEN || !equal_constant_time(stored, hash, STORE_HASH_LEN))
            continue;
        column_id(stmt, 0, ret_caller->key_id);
        column_id(stmt, 1, ret_caller->project_id);
        ret_caller->scopes = (uint32_t)sqlite3_column_int64(stmt, 2);
        if (ret_caller->scopes & STORE_SCOPE_ADMIN)
            ret_caller->scopes = STORE_SCOPE_ALL;
        *ret_expires = sqlite3_column_int64(stmt, 4);
        *ret_used = sqlite3_column_int64(stmt, 5);
        return 1;
    }
    return r;
}

int store_api_key_verify(struct store *s, const char *secret, int64_t now_ms, struct store_caller *ret_caller,
                         struct err *e)
{
    uint8_t hash[STORE_HASH_LEN];
    struct cached_key *k = NULL;
    if (!secret || !secret_well_formed(secret))
        return refuse(e);
    sha256_of(secret, STORE_SECRET_SIZE - 1, hash);
    if (s->keys)
        HASH_FIND(hh, s->keys->by_hash, hash, STORE_HASH_LEN, k);
    if (k) {
        if (k->expires_at_ms != 0 && k->expires_at_ms <= now_ms)
            return refuse(e);
        if (now_ms - k->last_used_at_ms >= USED_STEP_MS) {
            k->last_used_at_ms = now_ms;
            k->used_dirty = true;
        }
        HASH_DEL(s->keys->by_hash, k);
        HASH_ADD(hh, s->keys->by_hash, hash, STORE_HASH_LEN, k);
        *ret_caller = k->caller;
        return 0;
    }
    struct store_caller caller = {0};
    int64_t expires = 0, used = 0;
    int r = find_row(s, hash, &caller, &expires, &used, e);
    if (r < 0)
        return r;
    if (r == 0 || (expires != 0 && expires <= now_ms))
        return refuse(e);
    cache_put(s, hash, &caller, expires, used, now_ms);
    *ret_caller = caller;
    return 0;
}

int store_api_key_get(struct store *s, const char *project_id, const char *id, struct store_api_key **ret_key,
                      struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, "SELECT " COLUMNS " FROM api_keys WHERE id = ?1 AND (?2 IS NULL OR project_id = ?2)",
                           BINDS(B_TEXT(id), B_TEXT(project_id)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no key %s", id);
    *ret_key = row(stmt);
    return 0;
}

int store_api_key_list(struct store *s, const char *project_id, const struct store_page *page,
                       struct store_api_key_list *ret_list, struct err *e)
{
    _cleanup_query_ struct query q = QUERY_INIT;
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    _cleanup_store_api_key_list_ struct store_api_key_list list = {0};
    query_add(&q, "SELECT " COLUMNS " FROM api_keys WHERE 1");
    if (project_id)
        query_bind(&q, " AND project_id = ?", B_TEXT(project_id));
    int r = query_page(&q, page, "created_at", "id", e);
    if (r < 0 || (r = query_open(s, &q, &stmt, e)) < 0)
        return r;
    while ((r = statement_step(s, stmt, e)) > 0) {
        if (list.count == q.limit) {
            struct store_api_key *last = list.items[list.count - 1];
            store_cursor_encode(last->created_at_ms, last->id, list.next_cursor);
            break;
        }
        list_push(&list.items, &list.count, row(stmt));
    }
    if (r < 0)
        return r;
    *ret_list = list;
    list = (struct store_api_key_list){0};
    return 0;
}

int store_api_key_revoke(struct store *s, const char *project_id, const char *id, int64_t now_ms, struct err *e)
{
    cache_drop_id(s, id);
    int r = statement_run(s,
                          "UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?1)"
                          " WHERE id = ?2 AND (?3 IS NULL OR project_id = ?3)",
                          BINDS(B_INT(now_ms), B_TEXT(id), B_TEXT(project_id)), e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no key %s", id);
    return r < 0 ? r : 0;
}

/* The project "default", made when it is missing. */
static int default_project(struct store *s, int64_t now_ms, char ret_id[ID_SIZE], struct err *e)
{
    _cleanup_store_project_ struct store_project *project = NULL;
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, "SELECT id FROM projects WHERE name = 'default'", NULL, 0, &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r > 0) {
        column_id(stmt, 0, ret_id);
        return 0;
    }
    if ((r = store_project_make(s, "default", now_ms, &project, e)) < 0)
        return r;
    memcpy(ret_id, project->id, ID_SIZE);
    return 0;
}

int store_api_key_ensure_admin(struct store *s, const char *known_secret, int64_t now_ms,
                               char ret_secret[STORE_SECRET_SIZE], struct err *e)
{
    _cleanup_store_tx_ struct store_tx tx = {0};
    char project_id[ID_SIZE] = "", secret[STORE_SECRET_SIZE];
    struct store_caller caller;
    int r;
    if (known_secret && (r = store_api_key_verify(s, known_secret, now_ms, &caller, e)) != ERR_UNAUTHENTICATED) {
        if (r < 0)
            return r;
        if (caller.scopes & STORE_SCOPE_ADMIN)
            return 0;
    }
    key_cache_clear(s);
    if ((r = store_begin(s, &tx, e)) < 0 || (r = default_project(s, now_ms, project_id, e)) < 0 ||
        (r = statement_run(s, "UPDATE api_keys SET revoked_at = ? WHERE bootstrap = 1 AND revoked_at IS NULL",
                           BINDS(B_INT(now_ms)), e)) < 0 ||
        (r = key_make(s, project_id, "admin", STORE_SCOPE_ALL, true, 0, now_ms, secret, NULL, e)) < 0 ||
        (r = store_commit(&tx, e)) < 0)
        return r;
    memcpy(ret_secret, secret, sizeof(secret));
    wipe(secret, sizeof(secret));
    return 1;
}

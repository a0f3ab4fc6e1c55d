/* What the files of this folder share: the handle, statements, lists, checks. Nobody else includes it. */
#ifndef SPACE_STORE_INTERNAL_H
#define SPACE_STORE_INTERNAL_H

#include <sqlite3.h>

#include "base/buf.h"
#include "digest/digest.h"
#include "store/store.h"

struct stmt_entry;
struct key_cache;
struct checkpointer;

struct store {
    sqlite3 *db;
    char *path;
    int lock_fd;
    bool full_durability;
    uint32_t busy_timeout_ms;
    unsigned depth; /* open transactions; 1 is the real one, deeper ones are savepoints */
    struct stmt_entry *statements;
    struct key_cache *keys;
    struct checkpointer *checkpointer;
    uint64_t wal_limit_bytes;
    uint64_t wal_bytes; /* after the last commit */
    uint64_t commits, checkpoints;
};

/* ---- statements (statement.c) ---- */

enum bind_type { BIND_NULL, BIND_TEXT, BIND_INT, BIND_BLOB };
struct bind {
    enum bind_type type;
    const void *data;
    int64_t number; /* of BIND_INT; length of BIND_BLOB */
};
#define B_TEXT(s) ((struct bind){.type = BIND_TEXT, .data = (const char *)(s)}) /* NULL becomes NULL */
#define B_INT(v) ((struct bind){.type = BIND_INT, .number = (int64_t)(v)})
#define B_BLOB(p, n) ((struct bind){.type = BIND_BLOB, .data = (p), .number = (int64_t)(n)})
static inline struct bind B_ID(const char *id) /* empty and NULL become NULL */
{
    return B_TEXT(id && *id ? id : NULL);
}
static inline struct bind B_TIME(int64_t ms) /* 0 becomes NULL */
{
    return ms ? B_INT(ms) : (struct bind){.type = BIND_NULL};
}

/* A prepared statement out of the cache with its parameters bound; what the binds point to must outlive its use.
 * Give it back with _cleanup_stmt_. One and the same SQL text cannot be open twice at a time. */
int statement_open(struct store *s, const char *sql, const struct bind *binds, size_t count, sqlite3_stmt **ret_stmt,
                   struct err *e);
void statement_release(sqlite3_stmt **stmt);
#define _cleanup_stmt_ _cleanup_(statement_release)
/* 1: there is a row; 0: the end. */
int statement_step(struct store *s, sqlite3_stmt *stmt, struct err *e);
void statement_cache_free(struct store *s);

/* Run to the end; returns the number of rows changed. */
int statement_run(struct store *s, const char *sql, const struct bind *binds, size_t count, struct err *e);
#define BINDS(...) (const struct bind[]){__VA_ARGS__}, ARRAY_LEN(((const struct bind[]){__VA_ARGS__}))

/* ERR_… for the database's last failure `rc`, with a text of its own. */
int store_failure(sqlite3 *db, int rc, struct err *e);

char *column_text(sqlite3_stmt *stmt, int column); /* the caller's; NULL for NULL */
void column_copy(sqlite3_stmt *stmt, int column, char *ret_text, size_t size); /* cut at size; empty for NULL */
#define column_id(stmt, column, ret_id) column_copy(stmt, column, ret_id, ID_SIZE)

/* ---- queries whose conditions depend on the call (query.c) ---- */

#define QUERY_BINDS_MAX 32
struct query {
    struct buf sql;
    struct bind binds[QUERY_BINDS_MAX];
    size_t bind_count;
    size_t limit;
    /* of the cursor */
    int64_t after_ms;
    char after_key[STORE_DIGEST_MAX + 1];
};
#define QUERY_INIT ((struct query){.sql = {.max = 16384}})
void query_done(struct query *q);
#define _cleanup_query_ _cleanup_(query_done)

/* Append text and at most two parameters. */
void query_add(struct query *q, const char *sql);
void query_bind(struct query *q, const char *sql, struct bind value);
/* " AND (time_column, key_column) < (…) ORDER BY … DESC LIMIT …" as `page` says. */
int query_page(struct query *q, const struct store_page *page, const char *time_column, const char *key_column,
               struct err *e);
int query_open(struct store *s, struct query *q, sqlite3_stmt **ret_stmt, struct err *e);

/* Append to a list's array of pointers. */
void list_push(void *items_pointer, size_t *count, void *item);

/* As store_cursor_encode for any key of [A-Za-z0-9:_.-]; `size` of both texts. */
void cursor_encode(int64_t at_ms, const char *key, char *ret_text, size_t size);
int cursor_decode(const char *text, int64_t *ret_at_ms, char *ret_key, size_t key_size, struct err *e);

/* ---- checks (check.c) ---- */

/* UTF-8 of min to max bytes without control characters. */
int check_text(const char *what, const char *text, size_t min, size_t max, struct err *e);
/* UTF-8 that is no longer than max; NULL is fine. */
int check_json(const char *what, const char *text, size_t max, struct err *e);
int check_digest(const char *digest, struct err *e);
int check_tag(const char *tag, struct err *e);
int check_id(enum id_kind kind, const char *id, struct err *e);
/* A reason as it is stored: valid UTF-8, cut at max bytes. NULL for NULL; else the caller's. */
char *reason_clean(const char *reason, size_t max);

/* ---- others ---- */

/* Schema (schema.c). */
struct migration {
    int version;
    const char *name;
    const char *sql;
};
extern const struct migration store_migrations[];
extern const size_t store_migrations_count;
#define STORE_APPLICATION_ID 0x53504143 /* "SPAC" */
/* Bring `db` to the last of `migrations`, each in a transaction of its own. Returns the version reached. */
int schema_migrate(sqlite3 *db, const struct migration *migrations, size_t count, int64_t now_ms, struct err *e);
int schema_version(sqlite3 *db, int *ret_version, struct err *e);

int connection_open(const char *path, bool read_only, bool full_durability, uint32_t busy_timeout_ms, sqlite3 **ret_db,
                    struct err *e);
int checkpoint_wal_hook(void *store, sqlite3 *db, const char *name, int pages);
void key_cache_clear(struct store *s);
uint64_t key_cache_count(const struct store *s);
/* `prefix` and 40 hex digits of 20 random bytes. */
void secret_new(const char *prefix, char *ret_secret, size_t size);

#endif

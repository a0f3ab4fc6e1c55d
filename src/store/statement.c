/* Prepared statements: a bounded cache by SQL text, parameters, and what SQLite's failures mean (see internal.h). */
#include "store/internal.h"

#include <errno.h>
#include <uthash.h>

#define STATEMENTS_MAX 192

struct stmt_entry {
    char *sql;
    sqlite3_stmt *stmt;
    UT_hash_handle hh;
};

int store_failure(sqlite3 *db, int rc, struct err *e)
{
    int extended = db ? sqlite3_extended_errcode(db) : rc;
    if ((extended & 0xff) != (rc & 0xff))
        extended = rc;
    int system_errno = db ? sqlite3_system_errno(db) : 0;
    switch (extended) {
    case SQLITE_CONSTRAINT_UNIQUE:
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_ROWID:
        return err_set(e, ERR_CONFLICT, "exists already");
    case SQLITE_CONSTRAINT_FOREIGNKEY:
        return err_set(e, ERR_NOT_FOUND, "what this belongs to does not exist");
    }
    switch (extended & 0xff) {
    case SQLITE_CONSTRAINT:
        return err_set(e, ERR_INVALID, "a value is out of its bounds (%s)", db ? sqlite3_errmsg(db) : "");
    case SQLITE_TOOBIG:
        return err_set(e, ERR_TOO_LARGE, "a value is too large for the store");
    case SQLITE_FULL:
        return err_set(e, ERR_NO_SPACE, "write to the store: no space left on its disk");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(e, ERR_UNAVAILABLE, "the store is locked by another program");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(e, ERR_SYSTEM, "the store's file is damaged: %s", db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
        if (system_errno)
            return err_errno(e, ERR_SYSTEM, system_errno, "use the store's file");
        return err_set(e, ERR_SYSTEM, "use the store's file: %s", db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
    default:
        return err_set(e, ERR_INTERNAL, "store: %s", db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
    }
}

static void entry_free(struct store *s, struct stmt_entry *entry)
{
    HASH_DEL(s->statements, entry);
    sqlite3_finalize(entry->stmt);
    free(entry->sql);
    free(entry);
}

void statement_cache_free(struct store *s)
{
    struct stmt_entry *entry, *next;
    HASH_ITER(hh, s->statements, entry, next)
        entry_free(s, entry);
}

/* The entry for `sql`, prepared when it is not there; the one not used for longest goes when there are too many. */
static int entry_get(struct store *s, const char *sql, struct stmt_entry **ret_entry, struct err *e)
{
    struct stmt_entry *entry, *next;
    HASH_FIND_STR(s->statements, sql, entry);
    if (entry) {
        if (sqlite3_stmt_busy(entry->stmt))
            return err_set(e, ERR_INTERNAL, "store: a statement is in use already");
        HASH_DEL(s->statements, entry); /* to the end of the hash's list: the order of use */
        HASH_ADD_KEYPTR(hh, s->statements, entry->sql, strlen(entry->sql), entry);
        *ret_entry = entry;
        return 0;
    }
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL);
    if (rc != SQLITE_OK)
        return store_failure(s->db, rc, e);
    if (HASH_COUNT(s->statements) >= STATEMENTS_MAX) {
        HASH_ITER(hh, s->statements, entry, next) {
            if (!sqlite3_stmt_busy(entry->stmt)) {
                entry_free(s, entry);
                break;
            }
        }
    }
    entry = NEW(struct stmt_entry);
    entry->sql = xstrdup(sql);
    entry->stmt = stmt;
    HASH_ADD_KEYPTR(hh, s->statements, entry->sql, strlen(entry->sql), entry);
    *ret_entry = entry;
    return 0;
}

static int bind_one(sqlite3_stmt *stmt, int at, const struct bind *b)
{
    if (b->type == BIND_INT)
        return sqlite3_bind_int64(stmt, at, b->number);
    if (b->type == BIND_NULL || !b->data)
        return sqlite3_bind_null(stmt, at);
    if (b->type == BIND_BLOB)
        return sqlite3_bind_blob64(stmt, at, b->data, (sqlite3_uint64)b->number, SQLITE_STATIC);
    return sqlite3_bind_text(stmt, at, b->data, -1, SQLITE_STATIC);
}

int statement_open(struct store *s, const char *sql, const struct bind *binds, size_t count, sqlite3_stmt **ret_stmt,
                   struct err *e)
{
    struct stmt_entry *entry = NULL;
    /* A full disk makes SQLite end a transaction by itself; what follows must not become commits of their own. */
    if (s->depth > 0 && sqlite3_get_autocommit(s->db))
        return err_set(e, ERR_SYSTEM, "the transaction was ended by an earlier failure");
    int r = entry_get(s, sql, &entry, e);
    if (r < 0)
        return r;
    if (sqlite3_bind_parameter_count(entry->stmt) != (int)count)
        return err_set(e, ERR_INTERNAL, "store: a statement has %d parameters, %zu were given",
                       sqlite3_bind_parameter_count(entry->stmt), count);
    for (size_t i = 0; i < count; i++) {
        int rc = bind_one(entry->stmt, (int)i + 1, &binds[i]);
        if (rc != SQLITE_OK) {
            sqlite3_clear_bindings(entry->stmt);
            return store_failure(s->db, rc, e);
        }
    }
    *ret_stmt = entry->stmt;
    return 0;
}

void statement_release(sqlite3_stmt **stmt)
{
    if (!*stmt)
        return;
    sqlite3_reset(*stmt);
    sqlite3_clear_bindings(*stmt);
    *stmt = NULL;
}

int statement_step(struct store *s, sqlite3_stmt *stmt, struct err *e)
{
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE)
        return 0;
    return store_failure(s->db, rc, e);
}

int statement_run(struct store *s, const char *sql, const struct bind *binds, size_t count, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, sql, binds, count, &stmt, e);
    if (r < 0)
        return r;
    if ((r = statement_step(s, stmt, e)) < 0)
        return r;
    return sqlite3_changes(s->db);
}

char *column_text(sqlite3_stmt *stmt, int column)
{
    const unsigned char *text = sqlite3_column_text(stmt, column);
    return text ? xstrndup((const char *)text, (size_t)sqlite3_column_bytes(stmt, column)) : NULL;
}

void column_copy(sqlite3_stmt *stmt, int column, char *ret_text, size_t size)
{
    const unsigned char *text = sqlite3_column_text(stmt, column);
    snprintf(ret_text, size, "%s", text ? (const char *)text : "");
}

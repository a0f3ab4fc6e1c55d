/* Opening the store, its transactions and its figures (see store.h). */
#include "store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"

#define DEPTH_MAX 8
#define CACHE_KIB 2048

int connection_open(const char *path, bool read_only, bool full_durability, uint32_t busy_timeout_ms, sqlite3 **ret_db,
                    struct err *e)
{
    sqlite3 *db = NULL;
    int flags = SQLITE_OPEN_NOMUTEX | (read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
    int rc = sqlite3_open_v2(path, &db, flags, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_extended_result_codes(db, 1);
        sqlite3_busy_timeout(db, (int)busy_timeout_ms);
        sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
        _cleanup_free_ char *pragmas =
            xasprintf("PRAGMA journal_mode = WAL; PRAGMA synchronous = %s; PRAGMA foreign_keys = ON;"
                      "PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -%d; PRAGMA temp_store = MEMORY;"
                      "PRAGMA secure_delete = OFF; PRAGMA journal_size_limit = %d",
                      full_durability ? "FULL" : "NORMAL", CACHE_KIB, 64 * 1024 * 1024);
        rc = sqlite3_exec(db, read_only ? "PRAGMA query_only = ON; PRAGMA cache_size = -2048" : pragmas, NULL, NULL,
                          NULL);
    }
    if (rc != SQLITE_OK) {
        int r = store_failure(db, rc, e);
        sqlite3_close(db);
        return r;
    }
    *ret_db = db;
    return 0;
}

/* The file is made here so that it, and with it the WAL, is never readable by others. */
static int file_make(const char *path, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "open the store %s", path);
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "look at the store %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "open the store %s: not a regular file", path);
    return 0;
}

static int lock_take(const char *path, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *lock_path = xasprintf("%s.lock", path);
    _cleanup_close_ int fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "open the lock %s", lock_path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return err_set(e, ERR_CONFLICT, "the store %s is in use by another process", path);
        return err_errno(e, ERR_SYSTEM, errno, "lock %s", lock_path);
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

int store_open(const struct store_options *options, struct store **ret_store, struct err *e)
{
    _cleanup_store_ struct store *s = NEW(struct store);
    int r, version = 0;
    s->lock_fd = -1;
    s->path = xstrdup(options->path);
    s->full_durability = options->full_durability;
    s->busy_timeout_ms = options->busy_timeout_ms ? options->busy_timeout_ms : 5000;
    s->wal_limit_bytes = options->wal_limit_bytes ? options->wal_limit_bytes : 16 * MIB;
    if (!options->read_only && (r = file_make(options->path, e)) < 0)
        return r;
    if (options->exclusive && !options->read_only && (r = lock_take(options->path, &s->lock_fd, e)) < 0)
        return r;
    if ((r = connection_open(options->path, options->read_only, s->full_durability, s->busy_timeout_ms, &s->db, e)) < 0)
        return err_prefix(e, "open the store %s", options->path);
    if (options->read_only) {
        int known = store_migrations[store_migrations_count - 1].version;
        if ((r = schema_version(s->db, &version, e)) < 0)
            return err_prefix(e, "open the store %s", options->path);
        if (version != known)
            return err_set(e, ERR_UNSUPPORTED, "the store %s has schema version %d, this program reads version %d",
                           options->path, version, known);
    } else {
        r = schema_migrate(s->db, store_migrations, store_migrations_count, clock_wall_ms(), e);
        if (r < 0)
            return err_prefix(e, "open the store %s", options->path);
        sqlite3_wal_hook(s->db, checkpoint_wal_hook, s);
    }
    if (options->exclusive && !options->read_only &&
        (r = statement_run(s, "DELETE FROM idempotency_keys WHERE status = 0", NULL, 0, e)) < 0)
        return r;
    *ret_store = steal(s);
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    if (s->db)
        key_cache_clear(s);
    statement_cache_free(s);
    if (s->db)
        sqlite3_close(s->db);
    cleanup_close(&s->lock_fd);
    free(s->keys);
    free(s->path);
    free(s);
}

int store_schema_version(struct store *s)
{
    int version = 0;
    return schema_version(s->db, &version, NULL) < 0 ? 0 : version;
}

/* ---- transactions ---- */

static const char *const savepoint_sql[DEPTH_MAX + 1] = {
    NULL, NULL, "SAVEPOINT t2", "SAVEPOINT t3", "SAVEPOINT t4", "SAVEPOINT t5", "SAVEPOINT t6", "SAVEPOINT t7", "SAVEPOINT t8",
};
static const char *const release_sql[DEPTH_MAX + 1] = {
    NULL, NULL, "RELEASE t2", "RELEASE t3", "RELEASE t4", "RELEASE t5", "RELEASE t6", "RELEASE t7", "RELEASE t8",
};
static const char *const undo_sql[DEPTH_MAX + 1] = {
    NULL,
    NULL,
    "ROLLBACK TO t2",
    "ROLLBACK TO t3",
    "ROLLBACK TO t4",
    "ROLLBACK TO t5",
    "ROLLBACK TO t6",
    "ROLLBACK TO t7",
    "ROLLBACK TO t8",
};

int store_begin(struct store *s, struct store_tx *tx, struct err *e)
{
    if (s->depth >= DEPTH_MAX)
        return err_set(e, ERR_INTERNAL, "store: transactions nested deeper than %d", DEPTH_MAX);
    int r = statement_run(s, s->depth == 0 ? "BEGIN IMMEDIATE" : savepoint_sql[s->depth + 1], NULL, 0, e);
    if (r < 0)
        return r;
    *tx = (struct store_tx){.store = s, .depth = ++s->depth};
    return 0;
}

void store_rollback(struct store_tx *tx)
{
    struct store *s = tx->store;
    if (!s)
        return;
    tx->store = NULL;
    if (tx->depth > s->depth)
        return; /* an outer one has ended before it */
    if (tx->depth == 1) {
        if (!sqlite3_get_autocommit(s->db))
            statement_run(s, "ROLLBACK", NULL, 0, NULL);
        if (!sqlite3_get_autocommit(s->db)) /* the cached statement could not be used */
            sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    } else if (!sqlite3_get_autocommit(s->db)) {
        statement_run(s, undo_sql[tx->depth], NULL, 0, NULL);
        statement_run(s, release_sql[tx->depth], NULL, 0, NULL);
    }
    s->depth = tx->depth - 1;
    key_cache_clear(s); /* it may hold a key that was never committed */
}

int store_commit(struct store_tx *tx, struct err *e)
{
    struct store *s = tx->store;
    if (!s)
        return err_set(e, ERR_INTERNAL, "store: commit without a transaction");
    if (tx->depth != s->depth) {
        store_rollback(tx);
        return err_set(e, ERR_INTERNAL, "store: commit of a transaction while an inner one is open");
    }
    int r = statement_run(s, tx->depth == 1 ? "COMMIT" : release_sql[tx->depth], NULL, 0, e);
    if (r < 0) {
        store_rollback(tx);
        return r;
    }
    s->depth--;
    tx->store = NULL;
    return 0;
}

/* ---- figures ---- */

int store_ping(struct store *s, struct err *e)
{
    int r = statement_run(s, "UPDATE store_meta SET value = (value + 1) & 65535 WHERE key = 'ping'", NULL, 0, e);
    if (r == 0)
        return err_set(e, ERR_SYSTEM, "the store's file is damaged: a row is missing");
    return r < 0 ? r : 0;
}

void store_stats_get(struct store *s, struct store_stats *ret_stats)
{
    struct stat st;
    *ret_stats = (struct store_stats){
        .file_bytes = stat(s->path, &st) == 0 ? (uint64_t)st.st_size : 0,
        .wal_bytes = s->wal_bytes,
        .commits = s->commits,
        .checkpoints = s->checkpoints,
        .cached_keys = key_cache_count(s),
    };
}

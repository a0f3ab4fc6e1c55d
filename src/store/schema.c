/* The schema, as an ordered list of migrations. A migration that was released is never changed: a new one follows it.
 *
 * Times are milliseconds since 1970 UTC, NULL where the thing has not happened. States and kinds are the numbers of
 * their enums, whose order is therefore fixed. Lists are read newest first along an index that also holds the state,
 * so that rows that a filter leaves out are never fetched. */
#include "store/internal.h"

static const char first_schema[] =
    "CREATE TABLE store_meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "INSERT INTO store_meta VALUES ('ping', 0), ('checkpoint', 0);"

    "CREATE TABLE projects ("
    "  id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 21),"
    "  name TEXT NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 128),"
    "  created_at INTEGER NOT NULL) STRICT;"

    "CREATE TABLE api_keys ("
    "  id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 21),"
    "  project_id TEXT NOT NULL REFERENCES projects (id),"
    "  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 128),"
    "  scopes INTEGER NOT NULL CHECK (scopes > 0),"
    "  hash BLOB NOT NULL CHECK (length(hash) = 32),"
    "  hash_start BLOB NOT NULL CHECK (length(hash_start) = 8),"
    "  bootstrap INTEGER NOT NULL DEFAULT 0 CHECK (bootstrap IN (0, 1)),"
    "  created_at INTEGER NOT NULL,"
    "  expires_at INTEGER, revoked_at INTEGER, last_used_at INTEGER) STRICT;"
    "CREATE INDEX api_keys_hash ON api_keys (hash_start);"
    "CREATE INDEX api_keys_list ON api_keys (project_id, created_at, id);"

    "CREATE TABLE sandboxes ("
    "  id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 21),"
    "  project_id TEXT NOT NULL REFERENCES projects (id),"
    "  name TEXT CHECK (length(name) BETWEEN 1 AND 128),"
    "  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),"
    "  reason TEXT CHECK (length(reason) <= 1024),"
    "  template_digest TEXT NOT NULL CHECK (length(template_digest) BETWEEN 1 AND 80),"
    "  template_tag TEXT CHECK (length(template_tag) BETWEEN 1 AND 64),"
    "  vcpus INTEGER NOT NULL CHECK (vcpus > 0),"
    "  memory_mib INTEGER NOT NULL CHECK (memory_mib > 0),"
    "  disk_mib INTEGER NOT NULL CHECK (disk_mib > 0),"
    "  accelerator INTEGER NOT NULL CHECK (accelerator IN (0, 1)),"
    "  jail_missing INTEGER NOT NULL DEFAULT 0,"
    "  env TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(env)),"
    "  metadata TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(metadata)),"
    "  timeout_ms INTEGER NOT NULL CHECK (timeout_ms >= 0),"
    "  created_at INTEGER NOT NULL,"
    "  ready_at INTEGER, expires_at INTEGER,"
    "  state_changed_at INTEGER NOT NULL,"
    "  ended_at INTEGER,"
    "  machine_id TEXT CHECK (length(machine_id) = 21),"
    "  slot INTEGER CHECK (slot >= 0),"
    "  pid INTEGER CHECK (pid >= 0),"
    "  pid_start_time INTEGER,"
    "  generation INTEGER NOT NULL DEFAULT 0,"
    "  CHECK ((state IN (6, 7)) = (ended_at IS NOT NULL))) STRICT;"
    "CREATE INDEX sandboxes_list ON sandboxes (project_id, created_at, id, state);"
    "CREATE INDEX sandboxes_live ON sandboxes (project_id) WHERE state NOT IN (6, 7);"
    "CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at IS NOT NULL;"

    "CREATE TABLE sandbox_metadata ("
    "  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,"
    "  key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 128),"
    "  value TEXT NOT NULL CHECK (length(value) <= 1024),"
    "  PRIMARY KEY (sandbox_id, key)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX sandbox_metadata_value ON sandbox_metadata (key, value, sandbox_id);"

    "CREATE TABLE machines ("
    "  id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 21),"
    "  kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 3),"
    "  slot INTEGER NOT NULL UNIQUE CHECK (slot >= 0),"
    "  pid INTEGER NOT NULL DEFAULT 0 CHECK (pid >= 0),"
    "  pid_start_time INTEGER NOT NULL DEFAULT 0,"
    "  template_digest TEXT NOT NULL CHECK (length(template_digest) BETWEEN 1 AND 80),"
    "  vcpus INTEGER NOT NULL CHECK (vcpus > 0),"
    "  memory_mib INTEGER NOT NULL CHECK (memory_mib > 0),"
    "  disk_mib INTEGER NOT NULL CHECK (disk_mib > 0),"
    "  accelerator INTEGER NOT NULL CHECK (accelerator IN (0, 1)),"
    "  jail_missing INTEGER NOT NULL DEFAULT 0,"
    "  sandbox_id TEXT CHECK (length(sandbox_id) = 21),"
    "  created_at INTEGER NOT NULL,"
    "  CHECK ((kind = 2) = (sandbox_id IS NOT NULL))) STRICT;"

    "CREATE TABLE operations ("
    "  id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 21),"
    "  project_id TEXT REFERENCES projects (id),"
    "  kind TEXT NOT NULL CHECK (length(kind) BETWEEN 1 AND 64),"
    "  target_type TEXT NOT NULL CHECK (length(target_type) BETWEEN 1 AND 32),"
    "  target_id TEXT NOT NULL CHECK (length(target_id) BETWEEN 1 AND 80),"
    "  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3),"
    "  progress_done INTEGER NOT NULL DEFAULT 0,"
    "  progress_total INTEGER NOT NULL DEFAULT 0,"
    "  progress_step TEXT CHECK (length(progress_step) <= 256),"
    "  error_code TEXT,"
    "  error_text TEXT CHECK (length(error_text) <= 1024),"
    "  request_id TEXT CHECK (length(request_id) <= 128),"
    "  created_at INTEGER NOT NULL,"
    "  started_at INTEGER, ended_at INTEGER,"
    "  CHECK ((state IN (2, 3)) = (ended_at IS NOT NULL))) STRICT;"
    "CREATE INDEX operations_list ON operations (project_id, created_at, id, state);"
    "CREATE INDEX operations_target ON operations (target_id, created_at, id, state);"
    "CREATE INDEX operations_ended ON operations (ended_at) WHERE ended_at IS NOT NULL;"
    "CREATE INDEX operations_open ON operations (created_at, id) WHERE state IN (0, 1);"

    "CREATE TABLE execs ("
    "  id TEXT PRIMARY KEY NOT NULL CHECK (length(id) = 21),"
    "  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,"
    "  project_id TEXT NOT NULL REFERENCES projects (id),"
    "  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4),"
    "  reason TEXT CHECK (length(reason) <= 1024),"
    "  spec TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(spec)),"
    "  token_hash BLOB NOT NULL CHECK (length(token_hash) = 32),"
    "  token_expires_at INTEGER NOT NULL,"
    "  guest_pid INTEGER NOT NULL DEFAULT 0,"
    "  created_at INTEGER NOT NULL,"
    "  started_at INTEGER, ended_at INTEGER,"
    "  exit_code INTEGER, exit_signal INTEGER,"
    "  output_bytes INTEGER, dropped_bytes INTEGER,"
    "  cpu_user_us INTEGER, cpu_system_us INTEGER, max_rss_bytes INTEGER, oom INTEGER,"
    "  guest_started_at INTEGER, guest_ended_at INTEGER,"
    "  CHECK ((state IN (2, 3, 4)) = (ended_at IS NOT NULL))) STRICT;"
    "CREATE INDEX execs_list ON execs (sandbox_id, created_at, id, state);"

    "CREATE TABLE templates ("
    "  digest TEXT PRIMARY KEY NOT NULL CHECK (length(digest) BETWEEN 1 AND 80),"
    "  kind TEXT NOT NULL CHECK (length(kind) BETWEEN 1 AND 32),"
    "  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3),"
    "  reason TEXT CHECK (length(reason) <= 1024),"
    "  manifest TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(manifest)),"
    "  size_bytes INTEGER NOT NULL DEFAULT 0,"
    "  created_at INTEGER NOT NULL) STRICT;"

    "CREATE TABLE template_tags ("
    "  project_id TEXT NOT NULL," /* '': of all projects */
    "  tag TEXT NOT NULL CHECK (length(tag) BETWEEN 1 AND 64),"
    "  digest TEXT NOT NULL REFERENCES templates (digest) ON DELETE CASCADE,"
    "  updated_at INTEGER NOT NULL,"
    "  PRIMARY KEY (project_id, tag)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX template_tags_digest ON template_tags (digest);"

    "CREATE TABLE template_shapes ("
    "  digest TEXT NOT NULL REFERENCES templates (digest) ON DELETE CASCADE,"
    "  vcpus INTEGER NOT NULL CHECK (vcpus > 0),"
    "  memory_mib INTEGER NOT NULL CHECK (memory_mib > 0),"
    "  disk_mib INTEGER NOT NULL CHECK (disk_mib > 0),"
    "  accelerator INTEGER NOT NULL CHECK (accelerator IN (0, 1)),"
    "  qemu_version TEXT NOT NULL CHECK (length(qemu_version) BETWEEN 1 AND 32),"
    "  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 2),"
    "  size_bytes INTEGER NOT NULL DEFAULT 0,"
    "  created_at INTEGER NOT NULL,"
    "  last_used_at INTEGER,"
    "  PRIMARY KEY (digest, vcpus, memory_mib, disk_mib, accelerator, qemu_version)) STRICT, WITHOUT ROWID;"

    "CREATE TABLE idempotency_keys ("
    "  project_id TEXT NOT NULL REFERENCES projects (id),"
    "  key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255),"
    "  request_hash BLOB NOT NULL CHECK (length(request_hash) = 32),"
    "  status INTEGER NOT NULL DEFAULT 0," /* 0: not answered yet */
    "  location TEXT, body BLOB, target_id TEXT,"
    "  created_at INTEGER NOT NULL,"
    "  PRIMARY KEY (project_id, key)) STRICT;"
    "CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);"

    "CREATE TABLE events ("
    "  id INTEGER PRIMARY KEY," /* grows for ever: the newest row is never pruned */
    "  project_id TEXT NOT NULL,"
    "  sandbox_id TEXT,"
    "  kind TEXT NOT NULL CHECK (length(kind) BETWEEN 1 AND 64),"
    "  data TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(data)),"
    "  at INTEGER NOT NULL) STRICT;"
    "CREATE INDEX events_project ON events (project_id, id);";

const struct migration store_migrations[] = {
    {1, "first schema", first_schema},
    {2, "execs say whether their time was up", "ALTER TABLE execs ADD COLUMN timed_out INTEGER"},
    {3, "keys are known by the start of their secret; shapes are what lies in the folders",
     "ALTER TABLE api_keys ADD COLUMN secret_start TEXT; DROP TABLE template_shapes"},
};
const size_t store_migrations_count = ARRAY_LEN(store_migrations);

static int exec_sql(sqlite3 *db, const char *sql, struct err *e)
{
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_failure(db, rc, e);
}

static int read_number(sqlite3 *db, const char *sql, int64_t *ret_value, struct err *e)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *ret_value = sqlite3_column_int64(stmt, 0);
    int r = rc == SQLITE_ROW ? 0 : store_failure(db, rc, e);
    sqlite3_finalize(stmt);
    return r;
}

int schema_version(sqlite3 *db, int *ret_version, struct err *e)
{
    int64_t tables = 0, ours = 0, version = 0, application = 0;
    int r;
    if ((r = read_number(db, "SELECT count(*) FROM sqlite_schema", &tables, e)) < 0 ||
        (r = read_number(db, "PRAGMA application_id", &application, e)) < 0 ||
        (r = read_number(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'schema_migrations'", &ours, e)) < 0)
        return r;
    if (tables > 0 && (!ours || application != STORE_APPLICATION_ID))
        return err_set(e, ERR_INVALID, "the file is a database of another program");
    if (ours && (r = read_number(db, "SELECT coalesce(max(version), 0) FROM schema_migrations", &version, e)) < 0)
        return r;
    *ret_version = (int)version;
    return 0;
}

static int apply(sqlite3 *db, const struct migration *m, int64_t now_ms, struct err *e)
{
    _cleanup_free_ char *mark = xasprintf("INSERT INTO schema_migrations VALUES (%d, '%s', %lld)", m->version, m->name,
                                          (long long)now_ms);
    int64_t broken = 0;
    int r;
    if ((r = exec_sql(db, "BEGIN IMMEDIATE", e)) < 0)
        return r;
    if ((r = exec_sql(db,
                      "CREATE TABLE IF NOT EXISTS schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL,"
                      " applied_at INTEGER NOT NULL) STRICT",
                      e)) < 0 ||
        (r = exec_sql(db, m->sql, e)) < 0 || (r = exec_sql(db, mark, e)) < 0 ||
        (r = read_number(db, "SELECT count(*) FROM pragma_foreign_key_check", &broken, e)) < 0)
        goto undo;
    if (broken > 0) {
        r = err_set(e, ERR_INTERNAL, "%lld rows would point to nothing", (long long)broken);
        goto undo;
    }
    if ((r = exec_sql(db, "COMMIT", e)) == 0)
        return 0;
undo:
    sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

int schema_migrate(sqlite3 *db, const struct migration *migrations, size_t count, int64_t now_ms, struct err *e)
{
    int version = 0, known = count ? migrations[count - 1].version : 0;
    int r = schema_version(db, &version, e);
    if (r < 0)
        return r;
    if (version > known)
        return err_set(e, ERR_UNSUPPORTED,
                       "the store has schema version %d, this program knows versions up to %d: it was written by a newer "
                       "version of the program",
                       version, known);
    if (version == known)
        return version;
    _cleanup_free_ char *application = xasprintf("PRAGMA application_id = %d", STORE_APPLICATION_ID);
    /* Tables are rebuilt with the constraint off; every migration checks all of it before it commits. */
    if ((r = exec_sql(db, "PRAGMA foreign_keys = OFF", e)) < 0 ||
        (version == 0 && (r = exec_sql(db, application, e)) < 0))
        return r;
    for (size_t i = 0; i < count && r >= 0; i++) {
        if (migrations[i].version <= version)
            continue;
        if ((r = apply(db, &migrations[i], now_ms, e)) < 0)
            err_prefix(e, "bring the store to schema version %d (%s)", migrations[i].version, migrations[i].name);
        else
            r = version = migrations[i].version;
    }
    sqlite3_exec(db, "PRAGMA foreign_keys = ON", NULL, NULL, NULL);
    return r;
}

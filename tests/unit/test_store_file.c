/* Unit tests of src/store: the file itself. Migrations, locks, transactions, full disks, pruning, checkpoints, and that
 * nothing acknowledged is lost when the process is killed. */
#include "store_fixture.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "store/api_key.h"
#include "store/checkpoint.h"
#include "store/event.h"
#include "store/exec.h"
#include "store/idempotency.h"
#include "store/internal.h"
#include "store/operation.h"

/* ---- migrations ---- */

static int64_t number(struct store *s, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_prepare_v2(s->db, sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return value;
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", sql, message);
    sqlite3_close(db);
}

static void migrations_run_in_order_and_once(void **state)
{
    struct fixture *f = *state;
    const struct migration list[] = {
        {1, "one", "CREATE TABLE a (id INTEGER PRIMARY KEY, x TEXT)"},
        {2, "two", "INSERT INTO a (x) VALUES ('old'); ALTER TABLE a ADD COLUMN y TEXT NOT NULL DEFAULT 'new'"},
        {4, "four", "CREATE TABLE b (a INTEGER REFERENCES a (id)); INSERT INTO b VALUES (1)"},
    };
    const struct migration broken[] = {
        list[0], list[1], list[2], {5, "five", "INSERT INTO a (x) VALUES ('half'); NONSENSE"},
    };
    const struct migration dangling[] = {
        list[0], list[1], list[2], {5, "five", "INSERT INTO b VALUES (99)"},
    };
    _cleanup_free_ char *path = xasprintf("%s/other.db", f->folder);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(ok(schema_migrate(db, list, 1, NOW, e)), 1);
    assert_int_equal(ok(schema_migrate(db, list, 3, NOW, e)), 4);
    assert_int_equal(ok(schema_migrate(db, list, 3, NOW, e)), 4);
    struct err e = {0};
    assert_int_equal(schema_migrate(db, broken, 4, NOW, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.text, "schema version 5 (five)"));
    assert_int_equal(schema_migrate(db, dangling, 4, NOW, &e), ERR_INTERNAL);
    struct store s = {.db = db};
    assert_int_equal(number(&s, "SELECT max(version) FROM schema_migrations"), 4);
    assert_int_equal(number(&s, "SELECT count(*) FROM a"), 1); /* nothing of the failed ones */
    assert_int_equal(number(&s, "SELECT count(*) FROM b"), 1);
    assert_int_equal(number(&s, "SELECT y = 'new' FROM a"), 1);
    sqlite3_close(db);
}

static void a_file_of_version_1_is_brought_up(void **state)
{
    struct fixture *f = *state;
    const char *source = getenv("TEST_DATA");
    _cleanup_free_ char *dump = xasprintf("%s/store_v1.sql", source ? source : "tests/unit/data");
    _cleanup_free_ char *path = xasprintf("%s/v1.db", f->folder);
    _cleanup_buf_ struct buf sql = BUF_MAX(1 * MIB);
    _cleanup_store_ struct store *s = NULL;
    ok(file_read(dump, 1 * MIB, &sql, e));
    run_sql(path, buf_cstr(&sql));
    const struct store_options options = {.path = path, .exclusive = true};
    ok(store_open(&options, &s, e));
    assert_int_equal(store_schema_version(s), store_migrations[store_migrations_count - 1].version);
    assert_int_equal(number(s, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    assert_int_equal(number(s, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    struct store_caller caller;
    ok(store_api_key_verify(s, "sk_space_00112233445566778899aabbccddeeff00112233", NOW, &caller, e));
    assert_string_equal(caller.key_id, "kaaaaaaaaaaaaaaaaaaaa");
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    ok(store_sandbox_get(s, caller.project_id, "saaaaaaaaaaaaaaaaaaaa", &sb, e));
    assert_int_equal(sb->state, STORE_SANDBOX_RUNNING);
    assert_string_equal(sb->metadata_json, "{\"team\":\"a\"}");
    assert_int_equal(sb->slot, 3);
    _cleanup_store_operation_ struct store_operation *op = NULL;
    ok(store_operation_get(s, caller.project_id, "oaaaaaaaaaaaaaaaaaaaa", &op, e));
    assert_int_equal(op->error_code, ERR_NO_SPACE);
    _cleanup_store_exec_ struct store_exec *x = NULL;
    ok(store_exec_get(s, caller.project_id, sb->id, "xaaaaaaaaaaaaaaaaaaaa", &x, e));
    assert_int_equal(x->exit.exit_code, 3);
    assert_false(x->exit.timed_out); /* of version 2 */
    _cleanup_store_api_key_ struct store_api_key *key = NULL;
    ok(store_api_key_get(s, NULL, caller.key_id, &key, e));
    assert_string_equal(key->prefix, STORE_SECRET_PREFIX); /* of version 3: more of it was not kept */
}

static void newer_and_foreign_files_are_left_alone(void **state)
{
    struct fixture *f = *state;
    struct store *s = NULL;
    store_close(f->store);
    f->store = NULL;
    run_sql(f->path, "INSERT INTO schema_migrations VALUES (999, 'future', 0)");
    struct store_options options = {.path = f->path, .exclusive = true};
    struct err problem = {0};
    assert_int_equal(store_open(&options, &s, &problem), ERR_UNSUPPORTED);
    assert_non_null(strstr(problem.text, "999"));
    options.read_only = true;
    assert_int_equal(store_open(&options, &s, &problem), ERR_UNSUPPORTED);

    _cleanup_free_ char *foreign = xasprintf("%s/foreign.db", f->folder), *text = xasprintf("%s/text.db", f->folder);
    run_sql(foreign, "CREATE TABLE t (x)");
    options = (struct store_options){.path = foreign};
    assert_int_equal(store_open(&options, &s, &problem), ERR_INVALID);
    static const char rubbish[] = "this is no database, whatever its name says, and it is long enough to be looked at: "
                                  "a header of SQLite has one hundred bytes";
    ok(file_write_atomic(text, rubbish, sizeof(rubbish), 0600, e));
    options.path = text;
    assert_int_equal(store_open(&options, &s, &problem), ERR_SYSTEM);
    options.path = f->folder;
    assert_true(store_open(&options, &s, &problem) < 0);
    _cleanup_free_ char *link = xasprintf("%s/link.db", f->folder);
    assert_int_equal(symlink(f->path, link), 0);
    options.path = link;
    assert_int_equal(store_open(&options, &s, &problem), ERR_SYSTEM);
}

/* ---- locks, rights ---- */

static void a_second_exclusive_open_is_refused(void **state)
{
    struct fixture *f = *state;
    struct store *s = NULL;
    struct store_options options = {.path = f->path, .exclusive = true};
    refused(ERR_CONFLICT, store_open(&options, &s, e));
    options = (struct store_options){.path = f->path, .read_only = true};
    ok(store_open(&options, &s, e)); /* looking is fine */
    struct store_project *p = NULL;
    ok(store_project_get(s, f->project, &p, e));
    store_project_free(p);
    p = NULL;
    assert_true(store_project_make(s, "x", NOW, &p, NULL) < 0);
    store_close(s);
    fixture_reopen(f); /* closing gave the lock back */
}

static void nobody_else_may_read_the_file(void **state)
{
    struct fixture *f = *state;
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        _cleanup_free_ char *path = xasprintf("%s%s", f->path, suffixes[i]);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
    }
}

/* ---- transactions ---- */

static void transactions_nest(void **state)
{
    struct fixture *f = *state;
    char kept[ID_SIZE], undone[ID_SIZE];
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    {
        _cleanup_store_tx_ struct store_tx outer = {0};
        ok(store_begin(f->store, &outer, e));
        fixture_sandbox(f, f->project, NOW, "{\"a\":\"1\"}", kept);
        {
            _cleanup_store_tx_ struct store_tx inner = {0};
            ok(store_begin(f->store, &inner, e));
            fixture_sandbox(f, f->project, NOW, NULL, undone);
        }
        refused(ERR_CONFLICT, store_sandbox_set_state(f->store, kept, 0, STORE_SANDBOX_RUNNING, NULL, NOW, e));
        ok(store_commit(&outer, e));
        refused(ERR_INTERNAL, store_commit(&outer, e));
    }
    refused(ERR_NOT_FOUND, store_sandbox_get(f->store, NULL, undone, &sb, e));
    ok(store_sandbox_get(f->store, NULL, kept, &sb, e));
    {
        _cleanup_store_tx_ struct store_tx outer = {0}, inner = {0};
        ok(store_begin(f->store, &outer, e));
        ok(store_begin(f->store, &inner, e));
        fixture_sandbox(f, f->project, NOW, NULL, undone);
        refused(ERR_INTERNAL, store_commit(&outer, e)); /* the inner one is open: all of it is undone */
        refused(ERR_NOT_FOUND, store_sandbox_get(f->store, NULL, undone, &sb, e));
    }
    struct store_tx deep[9] = {0};
    for (int i = 0; i < 8; i++)
        ok(store_begin(f->store, &deep[i], e));
    refused(ERR_INTERNAL, store_begin(f->store, &deep[8], e));
    for (int i = 7; i >= 0; i--)
        ok(store_commit(&deep[i], e));
    fixture_reopen(f);
    ok(store_ping(f->store, e));
}

static void statements_in_memory_are_bounded(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 1000; i++) {
        _cleanup_free_ char *sql = xasprintf("SELECT %d WHERE ?", i);
        ok(statement_run(f->store, sql, BINDS(B_INT(0)), e));
    }
    refused(ERR_INTERNAL, statement_run(f->store, "SELECT 1 WHERE ?", NULL, 0, e));
    refused(ERR_INTERNAL, statement_run(f->store, "SELECT FROM", NULL, 0, e));
    sqlite3_stmt *stmt = NULL;
    int count = 0;
    while ((stmt = sqlite3_next_stmt(f->store->db, stmt)))
        count++;
    assert_in_range(count, 100, 192);
}

/* ---- full disk ---- */

static int fill(struct store *s, const char *project, struct err *e)
{
    _cleanup_free_ char *data = xmalloc(32768);
    int r;
    memset(data, 'x', 32767);
    data[0] = data[32766] = '"';
    data[32767] = '\0';
    for (int i = 0; i < 1000; i++)
        if ((r = store_event_add(s, project, NULL, "fill", data, NOW, e)) < 0)
            return r;
    return 0;
}

static void a_full_file_undoes_the_whole_transaction(void **state)
{
    struct fixture *f = *state;
    sqlite3_exec(f->store->db, "PRAGMA max_page_count = 100", NULL, NULL, NULL);
    struct store_tx tx = {0};
    char id[ID_SIZE];
    ok(store_begin(f->store, &tx, e));
    fixture_sandbox(f, f->project, NOW, NULL, id);
    refused(ERR_NO_SPACE, fill(f->store, f->project, e));
    /* A caller that goes on all the same does not make commits of their own. */
    int r = store_event_add(f->store, f->project, NULL, "late", NULL, NOW, NULL);
    assert_true(r == 0 || r == ERR_SYSTEM);
    if (r == ERR_SYSTEM)
        refused(ERR_SYSTEM, store_commit(&tx, e));
    store_rollback(&tx);
    sqlite3_exec(f->store->db, "PRAGMA max_page_count = 100000", NULL, NULL, NULL);
    struct store_sandbox *sb = NULL;
    refused(ERR_NOT_FOUND, store_sandbox_get(f->store, NULL, id, &sb, e));
    assert_int_equal(number(f->store, "SELECT count(*) FROM events"), 0);
    fixture_sandbox(f, f->project, NOW, NULL, id);
    fixture_reopen(f);
    ok(store_sandbox_get(f->store, NULL, id, &sb, e));
    store_sandbox_free(sb);
}

/* In a process of its own, on a small file system of its own. Exit codes: 0 fine, 77 cannot be tried here. */
static int full_disk_child(const char *folder)
{
    struct store *s = NULL;
    struct store_project *p = NULL;
    _cleanup_free_ char *path = xasprintf("%s/space.db", folder);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", folder, "tmpfs", 0, "size=2m") < 0)
        return 77;
    const struct store_options options = {.path = path, .exclusive = true};
    if (store_open(&options, &s, NULL) < 0 || store_project_make(s, "p", NOW, &p, NULL) < 0)
        return 1;
    struct err e = {0};
    if (fill(s, p->id, &e) != ERR_NO_SPACE) {
        fprintf(stderr, "full disk: %d %s\n", e.code, e.text);
        return 2;
    }
    int64_t before = number(s, "SELECT count(*) FROM events");
    int room = 0; /* smaller writes may fit still */
    while (room < 100 && store_ping(s, NULL) == 0)
        room++;
    if (room == 100 || store_ping(s, &e) != ERR_NO_SPACE)
        return 3;
    if (mount(NULL, folder, NULL, MS_REMOUNT, "size=16m") < 0)
        return 4;
    if (store_ping(s, NULL) < 0 || store_event_add(s, p->id, NULL, "again", NULL, NOW, NULL) < 0)
        return 5;
    store_project_free(p);
    store_close(s);
    s = NULL;
    if (store_open(&options, &s, NULL) < 0 || number(s, "SELECT count(*) FROM events") != before + 1 ||
        number(s, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'") != 0)
        return 6;
    store_close(s);
    return 0;
}

static void a_full_disk_is_said_and_passes(void **state)
{
    struct fixture *f = *state;
    int status;
    store_close(f->store);
    f->store = NULL;
    _cleanup_free_ char *folder = xasprintf("%s/small", f->folder);
    ok(dir_make(folder, 0700, e));
    pid_t pid = fork();
    if (pid == 0)
        _exit(full_disk_child(folder));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

/* ---- pruning ---- */

static void what_is_past_its_time_goes_in_batches(void **state)
{
    struct fixture *f = *state;
    char ids[20][ID_SIZE], token[44];
    uint8_t hash[STORE_HASH_LEN] = {0};
    struct store_idempotency_answer answer;
    for (int i = 0; i < 20; i++) {
        fixture_sandbox(f, f->project, NOW, "{\"a\":\"1\"}", ids[i]);
        struct store_exec x = {.created_at_ms = NOW};
        id_new(ID_EXEC, x.id);
        memcpy(x.sandbox_id, ids[i], ID_SIZE);
        memcpy(x.project_id, f->project, ID_SIZE);
        ok(store_exec_insert(f->store, &x, token, e));
        struct store_operation op = {.kind = (char *)(uintptr_t)"k", .target_type = (char *)(uintptr_t)"sandbox",
                                     .target_id = ids[i], .created_at_ms = NOW};
        id_new(ID_OPERATION, op.id);
        memcpy(op.project_id, f->project, ID_SIZE);
        ok(store_operation_insert(f->store, &op, e));
        if (i < 15)
            ok(store_operation_finish(f->store, op.id, 0, NULL, NOW + i, e));
        _cleanup_free_ char *key = xasprintf("k%d", i);
        ok(store_idempotency_begin(f->store, f->project, key, hash, 1000, NOW + i, &answer, e));
    }
    for (int i = 0; i < 10; i++)
        ok(store_sandbox_set_state(f->store, ids[i], STORE_SANDBOX_ANY, i % 2 ? STORE_SANDBOX_DELETED : STORE_SANDBOX_FAILED,
                                   NULL, NOW + i, e));
    const struct store_machine_ref machine = {.machine_id = "maaaaaaaaaaaaaaaaaaaa", .slot = 1, .pid = 1};
    ok(store_sandbox_set_machine(f->store, ids[2], &machine, e)); /* has a machine still: stays */
    struct store_retention retention = {.deleted_ms = 1000, .operation_ms = 1000, .idempotency_ms = 1000, .event_ms = 1000,
                                        .events_max = 1000000};
    assert_int_equal(ok(store_prune(f->store, &retention, NOW + 1000, 100, e)), 0);
    int total = 0, r, rounds = 0;
    while ((r = ok(store_prune(f->store, &retention, NOW + 1005, 3, e))) > 0) {
        assert_true(r <= 3 * 6);
        total += r;
        rounds++;
    }
    /* sandboxes 0, 1, 3, 4 and their execs; operations and keys 0–4; all events of a time before the limit */
    assert_int_equal(number(f->store, "SELECT count(*) FROM sandboxes"), 16);
    assert_int_equal(number(f->store, "SELECT count(*) FROM execs"), 16);
    assert_int_equal(number(f->store, "SELECT count(*) FROM sandbox_metadata"), 16);
    assert_int_equal(number(f->store, "SELECT count(*) FROM operations"), 15);
    assert_int_equal(number(f->store, "SELECT count(*) FROM idempotency_keys"), 15);
    assert_int_equal(number(f->store, "SELECT min(at) FROM events"), NOW + 5);
    assert_int_equal(total, 4 + 4 + 5 + 5 + 25);
    assert_true(rounds >= 5);
    retention.events_max = 2;
    while (ok(store_prune(f->store, &retention, NOW + 1005, 3, e)) > 0)
        ;
    assert_int_equal(number(f->store, "SELECT count(*) FROM events"), 2);
    int64_t last = number(f->store, "SELECT max(id) FROM events");
    while (ok(store_prune(f->store, &retention, NOW + 1000000, 3, e)) > 0)
        ;
    assert_int_equal(number(f->store, "SELECT count(*) FROM events"), 1);
    ok(store_event_add(f->store, f->project, NULL, "k", NULL, NOW, e));
    assert_int_equal(number(f->store, "SELECT max(id) FROM events"), last + 1); /* no id comes twice */
    refused(ERR_INVALID, store_prune(f->store, &retention, NOW, 0, e));
}

/* ---- checkpoints ---- */

static void count_down(void *arg)
{
    (*(int *)arg)--;
}

static void checkpoints_run_beside_the_loop(void **state)
{
    struct fixture *f = *state;
    uv_loop_t loop;
    struct store_stats stats;
    int waiting = 1;
    char id[ID_SIZE];
    f->store->wal_limit_bytes = 256 * 1024;
    assert_int_equal(uv_loop_init(&loop), 0);
    ok(store_checkpoint_start(f->store, &loop, e));
    refused(ERR_CONFLICT, store_checkpoint_start(f->store, &loop, e));
    uint64_t end = clock_mono_ms() + 20000, largest = 0;
    do {
        fixture_sandbox(f, f->project, NOW, NULL, id);
        uv_run(&loop, UV_RUN_NOWAIT);
        store_stats_get(f->store, &stats);
        largest = MAX(largest, stats.wal_bytes);
    } while (stats.checkpoints < 5 && clock_mono_ms() < end);
    assert_true(stats.checkpoints >= 5);
    assert_true(largest < 64 * MIB); /* how far it grows is a matter of how long the disk takes */
    store_checkpoint_stop(f->store, count_down, &waiting);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(waiting, 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    waiting = 1;
    store_checkpoint_stop(f->store, count_down, &waiting); /* a second time: at once */
    assert_int_equal(waiting, 0);
    ok(store_checkpoint_now(f->store, e));
    _cleanup_free_ char *wal = xasprintf("%s-wal", f->path);
    struct stat st;
    assert_int_equal(stat(wal, &st), 0);
    assert_int_equal(st.st_size, 0);
    struct store_sandbox *sb = NULL;
    ok(store_sandbox_get(f->store, NULL, id, &sb, e));
    store_sandbox_free(sb);
}

static void without_a_loop_the_wal_stays_bounded(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];
    struct stat st;
    _cleanup_free_ char *wal = xasprintf("%s-wal", f->path);
    f->store->wal_limit_bytes = 256 * 1024;
    for (int i = 0; i < 300; i++)
        fixture_sandbox(f, f->project, NOW, NULL, id);
    assert_int_equal(stat(wal, &st), 0);
    assert_true(st.st_size < 512 * 1024);
}

/* ---- kill -9 ---- */

/* Writes pairs of rows for ever; tells the number of each pair once it was acknowledged. */
static void writer(const char *path, const char *project, int64_t next, int out)
{
    struct store *s = NULL;
    uv_loop_t loop;
    const struct store_options options = {.path = path, .exclusive = true, .wal_limit_bytes = 128 * 1024};
    if (store_open(&options, &s, NULL) < 0 || uv_loop_init(&loop) < 0 || store_checkpoint_start(s, &loop, NULL) < 0)
        _exit(1);
    for (;; next++) {
        _cleanup_store_tx_ struct store_tx tx = {0};
        char data[64], target[32];
        struct store_operation op = {.kind = (char *)(uintptr_t)"k", .target_type = (char *)(uintptr_t)"n",
                                     .target_id = target, .created_at_ms = NOW};
        snprintf(data, sizeof(data), "{\"n\":%lld}", (long long)next);
        snprintf(target, sizeof(target), "%lld", (long long)next);
        id_new(ID_OPERATION, op.id);
        if (store_begin(s, &tx, NULL) < 0 || store_event_add(s, project, NULL, "n", data, NOW, NULL) < 0 ||
            store_operation_insert(s, &op, NULL) < 0 || store_commit(&tx, NULL) < 0)
            _exit(2);
        if (write(out, &next, sizeof(next)) != sizeof(next))
            _exit(3);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static void nothing_acknowledged_is_lost_by_kill_9(void **state)
{
    struct fixture *f = *state;
    int64_t acknowledged = 0;
    srand((unsigned)time(NULL));
    for (int round = 0; round < 40; round++) {
        int pipes[2], status;
        store_close(f->store);
        f->store = NULL;
        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(pipes[0]);
            writer(f->path, f->project, acknowledged + 1, pipes[1]);
        }
        close(pipes[1]);
        int64_t n, wanted = acknowledged + 1 + rand() % 150;
        while (read(pipes[0], &n, sizeof(n)) == sizeof(n)) {
            acknowledged = n;
            if (n >= wanted) {
                usleep((unsigned)rand() % 2000); /* a random moment is the point here, nothing is waited for */
                kill(pid, SIGKILL);
                wanted = INT64_MAX;
            }
        }
        close(pipes[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        fixture_reopen(f);
        int64_t last = number(f->store, "SELECT max(json_extract(data, '$.n')) FROM events");
        assert_true(last == acknowledged || last == acknowledged + 1); /* one may be written and not told */
        assert_int_equal(number(f->store, "SELECT count(*) FROM events"), last);
        assert_int_equal(number(f->store, "SELECT count(DISTINCT target_id) FROM operations"), last);
        assert_int_equal(number(f->store, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
        acknowledged = last;
    }
    print_message("%lld rows acknowledged, none lost\n", (long long)acknowledged);
}

/* ---- figures ---- */

static int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The two commits of a create, as control does them. */
static void create_path(struct fixture *f, int i, uint64_t ret_ns[2])
{
    char key[32], secret_free_body[] = "{\"operation\":{},\"sandbox\":{}}";
    uint8_t hash[STORE_HASH_LEN];
    struct store_idempotency_answer answer = {0};
    struct store_sandbox sb = {.template_digest = (char *)(uintptr_t)"0123abcd", .vcpus = 1, .memory_mib = 256,
                               .disk_mib = 2048, .env_json = (char *)(uintptr_t)"{\"A\":\"1\"}",
                               .metadata_json = (char *)(uintptr_t)"{\"team\":\"a\"}", .created_at_ms = NOW + i};
    struct store_operation op = {.kind = (char *)(uintptr_t)"sandbox.create", .target_type = (char *)(uintptr_t)"sandbox",
                                 .target_id = sb.id, .created_at_ms = NOW + i};
    id_new(ID_SANDBOX, sb.id);
    id_new(ID_OPERATION, op.id);
    memcpy(sb.project_id, f->project, ID_SIZE);
    memcpy(op.project_id, f->project, ID_SIZE);
    snprintf(key, sizeof(key), "key-%d", i);
    uint64_t start = clock_mono_ns();
    store_request_hash("POST", "/v1/sandboxes", "{}", 2, hash);
    struct store_tx tx = {0};
    ok(store_begin(f->store, &tx, e));
    ok(store_idempotency_begin(f->store, f->project, key, hash, 86400000, NOW, &answer, e));
    ok(store_sandbox_insert(f->store, &sb, e));
    ok(store_operation_insert(f->store, &op, e));
    answer.status = 202;
    answer.body = secret_free_body;
    answer.body_len = strlen(secret_free_body);
    ok(store_idempotency_finish(f->store, f->project, key, &answer, e));
    ok(store_commit(&tx, e));
    ret_ns[0] = clock_mono_ns() - start;
    const struct store_machine_ref machine = {.machine_id = "maaaaaaaaaaaaaaaaaaaa", .slot = 1, .pid = 1};
    start = clock_mono_ns();
    ok(store_begin(f->store, &tx, e));
    ok(store_sandbox_set_machine(f->store, sb.id, &machine, e));
    ok(store_sandbox_set_state(f->store, sb.id, STORE_SANDBOX_ANY, STORE_SANDBOX_RUNNING, NULL, NOW, e));
    ok(store_operation_finish(f->store, op.id, 0, NULL, NOW, e));
    ok(store_commit(&tx, e));
    ret_ns[1] = clock_mono_ns() - start;
}

/* The bounds are wide: they catch a lost index or an fsync for each commit on a busy machine, not a slow day. */
static void creates_and_lists_are_quick(void **state)
{
    struct fixture *f = *state;
    enum { ROWS = 10000, CREATES = 1000 };
    uint64_t *first = xcalloc(CREATES, sizeof(*first)), *second = xcalloc(CREATES, sizeof(*second));
    struct store_tx tx = {0};
    char id[ID_SIZE];
    f->store->wal_limit_bytes = GIB; /* the commits alone: checkpoints have their own case */
    for (int i = 0; i < CREATES; i++) {
        uint64_t ns[2];
        create_path(f, i, ns);
        first[i] = ns[0];
        second[i] = ns[1];
    }
    qsort(first, CREATES, sizeof(*first), compare_u64);
    qsort(second, CREATES, sizeof(*second), compare_u64);
    print_message("create, commit 1: p50 %llu µs, p99 %llu µs\n", (unsigned long long)first[CREATES / 2] / 1000,
                  (unsigned long long)first[CREATES * 99 / 100] / 1000);
    print_message("create, commit 2: p50 %llu µs, p99 %llu µs\n", (unsigned long long)second[CREATES / 2] / 1000,
                  (unsigned long long)second[CREATES * 99 / 100] / 1000);
    assert_true(first[CREATES / 2] < 3000000 && second[CREATES / 2] < 3000000);
    free(first);
    free(second);
    ok(store_begin(f->store, &tx, e));
    for (int i = CREATES; i < ROWS; i++)
        fixture_sandbox(f, f->project, NOW + i, "{\"team\":\"a\"}", id);
    ok(store_commit(&tx, e));

    static const struct store_sandbox_filter filters[] = {
        {0},
        {.state_mask = STORE_SANDBOX_LIVE},
        {.metadata = {{"team", "a"}}, .metadata_count = 1},
        {.metadata = {{"team", "none"}}, .metadata_count = 1},
    };
    static const char *const names[] = {"all", "live", "metadata of all", "metadata of none"};
    const struct store_page page = {.limit = 1000};
    for (size_t k = 0; k < ARRAY_LEN(filters); k++) {
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < 5; i++) {
            _cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
            uint64_t start = clock_mono_ns();
            ok(store_sandbox_list(f->store, f->project, &filters[k], &page, &list, e));
            best = MIN(best, clock_mono_ns() - start);
            assert_int_equal(list.count, k == 3 ? 0 : 1000);
        }
        print_message("list 1,000 of 10,000 (%s): %llu µs\n", names[k], (unsigned long long)best / 1000);
        assert_true(best < 200000000);
    }
    uint64_t start = clock_mono_ns(), count;
    ok(store_sandbox_count_live(f->store, f->project, &count, e));
    print_message("count of 10,000 live: %llu µs\n", (unsigned long long)(clock_mono_ns() - start) / 1000);
    char secret[STORE_SECRET_SIZE];
    struct store_caller caller;
    ok(store_api_key_make(f->store, f->project, "k", STORE_SCOPE_EXECS, 0, NOW, secret, NULL, e));
    start = clock_mono_ns();
    for (int i = 0; i < 1000; i++)
        ok(store_api_key_verify(f->store, secret, NOW, &caller, e));
    print_message("verify a key: %llu ns\n", (unsigned long long)(clock_mono_ns() - start) / 1000);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(nothing_acknowledged_is_lost_by_kill_9),
        CASE(migrations_run_in_order_and_once),
        CASE(a_file_of_version_1_is_brought_up),
        CASE(newer_and_foreign_files_are_left_alone),
        CASE(a_second_exclusive_open_is_refused),
        CASE(nobody_else_may_read_the_file),
        CASE(transactions_nest),
        CASE(statements_in_memory_are_bounded),
        CASE(a_full_file_undoes_the_whole_transaction),
        CASE(a_full_disk_is_said_and_passes),
        CASE(what_is_past_its_time_goes_in_batches),
        CASE(checkpoints_run_beside_the_loop),
        CASE(without_a_loop_the_wal_stays_bounded),
        CASE(creates_and_lists_are_quick),
    };
    return cmocka_run_group_tests_name("store_file", tests, NULL, NULL);
}

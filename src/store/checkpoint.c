/* Checkpoints on a libuv worker (see checkpoint.h).
 *
 * Copying the WAL does not shrink it: the first commit that finds all of it copied starts it afresh, and SQLite makes
 * the new header durable with an fsync. The worker makes such a commit itself (one row of store_meta), so that the
 * loop's thread meets that fsync only if it wants to write in the same instant. When the loop's thread has committed
 * since the copy began, the worker copies the rest and tries again. While writers never pause that never succeeds; at
 * four times its limit the worker therefore takes the write lock for as long as the rest takes, and the loop's thread
 * lets it have the lock by a pause after each commit, of one millisecond and from eight times on of ten: a disk that
 * cannot follow slows writers down and is not filled. */
#include "store/checkpoint.h"
#include "store/internal.h"

#include <stdatomic.h>

#define FORCE_FACTOR 4
#define SLOW_FACTOR 8
#define PASSES 3
#define FRESH_PAGES 16 /* a WAL that was just started anew is no longer than this */

struct checkpointer {
    struct store *store;
    uv_loop_t *loop;
    uv_work_t work;
    sqlite3 *db;
    bool running, stopping;
    atomic_bool force; /* set by the loop's thread while the worker runs */
    bool fresh;      /* the last run started the WAL anew */
    int touch_pages; /* length of the WAL after the worker's own commit */
    void (*stopped)(void *arg);
    void *stopped_arg;
};

static int touch_hook(void *checkpointer, sqlite3 *db, const char *name, int pages)
{
    (void)db;
    (void)name;
    ((struct checkpointer *)checkpointer)->touch_pages = pages;
    return SQLITE_OK;
}

static bool start_anew(struct checkpointer *c)
{
    c->touch_pages = INT32_MAX;
    sqlite3_exec(c->db, "UPDATE store_meta SET value = (value + 1) & 65535 WHERE key = 'checkpoint'", NULL, NULL, NULL);
    return c->touch_pages <= FRESH_PAGES;
}

static void work_run(uv_work_t *work)
{
    struct checkpointer *c = work->data;
    c->fresh = false;
    for (int pass = 0; pass < PASSES && !c->fresh; pass++) {
        sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        if (atomic_load(&c->force))
            sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
        c->fresh = start_anew(c);
    }
}

static void checkpointer_free(struct checkpointer *c)
{
    void (*stopped)(void *arg) = c->stopped;
    void *arg = c->stopped_arg;
    c->store->checkpointer = NULL;
    sqlite3_close(c->db);
    free(c);
    if (stopped)
        stopped(arg);
}

static void work_done(uv_work_t *work, int status)
{
    struct checkpointer *c = work->data;
    (void)status;
    c->running = false;
    c->store->checkpoints++;
    if (c->fresh)
        c->store->wal_bytes = (uint64_t)c->touch_pages * 4096;
    if (c->stopping)
        checkpointer_free(c);
}

/* Called by SQLite after each commit of the main connection. */
int checkpoint_wal_hook(void *store, sqlite3 *db, const char *name, int pages)
{
    struct store *s = store;
    struct checkpointer *c = s->checkpointer;
    (void)name;
    s->commits++;
    s->wal_bytes = (uint64_t)pages * 4096;
    if (s->wal_bytes < s->wal_limit_bytes)
        return SQLITE_OK;
    if (!c) {
        sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        s->checkpoints++;
        return SQLITE_OK;
    }
    uint64_t times = s->wal_bytes / s->wal_limit_bytes;
    atomic_store(&c->force, times >= FORCE_FACTOR);
    if (c->running && times >= FORCE_FACTOR)
        usleep(times >= SLOW_FACTOR ? 10000 : 1000); /* the lock is free here */
    if (!c->running && !c->stopping)
        c->running = uv_queue_work(c->loop, &c->work, work_run, work_done) == 0;
    return SQLITE_OK;
}

int store_checkpoint_start(struct store *s, uv_loop_t *loop, struct err *e)
{
    if (s->checkpointer)
        return err_set(e, ERR_CONFLICT, "checkpoints run already");
    struct checkpointer *c = NEW(struct checkpointer);
    c->store = s;
    c->loop = loop;
    c->work.data = c;
    int r = connection_open(s->path, false, s->full_durability, s->busy_timeout_ms, &c->db, e);
    if (r < 0) {
        free(c);
        return err_prefix(e, "start checkpoints");
    }
    sqlite3_exec(c->db, "PRAGMA cache_size = -256", NULL, NULL, NULL);
    sqlite3_wal_hook(c->db, touch_hook, c);
    s->checkpointer = c;
    return 0;
}

void store_checkpoint_stop(struct store *s, void (*done)(void *arg), void *arg)
{
    struct checkpointer *c = s->checkpointer;
    if (!c) {
        if (done)
            done(arg);
        return;
    }
    c->stopping = true;
    c->stopped = done;
    c->stopped_arg = arg;
    if (!c->running)
        checkpointer_free(c);
}

int store_checkpoint_now(struct store *s, struct err *e)
{
    int rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (rc != SQLITE_OK)
        return store_failure(s->db, rc, e);
    s->checkpoints++;
    s->wal_bytes = 0;
    return 0;
}

/* Checkpoints on a libuv worker (see checkpoint.h).
 *
 * The first commit after a whole checkpoint starts the WAL afresh, and SQLite makes its header durable with an fsync.
 * The worker therefore makes such a commit itself (one row of store_meta), so that the loop's thread meets that fsync
 * only if it wants to write in the same instant. While writers never pause a checkpoint never becomes whole and the
 * WAL grows; at four times its limit the worker takes the write lock for as long as the rest takes, and the loop's
 * thread lets it have the lock by a pause of a millisecond after each commit: a disk that cannot follow slows writers
 * down and is not filled. */
#include "store/checkpoint.h"
#include "store/internal.h"

#define FORCE_FACTOR 4

struct checkpointer {
    struct store *store;
    uv_loop_t *loop;
    uv_work_t work;
    sqlite3 *db;
    bool running, force, stopping, whole;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

static bool checkpoint_run(sqlite3 *db, int mode)
{
    int frames = -1, copied = -1;
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, mode, &frames, &copied);
    return rc == SQLITE_OK && frames == copied;
}

static void touch(sqlite3 *db)
{
    sqlite3_exec(db, "UPDATE store_meta SET value = (value + 1) & 65535 WHERE key = 'checkpoint'", NULL, NULL, NULL);
}

static void work_run(uv_work_t *work)
{
    struct checkpointer *c = work->data;
    c->whole = checkpoint_run(c->db, SQLITE_CHECKPOINT_PASSIVE);
    if (!c->whole && c->force)
        c->whole = checkpoint_run(c->db, SQLITE_CHECKPOINT_RESTART);
    if (c->whole)
        touch(c->db);
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
    if (c->whole) {
        c->store->checkpoints++;
        c->store->wal_bytes = 0;
    }
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
        if (checkpoint_run(db, SQLITE_CHECKPOINT_PASSIVE))
            s->checkpoints++;
    } else if (c->running && c->force) {
        usleep(1000); /* the lock is free here */
    } else if (!c->running && !c->stopping) {
        c->force = s->wal_bytes >= FORCE_FACTOR * s->wal_limit_bytes;
        c->running = uv_queue_work(c->loop, &c->work, work_run, work_done) == 0;
    }
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

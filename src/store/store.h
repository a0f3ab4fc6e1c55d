/* The durable state: one SQLite file, opened once, used from one thread.
 *
 * Theory of operation
 * - Every call is synchronous and takes tens of microseconds: the file is in WAL mode and a commit is one write() with
 *   no fsync (`synchronous=NORMAL`), so calls are made on the loop's thread. What a call has acknowledged survives the
 *   death of the process at any moment. The last transactions can be lost when the whole host loses power, together
 *   with the machines that they spoke of; `full_durability` makes each commit an fsync instead.
 * - The WAL is emptied by a second connection on a libuv worker (checkpoint.h) once it has grown past a size.
 * - An entity has one header (sandbox.h, operation.h, …) with its struct and its functions; SQL stays in their .c
 *   files. Structs own what they point to; `store_x_free` frees, `_cleanup_store_x_` frees at the end of the scope.
 * - Functions that take `project_id` see that project's rows alone and answer ERR_NOT_FOUND for any other;
 *   NULL stands for the platform itself and sees all.
 * - Columns have documented lengths; text that is longer is refused with ERR_TOO_LARGE, text that is not of the
 *   form asked for with ERR_INVALID, before any row changes.
 * - Several calls become one commit between store_begin and store_commit; calls in no transaction are one each.
 *
 * Errors that any function can give: ERR_NO_SPACE (disk full), ERR_SYSTEM (I/O), ERR_UNAVAILABLE (locked by
 * another program for too long), ERR_INTERNAL (a fault in a statement). */
#ifndef SPACE_STORE_STORE_H
#define SPACE_STORE_STORE_H

#include "base/err.h"
#include "base/id.h"

struct store;

#define STORE_DIGEST_MAX 80      /* digest of a template */
#define STORE_TAG_MAX 64         /* tag of a template */
#define STORE_NAME_MAX 128       /* names of sandboxes, keys and projects */
#define STORE_REASON_MAX 1024    /* why a state was entered */
#define STORE_JSON_MAX 65536     /* env, spec, manifest of shapes, event data … unless a header says otherwise */
#define STORE_PAGE_MAX 1000      /* rows of one page of a list */
#define STORE_HASH_LEN 32        /* SHA-256 */

struct store_options {
    const char *path;          /* of space.db; its folder must exist. Made 0600 when missing */
    bool exclusive;            /* take `path`.lock: a second exclusive open is refused with ERR_CONFLICT */
    bool read_only;            /* for looking: no migration, no lock; an older schema is refused */
    bool full_durability;      /* fsync at each commit */
    uint32_t busy_timeout_ms;  /* 0 stands for 5,000 */
    uint64_t wal_limit_bytes;  /* checkpoint beyond this size; 0 stands for 16 MiB */
};

/* Open or make the file and bring its schema to this program's version. ERR_UNSUPPORTED: the file is of a newer version
 * of the program; it is left as it was. ERR_CONFLICT: `exclusive` and somebody else holds it. An exclusive open also
 * drops idempotency keys whose request had not been answered when the last process ended. */
int store_open(const struct store_options *options, struct store **ret_store, struct err *e);
void store_close(struct store *s); /* NULL is fine. store_checkpoint_stop first when one was started */

static inline void cleanup_store(struct store **s)
{
    store_close(*s);
}
#define _cleanup_store_ _cleanup_(cleanup_store)

int store_schema_version(struct store *s);

/* A transaction: declared with the cleanup attribute, so that leaving the scope without store_commit rolls back.
 *
 *     _cleanup_store_tx_ struct store_tx tx = {0};
 *     if ((r = store_begin(s, &tx, e)) < 0 || (r = store_sandbox_insert(s, sb, e)) < 0 || …)
 *         return r;
 *     return store_commit(&tx, e);
 *
 * They nest (to a depth of 8); an inner one that rolls back undoes its own part. Nothing else may run on the store's
 * thread between begin and commit: no return to the loop with a transaction open. */
struct store_tx {
    struct store *store; /* NULL when not begun or already ended */
    unsigned depth;
};
int store_begin(struct store *s, struct store_tx *tx, struct err *e);
int store_commit(struct store_tx *tx, struct err *e);
void store_rollback(struct store_tx *tx); /* does nothing when already ended */
#define _cleanup_store_tx_ _cleanup_(store_rollback)

/* Pages of lists. Lists are ordered newest first by (created_at, id), so rows made while somebody turns the pages
 * never shift what follows. A cursor is opaque text; ERR_INVALID when it is none of ours. */
#define STORE_CURSOR_SIZE 64
struct store_page {
    uint32_t limit;     /* 1–1000; 0 stands for 100 */
    const char *cursor; /* NULL: from the start */
};

/* (created_at, id) ↔ text. */
void store_cursor_encode(int64_t created_at_ms, const char *id, char ret_text[STORE_CURSOR_SIZE]);
int store_cursor_decode(const char *text, int64_t *ret_created_at_ms, char ret_id[ID_SIZE], struct err *e);

#define STORE_MASK(state) (1u << (state))

/* Remove what is past its time, at most `batch` rows of each kind. Returns how many rows went (0: nothing left to do;
 * else call again soon), so that the loop never waits for a large delete. */
struct store_retention {
    uint64_t deleted_ms;        /* sandboxes that ended (deleted, failed without a machine), with their execs */
    uint64_t operation_ms;      /* operations that ended */
    uint64_t idempotency_ms;    /* kept answers */
    uint64_t event_ms;          /* events older than this … */
    uint64_t events_max;        /* … and all but the newest so many */
};
int store_prune(struct store *s, const struct store_retention *retention, int64_t now_ms, unsigned batch,
                struct err *e);

/* A round trip through the file: reads and writes one row. For /readyz. */
int store_ping(struct store *s, struct err *e);

/* Size figures for /metrics. */
struct store_stats {
    uint64_t file_bytes, wal_bytes;
    uint64_t commits;
    uint64_t checkpoints;
    uint64_t cached_keys;
};
void store_stats_get(struct store *s, struct store_stats *ret_stats);

#endif

/* Emptying the WAL off the loop's thread: after a commit that leaves the WAL larger than `wal_limit_bytes`, a libuv
 * worker with a connection of its own copies it into the main file, with the fsyncs that this takes. Until store_checkpoint_start
 * was called the copy is made by the commit that finds the WAL too large. */
#ifndef SPACE_STORE_CHECKPOINT_H
#define SPACE_STORE_CHECKPOINT_H

#include "store/store.h"

#include <uv.h>

/* From here on checkpoints run on the workers of `loop`. */
int store_checkpoint_start(struct store *s, uv_loop_t *loop, struct err *e);

/* No new one starts; `done` (may be NULL) is called on the loop once a running one has ended, possibly before the
 * function returns. Then store_close may be called. */
void store_checkpoint_stop(struct store *s, void (*done)(void *arg), void *arg);

/* On the calling thread, at once. For programs without a loop, and for the end of the daemon. */
int store_checkpoint_now(struct store *s, struct err *e);

#endif

/* The business of the platform: sandboxes, their execs, operations and templates, from the request to the confirmed
 * result. Knows the store and the node, and nothing of HTTP.
 *
 * Theory of operation.
 *   - Everything runs on the loop's thread. A request writes its intent to the store and returns; the node's and the
 *     guest's answers come later as callbacks and move the sandbox on by the table in lifecycle.h.
 *   - A sandbox that is not at rest in `deleted` or `failed` has a `struct live` in memory, found by id. Callbacks carry
 *     ids and a generation, never pointers to it, so that a late one misses.
 *   - What must be told to somebody who waits (an operation that ended, an exec that ended) goes through waiters named
 *     by id (waiter.h).
 *   - Errors of the store while an answer of the node is being recorded do not lose the answer: it is tried again.
 *
 * Callbacks of the functions in this folder may come before the function returns. */
#ifndef SPACE_CONTROL_CONTROL_H
#define SPACE_CONTROL_CONTROL_H

#include "base/err.h"
#include "base/id.h"

#include <uv.h>

#include "node/node.h"

struct config;
struct control;
struct store;

/* `config` and `store` must live longer than the control. */
int control_new(uv_loop_t *loop, const struct config *config, struct store *store, struct control **ret_control,
                struct err *e);

/* For node_new; the argument is the control. */
const struct node_callbacks *control_node_callbacks(void);

/* Find everything of an earlier life again: the node adopts or removes machines, then each sandbox of the store goes on
 * from its state. `ready` is called once; from then on control_ready is true unless it was given an error. */
void control_start(struct control *c, struct node *node, void (*ready)(void *arg, const struct err *e), void *arg);
bool control_ready(const struct control *c);

/* End every sandbox: each becomes `failed` with this reason, and its machine is removed. From this call on none is made.
 * `done` is called once, when all machines are gone or the time is over; not after control_stop. */
void control_end_all(struct control *c, const char *reason, uint64_t timeout_ms, void (*done)(void *arg), void *arg);

/* No timers, no waiters, no streams any more: each waiter is called as timed out. Machines are left as they are.
 * `done` is called when no handle of the control is open any more; then control_free. */
void control_stop(struct control *c, void (*done)(void *arg), void *arg);
void control_free(struct control *c);

uv_loop_t *control_loop(struct control *c);
struct store *control_store(struct control *c);
struct node *control_node(struct control *c);
const struct config *control_config(struct control *c);

/* For /metrics. */
#define CONTROL_LATENCY_BUCKETS 14
struct control_histogram {
    uint64_t count[CONTROL_LATENCY_BUCKETS + 1]; /* the last one: above all bounds */
    uint64_t total;
    double sum_seconds;
};
extern const double control_latency_bounds[CONTROL_LATENCY_BUCKETS]; /* seconds */
void control_histogram_add(struct control_histogram *h, double seconds);

struct control_stats {
    uint32_t sandboxes[8]; /* by enum life_state; of deleted and failed those since the start */
    uint32_t execs_running;
    uint64_t execs_started, execs_ended, execs_failed, execs_lost;
    uint64_t machines_lost, deadlines, store_retries;
    struct control_histogram claim[3]; /* by enum claim_source: from asked to ready */
    struct control_histogram create;   /* from the request to ready, as the caller sees it */
};
void control_stats_get(struct control *c, struct control_stats *ret_stats);

#endif

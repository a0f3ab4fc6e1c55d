/* The event loop: descriptors, timers, and jobs for what can block.
 *
 * Everything runs on one thread but the `run` function of a job. A source or timer may be removed from inside any
 * callback; an event that was already fetched for it is forgotten. Without events and timers the loop sleeps. */
#ifndef SPACE_AGENT_LOOP_H
#define SPACE_AGENT_LOOP_H

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#include "agent/limits.h"
#include "base/err.h"

struct loop;

struct loop_source {
    struct loop *loop; /* NULL while not added */
    int fd;
    void (*ready)(struct loop_source *source, uint32_t events);
};

struct loop_timer {
    struct loop *loop; /* NULL while not armed */
    uint64_t at_ms;
    void (*fire)(struct loop_timer *timer);
    TAILQ_ENTRY(loop_timer) entry;
};

/* `run` is called on a worker thread, then `done` on the loop's thread. The owner keeps the job until `done`. */
struct loop_job {
    void (*run)(struct loop_job *job);
    void (*done)(struct loop_job *job);
    STAILQ_ENTRY(loop_job) entry;
};

#define LOOP_BATCH 64

struct loop {
    int epoll_fd;
    struct epoll_event batch[LOOP_BATCH];
    int batch_at, batch_len;
    TAILQ_HEAD(loop_timer_list, loop_timer) timers; /* soonest first */
    bool again;                                     /* someone has more to do: do not sleep */
    bool stop;
    void (*after)(void *arg); /* after each batch of events */
    void *after_arg;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t work;
    STAILQ_HEAD(, loop_job) waiting, finished;
    int workers, idle_workers, waiting_count;
    struct loop_source finished_source; /* an eventfd */
};

int loop_init(struct loop *loop, struct err *e);
/* Only when no job is under way. */
void loop_done(struct loop *loop);
void loop_run(struct loop *loop); /* until loop->stop */

/* `events` as for epoll. The descriptor stays the caller's. */
int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events,
             void (*ready)(struct loop_source *source, uint32_t events));
void loop_change(struct loop_source *source, uint32_t events);
void loop_remove(struct loop_source *source); /* nothing happens when it is not added */

/* Arm or arm anew. */
void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t delay_ms,
                    void (*fire)(struct loop_timer *timer));
void loop_timer_cancel(struct loop_timer *timer);

/* ERR_LIMIT when too many are waiting; then neither function is called. */
int loop_job_submit(struct loop *loop, struct loop_job *job, struct err *e);

#endif

/* Between the files about execs. */
#ifndef SPACE_CONTROL_EXEC_INTERNAL_H
#define SPACE_CONTROL_EXEC_INTERNAL_H

#include "control/exec.h"
#include "control/internal.h"

enum exec_phase {
    EXEC_WAITED_FOR, /* reserved, and somebody waits for its result */
    EXEC_STARTING,
    EXEC_RUNNING,
};

struct exec_start_wait {
    exec_started_cb done;
    void *arg;
    TAILQ_ENTRY(exec_start_wait) link;
};
TAILQ_HEAD(exec_start_waits, exec_start_wait);

/* An exec that is not at rest, in its sandbox's table. */
struct exec_live {
    char id[ID_SIZE];
    enum exec_phase phase;
    struct exec_start_waits start_waits;
    unsigned streams;          /* readers of its output; they see its end */
    /* Reads from the end and throws away, for who waits for the result: */
    struct guest_call *watch;
    struct exec_call *watch_call;
    bool watch_asked; /* where the end is, is being asked */
    unsigned since_round;      /* the poll that was under way when it began does not know of it */
    unsigned seen_round;
    UT_hash_handle hh;
};

/* Names for callbacks of the guest. */
struct exec_call {
    struct control *control;
    char sandbox_id[ID_SIZE];
    char id[ID_SIZE];
    unsigned round;
};
struct exec_call *exec_call_new(struct control *c, const char *sandbox_id, const char *id);

struct exec_live *exec_live_find(struct live *l, const char *id);
struct exec_live *exec_live_add(struct live *l, const char *id, enum exec_phase phase);

/* The end of an exec, from whoever sees it first; again is fine. */
void exec_ended(struct control *c, const char *sandbox_id, const char *id, const struct guest_exit *x);
/* It is in the agent's hands: record it. */
void exec_is_running(struct control *c, const char *sandbox_id, const char *id, int32_t pid);
/* Take it out of the table and wake who waits. */
void exec_rest(struct live *l, struct exec_live *x, const struct err *why);

/* As exec_start, with a handle to cancel; NULL when `done` was called already. */
struct exec_start_wait *exec_start_begin(struct control *c, const char *project_id, const char *sandbox_id,
                                         const char *id, exec_started_cb done, void *arg);
void exec_start_cancel(struct live *l, const char *id, struct exec_start_wait *w);

/* Poll soon, if there is something that only a poll can tell. */
void exec_poll_soon(struct live *l, bool again_from_the_shortest);
void exec_watch_begin(struct live *l, struct exec_live *x);
void exec_watch_end(struct exec_live *x);

#endif

/* What the files of this folder share, and nobody else sees. */
#ifndef SPACE_CONTROL_INTERNAL_H
#define SPACE_CONTROL_INTERNAL_H

#include "control/control.h"
#include "control/lifecycle.h"
#include "node/node.h"

#include <sys/queue.h>
#include <uthash.h>

#define RETRY_MS 500            /* after a failed write of the store, a failed removal of a machine */
#define EVENTS_WAITING_MAX 4    /* answers of the node that the store could not take yet, of one sandbox */
#define EXEC_TRIM_EVERY 64
#define EXEC_POLL_MIN_MS 50
#define EXEC_POLL_MAX_MS 2000

struct exec_live;

/* An answer of the node that is being recorded. */
struct life_answer {
    enum life_event event;
    int code; /* of a failure */
    char reason[512];
};

/* A sandbox that is not at rest in deleted or failed. Found by id; everything that comes later looks it up again. */
struct live {
    struct control *control;
    char id[ID_SIZE];
    char project_id[ID_SIZE];
    enum life_state state;
    char op_id[ID_SIZE];      /* of the change under way, else empty */
    char machine_id[ID_SIZE]; /* empty: none that is known */
    enum claim_source source;
    bool source_known;
    uint64_t claim;           /* of node_claim, 0: none */
    struct life_action_call *claim_call;
    unsigned generation;      /* of the newest action; answers to older ones are dropped */
    int64_t expires_at_ms;
    uint64_t asked_mono_ns;   /* when its creation began here; 0: in an earlier life of the daemon */
    char reason[512];         /* why its machine was lost, or why it is being deleted */

    struct life_answer waiting[EVENTS_WAITING_MAX];
    unsigned waiting_count;
    uv_timer_t *retry;        /* of store and removal */

    /* execs */
    struct exec_live *execs;  /* hash of those that are starting or running */
    uint32_t execs_made;      /* in this life of the daemon */
    uint32_t execs_open;      /* reserved, starting and running */
    bool poll_running;
    bool poll_all;            /* the next one also looks at what has ended */
    unsigned poll_round;
    uint64_t poll_interval_ms;
    uv_timer_t *poll;

    UT_hash_handle hh;
};

struct control {
    uv_loop_t *loop;
    const struct config *config;
    struct store *store;
    struct node *node;
    struct live *lives;
    struct waiter_list *waiters;
    struct template_job *template_jobs;
    bool ready, stopping;
    bool ending;            /* every sandbox is being ended: control_end_all */
    uv_timer_t *end;
    void (*on_ended)(void *arg);
    void *on_ended_arg;
    uv_timer_t *deadline, *prune, *minute, *sweep;
    int64_t sweep_at_ms;    /* what that timer is set to; 0: not set */
    int64_t deadline_at_ms; /* what the timer is set to; 0: not set */
    unsigned handles;       /* open libuv handles */
    void (*on_ready)(void *arg, const struct err *e);
    void *on_ready_arg;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    struct control_stats stats;
};

/* Timers that are counted, so that control_stop knows when all are closed. timer_done takes NULL and sets it. */
uv_timer_t *timer_new(struct control *c, void *data);
void timer_done(struct control *c, uv_timer_t **timer);

struct live *live_find(struct control *c, const char *id);
/* Of a project; NULL project: of any. */
struct live *live_find_in(struct control *c, const char *project_id, const char *id);
/* Load from the store; NULL with the error when there is none or it rests. */
struct live *live_load(struct control *c, const char *id, struct err *e);
void live_free(struct live *l);
/* Something came from the node (or a timer): step, record, act. `reason` and `code` are for failures. */
void live_event(struct control *c, const char *id, enum life_event event, int code, const char *reason);

/* Give up the claim of one that is being created. */
void live_unclaim(struct live *l);

void end_all_check(struct control *c); /* one less */
void end_all_stop(struct control *c);
void waiters_stop(struct control *c);

/* Arm the deadline timer for one more deadline, or look at all of them again. */
void deadline_add(struct control *c, int64_t expires_at_ms);
void deadline_look(struct control *c);

/* What exec.c does at the steps of a sandbox. */
void execs_load(struct live *l);                       /* count and find again what the store has */
void execs_find(struct live *l);                       /* ask the agent, now and then while there are any */
void execs_end(struct live *l, const char *reason);    /* they are lost in the store already */
void execs_free(struct live *l);                       /* without telling anyone */
uint32_t execs_running(const struct live *l);
void execs_sweep(struct control *c);                   /* reserved ones whose token has expired */
void execs_sweep_at(struct control *c, int64_t at_ms);

void templates_stop(struct control *c);

#endif

/* The life of a sandbox as a pure function: (state, event) → (state, actions).
 *
 * Theory of operation.
 *
 *   creating ──claimed──► running ──pause──► pausing ──paused──► paused
 *      │                    ▲  ▲───────────────┘ pause failed      │
 *      │                    │  └──resumed── resuming ◄──resume─────┘
 *      │                    │                  └──resume failed──► paused
 *      └── claim failed ──► failed ◄── machine lost (running, pausing, paused, resuming)
 *   delete or deadline in any of them ──► deleting ──removed──► deleted
 *
 * What holds at every moment:
 *   - a sandbox has at most one change under way, and its operation is open exactly while the state is one of
 *     creating, pausing, resuming, deleting;
 *   - the state and the operation are in the store before an action of the step is performed, and every action can be
 *     performed again: after a restart the event LIFE_FOUND or LIFE_GONE says what became of the machine, and its step
 *     tells what to do once more;
 *   - delete wins over everything: it ends the open operation of another kind as cancelled; a second delete joins the
 *     first;
 *   - a request that asks for what is under way already joins that operation, one that asks for what is the case is
 *     answered with an operation that has succeeded, anything else is refused;
 *   - of the node it asks: a pause that failed leaves the machine running, a resume that failed leaves it standing.
 *
 * Nothing here knows the store, the node or time. control/sandbox.c performs the actions; the simulator in
 * tests/unit/test_lifecycle.c lives thousands of lives with crashes in between. */
#ifndef SPACE_CONTROL_LIFECYCLE_H
#define SPACE_CONTROL_LIFECYCLE_H

#include "base/defs.h"

enum life_state {
    LIFE_CREATING,
    LIFE_RUNNING,
    LIFE_PAUSING,
    LIFE_PAUSED,
    LIFE_RESUMING,
    LIFE_DELETING,
    LIFE_DELETED,
    LIFE_FAILED,
    LIFE_STATES,
};

enum life_event {
    LIFE_PAUSE,         /* requests */
    LIFE_RESUME,
    LIFE_DELETE,
    LIFE_DEADLINE,      /* the timeout has come */
    LIFE_CLAIMED,       /* what the node answers */
    LIFE_CLAIM_FAILED,
    LIFE_PAUSE_DONE,
    LIFE_PAUSE_FAILED,
    LIFE_RESUME_DONE,
    LIFE_RESUME_FAILED,
    LIFE_REMOVED,
    LIFE_LOST,          /* the machine ended by itself */
    LIFE_FOUND,         /* after a restart: its machine runs */
    LIFE_FOUND_PAUSED,  /* after a restart: its machine stands still */
    LIFE_GONE,          /* after a restart: it has no machine */
    LIFE_EVENTS,
};

/* What the caller of a request is told. */
enum life_verdict {
    LIFE_IGNORE,  /* the event means nothing in this state: a late answer, or nothing to do */
    LIFE_MOVE,    /* the step happens; a request gets an operation of its own */
    LIFE_JOIN,    /* a request: the operation that is under way does it */
    LIFE_ALREADY, /* a request: it is so already */
    LIFE_REFUSE,  /* a request: not possible in this state */
};

/* Performed in this order after state and operation are in the store. */
enum life_action {
    LIFE_DO_OP_SUCCEED = 1 << 0, /* the operation under way has succeeded */
    LIFE_DO_OP_FAIL = 1 << 1,    /* … has failed, with the event's reason */
    LIFE_DO_OP_CANCEL = 1 << 2,  /* … is given up in favour of a delete */
    LIFE_DO_UNCLAIM = 1 << 3,    /* node_claim_cancel */
    LIFE_DO_END_EXECS = 1 << 4,  /* execs that have not ended are lost */
    LIFE_DO_CLAIM = 1 << 5,      /* remove a machine that there is, node_claim; answers CLAIMED or CLAIM_FAILED */
    LIFE_DO_PAUSE = 1 << 6,      /* node_pause; answers PAUSE_DONE or PAUSE_FAILED */
    LIFE_DO_RESUME = 1 << 7,     /* node_resume; answers RESUME_DONE or RESUME_FAILED */
    LIFE_DO_REMOVE = 1 << 8,     /* node_remove, tried again until it succeeds; answers REMOVED */
    LIFE_DO_FIND_EXECS = 1 << 9, /* ask the agent which execs it still has */
};

struct life_step {
    enum life_verdict verdict;
    enum life_state next;
    uint32_t actions; /* enum life_action */
};

struct life_step life_step(enum life_state state, enum life_event event);

/* A change is under way: the sandbox has an open operation. */
static inline bool life_busy(enum life_state s)
{
    return s == LIFE_CREATING || s == LIFE_PAUSING || s == LIFE_RESUMING || s == LIFE_DELETING;
}

/* It holds or may hold a machine, and counts against the project's quota. */
static inline bool life_holds_machine(enum life_state s)
{
    return s != LIFE_DELETED && s != LIFE_FAILED;
}

const char *life_state_name(enum life_state s); /* "creating" */
const char *life_event_name(enum life_event e);
bool life_state_parse(const char *name, enum life_state *ret_state);

#endif

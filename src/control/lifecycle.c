/* The table behind control/lifecycle.h. A cell that is not named is "ignore". */
#include "control/lifecycle.h"

#include "base/str.h"

static const char *const state_names[LIFE_STATES] = {
    [LIFE_CREATING] = "creating", [LIFE_RUNNING] = "running",   [LIFE_PAUSING] = "pausing", [LIFE_PAUSED] = "paused",
    [LIFE_RESUMING] = "resuming", [LIFE_DELETING] = "deleting", [LIFE_DELETED] = "deleted", [LIFE_FAILED] = "failed",
};

static const char *const event_names[LIFE_EVENTS] = {
    [LIFE_PAUSE] = "pause",
    [LIFE_RESUME] = "resume",
    [LIFE_DELETE] = "delete",
    [LIFE_DEADLINE] = "deadline",
    [LIFE_CLAIMED] = "claimed",
    [LIFE_CLAIM_FAILED] = "claim_failed",
    [LIFE_PAUSE_DONE] = "pause_done",
    [LIFE_PAUSE_FAILED] = "pause_failed",
    [LIFE_RESUME_DONE] = "resume_done",
    [LIFE_RESUME_FAILED] = "resume_failed",
    [LIFE_REMOVED] = "removed",
    [LIFE_LOST] = "lost",
    [LIFE_FOUND] = "found",
    [LIFE_FOUND_PAUSED] = "found_paused",
    [LIFE_GONE] = "gone",
};

#define MOVE(to, what) {LIFE_MOVE, LIFE_##to, (what)}
#define DO(what) LIFE_DO_##what
#define TO_DELETING(what) MOVE(DELETING, (what) | DO(END_EXECS) | DO(REMOVE))
#define TO_FAILED(what) MOVE(FAILED, (what) | DO(END_EXECS) | DO(REMOVE))

static const struct life_step table[LIFE_STATES][LIFE_EVENTS] = {
    [LIFE_CREATING] = {
        [LIFE_PAUSE] = {LIFE_REFUSE},
        [LIFE_RESUME] = {LIFE_REFUSE},
        [LIFE_DELETE] = TO_DELETING(DO(OP_CANCEL) | DO(UNCLAIM)),
        [LIFE_DEADLINE] = TO_DELETING(DO(OP_CANCEL) | DO(UNCLAIM)),
        [LIFE_CLAIMED] = MOVE(RUNNING, DO(OP_SUCCEED)),
        [LIFE_CLAIM_FAILED] = TO_FAILED(DO(OP_FAIL)),
        /* Nobody was told of it yet, and whether its agent had confirmed who it is cannot be known: begin again (the
         * claim removes what there is). */
        [LIFE_FOUND] = MOVE(CREATING, DO(CLAIM)),
        [LIFE_FOUND_PAUSED] = MOVE(CREATING, DO(CLAIM)),
        [LIFE_GONE] = MOVE(CREATING, DO(CLAIM)),
    },
    [LIFE_RUNNING] = {
        [LIFE_PAUSE] = MOVE(PAUSING, DO(PAUSE)),
        [LIFE_RESUME] = {LIFE_ALREADY},
        [LIFE_DELETE] = TO_DELETING(0),
        [LIFE_DEADLINE] = TO_DELETING(0),
        [LIFE_LOST] = TO_FAILED(0),
        [LIFE_FOUND] = MOVE(RUNNING, DO(FIND_EXECS)),
        [LIFE_FOUND_PAUSED] = MOVE(RUNNING, DO(RESUME)),
        [LIFE_RESUME_DONE] = MOVE(RUNNING, DO(FIND_EXECS)),
        [LIFE_RESUME_FAILED] = TO_FAILED(0),
        [LIFE_GONE] = TO_FAILED(0),
    },
    [LIFE_PAUSING] = {
        [LIFE_PAUSE] = {LIFE_JOIN},
        [LIFE_RESUME] = {LIFE_REFUSE},
        [LIFE_DELETE] = TO_DELETING(DO(OP_CANCEL)),
        [LIFE_DEADLINE] = TO_DELETING(DO(OP_CANCEL)),
        [LIFE_PAUSE_DONE] = MOVE(PAUSED, DO(OP_SUCCEED)),
        [LIFE_PAUSE_FAILED] = MOVE(RUNNING, DO(OP_FAIL)),
        [LIFE_LOST] = TO_FAILED(DO(OP_FAIL)),
        [LIFE_FOUND] = MOVE(PAUSING, DO(PAUSE) | DO(FIND_EXECS)),
        [LIFE_FOUND_PAUSED] = MOVE(PAUSED, DO(OP_SUCCEED)),
        [LIFE_GONE] = TO_FAILED(DO(OP_FAIL)),
    },
    [LIFE_PAUSED] = {
        [LIFE_PAUSE] = {LIFE_ALREADY},
        [LIFE_RESUME] = MOVE(RESUMING, DO(RESUME)),
        [LIFE_DELETE] = TO_DELETING(0),
        [LIFE_DEADLINE] = TO_DELETING(0),
        [LIFE_LOST] = TO_FAILED(0),
        [LIFE_FOUND] = MOVE(PAUSED, DO(PAUSE)),
        [LIFE_PAUSE_FAILED] = TO_FAILED(0),
        [LIFE_GONE] = TO_FAILED(0),
    },
    [LIFE_RESUMING] = {
        [LIFE_PAUSE] = {LIFE_REFUSE},
        [LIFE_RESUME] = {LIFE_JOIN},
        [LIFE_DELETE] = TO_DELETING(DO(OP_CANCEL)),
        [LIFE_DEADLINE] = TO_DELETING(DO(OP_CANCEL)),
        [LIFE_RESUME_DONE] = MOVE(RUNNING, DO(OP_SUCCEED) | DO(FIND_EXECS)),
        [LIFE_RESUME_FAILED] = MOVE(PAUSED, DO(OP_FAIL)),
        [LIFE_LOST] = TO_FAILED(DO(OP_FAIL)),
        /* The clock of a machine that went on may not have been set: resuming once more does it. */
        [LIFE_FOUND] = MOVE(RESUMING, DO(RESUME)),
        [LIFE_FOUND_PAUSED] = MOVE(RESUMING, DO(RESUME)),
        [LIFE_GONE] = TO_FAILED(DO(OP_FAIL)),
    },
    [LIFE_DELETING] = {
        [LIFE_PAUSE] = {LIFE_REFUSE},
        [LIFE_RESUME] = {LIFE_REFUSE},
        [LIFE_DELETE] = {LIFE_JOIN},
        [LIFE_REMOVED] = MOVE(DELETED, DO(OP_SUCCEED)),
        [LIFE_FOUND] = MOVE(DELETING, DO(END_EXECS) | DO(REMOVE)),
        [LIFE_FOUND_PAUSED] = MOVE(DELETING, DO(END_EXECS) | DO(REMOVE)),
        [LIFE_GONE] = MOVE(DELETING, DO(END_EXECS) | DO(REMOVE)),
    },
    [LIFE_DELETED] = {
        [LIFE_PAUSE] = {LIFE_REFUSE},
        [LIFE_RESUME] = {LIFE_REFUSE},
        [LIFE_DELETE] = {LIFE_ALREADY},
    },
    [LIFE_FAILED] = {
        [LIFE_PAUSE] = {LIFE_REFUSE},
        [LIFE_RESUME] = {LIFE_REFUSE},
        [LIFE_DELETE] = TO_DELETING(0),
        [LIFE_FOUND] = MOVE(FAILED, DO(END_EXECS) | DO(REMOVE)),
        [LIFE_FOUND_PAUSED] = MOVE(FAILED, DO(END_EXECS) | DO(REMOVE)),
        [LIFE_GONE] = MOVE(FAILED, DO(END_EXECS) | DO(REMOVE)),
    },
};

/* Look the step up. `next` of a step that does not move is the state itself. */
struct life_step life_step(enum life_state state, enum life_event event)
{
    struct life_step step = table[state][event];
    if (step.verdict != LIFE_MOVE)
        step.next = state;
    return step;
}

const char *life_state_name(enum life_state s)
{
    return (unsigned)s < LIFE_STATES ? state_names[s] : "unknown";
}

const char *life_event_name(enum life_event e)
{
    return (unsigned)e < LIFE_EVENTS ? event_names[e] : "unknown";
}

bool life_state_parse(const char *name, enum life_state *ret_state)
{
    for (size_t i = 0; i < LIFE_STATES; i++)
        if (str_eq(name, state_names[i])) {
            *ret_state = (enum life_state)i;
            return true;
        }
    return false;
}

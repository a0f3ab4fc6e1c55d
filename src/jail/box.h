/* The two halves of space-jail: build the box around the process, then give up all rights. Each step returns 0, or
 * -errno with the stage and the feature in `ret_fault`. */
#ifndef SPACE_JAIL_BOX_H
#define SPACE_JAIL_BOX_H

#include "jail/plan.h"

/* What became of the features while the jail is made. */
struct jail_progress {
    uint32_t features; /* in force */
    uint32_t missing;  /* left out, as allowed */
    /* of the step that failed: */
    uint32_t stage;
    uint32_t feature;
    int errnum;
    uint32_t bind;
};

/* Namespaces and root: mount, network, ipc, uts; an empty read-only root with the plan's binds, /dev and /proc. */
bool box_build(const struct jail_plan *plan, struct jail_progress *p);

/* Limits, descriptors, ids, capabilities, no_new_privs. */
bool rights_drop(const struct jail_plan *plan, struct jail_progress *p);

/* Load the filter: from here on the process can do little more than report, exit and execute QEMU. */
bool filter_load(const struct jail_plan *plan, struct jail_progress *p);

/* After each step. A build for tests dies at the step that its program's name ends with; in the product it is nothing.
 */
#ifdef JAIL_TEST_STEPS
void jail_step(void);
#else
static inline void jail_step(void)
{
}
#endif

/* Record a step that failed because the host lacks `feature`: true when that is allowed and the work can go on. */
static inline bool jail_lacks(const struct jail_plan *plan, struct jail_progress *p, uint32_t stage, uint32_t feature,
                              int errnum)
{
    if (feature && !(feature & ~plan->allow_missing)) {
        p->missing |= feature;
        return true;
    }
    p->stage = stage;
    p->feature = feature;
    p->errnum = errnum;
    return false;
}

#endif

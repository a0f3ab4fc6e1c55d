/* The steps of making a jail. A failure travels as (stage, errno, missing feature) and becomes words only at the side
 * that shows it. */
#ifndef SPACE_JAIL_STAGE_H
#define SPACE_JAIL_STAGE_H

#include "base/defs.h"

enum jail_stage {
    JAIL_STAGE_NONE = 0,
    /* space-priv, at its start */
    JAIL_STAGE_OPTIONS,
    JAIL_STAGE_LOCK,
    JAIL_STAGE_QEMU_FILE, /* missing, or somebody but root can change it */
    JAIL_STAGE_DATA_FILES,
    JAIL_STAGE_LIBRARY_FILES,
    JAIL_STAGE_JAIL_FILE,
    /* space-priv, for each machine */
    JAIL_STAGE_SLOT_BUSY, /* processes or a cgroup of an earlier machine are left */
    JAIL_STAGE_SLOT_HELD, /* a known machine is in it */
    JAIL_STAGE_CGROUP,
    JAIL_STAGE_FORK,
    JAIL_STAGE_PLAN,
    JAIL_STAGE_IDENTITY, /* ADOPT, KILL: not the machine that it was said to be */
    JAIL_STAGE_SIGNAL,
    JAIL_STAGE_LIMIT,
    /* space-jail */
    JAIL_STAGE_USER_NS,
    JAIL_STAGE_PID_NS,
    JAIL_STAGE_MOUNT_NS,
    JAIL_STAGE_NET_NS,
    JAIL_STAGE_IPC_NS,
    JAIL_STAGE_UTS_NS,
    JAIL_STAGE_ROOT, /* the empty root */
    JAIL_STAGE_BIND, /* a folder or file in it */
    JAIL_STAGE_DEVICES,
    JAIL_STAGE_PROC,
    JAIL_STAGE_PIVOT,
    JAIL_STAGE_RLIMITS,
    JAIL_STAGE_DESCRIPTORS,
    JAIL_STAGE_IDS,
    JAIL_STAGE_CAPABILITIES,
    JAIL_STAGE_NO_NEW_PRIVS,
    JAIL_STAGE_NOT_DUMPABLE,
    JAIL_STAGE_SECCOMP,
    JAIL_STAGE_EXEC,
    JAIL_STAGE_COUNT,
};

/* "mount namespace", "exec of QEMU": what was attempted. Never NULL. */
const char *jail_stage_title(uint32_t stage);

#endif

/* What a jail is made of, one bit each. A jail is asked for all that apply; what cannot be had refuses the start unless
 * the operator's configuration allows exactly that bit to be missing, and then every answer says so. */
#ifndef SPACE_JAIL_FEATURE_H
#define SPACE_JAIL_FEATURE_H

#include "base/defs.h"

enum jail_feature {
    JAIL_UNIQUE_UID = 1 << 0, /* a user id that no other machine and no program has */
    JAIL_USER_NS = 1 << 1,    /* asked for without root alone: there it carries the other namespaces */
    JAIL_PID_NS = 1 << 2,
    JAIL_MOUNT_NS = 1 << 3,
    JAIL_NET_NS = 1 << 4,
    JAIL_IPC_NS = 1 << 5,
    JAIL_UTS_NS = 1 << 6,
    JAIL_EMPTY_ROOT = 1 << 7, /* a root of its own with nothing but QEMU and its libraries, read-only */
    JAIL_OWN_PROC = 1 << 8,   /* a /proc that shows this machine alone */
    JAIL_CGROUP_MEMORY = 1 << 9,
    JAIL_CGROUP_CPU = 1 << 10,
    JAIL_CGROUP_PIDS = 1 << 11,
    JAIL_SECCOMP = 1 << 12,
    JAIL_NOT_DUMPABLE = 1 << 13,
    /* From here on: any Linux that can run the platform has them, so they cannot be allowed to be missing. */
    JAIL_NO_CAPS = 1 << 14,
    JAIL_NO_NEW_PRIVS = 1 << 15,
    JAIL_RLIMITS = 1 << 16,
};

#define JAIL_FEATURES_ALL ((uint32_t)(1 << 17) - 1)
#define JAIL_FEATURES_FIXED ((uint32_t)(JAIL_NO_CAPS | JAIL_NO_NEW_PRIVS | JAIL_RLIMITS))
#define JAIL_FEATURES_OPTIONAL (JAIL_FEATURES_ALL & ~JAIL_FEATURES_FIXED)
/* What a process without root cannot have on a usual host. */
#define JAIL_FEATURES_NEED_ROOT                                                                                        \
    ((uint32_t)(JAIL_UNIQUE_UID | JAIL_CGROUP_MEMORY | JAIL_CGROUP_CPU | JAIL_CGROUP_PIDS | JAIL_NOT_DUMPABLE))

/* "mount namespace", for people. NULL for what is not exactly one known bit. */
const char *jail_feature_title(uint32_t feature);
/* "mount_ns", for configuration and JSON. NULL for what is not exactly one known bit. */
const char *jail_feature_name(uint32_t feature);
/* The names of all bits in `features`, "mount_ns, net_ns". Returns ret_text. */
#define JAIL_FEATURE_NAMES_SIZE 384
const char *jail_feature_names(uint32_t features, char ret_text[JAIL_FEATURE_NAMES_SIZE]);
/* The bit with this name, 0 when there is none. */
uint32_t jail_feature_by_name(const char *name);

#endif

/* Starting space-jail: what it needs is found, checked and compiled once (launcher_prepare); for each machine a plan is
 * filled in and one process is made, already in its namespaces of user and pid and in its cgroup. */
#ifndef SPACE_PRIV_LAUNCH_H
#define SPACE_PRIV_LAUNCH_H

#include <sys/stat.h>

#include "jail/plan.h"
#include "priv/cgroup.h"
#include "priv/priv_proto.h"
#include "priv/qemu_argv.h"

struct launch_paths {
    const char *qemu;
    const char *jail;
    const char *data[QEMU_DATA_MAX];
    uint32_t data_count;
    int lock_fd; /* -1: none */
};

/* What a step could not do; becomes PRIV_FAILED. */
struct fault {
    int code; /* enum err_code */
    int errnum;
    uint32_t stage;
    uint32_t feature;
};

struct launcher {
    struct launch_paths paths;
    struct stat qemu_file; /* to know a machine's program again */
    bool root;
    uid_t own_uid;
    uint32_t uid_base;
    uint32_t slots;
    uint32_t allow_missing;
    uint32_t overhead_mib;
    uint32_t cpu_percent;
    uint32_t pids_max;
    uint32_t features; /* asked for on this host: by root all but JAIL_USER_NS */
    uint32_t given;    /* of those: what is given before space-jail starts */
    uint32_t missing;  /* of those: known to be missing, and allowed to be */
    bool empty_root;   /* as the probe found out: QEMU's paths are those of the jail */
    uint64_t clone_flags;
    int null_fd;
    struct cgroups cgroups;
    struct jail_plan plan[2]; /* TCG, KVM: all but the machine's own numbers */
};

/* A process on its way to be a machine. */
struct launch {
    pid_t pid;
    int pidfd;
    int status_fd; /* readable: struct jail_status; at end of file the exec has happened, or all is over */
    uint64_t start_time;
    struct cgroup cgroup;
};

/* Fill in everything but `paths` from the greeting. 0, or -1 with the fault. */
int launcher_prepare(struct launcher *l, const struct priv_hello *hello, struct fault *ret_fault);

/* The uid of a slot; `slot` PRIV_SLOTS_MAX is that of the probe. Without root it only names the cgroup. */
uint32_t launcher_slot_uid(const struct launcher *l, uint32_t slot);
void launcher_slot_cgroup(const struct launcher *l, uint32_t slot, pid_t pid, struct cgroup *ret);

/* Start a machine with the descriptors of enum qemu_fd from QEMU_FD_QMP on (borrowed). 0, or -1 with the fault; nothing
 * is left then. */
int launcher_start(struct launcher *l, const struct priv_spawn_request *m, const int *fds, size_t fd_count,
                   struct launch *ret, struct fault *ret_fault);

/* Start one that ends before it executes QEMU, wait for it, and tell what its jail is made of. */
int launcher_probe(struct launcher *l, uint32_t *ret_features, uint32_t *ret_missing, struct fault *ret_fault);

#endif

/* One cgroup for each machine: limits of memory, cpu and pids; and a sure way to know and kill what is in it.
 *
 * Found once at start: for each controller the hierarchy that has it (v2, or v1 where only that has it), and a folder
 * `space` in it, below the cgroup of this process where that is possible. With v2 a cgroup that has processes cannot
 * give controllers to children: there `space` lies beside it. A machine's cgroup is `space/<name>`, where the name is
 * the uid of its slot, so that several platforms on one host do not meet. */
#ifndef SPACE_PRIV_CGROUP_H
#define SPACE_PRIV_CGROUP_H

#include <sys/types.h>

#include "base/err.h"
#include "jail/feature.h"

#define CGROUP_TREES_MAX 4
#define CGROUP_PATH_SIZE 512

struct cgroup_tree {
    char base[CGROUP_PATH_SIZE]; /* …/space */
    char mount[CGROUP_PATH_SIZE];
    char controllers[64]; /* as in /proc/PID/cgroup: "" for v2 */
    bool v2;
    uint32_t features; /* enum jail_feature that this hierarchy gives */
};

struct cgroups {
    struct cgroup_tree trees[CGROUP_TREES_MAX];
    size_t count;
    uint32_t features;
    int version; /* of the hierarchies that have the controllers; 0: none has */
};

/* A machine's cgroup: its folder in each tree, "" where there is none. */
struct cgroup {
    char path[CGROUP_TREES_MAX][CGROUP_PATH_SIZE];
};

struct cgroup_limits {
    uint64_t memory_bytes;
    uint32_t cpu_percent;
    uint32_t pids;
};

/* Find the hierarchies and make the `space` folders. Never fails: what cannot be had is not in ret->features. */
void cgroups_open(struct cgroups *ret);

/* Remove the `space` folders, if no machine of any platform on this host is in them. */
void cgroups_close(const struct cgroups *c);

/* Make the cgroup `name` with its limits. 0 or -errno; -EEXIST: one is left from before. Nothing is left on failure. */
int cgroup_make(const struct cgroups *c, const char *name, const struct cgroup_limits *limits, struct cgroup *ret);

/* Name the folders of a cgroup that may exist. With a pid: where that process really is, if that is a cgroup called
 * space/<name> (it may have been made below another cgroup than ours). */
void cgroup_name(const struct cgroups *c, const char *name, pid_t pid, struct cgroup *ret);
bool cgroup_exists(const struct cgroups *c, const struct cgroup *g);

int cgroup_cpu_set(const struct cgroups *c, const struct cgroup *g, uint32_t cpu_percent);

/* Descriptors through which a new process enters: the v2 folder for clone3 (-1: none), and files of v1 that the process
 * itself writes "0" to (no wait for other processes, as a move from outside would need). 0 or -errno. */
int cgroup_entry_open(const struct cgroups *c, const struct cgroup *g, int *ret_folder, int ret_files[CGROUP_TREES_MAX],
                      size_t *ret_count);

/* Up to `max` pids in it, the number found (each once). */
size_t cgroup_pids(const struct cgroups *c, const struct cgroup *g, pid_t *ret_pids, size_t max);

/* SIGKILL to everything in it where the kernel offers that (v2). */
void cgroup_kill(const struct cgroups *c, const struct cgroup *g);

/* Has the kernel killed a process in it for lack of memory? */
bool cgroup_oom(const struct cgroups *c, const struct cgroup *g);

/* Remove its folders. 0, or -EBUSY while processes are in it. A missing one is fine. */
int cgroup_remove(const struct cgroups *c, const struct cgroup *g);

/* Call `found` with the name of each cgroup that exists in the `space` folders (the same name may come twice). */
void cgroups_each(const struct cgroups *c, void (*found)(void *arg, const char *name), void *arg);

#endif

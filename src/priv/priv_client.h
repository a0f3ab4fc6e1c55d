/* The unprivileged side of space-priv: start it, send requests, get answers on the loop.
 *
 * Start it while still root (before the process drops to its own uid); without root the same calls work and give less.
 * Every request has exactly one callback, called from the loop and never from inside the request itself. When
 * space-priv ends, requests that wait are answered with ERR_UNAVAILABLE, then on_gone is called; the machines run on.
 */
#ifndef SPACE_PRIV_CLIENT_H
#define SPACE_PRIV_CLIENT_H

#include "base/err.h"
#include "priv/priv_proto.h"

#include <uv.h>

struct priv;

struct priv_exit {
    struct priv_machine machine;
    int exit_code; /* -1: by a signal, or not known */
    int signal;    /* 0: none, or not known */
    bool oom;
};

struct priv_config {
    const char *priv_path; /* the programs; absolute */
    const char *jail_path;
    const char *qemu_path;
    const char *data_path; /* QEMU's firmware folder (-L); several with ":" between them */
    const char *lock_path; /* a file, made if missing: one space-priv for each range of user ids at a time; NULL: none */
    uint32_t uid_base;
    uint32_t slots;
    uint32_t allow_missing; /* enum jail_feature */
    uint32_t overhead_mib;  /* 0: default, also for the next two */
    uint32_t cpu_percent;
    uint32_t pids_max;
    /* A machine has ended, its cgroup is gone and its slot free. */
    void (*on_exit)(void *arg, const struct priv_exit *exit);
    /* space-priv has ended by itself. Not called after priv_stop. */
    void (*on_gone)(void *arg, const struct err *why);
    void *arg;
};

struct priv_info {
    bool root;
    uint32_t features; /* what the jails of this host are made of */
    uint32_t missing;  /* what they lack and the configuration allows them to lack */
    int cgroup_version;
};

/* Start space-priv and wait for its answer (at most 10 s; the one call of this file that blocks).
 * ERR_UNSUPPORTED: a feature is missing and not allowed to be; the text names it. ERR_FORBIDDEN: QEMU, its firmware or
 * a helper can be changed by somebody else. ERR_SYSTEM, ERR_TIMEOUT. */
int priv_start(uv_loop_t *loop, const struct priv_config *config, struct priv **ret, struct err *e);

/* Close the connection: space-priv exits, machines run on. Waiting requests are answered with ERR_CANCELLED from the
 * loop; memory is freed there. */
void priv_stop(struct priv *p);

const struct priv_info *priv_info(const struct priv *p);

/* What a machine is; numbers as in struct priv_spawn_request. Descriptors are borrowed: duplicated if the request has
 * to wait, so the caller may close them when the call returns. kernel_fd and initrd_fd are -1 in restore mode. */
struct priv_spawn {
    uint32_t slot;
    enum priv_accel accel;
    enum priv_mode mode;
    uint32_t vcpus;
    uint32_t mem_mib;
    uint32_t tb_size_mib; /* 0: 64 */
    uint32_t tsc_khz;
    uint64_t disk_bytes;
    int qmp_fd; /* listening sockets; see enum qemu_fd for what each must be */
    int agent_fd;
    int egress_fd;
    int console_fd;
    int memory_fd;
    int kernel_fd;
    int initrd_fd;
};

/* What a spawn or adopt gave. pidfd is the callback's to close. */
struct priv_spawn_result {
    struct priv_machine machine;
    int pidfd; /* readable when the machine has ended */
    uint32_t features;
    uint32_t missing;
};

/* `result` is NULL when code is negative (enum err_code), `e` is NULL when it is 0. */
typedef void (*priv_spawn_cb)(void *arg, int code, const struct priv_spawn_result *result, const struct err *e);
typedef void (*priv_done_cb)(void *arg, int code, const struct err *e);
typedef void (*priv_list_cb)(void *arg, int code, const struct priv_machine *machines, size_t count,
                             const struct err *e);

/* Start a machine: the answer comes when QEMU has been executed in its jail. ERR_UNSUPPORTED: a feature is missing;
 * ERR_CONFLICT: something of an earlier machine is left in the slot (priv_clean it); ERR_SYSTEM. */
void priv_spawn(struct priv *p, const struct priv_spawn *spec, priv_spawn_cb cb, void *arg);

/* SIGKILL by pidfd. Answered when sent; on_exit follows when it is gone. One that is gone already is fine (its on_exit
 * was called or is on its way). */
void priv_kill(struct priv *p, const struct priv_machine *machine, priv_done_cb cb, void *arg);

/* Take over a machine that an earlier space-priv started. ERR_NOT_FOUND: it is gone, or something else has its pid. */
void priv_adopt(struct priv *p, const struct priv_machine *machine, priv_spawn_cb cb, void *arg);

/* Every machine process found on this host in any slot, known or not. */
void priv_list(struct priv *p, priv_list_cb cb, void *arg);

/* Kill whatever runs in a slot that no known machine holds. */
void priv_kill_stray(struct priv *p, uint32_t slot, priv_done_cb cb, void *arg);

/* As priv_kill_stray, and remove the slot's cgroup. */
void priv_clean(struct priv *p, uint32_t slot, priv_done_cb cb, void *arg);

/* Change the cpu limit of a running machine, in percent of a core. */
void priv_set_limit(struct priv *p, uint32_t slot, uint32_t cpu_percent, priv_done_cb cb, void *arg);

#endif

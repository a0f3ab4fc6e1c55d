/* A peer of space-priv for tests: speaks the protocol synchronously, holds the sockets of one machine a slot, and looks
 * afterwards for anything that is left. */
#ifndef SPACE_TESTS_RIG_H
#define SPACE_TESTS_RIG_H

#include <sys/types.h>

#include "priv/priv_proto.h"

#define RIG_SLOTS 64u
#define SKIP 77

struct rig_options {
    const char *qemu;       /* NULL: the probe */
    const char *data;       /* NULL: a folder that is fine */
    const char *jail;       /* NULL: the real one */
    uint32_t allow_missing; /* rootless: added to what needs root */
    uint32_t uid_base;      /* 0: one of this test's own */
    uint32_t pids_max;
    char *const *environment; /* NULL: empty */
    void (*prepare)(void);    /* in the child before the exec */
};

struct rig {
    int sock;
    pid_t pid;
    uint32_t uid_base;
    char folder[64];
    char lock[64];
    uint64_t tag;
    struct priv_ready ready;
    struct priv_failed failed; /* when the last answer was FAILED */
};

struct rig_machine {
    struct priv_machine machine;
    int pidfd;
    uint32_t features;
    uint32_t missing;
    int listen[3]; /* qmp, agent, egress */
    int console;   /* read end */
    int memory;
    char qmp_path[100];
    int conn; /* to the machine's QMP socket */
};

extern bool rig_rootless;
/* Become an ordinary user; exits with SKIP where such a one cannot make namespaces. */
void rig_become_user(void);

_Noreturn void rig_die(const char *file, int line, const char *format, ...) ATTR_PRINTF(3, 4);
#define CHECK(what, ...)                                                                                               \
    do {                                                                                                               \
        if (!(what))                                                                                                   \
            rig_die(__FILE__, __LINE__, "" __VA_ARGS__);                                                               \
    } while (0)

/* A folder, a lock and a uid base alone. */
void rig_folder_make(struct rig *r);
/* Remember a machine: should the test fail, it is killed. */
void rig_started(int pidfd);
/* Start space-priv and greet it. False: it answered FAILED (in r->failed), or ended. */
bool rig_start(struct rig *r, const struct rig_options *o);
/* Close the peer, wait for the end of space-priv, return its exit status. */
int rig_stop(struct rig *r);
/* Wait for space-priv to end by itself (deadline 10 s): its exit status. */
int rig_wait_exit(struct rig *r);

/* Send one message of any length with any descriptors. */
void rig_send_raw(struct rig *r, const void *data, size_t len, const int *fds, size_t fd_count);
void rig_send(struct rig *r, union priv_message *m, uint32_t type, const int *fds, size_t fd_count);
/* The next message (deadline 10 s); 0 at end of file. ret_fd is -1 when none came. */
ssize_t rig_receive(struct rig *r, union priv_message *ret, int *ret_fd);
/* Receive until one of this type or FAILED; true for the type. */
bool rig_expect(struct rig *r, uint32_t type, union priv_message *ret, int *ret_fd);
void rig_expect_exit(struct rig *r, const struct rig_machine *m, struct priv_exited *ret);

/* Numbers and descriptors of a good SPAWN into `slot`; fds has room for PRIV_FDS_MAX. */
void rig_spawn_message(struct rig *r, uint32_t slot, union priv_message *ret, struct rig_machine *ret_m, int *ret_fds,
                       size_t *ret_count);
bool rig_spawn(struct rig *r, uint32_t slot, enum priv_accel accel, struct rig_machine *ret);
void rig_machine_close(struct rig_machine *m);
void rig_kill(struct rig *r, struct rig_machine *m);

/* One line to the probe and its answer. False: it is gone. */
bool rig_ask(struct rig_machine *m, char *ret_line, size_t size, const char *format, ...) ATTR_PRINTF(4, 5);

/* The attempt must be refused or end the process by SIGSYS (the slot is then spawned again). `must_kill`: refusal is
 * not enough. */
void rig_refused(struct rig *r, struct rig_machine *m, bool must_kill, const char *format, ...) ATTR_PRINTF(4, 5);

/* Dies if a process, cgroup or mount of this rig is left. */
void rig_nothing_left(const struct rig *r);
size_t rig_mount_count(void);
size_t rig_fd_count(void);

/* The text after "name:" in /proc/PID/FILE. */
bool rig_proc_field(pid_t pid, const char *file, const char *name, char *ret_text, size_t size);

#endif

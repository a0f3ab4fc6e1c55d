/* The messages between spaced and space-priv, over one SOCK_SEQPACKET pair: one datagram is one struct of this file, in
 * host byte order, of exactly its size, with exactly the descriptors named here (SCM_RIGHTS, in this order).
 *
 *   spaced → space-priv              answer (same tag)                       when
 *   HELLO                            READY                                   first, once
 *   SPAWN + 5 or 7 descriptors       SPAWNED + pidfd                         slot is free
 *   KILL                             DONE                                    always; a machine already gone is DONE too
 *   ADOPT                            SPAWNED + pidfd                         slot is free
 *   LIST                             LISTED, repeated while `more` is set    always
 *   KILL_STRAY                       DONE: nothing runs in the slot          slot is not held by a known machine
 *   CLEAN                            DONE: nothing runs, cgroup removed      as KILL_STRAY
 *   SET_LIMIT                        DONE                                    slot holds a machine
 *   any but HELLO                    FAILED in place of the answer
 *   (nothing)                        EXITED, tag 0                           a machine of a slot has ended; slot is
 * free
 *
 * space-priv checks every number again. What cannot come from a correct peer (wrong magic, size, type, direction, count
 * or kind of descriptors, a number out of range, HELLO twice, SPAWN into a slot that is in use) makes it close the peer
 * and exit with status PRIV_EXIT_PROTOCOL; machines that run go on. What can happen to a correct peer is FAILED. */
#ifndef SPACE_PRIV_PROTO_H
#define SPACE_PRIV_PROTO_H

#include "base/defs.h"
#include "jail/feature.h"
#include "jail/stage.h"

#define PRIV_MAGIC 0x50524956u /* "PRIV" */
#define PRIV_VERSION 1u

#define PRIV_SLOTS_MAX 8192u
#define PRIV_UID_MIN 100000u /* below: people and system services */
#define PRIV_UID_MAX 0x7fffffffu
#define PRIV_VCPUS_MAX 8u
#define PRIV_MEM_MIB_MIN 64u
#define PRIV_MEM_MIB_MAX 8192u
#define PRIV_TB_SIZE_MIB_MAX 512u
#define PRIV_DISK_BYTES_MAX (64 * GIB)
#define PRIV_TSC_KHZ_MAX 20000000u
#define PRIV_OVERHEAD_MIB_MAX 16384u
#define PRIV_PIDS_MAX 4096u
#define PRIV_CPU_PERCENT_MAX 10000u
#define PRIV_LIST_BATCH 32u
#define PRIV_CONSOLE_BYTES 65536u /* the guest console's ring; a power of two */

/* Exit status of space-priv. */
enum priv_exit_status {
    PRIV_EXIT_PEER_GONE = 0,
    PRIV_EXIT_START = 1,    /* could not start; the reason was the answer to HELLO */
    PRIV_EXIT_PROTOCOL = 2, /* the peer sent what a correct one cannot send */
    PRIV_EXIT_SYSTEM = 3,   /* its own socket or poll failed */
};

/* The numbers that QEMU finds its descriptors under. 0 is /dev/null; 1 and 2 are the same as
 * QEMU_FD_CONSOLE. The guest's console is a ring inside QEMU (`ringbuf-read` on "console"). Nothing else is open when
 * QEMU starts. */
enum qemu_fd {
    QEMU_FD_QMP = 3,     /* listening AF_UNIX stream socket */
    QEMU_FD_AGENT = 4,   /* the same, port space.agent */
    QEMU_FD_EGRESS = 5,  /* the same, port space.egress */
    QEMU_FD_CONSOLE = 6, /* where QEMU's last words go: a pipe's write end, or a file opened O_WRONLY */
    QEMU_FD_MEMORY = 7,  /* memfd of exactly mem_mib; restore: sealed against write, grow and shrink */
    QEMU_FD_KERNEL = 8,  /* boot mode: readable by everyone (memfd, or mode 0444 and more) */
    QEMU_FD_INITRD = 9,  /* the same */
};
#define PRIV_SPAWN_FDS_RESTORE 5u /* QMP … MEMORY, in the order of enum qemu_fd */
#define PRIV_SPAWN_FDS_BOOT 7u    /* QMP … INITRD */
#define PRIV_FDS_MAX 7u

enum priv_type {
    PRIV_HELLO = 1,
    PRIV_SPAWN,
    PRIV_KILL,
    PRIV_ADOPT,
    PRIV_LIST,
    PRIV_KILL_STRAY,
    PRIV_CLEAN,
    PRIV_SET_LIMIT,
    PRIV_READY = 101,
    PRIV_SPAWNED,
    PRIV_DONE,
    PRIV_LISTED,
    PRIV_EXITED,
    PRIV_FAILED,
};

enum priv_accel { PRIV_ACCEL_TCG = 1, PRIV_ACCEL_KVM = 2 };
enum priv_mode { PRIV_MODE_BOOT = 1, PRIV_MODE_RESTORE = 2 };

struct priv_header {
    uint32_t magic;
    uint32_t type;
    uint64_t tag; /* chosen by spaced, not 0; comes back in the answer */
};

struct priv_hello {
    struct priv_header header;
    uint32_t version;
    uint32_t uid_base;      /* machine slot n runs as uid and gid uid_base + 1 + n; without root it only tells apart
                             * several platforms of one user */
    uint32_t slots;         /* 1 … PRIV_SLOTS_MAX */
    uint32_t allow_missing; /* enum jail_feature that may be missing; JAIL_FEATURES_FIXED is never allowed */
    uint32_t overhead_mib;  /* cgroup memory limit = mem_mib + this; 0: 256 */
    uint32_t cpu_percent;   /* cgroup cpu limit for each vcpu, in percent of a core; 0: 100. QEMU's own thread gets 100 more */
    uint32_t pids_max;      /* cgroup pids limit and threads; 0: 64 */
    uint32_t reserved;      /* 0 */
};

struct priv_ready {
    struct priv_header header;
    uint32_t root;           /* 1: machines get uids of their own */
    uint32_t features;       /* what a machine's jail will be made of, as a probe jail found out */
    uint32_t missing;        /* asked for, not to be had, allowed to be missing */
    uint32_t cgroup_version; /* 0: no cgroup, 1, 2 */
};

struct priv_spawn_request {
    struct priv_header header;
    uint32_t slot;
    uint32_t accel; /* enum priv_accel */
    uint32_t mode;  /* enum priv_mode */
    uint32_t vcpus;
    uint32_t mem_mib;
    uint32_t tb_size_mib; /* TCG alone; 0: 64 */
    uint32_t tsc_khz;     /* boot mode: for the kernel's command line; 0: left out */
    uint32_t reserved;    /* 0 */
    uint64_t disk_bytes;  /* size of the blank disk; a multiple of 512 */
};

/* Names one machine: a pid alone can be somebody else's by now. In LISTED: each process found in a slot; pid 0 stands
 * for a cgroup that is left without processes. */
struct priv_machine {
    uint32_t slot;
    int32_t pid;
    uint64_t start_time; /* field 22 of /proc/PID/stat: clock ticks since boot */
};

struct priv_machine_request { /* KILL, ADOPT */
    struct priv_header header;
    struct priv_machine machine;
};

struct priv_slot_request { /* KILL_STRAY, CLEAN, SET_LIMIT; LIST with zeros */
    struct priv_header header;
    uint32_t slot;
    uint32_t cpu_percent; /* SET_LIMIT: for the whole machine; else 0 */
};

struct priv_spawned {
    struct priv_header header;
    struct priv_machine machine;
    uint32_t features; /* in force; 0 for an adopted machine: what it was started with is not known here */
    uint32_t missing;
};

struct priv_done {
    struct priv_header header;
};

struct priv_listed {
    struct priv_header header;
    uint32_t count; /* ≤ PRIV_LIST_BATCH */
    uint32_t more;  /* 1: another LISTED with this tag follows */
    struct priv_machine machines[PRIV_LIST_BATCH];
};

struct priv_exited {
    struct priv_header header;
    struct priv_machine machine;
    int32_t exit_code; /* -1: ended by a signal, or not known (adopted machine) */
    int32_t signal;    /* 0: none or not known */
    uint32_t oom;      /* 1: the kernel killed it for its cgroup's memory limit */
    uint32_t reserved;
};

struct priv_failed {
    struct priv_header header;
    int32_t code;     /* enum err_code */
    int32_t errnum;   /* 0: none */
    uint32_t stage;   /* enum jail_stage: what was attempted */
    uint32_t feature; /* the enum jail_feature that is missing and not allowed to be; 0: none */
};

/* A buffer for any message. */
union priv_message {
    struct priv_header header;
    struct priv_hello hello;
    struct priv_ready ready;
    struct priv_spawn_request spawn;
    struct priv_machine_request machine;
    struct priv_slot_request slot;
    struct priv_spawned spawned;
    struct priv_done done;
    struct priv_listed listed;
    struct priv_exited exited;
    struct priv_failed failed;
};

/* The exact size of a message of this type, 0 for an unknown one. */
size_t priv_message_size(uint32_t type);

/* Is each field of this request in its range? Looks at numbers alone, not at states or descriptors. */
bool priv_request_valid(const union priv_message *m, size_t len, size_t fd_count);

/* Send one message with descriptors (borrowed). 0 or -errno; -EAGAIN: nothing was sent. */
int priv_message_send(int sock, const union priv_message *m, const int *fds, size_t fd_count);

/* Receive one. Returns its length, 0 at end of file, or -errno (-EBADMSG: cut off, or more descriptors than
 * PRIV_FDS_MAX; none is left open then). Descriptors are close-on-exec and the caller's. */
ssize_t priv_message_receive(int sock, union priv_message *ret_m, int ret_fds[PRIV_FDS_MAX], size_t *ret_fd_count);

#endif

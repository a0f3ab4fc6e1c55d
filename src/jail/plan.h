/* What space-priv hands to space-jail: a finished plan in a sealed memfd, and a status pipe for the answer. One
 * fixed-size struct each way; both programs are of one build, and a size that differs is refused. */
#ifndef SPACE_JAIL_PLAN_H
#define SPACE_JAIL_PLAN_H

#include <linux/filter.h>

#include "base/defs.h"
#include "jail/feature.h"
#include "jail/stage.h"

#define JAIL_PLAN_MAGIC 0x4a41494cu /* "JAIL" */
#define JAIL_STATUS_MAGIC 0x4a535441u

#define JAIL_BINDS_MAX 16
#define JAIL_PATH_SIZE 256
#define JAIL_ARGS_MAX 96
#define JAIL_ENV_MAX 8
#define JAIL_TEXT_SIZE 8192
#define JAIL_FILTER_MAX 2048

/* Descriptors that space-jail is started with, above those of the machine (0 … 9). All are closed by the exec. */
enum jail_fd {
    JAIL_FD_MACHINE_END = 10, /* one above the last descriptor that QEMU can get */
    JAIL_FD_PLAN = 10,
    JAIL_FD_STATUS = 11,
    JAIL_FD_LOCK = 12, /* keeps space-priv's lock until QEMU is a process that a successor finds */
    JAIL_FD_END = 13,
};

/* Where the path of QEMU lies in space-jail's memory. The filter lets execve pass with this pointer alone; the page is
 * the first one, below vm.mmap_min_addr, so that after the exec nobody without CAP_SYS_RAWIO can put anything there. */
#define JAIL_EXEC_ADDRESS 0x40UL
/* The same where low pages cannot be had (no root): any process could map it again, and QEMU's own filter (spawn=deny)
 * is what refuses execve. */
#define JAIL_EXEC_ADDRESS_USER 0x10000000000UL

struct jail_bind {
    char source[JAIL_PATH_SIZE];
    char target[JAIL_PATH_SIZE]; /* below the root, without a leading "/"; its parents are made */
    uint32_t is_folder;
    uint32_t is_device;
};

struct jail_plan {
    uint32_t magic;
    uint32_t size;
    uint32_t features;      /* enum jail_feature to be had in the end */
    uint32_t have;          /* of those: what space-priv has already given */
    uint32_t allow_missing; /* of those: what may be left out */
    uint32_t root;          /* started by root: ids are changed; else the ids are those of the user */
    uint32_t probe;         /* build everything, report, exit before the exec */
    uint32_t uid;
    uint32_t gid;
    uint32_t second_gid; /* real gid at the exec, owns nothing: makes QEMU not dumpable (see drop.c) */
    uint32_t fd_count;   /* descriptors 0 … fd_count - 1 stay open in QEMU */
    uint32_t kvm;        /* 1: /dev/kvm is there */
    uint64_t file_size_max;
    uint32_t files_max;
    uint32_t threads_max;
    uint32_t bind_count;
    uint32_t arg_count;
    uint32_t env_count;
    uint32_t text_len;
    uint32_t filter_len;
    uint32_t reserved;
    uint64_t exec_address;
    struct jail_bind binds[JAIL_BINDS_MAX];
    char text[JAIL_TEXT_SIZE]; /* arguments, then environment, each with its NUL; argument 0 is the path of QEMU */
    struct sock_filter filter[JAIL_FILTER_MAX];
};

enum jail_status_kind {
    JAIL_STATUS_BUILT = 1, /* all is done but the exec; end of file after this: QEMU runs */
    JAIL_STATUS_FAILED = 2,
};

struct jail_status {
    uint32_t magic;
    uint32_t kind;
    uint32_t stage; /* FAILED: enum jail_stage */
    int32_t errnum;
    uint32_t feature;  /* FAILED: the feature that is missing, 0: none is */
    uint32_t features; /* BUILT: in force */
    uint32_t missing;  /* BUILT: asked for and left out */
    uint32_t bind;     /* FAILED at JAIL_STAGE_BIND: which */
};

/* Append an argument or an environment entry to the text; false when it does not fit. Arguments before environment. */
bool jail_plan_add_arg(struct jail_plan *plan, const char *arg);
bool jail_plan_add_env(struct jail_plan *plan, const char *entry);

/* Append a bind mount; false when it does not fit. */
bool jail_plan_add_bind(struct jail_plan *plan, const char *source, const char *target, bool is_folder, bool is_device);

/* Are all counts, lengths and strings of a plan that was read inside their bounds? */
bool jail_plan_valid(const struct jail_plan *plan, size_t len);

#endif

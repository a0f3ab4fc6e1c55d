/* The allow list. A call that is not named here is answered with ENOSYS, so that libraries fall back as on an older
 * kernel; calls that no honest QEMU makes end it. 32-bit and x32 calls end it too. */
#include "jail/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/kvm.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

/* What QEMU (7.2 to 10) needs to start, to serve a virtio disk, serial ports and QMP from inherited descriptors, and to
 * end. Paths are harmless: the root holds nothing but its program. */
static const char *const allowed[] = {
    /* memory */
    "brk",
    "madvise",
    "mincore",
    "mremap",
    "msync",
    "munmap",
    "membarrier",
    "rseq",
    "set_robust_list",
    "get_robust_list",
    "set_tid_address",
    "arch_prctl",
    "fadvise64",
    /* descriptors */
    "read",
    "write",
    "readv",
    "writev",
    "pread64",
    "pwrite64",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "pipe",
    "pipe2",
    "eventfd2",
    "fcntl",
    "lseek",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "fstat",
    "fstatfs",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "fallocate",
    "ftruncate",
    "copy_file_range",
    "signalfd4",
    "timerfd_create",
    "timerfd_settime",
    "timerfd_gettime",
    "flock",
    /* paths */
    "open",
    "openat",
    "openat2",
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "statfs",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "getcwd",
    "getdents64",
    /* sockets that are there already */
    "listen",
    "accept4",
    "accept",
    "recvmsg",
    "sendmsg",
    "recvfrom",
    "sendto",
    "getsockname",
    "getpeername",
    "getsockopt",
    "setsockopt",
    "shutdown",
    /* threads, time, signals of its own */
    "futex",
    "futex_waitv",
    "sched_yield",
    "sched_getaffinity",
    "sched_getparam",
    "sched_getscheduler",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "exit",
    "exit_group",
    "nanosleep",
    "clock_nanosleep",
    "clock_gettime",
    "clock_getres",
    "gettimeofday",
    "time",
    "getcpu",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "rt_sigpending",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "sigaltstack",
    "restart_syscall",
    "tgkill",
    "timer_create",
    "timer_settime",
    "timer_gettime",
    "timer_getoverrun",
    "timer_delete",
    "getitimer",
    "setitimer",
    /* what it may know of itself */
    "getpid",
    "gettid",
    "getppid",
    "getpgrp",
    "getpgid",
    "getsid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getresuid",
    "getresgid",
    "getgroups",
    "getrlimit",
    "getrusage",
    "capget",
    "uname",
    "sysinfo",
    "times",
    "getrandom",
    "umask",
    /* a filter can only add to this one */
    "seccomp",
};

/* Refused with an errno of their own, because QEMU or a library tries them and handles the refusal. */
static const struct {
    const char *name;
    int errnum;
} refused[] = {
    {"socket", EACCES},
    {"socketpair", EACCES},
    {"connect", EACCES},
    {"bind", EACCES},
    {"unlink", ENOENT}, /* of a listening socket that was given: not in this root */
    {"unlinkat", ENOENT},
    {"kill", EPERM},
    {"tkill", EPERM},
    {"sched_setaffinity", EPERM},
    {"sched_setscheduler", EPERM},
    {"sched_setparam", EPERM},
    {"sched_setattr", EPERM},
    {"setpriority", EPERM},
    {"ioprio_set", EPERM},
    {"setrlimit", EPERM},
    {"mlock", EPERM},
    {"mlock2", EPERM},
    {"mlockall", EPERM},
    {"memfd_create", EPERM},
    {"set_mempolicy", EPERM},
    {"mbind", EPERM},
    {"mkdir", EPERM},
    {"mkdirat", EPERM},
    {"chmod", EPERM},
    {"fchmod", EPERM},
    {"fchmodat", EPERM},
    {"chown", EPERM},
    {"fchown", EPERM},
    {"fchownat", EPERM},
    {"rename", EPERM},
    {"renameat", EPERM},
    {"renameat2", EPERM},
    {"link", EPERM},
    {"linkat", EPERM},
    {"symlink", EPERM},
    {"symlinkat", EPERM},
    {"truncate", EPERM},
    {"vfork", EPERM},
    {"fork", EPERM},
};

/* No honest QEMU of ours makes these. */
static const char *const killed[] = {
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "kcmp",
    "pidfd_open",
    "pidfd_getfd",
    "pidfd_send_signal",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "mknod",
    "mknodat",
    "swapon",
    "swapoff",
    "quotactl",
    "quotactl_fd",
    "acct",
    "name_to_handle_at",
    "open_by_handle_at",
    "fanotify_init",
    "fanotify_mark",
    "unshare",
    "setns",
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setfsuid",
    "setfsgid",
    "setgroups",
    "capset",
    "personality",
    "execveat",
    "vhangup",
    "sethostname",
    "setdomainname",
    "keyctl",
    "add_key",
    "request_key",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "reboot",
    "iopl",
    "ioperm",
    "syslog",
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "lookup_dcookie",
    "modify_ldt",
    "uselib",
    "ustat",
    "_sysctl",
    "vm86",
    "nfsservctl",
    "landlock_create_ruleset",
    "memfd_secret",
    "shmget",
    "shmat",
    "shmctl",
    "msgget",
    "msgctl",
    "semget",
    "semctl",
    "mq_open",
    "mq_unlink",
};

/* Filters are added one at a time, and a name that this libseccomp does not know cannot be called by its users either:
 * it stays with the default. */
static int rule(scmp_filter_ctx ctx, uint32_t action, const char *name, unsigned count, const struct scmp_arg_cmp *args)
{
    int nr = seccomp_syscall_resolve_name(name);
    if (nr == __NR_SCMP_ERROR || nr < 0)
        return 0;
    return seccomp_rule_add_array(ctx, action, nr, count, args);
}

static int rules_add(scmp_filter_ctx ctx, enum filter_profile profile, uint64_t exec_address)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(allowed) && !r; i++)
        r = rule(ctx, SCMP_ACT_ALLOW, allowed[i], 0, NULL);
    for (size_t i = 0; i < ARRAY_LEN(refused) && !r; i++)
        r = rule(ctx, SCMP_ACT_ERRNO((uint32_t)refused[i].errnum), refused[i].name, 0, NULL);
    for (size_t i = 0; i < ARRAY_LEN(killed) && !r; i++)
        r = rule(ctx, SCMP_ACT_KILL_PROCESS, killed[i], 0, NULL);
    if (r)
        return r;

    /* Exactly the exec that starts QEMU. */
    r = rule(ctx, SCMP_ACT_ALLOW, "execve", 1, &SCMP_A0_64(SCMP_CMP_EQ, exec_address));
    r = r ?: rule(ctx, SCMP_ACT_KILL_PROCESS, "execve", 1, &SCMP_A0_64(SCMP_CMP_NE, exec_address));

    /* Threads, no processes and no namespaces. clone3 hides its flags from a filter: ENOSYS makes libc use clone. */
    const uint64_t spaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                            CLONE_NEWNET | CLONE_VFORK | CLONE_PARENT;
    r = r
            ?: rule(ctx, SCMP_ACT_ALLOW, "clone", 1,
                    &SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_THREAD | spaces, CLONE_THREAD));

    /* What is asked of files, pipes and sockets; of KVM, all of its own. Pushing input into a terminal and the like
     * ends the process. */
    static const uint32_t ioctls[] = {FIONBIO,         FIONREAD, FIOCLEX,      TCGETS,    TIOCGWINSZ, FS_IOC_FIEMAP,
                                      FS_IOC_GETFLAGS, FICLONE,  BLKGETSIZE64, BLKSSZGET, BLKPBSZGET};
    static const uint32_t ioctls_killed[] = {TIOCSTI, TIOCLINUX, TIOCSETD, TIOCSCTTY, TIOCCONS};
    for (size_t i = 0; i < ARRAY_LEN(ioctls); i++)
        r = r ?: rule(ctx, SCMP_ACT_ALLOW, "ioctl", 1, &SCMP_A1_64(SCMP_CMP_MASKED_EQ, 0xffffffffu, ioctls[i]));
    for (size_t i = 0; i < ARRAY_LEN(ioctls_killed); i++)
        r = r
                ?: rule(ctx, SCMP_ACT_KILL_PROCESS, "ioctl", 1,
                        &SCMP_A1_64(SCMP_CMP_MASKED_EQ, 0xffffffffu, ioctls_killed[i]));
    if (profile == FILTER_KVM)
        r = r ?: rule(ctx, SCMP_ACT_ALLOW, "ioctl", 1, &SCMP_A1_64(SCMP_CMP_MASKED_EQ, 0xff00u, KVMIO << 8));

    static const uint32_t prctls[] = {PR_SET_NAME,         PR_GET_NAME,    PR_SET_TIMERSLACK, PR_GET_TIMERSLACK,
                                      PR_GET_DUMPABLE,     PR_SET_SECCOMP, PR_GET_SECCOMP,    PR_SET_NO_NEW_PRIVS,
                                      PR_GET_NO_NEW_PRIVS, PR_CAPBSET_READ};
    for (size_t i = 0; i < ARRAY_LEN(prctls); i++)
        r = r ?: rule(ctx, SCMP_ACT_ALLOW, "prctl", 1, &SCMP_A0_64(SCMP_CMP_MASKED_EQ, 0xffffffffu, prctls[i]));

    /* Reading limits is fine, setting them is not (a NULL second pointer). */
    r = r ?: rule(ctx, SCMP_ACT_ALLOW, "prlimit64", 1, &SCMP_A2_64(SCMP_CMP_EQ, 0));

    if (profile == FILTER_TCG) {
        r = r ?: rule(ctx, SCMP_ACT_ALLOW, "mmap", 0, NULL);
        r = r ?: rule(ctx, SCMP_ACT_ALLOW, "mprotect", 0, NULL);
        return r;
    }
    const uint64_t both = PROT_WRITE | PROT_EXEC;
    r = r ?: rule(ctx, SCMP_ACT_ALLOW, "mmap", 1, &SCMP_A2_64(SCMP_CMP_MASKED_EQ, both, 0));
    r = r ?: rule(ctx, SCMP_ACT_ALLOW, "mmap", 1, &SCMP_A2_64(SCMP_CMP_MASKED_EQ, both, PROT_WRITE));
    r = r ?: rule(ctx, SCMP_ACT_ALLOW, "mmap", 1, &SCMP_A2_64(SCMP_CMP_MASKED_EQ, both, PROT_EXEC));
    r = r ?: rule(ctx, SCMP_ACT_ALLOW, "mprotect", 1, &SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    return r;
}

int filter_compile(enum filter_profile profile, uint64_t exec_address, struct sock_filter *ret_program, size_t max,
                   size_t *ret_len, struct err *e)
{
    seccomp_api_set(3); /* do not ask the running kernel: whether it takes the filter is seen when it is loaded */
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (!ctx)
        return err_set(e, ERR_UNSUPPORTED, "no system call filter can be made on this host");
    int r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    r = r ?: seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree: ten comparisons, not two hundred */
    r = r ?: rules_add(ctx, profile, exec_address);
    if (r) {
        seccomp_release(ctx);
        return err_errno(e, ERR_UNSUPPORTED, -r, "make the system call filter");
    }
    _cleanup_close_ int fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0)
        r = -errno;
    r = r ?: seccomp_export_bpf(ctx, fd);
    seccomp_release(ctx);
    if (r)
        return err_errno(e, ERR_SYSTEM, -r, "compile the system call filter");

    off_t size = lseek(fd, 0, SEEK_END);
    if (size <= 0 || (size_t)size % sizeof(*ret_program) || (size_t)size / sizeof(*ret_program) > max)
        return err_set(e, ERR_INTERNAL, "the system call filter has %lld bytes, too many", (long long)size);
    if (pread(fd, ret_program, (size_t)size, 0) != size)
        return err_errno(e, ERR_SYSTEM, errno, "read the system call filter");
    *ret_len = (size_t)size / sizeof(*ret_program);
    return 0;
}

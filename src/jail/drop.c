/* Giving up all rights, in the order in which each step needs those that are left. */
#include "jail/box.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static bool fail(struct jail_progress *p, uint32_t stage, int errnum)
{
    p->stage = stage;
    p->feature = 0;
    p->errnum = errnum;
    return false;
}

static bool limits_set(const struct jail_plan *plan, struct jail_progress *p)
{
    const struct {
        int resource;
        rlim_t value;
    } limits[] = {
        {RLIMIT_CORE, 0},
        {RLIMIT_FSIZE, plan->file_size_max},
        {RLIMIT_NOFILE, plan->files_max},
        {RLIMIT_NPROC, plan->threads_max},
        {RLIMIT_MEMLOCK, 64 * KIB},
        {RLIMIT_MSGQUEUE, 0},
        {RLIMIT_NICE, 0},
        {RLIMIT_RTPRIO, 0},
        {RLIMIT_SIGPENDING, 256},
    };
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct rlimit had, want = {.rlim_cur = limits[i].value, .rlim_max = limits[i].value};
        if (getrlimit((__rlimit_resource_t)limits[i].resource, &had) < 0)
            return fail(p, JAIL_STAGE_RLIMITS, errno);
        if (want.rlim_max > had.rlim_max) /* only root could raise it, and lower is as safe */
            want.rlim_cur = want.rlim_max = had.rlim_max;
        if (setrlimit((__rlimit_resource_t)limits[i].resource, &want) < 0)
            return fail(p, JAIL_STAGE_RLIMITS, errno);
    }
    /* Where a host's core handler does not ask for the limit: nothing of the memory is in the dump. */
    int filter = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    if (filter >= 0) {
        ssize_t n = write(filter, "0", 1);
        close(filter);
        if (n != 1)
            return fail(p, JAIL_STAGE_RLIMITS, errno);
    }
    p->features |= JAIL_RLIMITS;
    return true;
}

static bool descriptors_close(const struct jail_plan *plan, struct jail_progress *p)
{
    for (int fd = JAIL_FD_PLAN; fd < JAIL_FD_END; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 && errno != EBADF)
            return fail(p, JAIL_STAGE_DESCRIPTORS, errno);
    if (close_range(JAIL_FD_END, ~0U, 0) < 0)
        return fail(p, JAIL_STAGE_DESCRIPTORS, errno);
    if (plan->fd_count < JAIL_FD_MACHINE_END && close_range(plan->fd_count, JAIL_FD_MACHINE_END - 1, 0) < 0)
        return fail(p, JAIL_STAGE_DESCRIPTORS, errno);
    return true;
}

/* Real and effective group differ at the exec: the kernel then makes the new program not dumpable, which no setting of
 * this process would carry over an exec. Both groups are this machine's own and own nothing. */
static bool ids_set(const struct jail_plan *plan, struct jail_progress *p)
{
    umask(0077);
    if (!plan->root)
        return true;
    if (setgroups(0, NULL) < 0 || setresgid(plan->second_gid, plan->gid, plan->gid) < 0 ||
        setresuid(plan->uid, plan->uid, plan->uid) < 0)
        return fail(p, JAIL_STAGE_IDS, errno);
    p->features |= JAIL_UNIQUE_UID;
    return true;
}

static bool bounding_drop(struct jail_progress *p)
{
    for (unsigned long cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_READ, cap) == 1 && prctl(PR_CAPBSET_DROP, cap) < 0)
            return fail(p, JAIL_STAGE_CAPABILITIES, errno);
    const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
                               SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
                               SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
    if (prctl(PR_SET_SECUREBITS, bits) < 0)
        return fail(p, JAIL_STAGE_CAPABILITIES, errno);
    return true;
}

static bool capabilities_drop(struct jail_progress *p)
{
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return fail(p, JAIL_STAGE_CAPABILITIES, errno);
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0}, after[2];
    if (syscall(SYS_capset, &header, none) < 0 || syscall(SYS_capget, &header, after) < 0)
        return fail(p, JAIL_STAGE_CAPABILITIES, errno);
    if (memcmp(none, after, sizeof(none)) != 0)
        return fail(p, JAIL_STAGE_CAPABILITIES, EPERM);
    p->features |= JAIL_NO_CAPS;
    return true;
}

/* Without capabilities in the first place there is no bounding set to drop: nothing can be gained with no_new_privs. */
static bool bounding_settable(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    return syscall(SYS_capget, &header, data) == 0 && data[0].effective & (1u << CAP_SETPCAP);
}

bool rights_drop(const struct jail_plan *plan, struct jail_progress *p)
{
    if (!limits_set(plan, p) || !descriptors_close(plan, p))
        return false;
    jail_step();
    if (bounding_settable() && !bounding_drop(p))
        return false;
    jail_step();
    if (!ids_set(plan, p) || !capabilities_drop(p))
        return false;
    jail_step();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        return fail(p, JAIL_STAGE_NO_NEW_PRIVS, errno);
    p->features |= JAIL_NO_NEW_PRIVS;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return fail(p, JAIL_STAGE_NOT_DUMPABLE, errno);
    if (plan->root)
        p->features |= JAIL_NOT_DUMPABLE;
    else if (plan->features & JAIL_NOT_DUMPABLE && !jail_lacks(plan, p, JAIL_STAGE_NOT_DUMPABLE, JAIL_NOT_DUMPABLE, 0))
        return false;
    return true;
}

bool filter_load(const struct jail_plan *plan, struct jail_progress *p)
{
#ifdef JAIL_TEST_WITHOUT_FILTER
    (void)plan;
#else
    struct sock_fprog program = {.len = (unsigned short)plan->filter_len, .filter = (struct sock_filter *)plan->filter};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return jail_lacks(plan, p, JAIL_STAGE_SECCOMP, JAIL_SECCOMP, errno);
#endif
    p->features |= JAIL_SECCOMP;
    return true;
}

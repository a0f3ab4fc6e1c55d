/* See launch.h. The child of a clone runs few system calls, all by itself: it makes its user id known to its user
 * namespace, enters the v1 cgroups, puts the descriptors in their places and executes space-jail. */
#include "priv/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "jail/filter.h"
#include "priv/process.h"
#include "priv/trust.h"

#define PROBE_TIMEOUT_MS 10000
#define FILES_MAX 1024u

static int fault_set(struct fault *f, int code, uint32_t stage, uint32_t feature, int errnum)
{
    *f = (struct fault){.code = code, .errnum = errnum, .stage = stage, .feature = feature};
    return -1;
}

uint32_t launcher_slot_uid(const struct launcher *l, uint32_t slot)
{
    return l->uid_base + 1 + slot + (slot == PRIV_SLOTS_MAX ? PRIV_SLOTS_MAX : 0);
}

/* A group for each slot above all their user ids: real while QEMU is executed, and the owner of nothing. */
static uint32_t slot_second_gid(const struct launcher *l, uint32_t slot)
{
    return l->uid_base + 1 + PRIV_SLOTS_MAX + slot + (slot == PRIV_SLOTS_MAX ? 1 : 0);
}

static void slot_cgroup_name(const struct launcher *l, uint32_t slot, char ret_name[16])
{
    snprintf(ret_name, 16, "%u", launcher_slot_uid(l, slot));
}

void launcher_slot_cgroup(const struct launcher *l, uint32_t slot, pid_t pid, struct cgroup *ret)
{
    char name[16];
    slot_cgroup_name(l, slot, name);
    cgroup_name(&l->cgroups, name, pid, ret);
}

/* ---- once ---- */

/* A feature that this host lacks: fine when allowed. */
static int lack(struct launcher *l, uint32_t feature, uint32_t stage, int errnum, struct fault *f)
{
    if (feature & ~l->allow_missing)
        return fault_set(f, ERR_UNSUPPORTED, stage, feature, errnum);
    l->missing |= feature;
    return 0;
}

static int clone_try(uint64_t flags)
{
    struct clone_args args = {.flags = flags, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid < 0)
        return -errno;
    if (pid == 0)
        _exit(0);
    while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

/* Namespaces that a process is born into: of pids always, of users where there is no root. */
static int clone_flags_find(struct launcher *l, struct fault *f)
{
    l->clone_flags = 0;
    if (!l->root) {
        int r = clone_try(CLONE_NEWUSER);
        if (r < 0 && lack(l, JAIL_USER_NS, JAIL_STAGE_USER_NS, -r, f) < 0)
            return -1;
        if (r == 0) {
            l->clone_flags |= CLONE_NEWUSER;
            l->given |= JAIL_USER_NS;
        }
    }
    int r = clone_try(l->clone_flags | CLONE_NEWPID);
    if (r < 0)
        return lack(l, JAIL_PID_NS, JAIL_STAGE_PID_NS, -r, f);
    l->clone_flags |= CLONE_NEWPID;
    l->given |= JAIL_PID_NS;
    return 0;
}

static int cgroups_find(struct launcher *l, struct fault *f)
{
    cgroups_open(&l->cgroups);
    static const uint32_t wanted[] = {JAIL_CGROUP_MEMORY, JAIL_CGROUP_CPU, JAIL_CGROUP_PIDS};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        if (l->cgroups.features & wanted[i])
            l->given |= wanted[i];
        else if (lack(l, wanted[i], JAIL_STAGE_CGROUP, 0, f) < 0)
            return -1;
    }
    return 0;
}

static int trust(const struct launcher *l, const char *path, enum trust_kind kind, uint32_t stage, struct fault *f)
{
    struct err e = {0};
    int code = trust_check(path, kind, l->own_uid, &e);
    return code < 0 ? fault_set(f, code, stage, 0, 0) : 0;
}

static bool folder_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Add a folder to the root of the jail, if it is there and only root can change it. */
static int library_add(struct launcher *l, struct jail_plan *plan, const char *source, const char *target,
                       struct fault *f)
{
    char real[PATH_MAX];
    if (!folder_exists(source) || !realpath(source, real))
        return 0;
    if (trust(l, real, TRUST_FOLDER, JAIL_STAGE_LIBRARY_FILES, f) < 0)
        return -1;
    if (!jail_plan_add_bind(plan, real, target, true, false))
        return fault_set(f, ERR_INVALID, JAIL_STAGE_LIBRARY_FILES, 0, ENAMETOOLONG);
    return 0;
}

#define LIBRARIES "lib/x86_64-linux-gnu"
#define LOADER "/lib64/ld-linux-x86-64.so.2"

/* "/usr" of "/usr/bin/qemu…". */
static void prefix_find(const struct launcher *l, char ret_prefix[PATH_MAX])
{
    snprintf(ret_prefix, PATH_MAX, "%s", l->paths.qemu);
    for (int i = 0; i < 2; i++)
        if (strrchr(ret_prefix, '/'))
            *strrchr(ret_prefix, '/') = '\0';
}

/* What QEMU is made of. The loader looks in /lib and its subfolder, then in /usr/lib and its subfolder: a QEMU that was
 * unpacked with libraries of its own beside it (PREFIX/bin, PREFIX/lib) finds these in the first place and the host's
 * in the second, without any variable (the loader heeds none here, see ids_set of the jail). */
static int binds_add(struct launcher *l, struct jail_plan *plan, struct fault *f)
{
    char prefix[PATH_MAX], path[PATH_MAX + 64], real[PATH_MAX];
    prefix_find(l, prefix);

    bool fits = jail_plan_add_bind(plan, l->paths.qemu, &QEMU_JAIL_PATH[1], false, false);
    for (uint32_t i = 0; i < l->paths.data_count; i++) {
        snprintf(path, sizeof(path), QEMU_JAIL_DATA "%u", i);
        fits &= jail_plan_add_bind(plan, l->paths.data[i], path + 1, true, false);
    }
    if (!realpath(LOADER, real) || trust(l, real, TRUST_FILE, JAIL_STAGE_LIBRARY_FILES, f) < 0)
        return fault_set(f, ERR_SYSTEM, JAIL_STAGE_LIBRARY_FILES, 0, errno);
    fits &= jail_plan_add_bind(plan, real, &LOADER[1], false, false);
    static const char *const devices[] = {"dev/null", "dev/zero", "dev/urandom"};
    for (size_t i = 0; i < ARRAY_LEN(devices); i++) {
        snprintf(path, sizeof(path), "/%s", devices[i]);
        fits &= jail_plan_add_bind(plan, path, devices[i], false, true);
    }
    if (plan->kvm && !l->root)
        fits &= jail_plan_add_bind(plan, "/dev/kvm", "dev/kvm", false, true);
    if (!fits)
        return fault_set(f, ERR_INVALID, JAIL_STAGE_QEMU_FILE, 0, ENAMETOOLONG);

    snprintf(path, sizeof(path), "%s/" LIBRARIES "/qemu", prefix);
    if (library_add(l, plan, path, &QEMU_JAIL_MODULES[1], f) < 0)
        return -1;
    if (strcmp(prefix, "/usr") != 0) {
        snprintf(path, sizeof(path), "%s/lib", prefix);
        if (library_add(l, plan, path, "lib", f) < 0)
            return -1;
    }
    return library_add(l, plan, "/usr/" LIBRARIES, "usr/" LIBRARIES, f);
}

/* The first page can be mapped by those with CAP_SYS_RAWIO alone: is that so, and are we one of them? */
static uint64_t exec_address_find(void)
{
    void *page = mmap((void *)0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (page == MAP_FAILED)
        return JAIL_EXEC_ADDRESS_USER;
    munmap(page, 4096);
    return JAIL_EXEC_ADDRESS;
}

static int plan_prepare(struct launcher *l, bool kvm, struct fault *f)
{
    struct jail_plan *plan = &l->plan[kvm];
    *plan = (struct jail_plan){
        .magic = JAIL_PLAN_MAGIC,
        .size = sizeof(*plan),
        .features = l->features & ~l->missing,
        .have = l->given,
        .allow_missing = l->allow_missing,
        .root = l->root,
        .kvm = kvm,
        .files_max = FILES_MAX,
        .threads_max = l->pids_max,
        .exec_address = exec_address_find(),
    };
    if (binds_add(l, plan, f) < 0)
        return -1;
    size_t len;
    struct err e = {0};
    int code =
        filter_compile(kvm ? FILTER_KVM : FILTER_TCG, plan->exec_address, plan->filter, JAIL_FILTER_MAX, &len, &e);
    if (code < 0)
        return fault_set(f, code, JAIL_STAGE_SECCOMP, JAIL_SECCOMP, 0);
    plan->filter_len = (uint32_t)len;
    return 0;
}

int launcher_prepare(struct launcher *l, const struct priv_hello *hello, struct fault *f)
{
    l->own_uid = geteuid();
    l->root = l->own_uid == 0;
    l->uid_base = hello->uid_base;
    l->slots = hello->slots;
    l->allow_missing = hello->allow_missing;
    l->overhead_mib = hello->overhead_mib ? hello->overhead_mib : 256;
    l->cpu_percent = hello->cpu_percent ? hello->cpu_percent : 100;
    l->pids_max = hello->pids_max ? hello->pids_max : 64;
    l->features = JAIL_FEATURES_ALL & ~(l->root ? (uint32_t)JAIL_USER_NS : 0);
    l->given = l->missing = 0;
    l->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (l->null_fd < 0)
        return fault_set(f, ERR_SYSTEM, JAIL_STAGE_OPTIONS, 0, errno);

    if (trust(l, l->paths.qemu, TRUST_FILE, JAIL_STAGE_QEMU_FILE, f) < 0 ||
        trust(l, l->paths.jail, TRUST_FILE, JAIL_STAGE_JAIL_FILE, f) < 0)
        return -1;
    for (uint32_t i = 0; i < l->paths.data_count; i++)
        if (trust(l, l->paths.data[i], TRUST_FOLDER, JAIL_STAGE_DATA_FILES, f) < 0)
            return -1;
    if (stat(l->paths.qemu, &l->qemu_file) < 0)
        return fault_set(f, ERR_SYSTEM, JAIL_STAGE_QEMU_FILE, 0, errno);

    if (!l->root && lack(l, JAIL_UNIQUE_UID, JAIL_STAGE_IDS, EPERM, f) < 0)
        return -1;
    if (!l->root && lack(l, JAIL_NOT_DUMPABLE, JAIL_STAGE_NOT_DUMPABLE, EPERM, f) < 0)
        return -1;
    if (cgroups_find(l, f) < 0 || clone_flags_find(l, f) < 0)
        return -1;
    if (plan_prepare(l, false, f) < 0 || plan_prepare(l, true, f) < 0)
        return -1;
    return 0;
}

/* ---- for each machine ---- */

struct child {
    const struct launcher *l;
    int fds[JAIL_FD_END]; /* what goes where; -1: nothing */
    int tasks[CGROUP_TREES_MAX];
    size_t task_count;
    int procs; /* v2 cgroup.procs for kernels that cannot clone into a cgroup; -1: not needed */
};

static void child_fail(uint32_t stage, uint32_t feature, int errnum, int status)
{
    struct jail_status s = {
        .magic = JAIL_STATUS_MAGIC, .kind = JAIL_STATUS_FAILED, .stage = stage, .errnum = errnum, .feature = feature};
    if (write(status, &s, sizeof(s)) != sizeof(s))
        _exit(2);
    _exit(1);
}

static bool text_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0;
}

static void child_map_ids(const struct child *c, uid_t uid, gid_t gid)
{
    char map[64];
    snprintf(map, sizeof(map), "0 %u 1", uid);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* else these files belong to root; the exec is next */
    bool good = text_write("/proc/self/uid_map", map);
    good = good && text_write("/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "0 %u 1", gid);
    if (!good || !text_write("/proc/self/gid_map", map))
        child_fail(JAIL_STAGE_USER_NS, JAIL_USER_NS, errno, c->fds[JAIL_FD_STATUS]);
}

static void child_run(struct child *c, uid_t uid, gid_t gid) __attribute__((noreturn));
static void child_run(struct child *c, uid_t uid, gid_t gid)
{
    int status = c->fds[JAIL_FD_STATUS];
    for (size_t i = 0; i < c->task_count; i++)
        if (write(c->tasks[i], "0", 1) != 1)
            child_fail(JAIL_STAGE_CGROUP, 0, errno, status);
    if (c->procs >= 0 && write(c->procs, "0", 1) != 1)
        child_fail(JAIL_STAGE_CGROUP, 0, errno, status);
    if (c->l->clone_flags & CLONE_NEWUSER)
        child_map_ids(c, uid, gid);
    /* Out of the way first, then each to its place (dup2 takes close-on-exec off). */
    for (int i = 0; i < JAIL_FD_END; i++)
        if (c->fds[i] >= 0 && (c->fds[i] = fcntl(c->fds[i], F_DUPFD_CLOEXEC, 2 * JAIL_FD_END)) < 0)
            child_fail(JAIL_STAGE_DESCRIPTORS, 0, errno, status);
    for (int i = 0; i < JAIL_FD_END; i++)
        if (c->fds[i] >= 0 ? dup2(c->fds[i], i) < 0 : (close(i), false))
            _exit(2);
    char *argv[] = {(char *)"space-jail", NULL}, *envp[] = {NULL};
    execve(c->l->paths.jail, argv, envp);
    child_fail(JAIL_STAGE_JAIL_FILE, 0, errno, JAIL_FD_STATUS);
    _exit(2);
}

static int plan_fd_make(const struct jail_plan *plan)
{
    int fd = memfd_create("plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    const char *p = (const char *)plan;
    for (size_t left = sizeof(*plan); left;) {
        ssize_t n = write(fd, p, left);
        if (n <= 0) {
            close(fd);
            return -EIO;
        }
        p += n;
        left -= (size_t)n;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        close(fd);
        return -EIO;
    }
    return fd;
}

/* Make the process. The cgroup is there; `plan_fd` and `status_fd` are what it gets. */
static int process_make(struct launcher *l, const int *fds, size_t fd_count, int plan_fd, int status_fd,
                        struct launch *ret, struct fault *f)
{
    struct child c = {.l = l, .procs = -1};
    for (int i = 0; i < JAIL_FD_END; i++)
        c.fds[i] = -1;
    c.fds[0] = c.fds[1] = c.fds[2] = l->null_fd;
    for (size_t i = 0; i < fd_count; i++)
        c.fds[QEMU_FD_QMP + i] = fds[i];
    if (fd_count > 0)
        c.fds[1] = c.fds[2] = c.fds[QEMU_FD_CONSOLE];
    c.fds[JAIL_FD_PLAN] = plan_fd;
    c.fds[JAIL_FD_STATUS] = status_fd;
    c.fds[JAIL_FD_LOCK] = l->paths.lock_fd;

    int folder = -1;
    int r = cgroup_entry_open(&l->cgroups, &ret->cgroup, &folder, c.tasks, &c.task_count);
    if (r < 0)
        return fault_set(f, ERR_SYSTEM, JAIL_STAGE_CGROUP, 0, -r);

    int pidfd = -1;
    uid_t uid = geteuid();
    gid_t gid = getegid();
    struct clone_args args = {
        .flags = l->clone_flags | CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)&pidfd, .exit_signal = SIGCHLD};
    if (folder >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)folder;
    }
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0)
        child_run(&c, uid, gid);
    int errnum = errno;
    for (size_t i = 0; i < c.task_count; i++)
        close(c.tasks[i]);
    if (folder >= 0)
        close(folder);
    if (pid < 0)
        return fault_set(f, ERR_SYSTEM, JAIL_STAGE_FORK, 0, errnum);
    fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    ret->pid = (pid_t)pid;
    ret->pidfd = pidfd;
    return 0;
}

static int plan_start(struct launcher *l, uint32_t slot, const struct jail_plan *plan,
                      const struct cgroup_limits *limits, const int *fds, size_t fd_count, struct launch *ret,
                      struct fault *f)
{
    *ret = (struct launch){.pid = -1, .pidfd = -1, .status_fd = -1};
    if (l->root && process_uid_exists(plan->uid))
        return fault_set(f, ERR_CONFLICT, JAIL_STAGE_SLOT_BUSY, 0, EBUSY);
    _cleanup_close_ int plan_fd = plan_fd_make(plan);
    if (plan_fd < 0)
        return fault_set(f, ERR_SYSTEM, JAIL_STAGE_PLAN, 0, -plan_fd);
    int status[2];
    if (pipe2(status, O_CLOEXEC | O_NONBLOCK) < 0)
        return fault_set(f, ERR_SYSTEM, JAIL_STAGE_FORK, 0, errno);
    _cleanup_close_ int status_read = status[0], status_write = status[1];

    char name[16];
    slot_cgroup_name(l, slot, name);
    int r = cgroup_make(&l->cgroups, name, limits, &ret->cgroup);
    if (r == -EEXIST)
        return fault_set(f, ERR_CONFLICT, JAIL_STAGE_SLOT_BUSY, 0, EEXIST);
    if (r < 0)
        return fault_set(f, ERR_SYSTEM, JAIL_STAGE_CGROUP, 0, -r);
    if (process_make(l, fds, fd_count, plan_fd, status_write, ret, f) < 0) {
        cgroup_remove(&l->cgroups, &ret->cgroup);
        return -1;
    }
    if (!process_start_time(ret->pid, &ret->start_time))
        ret->start_time = 0; /* it has ended already: the status says why */
    ret->status_fd = steal_fd(&status_read);
    return 0;
}

/* All of QEMU's environment. Without a root of its own it is told where its modules and libraries lie on the host. */
static bool environment_add(const struct launcher *l, struct jail_plan *plan)
{
    if (!jail_plan_add_env(plan, "LANG=C"))
        return false;
    if (l->empty_root)
        return jail_plan_add_env(plan, "QEMU_MODULE_DIR=" QEMU_JAIL_MODULES);
    char prefix[PATH_MAX], text[2 * PATH_MAX + 64];
    prefix_find(l, prefix);
    snprintf(text, sizeof(text), "QEMU_MODULE_DIR=%s/" LIBRARIES "/qemu", prefix);
    if (!jail_plan_add_env(plan, text))
        return false;
    snprintf(text, sizeof(text), "LD_LIBRARY_PATH=%s/lib:%s/lib/x86_64-linux-gnu", prefix, prefix);
    return strcmp(prefix, "/usr") == 0 || jail_plan_add_env(plan, text);
}

int launcher_start(struct launcher *l, const struct priv_spawn_request *m, const int *fds, size_t fd_count,
                   struct launch *ret, struct fault *f)
{
    struct jail_plan *plan = (struct jail_plan *)malloc(sizeof(*plan));
    if (!plan)
        return fault_set(f, ERR_SYSTEM, JAIL_STAGE_PLAN, 0, ENOMEM);
    *plan = l->plan[m->accel == PRIV_ACCEL_KVM];
    plan->uid = plan->gid = launcher_slot_uid(l, m->slot);
    plan->second_gid = slot_second_gid(l, m->slot);
    plan->fd_count = (uint32_t)(QEMU_FD_QMP + fd_count);
    /* qcow2 adds tables to the data: an eighth is far more than they take. */
    plan->file_size_max = m->disk_bytes + m->disk_bytes / 8 + 64 * MIB;

    struct qemu_options o = {
        .instance = l->uid_base,
        .data_count = l->paths.data_count,
        .jailed_root = l->empty_root,
        .qemu_path = l->paths.qemu,
        .data_paths = l->paths.data,
    };
    bool fits = qemu_argv_compose(m, &o, plan) && environment_add(l, plan);
    /* Whoever touches a hole of the template's memory first is charged for the page that fills it in the shared file, and
     * again for its own copy when that is written: a guest that uses all of its memory can be charged twice for it. */
    uint64_t guest_mib = m->mode == PRIV_MODE_BOOT ? m->mem_mib : 2 * (uint64_t)m->mem_mib;
    struct cgroup_limits limits = {
        .memory_bytes = (guest_mib + l->overhead_mib) * MIB,
        /* One core more for QEMU's own thread, which serves disk and ports: without it a busy guest would be stopped for
         * the rest of each period by its own output. */
        .cpu_percent = m->vcpus * l->cpu_percent + 100,
        .pids = l->pids_max,
    };
    int r = fits ? plan_start(l, m->slot, plan, &limits, fds, fd_count, ret, f)
                 : fault_set(f, ERR_INTERNAL, JAIL_STAGE_PLAN, 0, E2BIG);
    free(plan);
    return r;
}

/* ---- the probe ---- */

static int probe_wait(struct launcher *l, struct launch *run, uint32_t *ret_features, uint32_t *ret_missing,
                      struct fault *f)
{
    struct pollfd wait = {.fd = run->pidfd, .events = POLLIN};
    int n;
    while ((n = poll(&wait, 1, PROBE_TIMEOUT_MS)) < 0 && errno == EINTR)
        ;
    if (n <= 0) {
        syscall(SYS_pidfd_send_signal, run->pidfd, SIGKILL, NULL, 0);
        poll(&wait, 1, 1000);
    }
    waitid(P_PID, (id_t)run->pid, &(siginfo_t){0}, WEXITED | WNOHANG);
    struct jail_status s;
    if (n <= 0 || read(run->status_fd, &s, sizeof(s)) != sizeof(s) || s.magic != JAIL_STATUS_MAGIC)
        return fault_set(f, ERR_SYSTEM, JAIL_STAGE_JAIL_FILE, 0, n <= 0 ? ETIMEDOUT : EPROTO);
    if (s.kind != JAIL_STATUS_BUILT)
        return fault_set(f, s.feature ? ERR_UNSUPPORTED : ERR_SYSTEM, s.stage, s.feature, s.errnum);
    *ret_features = s.features;
    *ret_missing = (s.missing | l->missing) & l->features;
    return 0;
}

int launcher_probe(struct launcher *l, uint32_t *ret_features, uint32_t *ret_missing, struct fault *f)
{
    static struct jail_plan plan;
    plan = l->plan[0];
    plan.probe = 1;
    plan.uid = plan.gid = launcher_slot_uid(l, PRIV_SLOTS_MAX);
    plan.second_gid = slot_second_gid(l, PRIV_SLOTS_MAX);
    plan.fd_count = 3;
    plan.file_size_max = MIB;
    if (!jail_plan_add_arg(&plan, QEMU_JAIL_PATH))
        return fault_set(f, ERR_INTERNAL, JAIL_STAGE_PLAN, 0, E2BIG);
    /* One that was killed in the middle of this may have left its cgroup. */
    struct cgroup old;
    launcher_slot_cgroup(l, PRIV_SLOTS_MAX, 0, &old);
    cgroup_remove(&l->cgroups, &old);

    struct cgroup_limits limits = {.memory_bytes = 64 * MIB, .cpu_percent = 100, .pids = l->pids_max};
    struct launch run;
    if (plan_start(l, PRIV_SLOTS_MAX, &plan, &limits, NULL, 0, &run, f) < 0)
        return -1;
    int r = probe_wait(l, &run, ret_features, ret_missing, f);
    close(run.status_fd);
    close(run.pidfd);
    for (int i = 0; i < 100 && cgroup_remove(&l->cgroups, &run.cgroup) == -EBUSY; i++)
        poll(NULL, 0, 2);
    return r;
}

/* Case J26 of test_jail.c: one feature missing at a time. The start is refused and names it; allowed to be missing, the
 * machine starts and its answer says so. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Answer `nr` with EPERM from here on, when its first argument has all bits of `mask` (0: always). */
static void deny(unsigned nr, unsigned mask)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, mask, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog fprog = {.len = ARRAY_LEN(program), .filter = program};
    if (rig_rootless)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog) < 0)
        _exit(99);
}

static void no_mount_ns(void)
{
    deny(SYS_unshare, CLONE_NEWNS);
}
static void no_net_ns(void)
{
    deny(SYS_unshare, CLONE_NEWNET);
}
static void no_ipc_ns(void)
{
    deny(SYS_unshare, CLONE_NEWIPC);
}
static void no_uts_ns(void)
{
    deny(SYS_unshare, CLONE_NEWUTS);
}
static void no_pivot_root(void)
{
    deny(SYS_pivot_root, 0);
}
static void no_seccomp(void)
{
    deny(SYS_seccomp, 0);
}

static void file_put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        _exit(98);
    close(fd);
}

/* Limits of namespaces are counted in user namespaces: enter one more, that maps all ids as they are, and allow none of
 * one kind in it. For the rest of this process. */
static void none_of(const char *limit)
{
    int go[2], done[2];
    CHECK(pipe(go) == 0 && pipe(done) == 0, "pipe");
    pid_t parent = getpid(), pid = fork();
    char byte = 0;
    if (pid == 0) { /* has the right to write the maps, because it stays outside */
        char path[64];
        (void)!read(go[0], &byte, 1);
        snprintf(path, sizeof(path), "/proc/%d/uid_map", parent);
        file_put(path, "0 0 4294967295");
        snprintf(path, sizeof(path), "/proc/%d/gid_map", parent);
        file_put(path, "0 0 4294967295");
        _exit(0);
    }
    CHECK(unshare(CLONE_NEWUSER) == 0 && write(go[1], &byte, 1) == 1, "unshare: %m");
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "maps");
    file_put(limit, "0");
}

static void without_cgroup(const char *controller)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        _exit(96);
    FILE *f = fopen("/proc/self/mountinfo", "r");
    char line[4096], places[8][256];
    size_t count = 0;
    while (f && fgets(line, sizeof(line), f)) {
        const char *tail = strstr(line, " - cgroup ");
        if (tail && strstr(tail, controller) && count < ARRAY_LEN(places) &&
            sscanf(line, "%*s %*s %*s %*s %255s", places[count]) == 1)
            count++;
    }
    if (f)
        fclose(f);
    while (count)
        umount2(places[--count], MNT_DETACH);
}
static void no_memory_cgroup(void)
{
    without_cgroup("memory");
}
static void no_cpu_cgroup(void)
{
    without_cgroup("rw,cpu\n");
}
static void no_pids_cgroup(void)
{
    without_cgroup("pids");
}

struct missing_case {
    void (*prepare)(void);
    uint32_t feature;
    uint32_t also; /* gone with it */
    bool root, user;
    bool start_only; /* cannot start a machine at all without it */
};

static const struct missing_case missing_user_ns = {NULL,
                                                    JAIL_USER_NS,
                                                    JAIL_PID_NS | JAIL_MOUNT_NS | JAIL_NET_NS | JAIL_IPC_NS |
                                                        JAIL_UTS_NS | JAIL_EMPTY_ROOT | JAIL_OWN_PROC,
                                                    false,
                                                    true,
                                                    false};
static const struct missing_case missing_pid_ns = {NULL, JAIL_PID_NS, JAIL_OWN_PROC, true, false, false};

static const struct missing_case missing_cases[] = {
    {no_mount_ns, JAIL_MOUNT_NS, JAIL_EMPTY_ROOT | JAIL_OWN_PROC, true, true, false},
    {no_net_ns, JAIL_NET_NS, 0, true, true, false},
    {no_ipc_ns, JAIL_IPC_NS, 0, true, true, false},
    {no_uts_ns, JAIL_UTS_NS, 0, true, true, false},
    {no_pivot_root, JAIL_EMPTY_ROOT, 0, true, true, true},
    {no_seccomp, JAIL_SECCOMP, 0, true, true, false},
    {no_memory_cgroup, JAIL_CGROUP_MEMORY, 0, true, false, false},
    {no_cpu_cgroup, JAIL_CGROUP_CPU, 0, true, false, false},
    {no_pids_cgroup, JAIL_CGROUP_PIDS, 0, true, false, false},
};

static void missing_try(const struct missing_case *c)
{
    const char *title = jail_feature_title(c->feature);
    struct rig_options o = {.prepare = c->prepare};
    bool started = rig_start(&rig, &o);
    printf("#   without %s: %s (%s)\n", title, started ? "started" : "refused",
           started ? "" : jail_feature_title(rig.failed.feature) ?: "?");
    CHECK(!started && rig.failed.feature == c->feature && rig.failed.code == ERR_UNSUPPORTED,
          "%s: not refused by name (stage %s, %s)", title, jail_stage_title(rig.failed.stage),
          strerror(rig.failed.errnum));
    CHECK(rig_wait_exit(&rig) == PRIV_EXIT_START, "exit status");
    rig_stop(&rig);
    rig_nothing_left(&rig);
    /* With everything else allowed to be missing it is still this one that is asked for. */
    o.allow_missing = JAIL_FEATURES_OPTIONAL & ~c->feature;
    CHECK(!rig_start(&rig, &o) && rig.failed.feature == c->feature, "%s: others may be missing, it may not", title);
    rig_stop(&rig);
    if (c->start_only)
        return;
    o.allow_missing = c->feature | c->also;
    CHECK(rig_start(&rig, &o), "%s: allowed, and still refused: %s, %s, %s", title, jail_stage_title(rig.failed.stage),
          jail_feature_title(rig.failed.feature), strerror(rig.failed.errnum));
    CHECK((rig.ready.missing & c->feature) && !(rig.ready.features & c->feature), "%s: READY does not say so", title);
    CHECK(rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m), "%s: spawn: %s, %s", title, jail_stage_title(rig.failed.stage),
          strerror(rig.failed.errnum));
    CHECK((m.missing & c->feature) && !(m.features & c->feature), "%s: SPAWNED does not say so", title);
    char answer[256];
    CHECK(rig_ask(&m, answer, sizeof(answer), "show ids"), "%s: it does not run", title);
    down();
}

static void j26(void)
{
    for (size_t i = 0; i < ARRAY_LEN(missing_cases); i++)
        if (rig_rootless ? missing_cases[i].user : missing_cases[i].root)
            missing_try(&missing_cases[i]);
}

/* As an ordinary user on a host without user namespaces: nothing can be had, so all of it has to be allowed. */
static void j26_user_ns(void)
{
    none_of("/proc/sys/user/max_user_namespaces");
    CHECK(setgroups(0, NULL) == 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0, "setuid");
    rig_rootless = true;
    missing_try(&missing_user_ns);
}

static void j26_pid_ns(void)
{
    none_of("/proc/sys/user/max_pid_namespaces");
    missing_try(&missing_pid_ns);
}

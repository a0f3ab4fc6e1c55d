/* The jail from the inside: a probe in QEMU's place tries one class of the attack catalogue a case (docs: security).
 * Run with the name of a case, and "rootless" to do it as an ordinary user. Exit status 0, 1, or 77 when it cannot run
 * here. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "priv/process.h"
#include "rig.h"

static struct rig rig;
static struct rig_machine m;

static void up_with(const struct rig_options *o)
{
    CHECK(rig_start(&rig, o), "space-priv: %s, feature %s, %s", jail_stage_title(rig.failed.stage),
          jail_feature_title(rig.failed.feature), strerror(rig.failed.errnum));
    CHECK(rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m), "spawn: %s, feature %s, %s", jail_stage_title(rig.failed.stage),
          jail_feature_title(rig.failed.feature), strerror(rig.failed.errnum));
}

static void up(void)
{
    up_with(&(struct rig_options){0});
}

static void down(void)
{
    rig_kill(&rig, &m);
    CHECK(rig_stop(&rig) == PRIV_EXIT_PEER_GONE, "space-priv ended badly");
    rig_nothing_left(&rig);
}

#define REFUSED(...) rig_refused(&rig, &m, false, __VA_ARGS__)
#define KILLED(...) rig_refused(&rig, &m, true, __VA_ARGS__)

static void shown(const char *what, char *ret, size_t size)
{
    CHECK(rig_ask(&m, ret, size, "show %s", what), "the probe is gone");
    printf("#   %s: %s\n", what, ret);
}

/* The positive control of all: what is allowed works. */
static void control(void)
{
    up();
    char answer[4096];
    CHECK(rig_ask(&m, answer, sizeof(answer), "open /proc/self/status") && strncmp(answer, "worked", 6) == 0, "%s",
          answer);
    CHECK(rig_ask(&m, answer, sizeof(answer), "open /dev/urandom") && strncmp(answer, "worked", 6) == 0, "%s", answer);
    CHECK(rig_ask(&m, answer, sizeof(answer), "open /proc/self/fd/7") && strncmp(answer, "worked", 6) == 0, "%s",
          answer);
    CHECK(rig_ask(&m, answer, sizeof(answer), "map_wx") && strncmp(answer, "worked", 6) == 0, "%s", answer);
    uint32_t wanted = JAIL_FEATURES_ALL & ~(rig_rootless ? JAIL_FEATURES_NEED_ROOT : (uint32_t)JAIL_USER_NS);
    CHECK(m.features == wanted, "features %x, not %x", m.features, wanted);
    CHECK(m.missing == (rig_rootless ? JAIL_FEATURES_NEED_ROOT : 0), "missing %x", m.missing);
    down();
}

static void j01(void)
{
    up();
    static const int families[] = {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK, AF_ALG,    AF_BLUETOOTH,
                                   AF_UNIX, AF_KEY,   AF_XDP,     AF_TIPC,   AF_CAN,   AF_QIPCRTR};
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        REFUSED("socket %d", families[i]);
        REFUSED("socket_raw %d", families[i]);
    }
    REFUSED("socketpair");
    char net[512], mine[128], its[128], path[64];
    shown("interfaces", net, sizeof(net));
    snprintf(path, sizeof(path), "/proc/%d/ns/net", m.machine.pid);
    CHECK(readlink("/proc/self/ns/net", mine, sizeof(mine) - 1) > 0 && readlink(path, its, sizeof(its) - 1) > 0 &&
              strcmp(mine, its) != 0,
          "the same network namespace");
    down();
}

static void j02(void)
{
    up();
    REFUSED("connect @/tmp/.X11-unix/X0");
    REFUSED("connect /var/run/docker.sock");
    REFUSED("connect /run/dbus/system_bus_socket");
    REFUSED("connect /run/systemd/private");
    REFUSED("connect %s", m.qmp_path);
    REFUSED("open /var/run/docker.sock");
    REFUSED("open %s", rig.folder);
    down();
}

static void j04(void)
{
    up();
    char pids[4096];
    shown("proc", pids, sizeof(pids));
    for (char *rest = pids, *name = strtok_r(pids, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        CHECK(name[0] < '0' || name[0] > '9' || strcmp(name, "1") == 0, "sees process %s", name);
    int host[] = {getpid(), rig.pid, 1, 2};
    for (size_t i = 0; i < ARRAY_LEN(host); i++) {
        REFUSED("ptrace %d", host[i]);
        REFUSED("vm_read %d", host[i]);
        REFUSED("pidfd %d", host[i]);
        REFUSED("kill %d", host[i]);
        if (host[i] != 1)
            REFUSED("tgkill %d", host[i]);
    }
    REFUSED("kill -1");
    REFUSED("kill 0");
    REFUSED("pidfd_getfd");
    down();
}

static void j05(void)
{
    up();
    static const char *const paths[] = {
        "/etc/shadow",
        "/etc/passwd",
        "/etc",
        "/root",
        "/home",
        "/sys",
        "/sys/kernel",
        "/proc/sys",
        "/proc/kcore",
        "/proc/kallsyms",
        "/proc/sysrq-trigger",
        "/proc/keys",
        "/proc/1/root/etc/shadow",
        "/proc/2",
        "/proc/version",
        "/proc/self/root/../etc/shadow",
        "../../../../etc/shadow",
        "../../../../../../../../root",
        "/proc/self/cwd/../etc",
        "/var/lib/space",
        "/tmp",
        "/run",
        "/dev/shm",
        "/dev/pts",
        "/dev/mqueue",
        "/bin/sh",
        "/usr/bin",
        "/proc/cpuinfo",
    };
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        REFUSED("open %s", paths[i]);
    REFUSED("open %s", rig.folder);
    REFUSED("open %s", m.qmp_path);
    static const char *const places[] = {
        "/x", "/dev/x", "/qemu/x", "/proc/x", "/usr/lib/x86_64-linux-gnu/x", "/qemu/data0/x", "/lib64/x"};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        REFUSED("create %s", places[i]);
        REFUSED("mkdir %s", places[i]);
    }
    REFUSED("open_write /qemu/qemu");
    REFUSED("open_write /lib64/ld-linux-x86-64.so.2");
    char root[4096];
    shown("root", root, sizeof(root));
    CHECK(strstr(root, "etc") == NULL && strstr(root, "tmp") == NULL && strstr(root, "sys") == NULL, "root: %s", root);
    down();
}

static void j06(void)
{
    up();
    REFUSED("setuid 0");
    REFUSED("setuid %u", rig.uid_base + 1);
    REFUSED("setgid 0");
    REFUSED("setgroups 0");
    REFUSED("capset");
    static const char *const flags[] = {"0x10000000", "0x20000",   "0x40000000", "0x20000000", "0x8000000",
                                        "0x4000000",  "0x2000000", "0x80",       "0x400",      "0"};
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        REFUSED("unshare %s", flags[i]);
        REFUSED("clone %s", flags[i]);
        REFUSED("clone3 %s", flags[i]);
    }
    REFUSED("setns");
    REFUSED("execve /qemu/qemu");
    REFUSED("execve_low");
    REFUSED("personality 0x400000");
    REFUSED("dumpable 1");
    REFUSED("rlimit 4"); /* core */
    REFUSED("rlimit 7"); /* files */
    down();
}

static void j07(void)
{
    up();
    KILLED("mount");
    KILLED("remount");
    KILLED("umount /proc");
    KILLED("umount /");
    KILLED("pivot_root");
    KILLED("chroot /dev");
    KILLED("open_tree /");
    KILLED("move_mount");
    KILLED("fsopen tmpfs");
    KILLED("mount_setattr");
    char mounts[8192];
    shown("mounts", mounts, sizeof(mounts));
    for (char *rest, *line = strtok_r(mounts, ";", &rest); line; line = strtok_r(NULL, ";", &rest)) {
        char place[512], options[512];
        CHECK(sscanf(line, "%*s %511s %*s %511s", place, options) == 2, "line %s", line);
        CHECK(strstr(options, "nosuid"), "%s is not nosuid", place);
        bool device = strncmp(place, "/dev/", 5) == 0;
        CHECK(device ? strstr(options, "noexec") != NULL : strstr(options, "nodev") != NULL, "%s: %s", place, options);
        CHECK(device || strcmp(place, "/proc") == 0 || strncmp(options, "ro", 2) == 0, "%s can be written", place);
    }
    down();
}

static void j09(void)
{
    up();
    static const char *const x32[] = {"39", "41", "56", "59", "101", "165", "272", "520", "521"};
    for (size_t i = 0; i < ARRAY_LEN(x32); i++)
        KILLED("x32 %s", x32[i]);
    static const char *const i386[] = {"20", "11", "26", "102", "359", "21", "120", "1"};
    for (size_t i = 0; i < ARRAY_LEN(i386); i++)
        KILLED("int80 %s", i386[i]);
    down();
}

static void j10(void)
{
    up();
    char fds[4096];
    shown("fds", fds, sizeof(fds));
    static const struct {
        const char *number;
        const char *target;
    } golden[] = {{"0", "/dev/null"}, {"1", "pipe:"},           {"2", "pipe:"},
                  {"3", "socket:"},   {"4", "socket:"},         {"5", "socket:"},
                  {"6", "pipe:"},     {"7", "/memfd:template"}, {"8", "socket:"} /* the connection */,
                  {"9", "socket:"}};
    size_t count = 0;
    for (char *rest, *entry = strtok_r(fds, " ", &rest); entry; entry = strtok_r(NULL, " ", &rest)) {
        char *target = strchr(entry, '=');
        if (!target) /* "(deleted)" */
            continue;
        *target++ = '\0';
        CHECK(count < ARRAY_LEN(golden) && strcmp(golden[count].number, entry) == 0 &&
                  strncmp(golden[count].target, target, strlen(golden[count].target)) == 0,
              "descriptor %s is %s", entry, target);
        count++;
    }
    CHECK(count == ARRAY_LEN(golden), "%zu descriptors", count);
    REFUSED("memory_write");
    REFUSED("memory_map");
    down();
}

static void j11(void)
{
    up();
    for (int fd = 0; fd < 9; fd++) {
        REFUSED("tiocsti %d", fd);
        REFUSED("tioclinux %d", fd);
        REFUSED("tiocsctty %d", fd);
    }
    REFUSED("open /dev/tty");
    REFUSED("open /dev/console");
    REFUSED("open /dev/ptmx");
    char ids[256];
    shown("ids", ids, sizeof(ids));
    CHECK(strstr(ids, "sid=1"), "not the leader of its own session");
    down();
}

static void j12(void)
{
    up();
    KILLED("mknod /dev/x");
    static const char *const devices[] = {"mem",          "kmem",  "port", "vhost-net",   "vhost-vsock",
                                          "net/tun",      "fuse",  "kvm",  "vda",         "sda",
                                          "loop-control", "loop0", "kmsg", "userfaultfd", "vfio/vfio"};
    for (size_t i = 0; i < ARRAY_LEN(devices); i++)
        REFUSED("open /dev/%s", devices[i]);
    KILLED("syscall 323");  /* userfaultfd */
    REFUSED("syscall 425"); /* io_uring_setup */
    KILLED("syscall 321");  /* bpf */
    KILLED("syscall 298");  /* perf_event_open */
    KILLED("syscall 250");  /* keyctl */
    down();
}

static void j14(void)
{
    up();
    struct rig_machine neighbour;
    CHECK(rig_spawn(&rig, 6, PRIV_ACCEL_TCG, &neighbour), "spawn a neighbour");
    char disk[128];
    snprintf(disk, sizeof(disk), "%s/6.overlay", rig.folder);
    int fd = open(disk, O_CREAT | O_RDWR, 0666);
    CHECK(fd >= 0 && fchmod(fd, 0666) == 0, "a disk");
    close(fd);
    REFUSED("open %s", disk);
    REFUSED("open_write %s", disk);
    REFUSED("open /proc/self/root%s", disk);
    REFUSED("connect %s", neighbour.qmp_path);
    REFUSED("kill %d", neighbour.machine.pid);
    REFUSED("setuid %u", rig.uid_base + 7);
    if (!rig_rootless) {
        char mine[128], its[128], wanted[128];
        CHECK(rig_proc_field(m.machine.pid, "status", "Uid", mine, sizeof(mine)) &&
                  rig_proc_field(neighbour.machine.pid, "status", "Uid", its, sizeof(its)),
              "status");
        unsigned uid = rig.uid_base + 6;
        snprintf(wanted, sizeof(wanted), "%u\t%u\t%u\t%u", uid, uid, uid, uid);
        CHECK(strcmp(mine, its) != 0 && strcmp(mine, wanted) == 0, "uids %s, %s", mine, its);
        CHECK(rig_proc_field(m.machine.pid, "status", "Groups", mine, sizeof(mine)) && mine[0] == '\0', "groups %s",
              mine);
        /* Not dumpable: what is in /proc of it belongs to root. */
        struct stat st;
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/mem", m.machine.pid);
        CHECK(stat(path, &st) == 0 && st.st_uid == 0, "dumpable: /proc/PID/mem belongs to %u", st.st_uid);
    }
    rig_kill(&rig, &neighbour);
    down();
}

/* Seccomp 2, NoNewPrivs 1, no capability in any set, on each thread. */
static bool threads_confined(pid_t pid, size_t *ret_threads)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *d = opendir(path);
    bool good = d != NULL;
    *ret_threads = 0;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (entry->d_name[0] == '.')
            continue;
        static const struct {
            const char *name;
            const char *value;
        } wanted[] = {{"Seccomp", "2"},
                      {"NoNewPrivs", "1"},
                      {"CapInh", "0000000000000000"},
                      {"CapPrm", "0000000000000000"},
                      {"CapEff", "0000000000000000"},
                      {"CapBnd", "0000000000000000"},
                      {"CapAmb", "0000000000000000"}};
        for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
            char value[128] = "";
            rig_proc_field((pid_t)atoi(entry->d_name), "status", wanted[i].name, value, sizeof(value));
            if (strcmp(value, wanted[i].value) != 0) {
                printf("#   thread %s: %s is %s\n", entry->d_name, wanted[i].name, value);
                good = false;
            }
        }
        (*ret_threads)++;
    }
    if (d)
        closedir(d);
    return good;
}

static const char *real_qemu(const char **ret_data)
{
    const char *qemu = getenv("TEST_QEMU"), *data = getenv("TEST_QEMU_DATA");
    if (!qemu || !*qemu)
        qemu = "/usr/bin/qemu-system-x86_64";
    /* One that was unpacked has its firmware in PREFIX/share. */
    static char beside[PATH_MAX];
    snprintf(beside, sizeof(beside), "%.*s/../share", (int)(strrchr(qemu, '/') - qemu), qemu);
    char firmware[PATH_MAX + 32];
    snprintf(firmware, sizeof(firmware), "%s/bios-microvm.bin", beside);
    *ret_data = data && *data ? data : access(firmware, R_OK) == 0 ? beside : "/usr/share/qemu";
    if (access(qemu, X_OK) < 0) {
        printf("skip: no %s\n", qemu);
        exit(SKIP);
    }
    return qemu;
}

/* One QMP command; the answer (not an event). */
static void qmp(FILE *in, FILE *out, const char *command, char *ret, size_t size)
{
    fprintf(out, "%s\n", command);
    fflush(out);
    do
        CHECK(fgets(ret, (int)size, in), "QEMU is gone");
    while (strstr(ret, "\"event\""));
    CHECK(!strstr(ret, "\"error\""), "%s: %s", command, ret);
}

/* A QEMU that brought libraries of its own has loaded those, whatever the host has. */
static void libraries_check(const char *qemu)
{
    char own[PATH_MAX], path[64], line[1024], name[512];
    snprintf(own, sizeof(own), "%s", qemu);
    for (int i = 0; i < 2; i++)
        *strrchr(own, '/') = '\0';
    if (strcmp(own, "/usr") == 0)
        return;
    snprintf(path, sizeof(path), "/proc/%d/maps", m.machine.pid);
    FILE *f = fopen(path, "r");
    size_t loaded = 0;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "%*s %*s %*s %*s %*s %511s", name) == 1 && strncmp(name, "/usr/lib/", 9) == 0) {
            char mine[PATH_MAX + 512];
            snprintf(mine, sizeof(mine), "%s/lib/%s", own, strrchr(name, '/') + 1);
            CHECK(access(mine, F_OK) < 0, "%s is the host's", name);
        } else if (strncmp(name, "/lib/", 5) == 0) {
            loaded++;
        }
    if (f)
        fclose(f);
    printf("#   %zu mappings of its own libraries\n", loaded);
}

static void real_qemu_run(enum priv_accel accel)
{
    struct rig_options o = {0};
    o.qemu = real_qemu(&o.data);
    CHECK(rig_start(&rig, &o), "space-priv: stage %s", jail_stage_title(rig.failed.stage));
    CHECK(rig_spawn(&rig, 5, accel, &m), "spawn: %s", jail_stage_title(rig.failed.stage));
    char line[8192];
    if (!rig_ask(&m, line, sizeof(line), "{\"execute\":\"qmp_capabilities\"}")) {
        struct priv_exited exited;
        rig_expect_exit(&rig, &m, &exited);
        printf("#   exit %d, signal %d\n", exited.exit_code, exited.signal);
        ssize_t n = read(m.console, line, sizeof(line) - 1);
        rig_die(__FILE__, __LINE__, "QEMU said: %.*s", (int)MAX(n, 0), line);
    }
    printf("#   %.200s\n", line);
    FILE *in = fdopen(dup(m.conn), "r"), *out = fdopen(dup(m.conn), "w");
    CHECK(fgets(line, sizeof(line), in) && strstr(line, "return"), "%s", line);
    qmp(in, out, "{\"execute\":\"query-status\"}", line, sizeof(line));
    CHECK(strstr(line, "inmigrate"), "%s", line);
    qmp(in, out, "{\"execute\":\"query-block\"}", line, sizeof(line));
    CHECK(strstr(line, "disk"), "%s", line);
    size_t threads;
    CHECK(threads_confined(m.machine.pid, &threads), "a thread is not confined");
    printf("#   %zu threads confined\n", threads);
    CHECK(threads >= 2, "%zu threads", threads);
    libraries_check(o.qemu);
    qmp(in, out, "{\"execute\":\"quit\"}", line, sizeof(line));
    fclose(in);
    fclose(out);
    struct priv_exited exited;
    rig_expect_exit(&rig, &m, &exited);
    CHECK(exited.exit_code == 0, "QEMU ended with %d, signal %d", exited.exit_code, exited.signal);
    rig_machine_close(&m);
    CHECK(rig_stop(&rig) == 0, "space-priv");
    rig_nothing_left(&rig);
}

static void j15(void)
{
    up();
    size_t threads;
    CHECK(threads_confined(m.machine.pid, &threads), "the probe is not confined");
    down();
    real_qemu_run(PRIV_ACCEL_TCG);
}

/* Real QEMU with KVM: its profile of the filter forbids executable memory. */
static void j15_kvm(void)
{
    if (access("/dev/kvm", R_OK | W_OK) < 0) {
        printf("skip: no /dev/kvm\n");
        exit(SKIP);
    }
    real_qemu_run(PRIV_ACCEL_KVM);
}

/* Negative control: with a jail that was built without its filter the check above must say so. */
static void j16(void)
{
    up_with(&(struct rig_options){.jail = SPACE_JAIL_UNFILTERED});
    size_t threads;
    CHECK(!threads_confined(m.machine.pid, &threads), "the missing filter was not noticed");
    char answer[256];
    CHECK(rig_ask(&m, answer, sizeof(answer), "socketpair") && strstr(answer, "worked"), "%s", answer);
    down();
}

static void j17(void)
{
    up();
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids",
                                         "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu"};
    for (size_t i = 0; i < ARRAY_LEN(mounts); i++) {
        REFUSED("open %s", mounts[i]);
        REFUSED("open_write %s/space/%u/memory.max", mounts[i], rig.uid_base + 6);
        REFUSED("open_write %s/space/%u/pids.max", mounts[i], rig.uid_base + 6);
    }
    if (!rig_rootless) {
        /* Each limit is there, and is what it should be. */
        char line[1024], path[64], folder[1200];
        snprintf(path, sizeof(path), "/proc/%d/cgroup", m.machine.pid);
        FILE *f = fopen(path, "r");
        size_t found = 0;
        while (f && fgets(line, sizeof(line), f)) {
            line[strcspn(line, "\n")] = '\0';
            char name[32];
            snprintf(name, sizeof(name), "/space/%u", rig.uid_base + 6);
            if (strstr(line, name))
                found++;
            if (strstr(line, ":pids:") && strstr(line, name)) {
                snprintf(folder, sizeof(folder), "/sys/fs/cgroup/pids%s/pids.max", strrchr(line, ':') + 1);
                FILE *limit = fopen(folder, "r");
                CHECK(limit && fgets(line, sizeof(line), limit) && atoi(line) == 64, "pids.max");
                fclose(limit);
            }
        }
        if (f)
            fclose(f);
        CHECK(found >= 1, "in no cgroup of its own");
    }
    down();
}

static void copy_file(const char *from, const char *to, mode_t mode)
{
    char command[512];
    snprintf(command, sizeof(command), "cp --reflink=auto %s %s", from, to);
    CHECK(system(command) == 0 && chmod(to, mode) == 0, "copy %s", from);
}

/* A folder of root's own, where things can be prepared: /tmp is on the way to it, and that is fine (sticky). */
static char scratch[64];
static void scratch_make(void)
{
    snprintf(scratch, sizeof(scratch), "/tmp/space-jail-scratch.XXXXXX");
    CHECK(mkdtemp(scratch) && chmod(scratch, 0755) == 0, "scratch");
}
static void scratch_remove(void)
{
    struct err e = {0};
    CHECK(dir_remove_tree(scratch, &e) == 0, "%s", e.text);
}

static void j19(void)
{
    /* Links in the way of what is mounted, put there after space-priv has looked at it. */
    scratch_make();
    char data[128], aside[160], outside[128];
    snprintf(data, sizeof(data), "%s/data", scratch);
    snprintf(aside, sizeof(aside), "%s/aside", scratch);
    snprintf(outside, sizeof(outside), "%s/outside", scratch);
    CHECK(mkdir(data, 0755) == 0 && mkdir(outside, 0755) == 0, "folders");
    CHECK(rig_start(&rig, &(struct rig_options){.data = data}), "space-priv");
    CHECK(rename(data, aside) == 0 && symlink("/etc", data) == 0, "replace");
    CHECK(!rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m), "started with a link in place of the firmware folder");
    CHECK(rig.failed.stage == JAIL_STAGE_BIND, "refused at %s", jail_stage_title(rig.failed.stage));
    unlink(data);
    CHECK(symlink(outside, data) == 0, "replace");
    CHECK(!rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m), "started with a link in place of the firmware folder");
    unlink(data);
    int fd = open(data, O_CREAT | O_WRONLY, 0644);
    close(fd);
    CHECK(!rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m), "started with a file in place of the firmware folder");
    unlink(data);
    CHECK(!rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m), "started without the firmware folder");
    /* Raced: it is a folder or a link, at any moment; nothing of the link's target may ever be seen. */
    pid_t racer = fork();
    if (racer == 0)
        for (;;) {
            (void)!rename(aside, data);
            (void)!rename(data, aside);
            (void)!symlink("/etc", data);
            unlink(data);
        }
    size_t started = 0;
    for (int i = 0; i < 40; i++) {
        if (!rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m))
            continue;
        started++;
        REFUSED("open /qemu/data0/passwd");
        rig_kill(&rig, &m);
    }
    kill(racer, SIGKILL);
    waitpid(racer, NULL, 0);
    printf("#   raced: %zu of 40 started\n", started);
    DIR *d = opendir(outside);
    size_t entries = 0;
    while (d && readdir(d))
        entries++;
    closedir(d);
    CHECK(entries == 2, "something was made outside");
    unlink(data);
    CHECK(rig_stop(&rig) == 0, "space-priv");
    rig_nothing_left(&rig);

    /* At the start of space-priv a link is resolved once, and what it names is looked at. */
    char link_path[160];
    snprintf(link_path, sizeof(link_path), "%s/qemu", scratch);
    char other[160];
    snprintf(other, sizeof(other), "%s/outside/qemu", scratch);
    copy_file(JAIL_PROBE, other, 0777);
    CHECK(symlink(other, link_path) == 0, "link");
    CHECK(!rig_start(&rig, &(struct rig_options){.qemu = link_path}) && rig.failed.stage == JAIL_STAGE_QEMU_FILE,
          "a link to a program that all can change");
    rig_stop(&rig);
    scratch_remove();
}

static void j20(void)
{
    scratch_make();
    size_t mounts = rig_mount_count();
    int step = 1;
    bool started = false;
    for (; step < 64 && !started; step++) {
        char jail[160];
        snprintf(jail, sizeof(jail), "%s/space-jail-%d", scratch, step);
        copy_file(SPACE_JAIL_STEPS, jail, 0755);
        bool greeted = rig_start(&rig, &(struct rig_options){.jail = jail});
        /* The probe jail of the greeting dies too, until the step is past its last. */
        if (greeted) {
            started = rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m);
            if (started && !rig_ask(&m, jail, sizeof(jail), "show ids")) {
                /* Killed between "built" and the exec. */
                struct priv_exited exited;
                rig_expect_exit(&rig, &m, &exited);
                CHECK(exited.signal != 0, "ended with %d", exited.exit_code);
                rig_machine_close(&m);
                started = false;
            }
            if (started)
                rig_kill(&rig, &m);
        }
        rig_stop(&rig);
        rig_nothing_left(&rig);
        CHECK(rig_mount_count() == mounts, "a mount is left after step %d", step);
    }
    printf("#   %d steps\n", step - 2);
    CHECK(started && step > 15, "only %d steps", step);

    /* And at any moment at all, from outside, with the helper itself. */
    for (int i = 0; i < 30; i++) {
        CHECK(rig_start(&rig, &(struct rig_options){0}), "space-priv");
        union priv_message message;
        int fds[PRIV_FDS_MAX];
        size_t count;
        rig_spawn_message(&rig, 5, &message, &m, fds, &count);
        rig_send(&rig, &message, PRIV_SPAWN, fds, count);
        close(fds[3]);
        struct timespec pause = {.tv_nsec = i * 150000L};
        nanosleep(&pause, NULL);
        kill(rig.pid, SIGKILL);
        waitpid(rig.pid, NULL, 0);
        rig.pid = 0;
        rig_machine_close(&m);
        uint32_t base = rig.uid_base;
        rig_stop(&rig);
        /* Its successor waits for a space-jail that is on its way, then finds and removes what is there. */
        CHECK(rig_start(&rig, &(struct rig_options){.uid_base = base}), "space-priv again");
        int fd;
        message = (union priv_message){.slot = {.slot = 5}};
        rig_send(&rig, &message, PRIV_CLEAN, NULL, 0);
        CHECK(rig_expect(&rig, PRIV_DONE, &message, &fd), "CLEAN");
        rig_stop(&rig);
        rig_nothing_left(&rig);
    }
    scratch_remove();
}

static void j22(void)
{
    up();
    char answer[256];
    CHECK(rig_ask(&m, answer, sizeof(answer), "show ids"), "ask");
    size_t before = rig_fd_count();
    for (int i = 0; i < 20; i++) {
        /* The host reads its side as bytes: descriptors that come along are closed by the kernel. */
        CHECK(rig_ask(&m, answer, sizeof(answer), "send_fds") && strcmp(answer, "fds") == 0, "%s", answer);
        char byte, rest[64];
        size_t n = 0;
        while (n < sizeof(rest) && read(m.conn, &byte, 1) == 1 && byte != '\n')
            rest[n++] = byte;
        CHECK(n >= 6 && memcmp(rest, "worked", 6) == 0, "the attempt itself failed");
    }
    CHECK(rig_fd_count() == before, "descriptors were taken in");
    down();
}

static void j24(void)
{
    up();
    char answer[256];
    CHECK(rig_ask(&m, answer, sizeof(answer), "map_wx") && strstr(answer, "worked"), "TCG profile: %s", answer);
    REFUSED("memfd x");
    down();
    if (access("/dev/kvm", R_OK | W_OK) < 0) {
        printf("# the KVM half is skipped: no /dev/kvm\n");
        return;
    }
    CHECK(rig_start(&rig, &(struct rig_options){0}), "space-priv");
    CHECK(rig_spawn(&rig, 5, PRIV_ACCEL_KVM, &m), "spawn: %s", jail_stage_title(rig.failed.stage));
    CHECK(rig_ask(&m, answer, sizeof(answer), "open_write /dev/kvm"), "kvm");
    printf("#   open_write /dev/kvm: %s\n", answer);
    CHECK(strstr(answer, "EINVAL"), "the node does not open: %s", answer); /* it opens, and takes no write */
    static const char *const tries[] = {"map_wx", "protect_x", "pkey_protect_x", "memfd x"};
    for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
        CHECK(rig_ask(&m, answer, sizeof(answer), "%s", tries[i]), "killed");
        printf("#   kvm %s: %s\n", tries[i], answer);
        CHECK(strstr(answer, "refused"), "%s: %s", tries[i], answer);
    }
    down();
}

static void j25(void)
{
    if (rig_rootless) {
        printf("skip: without root there are no uids to reuse\n");
        exit(SKIP);
    }
    CHECK(rig_start(&rig, &(struct rig_options){0}), "space-priv");
    pid_t squatter = fork();
    if (squatter == 0) {
        CHECK(setgroups(0, NULL) == 0 && setresuid(rig.uid_base + 6, rig.uid_base + 6, rig.uid_base + 6) == 0,
              "setuid");
        for (;;)
            pause();
    }
    while (!process_uid_exists(rig.uid_base + 6))
        sched_yield();
    CHECK(!rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m) && rig.failed.code == ERR_CONFLICT &&
              rig.failed.stage == JAIL_STAGE_SLOT_BUSY,
          "the uid of a living process was used");
    /* The reconcile's way out. */
    union priv_message a = {0};
    int fd;
    rig_send(&rig, &a, PRIV_LIST, NULL, 0);
    CHECK(rig_expect(&rig, PRIV_LISTED, &a, &fd) && a.listed.count == 1 && a.listed.machines[0].slot == 5 &&
              a.listed.machines[0].pid == squatter,
          "LIST does not show it");
    a = (union priv_message){.slot = {.slot = 5}};
    rig_send(&rig, &a, PRIV_KILL_STRAY, NULL, 0);
    CHECK(rig_expect(&rig, PRIV_DONE, &a, &fd), "KILL_STRAY");
    int status;
    CHECK(waitpid(squatter, &status, 0) == squatter && WIFSIGNALED(status), "it lives");
    CHECK(rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m), "spawn after the clean-up");
    /* Again and again in one slot: each time everything of the one before is gone. */
    for (int i = 0; i < 20; i++) {
        rig_kill(&rig, &m);
        CHECK(!process_uid_exists(rig.uid_base + 6), "the uid is still in use after EXITED");
        CHECK(rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m), "spawn again");
    }
    down();
}

static void j29(void)
{
    char *hostile[] = {(char *)"PATH=/tmp/evil",
                       (char *)"LD_PRELOAD=/tmp/evil.so",
                       (char *)"LD_LIBRARY_PATH=/tmp/evil",
                       (char *)"TMPDIR=/tmp/evil",
                       (char *)"HOME=/tmp/evil",
                       (char *)"LC_ALL=xx_XX",
                       (char *)"QEMU_MODULE_DIR=/tmp/evil",
                       (char *)"GCONV_PATH=/tmp/evil",
                       (char *)"G_MESSAGES_DEBUG=all",
                       NULL};
    up_with(&(struct rig_options){.environment = hostile});
    char env[1024];
    shown("env", env, sizeof(env));
    CHECK(strcmp(env, "LANG=C QEMU_MODULE_DIR=/qemu/modules ") == 0, "environment: %s", env);
    down();
    /* A relative path is not looked up anywhere. */
    CHECK(!rig_start(&rig, &(struct rig_options){.qemu = "qemu-system-x86_64"}), "a bare name was accepted");
    rig_stop(&rig);
}

static void must_refuse(const struct rig_options *o, uint32_t stage, const char *what)
{
    bool started = rig_start(&rig, o);
    printf("#   %s: %s\n", what, started ? "started" : jail_stage_title(rig.failed.stage));
    CHECK(!started && rig.failed.stage == stage && rig.failed.code == ERR_FORBIDDEN, "%s: accepted", what);
    CHECK(rig_wait_exit(&rig) == PRIV_EXIT_START, "exit status");
    rig_stop(&rig);
}

static void j30(void)
{
    if (rig_rootless) {
        printf("skip: without root the user may change his own files\n");
        exit(SKIP);
    }
    scratch_make();
    char qemu[128], data[128], file[160], folder[128], inner[160];
    snprintf(qemu, sizeof(qemu), "%s/qemu", scratch);
    snprintf(data, sizeof(data), "%s/data", scratch);
    snprintf(file, sizeof(file), "%s/data/bios.bin", scratch);
    snprintf(folder, sizeof(folder), "%s/bin", scratch);
    snprintf(inner, sizeof(inner), "%s/bin/qemu", scratch);
    copy_file(JAIL_PROBE, qemu, 0755);
    CHECK(mkdir(data, 0755) == 0 && mkdir(folder, 0755) == 0, "folders");
    copy_file("/etc/hostname", file, 0644);
    copy_file(JAIL_PROBE, inner, 0755);
    struct rig_options good = {.qemu = qemu, .data = data};
    CHECK(rig_start(&rig, &good), "the good ones are refused");
    rig_stop(&rig);

    CHECK(chmod(qemu, 0775) == 0, "chmod");
    must_refuse(&good, JAIL_STAGE_QEMU_FILE, "QEMU writable for its group");
    CHECK(chmod(qemu, 0755) == 0 && chown(qemu, 1000, 0) == 0, "chown");
    must_refuse(&good, JAIL_STAGE_QEMU_FILE, "QEMU of a user");
    CHECK(chown(qemu, 0, 0) == 0 && chmod(file, 0666) == 0, "chmod");
    must_refuse(&good, JAIL_STAGE_DATA_FILES, "firmware file writable for all");
    CHECK(chmod(file, 0644) == 0 && chown(data, 1000, 0) == 0, "chown");
    must_refuse(&good, JAIL_STAGE_DATA_FILES, "firmware folder of a user");
    CHECK(chown(data, 0, 0) == 0 && chmod(data, 0777) == 0, "chmod");
    must_refuse(&good, JAIL_STAGE_DATA_FILES, "firmware folder writable for all");
    CHECK(chmod(data, 0755) == 0 && chown(folder, 1000, 1000) == 0, "chown");
    must_refuse(&(struct rig_options){.qemu = inner, .data = data}, JAIL_STAGE_QEMU_FILE,
                "folder above QEMU of a user");
    snprintf(inner, sizeof(inner), "%s/bin/jail", scratch);
    copy_file(SPACE_JAIL, inner, 0755);
    must_refuse(&(struct rig_options){.jail = inner}, JAIL_STAGE_JAIL_FILE, "folder above space-jail of a user");
    scratch_remove();
}

#include "test_boot.h"
#include "test_missing.h"

/* Latency beside a plain fork and exec of the same program, both until the first answer of the probe. */
static uint64_t spawn_once(void)
{
    uint64_t start = clock_mono_ns();
    CHECK(rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m), "spawn");
    uint64_t took = clock_mono_ns() - start;
    rig_kill(&rig, &m);
    return took;
}

static uint64_t plain_once(void)
{
    uint64_t start = clock_mono_ns();
    int gone[2];
    CHECK(pipe2(gone, O_CLOEXEC) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {(char *)"probe", NULL};
        dup2(gone[1], 63); /* stays open: only the exec'd one holds it */
        close(3);
        execve(JAIL_PROBE, argv, argv + 1);
        _exit(1);
    }
    close(gone[1]);
    char byte;
    (void)!read(gone[0], &byte, 0);
    waitpid(pid, NULL, 0);
    close(gone[0]);
    return clock_mono_ns() - start;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void latency(void)
{
    enum { N = 40 };
    uint64_t jailed[N], plain[N];
    CHECK(rig_start(&rig, &(struct rig_options){0}), "space-priv");
    spawn_once();
    for (int i = 0; i < N; i++) {
        jailed[i] = spawn_once();
        plain[i] = plain_once();
    }
    qsort(jailed, N, sizeof(*jailed), by_value);
    qsort(plain, N, sizeof(*plain), by_value);
    printf("#   SPAWN to exec p50 %.2f ms, p90 %.2f ms; plain fork, exec, exit and wait p50 %.2f ms\n",
           (double)jailed[N / 2] / 1e6, (double)jailed[N * 9 / 10] / 1e6, (double)plain[N / 2] / 1e6);
    /* The best of them tells what it costs where the host is busy with others. */
    CHECK(jailed[N / 10] < plain[N / 10] + 5000000, "more than 5 ms on top of a plain exec");
    CHECK(rig_stop(&rig) == 0, "space-priv");
    rig_nothing_left(&rig);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"control", control},
    {"J01", j01},
    {"J02", j02},
    {"J04", j04},
    {"J05", j05},
    {"J06", j06},
    {"J07", j07},
    {"J09", j09},
    {"J10", j10},
    {"J11", j11},
    {"J12", j12},
    {"J14", j14},
    {"J15", j15},
    {"J15-kvm", j15_kvm},
    {"J16", j16},
    {"J17", j17},
    {"J19", j19},
    {"J20", j20},
    {"J22", j22},
    {"J24", j24},
    {"J25", j25},
    {"J26", j26},
    {"J26-user-ns", j26_user_ns},
    {"J26-pid-ns", j26_pid_ns},
    {"J27", j27},
    {"J29", j29},
    {"J30", j30},
    {"latency", latency},
};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(0022);
    if (argc > 2 && strcmp(argv[2], "rootless") == 0) {
        rig_become_user();
    } else if (getuid() != 0) {
        printf("skip: needs root\n");
        return SKIP;
    }
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            printf("ok %s\n", cases[i].name);
            return 0;
        }
    printf("unknown case\n");
    return 1;
}

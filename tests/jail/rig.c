/* See rig.h. */
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "priv/cgroup.h"
#include "priv/process.h"

#define DEADLINE_MS 10000
#define MEM_MIB 64

bool rig_rootless;

static int started[256];
static size_t started_count;

void rig_started(int pidfd)
{
    int copy = fcntl(pidfd, F_DUPFD_CLOEXEC, 500);
    if (copy >= 0 && started_count < ARRAY_LEN(started))
        started[started_count++] = copy;
    else if (copy >= 0)
        close(copy);
}

void rig_die(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stdout, "# %s:%d: ", file, line);
    vfprintf(stdout, format, args);
    fputc('\n', stdout);
    va_end(args);
    /* A test that fails leaves nothing either: space-priv, while it has its peer, clears up after each. */
    for (size_t i = 0; i < started_count; i++)
        syscall(SYS_pidfd_send_signal, started[i], SIGKILL, NULL, 0);
    if (started_count)
        poll(NULL, 0, 300);
    exit(1);
}

static uint32_t uid_base_own(void)
{
    return 0x60000000u + (uint32_t)(getpid() % 8000) * 32768u;
}

static char lock_path[64];

static void lock_remove(void)
{
    unlink(lock_path);
}

void rig_folder_make(struct rig *r)
{
    *r = (struct rig){.sock = -1, .uid_base = uid_base_own()};
    snprintf(r->folder, sizeof(r->folder), "/tmp/space-jail-test.XXXXXX");
    CHECK(mkdtemp(r->folder), "make a folder");
    /* One lock for all of this test's, opened anew each time. */
    snprintf(r->lock, sizeof(r->lock), "/tmp/space-jail-test.%u.lock", r->uid_base);
    if (!lock_path[0])
        atexit(lock_remove);
    memcpy(lock_path, r->lock, sizeof(lock_path));
}

bool rig_start(struct rig *r, const struct rig_options *o)
{
    rig_folder_make(r);
    if (o->uid_base)
        r->uid_base = o->uid_base;
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    int lock = open(r->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(lock >= 0, "lock");
    fflush(stdout);
    r->pid = fork();
    CHECK(r->pid >= 0, "fork");
    if (r->pid == 0) {
        if (o->prepare)
            o->prepare();
        char *argv[] = {(char *)"space-priv",
                        (char *)"--fd",
                        (char *)"3",
                        (char *)"--qemu",
                        (char *)(o->qemu ? o->qemu : JAIL_PROBE),
                        (char *)"--data",
                        (char *)(o->data ? o->data : "/usr/share/doc/libc6"),
                        (char *)"--jail",
                        (char *)(o->jail ? o->jail : SPACE_JAIL),
                        (char *)"--lock",
                        (char *)"4",
                        NULL};
        char *none[] = {NULL};
        int copy = fcntl(pair[1], F_DUPFD_CLOEXEC, 10), lock_copy = fcntl(lock, F_DUPFD_CLOEXEC, 10);
        dup2(copy, 3);
        dup2(lock_copy, 4);
        execve(SPACE_PRIV, argv, o->environment ? o->environment : none);
        _exit(127);
    }
    close(lock);
    close(pair[1]);
    r->sock = pair[0];
    union priv_message m = {
        .hello = {.version = PRIV_VERSION,
                  .uid_base = r->uid_base,
                  .slots = RIG_SLOTS,
                  .pids_max = o->pids_max,
                  .allow_missing = o->allow_missing | (rig_rootless ? JAIL_FEATURES_NEED_ROOT : 0)}};
    rig_send(r, &m, PRIV_HELLO, NULL, 0);
    int fd;
    if (!rig_expect(r, PRIV_READY, &m, &fd))
        return false;
    r->ready = m.ready;
    return true;
}

int rig_wait_exit(struct rig *r)
{
    int status = 0;
    for (int i = 0; i < DEADLINE_MS / 2; i++) {
        if (waitpid(r->pid, &status, WNOHANG) == r->pid) {
            r->pid = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }
        poll(NULL, 0, 2);
    }
    rig_die(__FILE__, __LINE__, "space-priv does not end");
}

int rig_stop(struct rig *r)
{
    if (r->sock >= 0)
        close(r->sock);
    r->sock = -1;
    int status = r->pid > 0 ? rig_wait_exit(r) : 0;
    DIR *d = opendir(r->folder);
    for (struct dirent *entry; d && (entry = readdir(d));)
        unlinkat(dirfd(d), entry->d_name, 0);
    if (d)
        closedir(d);
    rmdir(r->folder);
    return status;
}

void rig_send_raw(struct rig *r, const void *data, size_t len, const int *fds, size_t fd_count)
{
    char control[CMSG_SPACE(64 * sizeof(int))] = {0};
    struct iovec iov = {(void *)data, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_count) {
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
    }
    CHECK(sendmsg(r->sock, &msg, MSG_NOSIGNAL) >= 0 || errno == EPIPE, "send: %m");
}

void rig_send(struct rig *r, union priv_message *m, uint32_t type, const int *fds, size_t fd_count)
{
    m->header = (struct priv_header){.magic = PRIV_MAGIC, .type = type, .tag = ++r->tag};
    rig_send_raw(r, m, priv_message_size(type), fds, fd_count);
}

ssize_t rig_receive(struct rig *r, union priv_message *ret, int *ret_fd)
{
    struct pollfd wait = {.fd = r->sock, .events = POLLIN};
    CHECK(poll(&wait, 1, DEADLINE_MS) == 1, "no answer from space-priv");
    int fds[PRIV_FDS_MAX];
    size_t count = 0;
    ssize_t len = priv_message_receive(r->sock, ret, fds, &count);
    if (len == -ECONNRESET)
        len = 0;
    CHECK(len >= 0, "receive: %s", strerror((int)-len));
    *ret_fd = count ? fds[0] : -1;
    return len;
}

bool rig_expect(struct rig *r, uint32_t type, union priv_message *ret, int *ret_fd)
{
    for (;;) {
        *ret_fd = -1;
        if (rig_receive(r, ret, ret_fd) == 0) {
            memset(&r->failed, 0, sizeof(r->failed));
            return false;
        }
        if (ret->header.type == type)
            return true;
        if (ret->header.type == PRIV_FAILED) {
            r->failed = ret->failed;
            return false;
        }
        if (*ret_fd >= 0)
            close(*ret_fd);
    }
}

void rig_expect_exit(struct rig *r, const struct rig_machine *m, struct priv_exited *ret)
{
    union priv_message a;
    int fd;
    do
        CHECK(rig_expect(r, PRIV_EXITED, &a, &fd), "no EXITED of slot %u", m->machine.slot);
    while (a.exited.machine.slot != m->machine.slot);
    CHECK(a.exited.machine.pid == m->machine.pid, "EXITED names another process");
    *ret = a.exited;
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(strlen(path) < sizeof(address.sun_path), "path too long");
    memcpy(address.sun_path, path, strlen(path));
    return address;
}

static int listen_on(const char *path)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(path);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 8) == 0, "listen: %m");
    return fd;
}

void rig_spawn_message(struct rig *r, uint32_t slot, union priv_message *ret, struct rig_machine *m, int *fds,
                       size_t *ret_count)
{
    static const char *const names[] = {"qmp", "agent", "egress"};
    *m = (struct rig_machine){.pidfd = -1, .conn = -1};
    for (int i = 0; i < 3; i++) {
        char path[100];
        snprintf(path, sizeof(path), "%s/%u.%s", r->folder, slot, names[i]);
        fds[i] = m->listen[i] = listen_on(path);
        if (i == 0)
            memcpy(m->qmp_path, path, sizeof(path));
    }
    int console[2];
    CHECK(pipe2(console, O_CLOEXEC) == 0, "pipe");
    m->console = console[0];
    fds[3] = console[1];
    m->memory = memfd_create("template", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(ftruncate(m->memory, MEM_MIB * (off_t)MIB) == 0 &&
              fcntl(m->memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0,
          "memory");
    fds[4] = m->memory;
    *ret_count = PRIV_SPAWN_FDS_RESTORE;
    *ret = (union priv_message){.spawn = {.slot = slot,
                                          .accel = PRIV_ACCEL_TCG,
                                          .mode = PRIV_MODE_RESTORE,
                                          .vcpus = 1,
                                          .mem_mib = MEM_MIB,
                                          .disk_bytes = 256 * MIB}};
}

bool rig_spawn(struct rig *r, uint32_t slot, enum priv_accel accel, struct rig_machine *m)
{
    union priv_message message;
    int fds[PRIV_FDS_MAX], pidfd;
    size_t count;
    rig_spawn_message(r, slot, &message, m, fds, &count);
    message.spawn.accel = accel;
    rig_send(r, &message, PRIV_SPAWN, fds, count);
    close(fds[3]);
    if (!rig_expect(r, PRIV_SPAWNED, &message, &pidfd)) {
        rig_machine_close(m);
        return false;
    }
    CHECK(pidfd >= 0, "no pidfd");
    rig_started(pidfd);
    m->machine = message.spawned.machine;
    m->pidfd = pidfd;
    m->features = message.spawned.features;
    m->missing = message.spawned.missing;
    return true;
}

void rig_machine_close(struct rig_machine *m)
{
    int *fds[] = {&m->listen[0], &m->listen[1], &m->listen[2], &m->console, &m->memory, &m->pidfd, &m->conn};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

void rig_kill(struct rig *r, struct rig_machine *m)
{
    union priv_message a = {.machine = {.machine = m->machine}};
    struct priv_exited exited;
    int fd;
    rig_send(r, &a, PRIV_KILL, NULL, 0);
    CHECK(rig_expect(r, PRIV_DONE, &a, &fd), "KILL failed");
    rig_expect_exit(r, m, &exited);
    CHECK(exited.signal == SIGKILL || exited.signal == 0, "killed by %d", exited.signal);
    rig_machine_close(m);
}

static bool connect_to(struct rig_machine *m)
{
    struct sockaddr_un address = address_of(m->qmp_path);
    m->conn = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return m->conn >= 0 && connect(m->conn, (struct sockaddr *)&address, sizeof(address)) == 0;
}

static bool ask_line(struct rig_machine *m, char *ret_line, size_t size, const char *line)
{
    /* Ours would keep the socket listening after the machine's end. */
    if (m->conn < 0 && !connect_to(m))
        return false;
    for (int i = 0; i < 3; i++)
        if (m->listen[i] >= 0) {
            close(m->listen[i]);
            m->listen[i] = -1;
        }
    if (send(m->conn, line, strlen(line), MSG_NOSIGNAL) < 0)
        return false;
    size_t len = 0;
    while (len < size - 1) {
        struct pollfd wait = {.fd = m->conn, .events = POLLIN};
        CHECK(poll(&wait, 1, DEADLINE_MS) == 1, "no answer from the probe to %s", line);
        ssize_t n = read(m->conn, ret_line + len, 1);
        if (n <= 0)
            return false;
        if (ret_line[len] == '\n')
            break;
        len++;
    }
    ret_line[len] = '\0';
    return true;
}

bool rig_ask(struct rig_machine *m, char *ret_line, size_t size, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    strcat(line, "\n");
    return ask_line(m, ret_line, size, line);
}

void rig_refused(struct rig *r, struct rig_machine *m, bool must_kill, const char *format, ...)
{
    char line[1024], answer[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    printf("#   %s: ", line);
    strcat(line, "\n");
    if (ask_line(m, answer, sizeof(answer), line)) {
        printf("%s\n", answer);
        CHECK(!must_kill && strncmp(answer, "refused", 7) == 0, "not stopped");
        return;
    }
    struct priv_exited exited;
    rig_expect_exit(r, m, &exited);
    printf("killed by signal %d\n", exited.signal);
    CHECK(exited.signal == SIGSYS, "ended by signal %d, exit %d", exited.signal, exited.exit_code);
    uint32_t slot = m->machine.slot;
    rig_machine_close(m);
    CHECK(rig_spawn(r, slot, PRIV_ACCEL_TCG, m), "spawn again after a kill");
}

size_t rig_mount_count(void)
{
    FILE *f = fopen("/proc/self/mountinfo", "r");
    size_t lines = 0;
    for (int c; f && (c = getc(f)) != EOF;)
        lines += c == '\n';
    if (f)
        fclose(f);
    return lines;
}

size_t rig_fd_count(void)
{
    DIR *d = opendir("/proc/self/fd");
    size_t count = 0;
    while (d && readdir(d))
        count++;
    if (d)
        closedir(d);
    return count;
}

static void left_process(void *arg, pid_t pid)
{
    const struct rig *r = (const struct rig *)arg;
    uid_t uid;
    uint32_t slot;
    uint64_t start;
    if (!process_start_time(pid, &start)) /* ended; its parent has yet to see it */
        return;
    if (!rig_rootless && process_real_uid(pid, &uid) && uid > r->uid_base && uid <= r->uid_base + 3 * PRIV_SLOTS_MAX)
        rig_die(__FILE__, __LINE__, "process %d with uid %u is left", pid, uid);
    if (process_named_slot(pid, r->uid_base, &slot))
        rig_die(__FILE__, __LINE__, "process %d of slot %u is left", pid, slot);
}

static void left_cgroup(void *arg, const char *name)
{
    const struct rig *r = (const struct rig *)arg;
    unsigned long uid = strtoul(name, NULL, 10);
    CHECK(uid <= r->uid_base || uid > r->uid_base + 3ul * PRIV_SLOTS_MAX, "cgroup %s is left", name);
}

void rig_nothing_left(const struct rig *r)
{
    process_each(left_process, (void *)r);
    struct cgroups c;
    cgroups_open(&c);
    cgroups_each(&c, left_cgroup, (void *)r);
    cgroups_close(&c);
}

bool rig_proc_field(pid_t pid, const char *file, const char *name, char *ret_text, size_t size)
{
    char path[128], line[1024];
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    FILE *f = fopen(path, "r");
    bool found = false;
    while (f && !found && fgets(line, sizeof(line), f)) {
        size_t n = strlen(name);
        if (strncmp(line, name, n) == 0 && line[n] == ':') {
            line[strcspn(line, "\n")] = '\0';
            snprintf(ret_text, size, "%s", line + n + 1 + strspn(line + n + 1, " \t"));
            found = true;
        }
    }
    if (f)
        fclose(f);
    return found;
}

void rig_become_user(void)
{
    if (getuid() == 0)
        CHECK(setgroups(0, NULL) == 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0,
              "setuid");
    rig_rootless = true;
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0);
    int status;
    waitpid(pid, &status, 0);
    if (status) {
        printf("skip: an ordinary user cannot make namespaces here\n");
        exit(SKIP);
    }
}

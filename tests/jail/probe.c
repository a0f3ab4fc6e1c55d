/* Takes QEMU's place inside the jail and tries to get out. Static, no library but libc.
 *
 * It accepts a connection on the QMP socket and answers lines: "ATTEMPT [argument]" → "worked …" when the attempt
 * succeeded, "refused ERRNO …" when it did not; "show fds|root|env|pids|status" → one line of facts. A call that ends
 * the process ends the connection: its exit tells the rest. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define QMP_FD 3

static int conn = -1; /* the accepted connection */

/* Each returns what the system call gave: negative is refused (errno is set). */
static long try_socket(const char *arg)
{
    return socket(atoi(arg), SOCK_STREAM, 0);
}
static long try_socket_raw(const char *arg)
{
    return socket(atoi(arg), SOCK_RAW, 0);
}
static long try_socketpair(const char *arg)
{
    int pair[2];
    (void)arg;
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}
static long try_connect(const char *arg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    /* Even a socket that it holds already must not reach elsewhere. */
    if (fd < 0)
        fd = conn;
    size_t len = strlen(arg);
    if (len >= sizeof(address.sun_path))
        len = sizeof(address.sun_path) - 1;
    memcpy(address.sun_path, arg, len);
    if (arg[0] == '@')
        address.sun_path[0] = '\0';
    return connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}
static long try_open(const char *arg)
{
    return open(arg, O_RDONLY | O_NONBLOCK);
}
static long try_open_write(const char *arg)
{
    int fd = open(arg, O_WRONLY | O_NONBLOCK);
    return fd < 0 ? fd : write(fd, "max\n", 4);
}
static long try_create(const char *arg)
{
    return open(arg, O_CREAT | O_WRONLY, 0600);
}
static long try_mkdir(const char *arg)
{
    return mkdir(arg, 0700);
}
static long try_ptrace(const char *arg)
{
    return ptrace(PTRACE_SEIZE, atoi(arg), 0, 0);
}
static long try_vm_read(const char *arg)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
    return process_vm_readv(atoi(arg), &here, 1, &there, 1, 0);
}
static long try_pidfd(const char *arg)
{
    return syscall(SYS_pidfd_open, atoi(arg), 0);
}
static long try_pidfd_getfd(const char *arg)
{
    (void)arg;
    return syscall(SYS_pidfd_getfd, 5, 0, 0);
}
static long try_kill(const char *arg)
{
    return kill(atoi(arg), SIGTERM);
}
static long try_tgkill(const char *arg)
{
    return syscall(SYS_tgkill, atoi(arg), atoi(arg), SIGTERM);
}
static long try_setuid(const char *arg)
{
    return setuid((uid_t)strtoul(arg, NULL, 10));
}
static long try_setgid(const char *arg)
{
    return setgid((gid_t)strtoul(arg, NULL, 10));
}
static long try_setgroups(const char *arg)
{
    gid_t group = (gid_t)strtoul(arg, NULL, 10);
    return syscall(SYS_setgroups, 1, &group);
}
static long try_capset(const char *arg)
{
    (void)arg;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct all[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    return syscall(SYS_capset, &header, all);
}
static long try_unshare(const char *arg)
{
    return unshare((int)strtol(arg, NULL, 0));
}
static long try_setns(const char *arg)
{
    (void)arg;
    int fd = open("/proc/self/ns/net", O_RDONLY);
    return setns(fd, 0);
}
static long try_clone(const char *arg)
{
    long pid = syscall(SYS_clone, strtol(arg, NULL, 0) | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return pid;
}
static long try_clone3(const char *arg)
{
    unsigned long long args[8] = {(unsigned long long)strtoll(arg, NULL, 0), 0, 0, 0, SIGCHLD};
    long pid = syscall(SYS_clone3, args, sizeof(args));
    if (pid == 0)
        _exit(0);
    return pid;
}
static long try_execve(const char *arg)
{
    char *argv[] = {(char *)arg, NULL};
    return execve(arg, argv, argv + 1);
}
/* The pointer that the filter lets pass: nothing may be there, or get there. */
static long try_execve_low(const char *arg)
{
    (void)arg;
    char *path = (char *)0x40;
    __asm__("" : "+r"(path));
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
        strcpy(path, "/qemu/qemu");
    char *argv[] = {(char *)"x", NULL};
    return syscall(SYS_execve, path, argv, argv + 1);
}
static long try_mount(const char *arg)
{
    (void)arg;
    return mount("x", "/dev", "tmpfs", 0, NULL);
}
static long try_remount(const char *arg)
{
    (void)arg;
    return mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL);
}
static long try_umount(const char *arg)
{
    return umount2(arg, MNT_DETACH);
}
static long try_pivot_root(const char *arg)
{
    (void)arg;
    return syscall(SYS_pivot_root, ".", ".");
}
static long try_chroot(const char *arg)
{
    return chroot(arg);
}
static long try_open_tree(const char *arg)
{
    return open_tree(AT_FDCWD, arg, OPEN_TREE_CLONE);
}
static long try_move_mount(const char *arg)
{
    (void)arg;
    return move_mount(AT_FDCWD, "/dev", AT_FDCWD, "/qemu", 0);
}
static long try_fsopen(const char *arg)
{
    return fsopen(arg, 0);
}
static long try_mount_setattr(const char *arg)
{
    (void)arg;
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY};
    return mount_setattr(AT_FDCWD, "/", 0, &attr, sizeof(attr));
}
static long try_x32(const char *arg)
{
    return syscall(0x40000000 | strtol(arg, NULL, 0));
}
static long try_int80(const char *arg)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(strtol(arg, NULL, 0)), "b"(0), "c"(0), "d"(0) : "memory");
    return result < 0 ? -1 : result;
}
static long try_tiocsti(const char *arg)
{
    return ioctl(atoi(arg), TIOCSTI, "x");
}
static long try_tioclinux(const char *arg)
{
    char code = 3;
    return ioctl(atoi(arg), TIOCLINUX, &code);
}
static long try_tiocsctty(const char *arg)
{
    return ioctl(atoi(arg), TIOCSCTTY, 0);
}
static long try_mknod(const char *arg)
{
    return mknod(arg, S_IFCHR | 0666, makedev(1, 1));
}
static long try_map_wx(const char *arg)
{
    (void)arg;
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1
                                                                                                                  : 0;
}
static long try_protect_x(const char *arg)
{
    (void)arg;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mprotect(page, 4096, PROT_READ | PROT_EXEC);
}
static long try_pkey_protect_x(const char *arg)
{
    (void)arg;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return syscall(SYS_pkey_mprotect, page, 4096, PROT_READ | PROT_EXEC, -1);
}
static long try_memfd(const char *arg)
{
    return memfd_create(arg, 0);
}
static long try_memory_write(const char *arg) /* a template's memory, through a file opened anew */
{
    (void)arg;
    int fd = open("/proc/self/fd/7", O_RDWR);
    return fd < 0 ? fd : pwrite(fd, "x", 1, 0);
}
static long try_memory_map(const char *arg)
{
    (void)arg;
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 7, 0) == MAP_FAILED ? -1 : 0;
}
static long try_rlimit(const char *arg)
{
    struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    return syscall(SYS_prlimit64, 0, atoi(arg), &more, NULL);
}
static long try_dumpable(const char *arg)
{
    return prctl(PR_SET_DUMPABLE, atoi(arg), 0, 0, 0);
}
static long try_personality(const char *arg)
{
    return syscall(SYS_personality, strtol(arg, NULL, 0));
}
static long try_syscall(const char *arg) /* any by number */
{
    return syscall(strtol(arg, NULL, 0), 0, 0, 0, 0, 0, 0);
}
/* Give descriptors to whoever listens on the other end. */
static long try_send_fds(const char *arg)
{
    (void)arg;
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } control = {0};
    struct iovec iov = {(char *)"fds\n", 4};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(3 * sizeof(int));
    int fds[3] = {0, 7, 7};
    memcpy(CMSG_DATA(c), fds, sizeof(fds));
    return sendmsg(conn, &msg, 0);
}

static const struct {
    const char *name;
    long (*run)(const char *arg);
} attempts[] = {
    {"socket", try_socket},
    {"socket_raw", try_socket_raw},
    {"socketpair", try_socketpair},
    {"connect", try_connect},
    {"open", try_open},
    {"open_write", try_open_write},
    {"create", try_create},
    {"mkdir", try_mkdir},
    {"ptrace", try_ptrace},
    {"vm_read", try_vm_read},
    {"pidfd", try_pidfd},
    {"pidfd_getfd", try_pidfd_getfd},
    {"kill", try_kill},
    {"tgkill", try_tgkill},
    {"setuid", try_setuid},
    {"setgid", try_setgid},
    {"setgroups", try_setgroups},
    {"capset", try_capset},
    {"unshare", try_unshare},
    {"setns", try_setns},
    {"clone", try_clone},
    {"clone3", try_clone3},
    {"execve", try_execve},
    {"execve_low", try_execve_low},
    {"mount", try_mount},
    {"remount", try_remount},
    {"umount", try_umount},
    {"pivot_root", try_pivot_root},
    {"chroot", try_chroot},
    {"open_tree", try_open_tree},
    {"move_mount", try_move_mount},
    {"fsopen", try_fsopen},
    {"mount_setattr", try_mount_setattr},
    {"x32", try_x32},
    {"int80", try_int80},
    {"tiocsti", try_tiocsti},
    {"tioclinux", try_tioclinux},
    {"tiocsctty", try_tiocsctty},
    {"mknod", try_mknod},
    {"map_wx", try_map_wx},
    {"protect_x", try_protect_x},
    {"pkey_protect_x", try_pkey_protect_x},
    {"memfd", try_memfd},
    {"memory_write", try_memory_write},
    {"memory_map", try_memory_map},
    {"rlimit", try_rlimit},
    {"dumpable", try_dumpable},
    {"personality", try_personality},
    {"syscall", try_syscall},
    {"send_fds", try_send_fds},
};

static void show_folder(FILE *out, const char *path, int links)
{
    DIR *d = opendir(path);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (entry->d_name[0] == '.' || (links && atoi(entry->d_name) == dirfd(d)))
            continue;
        char name[512], target[256] = "";
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (links && readlink(name, target, sizeof(target) - 1) < 0)
            strcpy(target, "?");
        fprintf(out, links ? "%s=%s " : "%s%s ", entry->d_name, target);
    }
    if (d)
        closedir(d);
}

static void show(FILE *out, const char *what, char **envp)
{
    if (strcmp(what, "fds") == 0) {
        show_folder(out, "/proc/self/fd", 1);
    } else if (strcmp(what, "root") == 0) {
        static const char *const folders[] = {"/", "/dev", "/qemu", "/lib", "/usr"};
        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
            fprintf(out, "%s: ", folders[i]);
            show_folder(out, folders[i], 0);
        }
    } else if (strcmp(what, "proc") == 0) {
        show_folder(out, "/proc", 0);
    } else if (strcmp(what, "env") == 0) {
        for (; *envp; envp++)
            fprintf(out, "%s ", *envp);
    } else if (strcmp(what, "ids") == 0) {
        gid_t groups[32];
        fprintf(out, "pid=%d uid=%u gid=%u groups=%d sid=%d", getpid(), getuid(), getgid(), getgroups(32, groups),
                getsid(0));
    } else if (strcmp(what, "interfaces") == 0) {
        show_folder(out, "/proc/self/net/dev_snmp6", 0);
    } else if (strcmp(what, "mounts") == 0) {
        FILE *f = fopen("/proc/self/mounts", "r");
        for (int c; f && (c = getc(f)) != EOF;)
            putc(c == '\n' ? ';' : c, out);
    } else if (strcmp(what, "limits") == 0) {
        static const int limits[] = {RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_NPROC, RLIMIT_FSIZE, RLIMIT_MEMLOCK};
        for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
            struct rlimit l = {0};
            getrlimit((__rlimit_resource_t)limits[i], &l);
            fprintf(out, "%llu ", (unsigned long long)l.rlim_max);
        }
    }
    fputc('\n', out);
}

static void *thread_sleep(void *arg)
{
    for (;;)
        sleep(1000);
    return arg;
}

static int threads_start(int wanted)
{
    int count = 0;
    for (pthread_t thread; count < wanted && pthread_create(&thread, NULL, thread_sleep, NULL) == 0;)
        count++;
    return count;
}

static void serve(FILE *in, FILE *out, char **envp)
{
    char line[1024];
    while (fgets(line, sizeof(line), in)) {
        line[strcspn(line, "\n")] = '\0';
        char *arg = strchr(line, ' ');
        if (arg)
            *arg++ = '\0';
        if (strcmp(line, "show") == 0) {
            show(out, arg ? arg : "", envp);
        } else if (strcmp(line, "eat") == 0) {
            for (size_t left = arg ? strtoul(arg, NULL, 10) : 0; left; left--) {
                char *mib = malloc(1 << 20);
                if (!mib)
                    break;
                memset(mib, 1, 1 << 20);
            }
        } else if (strcmp(line, "threads") == 0) {
            fprintf(out, "%d\n", threads_start(arg ? atoi(arg) : 0));
        } else if (strcmp(line, "exit") == 0) {
            _exit(arg ? atoi(arg) : 0);
        } else {
            const char *said = "unknown";
            long r = 0;
            for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++)
                if (strcmp(attempts[i].name, line) == 0) {
                    errno = 0;
                    r = attempts[i].run(arg ? arg : "");
                    said = r < 0 ? "refused" : "worked";
                }
            fprintf(out, "%s %s\n", said, r < 0 ? strerrorname_np(errno) : "");
        }
        fflush(out);
    }
}

int main(int argc, char **argv, char **envp)
{
    (void)argc;
    (void)argv;
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        conn = accept4(QMP_FD, NULL, NULL, SOCK_CLOEXEC);
        if (conn < 0)
            return 3;
        FILE *in = fdopen(conn, "r"), *out = fdopen(dup(conn), "w");
        serve(in, out, envp);
        fclose(in);
        fclose(out);
    }
}

/* space-priv: the one process that keeps root. Started by spaced with its end of a SOCK_SEQPACKET pair; see
 * priv_proto.h for what it does and server.c for how.
 *
 *   space-priv --fd N --qemu PATH --data FOLDER… --jail PATH [--lock N [--lock-first ID --lock-count C]]
 *
 * It reads no file's content but /proc and cgroup files, knows no JSON, and has no other input. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/str.h"
#include "priv/server.h"

#define LOCK_TIMEOUT_MS 10000

static int usage(void)
{
    fputs("space-priv is started by spaced: --fd N --qemu PATH --data FOLDER --jail PATH [--lock N]\n", stderr);
    return PRIV_EXIT_START;
}

static bool fd_parse(const char *text, int *ret_fd)
{
    uint64_t value;
    if (!str_to_u64(text, 3, 1023, &value) || fcntl((int)value, F_SETFD, FD_CLOEXEC) < 0)
        return false;
    *ret_fd = (int)value;
    return true;
}

/* One space-priv at a time for a range of ids: an earlier one may be about to end, and a machine of it about to be
 * executed. The byte at an id's offset stands for the id, so that ranges that overlap exclude each other too; a count of
 * 0 is the whole file. The lock is the open file's, which a machine on its way shares (fcntl(2), F_OFD_SETLK). */
static bool lock_take(int fd, uint64_t first, uint64_t count)
{
    uint64_t deadline = clock_mono_ms() + LOCK_TIMEOUT_MS;
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)first, .l_len = (off_t)count};
    while (fcntl(fd, F_OFD_SETLK, &range) < 0) {
        if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || clock_mono_ms() >= deadline)
            return false;
        poll(NULL, 0, 2);
    }
    return true;
}

/* The three standard descriptors are there, whatever the parent left. */
static bool standard_fds_open(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd < 3);
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

/* Say why not, as the answer to the greeting: an answer to an unread one would be lost when this end closes. */
static int start_refuse(int sock, uint32_t stage)
{
    union priv_message m;
    int fds[PRIV_FDS_MAX];
    size_t fd_count = 0;
    ssize_t len = priv_message_receive(sock, &m, fds, &fd_count);
    if (len < 0 || !priv_request_valid(&m, (size_t)len, fd_count) || m.header.type != PRIV_HELLO)
        return len == 0 ? PRIV_EXIT_PEER_GONE : PRIV_EXIT_PROTOCOL;
    union priv_message a = {.failed = {.header = {.magic = PRIV_MAGIC, .type = PRIV_FAILED, .tag = m.header.tag},
                                       .code = stage == JAIL_STAGE_LOCK ? ERR_CONFLICT : ERR_NOT_FOUND,
                                       .errnum = stage == JAIL_STAGE_LOCK ? EBUSY : ENOENT,
                                       .stage = stage}};
    priv_message_send(sock, &a, NULL, 0);
    return PRIV_EXIT_START;
}

int main(int argc, char **argv)
{
    static char qemu[PATH_MAX], jail[PATH_MAX], data[QEMU_DATA_MAX][PATH_MAX];
    struct launch_paths paths = {.lock_fd = -1};
    int sock = -1;
    uint64_t lock_first = 0, lock_count = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        bool good = true;
        if (str_eq(name, "--fd"))
            good = fd_parse(value, &sock);
        else if (str_eq(name, "--lock"))
            good = fd_parse(value, &paths.lock_fd);
        else if (str_eq(name, "--lock-first"))
            good = str_to_u64(value, 0, PRIV_UID_MAX, &lock_first);
        else if (str_eq(name, "--lock-count"))
            good = str_to_u64(value, 0, PRIV_UID_MAX, &lock_count);
        else if (str_eq(name, "--qemu"))
            paths.qemu = realpath(value, qemu);
        else if (str_eq(name, "--jail"))
            paths.jail = realpath(value, jail);
        else if (str_eq(name, "--data") && paths.data_count < QEMU_DATA_MAX)
            good = (paths.data[paths.data_count] = realpath(value, data[paths.data_count])) && ++paths.data_count;
        else
            return usage();
        if (!good) {
            fprintf(stderr, "space-priv: %s %s: not usable\n", name, value);
            return PRIV_EXIT_START;
        }
    }
    if (argc % 2 == 0 || sock < 0 || !paths.data_count)
        return usage();
    if (!standard_fds_open())
        return PRIV_EXIT_SYSTEM;

    /* A terminal's or a service manager's signals are for spaced: this process ends when its peer does. */
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        signal(ignored[i], SIG_IGN);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    umask(0077);
    if (chdir("/") < 0)
        return PRIV_EXIT_SYSTEM;

    uint32_t stage = JAIL_STAGE_NONE;
    if (!paths.qemu)
        stage = JAIL_STAGE_QEMU_FILE;
    else if (!paths.jail)
        stage = JAIL_STAGE_JAIL_FILE;
    else if (paths.lock_fd >= 0 && !lock_take(paths.lock_fd, lock_first, lock_count))
        stage = JAIL_STAGE_LOCK;
    return stage ? start_refuse(sock, stage) : server_run(sock, &paths);
}

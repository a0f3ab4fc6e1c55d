/* See daemon.h. */
#include "bin/daemon.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "store/api_key.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

char *daemon_config_path(const struct config *defaults, int argc, char **argv)
{
    const char *state = defaults->state_dir, *variable = getenv("SPACE_STATE_DIR");
    if (variable && *variable)
        state = variable;
    for (int i = 1; i < argc; i++) {
        if (str_starts(argv[i], "--state-dir="))
            state = argv[i] + strlen("--state-dir=");
        else if (str_eq(argv[i], "--state-dir") && i + 1 < argc)
            state = argv[i + 1];
    }
    return xasprintf("%s/config", state);
}

void daemon_process_setup(void)
{
    struct rlimit none = {0, 0}, files;
    signal(SIGPIPE, SIG_IGN);
    umask(077);
    setrlimit(RLIMIT_CORE, &none);
    /* As many descriptors as the operator allows, not as few as a shell asks for. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int daemon_state_folder(const struct config *c, int *ret_lock_fd, struct err *e)
{
    int r = dir_make(c->state_dir, 0700, e);
    if (r < 0)
        return r;
    struct stat st;
    if (stat(c->state_dir, &st) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "look at %s", c->state_dir);
    if (geteuid() == 0 && st.st_uid != 0 && st.st_uid != c->uid_base)
        return err_set(e, ERR_CONFLICT,
                       "%s belongs to uid %u, but uid_base is %u: start with the uid_base that it was made "
                       "with, or give all of it to the new one",
                       c->state_dir, st.st_uid, c->uid_base);
    if (geteuid() == 0 && chown(c->state_dir, c->uid_base, c->uid_base) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "give %s to uid %u", c->state_dir, c->uid_base);
    if (chmod(c->state_dir, 0700) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "set the permissions of %s", c->state_dir);
    _cleanup_free_ char *path = xasprintf("%s/spaced.pid", c->state_dir);
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? err_set(e, ERR_CONFLICT, "%s is in use by another spaced", c->state_dir)
                                    : err_errno(e, ERR_SYSTEM, errno, "lock %s", path);
    char text[16];
    int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
        return err_errno(e, ERR_SYSTEM, errno, "write %s", path);
    *ret_lock_fd = steal_fd(&fd);
    return 0;
}

int daemon_first_key(const struct config *c, struct store *store, struct err *e)
{
    _cleanup_free_ char *path = xasprintf("%s/admin.key", c->state_dir);
    _cleanup_buf_ struct buf content = BUF_MAX(256);
    char secret[STORE_SECRET_SIZE];
    int r = file_read(path, 200, &content, e);
    if (r < 0 && r != ERR_NOT_FOUND)
        return r;
    char *known = content.len ? buf_steal_str(&content) : NULL;
    if (known)
        known[strcspn(known, "\r\n")] = '\0';
    r = store_api_key_ensure_admin(store, known, clock_wall_ms(), secret, e);
    if (known)
        wipe(known, strlen(known));
    free(known);
    if (r <= 0)
        return r;
    char line[STORE_SECRET_SIZE + 1];
    int n = snprintf(line, sizeof(line), "%s\n", secret);
    r = file_write_atomic(path, line, (size_t)n, 0600, e);
    wipe(line, sizeof(line));
    wipe(secret, sizeof(secret));
    return r;
}

/* "127.0.0.1:7777", "[::1]:7777" */
static int split_address(const char *listen, char *ret_host, size_t size, uint16_t *ret_port, struct err *e)
{
    const char *colon = strrchr(listen, ':');
    uint64_t port;
    size_t len = colon ? (size_t)(colon - listen) : 0;
    if (!colon || !str_to_u64(colon + 1, 0, 65535, &port))
        return err_set(e, ERR_INVALID, "listen = %s: expected ADDRESS:PORT", listen);
    if (len >= 2 && listen[0] == '[' && listen[len - 1] == ']') {
        listen++;
        len -= 2;
    }
    if (len == 0 || len >= size)
        return err_set(e, ERR_INVALID, "listen: expected ADDRESS:PORT");
    memcpy(ret_host, listen, len);
    ret_host[len] = '\0';
    *ret_port = (uint16_t)port;
    return 0;
}

int daemon_listen(const struct config *c, struct http_server *server, struct err *e)
{
    char host[64] = "", url[128] = "";
    uint16_t port = 0;
    int r;
    if (c->listen_unix[0] && (r = http_server_listen_unix(server, c->listen_unix, 0660, e)) < 0)
        return r;
    if (c->listen[0]) {
        if ((r = split_address(c->listen, host, sizeof(host), &port, e)) < 0 ||
            (r = http_server_listen_tcp(server, host, port, &port, e)) < 0)
            return r;
        const char *shown = str_eq(host, "0.0.0.0") ? "127.0.0.1" : str_eq(host, "::") ? "::1" : host;
        snprintf(url, sizeof(url), strchr(shown, ':') ? "http://[%s]:%u\n" : "http://%s:%u\n", shown, port);
    } else
        snprintf(url, sizeof(url), "unix:%.100s\n", c->listen_unix);
    _cleanup_free_ char *path = xasprintf("%s/url", c->state_dir);
    if ((r = file_write_atomic(path, url, strlen(url), 0644, e)) < 0)
        return r;
    url[strcspn(url, "\n")] = '\0';
    log_info("listening", F_STR("url", url), F_STR("unix", c->listen_unix[0] ? c->listen_unix : NULL));
    return 0;
}

/* Files that root made in the state folder before it stopped being root; folders below are the node's affair. */
static int give_files(const struct config *c, struct err *e)
{
    DIR *dir = opendir(c->state_dir);
    struct dirent *entry;
    int r = 0;
    if (!dir)
        return err_errno(e, ERR_SYSTEM, errno, "read %s", c->state_dir);
    while (r == 0 && (entry = readdir(dir))) {
        struct stat st;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode) || st.st_uid != 0)
            continue;
        if (fchownat(dirfd(dir), entry->d_name, c->uid_base, c->uid_base, AT_SYMLINK_NOFOLLOW) < 0)
            r = err_errno(e, ERR_SYSTEM, errno, "give %s/%s to uid %u", c->state_dir, entry->d_name, c->uid_base);
    }
    closedir(dir);
    return r;
}

int daemon_drop_privileges(const struct config *c, struct err *e)
{
    if (geteuid() == 0) {
        int r = give_files(c, e);
        if (r < 0)
            return r;
        if (setgroups(0, NULL) < 0 || setresgid(c->uid_base, c->uid_base, c->uid_base) < 0 ||
            setresuid(c->uid_base, c->uid_base, c->uid_base) < 0)
            return err_errno(e, ERR_SYSTEM, errno, "become uid %u", c->uid_base);
        if (setresuid(0, 0, 0) == 0)
            return err_set(e, ERR_INTERNAL, "root could be had again after it was given up");
        /* Descriptors are counted in /proc/self/fd, which a process that is not dumpable cannot read; there are no core
         * dumps (RLIMIT_CORE) and no other program runs under this uid. */
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "give up new privileges");
    return 0;
}

void daemon_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, len);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

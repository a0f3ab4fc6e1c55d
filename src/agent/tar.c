/* Archives from and to a tree (see tar.h). */
#include "agent/tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "agent/paths.h"
#include "agent/tar_format.h"
#include "base/file.h"
#include "base/str.h"

#define COPY_CHUNK (64 * 1024)

/* --- writing --------------------------------------------------------------------------------------------------------
 */

struct tar_writer {
    int out;
    struct buf header;
    struct tar_entry entry;
    uint8_t *chunk;
    struct err *e;
};

static int put(struct tar_writer *w, const void *data, size_t len)
{
    int r = fd_write_all(w->out, data, len);
    return r < 0 ? err_errno(w->e, ERR_CANCELLED, -r, "send the archive") : 0;
}

/* Exactly `size` bytes of content, with zeros for what is not there any more: the header has gone out. */
static int put_content(struct tar_writer *w, int fd, uint64_t size)
{
    uint64_t left = size;
    int r = 0;
    while (left > 0 && r == 0) {
        size_t want = (size_t)MIN(left, (uint64_t)COPY_CHUNK);
        ssize_t n = read(fd, w->chunk, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            n = (ssize_t)want;
            memset(w->chunk, 0, want);
        }
        r = put(w, w->chunk, (size_t)n);
        left -= (uint64_t)n;
    }
    memset(w->chunk, 0, TAR_BLOCK);
    return r < 0 ? r : put(w, w->chunk, tar_padding(size));
}

static int put_header(struct tar_writer *w, const struct stat *st, char type, uint64_t size)
{
    struct tar_entry *t = &w->entry;
    t->type = type;
    t->mode = st->st_mode & 07777;
    t->uid = st->st_uid;
    t->gid = st->st_gid;
    t->mtime = st->st_mtim.tv_sec;
    t->size = size;
    buf_reset(&w->header);
    tar_header_put(&w->header, t);
    t->link[0] = '\0';
    return put(w, buf_data(&w->header), w->header.len);
}

static int put_tree(struct tar_writer *w, int dir, size_t path_len, int depth);

/* The entry `name` of `dir`; w->entry.path holds its path. */
static int put_entry(struct tar_writer *w, int dir, const char *name, int depth)
{
    struct stat st;
    char *path = w->entry.path;
    size_t len = strlen(path);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* gone meanwhile */
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlinkat(dir, name, w->entry.link, AGENT_PATH_MAX);
        w->entry.link[MAX(n, 0)] = '\0';
        return put_header(w, &st, TAR_SYMLINK, 0);
    }
    if (S_ISFIFO(st.st_mode))
        return put_header(w, &st, TAR_FIFO, 0);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return 0;
    _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? 0 : path_error(w->e, errno, "read", path);
    if (S_ISREG(st.st_mode)) {
        int r = put_header(w, &st, TAR_REGULAR, (uint64_t)st.st_size);
        return r < 0 ? r : put_content(w, fd, (uint64_t)st.st_size);
    }
    if (len + 1 > AGENT_PATH_MAX || depth >= LIMIT_TREE_DEPTH)
        return err_set(w->e, ERR_TOO_LARGE, "the tree is too deep at %.200s", path);
    path[len] = '/';
    path[len + 1] = '\0';
    int r = put_header(w, &st, TAR_DIRECTORY, 0);
    return r < 0 ? r : put_tree(w, fd, len + 1, depth + 1);
}

static int put_tree(struct tar_writer *w, int dir, size_t path_len, int depth)
{
    int copy = fcntl(dir, F_DUPFD_CLOEXEC, 3), r = 0;
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    if (!stream) {
        cleanup_close(&copy);
        return path_error(w->e, errno, "read folder", w->entry.path);
    }
    for (struct dirent *entry; r == 0 && (entry = readdir(stream));) {
        size_t len = strlen(entry->d_name);
        if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
            continue;
        if (path_len + len > AGENT_PATH_MAX) {
            r = err_set(w->e, ERR_TOO_LARGE, "a path is too long below %.200s", w->entry.path);
            break;
        }
        memcpy(w->entry.path + path_len, entry->d_name, len + 1);
        r = put_entry(w, dir, entry->d_name, depth);
    }
    closedir(stream);
    w->entry.path[path_len] = '\0';
    return r;
}

int tar_write(int fd, const char *name, int out, struct err *e)
{
    struct tar_writer *w = NEW(struct tar_writer);
    struct stat st;
    *w = (struct tar_writer){.out = out, .header = BUF_MAX(128 * KIB), .chunk = xmalloc(COPY_CHUNK), .e = e};
    int r = fstat(fd, &st) < 0 ? path_error(e, errno, "look at", name) : 0;
    if (r == 0 && S_ISDIR(st.st_mode)) {
        strcpy(w->entry.path, "./");
        r = put_header(w, &st, TAR_DIRECTORY, 0);
        w->entry.path[0] = '\0';
        if (r == 0)
            r = put_tree(w, fd, 0, 0);
    } else if (r == 0) {
        snprintf(w->entry.path, sizeof(w->entry.path), "%s", name);
        r = put_header(w, &st, TAR_REGULAR, (uint64_t)st.st_size);
        if (r == 0)
            r = put_content(w, fd, (uint64_t)st.st_size);
    }
    if (r == 0) {
        memset(w->chunk, 0, 2 * TAR_BLOCK);
        r = put(w, w->chunk, 2 * TAR_BLOCK);
    }
    buf_done(&w->header);
    free(w->chunk);
    free(w);
    return r;
}

/* --- unpacking ------------------------------------------------------------------------------------------------------
 */

struct tar_reader {
    int root;
    int fd; /* of the regular file under way, -1 */
    bool own;
    uint64_t entries;
    struct timespec times[2];
    char path[AGENT_PATH_MAX + 1];
};

/* `path` without "./" at its beginning and '/' at its end; false when it is not one below the root. */
static bool clean(const char *path, char to[AGENT_PATH_MAX + 1])
{
    while (path[0] == '.' && path[1] == '/')
        for (path += 2; *path == '/'; path++)
            ;
    if (path[0] == '/')
        return false;
    size_t len = strlen(path);
    while (len > 0 && path[len - 1] == '/')
        len--;
    memcpy(to, path, len);
    to[len] = '\0';
    for (const char *at = to; at && *at; at = strchr(at, '/'), at = at ? at + 1 : NULL)
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return false;
    if (str_eq(to, "."))
        to[0] = '\0';
    return true;
}

/* The folder of `path` below the root, made if it is missing, and the last component. */
static int open_parent(struct tar_reader *t, const char *path, int *ret_dir, const char **ret_name, struct err *e)
{
    const char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    if (!slash) {
        *ret_dir = fcntl(t->root, F_DUPFD_CLOEXEC, 3);
        return *ret_dir < 0 ? path_error(e, errno, "open the folder of", path) : 0;
    }
    _cleanup_free_ char *folder = xstrndup(path, (size_t)(slash - path));
    int dir = path_openat(t->root, folder, O_PATH | O_DIRECTORY, 0, true);
    for (char *at = folder; dir == -ENOENT && at;) {
        at = strchr(at, '/');
        if (at)
            *at = '\0';
        _cleanup_close_ int above = -1;
        const char *name;
        int r = open_parent(t, folder, &above, &name, e);
        if (r < 0)
            return r;
        if (mkdirat(above, name, 0755) < 0 && errno != EEXIST)
            return path_error(e, errno, "make folder", folder);
        if (at)
            *at++ = '/';
    }
    if (dir == -ENOENT)
        dir = path_openat(t->root, folder, O_PATH | O_DIRECTORY, 0, true);
    if (dir < 0)
        return path_error(e, -dir, "open folder", folder);
    *ret_dir = dir;
    return 0;
}

static int make_hardlink(struct tar_reader *t, const struct tar_entry *entry, int dir, const char *name, struct err *e)
{
    char target[AGENT_PATH_MAX + 1];
    const char *target_name;
    _cleanup_close_ int target_dir = -1;
    if (!clean(entry->link, target) || target[0] == '\0')
        return err_set(e, ERR_INVALID, "the archive links to %.200s, outside of the folder", entry->link);
    int r = open_parent(t, target, &target_dir, &target_name, e);
    if (r < 0)
        return r;
    if (linkat(target_dir, target_name, dir, name, 0) < 0)
        return path_error(e, errno, "link", t->path);
    return 0;
}

/* The folder itself stays if there is one. */
static int make_folder(int dir, const char *name, const struct tar_entry *entry, int *ret_fd)
{
    if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return fchmod(fd, entry->mode | 0700) < 0 ? -errno : 0; /* what comes below must be writable */
}

static int make(struct tar_reader *t, const struct tar_entry *entry, int dir, const char *name, struct err *e)
{
    _cleanup_close_ int fd = -1;
    int r = 0;
    if (entry->type != TAR_DIRECTORY && unlinkat(dir, name, 0) < 0 && errno != ENOENT)
        return path_error(e, errno, "replace", t->path);
    switch (entry->type) {
    case TAR_DIRECTORY:
        r = make_folder(dir, name, entry, &fd);
        break;
    case TAR_SYMLINK:
        r = symlinkat(entry->link, dir, name) < 0 ? -errno : 0;
        break;
    case TAR_FIFO:
        r = mkfifoat(dir, name, entry->mode & 0777) < 0 ? -errno : 0;
        break;
    case TAR_HARDLINK:
        return make_hardlink(t, entry, dir, name, e);
    default:
        fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        r = fd < 0 ? -errno : 0;
    }
    if (r == 0 && t->own && fchownat(dir, name, entry->uid, entry->gid, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    if (r == 0 && entry->type == TAR_REGULAR && fchmod(fd, entry->mode) < 0)
        r = -errno;
    if (r < 0)
        return path_error(e, -r, "unpack", t->path);
    if (entry->type == TAR_REGULAR)
        t->fd = steal_fd(&fd);
    else
        utimensat(dir, name, t->times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

static int on_entry(void *arg, const struct tar_entry *entry, struct err *e)
{
    struct tar_reader *t = arg;
    const char *name;
    _cleanup_close_ int dir = -1;
    if (!clean(entry->path, t->path))
        return err_set(e, ERR_INVALID, "the archive leads outside of the folder: %.200s", entry->path);
    t->times[0] = t->times[1] = (struct timespec){.tv_sec = (time_t)entry->mtime};
    bool known = strchr("01256", entry->type) != NULL;
    if (t->path[0] == '\0' || !known) /* the folder itself; devices and the like */
        return 0;
    int r = open_parent(t, t->path, &dir, &name, e);
    if (r == 0)
        r = make(t, entry, dir, name, e);
    t->entries++;
    return r;
}

static int on_data(void *arg, const uint8_t *data, size_t len, struct err *e)
{
    struct tar_reader *t = arg;
    int r = t->fd >= 0 ? fd_write_all(t->fd, data, len) : 0;
    return r < 0 ? path_error(e, -r, "unpack", t->path) : 0;
}

static int on_end(void *arg, struct err *e ATTR_UNUSED)
{
    struct tar_reader *t = arg;
    if (t->fd >= 0)
        futimens(t->fd, t->times);
    cleanup_close(&t->fd);
    t->fd = -1;
    return 0;
}

int tar_extract(int fd, int in, bool own, uint64_t *ret_entries, struct err *e)
{
    struct tar_reader *t = NEW(struct tar_reader);
    struct tar_parser *p = NEW(struct tar_parser);
    _cleanup_free_ uint8_t *chunk = xmalloc(COPY_CHUNK);
    int r = 0;
    *t = (struct tar_reader){.root = fd, .fd = -1, .own = own};
    tar_parser_init(p);
    p->entry = on_entry;
    p->data = on_data;
    p->end = on_end;
    p->arg = t;
    for (ssize_t n; r == 0 && (n = read(in, chunk, COPY_CHUNK)) != 0;) {
        if (n < 0 && errno != EINTR)
            r = err_errno(e, ERR_CANCELLED, errno, "receive the archive");
        else if (n > 0)
            r = tar_parser_feed(p, chunk, (size_t)n, e);
    }
    if (r == 0)
        r = tar_parser_finish(p, e);
    if (r == 0)
        *ret_entries = t->entries;
    cleanup_close(&t->fd);
    tar_parser_done(p);
    free(p);
    free(t);
    return r;
}

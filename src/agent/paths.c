/* Resolving of paths (see paths.h). */
#include "agent/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include "agent/users.h"
#include "base/str.h"
#include "wire/wire.h"

int path_error(struct err *e, int errnum, const char *what, const char *path)
{
    static const struct {
        int errnum, code;
    } codes[] = {
        {ENOENT, ERR_NOT_FOUND}, {ENOTDIR, ERR_NOT_FOUND},    {EACCES, ERR_FORBIDDEN},       {EPERM, ERR_FORBIDDEN},
        {EEXIST, ERR_CONFLICT},  {ENOTEMPTY, ERR_CONFLICT},   {EBUSY, ERR_CONFLICT},         {EROFS, ERR_STATE},
        {ETXTBSY, ERR_STATE},    {EINVAL, ERR_INVALID},       {EISDIR, ERR_INVALID},         {ELOOP, ERR_INVALID},
        {EXDEV, ERR_INVALID},    {ENAMETOOLONG, ERR_INVALID}, {EOPNOTSUPP, ERR_UNSUPPORTED}, {EMLINK, ERR_LIMIT},
        {EMFILE, ERR_LIMIT},     {ENFILE, ERR_LIMIT},         {EFBIG, ERR_TOO_LARGE},        {ENXIO, ERR_INVALID}};
    int code = ERR_SYSTEM;
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].errnum == errnum)
            code = codes[i].code;
    return err_errno(e, code, errnum, "%s %.300s", what, path);
}

int path_openat(int dir, const char *path, int flags, mode_t mode, bool beneath)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .mode = flags & O_CREAT ? mode : 0,
                           .resolve = RESOLVE_NO_MAGICLINKS | (beneath ? RESOLVE_BENEATH : 0)};
    long fd;
    int tries = 0;
    do /* RESOLVE_BENEATH gives up with EAGAIN when something on the way was moved meanwhile */
        fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));
    while (fd < 0 && errno == EAGAIN && ++tries < 16);
    return fd < 0 ? -errno : (int)fd;
}

/* Cut `path` into folder and last component. */
static bool split(const char *path, char folder[AGENT_PATH_MAX + 1], char name[NAME_MAX + 1])
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    size_t at = len;
    while (at > 0 && path[at - 1] != '/')
        at--;
    if (len - at == 0 || len - at > NAME_MAX || at > AGENT_PATH_MAX)
        return false;
    memcpy(name, path + at, len - at);
    name[len - at] = '\0';
    if (str_eq(name, ".") || str_eq(name, ".."))
        return false;
    memcpy(folder, path, at);
    folder[at] = '\0';
    if (at == 0)
        strcpy(folder, ".");
    return true;
}

int path_parent(const char *path, bool follow, int *ret_dir, char ret_name[NAME_MAX + 1], struct err *e)
{
    char current[AGENT_PATH_MAX + 1], folder[AGENT_PATH_MAX + 1], name[NAME_MAX + 1];
    _cleanup_close_ int dir = -1;
    if (strlen(path) > AGENT_PATH_MAX)
        return path_error(e, ENAMETOOLONG, "resolve", path);
    strcpy(current, path);
    for (int hop = 0; hop < LIMIT_LINK_HOPS; hop++) {
        if (!split(current, folder, name))
            return err_set(e, ERR_INVALID, "%.300s has no last component", path);
        int next = path_openat(dir >= 0 ? dir : AT_FDCWD, folder, O_PATH | O_DIRECTORY, 0, false);
        if (next < 0)
            return path_error(e, -next, "open the folder of", path);
        cleanup_close(&dir);
        dir = next;
        ssize_t n = follow ? readlinkat(dir, name, current, AGENT_PATH_MAX) : -1;
        if (n < 0) { /* no link, or nothing there */
            strcpy(ret_name, name);
            *ret_dir = steal_fd(&dir);
            return 0;
        }
        current[n] = '\0';
    }
    return path_error(e, ELOOP, "resolve", path);
}

int path_make_parents(const char *path, mode_t mode, struct err *e)
{
    _cleanup_free_ char *copy = xstrdup(path);
    _cleanup_close_ int dir = path_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0, false);
    char *rest = copy, *name = strsep(&rest, "/");
    for (; rest; name = strsep(&rest, "/")) { /* the last component is left alone */
        if (!*name)
            continue;
        int next = path_openat(dir, name, O_PATH | O_DIRECTORY, 0, false);
        if (next == -ENOENT && mkdirat(dir, name, mode) < 0 && errno != EEXIST)
            return path_error(e, errno, "make the folders of", path);
        if (next == -ENOENT)
            next = path_openat(dir, name, O_PATH | O_DIRECTORY, 0, false);
        if (next < 0)
            return path_error(e, -next, "make the folders of", path);
        cleanup_close(&dir);
        dir = next;
    }
    return 0;
}

int path_remove_tree(int dir, const char *name, int depth)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (depth >= LIMIT_TREE_DEPTH)
        return -ELOOP;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    DIR *stream = fdopendir(fd);
    if (!stream) {
        close(fd);
        return -ENOMEM;
    }
    int r = 0;
    for (struct dirent *entry; r == 0 && (entry = readdir(stream));)
        if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, ".."))
            r = path_remove_tree(fd, entry->d_name, depth + 1);
    closedir(stream);
    if (r == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        r = -errno;
    return r;
}

static uint64_t type_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return AGENT_FILE_DIRECTORY;
    case S_IFLNK:
        return AGENT_FILE_SYMLINK;
    case S_IFIFO:
        return AGENT_FILE_FIFO;
    case S_IFSOCK:
        return AGENT_FILE_SOCKET;
    case S_IFCHR:
        return AGENT_FILE_CHARACTER;
    case S_IFBLK:
        return AGENT_FILE_BLOCK;
    default:
        return AGENT_FILE_REGULAR;
    }
}

void entry_put(struct buf *b, const char *name, const struct stat *st, const char *target)
{
    char text[LIMIT_USER_NAME];
    wire_put_text(b, AGENT_TAG_ENTRY_NAME, name);
    wire_put_u64(b, AGENT_TAG_ENTRY_TYPE, type_of(st->st_mode));
    wire_put_u64(b, AGENT_TAG_ENTRY_MODE, st->st_mode & 07777);
    wire_put_u64(b, AGENT_TAG_ENTRY_UID, st->st_uid);
    wire_put_u64(b, AGENT_TAG_ENTRY_GID, st->st_gid);
    wire_put_u64(b, AGENT_TAG_ENTRY_SIZE, (uint64_t)st->st_size);
    wire_put_i64(b, AGENT_TAG_ENTRY_MTIME_MS, (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000);
    wire_put_text(b, AGENT_TAG_ENTRY_TARGET, target);
    if (user_name(st->st_uid, text, sizeof(text)))
        wire_put_text(b, AGENT_TAG_ENTRY_OWNER, text);
    if (group_name(st->st_gid, text, sizeof(text)))
        wire_put_text(b, AGENT_TAG_ENTRY_GROUP, text);
}

/* Files of the platform's own (see file.h). */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

int file_read(const char *path, size_t max_bytes, struct buf *ret_content, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_errno(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYSTEM, errno, "open %s", path);
    size_t total = 0;
    for (;;) {
        uint8_t chunk[16384];
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_SYSTEM, errno, "read %s", path);
        if (n == 0)
            return 0;
        total += (size_t)n;
        if (total > max_bytes || !buf_put(ret_content, chunk, (size_t)n))
            return err_set(e, ERR_TOO_LARGE, "%s is larger than %zu bytes", path, max_bytes);
    }
}

int fd_write_all(int fd, const void *data, size_t len)
{
    const uint8_t *p = data;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int dir_sync(const char *path, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "sync folder %s", path);
    return 0;
}

int file_write_atomic(const char *path, const void *data, size_t len, mode_t mode, struct err *e)
{
    _cleanup_free_ char *temporary = xasprintf("%s.XXXXXX", path);
    _cleanup_close_ int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make a temporary file beside %s", path);
    int r = fd_write_all(fd, data, len);
    if (r == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0 || rename(temporary, path) < 0))
        r = -errno;
    if (r < 0) {
        unlink(temporary);
        return err_errno(e, ERR_SYSTEM, -r, "write %s", path);
    }
    return 0;
}

int dir_make(const char *path, mode_t mode, struct err *e)
{
    _cleanup_free_ char *copy = xstrdup(path);
    for (char *p = copy + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char saved = *p;
        *p = '\0';
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            return err_errno(e, ERR_SYSTEM, errno, "make folder %s", copy);
        *p = saved;
        if (!saved)
            break;
    }
    struct stat st;
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(e, ERR_SYSTEM, "%s is not a folder", path);
    return 0;
}

static int remove_at(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int saved = errno;
        close(fd);
        return -saved;
    }
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = remove_at(dirfd(dir), entry->d_name);
    closedir(dir);
    if (result == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        result = -errno;
    return result;
}

int dir_remove_tree(const char *path, struct err *e)
{
    int r = remove_at(AT_FDCWD, path);
    if (r < 0)
        return err_errno(e, ERR_SYSTEM, -r, "remove %s", path);
    return 0;
}

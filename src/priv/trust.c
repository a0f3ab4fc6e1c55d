/* See trust.h. Checked once at start; who can change the answer later is root. */
#include "priv/trust.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

static bool owner_good(const struct stat *st, uid_t owner)
{
    return st->st_uid == 0 || st->st_uid == owner;
}

/* A folder that all may write to is fine on the way when it is sticky: what lies in it can be replaced by its owner
 * alone. */
static bool parent_good(const struct stat *st, uid_t owner)
{
    return owner_good(st, owner) && (!(st->st_mode & (S_IWGRP | S_IWOTH)) || st->st_mode & S_ISVTX);
}

static bool entry_good(const struct stat *st, uid_t owner)
{
    return owner_good(st, owner) && (S_ISLNK(st->st_mode) || !(st->st_mode & (S_IWGRP | S_IWOTH)));
}

static int parents_check(const char *path, uid_t owner, struct err *e)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *slash; (slash = strrchr(folder, '/'));) {
        slash[slash == folder ? 1 : 0] = '\0';
        struct stat st;
        if (lstat(folder, &st) < 0)
            return err_errno(e, ERR_SYSTEM, errno, "look at %s", folder);
        if (!parent_good(&st, owner))
            return err_set(e, ERR_FORBIDDEN, "%s, above %s, can be changed by others", folder, path);
        if (slash == folder)
            break;
    }
    return 0;
}

static int entries_check(const char *path, uid_t owner, struct err *e)
{
    DIR *d = opendir(path);
    if (!d)
        return err_errno(e, ERR_SYSTEM, errno, "open %s", path);
    int r = 0;
    for (struct dirent *entry; !r && (entry = readdir(d));) {
        struct stat st;
        if (strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            r = err_errno(e, ERR_SYSTEM, errno, "look at %s/%s", path, entry->d_name);
        else if (!entry_good(&st, owner))
            r = err_set(e, ERR_FORBIDDEN, "%s/%s can be changed by others", path, entry->d_name);
    }
    closedir(d);
    return r;
}

int trust_check(const char *path, enum trust_kind kind, uid_t owner, struct err *e)
{
    char real[PATH_MAX];
    if (path[0] != '/' || strlen(path) >= sizeof(real))
        return err_set(e, ERR_INVALID, "not an absolute path: %s", path);
    if (!realpath(path, real))
        return err_errno(e, ERR_NOT_FOUND, errno, "find %s", path);
    if (strcmp(real, path) != 0)
        return err_set(e, ERR_FORBIDDEN, "%s is %s by a symbolic link", path, real);
    struct stat st;
    if (lstat(path, &st) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "look at %s", path);
    if (kind == TRUST_FILE ? !S_ISREG(st.st_mode) : !S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is not a %s", path, kind == TRUST_FILE ? "file" : "folder");
    if (!entry_good(&st, owner))
        return err_set(e, ERR_FORBIDDEN, "%s can be changed by others", path);
    int r = parents_check(path, owner, e);
    return r < 0 || kind == TRUST_FILE ? r : entries_check(path, owner, e);
}

/* Operations on names: stat, list, make, move, remove, attributes. Contents are in file_stream.c. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "agent/fs_call.h"
#include "agent/paths.h"
#include "agent/router.h"
#include "base/str.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

/* What `name` in `dir` is; a link's target as text in `ret_target` (empty: none). -errno. */
static int look(int dir, const char *name, struct stat *ret_st, char ret_target[AGENT_PATH_MAX + 1])
{
    ret_target[0] = '\0';
    if (fstatat(dir, name, ret_st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
        return -errno;
    if (S_ISLNK(ret_st->st_mode)) {
        ssize_t n = readlinkat(dir, name, ret_target, AGENT_PATH_MAX);
        ret_target[MAX(n, 0)] = '\0';
    }
    return 0;
}

static int stat_operate(struct fs_call *call)
{
    struct stat st;
    char target[AGENT_PATH_MAX + 1];
    const char *slash = strrchr(call->path, '/');
    _cleanup_close_ int fd = path_openat(AT_FDCWD, call->path, O_PATH | (call->flag ? 0 : O_NOFOLLOW), 0, false);
    int r = fd < 0 ? fd : look(fd, "", &st, target);
    if (r < 0)
        return path_error(&call->e, -r, "look at", call->path);
    entry_put(&call->reply, slash[1] ? slash + 1 : call->path, &st, target[0] ? target : NULL);
    return 0;
}

void stat_get(struct request *r, const struct query *q)
{
    struct fs_call *call = fs_call_new(r, q, stat_operate);
    struct err e;
    if (!call)
        return;
    if (query_flag(q, AGENT_QUERY_FOLLOW, false, &call->flag, &e) < 0)
        fs_call_refuse(call, &e);
    else
        fs_call_submit(call);
}

/* --- list --------------------------------------------------------------------------------------------------------- */

/* The smallest names above `after`, a heap with the largest of them on top: a page of a folder of any size is found
 * with the memory of one page. */
struct page {
    char **names;
    size_t count, max;
    bool more;
};

static void sift_down(struct page *p, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < p->count; i = child) {
        if (child + 1 < p->count && strcmp(p->names[child + 1], p->names[child]) > 0)
            child++;
        if (strcmp(p->names[i], p->names[child]) >= 0)
            return;
        char *swap = p->names[i];
        p->names[i] = p->names[child];
        p->names[child] = swap;
    }
}

static void page_add(struct page *p, const char *name)
{
    if (p->count == p->max) {
        p->more = true;
        if (strcmp(name, p->names[0]) >= 0)
            return;
        free(p->names[0]);
        p->names[0] = xstrdup(name);
        sift_down(p, 0);
        return;
    }
    size_t i = p->count++;
    p->names[i] = xstrdup(name);
    for (; i > 0 && strcmp(p->names[i], p->names[(i - 1) / 2]) > 0; i = (i - 1) / 2) {
        char *swap = p->names[i];
        p->names[i] = p->names[(i - 1) / 2];
        p->names[(i - 1) / 2] = swap;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int dir_operate(struct fs_call *call)
{
    struct page page = {.max = (size_t)call->limit};
    _cleanup_close_ int fd = path_openat(AT_FDCWD, call->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0, false);
    if (fd < 0)
        return path_error(&call->e, -fd, "open folder", call->path);
    DIR *dir = fdopendir(dup(fd));
    if (!dir)
        return path_error(&call->e, errno, "read folder", call->path);
    page.names = xcalloc(page.max, sizeof(*page.names));
    for (struct dirent *entry; (entry = readdir(dir));)
        if (!str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..") &&
            (!call->name || strcmp(entry->d_name, call->name) > 0))
            page_add(&page, entry->d_name);
    closedir(dir);
    qsort(page.names, page.count, sizeof(*page.names), by_name);
    for (size_t i = 0; i < page.count; i++) {
        struct stat st;
        char target[AGENT_PATH_MAX + 1];
        if (call->reply.len > LIMIT_DIR_REPLY)
            page.more = true;
        else if (look(fd, page.names[i], &st, target) == 0) { /* gone meanwhile: left out */
            size_t mark = wire_begin(&call->reply, AGENT_TAG_DIR_ENTRY);
            entry_put(&call->reply, page.names[i], &st, target[0] ? target : NULL);
            wire_end(&call->reply, mark);
        }
        free(page.names[i]);
    }
    free(page.names);
    wire_put_u64(&call->reply, AGENT_TAG_DIR_MORE, page.more);
    return 0;
}

void dir_get(struct request *r, const struct query *q)
{
    struct fs_call *call = fs_call_new(r, q, dir_operate);
    const char *after = query_get(q, AGENT_QUERY_AFTER);
    struct err e;
    if (!call)
        return;
    call->name = after ? xstrdup(after) : NULL;
    if (query_u64(q, AGENT_QUERY_LIMIT, AGENT_DIR_PAGE_MAX, 1, AGENT_DIR_PAGE_MAX, &call->limit, &e) < 0)
        fs_call_refuse(call, &e);
    else
        fs_call_submit(call);
}

/* --- make, move, remove, attributes
 * ----------------------------------------------------------------------------------- */

static int mkdir_operate(struct fs_call *call)
{
    char name[NAME_MAX + 1];
    _cleanup_close_ int dir = -1;
    mode_t mode = call->mode == UINT32_MAX ? 0755 : call->mode;
    int r = call->flag ? path_make_parents(call->path, 0755, &call->e) : 0;
    if (r == 0)
        r = path_parent(call->path, false, &dir, name, &call->e);
    if (r < 0)
        return r;
    struct stat st;
    if (mkdirat(dir, name, mode) < 0) {
        int saved = errno;
        if (saved == EEXIST && call->flag && fstatat(dir, name, &st, 0) == 0 && S_ISDIR(st.st_mode))
            return 0; /* with parents an existing folder is fine, as for mkdir -p */
        return path_error(&call->e, saved, "make folder", call->path);
    }
    if ((mode & 07000) && fchmodat(dir, name, mode, 0) < 0)
        return path_error(&call->e, errno, "set the mode of", call->path);
    return 0;
}

void mkdir_post(struct request *r, const struct query *q)
{
    struct fs_call *call = fs_call_new(r, q, mkdir_operate);
    struct err e;
    if (!call)
        return;
    if (query_flag(q, AGENT_QUERY_PARENTS, false, &call->flag, &e) < 0 || query_mode(q, &call->mode, &e) < 0)
        fs_call_refuse(call, &e);
    else
        fs_call_submit(call);
}

static int move_operate(struct fs_call *call)
{
    char name[NAME_MAX + 1], to_name[NAME_MAX + 1];
    _cleanup_close_ int dir = -1, to_dir = -1;
    int r = path_parent(call->path, false, &dir, name, &call->e);
    if (r == 0)
        r = path_parent(call->to, false, &to_dir, to_name, &call->e);
    if (r < 0)
        return r;
    if (renameat2(dir, name, to_dir, to_name, call->flag ? 0 : RENAME_NOREPLACE) < 0) {
        if (errno == EXDEV)
            return err_set(&call->e, ERR_UNSUPPORTED, "%.200s and %.200s are on different file systems", call->path,
                           call->to);
        return path_error(&call->e, errno, errno == EEXIST ? "there is already" : "move",
                          errno == EEXIST ? call->to : call->path);
    }
    return 0;
}

void move_post(struct request *r, const struct query *q)
{
    struct query renamed = *q; /* fs_call_new reads `path` */
    const char *to;
    struct err e;
    for (size_t i = 0; i < renamed.count; i++)
        if (str_eq(renamed.name[i], AGENT_QUERY_FROM))
            renamed.name[i] = (char *)(uintptr_t)AGENT_QUERY_PATH;
    struct fs_call *call = fs_call_new(r, &renamed, move_operate);
    if (!call)
        return;
    if (query_path(q, AGENT_QUERY_TO, &to, &e) < 0 || query_flag(q, AGENT_QUERY_REPLACE, false, &call->flag, &e) < 0) {
        fs_call_refuse(call, &e);
        return;
    }
    call->to = xstrdup(to);
    fs_call_submit(call);
}

static int delete_operate(struct fs_call *call)
{
    char name[NAME_MAX + 1];
    _cleanup_close_ int dir = -1;
    int r = path_parent(call->path, false, &dir, name, &call->e);
    if (r < 0)
        return r;
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return path_error(&call->e, errno, "remove", call->path);
    if (call->flag)
        r = path_remove_tree(dir, name, 0);
    else if (unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0)
        r = -errno;
    return r < 0 ? path_error(&call->e, -r, "remove", call->path) : 0;
}

void file_delete(struct request *r, const struct query *q)
{
    struct fs_call *call = fs_call_new(r, q, delete_operate);
    struct err e;
    if (!call)
        return;
    if (query_flag(q, AGENT_QUERY_RECURSIVE, false, &call->flag, &e) < 0)
        fs_call_refuse(call, &e);
    else
        fs_call_submit(call);
}

static int attr_operate(struct fs_call *call)
{
    uid_t uid = (uid_t)-1;
    gid_t gid = (gid_t)-1;
    struct user owner;
    int r = 0;
    if (call->name && (r = user_find(call->name, &owner, &call->e)) == 0)
        uid = owner.uid;
    if (r == 0 && call->group)
        r = group_find(call->group, &gid, &call->e);
    if (r < 0)
        return r;
    char name[NAME_MAX + 1] = ".";
    _cleanup_close_ int dir = -1;
    if (call->path[strspn(call->path, "/")] == '\0')
        dir = path_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0, false);
    else if ((r = path_parent(call->path, true, &dir, name, &call->e)) < 0)
        return r;
    if (fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
        return path_error(&call->e, errno, "change the owner of", call->path);
    if (call->mode != UINT32_MAX && fchmodat(dir, name, call->mode, 0) < 0)
        return path_error(&call->e, errno, "change the mode of", call->path);
    return 0;
}

void attr_post(struct request *r, const struct query *q)
{
    struct fs_call *call = fs_call_new(r, q, attr_operate);
    const char *owner = query_get(q, AGENT_QUERY_OWNER), *group = query_get(q, AGENT_QUERY_GROUP);
    struct err e;
    if (!call)
        return;
    call->name = owner ? xstrdup(owner) : NULL;
    call->group = group ? xstrdup(group) : NULL;
    if (query_mode(q, &call->mode, &e) < 0)
        fs_call_refuse(call, &e);
    else
        fs_call_submit(call);
}

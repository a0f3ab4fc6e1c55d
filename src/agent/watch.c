/* GET /v1/watch: changes below a path as a stream of records, from inotify(7).
 *
 * Theory of operation. A watch has one inotify descriptor and a node for each watched folder: its kernel watch number
 * and its path relative to the root of the watch. The first walk over the tree runs on a worker thread, which alone
 * touches the watch until it is done; then the loop reads events. A folder that appears is watched and walked at once;
 * what was already in it is reported as created, because its events came before its watch. A move inside of the tree
 * has two halves with one cookie; a first half without a second in time is a removal. When events are lost, or more
 * are waiting than a slow reader may have, or folders are too many, the reader gets an overflow event and has to look
 * for itself. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <uthash.h>

#include "agent/fs_call.h"
#include "agent/paths.h"
#include "agent/router.h"
#include "base/str.h"

#define EVENTS                                                                                                         \
    (IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF |     \
     IN_EXCL_UNLINK)

struct watch_node {
    int wd;
    char *path; /* relative to the root of the watch; "" for the root itself */
    UT_hash_handle hh;
};

struct watch {
    struct agent *agent;
    struct request *request;
    struct user user;
    struct loop_source source;
    int fd;     /* inotify; nothing else is held open, or the kernel would not tell of removals */
    char *base; /* the watched path */
    bool recursive, overflowed, root_gone;
    struct watch_node *nodes;
    size_t node_count;
    struct buf out; /* records not yet sent */
    uint64_t events;
    /* the first half of a move */
    uint32_t cookie;
    char *moved_from;
    bool moved_dir;
    struct loop_timer pair;
};

static void watch_free(struct watch *w)
{
    struct watch_node *node, *next;
    HASH_ITER(hh, w->nodes, node, next)
    {
        HASH_DEL(w->nodes, node);
        free(node->path);
        free(node);
    }
    if (w->agent) {
        loop_remove(&w->source);
        loop_timer_cancel(&w->pair);
        w->agent->watches--;
    }
    cleanup_close(&w->fd);
    free(w->base);
    buf_done(&w->out);
    free(w->moved_from);
    free(w);
}

/* --- events out
 * ------------------------------------------------------------------------------------------------------- */

static void event_put(struct watch *w, uint64_t type, const char *path, const char *to, bool is_dir)
{
    uint8_t head[WIRE_RECORD_HEADER];
    struct buf b = BUF_MAX(4 * AGENT_PATH_MAX);
    if (w->overflowed)
        return;
    if (type != AGENT_WATCH_OVERFLOW && w->out.len > LIMIT_WATCH_PENDING) {
        event_put(w, AGENT_WATCH_OVERFLOW, "", NULL, false);
        w->overflowed = true; /* until the reader has taken what is waiting */
        return;
    }
    wire_put_u64(&b, AGENT_TAG_WATCH_EVENT, type);
    wire_put_text(&b, AGENT_TAG_WATCH_PATH, path);
    wire_put_text(&b, AGENT_TAG_WATCH_TO, to);
    wire_put_u64(&b, AGENT_TAG_WATCH_IS_DIR, is_dir);
    wire_record_encode(&(struct wire_record){.type = AGENT_RECORD_WATCH, .len = (uint32_t)b.len, .offset = w->events++},
                       head);
    buf_put(&w->out, head, sizeof(head));
    buf_put(&w->out, buf_data(&b), b.len);
    buf_done(&b);
}

/* --- nodes
 * ------------------------------------------------------------------------------------------------------------ */

static char *join(const char *folder, const char *name)
{
    return *folder && *name ? xasprintf("%s/%s", folder, name) : xstrdup(*folder ? folder : name);
}

/* Watch what `fd` is; its path below the root is `path`. */
static int node_add(struct watch *w, int fd, const char *path)
{
    char self[48];
    struct watch_node *node;
    if (w->node_count >= AGENT_WATCHES_MAX)
        return -EMFILE;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd); /* never by a name that may have changed */
    int wd = inotify_add_watch(w->fd, self, EVENTS);
    if (wd < 0)
        return -errno;
    HASH_FIND_INT(w->nodes, &wd, node);
    if (node) { /* known under another name: it was moved */
        free(node->path);
        node->path = xstrdup(path);
        return 0;
    }
    node = NEW(struct watch_node);
    node->wd = wd;
    node->path = xstrdup(path);
    HASH_ADD_INT(w->nodes, wd, node);
    w->node_count++;
    return 0;
}

/* Watch the folder `fd` and, when recursive, all below. `report`: what is found there is news. */
static void walk(struct watch *w, int fd, const char *path, bool report, int depth)
{
    int r = node_add(w, fd, path);
    if (r < 0 && r != -ENOENT && r != -EACCES)
        event_put(w, AGENT_WATCH_OVERFLOW, path, NULL, true);
    if (r < 0 || !w->recursive || depth >= LIMIT_TREE_DEPTH)
        return;
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir) {
        cleanup_close(&copy);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct stat st;
        if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
            continue;
        if (!report && entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN)
            continue;
        if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        _cleanup_free_ char *below = join(path, entry->d_name);
        if (report)
            event_put(w, AGENT_WATCH_CREATE, below, NULL, S_ISDIR(st.st_mode));
        _cleanup_close_ int child =
            S_ISDIR(st.st_mode) ? openat(fd, entry->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (child >= 0 && strlen(below) < AGENT_PATH_MAX)
            walk(w, child, below, report, depth + 1);
    }
    closedir(dir);
}

/* A folder came to be at `path`: watch it as the user who asked. */
static void folder_appeared(struct watch *w, const char *path, bool report)
{
    if (!w->recursive || user_assume(&w->user, NULL) < 0)
        return;
    _cleanup_free_ char *whole = join(w->base, path);
    _cleanup_close_ int fd = path_openat(AT_FDCWD, whole, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, false);
    if (fd >= 0)
        walk(w, fd, path, report, 0);
    user_assume(NULL, NULL);
}

/* A folder was moved inside of the tree: its nodes and those below get their new paths. */
static void folder_moved(struct watch *w, const char *from, const char *to)
{
    size_t len = strlen(from);
    struct watch_node *node, *next;
    HASH_ITER(hh, w->nodes, node, next)
    {
        if (strncmp(node->path, from, len) != 0 || (node->path[len] != '/' && node->path[len] != '\0'))
            continue;
        char *path = xasprintf("%s%s", to, node->path + len);
        free(node->path);
        node->path = path;
    }
}

/* A folder left the tree: nothing below is of interest any more. */
static void folder_left(struct watch *w, const char *path)
{
    size_t len = strlen(path);
    struct watch_node *node, *next;
    HASH_ITER(hh, w->nodes, node, next)
    if (strncmp(node->path, path, len) == 0 && (node->path[len] == '/' || node->path[len] == '\0'))
        inotify_rm_watch(w->fd, node->wd); /* the kernel answers with IN_IGNORED */
}

/* --- events in
 * -------------------------------------------------------------------------------------------------------- */

/* The second half did not come. */
static void move_out(struct watch *w)
{
    loop_timer_cancel(&w->pair);
    if (!w->moved_from)
        return;
    if (w->moved_dir)
        folder_left(w, w->moved_from);
    event_put(w, AGENT_WATCH_REMOVE, w->moved_from, NULL, w->moved_dir);
    free(steal(w->moved_from));
}

static void pair_fire(struct loop_timer *timer)
{
    struct watch *w = container_of(timer, struct watch, pair);
    move_out(w);
    request_wake(w->request);
}

static void moved_to(struct watch *w, uint32_t cookie, const char *path, bool is_dir)
{
    if (w->moved_from && w->cookie == cookie) {
        loop_timer_cancel(&w->pair);
        if (is_dir)
            folder_moved(w, w->moved_from, path);
        event_put(w, AGENT_WATCH_MOVE, w->moved_from, path, is_dir);
        free(steal(w->moved_from));
        return;
    }
    move_out(w);
    event_put(w, AGENT_WATCH_CREATE, path, NULL, is_dir);
    if (is_dir)
        folder_appeared(w, path, true);
}

static void event_take(struct watch *w, const struct inotify_event *event)
{
    struct watch_node *node;
    bool is_dir = event->mask & IN_ISDIR;
    if (event->mask & IN_Q_OVERFLOW) {
        event_put(w, AGENT_WATCH_OVERFLOW, "", NULL, false);
        return;
    }
    HASH_FIND_INT(w->nodes, &event->wd, node);
    if (!node)
        return;
    if (event->mask & IN_IGNORED) {
        w->root_gone |= *node->path == '\0';
        HASH_DEL(w->nodes, node);
        w->node_count--;
        free(node->path);
        free(node);
        return;
    }
    if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF)) { /* of others the folder above tells */
        if (*node->path == '\0') {
            w->root_gone = true;
            event_put(w, AGENT_WATCH_REMOVE, "", NULL, is_dir);
        }
        return;
    }
    _cleanup_free_ char *path = join(node->path, event->len ? event->name : "");
    if (!(event->mask & IN_MOVED_TO))
        move_out(w);
    if (event->mask & IN_MOVED_FROM) {
        w->moved_from = steal(path);
        w->moved_dir = is_dir;
        w->cookie = event->cookie;
        loop_timer_set(&w->agent->loop, &w->pair, LIMIT_WATCH_PAIR_MS, pair_fire);
    } else if (event->mask & IN_MOVED_TO) {
        moved_to(w, event->cookie, path, is_dir);
    } else if (event->mask & IN_CREATE) {
        event_put(w, AGENT_WATCH_CREATE, path, NULL, is_dir);
        if (is_dir)
            folder_appeared(w, path, true);
    } else if (event->mask & IN_DELETE) {
        event_put(w, AGENT_WATCH_REMOVE, path, NULL, is_dir);
    } else if (event->mask & IN_MODIFY) {
        event_put(w, AGENT_WATCH_MODIFY, path, NULL, is_dir);
    } else if ((event->mask & IN_ATTRIB) && event->len > 0) { /* a folder's own: its parent tells */
        event_put(w, AGENT_WATCH_ATTRIB, path, NULL, is_dir);
    } else if ((event->mask & IN_ATTRIB) && *node->path == '\0') {
        event_put(w, AGENT_WATCH_ATTRIB, path, NULL, is_dir);
    }
}

static void watch_ready(struct loop_source *source, uint32_t events ATTR_UNUSED)
{
    struct watch *w = container_of(source, struct watch, source);
    char chunk[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n;
    for (int i = 0; i < 16 && (n = read(w->fd, chunk, sizeof(chunk))) > 0; i++) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const void *)(chunk + at);
            event_take(w, event);
            at += (ssize_t)(sizeof(*event) + event->len);
        }
    }
    request_wake(w->request);
}

/* --- the stream
 * --------------------------------------------------------------------------------------------------------- */

static size_t watch_available(struct request *r, size_t max, bool *ret_end)
{
    const struct watch *w = r->ctx;
    *ret_end = w->root_gone && w->out.len <= max;
    return MIN(w->out.len, max);
}

static bool watch_emit(struct request *r, uint8_t *to, size_t len)
{
    struct watch *w = r->ctx;
    memcpy(to, buf_data(&w->out), len);
    buf_consume(&w->out, len);
    if (w->out.len == 0)
        w->overflowed = false;
    return true;
}

static void watch_closed(struct request *r)
{
    watch_free(r->ctx);
}

static const struct request_ops watch_ops = {.available = watch_available, .emit = watch_emit, .closed = watch_closed};

static int watch_operate(struct fs_call *call)
{
    struct stat st;
    struct watch *w = NEW(struct watch);
    call->extra = w; /* without an agent, so that freeing it touches no loop */
    *w = (struct watch){.user = call->user,
                        .recursive = call->flag,
                        .base = xstrdup(call->path),
                        .out = BUF_MAX(4 * LIMIT_WATCH_PENDING)};
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->fd < 0)
        return err_errno(&call->e, ERR_LIMIT, errno, "watch %.300s", call->path);
    _cleanup_close_ int root = path_openat(AT_FDCWD, call->path, O_PATH, 0, false);
    if (root < 0 || fstat(root, &st) < 0)
        return path_error(&call->e, root < 0 ? -root : errno, "watch", call->path);
    w->recursive &= S_ISDIR(st.st_mode);
    event_put(w, AGENT_WATCH_READY, "", NULL, S_ISDIR(st.st_mode));
    walk(w, root, "", false, 0);
    if (w->node_count == 0)
        return path_error(&call->e, EACCES, "watch", call->path);
    return 0;
}

static void watch_discard(struct fs_call *call)
{
    if (call->extra)
        watch_free(steal(call->extra));
}

static void watch_begin(struct fs_call *call)
{
    struct watch *w = call->extra;
    struct request *r = call->request;
    if (call->agent->watches >= LIMIT_WATCHES) {
        watch_discard(call);
        request_failf(r, ERR_LIMIT, "%d watches are open", LIMIT_WATCHES);
        return;
    }
    call->extra = NULL;
    w->agent = call->agent;
    w->request = r;
    w->agent->watches++;
    r->ops = &watch_ops;
    r->ctx = w;
    loop_add(&w->agent->loop, &w->source, w->fd, EPOLLIN, watch_ready);
    request_stream(r, 200);
}

void watch_get(struct request *r, const struct query *q)
{
    struct fs_call *call = fs_call_new(r, q, watch_operate);
    struct err e;
    if (!call)
        return;
    if (query_flag(q, AGENT_QUERY_RECURSIVE, false, &call->flag, &e) < 0) {
        fs_call_refuse(call, &e);
        return;
    }
    call->finish = watch_begin;
    call->failed = call->abandon = watch_discard;
    fs_call_submit(call);
}

/* Contents of files: read from an offset, written as a whole.
 *
 * A PUT goes into a temporary file beside its goal and takes the goal's name when the body is complete:
 *   OPENING (a worker makes the temporary file) → WRITING (each part of the body as it comes) → COMMITTING (a worker
 * renames) → answered. A request that closes before COMMITTING leaves nothing. While the file system is frozen the body
 * waits in memory, at most the window that was given to the peer. */
#include <errno.h>
#include <fcntl.h>

#include "agent/fs_call.h"
#include "agent/paths.h"
#include "agent/router.h"
#include "base/file.h"
#include "base/id.h"
#include "base/str.h"

/* --- GET ---------------------------------------------------------------------------------------------------------- */

struct download {
    int fd;
    uint64_t offset, left;
};

static size_t download_available(struct request *r, size_t max, bool *ret_end)
{
    const struct download *d = r->ctx;
    *ret_end = d->left <= max;
    return (size_t)MIN(d->left, (uint64_t)max);
}

static bool download_emit(struct request *r, uint8_t *to, size_t len)
{
    struct download *d = r->ctx;
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(d->fd, to + done, len - done, (off_t)(d->offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) /* became shorter than it said */
            return false;
        done += (size_t)n;
    }
    d->offset += len;
    d->left -= len;
    return true;
}

static void download_closed(struct request *r)
{
    struct download *d = r->ctx;
    close(d->fd);
    free(d);
}

static const struct request_ops download_ops = {
    .available = download_available, .emit = download_emit, .closed = download_closed};

/* Of a file that does not say its size: all of it, cut to what was asked for. */
static int read_pseudo(struct fs_call *call)
{
    struct buf *b = &call->reply;
    ssize_t n;
    do {
        uint8_t *to = buf_reserve(b, 65536);
        if (!to)
            return err_set(&call->e, ERR_TOO_LARGE, "%.300s is larger than %d bytes", call->path, LIMIT_PSEUDO_FILE);
        n = read(call->fd, to, 65536);
        if (n < 0)
            return path_error(&call->e, errno, "read", call->path);
        buf_commit(b, (size_t)n);
    } while (n > 0);
    call->limit = b->len;
    if (call->offset > b->len)
        return err_set(&call->e, ERR_RANGE, "%.300s has %zu bytes", call->path, b->len);
    buf_consume(b, (size_t)call->offset);
    b->len = (size_t)MIN((uint64_t)b->len, call->length);
    return 0;
}

/* Opens into call->fd; limit: size of the whole, length: how much of it. */
static int get_operate(struct fs_call *call)
{
    struct stat st;
    call->fd = path_openat(AT_FDCWD, call->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, false);
    if (call->fd < 0)
        return path_error(&call->e, -call->fd, "open", call->path);
    if (fstat(call->fd, &st) < 0)
        return path_error(&call->e, errno, "look at", call->path);
    if (!S_ISREG(st.st_mode))
        return err_set(&call->e, ERR_INVALID, "%.300s is no regular file", call->path);
    call->mode = st.st_mode & 07777;
    call->mtime_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    call->limit = (uint64_t)st.st_size;
    if (st.st_size == 0)
        return read_pseudo(call);
    if (call->offset > call->limit)
        return err_set(&call->e, ERR_RANGE, "%.300s has %llu bytes", call->path, (unsigned long long)call->limit);
    call->length = MIN(call->length, call->limit - call->offset);
    return 0;
}

static void get_finish(struct fs_call *call)
{
    struct request *r = call->request;
    request_header(r, AGENT_HEADER_SIZE, "%llu", (unsigned long long)call->limit);
    request_header(r, AGENT_HEADER_MTIME, "%lld", (long long)call->mtime_ms);
    request_header(r, AGENT_HEADER_MODE, "%04o", call->mode);
    if (call->reply.len > 0 || call->length == 0 || call->limit == 0) {
        request_reply(r, 200, &call->reply);
        return;
    }
    struct download *d = NEW(struct download);
    *d = (struct download){.fd = steal_fd(&call->fd), .offset = call->offset, .left = call->length};
    r->ops = &download_ops;
    r->ctx = d;
    request_stream(r, 200);
}

void file_get(struct request *r, const struct query *q)
{
    struct fs_call *call = fs_call_new(r, q, get_operate);
    struct err e;
    if (!call)
        return;
    call->finish = get_finish;
    call->reply.max = LIMIT_PSEUDO_FILE + 65536;
    if (query_u64(q, AGENT_QUERY_OFFSET, 0, 0, INT64_MAX, &call->offset, &e) < 0 ||
        query_u64(q, AGENT_QUERY_LENGTH, INT64_MAX, 0, INT64_MAX, &call->length, &e) < 0)
        fs_call_refuse(call, &e);
    else
        fs_call_submit(call);
}

/* --- PUT ---------------------------------------------------------------------------------------------------------- */

enum upload_state { UPLOAD_OPENING, UPLOAD_WRITING, UPLOAD_COMMITTING };

struct upload {
    enum upload_state state;
    struct agent *agent;
    struct request *request;
    struct fs_call *call; /* under way, while OPENING and COMMITTING */
    struct user user;
    char *path;
    int fd, dir;
    char temporary[NAME_MAX + 1], name[NAME_MAX + 1];
    uint32_t mode;
    bool sync, ended;
    uint64_t size;
    struct buf pending;
    LIST_ENTRY(upload) entry;
};

/* What a worker needs of an upload; the upload itself may be gone. */
struct goal {
    char temporary[NAME_MAX + 1], name[NAME_MAX + 1];
};

static int put_open_operate(struct fs_call *call)
{
    struct goal *goal = call->extra;
    struct stat st;
    int r = call->flag ? path_make_parents(call->path, 0755, &call->e) : 0;
    if (r == 0)
        r = path_parent(call->path, true, &call->dir, goal->name, &call->e);
    if (r < 0)
        return r;
    bool exists = fstatat(call->dir, goal->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && !S_ISREG(st.st_mode))
        return err_set(&call->e, ERR_CONFLICT, "%.300s is there and is no regular file", call->path);
    uint8_t random[8];
    char hex[17];
    random_bytes(random, sizeof(random));
    hex_encode(random, sizeof(random), hex);
    snprintf(goal->temporary, sizeof(goal->temporary), ".space-%s", hex);
    call->fd = openat(call->dir, goal->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (call->fd < 0)
        return path_error(&call->e, errno, "write", call->path);
    /* The goal keeps its mode, and when root writes its owner, unless told otherwise. */
    if (exists && call->user.uid == 0 && fchown(call->fd, st.st_uid, st.st_gid) < 0)
        call->e.code = 0; /* not worth a failure */
    if (call->mode == UINT32_MAX)
        call->mode = exists ? st.st_mode & 07777 : 0644;
    return 0;
}

static int put_commit_operate(struct fs_call *call)
{
    struct goal *goal = call->extra;
    if (fchmod(call->fd, call->mode) < 0 || (call->flag && fsync(call->fd) < 0) ||
        renameat(call->dir, goal->temporary, call->dir, goal->name) < 0) {
        int saved = errno;
        unlinkat(call->dir, goal->temporary, 0);
        return path_error(&call->e, saved, "write", call->path);
    }
    wire_put_u64(&call->reply, AGENT_TAG_FILE_SIZE, call->length);
    return 0;
}

static void put_unlink(struct fs_call *call)
{
    unlinkat(call->dir, ((struct goal *)call->extra)->temporary, 0);
}

static struct fs_call *put_call(struct upload *u, int (*operate)(struct fs_call *call))
{
    struct fs_call *call = fs_call_make(u->request, &u->user, u->path, operate);
    struct goal *goal = NEW(struct goal);
    memcpy(goal->temporary, u->temporary, sizeof(goal->temporary));
    memcpy(goal->name, u->name, sizeof(goal->name));
    call->extra = goal;
    call->mode = u->mode;
    u->call = call;
    return call;
}

static void put_failed(struct fs_call *call)
{
    struct upload *u = call->request->ctx;
    u->call = NULL;
    u->state = UPLOAD_COMMITTING;
}

static void put_committed(struct fs_call *call)
{
    ((struct upload *)call->request->ctx)->call = NULL;
    request_reply(call->request, 200, &call->reply);
}

static void commit(struct upload *u)
{
    u->state = UPLOAD_COMMITTING;
    LIST_REMOVE(u, entry);
    struct fs_call *call = put_call(u, put_commit_operate);
    call->fd = steal_fd(&u->fd);
    call->dir = steal_fd(&u->dir);
    call->flag = u->sync;
    call->length = u->size;
    call->finish = put_committed;
    call->failed = put_failed;
    fs_call_submit(call);
}

static void upload_drop(struct upload *u)
{
    if (u->state != UPLOAD_WRITING)
        return;
    unlinkat(u->dir, u->temporary, 0);
    cleanup_close(&u->fd);
    cleanup_close(&u->dir);
    LIST_REMOVE(u, entry);
    u->state = UPLOAD_COMMITTING; /* nothing left to undo */
}

static void upload_write(struct upload *u, const uint8_t *data, size_t len)
{
    int error = fd_write_all(u->fd, data, len);
    request_consume(u->request, len);
    u->size += len;
    if (error < 0) {
        struct err e;
        path_error(&e, -error, "write", u->path);
        upload_drop(u);
        request_fail(u->request, &e);
    }
}

static void upload_run(struct upload *u)
{
    if (u->state != UPLOAD_WRITING || u->agent->frozen)
        return;
    if (u->pending.len > 0) {
        size_t len = u->pending.len;
        upload_write(u, buf_data(&u->pending), len);
        buf_done(&u->pending);
    }
    if (u->state == UPLOAD_WRITING && u->ended)
        commit(u);
}

static void put_open_finish(struct fs_call *call)
{
    struct upload *u = call->request->ctx;
    struct goal *goal = call->extra;
    u->call = NULL;
    u->fd = steal_fd(&call->fd);
    u->dir = steal_fd(&call->dir);
    u->mode = call->mode;
    memcpy(u->temporary, goal->temporary, sizeof(u->temporary));
    memcpy(u->name, goal->name, sizeof(u->name));
    u->state = UPLOAD_WRITING;
    LIST_INSERT_HEAD(&u->agent->uploads, u, entry);
    request_widen(u->request);
    upload_run(u);
}

static void put_body(struct request *r, const uint8_t *data, size_t len)
{
    struct upload *u = r->ctx;
    if (u->state == UPLOAD_WRITING && !u->agent->frozen && u->pending.len == 0)
        upload_write(u, data, len);
    else if (!buf_put(&u->pending, data, len))
        request_reset(r);
}

static void put_body_end(struct request *r)
{
    struct upload *u = r->ctx;
    u->ended = true;
    upload_run(u);
}

static void put_closed(struct request *r)
{
    struct upload *u = r->ctx;
    if (u->call)
        u->call->request = NULL;
    upload_drop(u);
    buf_done(&u->pending);
    free(u->path);
    free(u);
}

static const struct request_ops put_ops = {.body = put_body, .body_end = put_body_end, .closed = put_closed};

void file_put(struct request *r, const struct query *q)
{
    struct fs_call *call = fs_call_new(r, q, put_open_operate);
    struct err e;
    bool sync;
    if (!call)
        return;
    if (query_flag(q, AGENT_QUERY_MAKE_PARENTS, false, &call->flag, &e) < 0 ||
        query_flag(q, AGENT_QUERY_SYNC, false, &sync, &e) < 0 || query_mode(q, &call->mode, &e) < 0) {
        fs_call_refuse(call, &e);
        return;
    }
    struct upload *u = NEW(struct upload);
    *u = (struct upload){.agent = request_agent(r),
                         .request = r,
                         .call = call,
                         .user = call->user,
                         .path = xstrdup(call->path),
                         .fd = -1,
                         .dir = -1,
                         .sync = sync,
                         .pending = BUF_MAX(2 * AGENT_STREAM_WINDOW)};
    r->ops = &put_ops;
    r->ctx = u;
    call->extra = NEW(struct goal);
    call->finish = put_open_finish;
    call->failed = put_failed;
    call->abandon = put_unlink;
    fs_call_submit(call);
}

void uploads_run(struct agent *agent)
{
    struct upload *u, *next;
    for (u = LIST_FIRST(&agent->uploads); u; u = next) {
        next = LIST_NEXT(u, entry);
        upload_run(u);
    }
}

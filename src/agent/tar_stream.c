/* GET and PUT of archives: a worker thread reads or writes the tree, a pipe joins it to the request. The worker owns
 * one end, the request the other; whoever goes first closes its end, which the other one notices.
 *
 * First a short operation opens the folder, so that what cannot be opened is an ordinary error answer; then the
 * transfer proper begins. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include "agent/fs_call.h"
#include "agent/paths.h"
#include "agent/router.h"
#include "agent/tar.h"

struct transfer {
    struct loop_job job;
    struct agent *agent;
    struct request *request; /* NULL when gone */
    struct user user;
    char *name;
    int folder, theirs; /* the worker's: what it reads or fills, and its end of the pipe */
    int ours;
    struct loop_source source;
    struct buf pending; /* PUT: not yet in the pipe */
    bool body_ended, done;
    uint64_t entries;
    int result;
    struct err e;
};

static void transfer_unref(struct transfer *t)
{
    if (t->request || !t->done)
        return;
    t->agent->tars--;
    buf_done(&t->pending);
    free(t->name);
    free(t);
}

static void close_ours(struct transfer *t)
{
    loop_remove(&t->source);
    cleanup_close(&t->ours);
    t->ours = -1;
}

static void transfer_closed(struct request *r)
{
    struct transfer *t = r->ctx;
    t->request = NULL;
    close_ours(t);
    transfer_unref(t);
}

static int transfer_start(struct fs_call *call, const struct request_ops *ops, bool to_host,
                          void (*run)(struct loop_job *job), void (*done)(struct loop_job *job))
{
    struct agent *agent = call->agent;
    int fds[2];
    if (agent->tars >= LIMIT_TARS)
        return err_set(&call->e, ERR_LIMIT, "%d archives are under way", LIMIT_TARS);
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_errno(&call->e, ERR_LIMIT, errno, "make a pipe");
    struct transfer *t = NEW(struct transfer);
    const char *slash = strrchr(call->path, '/');
    *t = (struct transfer){.job = {.run = run, .done = done},
                           .agent = agent,
                           .request = call->request,
                           .user = call->user,
                           .name = xstrdup(slash[1] ? slash + 1 : "root"),
                           .folder = steal_fd(&call->fd),
                           .theirs = fds[to_host ? 1 : 0],
                           .ours = fds[to_host ? 0 : 1],
                           .pending = BUF_MAX(2 * AGENT_STREAM_WINDOW)};
    fcntl(t->ours, F_SETFL, O_NONBLOCK);
    fcntl(t->ours, F_SETPIPE_SZ, LIMIT_PIPE_BYTES);
    int r = loop_job_submit(&agent->loop, &t->job, &call->e);
    if (r < 0) {
        close(t->folder);
        close(t->theirs);
        close(t->ours);
        free(t->name);
        free(t);
        return r;
    }
    agent->tars++;
    call->request->ops = ops;
    call->request->ctx = t;
    return 0;
}

static void run_end(struct transfer *t)
{
    user_assume(NULL, NULL);
    close(t->folder);
    close(t->theirs);
}

/* --- GET ---------------------------------------------------------------------------------------------------------- */

static void get_run(struct loop_job *job)
{
    struct transfer *t = container_of(job, struct transfer, job);
    t->result = user_assume(&t->user, &t->e);
    if (t->result == 0)
        t->result = tar_write(t->folder, t->name, t->theirs, &t->e);
    run_end(t);
}

static void get_done(struct loop_job *job)
{
    struct transfer *t = container_of(job, struct transfer, job);
    t->done = true;
    if (t->request) {
        if (t->result < 0)
            request_reset(t->request); /* the answer has begun: cutting it off is all that can be said */
        else
            request_wake(t->request);
    }
    transfer_unref(t);
}

static void get_ready(struct loop_source *source, uint32_t events ATTR_UNUSED)
{
    struct transfer *t = container_of(source, struct transfer, source);
    loop_remove(source);
    if (t->request)
        request_wake(t->request);
}

static size_t get_available(struct request *r, size_t max, bool *ret_end)
{
    struct transfer *t = r->ctx;
    int left = 0;
    if (ioctl(t->ours, FIONREAD, &left) < 0)
        left = 0;
    if (left == 0 && t->done) {
        *ret_end = t->result == 0;
        return 0;
    }
    if (left == 0 && !t->source.loop)
        loop_add(&t->agent->loop, &t->source, t->ours, EPOLLIN | EPOLLONESHOT, get_ready);
    return MIN((size_t)left, max);
}

static bool get_emit(struct request *r, uint8_t *to, size_t len)
{
    const struct transfer *t = r->ctx;
    for (size_t done = 0; done < len;) {
        ssize_t n = read(t->ours, to + done, len - done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static const struct request_ops get_ops = {.available = get_available, .emit = get_emit, .closed = transfer_closed};

static int get_open(struct fs_call *call)
{
    struct stat st;
    call->fd = path_openat(AT_FDCWD, call->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, false);
    if (call->fd < 0 || fstat(call->fd, &st) < 0)
        return path_error(&call->e, call->fd < 0 ? -call->fd : errno, "open", call->path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return err_set(&call->e, ERR_INVALID, "%.300s is neither folder nor file", call->path);
    return 0;
}

static void get_begin(struct fs_call *call)
{
    struct request *r = call->request;
    if (transfer_start(call, &get_ops, true, get_run, get_done) < 0)
        request_fail(r, &call->e);
    else
        request_stream(r, 200);
}

void tar_get(struct request *r, const struct query *q)
{
    struct fs_call *call = fs_call_new(r, q, get_open);
    if (!call)
        return;
    call->finish = get_begin;
    fs_call_submit(call);
}

/* --- PUT ---------------------------------------------------------------------------------------------------------- */

static void put_run(struct loop_job *job)
{
    struct transfer *t = container_of(job, struct transfer, job);
    t->result = user_assume(&t->user, &t->e);
    if (t->result == 0)
        t->result = tar_extract(t->folder, t->theirs, t->user.uid == 0 && geteuid() == 0, &t->entries, &t->e);
    run_end(t);
}

static void put_done(struct loop_job *job)
{
    struct transfer *t = container_of(job, struct transfer, job);
    struct request *r = t->request;
    t->done = true;
    close_ours(t);
    if (r && t->result < 0) {
        request_fail(r, &t->e);
    } else if (r) {
        struct buf b = BUF_MAX(64);
        wire_put_u64(&b, AGENT_TAG_TAR_ENTRIES, t->entries);
        request_reply(r, 200, &b);
    }
    transfer_unref(t);
}

static void put_push(struct transfer *t);

static void put_ready(struct loop_source *source, uint32_t events ATTR_UNUSED)
{
    struct transfer *t = container_of(source, struct transfer, source);
    loop_remove(source);
    put_push(t);
}

static void put_push(struct transfer *t)
{
    while (t->pending.len > 0 && t->ours >= 0) {
        ssize_t n = write(t->ours, buf_data(&t->pending), t->pending.len);
        if (n > 0) {
            buf_consume(&t->pending, (size_t)n);
            request_consume(t->request, (size_t)n);
        } else if (errno == EAGAIN) {
            if (!t->source.loop)
                loop_add(&t->agent->loop, &t->source, t->ours, EPOLLOUT, put_ready);
            return;
        } else if (errno != EINTR) {
            close_ours(t); /* the worker has given up; it will say why */
        }
    }
    request_consume(t->request, t->pending.len);
    buf_reset(&t->pending);
    if (t->body_ended)
        close_ours(t);
}

static void put_body(struct request *r, const uint8_t *data, size_t len)
{
    struct transfer *t = r->ctx;
    if (t->ours < 0)
        request_consume(r, len);
    else if (!buf_put(&t->pending, data, len))
        request_reset(r);
    else if (!t->source.loop)
        put_push(t);
}

static void put_body_end(struct request *r)
{
    struct transfer *t = r->ctx;
    t->body_ended = true;
    if (!t->source.loop)
        put_push(t);
}

static const struct request_ops put_ops = {.body = put_body, .body_end = put_body_end, .closed = transfer_closed};

static int put_open(struct fs_call *call)
{
    int r = call->flag ? path_make_parents(call->path, 0755, &call->e) : 0;
    if (r < 0)
        return r;
    call->fd = path_openat(AT_FDCWD, call->path, O_RDONLY | O_DIRECTORY, 0, false);
    if (call->fd == -ENOENT && call->flag) {
        char name[NAME_MAX + 1];
        _cleanup_close_ int dir = -1;
        r = path_parent(call->path, false, &dir, name, &call->e);
        if (r == 0 && mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
            r = path_error(&call->e, errno, "make folder", call->path);
        if (r < 0)
            return r;
        call->fd = path_openat(AT_FDCWD, call->path, O_RDONLY | O_DIRECTORY, 0, false);
    }
    return call->fd < 0 ? path_error(&call->e, -call->fd, "open folder", call->path) : 0;
}

/* The body that comes while the folder is being opened. */
struct early {
    struct fs_call *call;
    struct buf body;
    bool ended;
};

static void early_body(struct request *r, const uint8_t *data, size_t len)
{
    struct early *early = r->ctx;
    if (!buf_put(&early->body, data, len))
        request_reset(r);
}

static void early_end(struct request *r)
{
    ((struct early *)r->ctx)->ended = true;
}

static void early_free(struct early *early)
{
    buf_done(&early->body);
    free(early);
}

static void early_closed(struct request *r)
{
    struct early *early = r->ctx;
    if (early->call)
        early->call->request = NULL;
    early_free(early);
}

static const struct request_ops early_ops = {.body = early_body, .body_end = early_end, .closed = early_closed};

static void put_failed(struct fs_call *call)
{
    ((struct early *)call->request->ctx)->call = NULL;
}

static void put_begin(struct fs_call *call)
{
    struct request *r = call->request;
    struct early *early = r->ctx;
    early->call = NULL;
    if (transfer_start(call, &put_ops, false, put_run, put_done) < 0) {
        request_fail(r, &call->e);
        return;
    }
    struct transfer *t = r->ctx;
    buf_put(&t->pending, buf_data(&early->body), early->body.len);
    t->body_ended = early->ended;
    early_free(early);
    request_widen(r);
    put_push(t);
}

void tar_put(struct request *r, const struct query *q)
{
    struct fs_call *call = fs_call_new(r, q, put_open);
    struct err e;
    if (!call)
        return;
    if (query_flag(q, AGENT_QUERY_MAKE_PARENTS, false, &call->flag, &e) < 0) {
        fs_call_refuse(call, &e);
        return;
    }
    struct early *early = NEW(struct early);
    *early = (struct early){.call = call, .body = BUF_MAX(2 * AGENT_STREAM_WINDOW)};
    r->ops = &early_ops;
    r->ctx = early;
    call->finish = put_begin;
    call->failed = put_failed;
    fs_call_submit(call);
}

/* Operations on worker threads (see fs_call.h). */
#include "agent/fs_call.h"

static void call_free(struct fs_call *call)
{
    cleanup_close(&call->fd);
    cleanup_close(&call->dir);
    free(call->path);
    free(call->to);
    free(call->name);
    free(call->group);
    free(call->extra);
    buf_done(&call->reply);
    free(call);
}

static void call_run(struct loop_job *job)
{
    struct fs_call *call = container_of(job, struct fs_call, job);
    call->result = user_assume(&call->user, &call->e);
    if (call->result == 0)
        call->result = call->operate(call);
    user_assume(NULL, NULL);
}

static void call_abandon(struct request *r)
{
    struct fs_call *call = r->ctx;
    call->request = NULL;
}

static const struct request_ops call_ops = {.closed = call_abandon};

static void call_done(struct loop_job *job)
{
    struct fs_call *call = container_of(job, struct fs_call, job);
    struct request *r = call->request;
    if (!r) {
        if (call->result >= 0 && call->abandon)
            call->abandon(call);
    } else {
        if (r->ops == &call_ops)
            r->ops = NULL;
        if (call->result < 0 && call->failed)
            call->failed(call);
        if (call->result < 0)
            request_fail(r, &call->e);
        else if (call->finish)
            call->finish(call);
        else
            request_reply(r, 200, call->reply.len > 0 ? &call->reply : NULL);
    }
    call_free(call);
}

struct fs_call *fs_call_make(struct request *r, const struct user *user, const char *path,
                             int (*operate)(struct fs_call *call))
{
    struct fs_call *call = NEW(struct fs_call);
    *call = (struct fs_call){.agent = request_agent(r),
                             .request = r,
                             .user = *user,
                             .path = xstrdup(path),
                             .operate = operate,
                             .fd = -1,
                             .dir = -1,
                             .reply = BUF_MAX(WIRE_MESSAGE_MAX)};
    return call;
}

struct fs_call *fs_call_new(struct request *r, const struct query *q, int (*operate)(struct fs_call *call))
{
    const char *path, *name = query_get(q, AGENT_QUERY_USER);
    struct user user = {.uid = geteuid(), .gid = getegid()};
    struct err e;
    int error = query_path(q, AGENT_QUERY_PATH, &path, &e);
    if (error == 0 && (name || geteuid() == 0))
        error = user_find(name ? name : "root", &user, &e);
    if (error < 0) {
        request_fail(r, &e);
        return NULL;
    }
    return fs_call_make(r, &user, path, operate);
}

void fs_call_submit(struct fs_call *call)
{
    struct err e;
    call->job = (struct loop_job){.run = call_run, .done = call_done};
    if (loop_job_submit(&call->agent->loop, &call->job, &e) < 0) {
        fs_call_refuse(call, &e);
        return;
    }
    if (!call->request->ops) {
        call->request->ops = &call_ops;
        call->request->ctx = call;
    }
}

void fs_call_refuse(struct fs_call *call, const struct err *e)
{
    if (call->failed)
        call->failed(call);
    request_fail(call->request, e);
    call_free(call);
}

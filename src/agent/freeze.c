/* Sync, freeze and thaw of the root file system. Freezing writes out first, so it runs on a worker; thawing is done at
 * once, and by itself when the host has not asked for it in time. While frozen, uploads wait (agent->frozen): a write
 * would stop the very thread that is to thaw. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "agent/router.h"

struct freeze_call {
    struct loop_job job;
    struct agent *agent;
    struct request *request;
    uint64_t timeout_ms;
    bool freeze;
    int result;
    struct err e;
};

static int root_ioctl(unsigned long request)
{
    _cleanup_close_ int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || ioctl(fd, request, 0) < 0 ? -errno : 0;
}

static void call_run(struct loop_job *job)
{
    struct freeze_call *call = container_of(job, struct freeze_call, job);
    if (!call->freeze) {
        sync();
        return;
    }
    int r = root_ioctl(FIFREEZE);
    if (r < 0)
        call->result = err_errno(&call->e, ERR_STATE, -r, "freeze the root file system");
}

static int thaw(struct agent *agent)
{
    loop_timer_cancel(&agent->thaw);
    agent->frozen = false;
    int r = root_ioctl(FITHAW);
    uploads_run(agent);
    return r;
}

static void thaw_fire(struct loop_timer *timer)
{
    thaw(container_of(timer, struct agent, thaw));
}

static void call_done(struct loop_job *job)
{
    struct freeze_call *call = container_of(job, struct freeze_call, job);
    struct agent *agent = call->agent;
    if (call->freeze && call->result == 0)
        loop_timer_set(&agent->loop, &agent->thaw, call->timeout_ms, thaw_fire);
    else if (call->freeze)
        agent->frozen = false;
    if (call->freeze && call->result == 0 && !call->request) /* nobody will ask for the thaw */
        thaw(agent);
    if (call->request) {
        call->request->ops = NULL;
        if (call->result < 0)
            request_fail(call->request, &call->e);
        else
            request_reply(call->request, 200, NULL);
    }
    if (call->freeze && call->result < 0)
        uploads_run(agent);
    free(call);
}

static void call_closed(struct request *r)
{
    ((struct freeze_call *)r->ctx)->request = NULL;
}

static const struct request_ops call_ops = {.closed = call_closed};

static void submit(struct request *r, bool freeze, uint64_t timeout_ms)
{
    struct freeze_call *call = NEW(struct freeze_call);
    struct err e;
    *call = (struct freeze_call){.job = {.run = call_run, .done = call_done},
                                 .agent = request_agent(r),
                                 .request = r,
                                 .timeout_ms = timeout_ms,
                                 .freeze = freeze};
    if (loop_job_submit(&call->agent->loop, &call->job, &e) < 0) {
        free(call);
        request_fail(r, &e);
        return;
    }
    call->agent->frozen |= freeze;
    r->ops = &call_ops;
    r->ctx = call;
}

void sync_post(struct request *r, const struct query *q ATTR_UNUSED)
{
    if (request_agent(r)->is_guest)
        submit(r, false, 0);
    else
        request_reply(r, 200, NULL);
}

void freeze_post(struct request *r, const struct query *q)
{
    const struct agent *agent = request_agent(r);
    uint64_t timeout_ms;
    struct err e;
    if (query_u64(q, AGENT_QUERY_TIMEOUT, AGENT_FREEZE_MAX_MS, 1, AGENT_FREEZE_MAX_MS, &timeout_ms, &e) < 0)
        request_fail(r, &e);
    else if (!agent->is_guest)
        request_failf(r, ERR_UNSUPPORTED, "only a guest can be frozen");
    else if (agent->frozen)
        request_failf(r, ERR_STATE, "the file system is frozen already");
    else
        submit(r, true, timeout_ms);
}

void thaw_post(struct request *r, const struct query *q ATTR_UNUSED)
{
    struct agent *agent = request_agent(r);
    if (!agent->thaw.loop) {
        request_failf(r, ERR_STATE, "the file system is not frozen");
        return;
    }
    int error = thaw(agent);
    struct err e;
    if (error < 0) {
        err_errno(&e, ERR_SYSTEM, -error, "thaw the root file system");
        request_fail(r, &e);
    } else {
        request_reply(r, 200, NULL);
    }
}

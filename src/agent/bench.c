/* Measurements from inside the guest: what the floor of an exec and of a stream is. */
#include <errno.h>
#include <sys/wait.h>

#include "agent/router.h"
#include "agent/spawn.h"
#include "base/clock.h"

/* `n` times start a program, wait for its end. The loop stands still meanwhile: nothing else is to be measured. */
void bench_spawn_post(struct request *r, const struct query *q)
{
    struct agent *agent = request_agent(r);
    const char *path = query_get(q, AGENT_QUERY_PATH);
    struct buf b = BUF_MAX(WIRE_MESSAGE_MAX);
    struct user user = {.uid = geteuid(), .gid = getegid(), .groups = {getegid()}, .group_count = 1};
    char *argv[] = {NULL, (char *)(uintptr_t)(path ? path : "/bin/true"), NULL}, *envp[] = {NULL};
    int null = agent->execs.null_fd;
    struct spawn s = {
        .argv = argv + 1, .envp = envp, .path = "", .cwd = "/", .user = &user, .stdio = {null, null, null}};
    uint64_t n, total = 0;
    struct err e;
    int error = query_u64(q, AGENT_QUERY_N, 1, 1, AGENT_BENCH_SPAWN_MAX, &n, &e);
    for (uint64_t i = 0; error == 0 && i < n; i++) {
        pid_t pid;
        uint64_t begin = clock_mono_ns();
        error = spawn_process(&s, &pid, &e);
        if (error < 0)
            break;
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        uint64_t ns = clock_mono_ns() - begin;
        total += ns;
        wire_put_u64(&b, AGENT_TAG_BENCH_EACH_NS, ns);
    }
    if (error < 0) {
        buf_done(&b);
        request_fail(r, &e);
        return;
    }
    wire_put_u64(&b, AGENT_TAG_BENCH_MEAN_NS, total / n);
    request_reply(r, 200, &b);
}

struct counter {
    uint64_t bytes;
};

static size_t source_available(struct request *r, size_t max, bool *ret_end)
{
    const struct counter *c = r->ctx;
    *ret_end = c->bytes <= max;
    return (size_t)MIN(c->bytes, (uint64_t)max);
}

static bool source_emit(struct request *r, uint8_t *to, size_t len)
{
    struct counter *c = r->ctx;
    memset(to, 0, len);
    c->bytes -= len;
    return true;
}

static void sink_body(struct request *r, const uint8_t *data ATTR_UNUSED, size_t len)
{
    struct counter *c = r->ctx;
    c->bytes += len;
    request_consume(r, len);
}

static void sink_end(struct request *r)
{
    const struct counter *c = r->ctx;
    struct buf b = BUF_MAX(64);
    wire_put_u64(&b, AGENT_TAG_BENCH_BYTES, c->bytes);
    request_reply(r, 200, &b);
}

static void counter_closed(struct request *r)
{
    free(r->ctx);
}

static const struct request_ops source_ops = {
    .available = source_available, .emit = source_emit, .closed = counter_closed};
static const struct request_ops sink_ops = {.body = sink_body, .body_end = sink_end, .closed = counter_closed};

void bench_source_get(struct request *r, const struct query *q)
{
    struct err e;
    uint64_t bytes;
    if (query_u64(q, AGENT_QUERY_BYTES, 0, 0, INT64_MAX, &bytes, &e) < 0) {
        request_fail(r, &e);
        return;
    }
    struct counter *c = NEW(struct counter);
    c->bytes = bytes;
    r->ops = &source_ops;
    r->ctx = c;
    request_stream(r, 200);
}

void bench_sink_put(struct request *r, const struct query *q ATTR_UNUSED)
{
    r->ops = &sink_ops;
    r->ctx = NEW(struct counter);
    request_widen(r);
}

/* The guest object: a channel, its timeouts, its end (see guest.h), and the calls about the agent itself. */
#include "guest/guest.h"

#include <time.h>

#include "base/id.h"
#include "guest/call.h"
#include "guest/decode.h"

static const struct guest_timeouts defaults = {
    .simple = 10000,
    .identity = 10000,
    .exec_start = 30000,
    .response = 30000,
    .transfer = 60000,
    .file_change = 120000,
    .connect = 10000,
    .freeze = 15000,
    .bench = 120000,
};

static struct guest_timeouts timeouts_complete(const struct guest_timeouts *t)
{
    struct guest_timeouts full = *t;
#define DEFAULT(field) full.field = full.field ? full.field : defaults.field
    DEFAULT(simple);
    DEFAULT(identity);
    DEFAULT(exec_start);
    DEFAULT(response);
    DEFAULT(transfer);
    DEFAULT(file_change);
    DEFAULT(connect);
    DEFAULT(freeze);
    DEFAULT(bench);
#undef DEFAULT
    return full;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static void on_ready(void *arg)
{
    struct guest *g = arg;
    if (g->callbacks->on_ready)
        g->callbacks->on_ready(g->arg);
}

static void on_prepare_closed(uv_handle_t *handle)
{
    struct guest *g = handle->data;
    call_unstarted_flush(g, UINT64_MAX);
    g->callbacks->on_closed(g->arg, &g->closed_why);
    free(g);
}

/* Every call with a stream has ended by now; those that could not start are still to be told. */
static void on_closed(void *arg, const struct err *e)
{
    struct guest *g = arg;
    g->channel = NULL;
    g->closed_why = *e;
    uv_close((uv_handle_t *)&g->prepare, on_prepare_closed);
}

static const struct channel_callbacks channel_callbacks = {.on_ready = on_ready, .on_closed = on_closed};

static struct guest *guest_new(const struct guest_options *o, const struct guest_callbacks *callbacks, void *arg)
{
    struct guest *g = NEW(struct guest);
    g->timeouts = timeouts_complete(o ? &o->timeouts : &defaults);
    g->callbacks = callbacks;
    g->arg = arg;
    TAILQ_INIT(&g->calls);
    TAILQ_INIT(&g->unstarted);
    return g;
}

/* The second half of opening: `r` says whether the channel is there. */
static int guest_opened(struct guest *g, uv_loop_t *loop, int r, struct guest **ret_guest)
{
    if (r < 0) {
        free(g);
        return r;
    }
    uv_prepare_init(loop, &g->prepare);
    g->prepare.data = g;
    *ret_guest = g;
    return 0;
}

int guest_open_path(uv_loop_t *loop, const char *path, const struct guest_options *o,
                    const struct guest_callbacks *callbacks, void *arg, struct guest **ret_guest, struct err *e)
{
    struct guest *g = guest_new(o, callbacks, arg);
    int r = channel_open_path(loop, path, o ? &o->channel : NULL, &channel_callbacks, g, &g->channel, e);
    return guest_opened(g, loop, r, ret_guest);
}

int guest_open_fd(uv_loop_t *loop, int fd, const struct guest_options *o, const struct guest_callbacks *callbacks,
                  void *arg, struct guest **ret_guest, struct err *e)
{
    struct guest *g = guest_new(o, callbacks, arg);
    int r = channel_open_fd(loop, fd, o ? &o->channel : NULL, &channel_callbacks, g, &g->channel, e);
    return guest_opened(g, loop, r, ret_guest);
}

void guest_close(struct guest *g)
{
    if (g->channel)
        channel_close(g->channel);
}

bool guest_ready(const struct guest *g)
{
    return g->channel && channel_ready(g->channel);
}

void guest_hold(struct guest *g, bool hold)
{
    if (g->channel)
        channel_hold(g->channel, hold);
}

struct channel *guest_channel(struct guest *g)
{
    return g->channel;
}

/* --- hello, identity ---------------------------------------------------------------------------------------------- */

static struct buf target_of(const char *path)
{
    struct buf target = BUF_MAX(TARGET_MAX);
    buf_put_str(&target, path);
    return target;
}

static void hello_finish(struct guest_call *call, const struct err *e)
{
    struct guest_hello hello;
    struct err mine;
    if (!e && decode_hello(buf_data(&call->body), call->body.len, &hello, &mine) < 0)
        e = &mine;
    call->done.hello(call->arg, e ? NULL : &hello, e);
}

struct guest_call *guest_hello(struct guest *g, guest_hello_cb *done, void *arg)
{
    static const struct call_kind kind = {.success = 200, .finish = hello_finish};
    _cleanup_buf_ struct buf target = target_of(AGENT_PATH_HELLO);
    struct guest_call *call = call_new(g, &kind, arg);
    call->done.hello = done;
    return call_start(call, &(struct channel_request){.method = "GET", .total_timeout_ms = g->timeouts.simple},
                      &target);
}

static void identity_finish(struct guest_call *call, const struct err *e)
{
    struct guest_confirm confirm;
    struct err mine;
    if (!e && decode_confirm(buf_data(&call->body), call->body.len, call->id, &confirm, &mine) < 0)
        e = &mine;
    call->done.identity(call->arg, e ? NULL : &confirm, e);
}

struct guest_call *guest_identity(struct guest *g, const struct guest_identity *identity, guest_identity_cb *done,
                                  void *arg)
{
    static const struct call_kind kind = {.success = 200, .finish = identity_finish};
    _cleanup_buf_ struct buf target = target_of(AGENT_PATH_IDENTITY);
    _cleanup_buf_ struct buf body = BUF_MAX(AGENT_BODY_MAX);
    struct guest_call *call = call_new(g, &kind, arg);
    call->done.identity = done;
    if (!identity->sandbox_id || strlen(identity->sandbox_id) >= sizeof(call->id) ||
        identity->entropy_len < AGENT_ENTROPY_MIN || identity->entropy_len > AGENT_ENTROPY_MAX)
        return call_refuse(call, ERR_INVALID, "an identity needs a sandbox id and %d to %d bytes of entropy",
                           AGENT_ENTROPY_MIN, AGENT_ENTROPY_MAX);
    strcpy(call->id, identity->sandbox_id);
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    wire_put_bytes(&body, AGENT_TAG_IDENTITY_ENTROPY, identity->entropy, identity->entropy_len);
    wire_put_u64(&body, AGENT_TAG_IDENTITY_REALTIME_NS, identity->realtime_ns ? identity->realtime_ns : now_ns);
    wire_put_text(&body, AGENT_TAG_IDENTITY_HOSTNAME, identity->hostname);
    wire_put_text(&body, AGENT_TAG_IDENTITY_MACHINE_ID, identity->machine_id);
    wire_put_text(&body, AGENT_TAG_IDENTITY_SANDBOX_ID, identity->sandbox_id);
    wire_put_text(&body, AGENT_TAG_IDENTITY_BOOT_ID, identity->boot_id);
    for (const char *const *v = identity->env; v && *v; v++)
        wire_put_text(&body, AGENT_TAG_IDENTITY_ENV, *v);
    if (body.overflow)
        return call_refuse(call, ERR_TOO_LARGE, "the environment of a sandbox is larger than %d bytes", AGENT_BODY_MAX);
    call = call_start(
        call,
        &(struct channel_request){
            .method = "POST", .body = buf_data(&body), .body_len = body.len, .total_timeout_ms = g->timeouts.identity},
        &target);
    wipe(body.mem, body.capacity);
    return call;
}

/* --- metrics, sync, freeze, measurements ----------------------------------------------------------------------------
 */

static void metrics_finish(struct guest_call *call, const struct err *e)
{
    struct guest_metrics metrics;
    struct err mine;
    if (!e && decode_metrics(buf_data(&call->body), call->body.len, &metrics, &mine) < 0)
        e = &mine;
    call->done.metrics(call->arg, e ? NULL : &metrics, e);
}

struct guest_call *guest_metrics(struct guest *g, guest_metrics_cb *done, void *arg)
{
    static const struct call_kind kind = {.success = 200, .finish = metrics_finish};
    _cleanup_buf_ struct buf target = target_of(AGENT_PATH_METRICS);
    struct guest_call *call = call_new(g, &kind, arg);
    call->done.metrics = done;
    return call_start(call, &(struct channel_request){.method = "GET", .total_timeout_ms = g->timeouts.simple},
                      &target);
}

struct guest_call *guest_sync(struct guest *g, guest_done_cb *done, void *arg)
{
    _cleanup_buf_ struct buf target = target_of(AGENT_PATH_SYNC);
    return call_simple(g, "POST", &target, g->timeouts.freeze, done, arg);
}

struct guest_call *guest_freeze(struct guest *g, uint32_t thaw_after_ms, guest_done_cb *done, void *arg)
{
    _cleanup_buf_ struct buf target = target_of(AGENT_PATH_FREEZE);
    target_number(&target, AGENT_QUERY_TIMEOUT, thaw_after_ms);
    return call_simple(g, "POST", &target, g->timeouts.freeze, done, arg);
}

struct guest_call *guest_thaw(struct guest *g, guest_done_cb *done, void *arg)
{
    _cleanup_buf_ struct buf target = target_of(AGENT_PATH_THAW);
    return call_simple(g, "POST", &target, g->timeouts.freeze, done, arg);
}

static void bench_finish(struct guest_call *call, const struct err *e)
{
    struct guest_bench_spawn bench = {0};
    _cleanup_free_ uint64_t *each = NULL;
    struct err mine;
    if (!e && decode_bench_spawn(buf_data(&call->body), call->body.len, &bench.mean_ns, &each, &bench.count, &mine) < 0)
        e = &mine;
    bench.each_ns = each;
    call->done.bench(call->arg, e ? NULL : &bench, e);
}

struct guest_call *guest_bench_spawn(struct guest *g, uint32_t n, const char *path, guest_bench_spawn_cb *done,
                                     void *arg)
{
    static const struct call_kind kind = {.success = 200, .finish = bench_finish};
    _cleanup_buf_ struct buf target = target_of(AGENT_PATH_BENCH_SPAWN);
    target_number(&target, AGENT_QUERY_N, n);
    target_text(&target, AGENT_QUERY_PATH, path ? path : "/bin/true");
    struct guest_call *call = call_new(g, &kind, arg);
    call->done.bench = done;
    return call_start(call, &(struct channel_request){.method = "POST", .total_timeout_ms = g->timeouts.bench},
                      &target);
}

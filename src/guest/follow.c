/* Calls that go on for as long as both sides like: watching files, connections to guest ports (see guest.h). */
#include "guest/call.h"
#include "guest/decode.h"

/* --- watch -------------------------------------------------------------------------------------------------------- */

static void watch_event(struct guest_call *call)
{
    struct guest_watch_event event;
    _cleanup_free_ char *arena = NULL;
    struct err e;
    const struct buf *payload = &call->records.payload;
    if (decode_watch(buf_data(payload), payload->len, &event, &arena, &e) < 0)
        call_finish(call, &e);
    else
        call->cb.watch.on_event(call->arg, &event);
}

static void watch_data(struct guest_call *call, const uint8_t *data, size_t len)
{
    guest_call_consume(call, len);
    while (len > 0 && !call->gone) {
        size_t taken;
        enum record_step step = record_next(&call->records, &data, &len, &taken);
        if (step == RECORD_BROKEN || step == RECORD_PIECE)
            call_break(call, ERR_PROTOCOL, "the agent sent something else than changes of files");
        else if (step == RECORD_WHOLE && call->records.record.type == AGENT_RECORD_WATCH)
            watch_event(call);
    }
}

static void watch_finish(struct guest_call *call, const struct err *e)
{
    struct err mine;
    if (!e && !record_reader_idle(&call->records)) {
        err_set(&mine, ERR_PROTOCOL, "the agent ended its report of changes inside a record");
        e = &mine;
    }
    call->cb.watch.done(call->arg, e);
}

struct guest_call *guest_watch(struct guest *g, const char *path, bool recursive, const char *user,
                               const struct guest_watch_callbacks *callbacks, void *arg)
{
    static const struct call_kind kind = {.success = 200, .data = watch_data, .finish = watch_finish};
    _cleanup_buf_ struct buf target = BUF_MAX(TARGET_MAX);
    struct guest_call *call = call_new(g, &kind, arg);
    call->cb.watch = *callbacks;
    buf_put_str(&target, AGENT_PATH_WATCH);
    target_text(&target, AGENT_QUERY_PATH, path);
    target_flag(&target, AGENT_QUERY_RECURSIVE, recursive);
    target_text(&target, AGENT_QUERY_USER, user);
    return call_start(call, &(struct channel_request){.method = "GET", .response_timeout_ms = g->timeouts.response},
                      &target);
}

/* --- connect ------------------------------------------------------------------------------------------------------ */

static void connect_begin(struct guest_call *call, const struct channel_header *headers, size_t count)
{
    (void)headers;
    (void)count;
    if (call->cb.connect.on_open)
        call->cb.connect.on_open(call->arg);
}

static void connect_data(struct guest_call *call, const uint8_t *data, size_t len)
{
    call->cb.connect.on_data(call->arg, data, len);
}

static void connect_read_end(struct guest_call *call)
{
    if (call->cb.connect.on_read_end)
        call->cb.connect.on_read_end(call->arg);
}

static void connect_drain(struct guest_call *call)
{
    if (call->cb.connect.on_drain)
        call->cb.connect.on_drain(call->arg);
}

static void connect_finish(struct guest_call *call, const struct err *e)
{
    call->cb.connect.done(call->arg, e);
}

struct guest_call *guest_connect(struct guest *g, uint16_t port, const struct guest_connect_callbacks *callbacks,
                                 void *arg)
{
    static const struct call_kind kind = {.success = 200,
                                          .begin = connect_begin,
                                          .data = connect_data,
                                          .read_end = connect_read_end,
                                          .drain = connect_drain,
                                          .finish = connect_finish};
    _cleanup_buf_ struct buf target = BUF_MAX(TARGET_MAX);
    struct guest_call *call = call_new(g, &kind, arg);
    call->cb.connect = *callbacks;
    buf_printf(&target, "127.0.0.1:%u", port);
    return call_start(
        call,
        &(struct channel_request){
            .method = "CONNECT", .streamed = true, .both_ways = true, .response_timeout_ms = g->timeouts.connect},
        &target);
}

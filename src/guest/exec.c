/* Calls about execs (see guest.h). */
#include "guest/call.h"
#include "guest/decode.h"

/* "/v1/execs/<id>[/<sub>]". An id that is none leaves a space in the target, which the channel refuses to send. */
static struct buf target_exec(const char *id, const char *sub)
{
    struct buf target = BUF_MAX(TARGET_MAX);
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    bool valid = n > 0 && n <= AGENT_EXEC_ID_MAX && id[n] == '\0';
    buf_printf(&target, "%s/%s", AGENT_PATH_EXECS, valid ? id : " ");
    if (sub)
        buf_printf(&target, "/%s", sub);
    return target;
}

/* --- start -------------------------------------------------------------------------------------------------------- */

static void start_finish(struct guest_call *call, const struct err *e)
{
    struct guest_exec_started started;
    struct err mine;
    if (!e && decode_exec_started(buf_data(&call->body), call->body.len, &started, &mine) < 0)
        e = &mine;
    call->done.exec_start(call->arg, e ? NULL : &started, e);
}

static void spec_encode(struct buf *body, const struct guest_exec_spec *spec)
{
    for (const char *const *v = spec->argv; v && *v; v++)
        wire_put_text(body, AGENT_TAG_EXEC_ARG, *v);
    wire_put_text(body, AGENT_TAG_EXEC_SHELL, spec->shell);
    wire_put_text(body, AGENT_TAG_EXEC_USER, spec->user);
    wire_put_text(body, AGENT_TAG_EXEC_CWD, spec->cwd);
    for (const char *const *v = spec->env; v && *v; v++)
        wire_put_text(body, AGENT_TAG_EXEC_ENV, *v);
    if (spec->terminal) {
        wire_put_u64(body, AGENT_TAG_EXEC_TTY, 1);
        wire_put_u64(body, AGENT_TAG_EXEC_ROWS, spec->rows ? spec->rows : 24);
        wire_put_u64(body, AGENT_TAG_EXEC_COLS, spec->cols ? spec->cols : 80);
    }
    if (spec->stdin_open)
        wire_put_u64(body, AGENT_TAG_EXEC_STDIN, 1);
    if (spec->buffer_bytes)
        wire_put_u64(body, AGENT_TAG_EXEC_BUFFER, spec->buffer_bytes);
    if (spec->timeout_ms)
        wire_put_u64(body, AGENT_TAG_EXEC_TIMEOUT_MS, spec->timeout_ms);
}

struct guest_call *guest_exec_start(struct guest *g, const char *id, const struct guest_exec_spec *spec,
                                    guest_exec_start_cb *done, void *arg)
{
    static const struct call_kind kind = {.success = 201, .finish = start_finish};
    _cleanup_buf_ struct buf target = target_exec(id, NULL);
    _cleanup_buf_ struct buf body = BUF_MAX(AGENT_BODY_MAX);
    struct guest_call *call = call_new(g, &kind, arg);
    call->done.exec_start = done;
    if (!(spec->argv && spec->argv[0]) == !spec->shell)
        return call_refuse(call, ERR_INVALID, "a command is either a list of words or one shell line");
    spec_encode(&body, spec);
    if (body.overflow)
        return call_refuse(call, ERR_TOO_LARGE, "the command and its environment are larger than %d bytes",
                           AGENT_BODY_MAX);
    return call_start(call,
                      &(struct channel_request){.method = "POST",
                                                .body = buf_data(&body),
                                                .body_len = body.len,
                                                .total_timeout_ms = g->timeouts.exec_start},
                      &target);
}

/* --- output ------------------------------------------------------------------------------------------------------- */

static void output_broken(struct guest_call *call)
{
    call_break(call, ERR_PROTOCOL, "the agent sent output records that do not fit together");
}

static void output_piece(struct guest_call *call)
{
    struct record_reader *r = &call->records;
    uint64_t at = r->piece_first ? r->record.offset : call->expected;
    r->piece_first = false;
    if (call->exited || at != call->expected) {
        output_broken(call);
        return;
    }
    call->expected += r->piece_len;
    if (r->piece_len > 0)
        call->cb.output.on_data(call->arg, (enum guest_output)r->record.type, at, r->piece, r->piece_len);
}

static void output_dropped(struct guest_call *call)
{
    const struct buf *payload = &call->records.payload;
    uint64_t offset = call->records.record.offset;
    if (payload->len != 8 || offset != call->expected || call->exited) {
        output_broken(call);
        return;
    }
    uint64_t count = get_u64(buf_data(payload));
    if (count > (uint64_t)INT64_MAX / 2 - offset) {
        output_broken(call);
        return;
    }
    call->expected += count;
    if (call->cb.output.on_dropped)
        call->cb.output.on_dropped(call->arg, offset, count);
}

static void output_exit(struct guest_call *call)
{
    struct guest_exit x;
    struct err e;
    if (call->exited || call->records.record.offset != call->expected) {
        output_broken(call);
    } else if (decode_exit(buf_data(&call->records.payload), call->records.payload.len, &x, &e) < 0) {
        call_finish(call, &e);
    } else {
        call->exited = true;
        call->cb.output.on_exit(call->arg, call->expected, &x);
    }
}

static void output_data(struct guest_call *call, const uint8_t *data, size_t len)
{
    while (len > 0 && !call->gone) {
        size_t taken;
        enum record_step step = record_next(&call->records, &data, &len, &taken);
        if (taken > 0)
            guest_call_consume(call, taken);
        if (step == RECORD_PIECE)
            output_piece(call);
        else if (step == RECORD_BROKEN)
            output_broken(call);
        else if (step == RECORD_WHOLE && call->records.record.type == AGENT_RECORD_DROPPED)
            output_dropped(call);
        else if (step == RECORD_WHOLE && call->records.record.type == AGENT_RECORD_EXIT)
            output_exit(call);
    }
}

static void output_finish(struct guest_call *call, const struct err *e)
{
    struct err mine;
    if (!e && !record_reader_idle(&call->records)) {
        err_set(&mine, ERR_PROTOCOL, "the agent ended the output inside a record");
        e = &mine;
    } else if (!e && call->follow && !call->exited) {
        err_set(&mine, ERR_GONE, "the output ended before the command did");
        e = &mine;
    }
    call->cb.output.done(call->arg, e);
}

struct guest_call *guest_exec_output(struct guest *g, const char *id, uint64_t from, bool follow,
                                     const struct guest_output_callbacks *callbacks, void *arg)
{
    static const struct call_kind kind = {.success = 200, .data = output_data, .finish = output_finish};
    _cleanup_buf_ struct buf target = target_exec(id, AGENT_SUB_OUTPUT);
    struct guest_call *call = call_new(g, &kind, arg);
    call->cb.output = *callbacks;
    call->expected = from;
    call->follow = follow;
    target_number(&target, AGENT_QUERY_FROM, from);
    if (!follow)
        target_number(&target, AGENT_QUERY_FOLLOW, 0);
    return call_start(call, &(struct channel_request){.method = "GET", .response_timeout_ms = g->timeouts.response},
                      &target);
}

/* --- input -------------------------------------------------------------------------------------------------------- */

static void stdin_drain(struct guest_call *call)
{
    if (call->cb.in.on_drain)
        call->cb.in.on_drain(call->arg);
}

static void stdin_finish(struct guest_call *call, const struct err *e)
{
    uint64_t accepted = 0;
    struct err mine;
    if (!e && decode_count(buf_data(&call->body), call->body.len, AGENT_TAG_STDIN_ACCEPTED, &accepted, &mine) < 0)
        e = &mine;
    if (!e && accepted > call->moved) {
        err_set(&mine, ERR_PROTOCOL, "the agent took more input than it was given");
        e = &mine;
    }
    call->cb.in.done(call->arg, e ? 0 : accepted, e);
}

struct guest_call *guest_exec_stdin(struct guest *g, const char *id, bool eof,
                                    const struct guest_stdin_callbacks *callbacks, void *arg)
{
    static const struct call_kind kind = {.success = 200, .drain = stdin_drain, .finish = stdin_finish};
    _cleanup_buf_ struct buf target = target_exec(id, AGENT_SUB_STDIN);
    struct guest_call *call = call_new(g, &kind, arg);
    call->cb.in = *callbacks;
    target_flag(&target, AGENT_QUERY_EOF, eof);
    /* No deadline: a process may leave its input alone for as long as it likes. */
    return call_start(call, &(struct channel_request){.method = "POST", .streamed = true}, &target);
}

struct guest_call *guest_exec_signal(struct guest *g, const char *id, int signal, guest_done_cb *done, void *arg)
{
    _cleanup_buf_ struct buf target = target_exec(id, AGENT_SUB_SIGNAL);
    target_number(&target, AGENT_QUERY_SIGNAL, (uint64_t)MAX(signal, 0));
    return call_simple(g, "POST", &target, g->timeouts.simple, done, arg);
}

struct guest_call *guest_exec_resize(struct guest *g, const char *id, uint16_t rows, uint16_t cols, guest_done_cb *done,
                                     void *arg)
{
    _cleanup_buf_ struct buf target = target_exec(id, AGENT_SUB_RESIZE);
    target_number(&target, AGENT_QUERY_ROWS, rows);
    target_number(&target, AGENT_QUERY_COLS, cols);
    return call_simple(g, "POST", &target, g->timeouts.simple, done, arg);
}

struct guest_call *guest_exec_forget(struct guest *g, const char *id, guest_done_cb *done, void *arg)
{
    _cleanup_buf_ struct buf target = target_exec(id, NULL);
    return call_simple(g, "DELETE", &target, g->timeouts.simple, done, arg);
}

/* --- state -------------------------------------------------------------------------------------------------------- */

static void state_finish(struct guest_call *call, const struct err *e)
{
    struct guest_exec_state state;
    struct err mine;
    if (!e && decode_exec_state(buf_data(&call->body), call->body.len, &state, &mine) < 0)
        e = &mine;
    if (!e && strcmp(state.id, call->id) != 0) {
        err_set(&mine, ERR_PROTOCOL, "the agent answered about another command");
        e = &mine;
    }
    call->done.exec_state(call->arg, e ? NULL : &state, e);
}

struct guest_call *guest_exec_state(struct guest *g, const char *id, guest_exec_state_cb *done, void *arg)
{
    static const struct call_kind kind = {.success = 200, .finish = state_finish};
    _cleanup_buf_ struct buf target = target_exec(id, NULL);
    struct guest_call *call = call_new(g, &kind, arg);
    call->done.exec_state = done;
    snprintf(call->id, sizeof(call->id), "%s", id);
    return call_start(call, &(struct channel_request){.method = "GET", .total_timeout_ms = g->timeouts.simple},
                      &target);
}

static void list_finish(struct guest_call *call, const struct err *e)
{
    _cleanup_free_ struct guest_exec_state *states = NULL;
    size_t count = 0;
    struct err mine;
    if (!e && decode_exec_list(buf_data(&call->body), call->body.len, &states, &count, &mine) < 0)
        e = &mine;
    call->done.exec_list(call->arg, states, count, e);
}

struct guest_call *guest_exec_list(struct guest *g, guest_exec_list_cb *done, void *arg)
{
    static const struct call_kind kind = {.success = 200, .finish = list_finish};
    _cleanup_buf_ struct buf target = BUF_MAX(TARGET_MAX);
    buf_put_str(&target, AGENT_PATH_EXECS);
    struct guest_call *call = call_new(g, &kind, arg);
    call->done.exec_list = done;
    return call_start(call, &(struct channel_request){.method = "GET", .total_timeout_ms = g->timeouts.simple},
                      &target);
}

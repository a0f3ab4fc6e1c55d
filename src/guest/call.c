/* The life of a call (see call.h): start, answer, error mapping, end. */
#include "guest/call.h"

#include <stdarg.h>

#include "base/str.h"

#define ERROR_COLLECT_MAX 4096 /* of an error's text; more is not waited for */
#define ERROR_SHOWN_MAX 400    /* … of it shown, once escaped */

void call_enter(struct guest_call *call)
{
    call->depth++;
}

void call_leave(struct guest_call *call)
{
    if (--call->depth > 0 || !call->gone)
        return;
    buf_done(&call->body);
    record_reader_done(&call->records);
    free(call->after);
    free(call->name);
    free(call);
}

/* Nobody finds it any more; freed when the last callback has returned. */
static void call_detach(struct guest_call *call)
{
    call->gone = true;
    TAILQ_REMOVE(call->unstarted ? &call->guest->unstarted : &call->guest->calls, call, link);
    if (call->stream)
        channel_stream_cancel(call->stream);
    call->stream = NULL;
}

void call_finish(struct guest_call *call, const struct err *e)
{
    if (call->gone)
        return;
    call_enter(call);
    call_detach(call);
    call->kind->finish(call, e);
    call_leave(call);
}

void call_break(struct guest_call *call, int code, const char *format, ...)
{
    struct err e = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(e.text, sizeof(e.text), format, args);
    va_end(args);
    call_finish(call, &e);
}

void guest_call_cancel(struct guest_call *call)
{
    call_break(call, ERR_CANCELLED, "the call to the agent was given up");
}

void guest_call_drop(struct guest_call *call)
{
    if (call->gone)
        return;
    call_enter(call);
    call_detach(call);
    call_leave(call);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* What the guest may say about itself. Everything else, above all what would look like a fault of the host or of the
 * caller's key, is a breach of protocol. */
static int error_code_allowed(const char *name)
{
    static const int allowed[] = {ERR_INVALID,  ERR_FORBIDDEN, ERR_NOT_FOUND,  ERR_CONFLICT, ERR_STATE,
                                  ERR_GONE,     ERR_TOO_LARGE, ERR_RANGE,      ERR_LIMIT,    ERR_UNAVAILABLE,
                                  ERR_NO_SPACE, ERR_TIMEOUT,   ERR_UNSUPPORTED};
    int code = err_code_by_name(name);
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
        if (allowed[i] == code)
            return code;
    return ERR_PROTOCOL;
}

static bool answer_is_error(const struct guest_call *call)
{
    return call->status >= 400;
}

/* The text of an error, safe to show: escaped, then cut where a character begins. */
static void error_answer_finish(struct guest_call *call)
{
    _cleanup_buf_ struct buf text = BUF_MAX(16 * AGENT_ERROR_TEXT_MAX);
    struct err e;
    size_t len = MIN(call->body.len, (size_t)AGENT_ERROR_TEXT_MAX);
    if (len > 0)
        text_escape(&text, buf_data(&call->body), len);
    size_t cut = MIN(text.len, (size_t)ERROR_SHOWN_MAX);
    while (cut > 0 && cut < text.len && (buf_data(&text)[cut] & 0xc0) == 0x80)
        cut--;
    if (cut > 0)
        err_set(&e, call->error_code, "%.*s%s", (int)cut, buf_cstr(&text), cut < text.len ? "…" : "");
    else
        err_set(&e, call->error_code, "the agent refused without a word");
    call_finish(call, &e);
}

static void on_response(void *arg, int status, const struct channel_header *headers, size_t count)
{
    struct guest_call *call = arg;
    call->status = status;
    call_enter(call);
    if (answer_is_error(call)) {
        call->error_code = ERR_PROTOCOL;
        call->body.max = ERROR_COLLECT_MAX;
        for (size_t i = 0; i < count; i++)
            if (strcmp(headers[i].name, AGENT_HEADER_ERROR) == 0)
                call->error_code = error_code_allowed(headers[i].value);
    } else if (status != call->kind->success) {
        call_break(call, ERR_PROTOCOL, "the agent answered with status %d", status);
    } else if (call->kind->begin) {
        call->kind->begin(call, headers, count);
    }
    call_leave(call);
}

/* Keep what fits; false when it is not all. */
static bool collect(struct guest_call *call, const uint8_t *data, size_t len)
{
    size_t n = MIN(len, call->body.max - call->body.len);
    channel_stream_consume(call->stream, len);
    buf_put(&call->body, data, n);
    return n == len;
}

static void on_data(void *arg, const uint8_t *data, size_t len)
{
    struct guest_call *call = arg;
    call_enter(call);
    if (!answer_is_error(call) && call->kind->data)
        call->kind->data(call, data, len);
    else if (collect(call, data, len))
        ; /* until the end comes */
    else if (answer_is_error(call))
        error_answer_finish(call);
    else
        call_break(call, ERR_PROTOCOL, "the agent's answer is longer than %zu bytes", call->body.max);
    call_leave(call);
}

static void on_read_end(void *arg)
{
    struct guest_call *call = arg;
    call_enter(call);
    if (answer_is_error(call))
        error_answer_finish(call);
    else if (call->kind->read_end)
        call->kind->read_end(call);
    call_leave(call);
}

static void on_drain(void *arg)
{
    struct guest_call *call = arg;
    call_enter(call);
    if (call->kind->drain)
        call->kind->drain(call);
    call_leave(call);
}

static void on_end(void *arg, const struct err *e)
{
    struct guest_call *call = arg;
    call->stream = NULL;
    if (!e && answer_is_error(call))
        error_answer_finish(call);
    else
        call_finish(call, e);
}

/* --- start -------------------------------------------------------------------------------------------------------- */

static const struct channel_stream_callbacks stream_callbacks = {
    .on_response = on_response,
    .on_data = on_data,
    .on_read_end = on_read_end,
    .on_drain = on_drain,
    .on_end = on_end,
};

struct guest_call *call_new(struct guest *g, const struct call_kind *kind, void *arg)
{
    struct guest_call *call = NEW(struct guest_call);
    call->guest = g;
    call->kind = kind;
    call->arg = arg;
    call->serial = ++g->serial;
    call->body.max = WIRE_MESSAGE_MAX;
    record_reader_init(&call->records);
    TAILQ_INSERT_TAIL(&g->calls, call, link);
    return call;
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct guest *g = prepare->data;
    uv_prepare_stop(prepare);
    call_unstarted_flush(g, g->serial);
}

static struct guest_call *call_unstarted(struct guest_call *call, const struct err *e)
{
    struct guest *g = call->guest;
    call->failure = *e;
    call->unstarted = true;
    TAILQ_REMOVE(&g->calls, call, link);
    TAILQ_INSERT_TAIL(&g->unstarted, call, link);
    if (!uv_is_closing((const uv_handle_t *)&g->prepare))
        uv_prepare_start(&g->prepare, on_prepare);
    return call;
}

void call_unstarted_flush(struct guest *g, uint64_t serial)
{
    struct guest_call *call;
    while ((call = TAILQ_FIRST(&g->unstarted)) && call->serial <= serial) {
        struct err e = call->failure;
        call_finish(call, &e);
    }
}

struct guest_call *call_refuse(struct guest_call *call, int code, const char *format, ...)
{
    struct err e = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(e.text, sizeof(e.text), format, args);
    va_end(args);
    return call_unstarted(call, &e);
}

struct guest_call *call_start(struct guest_call *call, struct channel_request *r, struct buf *target)
{
    struct err e;
    if (target->overflow)
        return call_refuse(call, ERR_TOO_LARGE, "the names in a request to the agent are too long");
    if (!call->guest->channel)
        return call_refuse(call, ERR_STATE, "the connection to the agent is closed: %s", call->guest->closed_why.text);
    r->target = buf_cstr(target);
    if (channel_request(call->guest->channel, r, &stream_callbacks, call, &call->stream, &e) < 0)
        return call_unstarted(call, &e);
    return call;
}

/* --- data of streaming calls -------------------------------------------------------------------------------------- */

void guest_call_consume(struct guest_call *call, size_t len)
{
    if (call->stream)
        channel_stream_consume(call->stream, len);
}

size_t guest_call_write(struct guest_call *call, const void *data, size_t len)
{
    if (!call->stream)
        return len;
    size_t taken = channel_stream_write(call->stream, data, len);
    call->moved += taken;
    return taken;
}

size_t guest_call_writable(const struct guest_call *call)
{
    return call->stream ? channel_stream_writable(call->stream) : SIZE_MAX;
}

void guest_call_write_end(struct guest_call *call)
{
    if (call->stream)
        channel_stream_write_end(call->stream);
}

/* --- targets ------------------------------------------------------------------------------------------------------ */

static void target_name(struct buf *target, const char *name)
{
    buf_put_byte(target, target->len && memchr(buf_data(target), '?', target->len) ? '&' : '?');
    buf_put_str(target, name);
    buf_put_byte(target, '=');
}

void target_text(struct buf *target, const char *name, const char *value)
{
    if (!value)
        return;
    target_name(target, name);
    percent_encode(target, value, true);
}

void target_number(struct buf *target, const char *name, uint64_t value)
{
    target_name(target, name);
    buf_printf(target, "%llu", (unsigned long long)value);
}

void target_octal(struct buf *target, const char *name, int value)
{
    if (value < 0)
        return;
    target_name(target, name);
    buf_printf(target, "%o", (unsigned)value & 07777);
}

void target_flag(struct buf *target, const char *name, bool value)
{
    if (value)
        target_number(target, name, 1);
}

/* --- plain calls -------------------------------------------------------------------------------------------------- */

void call_finish_plain(struct guest_call *call, const struct err *e)
{
    call->done.plain(call->arg, e);
}

struct guest_call *call_simple(struct guest *g, const char *method, struct buf *target, uint32_t timeout_ms,
                               guest_done_cb *done, void *arg)
{
    static const struct call_kind kind = {.success = 200, .finish = call_finish_plain};
    struct guest_call *call = call_new(g, &kind, arg);
    call->done.plain = done;
    return call_start(call, &(struct channel_request){.method = method, .total_timeout_ms = timeout_ms}, target);
}

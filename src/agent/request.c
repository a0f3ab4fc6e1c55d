/* Requests: from the first header to the closing of the stream (see session.h). */
#include <stdarg.h>

#include "agent/session.h"
#include "agent/session_internal.h"

static void collect_body(struct request *r, const uint8_t *data, size_t len)
{
    if (!buf_put(&r->body, data, len))
        request_failf(r, ERR_TOO_LARGE, "the body is larger than %d bytes", AGENT_BODY_MAX);
    request_consume(r, len);
}

static void collect_end(struct request *r)
{
    r->collected(r);
}

static const struct request_ops collect_ops = {.body = collect_body, .body_end = collect_end};

void request_collect(struct request *r, void (*complete)(struct request *r))
{
    r->collected = complete;
    r->ops = &collect_ops;
    r->body.max = AGENT_BODY_MAX;
}

void request_header(struct request *r, const char *name, const char *format, ...)
{
    if (r->header_count == LIMIT_REPLY_HEADERS)
        return;
    struct request_header *h = &r->headers[r->header_count++];
    va_list args;
    va_start(args, format);
    vsnprintf(h->value, sizeof(h->value), format, args);
    va_end(args);
    h->name = name;
}

static ssize_t on_read(nghttp2_session *h2 ATTR_UNUSED, int32_t id ATTR_UNUSED, uint8_t *to ATTR_UNUSED, size_t len,
                       uint32_t *flags, nghttp2_data_source *source, void *user_data ATTR_UNUSED)
{
    struct request *r = source->ptr;
    bool end = false;
    size_t n;
    if (r->replying) {
        n = MIN(r->reply.len, len);
        end = n == r->reply.len;
    } else {
        n = r->ops->available(r, len, &end);
    }
    if (n == 0 && !end) {
        r->waiting = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (end)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return (ssize_t)n;
}

static void respond(struct request *r, int status, bool with_body)
{
    char text[8];
    snprintf(text, sizeof(text), "%03d", status);
    nghttp2_nv nv[1 + LIMIT_REPLY_HEADERS];
    size_t count = 0;
    nv[count++] = (nghttp2_nv){(uint8_t *)(uintptr_t) ":status", (uint8_t *)text, 7, 3, NGHTTP2_NV_FLAG_NO_COPY_NAME};
    for (size_t i = 0; i < r->header_count; i++)
        nv[count++] =
            (nghttp2_nv){(uint8_t *)(uintptr_t)r->headers[i].name, (uint8_t *)r->headers[i].value,
                         strlen(r->headers[i].name), strlen(r->headers[i].value), NGHTTP2_NV_FLAG_NO_COPY_NAME};
    nghttp2_data_provider provider = {.source.ptr = r, .read_callback = on_read};
    r->answered = true;
    if (nghttp2_submit_response(r->session->h2, r->stream_id, nv, count, with_body ? &provider : NULL) != 0)
        request_reset(r);
}

void request_reply(struct request *r, int status, struct buf *body)
{
    if (r->answered)
        return;
    if (body) {
        buf_done(&r->reply);
        r->reply = *body;
        *body = (struct buf){.max = body->max};
    }
    r->replying = true;
    respond(r, status, r->reply.len > 0);
}

void request_fail(struct request *r, const struct err *e)
{
    if (r->answered) {
        request_reset(r);
        return;
    }
    const struct err_info *info = err_info(e->code);
    struct buf text = BUF_MAX(AGENT_ERROR_TEXT_MAX);
    buf_put(&text, e->text, strnlen(e->text, AGENT_ERROR_TEXT_MAX));
    r->header_count = 0;
    request_header(r, AGENT_HEADER_ERROR, "%s", info->name);
    request_reply(r, info->http_status, &text);
}

void request_failf(struct request *r, int code, const char *format, ...)
{
    struct err e;
    va_list args;
    va_start(args, format);
    vsnprintf(e.text, sizeof(e.text), format, args);
    va_end(args);
    e.code = code;
    request_fail(r, &e);
}

void request_stream(struct request *r, int status)
{
    if (!r->answered)
        respond(r, status, true);
}

void request_wake(struct request *r)
{
    if (!r->waiting)
        return;
    r->waiting = false;
    nghttp2_session_resume_data(r->session->h2, r->stream_id);
}

bool request_emit(struct request *r, uint8_t *to, size_t len)
{
    if (!r->replying)
        return r->ops->emit(r, to, len);
    memcpy(to, buf_data(&r->reply), len);
    buf_consume(&r->reply, len);
    return true;
}

void request_consume(struct request *r, size_t len)
{
    if (len > 0)
        nghttp2_session_consume_stream(r->session->h2, r->stream_id, len);
}

void request_widen(struct request *r)
{
    nghttp2_session_set_local_window_size(r->session->h2, NGHTTP2_FLAG_NONE, r->stream_id, AGENT_STREAM_WINDOW);
}

void request_reset(struct request *r)
{
    nghttp2_submit_rst_stream(r->session->h2, NGHTTP2_FLAG_NONE, r->stream_id, NGHTTP2_INTERNAL_ERROR);
}

void request_close(struct request *r)
{
    LIST_REMOVE(r, entry);
    if (r->ops && r->ops->closed)
        r->ops->closed(r);
    buf_done(&r->body);
    buf_done(&r->reply);
    free(r->method);
    free(r->path);
    free(r->authority);
    free(r);
}

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user_data)
{
    struct session *s = user_data;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct request *r = NEW(struct request);
    r->session = s;
    r->stream_id = frame->hd.stream_id;
    LIST_INSERT_HEAD(&s->requests, r, entry);
    nghttp2_session_set_stream_user_data(h2, r->stream_id, r);
    return 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags ATTR_UNUSED, void *user_data ATTR_UNUSED)
{
    struct request *r = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (!r || r->dispatched)
        return 0;
    r->header_bytes += name_len + value_len + 32; /* as RFC 9113 section 6.5.2 counts */
    if (r->header_bytes > AGENT_HEADER_LIST_MAX)
        return 0;
    static const struct {
        const char *name;
        size_t member;
    } wanted[] = {{":method", offsetof(struct request, method)},
                  {":path", offsetof(struct request, path)},
                  {":authority", offsetof(struct request, authority)}};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        char **member = (char **)(void *)((char *)r + wanted[i].member);
        if (name_len == strlen(wanted[i].name) && memcmp(name, wanted[i].name, name_len) == 0 && !*member)
            *member = xstrndup((const char *)value, value_len);
    }
    return 0;
}

static void dispatch(struct request *r)
{
    r->dispatched = true;
    if (r->header_bytes > AGENT_HEADER_LIST_MAX)
        request_failf(r, ERR_TOO_LARGE, "the header is larger than %d bytes", AGENT_HEADER_LIST_MAX);
    else
        r->session->handle(r->session->handle_arg, r);
}

static int on_frame_recv(nghttp2_session *h2, const nghttp2_frame *frame, void *user_data ATTR_UNUSED)
{
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct request *r = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (!r)
        return 0;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->hd.type == NGHTTP2_HEADERS && !r->dispatched)
        dispatch(r);
    if (end && !r->body_ended) {
        r->body_ended = true;
        if (!r->replying && r->ops && r->ops->body_end)
            r->ops->body_end(r);
    }
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags ATTR_UNUSED, int32_t id, const uint8_t *data, size_t len,
                   void *user_data ATTR_UNUSED)
{
    struct request *r = nghttp2_session_get_stream_user_data(h2, id);
    /* The connection's window is given back at once: one stream that is stuck must not hold up the others. */
    nghttp2_session_consume_connection(h2, len);
    if (r && !r->replying && r->ops && r->ops->body)
        r->ops->body(r, data, len);
    else
        nghttp2_session_consume_stream(h2, id, len);
    return 0;
}

static int on_stream_close(nghttp2_session *h2, int32_t id, uint32_t code ATTR_UNUSED, void *user_data ATTR_UNUSED)
{
    struct request *r = nghttp2_session_get_stream_user_data(h2, id);
    if (r)
        request_close(r);
    return 0;
}

void request_callbacks(nghttp2_session_callbacks *cb)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
}

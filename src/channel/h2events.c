/* What nghttp2 tells: headers, data and ends of streams become callbacks to their owners, breaches end the session (see
 * h2client.h). Each function here returns 0 to go on, or NGHTTP2_ERR_CALLBACK_FAILURE to stop at once. */
#include "channel/h2client.h"

#define RESPONSE_HEADERS_MAX 64
#define HEADER_OVERHEAD 32 /* RFC 9113 section 6.5.2: what an entry counts beside its bytes */

struct channel_stream *h2events_stream(struct h2client *s, int32_t id)
{
    return id > 0 ? nghttp2_session_get_stream_user_data(s->h2, id) : NULL;
}

static int verdict(const struct h2client *s)
{
    return s->over ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
    (void)h2;
    (void)flags;
    struct h2client *s = arg;
    struct channel_stream *st = h2events_stream(s, frame->hd.stream_id);
    if (!st)
        return verdict(s);
    st->head_bytes += name_len + value_len + HEADER_OVERHEAD;
    if (st->head_bytes > AGENT_HEADER_LIST_MAX) {
        h2client_break(s, ERR_PROTOCOL, "the agent sent more than %d bytes of headers", AGENT_HEADER_LIST_MAX);
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (name_len == 7 && memcmp(name, ":status", 7) == 0) {
        /* nghttp2 has checked that these are three digits. */
        st->status = (value[0] - '0') * 100 + (value[1] - '0') * 10 + (value[2] - '0');
        return verdict(s);
    }
    if (++st->head_count > RESPONSE_HEADERS_MAX) {
        h2client_break(s, ERR_PROTOCOL, "the agent sent more than %d headers", RESPONSE_HEADERS_MAX);
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    buf_put(&st->head, name, name_len);
    buf_put_byte(&st->head, 0);
    buf_put(&st->head, value, value_len);
    buf_put_byte(&st->head, 0);
    return verdict(s);
}

static int on_invalid_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                             const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
    (void)h2;
    (void)frame;
    (void)name;
    (void)name_len;
    (void)value;
    (void)value_len;
    (void)flags;
    h2client_break(arg, ERR_PROTOCOL, "the agent sent a header that is not valid");
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static void response_deliver(struct h2client *s, struct channel_stream *st)
{
    struct channel_header headers[RESPONSE_HEADERS_MAX];
    const char *p = st->head_count ? (const char *)buf_data(&st->head) : NULL;
    for (size_t i = 0; i < st->head_count; i++) {
        headers[i].name = p;
        p += strlen(p) + 1;
        headers[i].value = p;
        p += strlen(p) + 1;
    }
    st->responded = true;
    st->response_deadline = 0;
    stream_moved(st, 1024);
    /* Taken out of the stream: the owner may cancel it while it looks at the headers. */
    struct buf head = st->head;
    st->head = (struct buf){.max = head.max};
    st->callbacks->on_response(st->arg, st->status, headers, st->head_count);
    buf_done(&head);
    (void)s;
}

static void read_end(struct channel_stream *st)
{
    st->read_ended = true;
    if (!st->both_ways)
        stream_finish(st, NULL);
    else if (st->callbacks->on_read_end)
        st->callbacks->on_read_end(st->arg);
}

static void headers_received(struct h2client *s, const nghttp2_frame *frame)
{
    struct channel_stream *st = h2events_stream(s, frame->hd.stream_id);
    if (!st)
        return;
    if (frame->headers.cat != NGHTTP2_HCAT_RESPONSE || st->responded || st->status < 200) {
        h2client_break(s, ERR_PROTOCOL, "the agent sent an interim response or trailers");
        return;
    }
    response_deliver(s, st);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && !s->over && !st->gone)
        read_end(st);
}

static void ping_received(struct h2client *s, const nghttp2_frame *frame)
{
    if (!(frame->hd.flags & NGHTTP2_FLAG_ACK) || !s->ping_deadline)
        return;
    if (get_u64(frame->ping.opaque_data) != s->ping_count)
        return;
    s->ping_deadline = 0;
    s->ping_at = s->stream_count ? h2client_now(s) + s->options.heartbeat_ms : 0;
    if (s->ping_at)
        h2client_deadline_lower(s, s->ping_at);
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
    (void)h2;
    struct h2client *s = arg;
    struct channel_stream *st;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        headers_received(s, frame);
        break;
    case NGHTTP2_DATA:
        st = h2events_stream(s, frame->hd.stream_id);
        if (st && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
            read_end(st);
        break;
    case NGHTTP2_PING:
        ping_received(s, frame);
        break;
    case NGHTTP2_GOAWAY:
        h2client_break(s, ERR_PROTOCOL, "the agent ended the session with code %u", frame->goaway.error_code);
        break;
    default:
        break;
    }
    return verdict(s);
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t len, void *arg)
{
    (void)flags;
    struct h2client *s = arg;
    struct channel_stream *st = h2events_stream(s, stream_id);
    if (!st)
        nghttp2_session_consume_connection(h2, len);
    else
        stream_data(st, data, len);
    return verdict(s);
}

static int on_invalid_frame(nghttp2_session *h2, const nghttp2_frame *frame, int lib_error, void *arg)
{
    (void)h2;
    (void)frame;
    h2client_break(arg, ERR_PROTOCOL, "the agent broke HTTP/2: %s", nghttp2_strerror(lib_error));
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* nghttp2 answers a breach of the connection with a GOAWAY that says what it found, and a breach of a stream with an
 * RST_STREAM. Those of our own have the codes CANCEL and, for a body whose owner is gone, INTERNAL_ERROR. */
static int before_send(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
    (void)h2;
    struct h2client *s = arg;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        h2client_break(s, ERR_PROTOCOL, "the agent broke HTTP/2: %s%s%.*s",
                       nghttp2_http2_strerror(frame->goaway.error_code), frame->goaway.opaque_data_len ? ", " : "",
                       (int)MIN(frame->goaway.opaque_data_len, (size_t)128), (const char *)frame->goaway.opaque_data);
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_CANCEL &&
        frame->rst_stream.error_code != NGHTTP2_INTERNAL_ERROR) {
        h2client_break(s, ERR_PROTOCOL, "the agent broke HTTP/2 on a stream: %s",
                       nghttp2_http2_strerror(frame->rst_stream.error_code));
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    return 0;
}

static int on_not_sent(nghttp2_session *h2, const nghttp2_frame *frame, int lib_error, void *arg)
{
    (void)h2;
    struct h2client *s = arg;
    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    struct channel_stream *st = h2events_stream(s, frame->hd.stream_id);
    if (st && !s->over)
        h2client_break(s, ERR_INTERNAL, "a request could not be sent: %s", nghttp2_strerror(lib_error));
    return 0;
}

static int on_stream_close(nghttp2_session *h2, int32_t stream_id, uint32_t code, void *arg)
{
    struct h2client *s = arg;
    struct channel_stream *st = nghttp2_session_get_stream_user_data(h2, stream_id);
    if (!st || s->over)
        return verdict(s);
    if (code == NGHTTP2_NO_ERROR && st->read_ended) {
        stream_finish(st, NULL);
        return verdict(s);
    }
    struct err e;
    s->stats.streams_reset_by_guest++;
    if (!framewatch_broken_off(&s->watch, h2client_now(s))) {
        h2client_break(s, ERR_PROTOCOL, "the agent broke off too many answers");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    switch (code) {
    case NGHTTP2_REFUSED_STREAM:
        err_set(&e, ERR_LIMIT, "the agent takes no more requests at this moment");
        break;
    case NGHTTP2_CONNECT_ERROR:
        err_set(&e, ERR_GONE, "the connection inside the sandbox was reset");
        break;
    default:
        err_set(&e, ERR_PROTOCOL, "the agent broke off its answer with code %u", code);
    }
    stream_finish(st, &e);
    return verdict(s);
}

nghttp2_session_callbacks *h2events_callbacks(void)
{
    nghttp2_session_callbacks *cb;
    if (nghttp2_session_callbacks_new(&cb) != 0)
        abort(); /* out of memory, as in xmalloc */
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
    nghttp2_session_callbacks_set_before_frame_send_callback(cb, before_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_not_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_data_source_read_length_callback(cb, stream_body_length);
    nghttp2_session_callbacks_set_send_data_callback(cb, stream_body_send);
    return cb;
}

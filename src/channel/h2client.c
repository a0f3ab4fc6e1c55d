/* The session proper: states, input, output, time (see h2client.h). */
#include "channel/h2client.h"

#include <stdarg.h>

#define RESPONSE_HEADERS_MAX 64
#define HEADER_OVERHEAD 32 /* RFC 9113 section 6.5.2: what an entry counts beside its bytes */

uint64_t h2client_now(const struct h2client *s)
{
    return s->hooks->now_ms(s->hooks_arg);
}

void h2client_wake(struct h2client *s)
{
    if (s->hooks->wake)
        s->hooks->wake(s->hooks_arg);
}

void h2client_enter(struct h2client *s)
{
    s->depth++;
}

void h2client_leave(struct h2client *s)
{
    if (--s->depth > 0)
        return;
    struct channel_stream *st;
    while ((st = TAILQ_FIRST(&s->graveyard))) {
        TAILQ_REMOVE(&s->graveyard, st, link);
        free(st);
    }
}

void h2client_deadline_lower(struct h2client *s, uint64_t at)
{
    if (at < s->deadline) {
        s->deadline = at;
        h2client_wake(s);
    }
}

void h2client_fail(struct h2client *s, const struct err *why)
{
    if (s->over)
        return;
    s->over = true;
    s->error = *why;
    h2client_wake(s);
}

int h2client_break(struct h2client *s, int code, const char *format, ...)
{
    struct err e = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(e.text, sizeof(e.text), format, args);
    va_end(args);
    h2client_fail(s, &e);
    return code;
}

/* --- callbacks of nghttp2: 0 to go on, NGHTTP2_ERR_CALLBACK_FAILURE to stop at once
 * ----------------------------------- */

static struct channel_stream *stream_by_id(struct h2client *s, int32_t id)
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
    struct channel_stream *st = stream_by_id(s, frame->hd.stream_id);
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
    struct channel_stream *st = stream_by_id(s, frame->hd.stream_id);
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
        st = stream_by_id(s, frame->hd.stream_id);
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
    struct channel_stream *st = stream_by_id(s, stream_id);
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
    struct channel_stream *st = stream_by_id(s, frame->hd.stream_id);
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

/* --- life
 * ------------------------------------------------------------------------------------------------------------- */

/* Each prelude has a nonce of its own, and only the echo of the last one counts: an agent that comes to answer several
 * does it in their order, so nothing of an earlier answer can be taken for the session. A repeat first ends whatever
 * frame of an older session the agent may still be waiting for. */
static void prelude_send(struct h2client *s)
{
    uint8_t nonce[AGENT_NONCE_SIZE];
    if (s->resync_repeat_at) {
        static const uint8_t zeros[AGENT_RESYNC_FLUSH];
        outq_copy(&s->out, zeros, sizeof(zeros));
    }
    s->hooks->random(s->hooks_arg, nonce, sizeof(nonce));
    resync_begin(&s->resync, nonce);
    outq_copy(&s->out, s->resync.prelude, sizeof(s->resync.prelude));
    /* Each repeat waits twice as long, so that the last one has time for its echo. */
    s->resync_repeat_at = h2client_now(s) + s->resync_repeat_ms;
    s->resync_repeat_ms *= 2;
    h2client_deadline_lower(s, MIN(s->resync_repeat_at, s->resync_deadline));
}

static nghttp2_session_callbacks *callbacks_make(void)
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

static void h2_make(struct h2client *s)
{
    nghttp2_session_callbacks *cb = callbacks_make();
    nghttp2_option *option;
    if (nghttp2_option_new(&option) != 0)
        abort();
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_peer_max_concurrent_streams(option, AGENT_STREAMS_MAX);
    nghttp2_option_set_max_reserved_remote_streams(option, 0);
    nghttp2_option_set_max_outbound_ack(option, 128);
    nghttp2_option_set_max_settings(option, 16);
    int r = nghttp2_session_client_new2(&s->h2, cb, s, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
    if (r != 0)
        abort();
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, s->options.stream_window},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, AGENT_FRAME_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, AGENT_HEADER_LIST_MAX},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    r = nghttp2_submit_settings(s->h2, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    if (r == 0)
        r = nghttp2_session_set_local_window_size(s->h2, NGHTTP2_FLAG_NONE, 0, AGENT_CONNECTION_WINDOW);
    if (r != 0)
        abort();
}

struct h2client *h2client_new(const struct channel_options *o, const struct h2client_hooks *hooks, void *hooks_arg)
{
    struct h2client *s = NEW(struct h2client);
    s->options = *o;
    s->hooks = hooks;
    s->hooks_arg = hooks_arg;
    TAILQ_INIT(&s->streams);
    TAILQ_INIT(&s->graveyard);
    h2_make(s);
    s->deadline = UINT64_MAX;
    s->resync_repeat_ms = o->resync_repeat_ms;
    s->resync_deadline = h2client_now(s) + o->resync_timeout_ms;
    prelude_send(s);
    return s;
}

void h2client_free(struct h2client *s)
{
    if (!s)
        return;
    nghttp2_session_del(s->h2);
    outq_done(&s->out);
    free(s);
}

/* --- input
 * ------------------------------------------------------------------------------------------------------------ */

static bool stream_known(void *arg, uint32_t stream_id)
{
    return stream_by_id(arg, (int32_t)stream_id) != NULL;
}

/* Everything up to the echo is of an older session. Returns how many bytes were taken. */
static size_t resync_take(struct h2client *s, const uint8_t *data, size_t len)
{
    size_t n = resync_input(&s->resync, data, len);
    if (s->resync.discarded > AGENT_RESYNC_DISCARD_MAX) {
        h2client_break(s, ERR_PROTOCOL, "the agent sent more than %d bytes without beginning a session",
                       AGENT_RESYNC_DISCARD_MAX);
    } else if (s->resync.done) {
        s->ready = true;
        framewatch_init(&s->watch, AGENT_FRAME_MAX, h2client_now(s));
        for (size_t i = 0; i < s->stats.streams_opened; i++)
            framewatch_opened(&s->watch);
    }
    return n;
}

int h2client_input(struct h2client *s, const uint8_t *data, size_t len)
{
    struct err e;
    if (s->over)
        return s->error.code;
    h2client_enter(s);
    s->stats.bytes_in += len;
    if (!s->ready) {
        size_t n = resync_take(s, data, len);
        data += n;
        len -= n;
    }
    if (!s->over && len > 0) {
        if (framewatch_input(&s->watch, data, len, h2client_now(s), stream_known, s, &e) < 0) {
            h2client_fail(s, &e);
        } else {
            ssize_t n = nghttp2_session_mem_recv(s->h2, data, len);
            if (n < 0)
                h2client_break(s, ERR_PROTOCOL, "the agent broke HTTP/2: %s", nghttp2_strerror((int)n));
        }
        s->stats.frames_in = s->watch.frames;
    }
    h2client_wake(s);
    h2client_leave(s);
    return s->over ? s->error.code : 0;
}

/* --- output
 * ----------------------------------------------------------------------------------------------------------- */

static void output_fill(struct h2client *s)
{
    while (!s->over && !outq_full(&s->out)) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(s->h2, &data);
        if (n < 0) /* before_send may have said why already: a first reason stays */
            h2client_break(s, ERR_INTERNAL, "HTTP/2 output failed: %s", nghttp2_strerror((int)n));
        if (n <= 0)
            break;
        outq_copy(&s->out, data, (size_t)n);
    }
}

int h2client_output(struct h2client *s, struct iovec *ret_iov, int max)
{
    if (s->over)
        return 0;
    h2client_enter(s);
    if (s->ready)
        output_fill(s);
    h2client_leave(s);
    return s->over ? 0 : outq_peek(&s->out, ret_iov, max);
}

void h2client_sent(struct h2client *s, size_t len)
{
    s->stats.bytes_out += len;
    outq_consume(&s->out, len);
}

bool h2client_deliver(struct h2client *s)
{
    struct channel_stream *st;
    bool told = false;
    if (s->drains == 0)
        return false;
    h2client_enter(s);
again:
    TAILQ_FOREACH(st, &s->streams, link)
    {
        if (!st->want_drain || s->over || st->body_bytes > s->options.body_max / 2)
            continue;
        st->want_drain = false;
        s->drains--;
        told = true;
        if (st->callbacks->on_drain) {
            st->callbacks->on_drain(st->arg);
            goto again; /* the list may be another one */
        }
    }
    h2client_leave(s);
    return told;
}

/* --- time
 * ------------------------------------------------------------------------------------------------------------- */

uint64_t h2client_deadline(const struct h2client *s)
{
    return s->over ? UINT64_MAX : s->deadline;
}

static uint64_t resync_time(struct h2client *s, uint64_t now)
{
    if (now >= s->resync_deadline) {
        h2client_break(s, ERR_TIMEOUT, "the agent did not begin a session within %u ms", s->options.resync_timeout_ms);
        return UINT64_MAX;
    }
    if (now >= s->resync_repeat_at)
        prelude_send(s);
    return MIN(s->resync_repeat_at, s->resync_deadline);
}

static uint64_t heartbeat_time(struct h2client *s, uint64_t now)
{
    if (s->ping_deadline) {
        if (now >= s->ping_deadline)
            h2client_break(s, ERR_TIMEOUT, "the agent did not answer a heartbeat within %u ms",
                           s->options.heartbeat_timeout_ms);
        return s->ping_deadline;
    }
    if (!s->ping_at)
        return UINT64_MAX;
    if (now < s->ping_at)
        return s->ping_at;
    if (s->stream_count == 0) {
        s->ping_at = 0;
        return UINT64_MAX;
    }
    uint8_t payload[8];
    s->ping_count++;
    for (int i = 0; i < 8; i++)
        payload[i] = (uint8_t)(s->ping_count >> (56 - 8 * i));
    if (nghttp2_submit_ping(s->h2, NGHTTP2_FLAG_NONE, payload) != 0)
        h2client_break(s, ERR_INTERNAL, "a heartbeat could not be sent");
    s->ping_deadline = now + s->options.heartbeat_timeout_ms;
    return s->ping_deadline;
}

static uint64_t streams_time(struct h2client *s, uint64_t now)
{
    struct channel_stream *st;
    uint64_t next;
again:
    next = UINT64_MAX;
    TAILQ_FOREACH(st, &s->streams, link)
    {
        struct err e;
        uint64_t at = stream_deadline(st, now, &e);
        if (at <= now) {
            stream_reset(st);
            stream_finish(st, &e);
            if (s->over)
                return UINT64_MAX;
            goto again;
        }
        next = MIN(next, at);
    }
    return next;
}

int h2client_time(struct h2client *s)
{
    if (s->over)
        return s->error.code;
    uint64_t now = h2client_now(s);
    if (now < s->deadline)
        return 0;
    h2client_enter(s);
    s->deadline = UINT64_MAX;
    uint64_t next = s->ready ? heartbeat_time(s, now) : resync_time(s, now);
    if (!s->over)
        next = MIN(next, streams_time(s, now));
    s->deadline = MIN(s->deadline, next);
    h2client_wake(s);
    h2client_leave(s);
    return s->over ? s->error.code : 0;
}

void h2client_end(struct h2client *s)
{
    struct channel_stream *st;
    h2client_enter(s);
    while ((st = TAILQ_FIRST(&s->streams)))
        stream_finish(st, &s->error);
    h2client_leave(s);
}

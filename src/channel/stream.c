/* Streams of a session: requests, bodies with back-pressure, consumption, deadlines, ends (see h2client.h). */
#include "channel/h2client.h"

#define BLOCK_SMALL 4096
#define BLOCK_LARGE (64u * 1024)
#define MOVED_ENOUGH 1024 /* fewer bytes than this in the idle time are no progress */
#define REQUEST_HEADERS_MAX 16

/* --- accounts ----------------------------------------------------------------------------------------------------- */

/* `len` bytes are no longer with an owner: give the connection's window back what it is owed. */
static void held_release(struct h2client *s, size_t len)
{
    s->held -= len;
    if (s->owed == 0 || s->held >= s->options.held_max)
        return;
    uint64_t give = MIN(s->owed, s->options.held_max - s->held);
    s->owed -= give;
    if (!s->over)
        nghttp2_session_consume_connection(s->h2, (size_t)give);
}

void stream_moved(struct channel_stream *st, size_t bytes)
{
    st->moved += bytes;
    if (st->moved >= MOVED_ENOUGH) {
        st->moved = 0;
        st->active_at = h2client_now(st->session);
    }
}

void stream_data(struct channel_stream *st, const uint8_t *data, size_t len)
{
    struct h2client *s = st->session;
    if (!st->responded) {
        h2client_break(s, ERR_PROTOCOL, "the agent sent data before a response");
        return;
    }
    st->held += len;
    s->held += len;
    if (s->held > s->options.held_max)
        s->owed += len;
    else
        nghttp2_session_consume_connection(s->h2, len);
    stream_moved(st, len);
    st->callbacks->on_data(st->arg, data, len);
}

/* --- ends --------------------------------------------------------------------------------------------------------- */

/* Out of the tables and off nghttp2; from here on nobody finds it. */
static void stream_detach(struct channel_stream *st)
{
    struct h2client *s = st->session;
    struct block *b;
    st->gone = true;
    TAILQ_REMOVE(&s->streams, st, link);
    s->stream_count--;
    if (st->want_drain)
        s->drains--;
    held_release(s, st->held);
    st->held = 0;
    while ((b = TAILQ_FIRST(&st->body))) {
        TAILQ_REMOVE(&st->body, b, link);
        block_unref(b);
    }
    buf_done(&st->head);
    nghttp2_session_set_stream_user_data(s->h2, st->id, NULL);
    if (s->depth > 0)
        TAILQ_INSERT_TAIL(&s->graveyard, st, link);
}

void stream_reset(struct channel_stream *st)
{
    struct h2client *s = st->session;
    nghttp2_submit_rst_stream(s->h2, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_CANCEL);
    /* A window's worth may be under way, in frames so small that their fixed price is as much again. */
    framewatch_abandoned(&s->watch, 2 * (uint64_t)s->options.stream_window);
    h2client_wake(s);
}

void stream_finish(struct channel_stream *st, const struct err *e)
{
    struct h2client *s = st->session;
    if (st->gone)
        return;
    /* Answered before it was asked to the end: the rest of the request is of no use. */
    if (!e && !s->over && nghttp2_session_get_stream_local_close(s->h2, st->id) == 0)
        nghttp2_submit_rst_stream(s->h2, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_CANCEL);
    stream_detach(st);
    st->callbacks->on_end(st->arg, e);
}

void channel_stream_cancel(struct channel_stream *st)
{
    struct h2client *s = st->session;
    if (st->gone)
        return;
    if (!s->over)
        stream_reset(st);
    stream_detach(st);
    if (s->depth == 0)
        free(st);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static bool text_sendable(const char *text)
{
    if (*text == '\0')
        return false;
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || (unsigned char)*text >= 0x7f)
            return false;
    return true;
}

static nghttp2_nv pair(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .namelen = strlen(name),
                        .value = (uint8_t *)(uintptr_t)value,
                        .valuelen = strlen(value)};
}

static int request_check(const struct h2client *s, const struct channel_request *r, struct err *e)
{
    size_t bytes = strlen(r->target) + 256;
    if (s->over)
        return err_set(e, ERR_STATE, "the connection to the agent is closed: %s", s->error.text);
    if (s->stream_count >= s->options.streams_max)
        return err_set(e, ERR_LIMIT, "more than %u requests to the agent at a time", s->options.streams_max);
    if (!text_sendable(r->method) || !text_sendable(r->target) || r->header_count > REQUEST_HEADERS_MAX)
        return err_set(e, ERR_INVALID, "a request to the agent cannot be written");
    for (size_t i = 0; i < r->header_count; i++) {
        if (!text_sendable(r->headers[i].name) || !text_sendable(r->headers[i].value))
            return err_set(e, ERR_INVALID, "a header for the agent cannot be written");
        bytes += strlen(r->headers[i].name) + strlen(r->headers[i].value) + 32;
    }
    if (bytes > AGENT_HEADER_LIST_MAX)
        return err_set(e, ERR_TOO_LARGE, "the names in a request to the agent are too long");
    if (r->body_len > s->options.body_max)
        return err_set(e, ERR_TOO_LARGE, "a request to the agent has more than %u bytes", s->options.body_max);
    return 0;
}

static void body_append(struct channel_stream *st, const uint8_t *data, size_t len)
{
    st->body_bytes += len;
    while (len > 0) {
        struct block *b = TAILQ_LAST(&st->body, block_list);
        if (!b || b->end == b->capacity) {
            b = block_new(MIN(MAX(len, (size_t)BLOCK_SMALL), (size_t)BLOCK_LARGE));
            TAILQ_INSERT_TAIL(&st->body, b, link);
        }
        uint32_t take = (uint32_t)MIN(len, (size_t)(b->capacity - b->end));
        memcpy(b->data + b->end, data, take);
        b->end += take;
        data += take;
        len -= take;
    }
}

/* What of the request comes next: nghttp2 is told a length, stream_body_send hands over the bytes themselves. */
static ssize_t body_read(nghttp2_session *h2, int32_t stream_id, uint8_t *buffer, size_t len, uint32_t *flags,
                         nghttp2_data_source *source, void *arg)
{
    (void)buffer;
    (void)source;
    (void)arg;
    struct channel_stream *st = nghttp2_session_get_stream_user_data(h2, stream_id);
    if (!st)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (st->body_bytes == 0) {
        if (!st->write_ended) {
            st->deferred = true;
            return NGHTTP2_ERR_DEFERRED;
        }
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        return 0;
    }
    struct block *b = TAILQ_FIRST(&st->body);
    size_t n = MIN(len, (size_t)(b->end - b->start));
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (st->write_ended && n == st->body_bytes)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

ssize_t stream_body_length(nghttp2_session *h2, uint8_t frame_type, int32_t stream_id, int32_t session_window,
                           int32_t stream_window, uint32_t frame_max, void *arg)
{
    (void)h2;
    (void)frame_type;
    (void)stream_id;
    (void)session_window;
    (void)stream_window;
    (void)arg;
    return MIN(frame_max, (uint32_t)AGENT_FRAME_MAX);
}

int stream_body_send(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t len,
                     nghttp2_data_source *source, void *arg)
{
    (void)source;
    struct h2client *s = arg;
    struct channel_stream *st = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (!st)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (outq_full(&s->out))
        return NGHTTP2_ERR_WOULDBLOCK;
    struct block *b = TAILQ_FIRST(&st->body);
    outq_copy(&s->out, head, 9);
    outq_refer(&s->out, b, b->start, (uint32_t)len);
    b->start += (uint32_t)len;
    st->body_bytes -= len;
    if (b->start == b->end) {
        TAILQ_REMOVE(&st->body, b, link);
        block_unref(b);
    }
    framewatch_sent(&s->watch, len);
    stream_moved(st, len);
    return 0;
}

static void deadlines_begin(struct channel_stream *st, const struct channel_request *r)
{
    struct h2client *s = st->session;
    uint64_t now = h2client_now(s);
    st->active_at = now;
    st->idle_ms = r->idle_timeout_ms;
    if (r->response_timeout_ms)
        st->response_deadline = now + r->response_timeout_ms;
    if (r->total_timeout_ms)
        st->total_deadline = now + r->total_timeout_ms;
    h2client_deadline_lower(s, stream_deadline(st, now, NULL));
    if (s->ping_at == 0 && s->ping_deadline == 0 && s->options.heartbeat_ms != UINT32_MAX) {
        s->ping_at = now + s->options.heartbeat_ms;
        if (s->ready)
            h2client_deadline_lower(s, s->ping_at);
    }
}

int h2client_request(struct h2client *s, const struct channel_request *r,
                     const struct channel_stream_callbacks *callbacks, void *arg, struct channel_stream **ret_stream,
                     struct err *e)
{
    int code = request_check(s, r, e);
    if (code < 0)
        return code;
    nghttp2_nv nv[REQUEST_HEADERS_MAX + 4];
    size_t n = 0;
    nv[n++] = pair(":method", r->method);
    if (strcmp(r->method, "CONNECT") == 0) {
        nv[n++] = pair(":authority", r->target);
    } else {
        nv[n++] = pair(":scheme", "http");
        nv[n++] = pair(":authority", "agent");
        nv[n++] = pair(":path", r->target);
    }
    for (size_t i = 0; i < r->header_count; i++)
        nv[n++] = pair(r->headers[i].name, r->headers[i].value);

    struct channel_stream *st = NEW(struct channel_stream);
    *st = (struct channel_stream){.session = s,
                                  .callbacks = callbacks,
                                  .arg = arg,
                                  .both_ways = r->both_ways,
                                  .streamed = r->streamed,
                                  .write_ended = !r->streamed,
                                  .head = BUF_MAX(2 * AGENT_HEADER_LIST_MAX)};
    TAILQ_INIT(&st->body);
    if (r->body_len > 0)
        body_append(st, r->body, r->body_len);
    nghttp2_data_provider provider = {.read_callback = body_read};
    bool has_body = r->streamed || r->body_len > 0;
    st->id = nghttp2_submit_request(s->h2, NULL, nv, n, has_body ? &provider : NULL, st);
    if (st->id < 0) {
        code = err_set(e, ERR_STATE, "the connection to the agent takes no more requests");
        struct block *b;
        while ((b = TAILQ_FIRST(&st->body))) {
            TAILQ_REMOVE(&st->body, b, link);
            block_unref(b);
        }
        free(st);
        return code;
    }
    TAILQ_INSERT_TAIL(&s->streams, st, link);
    s->stream_count++;
    s->stats.streams_opened++;
    framewatch_opened(&s->watch);
    deadlines_begin(st, r);
    h2client_wake(s);
    *ret_stream = st;
    return 0;
}

/* --- what the owner does with a stream ---------------------------------------------------------------------------- */

static void body_resume(struct channel_stream *st)
{
    if (st->deferred) {
        st->deferred = false;
        nghttp2_session_resume_data(st->session->h2, st->id);
    }
    h2client_wake(st->session);
}

size_t channel_stream_write(struct channel_stream *st, const void *data, size_t len)
{
    struct h2client *s = st->session;
    if (s->over || st->gone || st->write_ended)
        return len;
    size_t take = MIN(len, channel_stream_writable(st));
    if (take > 0) {
        if (st->body_bytes == 0)
            st->active_at = h2client_now(s);
        body_append(st, data, take);
        body_resume(st);
    }
    if (take < len && !st->want_drain) {
        st->want_drain = true;
        s->drains++;
        h2client_wake(s);
    }
    return take;
}

size_t channel_stream_writable(const struct channel_stream *st)
{
    return st->write_ended ? 0 : st->session->options.body_max - st->body_bytes;
}

void channel_stream_write_end(struct channel_stream *st)
{
    if (st->write_ended || st->gone)
        return;
    st->write_ended = true;
    if (st->session->over)
        return;
    if (st->body_bytes == 0)
        st->active_at = h2client_now(st->session);
    body_resume(st);
}

/* Owners hold so much that the guest may not be able to send. */
static bool owner_slow(const struct channel_stream *st)
{
    return st->held >= st->session->options.stream_window / 2 || st->session->owed > 0;
}

void channel_stream_consume(struct channel_stream *st, size_t len)
{
    struct h2client *s = st->session;
    if (st->gone)
        return;
    len = MIN(len, st->held);
    if (owner_slow(st))
        st->active_at = h2client_now(s);
    st->held -= len;
    held_release(s, len);
    if (s->over)
        return;
    nghttp2_session_consume_stream(s->h2, st->id, len);
    h2client_wake(s);
}

size_t channel_stream_held(const struct channel_stream *st)
{
    return st->held;
}

/* --- deadlines ---------------------------------------------------------------------------------------------------- */

/* Whether a byte from the guest, or room for one, is due. */
static bool guest_owes(const struct channel_stream *st)
{
    if (owner_slow(st))
        return false;
    return st->write_ended || st->body_bytes > 0;
}

uint64_t stream_deadline(struct channel_stream *st, uint64_t now, struct err *ret_e)
{
    uint64_t next = UINT64_MAX;
    if (st->response_deadline) {
        if (now >= st->response_deadline)
            err_set(ret_e, ERR_TIMEOUT, "the agent did not answer in time");
        next = st->response_deadline;
    }
    if (st->total_deadline) {
        if (now >= st->total_deadline)
            err_set(ret_e, ERR_TIMEOUT, "the agent did not finish in time");
        next = MIN(next, st->total_deadline);
    }
    if (st->idle_ms) {
        if (!guest_owes(st)) {
            st->active_at = now;
            st->moved = 0;
        }
        if (now >= st->active_at + st->idle_ms)
            err_set(ret_e, ERR_TIMEOUT, "the agent moved no data for %u ms", st->idle_ms);
        next = MIN(next, st->active_at + st->idle_ms);
    }
    return next;
}

/* Streamed answers: a bounded buffer between the handler, which pushes, and libmicrohttpd, which pulls. */
#include "http/http_internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* Bytes taken from the handler that the socket does not have yet. */
static size_t stream_held(const struct http_request *r)
{
    return r->out.len + (r->raw_stream && r->conn ? r->conn->raw_out.len : 0);
}

/* Room has appeared: tell a handler that was refused some, once half of the buffer is free. */
void stream_drain_check(struct http_request *r)
{
    if (!r->want_drain || r->answered || stream_held(r) > r->out.max / 2)
        return;
    r->want_drain = false;
    r->drain_due = true;
    request_due(r);
}

static ssize_t stream_read(void *cls, uint64_t pos, char *to, size_t max)
{
    struct http_request *r = cls;
    struct conn *c = r->conn;
    (void)pos;
    if (c->cut || r->broken)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = MIN(max, r->out.len);
    if (n) {
        memcpy(to, buf_data(&r->out), n);
        buf_consume(&r->out, n);
        r->bytes_out += n;
        conn_deadline(c, DEADLINE_WRITE);
        stream_drain_check(r);
        return (ssize_t)n;
    }
    if (r->ended)
        return r->length >= 0 ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    if (!r->flushed) {
        /* The head was sent with MSG_MORE, in the hope of a body at once: push it out. */
        int on = 1;
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        r->flushed = true;
    }
    conn_suspend(c);
    return 0;
}

/* ---- past libmicrohttpd, beside a body that still comes ---- */

/* What the handler has written since, in the answer's framing, to the connection. */
static void stream_raw_move(struct http_request *r)
{
    struct conn *c = r->conn;
    bool chunked = r->length < 0 && !r->http10;
    if (r->out.len) {
        if (chunked)
            buf_printf(&c->raw_out, "%zx\r\n", r->out.len);
        buf_put(&c->raw_out, buf_data(&r->out), r->out.len);
        if (chunked)
            buf_put_str(&c->raw_out, "\r\n");
        r->bytes_out += r->out.len;
        buf_reset(&r->out);
    }
    if (r->ended && !r->raw) {
        if (chunked)
            buf_put_str(&c->raw_out, "0\r\n\r\n");
        r->raw = true;
    }
    conn_raw_send(c);
}

void stream_raw_start(struct http_request *r)
{
    if (!r->reply_set || !r->streaming || r->raw_stream || r->no_body || r->conn->cut ||
        reply_body_left(r) <= DISCARD_MAX)
        return;
    r->raw_stream = true;
    buf_init(&r->conn->raw_out, 0); /* bounded by stream_takes */
    reply_render(r, &r->conn->raw_out);
    stream_raw_move(r);
}

struct MHD_Response *stream_response(struct http_request *r)
{
    bool chunked = r->length < 0 && !r->http10;
    size_t block = chunked ? 1024 : STREAM_BLOCK_BYTES;
    /* The library would end even an answer to HEAD with the last chunk of a chunked body. */
    if (r->length == 0 || (r->no_body && r->length < 0))
        return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (r->length > 0 && (uint64_t)r->length < block)
        block = (size_t)r->length;
    return MHD_create_response_from_callback(r->length < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)r->length, block, stream_read,
                                             r, NULL);
}

void http_stream_begin(struct http_request *r, int status, const char *content_type, int64_t length,
                       void (*on_drain)(struct http_request *r, void *arg), void *arg)
{
    if (r->answered || r->gone) {
        r->streaming = true; /* what comes is swallowed until the end */
        return;
    }
    if (r->reply_set)
        return;
    r->status = status;
    reply_content_type(r, content_type);
    r->streaming = true;
    r->length = length;
    r->on_drain = on_drain;
    r->drain_arg = arg;
    buf_init(&r->out, r->server->options.output_max);
    reply_submit(r);
}

/* How many of `len` bytes are taken at this moment; *ret_swallow: they go nowhere. */
static size_t stream_takes(const struct http_request *r, size_t len, bool *ret_swallow)
{
    *ret_swallow = r->gone || r->no_body;
    uint64_t left = r->length < 0 || r->gone ? UINT64_MAX : (uint64_t)r->length - r->accepted;
    if (!r->streaming || r->answered)
        return 0;
    if (len > left)
        len = (size_t)left;
    size_t held = stream_held(r);
    return *ret_swallow ? len : MIN(len, held < r->out.max ? r->out.max - held : 0);
}

static void stream_added(struct http_request *r)
{
    if (!r->conn || r->conn->cut)
        return;
    if (r->raw_stream)
        stream_raw_move(r);
    else if (r->stage == STAGE_REPLYING)
        conn_resume(r->conn);
}

size_t http_stream_write(struct http_request *r, const void *data, size_t len)
{
    bool swallow;
    size_t n = stream_takes(r, len, &swallow);
    if (n && !swallow) {
        buf_put(&r->out, data, n);
        stream_added(r);
    }
    r->accepted += n;
    if (n < len)
        r->want_drain = true;
    return n;
}

size_t http_stream_room(const struct http_request *r)
{
    bool swallow;
    return stream_takes(r, SIZE_MAX, &swallow);
}

uint8_t *http_stream_reserve(struct http_request *r, size_t len)
{
    bool swallow;
    if (stream_takes(r, len, &swallow) < len) {
        r->want_drain = true;
        return NULL;
    }
    if (swallow)
        r->out.max = 0; /* not filled, but written to */
    return buf_reserve(&r->out, len);
}

void http_stream_commit(struct http_request *r, size_t len)
{
    bool swallow;
    size_t n = stream_takes(r, len, &swallow);
    r->accepted += n;
    if (swallow || !n)
        return;
    buf_commit(&r->out, n);
    stream_added(r);
}

size_t http_stream_pending(const struct http_request *r)
{
    return stream_held(r);
}

void http_stream_end(struct http_request *r)
{
    struct conn *c = r->conn;
    if (!r->streaming || r->answered)
        return;
    if (r->length >= 0 && r->accepted < (uint64_t)r->length && !r->no_body && !r->gone) {
        http_stream_abort(r);
        return;
    }
    r->answered = r->ended = true;
    if (c && r->raw_stream && !c->cut) {
        stream_raw_move(r);
    } else if (c) {
        if (r->stage == STAGE_HEADERS || r->stage == STAGE_BODY)
            r->discard = true; /* nobody takes the rest of the body any more */
        conn_resume(c);
    }
    request_release(r);
}

void http_stream_abort(struct http_request *r)
{
    struct conn *c = r->conn;
    if (!r->streaming || r->answered)
        return;
    r->answered = r->ended = r->broken = true;
    buf_done(&r->out);
    if (c) {
        /* Where the end of the connection is the end of the body only a reset tells that it is not whole. */
        if (r->gone)
            ;
        else if (r->length < 0 && r->http10)
            conn_reset(c);
        else
            conn_cut(c);
    }
    request_release(r);
}

/* The agent of tests (see fake_agent.h). */
#include "fake_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "wire/agent_protocol.h"

static struct fake_request *request_of(nghttp2_session *h2, int32_t id)
{
    return nghttp2_session_get_stream_user_data(h2, id);
}

static int on_begin(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
    struct fake_agent *a = arg;
    struct fake_request *r = NEW(struct fake_request);
    r->agent = a;
    r->id = frame->hd.stream_id;
    LIST_INSERT_HEAD(&a->requests, r, link);
    nghttp2_session_set_stream_user_data(h2, r->id, r);
    a->requests_seen++;
    return 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
    (void)name_len;
    (void)value_len;
    (void)flags;
    (void)arg;
    struct fake_request *r = request_of(h2, frame->hd.stream_id);
    if (strcmp((const char *)name, ":method") == 0)
        snprintf(r->method, sizeof(r->method), "%s", value);
    else if (strcmp((const char *)name, ":path") == 0 ||
             (strcmp((const char *)name, ":authority") == 0 && strcmp(r->method, "CONNECT") == 0))
        snprintf(r->target, sizeof(r->target), "%s", value);
    return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
    struct fake_agent *a = arg;
    a->pings_seen += frame->hd.type == NGHTTP2_PING;
    a->resets_seen += frame->hd.type == NGHTTP2_RST_STREAM;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct fake_request *r = request_of(h2, frame->hd.stream_id);
    if (!r)
        return 0;
    r->body_ended |= (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (a->whole ? r->body_ended : frame->hd.type == NGHTTP2_HEADERS)
        a->handle(r);
    else if (!a->whole && a->on_body)
        a->on_body(r);
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t len, void *arg)
{
    (void)flags;
    (void)arg;
    struct fake_request *r = request_of(h2, id);
    if (r)
        buf_put(&r->body, data, len);
    return 0;
}

static int on_close(nghttp2_session *h2, int32_t id, uint32_t code, void *arg)
{
    (void)code;
    (void)arg;
    struct fake_request *r = request_of(h2, id);
    if (r) {
        LIST_REMOVE(r, link);
        buf_done(&r->body);
        buf_done(&r->reply);
        free(r);
    }
    return 0;
}

static ssize_t reply_read(nghttp2_session *h2, int32_t id, uint8_t *to, size_t len, uint32_t *flags,
                          nghttp2_data_source *source, void *arg)
{
    (void)source;
    (void)arg;
    struct fake_request *r = request_of(h2, id);
    size_t n = MIN(len, r->reply.len);
    if (n > 0) {
        memcpy(to, buf_data(&r->reply), n);
        buf_consume(&r->reply, n);
    } else if (r->zeros > 0) {
        n = (size_t)MIN((uint64_t)len, r->zeros);
        memset(to, 0, n);
        r->zeros -= n;
    }
    if (r->reply.len == 0 && r->zeros == 0 && r->reply_ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    } else if (n == 0) {
        r->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

static ssize_t read_length(nghttp2_session *h2, uint8_t type, int32_t id, int32_t connection, int32_t stream,
                           uint32_t frame_max, void *arg)
{
    (void)h2;
    (void)type;
    (void)id;
    (void)connection;
    (void)stream;
    (void)arg;
    return frame_max;
}

void fake_answer(struct fake_request *r, int status, int end, ...)
{
    char text[16];
    nghttp2_nv nv[8];
    size_t n = 0;
    snprintf(text, sizeof(text), "%d", status);
    nv[n++] = (nghttp2_nv){(uint8_t *)":status", (uint8_t *)text, 7, 3, 0};
    va_list args;
    va_start(args, end);
    for (char *name; (name = va_arg(args, char *));) {
        char *value = va_arg(args, char *);
        nv[n++] = (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), 0};
    }
    va_end(args);
    r->reply_ended = end;
    r->answered = true;
    nghttp2_data_provider provider = {.read_callback = reply_read};
    nghttp2_submit_response(r->agent->h2, r->id, nv, n, &provider);
}

void fake_more(struct fake_request *r)
{
    if (r->deferred) {
        r->deferred = false;
        nghttp2_session_resume_data(r->agent->h2, r->id);
    }
    fake_flush(r->agent);
}

void fake_reset(struct fake_request *r, uint32_t code)
{
    nghttp2_submit_rst_stream(r->agent->h2, 0, r->id, code);
}

static ssize_t on_send(nghttp2_session *h2, const uint8_t *data, size_t len, int flags, void *arg)
{
    (void)h2;
    (void)flags;
    struct fake_agent *a = arg;
    ssize_t n = send(a->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n >= 0 ? n : errno == EAGAIN ? NGHTTP2_ERR_WOULDBLOCK : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static void h2_begin(struct fake_agent *a)
{
    nghttp2_session_callbacks *cb;
    nghttp2_session_callbacks_new(&cb);
    nghttp2_session_callbacks_set_send_callback(cb, on_send);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_session_callbacks_set_data_source_read_length_callback(cb, read_length);
    nghttp2_session_server_new(&a->h2, cb, a);
    nghttp2_session_callbacks_del(cb);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, AGENT_STREAMS_MAX},
                                               {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, AGENT_STREAM_WINDOW},
                                               {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, AGENT_FRAME_MAX}};
    nghttp2_submit_settings(a->h2, 0, settings, ARRAY_LEN(settings));
    nghttp2_session_set_local_window_size(a->h2, 0, 0, AGENT_CONNECTION_WINDOW);
}

static void on_poll(uv_poll_t *poll, int status, int events);

void fake_flush(struct fake_agent *a)
{
    if (a->mute || !a->h2)
        return;
    nghttp2_session_send(a->h2);
    int events = UV_READABLE | (nghttp2_session_want_write(a->h2) ? UV_WRITABLE : 0);
    if (!a->closed)
        uv_poll_start(&a->poll, events, on_poll);
}

static void take(struct fake_agent *a, const uint8_t *data, size_t len)
{
    if (!a->in_step) {
        buf_put(&a->in, data, len);
        if (a->in.len < AGENT_PRELUDE_SIZE || a->skip_echo)
            return;
        a->in_step = true;
        ssize_t n = write(a->fd, buf_data(&a->in), AGENT_PRELUDE_SIZE);
        (void)n;
        buf_consume(&a->in, AGENT_PRELUDE_SIZE);
        h2_begin(a);
        data = buf_data(&a->in);
        len = a->in.len;
    }
    nghttp2_session_mem_recv(a->h2, data, len);
    buf_reset(&a->in);
    fake_flush(a);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    static uint8_t data[256 * 1024];
    struct fake_agent *a = poll->data;
    (void)status;
    if (events & UV_READABLE) {
        ssize_t n = read(a->fd, data, sizeof(data));
        if (n > 0)
            take(a, data, (size_t)n);
        else if (n == 0 || errno != EAGAIN)
            fake_agent_stop(a);
    }
    if ((events & UV_WRITABLE) && !a->closed)
        fake_flush(a);
}

void fake_agent_start(struct fake_agent *a, uv_loop_t *loop, int fd)
{
    a->fd = fd;
    LIST_INIT(&a->requests);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    uv_poll_init(loop, &a->poll, fd);
    a->poll.data = a;
    uv_poll_start(&a->poll, UV_READABLE, on_poll);
}

void fake_agent_stop(struct fake_agent *a)
{
    if (a->closed)
        return;
    a->closed = true;
    uv_poll_stop(&a->poll);
    uv_close((uv_handle_t *)&a->poll, NULL);
    close(a->fd);
    struct fake_request *r;
    while ((r = LIST_FIRST(&a->requests))) {
        if (a->h2)
            nghttp2_session_set_stream_user_data(a->h2, r->id, NULL);
        LIST_REMOVE(r, link);
        buf_done(&r->body);
        buf_done(&r->reply);
        free(r);
    }
    nghttp2_session_del(a->h2);
    a->h2 = NULL;
    buf_done(&a->in);
}

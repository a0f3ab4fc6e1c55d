/* The conversation over the port (see session.h): input states and output buffer. The requests themselves are in
 * request.c. */
#include "agent/session.h"

#include "agent/session_internal.h"

#define PREFACE NGHTTP2_CLIENT_MAGIC
#define PREFACE_LEN NGHTTP2_CLIENT_MAGIC_LEN
#define FRAME_HEADER 9

static size_t out_space(const struct session *s)
{
    return LIMIT_OUT_BUFFER - s->out_start - s->out_len;
}

static void out_put(struct session *s, const void *data, size_t len)
{
    memcpy(s->out + s->out_start + s->out_len, data, len);
    s->out_len += len;
}

static ssize_t on_send(nghttp2_session *h2 ATTR_UNUSED, const uint8_t *data, size_t len, int flags ATTR_UNUSED,
                       void *user_data)
{
    struct session *s = user_data;
    size_t n = MIN(len, out_space(s));
    if (n == 0)
        return NGHTTP2_ERR_WOULDBLOCK;
    out_put(s, data, n);
    return (ssize_t)n;
}

static int on_send_data(nghttp2_session *h2 ATTR_UNUSED, nghttp2_frame *frame, const uint8_t *header, size_t len,
                        nghttp2_data_source *source, void *user_data)
{
    struct session *s = user_data;
    struct request *r = source->ptr;
    if (frame->data.padlen > 0)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (out_space(s) < FRAME_HEADER + len)
        return NGHTTP2_ERR_WOULDBLOCK;
    uint8_t *at = s->out + s->out_start + s->out_len;
    memcpy(at, header, FRAME_HEADER);
    if (len > 0 && !request_emit(r, at + FRAME_HEADER, len))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    s->out_len += FRAME_HEADER + len;
    return 0;
}

static ssize_t on_read_length(nghttp2_session *h2 ATTR_UNUSED, uint8_t type ATTR_UNUSED, int32_t id ATTR_UNUSED,
                              int32_t connection_window, int32_t stream_window, uint32_t peer_frame_max,
                              void *user_data ATTR_UNUSED)
{
    uint32_t n = MIN((uint32_t)connection_window, (uint32_t)stream_window);
    return (ssize_t)MIN(MIN(n, peer_frame_max), AGENT_FRAME_MAX);
}

static int on_frame_send(nghttp2_session *h2, const nghttp2_frame *frame, void *user_data)
{
    struct session *s = user_data;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        s->broken = true;
    if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        /* The answer is complete before the request: the rest of the body is not wanted (RFC 9113 section 8.1). A
         * tunnel is another matter: there it is one direction that ends. */
        const struct request *r = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
        if (r && !r->body_ended && (r->replying || !r->method || strcmp(r->method, "CONNECT") != 0))
            nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
}

static nghttp2_session_callbacks *callbacks_new(void)
{
    nghttp2_session_callbacks *cb;
    if (nghttp2_session_callbacks_new(&cb) != 0)
        return NULL;
    nghttp2_session_callbacks_set_send_callback(cb, on_send);
    nghttp2_session_callbacks_set_send_data_callback(cb, on_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(cb, on_read_length);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    request_callbacks(cb);
    return cb;
}

static int http_begin(struct session *s)
{
    nghttp2_session_callbacks *cb = callbacks_new();
    nghttp2_option *option = NULL;
    if (!cb || nghttp2_option_new(&option) != 0) {
        nghttp2_session_callbacks_del(cb);
        return ERR_LIMIT;
    }
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_deflate_dynamic_table_size(option, 4096);
    nghttp2_option_set_max_send_header_block_length(option, AGENT_HEADER_LIST_MAX);
    int r = nghttp2_session_server_new2(&s->h2, cb, s, option);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(option);
    if (r != 0) {
        s->h2 = NULL;
        return ERR_LIMIT;
    }
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, AGENT_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, LIMIT_BODY_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, AGENT_FRAME_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, AGENT_HEADER_LIST_MAX},
    };
    nghttp2_submit_settings(s->h2, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    nghttp2_session_set_local_window_size(s->h2, NGHTTP2_FLAG_NONE, 0, AGENT_CONNECTION_WINDOW);
    s->sessions++;
    return 0;
}

static void http_end(struct session *s)
{
    struct request *r;
    while ((r = LIST_FIRST(&s->requests)))
        request_close(r);
    nghttp2_session_del(s->h2);
    s->h2 = NULL;
    s->broken = false;
    s->frame_left = 0;
}

int session_init(struct session *s, void (*handle)(void *arg, struct request *r), void *handle_arg)
{
    *s = (struct session){.handle = handle, .handle_arg = handle_arg};
    LIST_INIT(&s->requests);
    s->out = xmalloc(LIMIT_OUT_BUFFER);
    return 0;
}

void session_done(struct session *s)
{
    session_drop(s);
    free(s->out);
    s->out = NULL;
}

void session_drop(struct session *s)
{
    http_end(s);
    s->out_start = s->out_len = 0;
    s->head_len = 0;
    s->state = SESSION_SCAN;
}

/* A prelude is whole in s->head. */
static void prelude_take(struct session *s)
{
    http_end(s);
    s->out_start = s->out_len = 0; /* it belonged to the session before */
    memcpy(s->nonce, s->head + AGENT_MAGIC_SIZE, AGENT_NONCE_SIZE);
    out_put(s, s->head, AGENT_PRELUDE_SIZE);
    s->head_len = 0;
    s->state = http_begin(s) == 0 ? SESSION_FRESH : SESSION_SCAN;
}

static void raw_take(struct session *s)
{
    s->raw_left = get_u64(s->head + AGENT_MAGIC_SIZE);
    s->state = s->head[AGENT_RAW_PRELUDE_SIZE - 1] == AGENT_RAW_TO_HOST ? SESSION_RAW_OUT : SESSION_RAW_IN;
    s->head_len = 0;
    s->out_start = s->out_len = 0;
}

/* True while the bytes in s->head can be the beginning of a prelude of one of the two kinds. */
static bool head_is_magic(const struct session *s)
{
    size_t n = MIN(s->head_len, (size_t)AGENT_MAGIC_SIZE);
    return memcmp(s->head, AGENT_PRELUDE_MAGIC, n) == 0 || memcmp(s->head, AGENT_RAW_MAGIC, n) == 0;
}

static bool head_is_raw(const struct session *s)
{
    return memcmp(s->head, AGENT_RAW_MAGIC, AGENT_MAGIC_SIZE) == 0;
}

/* Look for a prelude; returns how many bytes were used up. */
static size_t feed_scan(struct session *s, const uint8_t *data, size_t len)
{
    size_t at = 0;
    if (s->head_len == 0) {
        const uint8_t *first = memchr(data, AGENT_PRELUDE_MAGIC[0], len);
        if (!first)
            return len;
        at = (size_t)(first - data);
    }
    while (at < len) {
        s->head[s->head_len++] = data[at++];
        while (s->head_len > 0 && !head_is_magic(s)) /* the next place where a magic could begin */
            memmove(s->head, s->head + 1, --s->head_len);
        if (s->head_len == 0)
            return at;
        if (s->head_len == AGENT_RAW_PRELUDE_SIZE && head_is_raw(s)) {
            raw_take(s);
            return at;
        }
        if (s->head_len == AGENT_PRELUDE_SIZE) {
            prelude_take(s);
            return at;
        }
    }
    return at;
}

/* Leave the session and look at the bytes in s->head again. */
static void rescan(struct session *s)
{
    uint8_t head[AGENT_PRELUDE_SIZE];
    size_t len = s->head_len;
    memcpy(head, s->head, len);
    session_drop(s);
    for (size_t at = 0; at < len && s->state == SESSION_SCAN;)
        at += feed_scan(s, head + at, len - at);
}

/* After a prelude: zero bytes, the same prelude again, or the client's preface. */
static size_t feed_fresh(struct session *s, const uint8_t *data, size_t len)
{
    size_t at = 0;
    while (at < len && s->head_len == 0 && data[at] == 0)
        at++;
    while (at < len) {
        s->head[s->head_len++] = data[at++];
        if (memcmp(s->head, PREFACE, MIN(s->head_len, PREFACE_LEN)) == 0) {
            if (s->head_len < PREFACE_LEN)
                continue;
            s->state = SESSION_HTTP;
            s->head_len = 0;
            if (nghttp2_session_mem_recv(s->h2, (const uint8_t *)PREFACE, PREFACE_LEN) < 0)
                s->broken = true;
            return at;
        }
        if (memcmp(s->head, AGENT_PRELUDE_MAGIC, MIN(s->head_len, (size_t)AGENT_MAGIC_SIZE)) != 0) {
            rescan(s);
            return at;
        }
        if (s->head_len == AGENT_PRELUDE_SIZE) {
            if (memcmp(s->head + AGENT_MAGIC_SIZE, s->nonce, AGENT_NONCE_SIZE) != 0)
                prelude_take(s);
            s->head_len = 0; /* answered already */
            return at;
        }
    }
    return at;
}

static bool frame_header_possible(const uint8_t head[FRAME_HEADER])
{
    uint32_t len = get_u32(head) >> 8, stream = get_u32(head + 5);
    return len <= AGENT_FRAME_MAX && head[3] <= NGHTTP2_CONTINUATION && (stream != 0 || head[3] != NGHTTP2_DATA);
}

static void http_recv(struct session *s, const uint8_t *data, size_t len)
{
    if (len > 0 && !s->broken && nghttp2_session_mem_recv(s->h2, data, len) != (ssize_t)len)
        s->broken = true;
}

/* Give whole frames, or parts of one, to nghttp2, in as few calls as there can be. */
static size_t feed_http(struct session *s, const uint8_t *data, size_t len)
{
    size_t at = 0, given = 0;
    if (s->head_len > 0) {
        while (at < len && s->head_len < FRAME_HEADER)
            s->head[s->head_len++] = data[at++];
        if (s->head_len < FRAME_HEADER)
            return at;
        if (!frame_header_possible(s->head)) {
            rescan(s);
            return at;
        }
        s->frame_left = get_u32(s->head) >> 8;
        s->head_len = 0;
        given = at;
        http_recv(s, s->head, FRAME_HEADER);
    }
    while (at < len && !s->broken) {
        uint32_t step = (uint32_t)MIN(s->frame_left, len - at);
        at += step;
        s->frame_left -= step;
        if (s->frame_left > 0 || at == len)
            break;
        if (len - at < FRAME_HEADER) {
            http_recv(s, data + given, at - given);
            s->head_len = len - at;
            memcpy(s->head, data + at, s->head_len);
            return len;
        }
        if (!frame_header_possible(data + at)) {
            http_recv(s, data + given, at - given);
            session_drop(s);
            return at;
        }
        s->frame_left = get_u32(data + at) >> 8;
        at += FRAME_HEADER;
    }
    http_recv(s, data + given, at - given);
    return at;
}

void session_feed(struct session *s, const uint8_t *data, size_t len)
{
    while (len > 0) {
        size_t n = 0;
        switch (s->state) {
        case SESSION_SCAN:
            n = feed_scan(s, data, len);
            break;
        case SESSION_FRESH:
            n = feed_fresh(s, data, len);
            break;
        case SESSION_HTTP:
            n = feed_http(s, data, len);
            break;
        case SESSION_RAW_IN:
            n = (size_t)MIN(s->raw_left, (uint64_t)len);
            s->raw_left -= n;
            if (s->raw_left == 0) {
                s->state = SESSION_SCAN;
                s->out[0] = AGENT_RAW_DONE;
                s->out_start = 0;
                s->out_len = 1;
            }
            break;
        case SESSION_RAW_OUT: /* nothing is expected: the host has changed its mind */
            s->state = SESSION_SCAN;
            break;
        }
        data += n;
        len -= n;
        if (s->broken)
            session_drop(s);
    }
}

bool session_pump(struct session *s)
{
    if (s->out_len == 0)
        s->out_start = 0;
    if (s->state == SESSION_RAW_OUT && s->out_len == 0) {
        s->out_len = (size_t)MIN(s->raw_left, (uint64_t)LIMIT_OUT_BUFFER);
        s->raw_left -= s->out_len;
        if (s->raw_left == 0)
            s->state = SESSION_SCAN;
    } else if (s->h2) {
        int r = nghttp2_session_send(s->h2);
        bool over =
            r != 0 || s->broken || (nghttp2_session_want_read(s->h2) == 0 && nghttp2_session_want_write(s->h2) == 0);
        if (over) {
            /* What is in the buffer (the GOAWAY that says why) still goes out. */
            size_t start = s->out_start, len = s->out_len;
            session_drop(s);
            s->out_start = start;
            s->out_len = len;
        }
    }
    return s->out_len > 0;
}

const uint8_t *session_out(const struct session *s, size_t *ret_len)
{
    *ret_len = s->out_len;
    return s->out + s->out_start;
}

void session_written(struct session *s, size_t len)
{
    s->out_start += len;
    s->out_len -= len;
}

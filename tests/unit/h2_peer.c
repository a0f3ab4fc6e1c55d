/* The scripted peer (see h2_peer.h). */
#include "h2_peer.h"

static uint64_t rig_now(void *arg)
{
    return ((struct rig *)arg)->now;
}

static void rig_random(void *arg, void *data, size_t len)
{
    memset(data, ++((struct rig *)arg)->nonce, len);
}

static const struct h2client_hooks hooks = {.now_ms = rig_now, .random = rig_random};

static const struct channel_options test_options = {
    .resync_timeout_ms = 5000,
    .resync_repeat_ms = 1000,
    .heartbeat_ms = 5000,
    .heartbeat_timeout_ms = 10000,
    .stream_window = 256 * 1024,
    .held_max = 1024 * 1024,
    .body_max = 128 * 1024,
    .streams_max = 64,
};

void rig_open(struct rig *rig, const struct channel_options *o)
{
    rig->now = 1000;
    rig->client = h2client_new(o ? o : &test_options, &hooks, rig);
}

void rig_output(struct rig *rig)
{
    struct iovec iov[16];
    int n;
    while ((n = h2client_output(rig->client, iov, 16)) > 0) {
        size_t total = 0;
        for (int i = 0; i < n; i++) {
            buf_put(&rig->sent, iov[i].iov_base, iov[i].iov_len);
            total += iov[i].iov_len;
        }
        h2client_sent(rig->client, total);
    }
}

int rig_give(struct rig *rig, const void *data, size_t len)
{
    h2client_input(rig->client, data, len);
    rig_output(rig);
    return rig->client->over ? rig->client->error.code : 0;
}

int rig_give_buf(struct rig *rig, struct buf *b)
{
    int r = rig_give(rig, buf_data(b), b->len);
    buf_reset(b);
    return r;
}

void rig_echo(struct rig *rig)
{
    rig_output(rig);
    uint8_t echo[AGENT_PRELUDE_SIZE];
    memcpy(echo, rig->client->resync.prelude, sizeof(echo));
    buf_reset(&rig->sent);
    rig_give(rig, echo, sizeof(echo));
}

void frame_put(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream_id, const void *payload, size_t len)
{
    buf_put_u32(b, (uint32_t)len << 8 | type);
    buf_put_byte(b, flags);
    buf_put_u32(b, stream_id);
    buf_put(b, payload, len);
}

void rig_ready(struct rig *rig, const struct channel_options *o)
{
    rig_open(rig, o);
    rig_echo(rig);
    struct buf b = {0};
    frame_put(&b, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    rig_give_buf(rig, &b);
    buf_done(&b);
}

void rig_advance(struct rig *rig, uint64_t ms)
{
    uint64_t end = rig->now + ms;
    while (rig->now < end) {
        rig->now = MIN(end, rig->now + 250);
        h2client_time(rig->client);
        rig_pump(rig);
    }
}

void rig_close(struct rig *rig)
{
    struct err e;
    err_set(&e, ERR_CANCELLED, "closed by the test");
    h2client_fail(rig->client, &e);
    h2client_end(rig->client);
    h2client_free(rig->client);
    nghttp2_session_del(rig->server);
    struct answer *a;
    while ((a = LIST_FIRST(&rig->answers))) {
        LIST_REMOVE(a, link);
        free(a);
    }
    buf_done(&rig->sent);
}

/* --- owner of streams --------------------------------------------------------------------------------------------- */

static void event(struct seen *seen, const char *what)
{
    if (seen->then)
        seen->then(seen, what);
}

static void on_response(void *arg, int status, const struct channel_header *headers, size_t count)
{
    struct seen *seen = arg;
    seen->responses++;
    seen->status = status;
    seen->headers = count;
    if (count > 0)
        snprintf(seen->first_header, sizeof(seen->first_header), "%s: %s", headers[0].name, headers[0].value);
    event(seen, "response");
}

static void on_data(void *arg, const uint8_t *data, size_t len)
{
    struct seen *seen = arg;
    for (size_t i = 0; i < len; i++)
        seen->wrong |= data[i] != pattern_byte(seen->bytes + i);
    seen->bytes += len;
    seen->datas++;
    if (seen->consume)
        channel_stream_consume(seen->stream, len);
    event(seen, "data");
}

static void on_read_end(void *arg)
{
    struct seen *seen = arg;
    seen->read_ends++;
    event(seen, "read_end");
}

static void on_drain(void *arg)
{
    struct seen *seen = arg;
    seen->drains++;
    event(seen, "drain");
}

static void on_end(void *arg, const struct err *e)
{
    struct seen *seen = arg;
    seen->ends++;
    seen->error = e ? e->code : 0;
    snprintf(seen->text, sizeof(seen->text), "%s", e ? e->text : "");
    event(seen, "end");
}

const struct channel_stream_callbacks seen_callbacks = {on_response, on_data, on_read_end, on_drain, on_end};

struct channel_request rig_get(const char *target)
{
    return (struct channel_request){.method = "GET", .target = target};
}

int rig_request(struct rig *rig, struct seen *seen, const struct channel_request *r)
{
    return h2client_request(rig->client, r, &seen_callbacks, seen, &seen->stream, NULL);
}

/* --- the server --------------------------------------------------------------------------------------------------- */

static int server_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
    (void)h2;
    struct rig *rig = arg;
    if (frame->hd.type == NGHTTP2_HEADERS && rig->on_request)
        rig->on_request(rig, frame->hd.stream_id);
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && rig->on_request_end)
        rig->on_request_end(rig, frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_RST_STREAM)
        rig->server_resets++;
    if (frame->hd.type == NGHTTP2_PING && !(frame->hd.flags & NGHTTP2_FLAG_ACK))
        rig->server_pings++;
    return 0;
}

static int server_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t len, void *arg)
{
    (void)flags;
    struct rig *rig = arg;
    for (size_t i = 0; i < len; i++)
        rig->server_wrong |= data[i] != pattern_byte(rig->server_received + i);
    rig->server_received += len;
    if (!rig->server_holds)
        nghttp2_session_consume(h2, id, len);
    return 0;
}

void rig_serve(struct rig *rig, const struct channel_options *o)
{
    nghttp2_session_callbacks *cb;
    nghttp2_option *option;
    nghttp2_session_callbacks_new(&cb);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, server_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, server_data);
    nghttp2_option_new(&option);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_session_server_new2(&rig->server, cb, rig, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 256},
                                               {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, 65536}};
    nghttp2_submit_settings(rig->server, 0, settings, ARRAY_LEN(settings));
    rig_open(rig, o);
    rig_echo(rig);
    rig_pump(rig);
}

void rig_pump(struct rig *rig)
{
    for (;;) {
        bool moved = false;
        rig_output(rig);
        h2client_deliver(rig->client);
        rig_output(rig);
        if (!rig->server)
            return;
        if (rig->sent.len > 0) {
            nghttp2_session_mem_recv(rig->server, buf_data(&rig->sent), rig->sent.len);
            buf_reset(&rig->sent);
            moved = true;
        }
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(rig->server, &data);
        if (n > 0) {
            rig_give(rig, data, (size_t)n);
            moved = true;
        }
        if (!moved || rig->client->over)
            return;
    }
}

static ssize_t answer_read(nghttp2_session *h2, int32_t id, uint8_t *to, size_t len, uint32_t *flags,
                           nghttp2_data_source *source, void *arg)
{
    (void)h2;
    (void)id;
    (void)arg;
    struct answer *a = source->ptr;
    size_t n = (size_t)MIN((uint64_t)len, a->end - a->at);
    for (size_t i = 0; i < n; i++)
        to[i] = pattern_byte(a->at + i);
    a->at += n;
    if (a->at == a->end)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

void server_answer(struct rig *rig, int32_t stream_id, uint64_t bytes)
{
    nghttp2_nv nv[] = {{(uint8_t *)":status", (uint8_t *)"200", 7, 3, 0},
                       {(uint8_t *)"space-size", (uint8_t *)"12", 10, 2, 0}};
    struct answer *a = NEW(struct answer);
    a->end = bytes;
    LIST_INSERT_HEAD(&rig->answers, a, link);
    nghttp2_data_provider provider = {.source.ptr = a, .read_callback = answer_read};
    nghttp2_submit_response(rig->server, stream_id, nv, 2, &provider);
}

/* Server-Sent Events (see sse.h). */
#include "http/sse.h"

#include "http/http_internal.h"

#define NAME_MAX_BYTES 64 /* of an id or event name that sse_room_base64 reckons with */
#define OVERHEAD (sizeof("id: \nevent: \ndata: \n\n") + 2 * NAME_MAX_BYTES)

struct sse {
    struct http_request *request;
    uv_timer_t timer;
    uint64_t keepalive_ms;
    void (*on_drain)(struct sse *s, void *arg);
    void *arg;
};

static void timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* The handler's part of the request is over, by whatever way. */
static void sse_over(struct http_request *r, void *arg)
{
    struct sse *s = arg;
    (void)r;
    uv_close((uv_handle_t *)&s->timer, timer_closed);
}

static void sse_drain(struct http_request *r, void *arg)
{
    struct sse *s = arg;
    (void)r;
    if (s->on_drain)
        s->on_drain(s, s->arg);
}

static void sse_keepalive(uv_timer_t *timer)
{
    struct sse *s = timer->data;
    static const char comment[] = ": keepalive\n\n";
    /* With output still waiting the client has something to read, or is under the write deadline. */
    if (!http_stream_pending(s->request) && http_stream_room(s->request) >= sizeof(comment) - 1)
        http_stream_write(s->request, comment, sizeof(comment) - 1);
}

static void sse_touched(struct sse *s)
{
    uv_timer_again(&s->timer);
}

struct sse *sse_begin(struct http_request *r, uint64_t keepalive_ms, void (*on_drain)(struct sse *s, void *arg),
                      void *arg)
{
    struct sse *s = NEW(struct sse);
    s->request = r;
    s->keepalive_ms = keepalive_ms ? keepalive_ms : SSE_KEEPALIVE_MS;
    s->on_drain = on_drain;
    s->arg = arg;
    uv_timer_init(http_request_loop(r), &s->timer);
    s->timer.data = s;
    uv_timer_start(&s->timer, sse_keepalive, s->keepalive_ms, s->keepalive_ms);
    r->on_over = sse_over;
    r->over_arg = s;
    http_reply_header(r, "Cache-Control", "no-store");
    http_reply_header(r, "X-Accel-Buffering", "no"); /* reverse proxies pass events on as they come */
    http_stream_begin(r, 200, "text/event-stream", -1, sse_drain, s);
    return s;
}

struct http_request *sse_request(struct sse *s)
{
    return s->request;
}

const char *sse_last_id(const struct http_request *r)
{
    const char *id = http_request_header(r, "Last-Event-ID");
    if (!id || !*id)
        id = NULL;
    if (!id && http_query_get(http_request_query(r), "last_event_id", &id, NULL) <= 0)
        id = NULL;
    return id;
}

static uint8_t *put(uint8_t *to, const char *text, size_t len)
{
    memcpy(to, text, len);
    return to + len;
}

static uint8_t *put_field(uint8_t *to, const char *name, const char *value)
{
    if (!value)
        return to;
    to = put(to, name, strlen(name));
    to = put(to, value, strlen(value));
    *to++ = '\n';
    return to;
}

static size_t fields_len(const char *id, const char *event)
{
    return (id ? strlen("id: \n") + strlen(id) : 0) + (event ? strlen("event: \n") + strlen(event) : 0);
}

/* A field's value must not end its line. */
static bool field_valid(const char *value)
{
    return !value || !strpbrk(value, "\r\n");
}

bool sse_send(struct sse *s, const char *id, const char *event, const char *data, size_t len)
{
    size_t lines = 1;
    if (!field_valid(id) || !field_valid(event))
        return false;
    for (size_t i = 0; i < len; i++)
        lines += data[i] == '\n' || data[i] == '\r';
    size_t most = fields_len(id, event) + len + lines * strlen("data: \n") + 1;
    uint8_t *start = http_stream_reserve(s->request, most), *to = start;
    if (!start)
        return false;
    to = put_field(to, "id: ", id);
    to = put_field(to, "event: ", event);
    for (size_t at = 0;;) {
        size_t n = 0;
        while (at + n < len && data[at + n] != '\n' && data[at + n] != '\r')
            n++;
        to = put(to, "data: ", 6);
        to = put(to, data + at, n);
        *to++ = '\n';
        at += n;
        if (at >= len)
            break;
        at += data[at] == '\r' && at + 1 < len && data[at + 1] == '\n' ? 2 : 1;
    }
    *to++ = '\n';
    http_stream_commit(s->request, (size_t)(to - start));
    sse_touched(s);
    return true;
}

bool sse_send_base64(struct sse *s, const char *id, const char *event, const void *data, size_t len)
{
    if (!field_valid(id) || !field_valid(event))
        return false;
    size_t most = fields_len(id, event) + strlen("data: \n\n") + base64_encoded_len(len) + 1;
    uint8_t *start = http_stream_reserve(s->request, most), *to = start;
    if (!start)
        return false;
    to = put_field(to, "id: ", id);
    to = put_field(to, "event: ", event);
    to = put(to, "data: ", 6);
    to += base64_encode(data, len, (char *)to);
    *to++ = '\n';
    *to++ = '\n';
    http_stream_commit(s->request, (size_t)(to - start));
    sse_touched(s);
    return true;
}

static size_t base64_room(size_t room)
{
    return room > OVERHEAD + 4 ? (room - OVERHEAD) / 4 * 3 : 0;
}

size_t sse_room_base64(const struct sse *s)
{
    size_t room = http_stream_room(s->request), most = s->request->server->options.output_max;
    return base64_room(MIN(room, most));
}

size_t sse_max_base64(const struct sse *s)
{
    return base64_room(s->request->server->options.output_max);
}

void sse_end(struct sse *s)
{
    http_stream_end(s->request);
}

void sse_abort(struct sse *s)
{
    http_stream_abort(s->request);
}

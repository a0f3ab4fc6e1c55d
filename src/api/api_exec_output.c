/* GET …/execs/{id}/output: the log of an exec as Server-Sent Events. The bytes go as base64 straight into the output
 * buffer of the answer; what does not fit waits in a queue and is not acknowledged to the guest, so that a slow reader
 * slows the command and nothing grows here.
 *
 * The head of the answer is held back until the guest has said something, or for HEAD_WAIT_MS: an error that comes at
 * once (nothing kept, offset beyond the end) is then a proper problem and not a broken stream. */
#include "api/output_queue.h"
#include "api/render.h"
#include "control/exec.h"
#include "http/sse.h"

#define HEAD_WAIT_MS 100
#define EVENT_BYTES_MAX (64 * KIB)

struct reader {
    struct api *api;
    struct http_request *request;
    struct sse *sse; /* NULL: the head is held back */
    struct exec_stream *stream;
    uv_timer_t *head_timer;
    struct output_queue queue;
    bool exited;  /* the exit event is owed */
    bool over;    /* nothing more comes from the guest */
    char sandbox_id[ID_SIZE];
    char exec_id[ID_SIZE];
};

static void close_timer(uv_handle_t *handle)
{
    free(handle);
}

static void stop_timer(struct reader *d)
{
    if (d->head_timer)
        uv_close((uv_handle_t *)d->head_timer, close_timer);
    d->head_timer = NULL;
}

static void reader_free(struct reader *d)
{
    stop_timer(d);
    exec_stream_drop(d->stream);
    output_queue_done(&d->queue);
    free(d);
}

static void on_abort(struct http_request *r, enum http_abort why, void *arg)
{
    (void)r, (void)why;
    reader_free(arg);
}

static void flush(struct reader *d);

static void on_drain(struct sse *s, void *arg)
{
    (void)s;
    flush(arg);
}

static void begin(struct reader *d)
{
    if (d->sse)
        return;
    stop_timer(d);
    d->sse = sse_begin(d->request, 0, on_drain, d);
}

static void on_head_timer(uv_timer_t *timer)
{
    begin(timer->data);
}

/* One event of at most EVENT_BYTES_MAX; returns the bytes that were sent, 0: no room. */
static size_t send_piece(struct reader *d, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    char id[24];
    size_t n = MIN(MIN(len, EVENT_BYTES_MAX), sse_room_base64(d->sse));
    /* Few bytes now instead of many in a moment would make many small events: wait for room, unless that is all. */
    if (n < len && n < 4096)
        n = MIN(len, sse_max_base64(d->sse));
    n = MIN(n, (size_t)EVENT_BYTES_MAX);
    snprintf(id, sizeof(id), "%llu", (unsigned long long)(offset + n));
    return sse_send_base64(d->sse, id, stream == GUEST_STDERR ? "stderr" : "stdout", data, n) ? n : 0;
}

static bool send_gap(struct reader *d, uint64_t offset, uint64_t count)
{
    char id[24], data[96];
    snprintf(id, sizeof(id), "%llu", (unsigned long long)(offset + count));
    int n = snprintf(data, sizeof(data), "{\"from\":%llu,\"to\":%llu,\"bytes\":%llu}", (unsigned long long)offset,
                     (unsigned long long)(offset + count), (unsigned long long)count);
    return sse_send(d->sse, id, "dropped", data, (size_t)n);
}

static bool send_exit(struct reader *d)
{
    _cleanup_store_exec_ struct store_exec *x = NULL;
    if (store_exec_get(d->api->store, NULL, d->sandbox_id, d->exec_id, &x, NULL) < 0)
        return true;
    json_t *json = render_exec_result(x);
    char *text = json_dumps(json, JSON_COMPACT);
    bool sent = sse_send(d->sse, "end", "exit", text, strlen(text));
    free(text);
    json_decref(json);
    return sent;
}

/* Send what waits; end the answer when nothing more will come. Frees the reader then. */
static void flush(struct reader *d)
{
    struct output_piece *p;
    while ((p = output_queue_first(&d->queue))) {
        if (!p->stream) {
            if (!send_gap(d, p->offset, p->gap))
                return;
            output_queue_take(&d->queue, 0);
            continue;
        }
        size_t n = send_piece(d, p->stream, p->offset, p->data + p->start, p->len);
        if (!n)
            return;
        output_queue_take(&d->queue, n);
        if (d->stream)
            exec_stream_consume(d->stream, n);
    }
    if (d->exited) {
        if (!send_exit(d))
            return;
        d->exited = false;
    }
    if (d->over) {
        struct sse *sse = d->sse;
        reader_free(d);
        sse_end(sse);
    }
}

static void on_data(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct reader *d = arg;
    begin(d);
    while (len && !output_queue_first(&d->queue)) {
        size_t n = send_piece(d, stream, offset, data, len);
        if (!n)
            break;
        exec_stream_consume(d->stream, n);
        offset += n;
        data += n;
        len -= n;
    }
    if (len)
        output_queue_data(&d->queue, stream, offset, data, len);
}

static void on_dropped(void *arg, uint64_t offset, uint64_t count)
{
    struct reader *d = arg;
    begin(d);
    output_queue_gap(&d->queue, offset, count);
    flush(d);
}

static void on_exit_seen(void *arg, uint64_t end_offset, const struct guest_exit *x)
{
    (void)end_offset, (void)x;
    struct reader *d = arg;
    begin(d);
    d->exited = true;
    flush(d);
}

/* Its sandbox ended: there is a last event to be told. */
static bool is_lost(const struct reader *d)
{
    _cleanup_store_exec_ struct store_exec *x = NULL;
    return store_exec_get(d->api->store, NULL, d->sandbox_id, d->exec_id, &x, NULL) >= 0 && x->state == STORE_EXEC_LOST;
}

static void on_done(void *arg, const struct err *e)
{
    struct reader *d = arg;
    d->stream = NULL;
    if (e && !d->sse) {
        struct http_request *r = d->request;
        struct err error = *e;
        reader_free(d);
        http_reply_error(r, &error);
        return;
    }
    if (e && !is_lost(d)) {
        /* Cut: the reader sees that this is not the end, and may come back with the last id. */
        struct sse *sse = d->sse;
        reader_free(d);
        sse_abort(sse);
        return;
    }
    begin(d);
    d->exited = d->exited || e;
    d->over = true;
    flush(d);
}

static void on_started(void *arg)
{
    struct reader *d = arg;
    if (d->sse || d->head_timer)
        return;
    d->head_timer = NEW(uv_timer_t);
    uv_timer_init(control_loop(d->api->control), d->head_timer);
    d->head_timer->data = d;
    uv_timer_start(d->head_timer, on_head_timer, HEAD_WAIT_MS, 0);
}

void api_exec_output(struct http_request *r, void *arg)
{
    static const struct exec_stream_callbacks callbacks = {.on_started = on_started,
                                                           .on_data = on_data,
                                                           .on_dropped = on_dropped,
                                                           .on_exit = on_exit_seen,
                                                           .done = on_done};
    struct api *api = arg;
    const struct http_query *q = http_request_query(r);
    const char *last = sse_last_id(r);
    uint64_t from = 0;
    bool follow = true;
    struct err e = {0};
    int result = http_query_only(q, (const char *[]){"token", "from", "follow", "last_event_id", NULL}, &e);
    if (result >= 0)
        result = http_query_u64(q, "from", 0, INT64_MAX, &from, &e);
    if (result >= 0)
        result = http_query_bool(q, "follow", &follow, &e);
    if (result >= 0 && last && str_eq(last, "end")) {
        http_reply_empty(r, 204);
        return;
    }
    if (result >= 0 && last && last[0] && !str_to_u64(last, 0, INT64_MAX, &from))
        result = err_set(&e, ERR_INVALID, "header \"Last-Event-ID\": expected an offset or \"end\"");
    if (result < 0) {
        http_reply_error(r, &e);
        return;
    }
    struct reader *d = NEW(struct reader);
    d->api = api;
    d->request = r;
    output_queue_init(&d->queue);
    snprintf(d->sandbox_id, ID_SIZE, "%s", http_request_param(r, "sandbox_id"));
    snprintf(d->exec_id, ID_SIZE, "%s", http_request_param(r, "exec_id"));
    http_request_on_abort(r, on_abort, d);
    d->stream = exec_stream_open(api->control, project_of(r), d->sandbox_id, d->exec_id, from, follow, &callbacks, d);
}

/* GET …/execs/{id}/ws: the terminal of an exec over a WebSocket. Binary frames are its bytes, text frames JSON.
 * Output that the client does not take waits unacknowledged in a queue; input that the terminal does not take pauses
 * the client. */
#include "api/exec_body.h"
#include "api/output_queue.h"
#include "api/render.h"
#include "control/exec.h"
#include "http/websocket.h"

#define FRAME_MAX (64 * KIB)
#define PING_MS 15000

struct terminal {
    struct api *api;
    struct websocket *ws; /* NULL: closed */
    struct exec_stream *stream;
    struct guest_call *input;
    struct buf input_held;
    struct output_queue queue;
    bool ready;    /* the exec runs: input can be given */
    bool eof;      /* the client's input has ended */
    bool paused;   /* the client's frames */
    bool exited, over;
    uint64_t from;
    char project_id[ID_SIZE];
    char sandbox_id[ID_SIZE];
    char exec_id[ID_SIZE];
};

static void terminal_free(struct terminal *t)
{
    exec_stream_drop(t->stream);
    if (t->input)
        guest_call_drop(t->input);
    buf_done(&t->input_held);
    output_queue_done(&t->queue);
    free(t);
}

static bool send_json(struct terminal *t, json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    bool sent = websocket_send(t->ws, true, text, strlen(text));
    free(text);
    json_decref(json);
    return sent;
}

/* ---- out ---- */

static bool send_exit(struct terminal *t)
{
    _cleanup_store_exec_ struct store_exec *x = NULL;
    if (store_exec_get(t->api->store, NULL, t->sandbox_id, t->exec_id, &x, NULL) < 0)
        return true;
    json_t *json = render_exec_result(x);
    json_object_set_new(json, "type", json_string("exit"));
    return send_json(t, json);
}

static void flush(struct terminal *t)
{
    struct output_piece *p;
    while ((p = output_queue_first(&t->queue))) {
        if (!p->stream) {
            if (!send_json(t, json_pack("{s:s, s:I, s:I, s:I}", "type", "dropped", "from", (json_int_t)p->offset, "to",
                                        (json_int_t)(p->offset + p->gap), "bytes", (json_int_t)p->gap)))
                return;
            output_queue_take(&t->queue, 0);
            continue;
        }
        size_t n = MIN(p->len, (size_t)FRAME_MAX);
        if (!websocket_send(t->ws, false, p->data + p->start, n))
            return;
        output_queue_take(&t->queue, n);
        if (t->stream)
            exec_stream_consume(t->stream, n);
    }
    if (t->exited) {
        if (!send_exit(t))
            return;
        t->exited = false;
        websocket_close(t->ws, 1000, "the exec has ended");
    } else if (t->over)
        websocket_close(t->ws, 1011, "the sandbox has ended");
}

static void on_data(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct terminal *t = arg;
    output_queue_data(&t->queue, stream, offset, data, len);
    flush(t);
}

static void on_dropped(void *arg, uint64_t offset, uint64_t count)
{
    struct terminal *t = arg;
    output_queue_gap(&t->queue, offset, count);
    flush(t);
}

static void on_exit_seen(void *arg, uint64_t end_offset, const struct guest_exit *x)
{
    (void)end_offset, (void)x;
    struct terminal *t = arg;
    t->exited = true;
    flush(t);
}

static void on_done(void *arg, const struct err *e)
{
    struct terminal *t = arg;
    bool told = !e && !t->exited; /* the exit went out before */
    t->stream = NULL;
    if (told && !output_queue_first(&t->queue))
        return;
    if (e)
        t->over = true;
    flush(t);
}

/* ---- in ---- */

static void feed(struct terminal *t)
{
    if (!t->input)
        return;
    if (t->input_held.len)
        buf_consume(&t->input_held, guest_call_write(t->input, buf_data(&t->input_held), t->input_held.len));
    if (!t->input_held.len && t->eof)
        guest_call_write_end(t->input);
    if (t->paused && t->input_held.len < FRAME_MAX) {
        t->paused = false;
        websocket_resume(t->ws);
    }
}

static void on_input_drain(void *arg)
{
    feed(arg);
}

static void on_input_done(void *arg, uint64_t accepted, const struct err *e)
{
    (void)accepted, (void)e;
    struct terminal *t = arg;
    /* The program does not read any more: what the client still sends goes nowhere. */
    t->input = NULL;
    buf_reset(&t->input_held);
}

static void on_started(void *arg)
{
    static const struct guest_stdin_callbacks callbacks = {.on_drain = on_input_drain, .done = on_input_done};
    struct terminal *t = arg;
    struct guest *g = exec_guest(t->api->control, t->project_id, t->sandbox_id, t->exec_id, NULL);
    t->ready = true;
    send_json(t, json_pack("{s:s, s:s, s:I}", "type", "start", "exec_id", t->exec_id, "offset", (json_int_t)t->from));
    if (!g)
        return; /* it has ended: there is its output to be read */
    t->input = guest_exec_stdin(g, t->exec_id, true, &callbacks, t);
    feed(t);
}

static void on_sent(void *arg, const struct err *e)
{
    (void)arg, (void)e;
}

struct control_message {
    const char *type;
    const json_t *signal;
    int64_t rows, cols;
};

/* False: not valid. */
static bool take_control(struct terminal *t, const char *text, size_t len)
{
    static const struct field fields[] = {
        {"type", FIELD_STRING, offsetof(struct control_message, type), FIELD_REQUIRED},
        {"signal", FIELD_ANY, offsetof(struct control_message, signal)},
        {"rows", FIELD_INTEGER, offsetof(struct control_message, rows), 0, 1, 1000},
        {"cols", FIELD_INTEGER, offsetof(struct control_message, cols), 0, 1, 1000},
    };
    _cleanup_faults_ struct faults f = {0};
    struct control_message m = {0};
    json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(json)) {
        json_decref(json);
        return false;
    }
    fields_parse(json, "", fields, ARRAY_LEN(fields), &m, &f);
    struct guest *g = exec_guest(t->api->control, t->project_id, t->sandbox_id, t->exec_id, NULL);
    bool good = !f.list && m.type;
    if (good && str_eq(m.type, "resize")) {
        good = m.rows && m.cols;
        if (good && g)
            guest_exec_resize(g, t->exec_id, (uint16_t)m.rows, (uint16_t)m.cols, on_sent, NULL);
    } else if (good && str_eq(m.type, "signal")) {
        int number = m.signal ? signal_body_parse(m.signal, "/signal", &f) : 0;
        good = number != 0;
        if (good && g)
            guest_exec_signal(g, t->exec_id, number, on_sent, NULL);
    } else if (good && str_eq(m.type, "eof")) {
        t->eof = true;
        feed(t);
    } else
        good = false;
    json_decref(json);
    return good;
}

static bool on_message(struct websocket *w, bool text, const void *data, size_t len, void *arg)
{
    struct terminal *t = arg;
    if (text) {
        if (!take_control(t, data, len))
            websocket_close(w, 1008, "the control message is not valid");
        return true;
    }
    if (t->eof || (t->ready && !t->input))
        return true;
    buf_put(&t->input_held, data, len);
    feed(t);
    t->paused = t->input_held.len >= FRAME_MAX;
    return !t->paused;
}

static void on_ws_drain(struct websocket *w, void *arg)
{
    (void)w;
    flush(arg);
}

static void on_close(struct websocket *w, int code, void *arg)
{
    (void)w, (void)code;
    terminal_free(arg); /* the exec goes on */
}

static void on_open(struct websocket *w, void *arg)
{
    static const struct exec_stream_callbacks callbacks = {.on_started = on_started,
                                                           .on_data = on_data,
                                                           .on_dropped = on_dropped,
                                                           .on_exit = on_exit_seen,
                                                           .done = on_done};
    (void)w;
    struct terminal *t = arg;
    t->stream =
        exec_stream_open(t->api->control, t->project_id, t->sandbox_id, t->exec_id, t->from, true, &callbacks, t);
}

void api_exec_ws(struct http_request *r, void *arg)
{
    static const struct websocket_options options = {.message_max = FRAME_MAX, .ping_ms = PING_MS};
    static const struct websocket_events events = {
        .on_open = on_open, .on_message = on_message, .on_drain = on_ws_drain, .on_close = on_close};
    struct api *api = arg;
    const char *sandbox = http_request_param(r, "sandbox_id"), *id = http_request_param(r, "exec_id");
    _cleanup_store_exec_ struct store_exec *x = NULL;
    struct err e = {0};
    uint64_t from = 0;
    int result = http_query_only(http_request_query(r), (const char *[]){"token", "from", NULL}, &e);
    if (result >= 0)
        result = http_query_u64(http_request_query(r), "from", 0, INT64_MAX, &from, &e);
    if (result >= 0)
        result = store_exec_get(api->store, project_of(r), sandbox, id, &x, &e);
    if (result >= 0) {
        json_t *spec = json_loads(x->spec_json, 0, NULL);
        if (!json_is_object(json_object_get(spec, "terminal")))
            result = err_set(&e, ERR_STATE, "exec %s was made without a terminal", id);
        json_decref(spec);
    }
    if (result >= 0 && (x->state == STORE_EXEC_FAILED || x->state == STORE_EXEC_LOST))
        result = err_set(&e, x->state == STORE_EXEC_LOST ? ERR_GONE : ERR_STATE, "exec %s is %s", id,
                         store_exec_state_name(x->state));
    if (result < 0) {
        http_reply_error(r, &e);
        return;
    }
    struct terminal *t = NEW(struct terminal);
    t->api = api;
    t->from = from;
    memcpy(t->project_id, x->project_id, ID_SIZE);
    memcpy(t->sandbox_id, x->sandbox_id, ID_SIZE);
    memcpy(t->exec_id, x->id, ID_SIZE);
    buf_init(&t->input_held, 4 * FRAME_MAX);
    output_queue_init(&t->queue);
    t->ws = websocket_accept(r, &options, &events, t);
    if (!t->ws)
        terminal_free(t); /* refused, and answered */
}

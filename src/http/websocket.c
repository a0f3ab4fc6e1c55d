/* WebSocket over a tunnel (see websocket.h): wslay makes and takes the frames, this file moves the bytes. */
#include "http/websocket.h"

#include "base/str.h"
#include "http/http_tunnel.h"

#include <openssl/sha.h>
#include <wslay/wslay.h>

#define KEY_LEN 24
#define CLOSE_WAIT_MS 5000
#define CONTROL_QUEUE_MAX 32 /* pongs and the like that wait for output: then reading rests */
#define PUMP_BYTES (16 * KIB)

struct websocket {
    struct http_tunnel *tunnel;
    wslay_event_context_ptr wslay;
    uv_timer_t timer;
    struct websocket_events events;
    void *arg;
    char *protocol;
    size_t output_max;
    uint64_t ping_ms;
    bool heard;  /* something came since the last tick */
    bool asked;  /* a ping is out */
    bool paused; /* by the owner */
    bool want_drain;
    bool close_sent;
    bool close_told;
    int close_code;
    const uint8_t *in; /* being read by wslay */
    size_t in_len;
};

static bool key_valid(const char *key)
{
    uint8_t raw[KEY_LEN];
    return key && strlen(key) == KEY_LEN && base64_decode(key, KEY_LEN, raw) == 16;
}

static void accept_value(const char *key, char ret_text[static 29])
{
    char joined[KEY_LEN + 37];
    uint8_t digest[SHA_DIGEST_LENGTH];
    int len = snprintf(joined, sizeof(joined), "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    SHA1((const uint8_t *)joined, (size_t)len, digest);
    base64_encode(digest, sizeof(digest), ret_text);
}

/* The first of `ours` that the client's list holds. */
static const char *protocol_choose(const char *const *ours, const char *offered)
{
    for (; ours && offered && *ours; ours++) {
        size_t len = strlen(*ours);
        for (const char *p = offered; *p;) {
            p += strspn(p, " \t,");
            size_t n = strcspn(p, ", \t");
            if (n == len && memcmp(p, *ours, n) == 0)
                return *ours;
            p += n;
        }
    }
    return NULL;
}

/* ---- wslay's side ---- */

static ssize_t ws_recv(wslay_event_context_ptr ctx, uint8_t *to, size_t len, int flags, void *user)
{
    struct websocket *w = user;
    size_t n = MIN(len, w->in_len);
    (void)flags;
    if (!n) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    memcpy(to, w->in, n);
    w->in += n;
    w->in_len -= n;
    return (ssize_t)n;
}

static ssize_t ws_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags, void *user)
{
    struct websocket *w = user;
    size_t n = http_tunnel_write(w->tunnel, data, len);
    (void)flags;
    if (!n) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    return (ssize_t)n;
}

static void ws_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m, void *user)
{
    struct websocket *w = user;
    (void)ctx;
    if (m->opcode == WSLAY_CONNECTION_CLOSE) {
        w->close_code = m->status_code ? m->status_code : 1005;
    } else if ((m->opcode == WSLAY_TEXT_FRAME || m->opcode == WSLAY_BINARY_FRAME) && !w->close_sent) {
        if (!w->events.on_message(w, m->opcode == WSLAY_TEXT_FRAME, m->msg, m->msg_length, w->arg))
            w->paused = true;
    }
}

/* Frames into the tunnel as far as it takes them; the end when both sides have said so. */
static void ws_flush(struct websocket *w)
{
    if (wslay_event_want_write(w->wslay) && wslay_event_send(w->wslay) != 0) {
        http_tunnel_abort(w->tunnel);
        return;
    }
    if (wslay_event_get_close_sent(w->wslay) && !w->close_sent) {
        w->close_sent = true;
        if (!w->close_code && wslay_event_get_close_received(w->wslay))
            w->close_code = wslay_event_get_status_code_received(w->wslay);
        uv_timer_start(&w->timer, w->timer.timer_cb, CLOSE_WAIT_MS, CLOSE_WAIT_MS);
    }
    /* Reading ended: the close handshake is complete, or the client broke the protocol. */
    if (w->close_sent && !wslay_event_want_read(w->wslay) && !wslay_event_want_write(w->wslay))
        http_tunnel_close(w->tunnel);
}

static bool ws_blocked(const struct websocket *w)
{
    return w->paused || wslay_event_get_queued_msg_count(w->wslay) > CONTROL_QUEUE_MAX;
}

/* ---- the tunnel's side ---- */

static void tunnel_open(struct http_tunnel *t, void *arg)
{
    struct websocket *w = arg;
    (void)t;
    if (w->events.on_open)
        w->events.on_open(w, w->arg);
}

/* A frame that wslay cannot even parse: it queues a close without a code; the right one is 1002. */
static void ws_broken(struct websocket *w)
{
    static const uint8_t protocol_error[] = {0x88, 2, 0x03, 0xea};
    if (!w->close_sent && wslay_event_get_queued_msg_count(w->wslay) == 1)
        http_tunnel_write(w->tunnel, protocol_error, sizeof(protocol_error));
    else
        ws_flush(w);
    w->close_sent = true;
    http_tunnel_close(w->tunnel);
}

/* wslay takes bytes in small pieces, so that a pause takes effect between two messages. */
static size_t tunnel_data(struct http_tunnel *t, const void *data, size_t len, void *arg)
{
    struct websocket *w = arg;
    size_t taken = 0;
    (void)t;
    w->heard = true;
    while (taken < len && !ws_blocked(w) && !w->close_told && wslay_event_want_read(w->wslay)) {
        w->in = (const uint8_t *)data + taken;
        w->in_len = MIN(len - taken, PUMP_BYTES);
        taken += w->in_len;
        int rc = wslay_event_recv(w->wslay);
        taken -= w->in_len;
        if (rc != 0) {
            ws_broken(w);
            return len;
        }
        ws_flush(w);
    }
    if (!wslay_event_want_read(w->wslay))
        return len; /* nothing that follows a close counts */
    return taken;
}

static void tunnel_drain(struct http_tunnel *t, void *arg)
{
    struct websocket *w = arg;
    bool was_blocked = ws_blocked(w);
    ws_flush(w);
    if (was_blocked && !ws_blocked(w))
        http_tunnel_resume(t);
    if (w->want_drain && websocket_room(w) >= w->output_max / 2) {
        w->want_drain = false;
        if (w->events.on_drain)
            w->events.on_drain(w, w->arg);
    }
}

static void timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void tunnel_closed(struct http_tunnel *t, const char *why, void *arg)
{
    struct websocket *w = arg;
    (void)t, (void)why;
    w->close_told = true;
    w->tunnel = NULL;
    w->events.on_close(w, w->close_code ? w->close_code : 1006, w->arg);
    wslay_event_context_free(w->wslay);
    free(w->protocol);
    uv_close((uv_handle_t *)&w->timer, timer_closed);
}

/* Every ping_ms: a silent client is asked, and given up when it stays silent. After a close frame: the end. */
static void on_tick(uv_timer_t *timer)
{
    struct websocket *w = timer->data;
    struct wslay_event_msg ping = {.opcode = WSLAY_PING};
    if (w->close_sent || (!w->heard && w->asked && !ws_blocked(w))) {
        http_tunnel_abort(w->tunnel);
        return;
    }
    w->asked = !w->heard;
    if (!w->heard && wslay_event_get_queued_msg_count(w->wslay) < CONTROL_QUEUE_MAX) {
        wslay_event_queue_msg(w->wslay, &ping);
        ws_flush(w);
    }
    w->heard = false;
}

/* ---- the owner's side ---- */

static bool refused(struct http_request *r, int status, const char *text)
{
    struct err e;
    err_set(&e, ERR_INVALID, "%s", text);
    http_reply_header(r, "Sec-WebSocket-Version", "13");
    if (status == 426) {
        http_reply_header(r, "Connection", "Upgrade");
        http_reply_header(r, "Upgrade", "websocket");
    }
    http_reply_error_status(r, status, &e);
    return true;
}

static bool handshake_refused(struct http_request *r)
{
    const char *version = http_request_header(r, "Sec-WebSocket-Version");
    if (!str_eq(http_request_method(r), "GET"))
        return refused(r, 400, "a WebSocket is opened with GET");
    if (!http_request_is_upgrade(r, "websocket"))
        return refused(r, 426, "this path speaks WebSocket: an upgrade is needed");
    if (!version || !str_eq(version, "13"))
        return refused(r, 426, "the WebSocket version that is spoken is 13");
    if (!key_valid(http_request_header(r, "Sec-WebSocket-Key")))
        return refused(r, 400, "Sec-WebSocket-Key is not 16 bytes in base64");
    return false;
}

static void wslay_make(struct websocket *w, size_t message_max)
{
    const struct wslay_event_callbacks callbacks = {
        .recv_callback = ws_recv, .send_callback = ws_send, .on_msg_recv_callback = ws_message};
    if (wslay_event_context_server_init(&w->wslay, &callbacks, w) != 0)
        abort(); /* out of memory */
    wslay_event_config_set_max_recv_msg_length(w->wslay, message_max);
}

struct websocket *websocket_accept(struct http_request *r, const struct websocket_options *options,
                                   const struct websocket_events *events, void *arg)
{
    static const struct http_tunnel_events tunnel_events = {
        .on_open = tunnel_open, .on_data = tunnel_data, .on_drain = tunnel_drain, .on_close = tunnel_closed};
    const struct websocket_options none = {0};
    char accept[29];
    if (handshake_refused(r))
        return NULL;
    options = options ? options : &none;
    struct websocket *w = NEW(struct websocket);
    w->events = *events;
    w->arg = arg;
    w->output_max = options->output_max ? options->output_max : 256 * KIB;
    w->ping_ms = options->ping_ms ? options->ping_ms : 30000;
    w->heard = true;
    wslay_make(w, options->message_max ? options->message_max : 1 * MIB);
    const char *protocol = protocol_choose(options->protocols, http_request_header(r, "Sec-WebSocket-Protocol"));
    if (protocol) {
        w->protocol = xstrdup(protocol);
        http_reply_header(r, "Sec-WebSocket-Protocol", protocol);
    }
    accept_value(http_request_header(r, "Sec-WebSocket-Key"), accept);
    http_reply_header(r, "Sec-WebSocket-Accept", accept);
    uv_timer_init(http_request_loop(r), &w->timer);
    w->timer.data = w;
    uv_timer_start(&w->timer, on_tick, w->ping_ms, w->ping_ms);
    w->tunnel = http_tunnel_accept(r, "websocket", &tunnel_events, w->output_max, w);
    return w;
}

const char *websocket_protocol(const struct websocket *w)
{
    return w->protocol;
}

/* What wslay has queued and what the tunnel holds together stay under output_max (one message more at most). */
size_t websocket_room(const struct websocket *w)
{
    if (!w->tunnel || w->close_told || w->close_sent)
        return 0;
    size_t held = wslay_event_get_queued_msg_length(w->wslay) + http_tunnel_pending(w->tunnel);
    return held < w->output_max ? w->output_max - held : 0;
}

bool websocket_send(struct websocket *w, bool text, const void *data, size_t len)
{
    struct wslay_event_msg m = {.opcode = text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, .msg = data, .msg_length = len};
    if (!w->tunnel || w->close_told || w->close_sent)
        return false;
    if (len > websocket_room(w)) {
        w->want_drain = true;
        http_tunnel_want_drain(w->tunnel);
        return false;
    }
    if (wslay_event_queue_msg(w->wslay, &m) != 0)
        return false;
    ws_flush(w);
    return true;
}

void websocket_resume(struct websocket *w)
{
    if (!w->paused || !w->tunnel)
        return;
    w->paused = false;
    http_tunnel_resume(w->tunnel);
}

void websocket_close(struct websocket *w, int code, const char *reason)
{
    if (!w->tunnel || w->close_sent)
        return;
    size_t len = reason ? strlen(reason) : 0;
    if (wslay_event_queue_close(w->wslay, (uint16_t)code, (const uint8_t *)reason, MIN(len, 123)) != 0)
        return;
    w->paused = false;
    http_tunnel_resume(w->tunnel);
    ws_flush(w);
}

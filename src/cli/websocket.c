/* A WebSocket client (see websocket.h). */
#include "cli/websocket.h"

#include <errno.h>
#include <wslay/wslay.h>

#include "base/id.h"
#include "base/str.h"
#include "cli/websocket_accept.h"

#define MESSAGE_MAX (1 * MIB)

struct websocket {
    struct upgraded up;
    wslay_event_context_ptr context;
    struct websocket_events events;
    bool over;
};

static ssize_t on_recv(wslay_event_context_ptr context, uint8_t *data, size_t len, int flags ATTR_UNUSED, void *arg)
{
    struct websocket *ws = arg;
    if (ws->up.early.len > 0) {
        size_t n = MIN(len, ws->up.early.len);
        memcpy(data, buf_data(&ws->up.early), n);
        buf_consume(&ws->up.early, n);
        return (ssize_t)n;
    }
    ssize_t n = upgraded_read(&ws->up, data, len);
    if (n > 0)
        return n;
    if (n == 0)
        ws->over = true;
    wslay_event_set_error(context, n == -EAGAIN ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static ssize_t on_send(wslay_event_context_ptr context, const uint8_t *data, size_t len, int flags ATTR_UNUSED,
                       void *arg)
{
    struct websocket *ws = arg;
    ssize_t n = upgraded_write(&ws->up, data, len);
    if (n >= 0)
        return n;
    wslay_event_set_error(context, n == -EAGAIN ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static int on_mask(wslay_event_context_ptr context ATTR_UNUSED, uint8_t *data, size_t len, void *arg ATTR_UNUSED)
{
    random_bytes(data, len);
    return 0;
}

static void on_received(wslay_event_context_ptr context ATTR_UNUSED, const struct wslay_event_on_msg_recv_arg *message,
                        void *arg)
{
    struct websocket *ws = arg;
    if (wslay_is_ctrl_frame(message->opcode))
        return;
    if (!ws->over &&
        ws->events.on_message(ws->events.arg, message->opcode == WSLAY_TEXT_FRAME, message->msg, message->msg_length))
        ws->over = true;
}

int websocket_open(struct api *api, const char *path, const struct websocket_events *events, struct websocket **ret_ws,
                   struct err *e)
{
    uint8_t nonce[16];
    char key[32], expected[32], accept[64];
    random_bytes(nonce, sizeof(nonce));
    base64_encode(nonce, sizeof(nonce), key);
    websocket_accept(key, expected);
    _cleanup_free_ char *headers =
        xasprintf("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                  "Sec-WebSocket-Key: %s\r\n",
                  key);
    struct websocket *ws = NEW(struct websocket);
    int r = api_upgrade(api, path, headers, &ws->up, accept, sizeof(accept), e);
    if (r >= 0 && !str_eq(accept, expected)) {
        upgraded_close(&ws->up);
        r = err_set(e, ERR_PROTOCOL, "the server's WebSocket handshake is wrong");
    }
    if (r < 0) {
        free(ws);
        return r;
    }
    static const struct wslay_event_callbacks callbacks = {.recv_callback = on_recv,
                                                           .send_callback = on_send,
                                                           .genmask_callback = on_mask,
                                                           .on_msg_recv_callback = on_received};
    ws->events = *events;
    if (wslay_event_context_client_init(&ws->context, &callbacks, ws) != 0)
        abort();
    wslay_event_config_set_max_recv_msg_length(ws->context, MESSAGE_MAX);
    *ret_ws = ws;
    return 0;
}

int websocket_fd(const struct websocket *ws)
{
    return ws->up.fd;
}

void websocket_send(struct websocket *ws, bool is_text, const void *data, size_t len)
{
    struct wslay_event_msg message = {
        .opcode = is_text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, .msg = data, .msg_length = len};
    wslay_event_queue_msg(ws->context, &message);
}

size_t websocket_queued(const struct websocket *ws)
{
    return wslay_event_get_queued_msg_length(ws->context) + (size_t)wslay_event_want_write(ws->context);
}

bool websocket_work(struct websocket *ws)
{
    if (wslay_event_recv(ws->context) != 0 || wslay_event_send(ws->context) != 0)
        return false;
    return !ws->over && (wslay_event_want_read(ws->context) || wslay_event_want_write(ws->context));
}

void websocket_close(struct websocket *ws)
{
    if (!ws)
        return;
    wslay_event_queue_close(ws->context, WSLAY_CODE_NORMAL_CLOSURE, NULL, 0);
    wslay_event_send(ws->context);
    wslay_event_context_free(ws->context);
    upgraded_close(&ws->up);
    free(ws);
}

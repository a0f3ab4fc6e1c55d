/* A WebSocket client (RFC 6455, frames by wslay) over an upgraded connection. Never blocks after it is open. */
#ifndef SPACE_CLI_WEBSOCKET_H
#define SPACE_CLI_WEBSOCKET_H

#include "cli/api.h"

struct websocket;

/* Messages of the server; non-zero ends the connection. */
struct websocket_events {
    int (*on_message)(void *arg, bool is_text, const void *data, size_t len);
    void *arg;
};

int websocket_open(struct api *api, const char *path, const struct websocket_events *events, struct websocket **ret_ws,
                   struct err *e);
int websocket_fd(const struct websocket *ws);
/* Queue a message. */
void websocket_send(struct websocket *ws, bool is_text, const void *data, size_t len);
/* Bytes not sent yet; more than 0: poll for writing too. */
size_t websocket_queued(const struct websocket *ws);
/* Receive and send what can be done at once; false when the connection has ended. */
bool websocket_work(struct websocket *ws);
void websocket_close(struct websocket *ws);

#endif

/* WebSocket (RFC 6455), server side, frames by wslay over an http_tunnel. No extensions. Unmasked, oversized or
 * malformed frames end the connection with the close code of the RFC. Pings are answered; a ping is sent when nothing
 * came for ping_ms, and the connection ends when nothing comes for as long again. */
#ifndef SPACE_HTTP_WEBSOCKET_H
#define SPACE_HTTP_WEBSOCKET_H

#include "http/http_request.h"

struct websocket;

struct websocket_options {
    size_t message_max;           /* 1 MiB: a longer message ends the connection with 1009 */
    size_t output_max;            /* 256 KiB */
    uint64_t ping_ms;             /* 30 s */
    const char *const *protocols; /* NULL-terminated, by preference; the first one that the client offers is chosen */
};

struct websocket_events {
    void (*on_open)(struct websocket *w, void *arg); /* may be NULL */
    /* A whole message. Text is valid UTF-8. Return false to pause: this message counts as taken, the next one waits for
     * websocket_resume. */
    bool (*on_message)(struct websocket *w, bool text, const void *data, size_t len, void *arg);
    void (*on_drain)(struct websocket *w, void *arg); /* room again after a refused send; may be NULL */
    /* Last call, exactly once; `code` is the peer's close code, 1006 when the connection broke. w is freed after it. */
    void (*on_close)(struct websocket *w, int code, void *arg);
};

/* Check the handshake and answer: 101, or a problem (400, 426), in which case NULL is returned and the request is
 * over. Zero fields in options (which may be NULL) take the defaults. */
struct websocket *websocket_accept(struct http_request *r, const struct websocket_options *options,
                                   const struct websocket_events *events, void *arg);
const char *websocket_protocol(const struct websocket *w); /* the chosen one, or NULL */

/* Queue a message; taken whole or not at all (false: on_drain will come). One message may be as long as output_max. */
bool websocket_send(struct websocket *w, bool text, const void *data, size_t len);
size_t websocket_room(const struct websocket *w); /* payload bytes that websocket_send would take at this moment */
void websocket_resume(struct websocket *w);
/* Send a close frame after what is queued; on_close follows when the peer answered or 5 s have passed. */
void websocket_close(struct websocket *w, int code, const char *reason);

#endif

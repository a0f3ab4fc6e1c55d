/* A connection after "101 Switching Protocols": raw bytes both ways with back-pressure (WebSockets to a guest's port
 * pass through so). The request is over when the tunnel begins; its on_abort is not called any more. */
#ifndef SPACE_HTTP_HTTP_TUNNEL_H
#define SPACE_HTTP_HTTP_TUNNEL_H

#include "http/http_request.h"

struct http_tunnel;

struct http_tunnel_events {
    /* The 101 is sent; bytes that came with the request follow through on_data. May be NULL. */
    void (*on_open)(struct http_tunnel *t, void *arg);
    /* Returns how many bytes were taken; fewer than `len` pauses reading until http_tunnel_resume. */
    size_t (*on_data)(struct http_tunnel *t, const void *data, size_t len, void *arg);
    /* The client will send nothing more (half-closed). May be NULL: then the tunnel is closed. */
    void (*on_eof)(struct http_tunnel *t, void *arg);
    /* There is room again after a write was cut short. May be NULL. */
    void (*on_drain)(struct http_tunnel *t, void *arg);
    /* Last call, exactly once, whoever ended it; t is freed after it. `why` is NULL for an end by http_tunnel_close. */
    void (*on_close)(struct http_tunnel *t, const char *why, void *arg);
};

/* Answer with 101. The headers added by http_reply_header go out, and "Connection: Upgrade", and "Upgrade: protocol".
 * The tunnel comes to life (on_open) when the head is sent; on_close comes in every case, also when the client was
 * already gone. buffer_max 0: 256 KiB. Returns the tunnel, usable at once for writing. */
struct http_tunnel *http_tunnel_accept(struct http_request *r, const char *protocol,
                                       const struct http_tunnel_events *events, size_t buffer_max, void *arg);

size_t http_tunnel_write(struct http_tunnel *t, const void *data, size_t len); /* bytes taken */
void http_tunnel_want_drain(struct http_tunnel *t); /* have on_drain called once half of the buffer is free */
size_t http_tunnel_room(const struct http_tunnel *t);
size_t http_tunnel_pending(const struct http_tunnel *t);
void http_tunnel_pause(struct http_tunnel *t);
void http_tunnel_resume(struct http_tunnel *t);
void http_tunnel_shutdown(struct http_tunnel *t); /* nothing more will be written: FIN after what is pending */
/* Send what is pending (at most write_stall_ms), then close; what still comes is thrown away. on_close follows from the
 * loop when the client has closed too, or two seconds later. */
void http_tunnel_close(struct http_tunnel *t);
void http_tunnel_abort(struct http_tunnel *t); /* close at once */

#endif

/* A connection that carries bytes between a client and a guest port, both ways, each half with its own end. */
#ifndef SPACE_API_PORT_TUNNEL_H
#define SPACE_API_PORT_TUNNEL_H

#include "base/buf.h"
#include "guest/guest.h"
#include "http/http_tunnel.h"

struct port_tunnel {
    struct http_tunnel *tunnel; /* NULL: closed */
    struct guest_call *call;    /* NULL: ended */
    struct buf held;            /* from the guest, not taken by the client yet */
    bool guest_eof;
    void (*on_closed)(void *owner); /* last call; frees */
    void *owner;
};

/* Answer with 101 and take over `call`. */
void port_tunnel_accept(struct port_tunnel *t, struct http_request *r, const char *protocol, struct guest_call *call,
                        void (*on_closed)(void *owner), void *owner);
/* What the guest's call tells. */
void port_tunnel_data(struct port_tunnel *t, const uint8_t *data, size_t len);
void port_tunnel_read_end(struct port_tunnel *t);
void port_tunnel_drain(struct port_tunnel *t);
void port_tunnel_ended(struct port_tunnel *t, const struct err *e);
void port_tunnel_done(struct port_tunnel *t);

#endif

/* See port_tunnel.h. */
#include "api/port_tunnel.h"

#define HELD_MAX (4 * MIB) /* above the window of the guest's stream, which bounds it */

static void settle(struct port_tunnel *t)
{
    if (!t->tunnel || t->held.len)
        return;
    if (!t->call)
        http_tunnel_close(t->tunnel);
    else if (t->guest_eof)
        http_tunnel_shutdown(t->tunnel);
}

static void flush(struct port_tunnel *t)
{
    if (!t->tunnel)
        return;
    size_t taken = http_tunnel_write(t->tunnel, buf_data(&t->held), t->held.len);
    buf_consume(&t->held, taken);
    if (t->call && taken)
        guest_call_consume(t->call, taken);
    settle(t);
}

static size_t on_data(struct http_tunnel *tunnel, const void *data, size_t len, void *arg)
{
    (void)tunnel;
    struct port_tunnel *t = arg;
    return t->call ? guest_call_write(t->call, data, len) : len;
}

static void on_eof(struct http_tunnel *tunnel, void *arg)
{
    (void)tunnel;
    struct port_tunnel *t = arg;
    if (t->call)
        guest_call_write_end(t->call);
}

static void on_drain(struct http_tunnel *tunnel, void *arg)
{
    (void)tunnel;
    flush(arg);
}

static void on_close(struct http_tunnel *tunnel, const char *why, void *arg)
{
    (void)tunnel, (void)why;
    struct port_tunnel *t = arg;
    t->tunnel = NULL;
    if (t->call)
        guest_call_drop(t->call);
    t->call = NULL;
    t->on_closed(t->owner);
}

void port_tunnel_accept(struct port_tunnel *t, struct http_request *r, const char *protocol, struct guest_call *call,
                        void (*on_closed)(void *owner), void *owner)
{
    static const struct http_tunnel_events events = {
        .on_data = on_data, .on_eof = on_eof, .on_drain = on_drain, .on_close = on_close};
    *t = (struct port_tunnel){.call = call, .on_closed = on_closed, .owner = owner};
    buf_init(&t->held, HELD_MAX);
    t->tunnel = http_tunnel_accept(r, protocol, &events, 0, t);
}

void port_tunnel_data(struct port_tunnel *t, const uint8_t *data, size_t len)
{
    size_t taken = t->tunnel && !t->held.len ? http_tunnel_write(t->tunnel, data, len) : 0;
    if (t->call && taken)
        guest_call_consume(t->call, taken);
    if (taken < len)
        buf_put(&t->held, data + taken, len - taken);
}

void port_tunnel_read_end(struct port_tunnel *t)
{
    t->guest_eof = true;
    settle(t);
}

void port_tunnel_drain(struct port_tunnel *t)
{
    if (t->tunnel)
        http_tunnel_resume(t->tunnel);
}

void port_tunnel_ended(struct port_tunnel *t, const struct err *e)
{
    t->call = NULL;
    if (e && t->tunnel)
        http_tunnel_abort(t->tunnel);
    else
        settle(t);
}

void port_tunnel_done(struct port_tunnel *t)
{
    buf_done(&t->held);
}

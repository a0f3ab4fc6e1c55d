/* Raw connections after an upgrade (see http_tunnel.h). The socket is read and written here; libmicrohttpd keeps the
 * connection suspended and closes the socket when it is told to. */
#include "http/http_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define READ_ROUNDS 8 /* of SCRATCH_BYTES, before others get a turn */

struct http_tunnel {
    struct http_server *server;
    struct http_request *request; /* NULL when its connection is gone */
    struct MHD_UpgradeResponseHandle *urh;
    char *protocol;
    struct http_tunnel_events events;
    void *arg;
    struct due due;
    struct buf in;  /* read but not taken */
    struct buf out; /* taken but not sent */
    bool open;      /* the 101 is sent */
    bool open_told;
    bool paused;
    bool eof, eof_told;
    bool shut, shut_done; /* we send nothing more */
    bool closing;         /* close once `out` is sent and the client has seen the end (or LINGER_MS have passed) */
    bool dead;            /* nothing more happens but on_close */
    bool want_drain, drain_due;
    const char *why;
};

static void tunnel_run(struct due *d);

struct http_tunnel *http_tunnel_accept(struct http_request *r, const char *protocol,
                                       const struct http_tunnel_events *events, size_t buffer_max, void *arg)
{
    struct http_tunnel *t = NEW(struct http_tunnel);
    t->server = r->server;
    t->server->refs++;
    t->protocol = xstrdup(protocol);
    t->events = *events;
    t->arg = arg;
    t->due.run = tunnel_run;
    buf_init(&t->out, buffer_max ? buffer_max : 256 * KIB);
    if (r->answered || r->reply_set || r->gone || r->stage != STAGE_FULL || r->http10) {
        t->dead = true;
        t->why = r->gone ? "the client is gone" : "this request cannot be upgraded";
        server_due(t->server, &t->due);
        struct err e;
        err_set(&e, ERR_INVALID, "this request cannot be upgraded");
        http_reply_error(r, &e); /* dropped when the client is gone; ends the handler's part */
        return t;
    }
    t->request = http_request_ref(r);
    r->tunnel = t;
    r->status = 101;
    r->answered = true;
    reply_submit(r);
    request_release(r);
    return t;
}

static void tunnel_free(struct http_tunnel *t)
{
    server_unref(t->server);
    free(t->protocol);
    buf_done(&t->in);
    buf_done(&t->out);
    free(t);
}

static void tunnel_watch(struct http_tunnel *t)
{
    if (t->request && t->request->conn && t->open)
        conn_watch(t->request->conn);
}

int tunnel_events(const struct http_tunnel *t)
{
    if (!t->open || t->dead)
        return 0;
    return (t->paused || t->eof || t->in.len ? 0 : UV_READABLE) | (t->out.len ? UV_WRITABLE : 0);
}

/* Nothing more is sent or received; the socket goes back to libmicrohttpd, on_close follows from the loop. */
static void tunnel_die(struct http_tunnel *t, const char *why)
{
    if (t->dead)
        return;
    t->dead = true;
    t->why = why;
    buf_done(&t->in);
    buf_done(&t->out);
    struct conn *c = t->request ? t->request->conn : NULL;
    if (c) {
        conn_deadline(c, DEADLINE_NONE);
        conn_watch(c);
        if (t->urh) {
            MHD_upgrade_action(steal(t->urh), MHD_UPGRADE_ACTION_CLOSE);
            server_schedule(t->server);
        } else {
            conn_cut(c);
        }
    }
    server_due(t->server, &t->due);
}

void tunnel_lost(struct http_tunnel *t, const char *why)
{
    if (t->request && t->request->stage == STAGE_DONE) { /* from request_finish: the connection leaves */
        struct http_request *r = t->request;
        if (t->open)
            t->server->stats.upgraded--;
        t->request = NULL;
        r->tunnel = NULL;
        http_request_unref(r);
        server_due(t->server, &t->due);
    }
    tunnel_die(t, why);
}

/* Send what is pending as far as the socket takes it. */
static void tunnel_flush(struct http_tunnel *t)
{
    if (!t->open || t->dead)
        return;
    struct http_request *r = t->request;
    bool sent = false;
    while (t->out.len) {
        ssize_t n = send(r->conn->fd, buf_data(&t->out), t->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            tunnel_die(t, "the client is gone");
            return;
        }
        buf_consume(&t->out, (size_t)n);
        r->bytes_out += (size_t)n;
        sent = true;
    }
    if (!t->out.len)
        conn_deadline(r->conn, DEADLINE_NONE);
    else if (sent || r->conn->deadline == DEADLINE_NONE)
        conn_deadline(r->conn, DEADLINE_WRITE);
    if (!t->out.len && (t->shut || t->closing) && !t->shut_done) {
        shutdown(r->conn->fd, SHUT_WR);
        t->shut_done = true;
    }
    if (t->shut_done && t->eof) {
        tunnel_die(t, NULL);
        return;
    }
    if (t->shut_done && t->closing) /* what still comes is thrown away: a close with bytes unread would be a reset */
        conn_deadline(r->conn, DEADLINE_LINGER);
    if (t->want_drain && t->out.len <= t->out.max / 2) {
        t->want_drain = false;
        t->drain_due = true;
        server_due(t->server, &t->due);
    }
    tunnel_watch(t);
}

/* Hand bytes to the owner; what it does not take is kept and reading rests. */
static void tunnel_deliver(struct http_tunnel *t, const uint8_t *data, size_t len)
{
    size_t taken = t->closing ? len : t->events.on_data(t, data, len, t->arg);
    if (t->dead)
        return;
    t->request->bytes_in += MIN(taken, len);
    if (taken < len) {
        t->paused = true;
        buf_put(&t->in, data + taken, len - taken);
    }
}

static void tunnel_eof(struct http_tunnel *t)
{
    if (t->eof_told || t->in.len || t->dead)
        return;
    t->eof_told = true;
    if (t->events.on_eof && !t->closing)
        t->events.on_eof(t, t->arg);
    else
        http_tunnel_close(t);
    if (!t->dead && t->shut_done)
        tunnel_die(t, NULL);
}

static void tunnel_read(struct http_tunnel *t)
{
    uint8_t *scratch = t->server->scratch;
    for (int i = 0; i < READ_ROUNDS && !t->paused && !t->dead && !t->eof; i++) {
        ssize_t n = recv(t->request->conn->fd, scratch, SCRATCH_BYTES, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            tunnel_die(t, "the client is gone");
            break;
        }
        if (n == 0) {
            t->eof = true;
            tunnel_eof(t);
            break;
        }
        tunnel_deliver(t, scratch, (size_t)n);
        if ((size_t)n < SCRATCH_BYTES)
            break;
    }
    if (!t->dead)
        tunnel_watch(t);
}

void tunnel_poll(struct http_tunnel *t, int status, int events)
{
    struct http_server *s = t->server;
    if (status < 0 && t->open && !t->dead) {
        t->request->conn->watching = 0; /* libuv has stopped the handle */
        tunnel_flush(t);
        if (!t->dead)
            tunnel_read(t);
        if (!t->dead && !t->paused)
            tunnel_die(t, "the client is gone");
    }
    if (status == 0 && (events & UV_WRITABLE))
        tunnel_flush(t);
    if (status == 0 && (events & UV_READABLE) && !t->dead)
        tunnel_read(t);
    server_pump(s);
}

/* What is owed to the owner, from the loop. */
static void tunnel_run(struct due *d)
{
    struct http_tunnel *t = container_of(d, struct http_tunnel, due);
    if (t->open && !t->open_told && !t->dead) {
        t->open_told = true;
        if (t->events.on_open && !t->closing)
            t->events.on_open(t, t->arg);
        if (!t->dead)
            tunnel_flush(t);
    }
    if (!t->dead && !t->paused && t->in.len) {
        _cleanup_buf_ struct buf held = t->in;
        t->in = (struct buf){0};
        tunnel_deliver(t, buf_data(&held), held.len);
    }
    if (!t->dead && t->eof)
        tunnel_eof(t);
    if (!t->dead && t->drain_due) {
        t->drain_due = false;
        if (t->events.on_drain && !t->closing)
            t->events.on_drain(t, t->arg);
    }
    if (!t->dead) {
        tunnel_watch(t);
        return;
    }
    if (t->request) /* on_close comes when the connection has been given back, from request_finish */
        return;
    t->events.on_close(t, t->why, t->arg);
    if (t->due.queued)
        server_undue(t->server, &t->due);
    tunnel_free(t);
}

static void on_upgraded(void *cls, struct MHD_Connection *mhd, void *context, const char *extra, size_t extra_len,
                        MHD_socket fd, struct MHD_UpgradeResponseHandle *urh)
{
    struct http_request *r = cls;
    struct http_tunnel *t = r->tunnel;
    struct conn *c = r->conn;
    int on = 1;
    (void)mhd, (void)context;
    if (!t || t->dead) {
        shutdown(fd, SHUT_RDWR);
        MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
        server_schedule(r->server);
        return;
    }
    t->urh = urh;
    t->open = true;
    r->server->stats.upgraded++;
    c->suspended = false; /* from here on it is libmicrohttpd's own affair */
    conn_deadline(c, DEADLINE_NONE);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* libmicrohttpd has switched it off */
    if (extra_len)
        buf_put(&t->in, extra, extra_len);
    server_due(t->server, &t->due);
}

struct MHD_Response *tunnel_response(struct http_request *r)
{
    struct MHD_Response *response = MHD_create_response_for_upgrade(on_upgraded, r);
    if (response)
        MHD_add_response_header(response, "Upgrade", r->tunnel->protocol);
    return response;
}

/* ---- calls of the owner ---- */

size_t http_tunnel_room(const struct http_tunnel *t)
{
    return t->dead || t->closing || t->shut ? 0 : t->out.max - t->out.len;
}

void http_tunnel_want_drain(struct http_tunnel *t)
{
    if (t->dead)
        return;
    t->want_drain = true;
    if (t->open && t->out.len <= t->out.max / 2) {
        t->want_drain = false;
        t->drain_due = true;
        server_due(t->server, &t->due);
    }
}

size_t http_tunnel_pending(const struct http_tunnel *t)
{
    return t->out.len;
}

size_t http_tunnel_write(struct http_tunnel *t, const void *data, size_t len)
{
    size_t taken = 0;
    if (t->dead || t->closing || t->shut)
        return 0;
    if (t->open && t->open_told && !t->out.len && len) { /* straight into the socket; the rest waits in the buffer */
        ssize_t n = send(t->request->conn->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            taken = (size_t)n;
            t->request->bytes_out += taken;
        }
    }
    size_t n = MIN(len - taken, t->out.max - t->out.len);
    if (n) {
        buf_put(&t->out, (const uint8_t *)data + taken, n);
        if (t->open && t->request->conn->deadline == DEADLINE_NONE)
            conn_deadline(t->request->conn, DEADLINE_WRITE);
        tunnel_watch(t);
    }
    taken += n;
    if (taken < len)
        t->want_drain = true;
    return taken;
}

void http_tunnel_pause(struct http_tunnel *t)
{
    t->paused = true;
    tunnel_watch(t);
}

void http_tunnel_resume(struct http_tunnel *t)
{
    if (!t->paused || t->dead)
        return;
    t->paused = false;
    tunnel_watch(t);
    if (t->in.len || t->eof)
        server_due(t->server, &t->due);
}

void http_tunnel_shutdown(struct http_tunnel *t)
{
    t->shut = true;
    tunnel_flush(t);
}

void http_tunnel_close(struct http_tunnel *t)
{
    if (t->dead)
        return;
    t->closing = true;
    t->paused = false; /* what still comes is thrown away, so that the end is seen */
    buf_done(&t->in);
    if (!t->open)
        return; /* once the head is sent: tunnel_run */
    tunnel_flush(t);
}

void http_tunnel_abort(struct http_tunnel *t)
{
    tunnel_die(t, NULL);
}

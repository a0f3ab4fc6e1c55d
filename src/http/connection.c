/* Connections: suspend and resume, the watch for a client's end, deadlines, and cutting. */
#include "http/http_internal.h"
#include "http/problem.h"

#include <errno.h>
#include <sys/socket.h>

/* The client sends nothing more. While it is asked for nothing that means that it has gone. */
static void conn_peer_closed(struct conn *c, bool broken)
{
    struct http_request *r = c->request;
    char scrap;
    if (!broken && !c->suspended) {
        if (r && (r->stage == STAGE_FULL || r->stage == STAGE_REPLYING || (r->raw && c->raw_out.len))) {
            c->half_closed = true; /* it may still read the answer */
            conn_watch(c);
            return;
        }
        if (recv(c->fd, &scrap, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
            return; /* libmicrohttpd has not read everything; this is asked again */
    }
    if (r && !r->raw)
        request_abort(r, HTTP_ABORT_CLIENT);
    conn_cut(c);
}

static void conn_poll(uv_poll_t *handle, int status, int events)
{
    struct conn *c = handle->data;
    struct http_server *s = c->server;
    struct http_request *r = c->request;
    if (r && r->tunnel) {
        tunnel_poll(r->tunnel, status, events);
        return;
    }
    if (status == 0 && (events & UV_WRITABLE) && c->raw_out.len)
        conn_raw_send(c);
    if (status < 0)
        c->watching = 0; /* libuv has stopped the handle */
    if (status < 0 || (events & UV_DISCONNECT))
        conn_peer_closed(c, status < 0);
    if (s->wanted)
        server_pump(s);
}

static void conn_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    struct http_server *s = c->server;
    buf_done(&c->raw_out);
    free(c);
    s->handles--;
    server_stop_step(s);
}

void conn_notify(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode code)
{
    struct http_server *s = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        struct conn *c = NEW(struct conn);
        c->server = s;
        c->mhd = mhd;
        c->fd = s->accepting.fd;
        c->refused = s->accepting.refused;
        c->address = s->accepting.address;
        memcpy(c->remote, s->accepting.remote, sizeof(c->remote));
        c->poll.data = c;
        if (uv_poll_init(s->loop, &c->poll, c->fd) < 0) {
            /* Without the watch the connection is of no use; libmicrohttpd closes it when it finds the end. */
            free(c);
            *context = NULL;
            shutdown(s->accepting.fd, SHUT_RDWR);
            return;
        }
        s->accepting.address = NULL;
        s->handles++;
        *context = c;
        TAILQ_INSERT_TAIL(&s->conns, c, link);
        s->stats.connections++;
        conn_deadline(c, DEADLINE_HEADER);
        conn_watch(c);
        if (!uv_is_active((uv_handle_t *)&s->sweep))
            uv_timer_start(&s->sweep, s->sweep.timer_cb, s->sweep_ms, s->sweep_ms);
    } else if (*context) {
        struct conn *c = *context;
        TAILQ_REMOVE(&s->conns, c, link);
        s->stats.connections--;
        if (c->address)
            address_release(s, c->address);
        c->mhd = NULL;
        uv_close((uv_handle_t *)&c->poll, conn_closed);
    }
}

/* Watch the socket for what this file (or the tunnel) waits for. */
void conn_watch(struct conn *c)
{
    int events =
        (!c->cut && (c->suspended || !c->half_closed) ? UV_DISCONNECT : 0) | (c->raw_out.len ? UV_WRITABLE : 0);
    if (c->request && c->request->tunnel)
        events = tunnel_events(c->request->tunnel);
    if (events == c->watching || uv_is_closing((uv_handle_t *)&c->poll))
        return;
    c->watching = events;
    if (events)
        uv_poll_start(&c->poll, events, conn_poll);
    else
        uv_poll_stop(&c->poll);
}

/* Only from inside of libmicrohttpd's callbacks. */
void conn_suspend(struct conn *c)
{
    if (c->suspended || c->cut)
        return;
    MHD_suspend_connection(c->mhd);
    c->suspended = true;
    conn_deadline(c, DEADLINE_NONE);
    conn_watch(c);
}

void conn_resume(struct conn *c)
{
    if (!c->suspended)
        return;
    c->suspended = false;
    conn_watch(c);
    MHD_resume_connection(c->mhd);
    server_schedule(c->server);
}

void conn_cut(struct conn *c)
{
    if (c->cut || !c->mhd)
        return;
    c->cut = true;
    buf_reset(&c->raw_out);
    conn_deadline(c, DEADLINE_NONE);
    shutdown(c->fd, SHUT_RDWR);
    conn_watch(c);
    conn_resume(c);
    server_schedule(c->server);
}

void conn_reset(struct conn *c)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    if (c->mhd && !c->cut)
        (void)!connect(c->fd, &none, sizeof(none)); /* dissolves a TCP connection with a reset; else the cut does */
    conn_cut(c);
}

/* ---- deadlines ---- */

void conn_deadline(struct conn *c, enum deadline deadline)
{
    const struct http_options *o = &c->server->options;
    uint64_t after[] = {
        [DEADLINE_HEADER] = o->header_ms,          [DEADLINE_IDLE] = o->idle_ms,
        [DEADLINE_BODY] = o->body_stall_ms,        [DEADLINE_WRITE] = o->write_stall_ms,
        [DEADLINE_DISCARD] = (uint64_t)DISCARD_MS, [DEADLINE_LINGER] = (uint64_t)LINGER_MS,
    };
    if (deadline == DEADLINE_IDLE && c->deadline != DEADLINE_IDLE)
        c->seen_bytes = socket_received(c->fd);
    c->deadline = deadline;
    c->deadline_ms = deadline == DEADLINE_NONE ? 0 : uv_now(c->server->loop) + after[deadline];
}

static void conn_expire(struct conn *c)
{
    struct http_server *s = c->server;
    struct http_request *r = c->request;
    enum deadline deadline = c->deadline;
    struct err e = {0};
    if (deadline == DEADLINE_DISCARD && r && r->reply_set && !r->streaming && !r->tunnel && r->stage == STAGE_BODY) {
        reply_raw(r);
        return;
    }
    if (deadline != DEADLINE_IDLE && deadline != DEADLINE_LINGER)
        s->stats.timeouts++;
    if (r && r->tunnel) {
        tunnel_lost(r->tunnel, deadline == DEADLINE_LINGER ? NULL : "the client does not take what is sent");
        return;
    }
    if (r && (deadline == DEADLINE_BODY || deadline == DEADLINE_WRITE))
        request_abort(r, HTTP_ABORT_TIMEOUT);
    if (!c->cut && (deadline == DEADLINE_HEADER || deadline == DEADLINE_BODY) && !(r && (r->raw || r->raw_stream))) {
        err_set(&e, ERR_TIMEOUT,
                deadline == DEADLINE_HEADER ? "the request's headers did not arrive in time"
                                            : "the request's body stalled");
        if (r && !r->status)
            r->status = 408;
        conn_raw_problem(c, 408, &e, r ? r->id : NULL);
    }
    conn_cut(c);
}

void conns_sweep(struct http_server *s)
{
    uint64_t now = uv_now(s->loop);
    struct conn *c, *next;
    for (c = TAILQ_FIRST(&s->conns); c && (next = TAILQ_NEXT(c, link), true); c = next) {
        /* A request that has begun to arrive on an idle connection is under the header deadline. */
        if (c->deadline == DEADLINE_IDLE && socket_received(c->fd) != c->seen_bytes)
            conn_deadline(c, DEADLINE_HEADER);
        if (c->deadline != DEADLINE_NONE && now >= c->deadline_ms)
            conn_expire(c);
    }
}

/* ---- output past libmicrohttpd ---- */

void conn_raw_send(struct conn *c)
{
    struct http_request *r = c->request;
    bool sent = false;
    while (c->raw_out.len) {
        ssize_t n = send(c->fd, buf_data(&c->raw_out), c->raw_out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            if (sent || c->deadline != DEADLINE_WRITE)
                conn_deadline(c, DEADLINE_WRITE);
            conn_watch(c);
            if (r)
                stream_drain_check(r);
            return;
        }
        if (n <= 0) {
            conn_cut(c);
            return;
        }
        buf_consume(&c->raw_out, (size_t)n);
        sent = true;
    }
    if (r && r->raw_stream && !r->raw) { /* more will come */
        conn_deadline(c, r->stage == STAGE_BODY && !c->suspended ? DEADLINE_BODY : DEADLINE_NONE);
        conn_watch(c);
        stream_drain_check(r);
        return;
    }
    /* The client sees the end of the answer; what it still sends is read and thrown away for a while. */
    shutdown(c->fd, SHUT_WR);
    conn_watch(c);
    conn_resume(c);
    conn_deadline(c, DEADLINE_LINGER);
}

/* A problem for a client whose request is not whole; what does not fit into the socket is lost. */
void conn_raw_problem(struct conn *c, int status, const struct err *error, const char *request_id)
{
    _cleanup_buf_ struct buf out = BUF_MAX(8 * KIB);
    char made[ID_SIZE];
    if (!request_id) {
        id_new(ID_REQUEST, made);
        request_id = made;
    }
    json_t *problem = problem_json(error, status, request_id);
    _cleanup_free_ char *text = json_dumps(problem, JSON_COMPACT);
    json_decref(problem);
    raw_head(&out, status, "application/problem+json", (int64_t)strlen(text), request_id);
    buf_put_str(&out, "\r\n");
    buf_put_str(&out, text);
    if (send(c->fd, buf_data(&out), out.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* the connection is cut next */
}

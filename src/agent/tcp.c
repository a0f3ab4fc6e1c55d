/* CONNECT: a stream becomes a connection to a port of the guest's loopback, half-closes included. 127.0.0.1 first, ::1
 * when nothing listens there. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "agent/router.h"
#include "base/str.h"

struct tunnel {
    struct agent *agent;
    struct request *request;
    struct loop_source source;
    int fd;
    uint16_t port;
    bool v6, connected, input_done /* the peer's END_STREAM */, output_done;
    struct buf pending; /* to the socket */
    uint32_t asked;
};

static void tunnel_ready(struct loop_source *source, uint32_t events);

static void tunnel_ask(struct tunnel *t, uint32_t events)
{
    if (t->asked == events)
        return;
    t->asked = events;
    if (events == 0) {
        loop_remove(&t->source);
        return;
    }
    if (t->source.loop)
        loop_change(&t->source, events);
    else
        loop_add(&t->agent->loop, &t->source, t->fd, events, tunnel_ready);
}

static int tunnel_dial(struct tunnel *t)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(t->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(t->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const int one = 1;
    t->fd = socket(t->v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->fd < 0)
        return -errno;
    setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    int r =
        t->v6 ? connect(t->fd, (struct sockaddr *)&v6, sizeof(v6)) : connect(t->fd, (struct sockaddr *)&v4, sizeof(v4));
    if (r < 0 && errno != EINPROGRESS)
        return -errno;
    tunnel_ask(t, EPOLLOUT);
    return 0;
}

static void tunnel_hang_up(struct tunnel *t)
{
    tunnel_ask(t, 0);
    cleanup_close(&t->fd);
    t->fd = -1;
}

static void tunnel_refused(struct tunnel *t, int errnum)
{
    tunnel_hang_up(t);
    if (!t->v6) {
        t->v6 = true;
        errnum = -tunnel_dial(t);
        if (errnum == 0)
            return;
        tunnel_hang_up(t);
    }
    struct err e;
    err_errno(
        &e, errnum == ECONNREFUSED || errnum == EAFNOSUPPORT || errnum == EADDRNOTAVAIL ? ERR_UNAVAILABLE : ERR_SYSTEM,
        errnum, "connect to port %u of the sandbox", t->port);
    request_fail(t->request, &e);
}

/* Write what is pending; then pass on the half close. */
static void tunnel_push(struct tunnel *t)
{
    while (t->pending.len > 0 && t->fd >= 0) {
        ssize_t n = send(t->fd, buf_data(&t->pending), t->pending.len, MSG_NOSIGNAL);
        if (n > 0) {
            buf_consume(&t->pending, (size_t)n);
            request_consume(t->request, (size_t)n);
        } else if (errno == EAGAIN) {
            tunnel_ask(t, t->asked | EPOLLOUT);
            return;
        } else if (errno != EINTR) {
            tunnel_hang_up(t);
            request_reset(t->request);
            return;
        }
    }
    if (t->fd < 0)
        return;
    tunnel_ask(t, t->asked & ~(uint32_t)EPOLLOUT);
    if (t->input_done)
        shutdown(t->fd, SHUT_WR);
}

static void tunnel_ready(struct loop_source *source, uint32_t events)
{
    struct tunnel *t = container_of(source, struct tunnel, source);
    if (!t->connected) {
        int errnum = 0;
        socklen_t len = sizeof(errnum);
        getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
        if (errnum != 0) {
            tunnel_refused(t, errnum);
            return;
        }
        t->connected = true;
        tunnel_ask(t, EPOLLIN);
        request_stream(t->request, 200);
        tunnel_push(t);
        return;
    }
    if (events & (EPOLLOUT | EPOLLERR))
        tunnel_push(t);
    if (t->fd >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
        tunnel_ask(t, t->asked & ~(uint32_t)EPOLLIN); /* until what is there has been sent */
        request_wake(t->request);
    }
}

static size_t tunnel_available(struct request *r, size_t max, bool *ret_end)
{
    struct tunnel *t = r->ctx;
    int left = 0;
    char byte;
    if (t->fd < 0 || t->output_done) {
        *ret_end = true;
        return 0;
    }
    if (ioctl(t->fd, FIONREAD, &left) == 0 && left > 0)
        return MIN((size_t)left, max);
    ssize_t n = recv(t->fd, &byte, 1, MSG_PEEK);
    if (n > 0)
        return 1;
    if (n == 0) {
        *ret_end = t->output_done = true;
        return 0;
    }
    if (errno != EAGAIN && errno != EINTR) {
        tunnel_hang_up(t);
        request_reset(r);
        return 0;
    }
    tunnel_ask(t, t->asked | EPOLLIN);
    return 0;
}

static bool tunnel_emit(struct request *r, uint8_t *to, size_t len)
{
    const struct tunnel *t = r->ctx;
    for (size_t done = 0; done < len;) {
        ssize_t n = t->fd < 0 ? -1 : recv(t->fd, to + done, len - done, 0);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static void tunnel_body(struct request *r, const uint8_t *data, size_t len)
{
    struct tunnel *t = r->ctx;
    if (t->fd < 0)
        request_consume(r, len);
    else if (!buf_put(&t->pending, data, len))
        request_reset(r);
    else if (t->connected && !(t->asked & EPOLLOUT))
        tunnel_push(t);
}

static void tunnel_body_end(struct request *r)
{
    struct tunnel *t = r->ctx;
    t->input_done = true;
    if (t->connected)
        tunnel_push(t);
}

static void tunnel_closed(struct request *r)
{
    struct tunnel *t = r->ctx;
    tunnel_hang_up(t);
    buf_done(&t->pending);
    free(t);
}

static const struct request_ops tunnel_ops = {.body = tunnel_body,
                                              .body_end = tunnel_body_end,
                                              .available = tunnel_available,
                                              .emit = tunnel_emit,
                                              .closed = tunnel_closed};

void tcp_connect(struct request *r)
{
    static const char host[] = "127.0.0.1:";
    uint64_t port;
    if (!r->authority || !str_starts(r->authority, host) ||
        !str_to_u64(r->authority + sizeof(host) - 1, 1, UINT16_MAX, &port)) {
        request_failf(r, ERR_INVALID, "the goal of a connection is 127.0.0.1:<port>");
        return;
    }
    struct tunnel *t = NEW(struct tunnel);
    *t = (struct tunnel){.agent = request_agent(r),
                         .request = r,
                         .fd = -1,
                         .port = (uint16_t)port,
                         .pending = BUF_MAX(2 * LIMIT_BODY_WINDOW)};
    r->ops = &tunnel_ops;
    r->ctx = t;
    int errnum = -tunnel_dial(t);
    if (errnum != 0)
        tunnel_refused(t, errnum);
}

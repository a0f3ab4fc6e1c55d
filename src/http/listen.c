/* Listeners: TCP, Unix sockets and inherited ones; limits on connections. */
#include "http/http_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ACCEPT_AT_ONCE 64

void address_release(struct http_server *s, struct address *a)
{
    if (--a->count)
        return;
    HASH_DEL(s->addresses, a);
    free(a);
}

static struct address *address_take(struct http_server *s, const char *text)
{
    struct address *a;
    HASH_FIND_STR(s->addresses, text, a);
    if (!a) {
        a = NEW(struct address);
        snprintf(a->text, sizeof(a->text), "%s", text);
        HASH_ADD_STR(s->addresses, text, a);
    }
    a->count++;
    return a;
}

static void remote_text(const struct sockaddr_storage *from, char *ret_text, size_t size)
{
    if (from->ss_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)from)->sin_addr, ret_text, (socklen_t)size);
    } else if (from->ss_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)from)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(in6))
            inet_ntop(AF_INET, in6->s6_addr + 12, ret_text, (socklen_t)size);
        else
            inet_ntop(AF_INET6, in6, ret_text, (socklen_t)size);
    } else {
        snprintf(ret_text, size, "unix");
    }
}

/* A dead peer shows within minutes on a resting connection, and within write_stall_ms on one with output. */
static void socket_tune(const struct http_server *s, int fd)
{
    int on = 1, idle = 60, interval = 15, count = 4;
    unsigned user_ms = (unsigned)MIN(s->options.write_stall_ms, 3600000);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
}

static void client_add(struct http_server *s, int fd, const struct sockaddr_storage *from, socklen_t from_len)
{
    bool tcp = from->ss_family == AF_INET || from->ss_family == AF_INET6;
    s->stats.connections_accepted++;
    remote_text(from, s->accepting.remote, sizeof(s->accepting.remote));
    s->accepting.fd = fd;
    s->accepting.refused = s->stats.connections >= s->options.connections_max;
    s->accepting.address = NULL;
    if (tcp) {
        socket_tune(s, fd);
        s->accepting.address = address_take(s, s->accepting.remote);
        if (s->accepting.address->count > s->options.connections_per_address)
            s->accepting.refused = true;
    }
    if (s->accepting.refused)
        s->stats.connections_refused++;
    /* Beyond the connections that may get a 503 the socket is closed at once; so it is when this fails. */
    size_t most = s->options.connections_max + REFUSED_EXTRA;
    bool by_address =
        s->accepting.address && s->accepting.address->count > s->options.connections_per_address + REFUSED_EXTRA / 4;
    if (s->stats.connections >= most || by_address)
        close(fd);
    else
        MHD_add_connection(s->daemon, fd, (const struct sockaddr *)from, from_len);
    if (s->accepting.address) /* not handed on to a connection */
        address_release(s, s->accepting.address);
    s->accepting.address = NULL;
}

/* Out of descriptors: give up the reserve, refuse one client with it, so that the listener does not spin. */
static void accept_starved(struct http_server *s, int listen_fd)
{
    if (s->reserve_fd >= 0) {
        close(s->reserve_fd);
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            close(fd);
        s->stats.connections_refused++;
    }
    s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_connection(uv_poll_t *handle, int status, int events)
{
    struct listener *l = handle->data;
    struct http_server *s = l->server;
    (void)events;
    if (status < 0)
        return;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof(from);
        int fd = accept4(l->fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE)
                accept_starved(s, l->fd);
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            break;
        }
        if (len < sizeof(sa_family_t))
            from.ss_family = AF_UNIX;
        client_add(s, fd, &from, MAX(len, (socklen_t)sizeof(sa_family_t)));
    }
    server_pump(s);
}

static int listener_add(struct http_server *s, int fd, const char *unlink_path, struct err *e)
{
    if (listen(fd, 1024) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "listen for HTTP");
    struct listener *l = NEW(struct listener);
    l->server = s;
    l->fd = fd;
    l->poll.data = l;
    int r = uv_poll_init(s->loop, &l->poll, fd);
    if (r < 0) {
        free(l);
        return err_set(e, ERR_SYSTEM, "watch the listening socket: %s", uv_strerror(r));
    }
    s->handles++;
    l->unlink_path = unlink_path ? xstrdup(unlink_path) : NULL;
    SLIST_INSERT_HEAD(&s->listeners, l, link);
    uv_poll_start(&l->poll, UV_READABLE, on_connection);
    if (s->reserve_fd < 0)
        s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return 0;
}

int http_server_listen_tcp(struct http_server *server, const char *address, uint16_t port, uint16_t *ret_port,
                           struct err *e)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool four = inet_pton(AF_INET, address, &in.sin_addr) == 1;
    int on = 1;
    if (!four && inet_pton(AF_INET6, address, &in6.sin6_addr) != 1)
        return err_set(e, ERR_INVALID, "\"%s\" is no IP address to listen on", address);
    _cleanup_close_ int fd = socket(four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make a socket for %s", address);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const struct sockaddr *to = four ? (const struct sockaddr *)&in : (const struct sockaddr *)&in6;
    if (bind(fd, to, four ? sizeof(in) : sizeof(in6)) < 0)
        return err_errno(e, errno == EADDRINUSE ? ERR_CONFLICT : ERR_SYSTEM, errno, "listen on %s port %u", address,
                         port);
    struct sockaddr_in6 bound; /* sin6_port lies where sin_port does */
    socklen_t len = sizeof(bound);
    if (getsockname(fd, (struct sockaddr *)&bound, &len) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "ask for the port of %s", address);
    int r = listener_add(server, fd, NULL, e);
    if (r < 0)
        return r;
    steal_fd(&fd);
    if (ret_port)
        *ret_port = ntohs(bound.sin6_port);
    return 0;
}

/* Does a live process listen there? */
static bool unix_alive(const struct sockaddr_un *at)
{
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 && (connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0 || errno == EAGAIN);
}

int http_server_listen_unix(struct http_server *server, const char *path, mode_t mode, struct err *e)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat st;
    if (strlen(path) >= sizeof(at.sun_path))
        return err_set(e, ERR_INVALID, "the socket path \"%s\" is longer than %zu bytes", path,
                       sizeof(at.sun_path) - 1);
    strcpy(at.sun_path, path);
    if (lstat(at.sun_path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode) || unix_alive(&at))
            return err_set(e, ERR_CONFLICT, "\"%s\" is in use", at.sun_path);
        unlink(at.sun_path);
    }
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make a socket for %s", at.sun_path);
    /* Closed to others from its birth; opened to `mode` before anyone can be served. */
    mode_t old = umask(0177);
    int bound = bind(fd, (const struct sockaddr *)&at, sizeof(at));
    int bind_errno = errno;
    umask(old);
    if (bound < 0)
        return err_errno(e, ERR_SYSTEM, bind_errno, "bind the socket %s", at.sun_path);
    if (chmod(at.sun_path, mode) < 0) {
        int r = err_errno(e, ERR_SYSTEM, errno, "set the mode of the socket %s", at.sun_path);
        unlink(at.sun_path);
        return r;
    }
    int r = listener_add(server, fd, at.sun_path, e);
    if (r < 0) {
        unlink(at.sun_path);
        return r;
    }
    steal_fd(&fd);
    return 0;
}

int http_server_listen_fd(struct http_server *server, int fd, struct err *e)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "take over listening descriptor %d", fd);
    return listener_add(server, fd, NULL, e);
}

static void listener_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;
    struct http_server *s = l->server;
    free(l->unlink_path);
    free(l);
    s->handles--;
    server_stop_step(s);
}

void listeners_close(struct http_server *s)
{
    struct listener *l;
    while ((l = SLIST_FIRST(&s->listeners))) {
        SLIST_REMOVE_HEAD(&s->listeners, link);
        uv_poll_stop(&l->poll);
        if (l->unlink_path)
            unlink(l->unlink_path);
        close(l->fd);
        uv_close((uv_handle_t *)&l->poll, listener_closed);
    }
}

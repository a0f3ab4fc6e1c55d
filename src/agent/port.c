/* The session's descriptor (see port.h). */
#include "agent/port.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/str.h"

static void port_lost(struct port *port)
{
    session_drop(port->session);
    port->full = false;
    if (port->listen_fd >= 0 && port->fd >= 0) { /* a connection ends; the virtio port itself stays */
        loop_remove(&port->source);
        close(steal_fd(&port->fd));
        port->readable = false;
    }
}

static void doubt_fire(struct loop_timer *timer)
{
    struct port *port = container_of(timer, struct port, doubt);
    struct pollfd poller = {.fd = port->fd};
    if (poll(&poller, 1, 0) == 1 && (poller.revents & POLLHUP))
        port_lost(port);
}

/* The host's side is closed, says the kernel. It learns of closing and opening on another way than the data comes, so
 * a young session may be that of the next host already, whose opening is yet to be told: then look again later. */
static void port_closed(struct port *port)
{
    if (port->listen_fd >= 0 || clock_mono_ms() - port->born_ms >= LIMIT_SESSION_YOUNG_MS)
        port_lost(port);
    else if (!port->doubt.loop)
        loop_timer_set(port->loop, &port->doubt, LIMIT_SESSION_DOUBT_MS, doubt_fire);
}

static void port_feed(struct port *port, size_t len)
{
    uint64_t before = port->session->sessions;
    session_feed(port->session, port->in, len);
    if (port->session->sessions != before)
        port->born_ms = clock_mono_ms();
}

static void port_ready(struct loop_source *source, uint32_t events)
{
    struct port *port = container_of(source, struct port, source);
    if (events & EPOLLIN)
        port->readable = true;
    if (events & EPOLLOUT)
        port->full = false;
    if (events & EPOLLHUP)
        port_closed(port);
}

/* Ask for EPOLLOUT while the port is full, and only then: each buffer that the host takes would be an event. */
static void ask(struct port *port)
{
    if (port->fd < 0 || port->asking == port->full)
        return;
    port->asking = port->full;
    loop_change(&port->source, EPOLLIN | EPOLLET | (port->full ? EPOLLOUT : 0));
}

/* Take what has arrived, at most LIMIT_ROUND_BYTES. The port gives a page a read: several fill one buffer. */
static void port_read(struct port *port)
{
    size_t total = 0;
    while (port->readable && total < LIMIT_ROUND_BYTES) {
        size_t len = 0;
        while (len < LIMIT_IN_BUFFER) {
            ssize_t n = read(port->fd, port->in + len, LIMIT_IN_BUFFER - len);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0) {
                port->readable = false;
                if (n == 0 || errno != EAGAIN) {
                    port_feed(port, len);
                    port_closed(port);
                    return;
                }
                break;
            }
            len += (size_t)n;
        }
        port_feed(port, len);
        total += len;
    }
}

static void port_write(struct port *port)
{
    size_t total = 0, len;
    while (port->fd >= 0 && !port->full && total < LIMIT_ROUND_BYTES && session_pump(port->session)) {
        const uint8_t *data = session_out(port->session, &len);
        ssize_t n = write(port->fd, data, len);
        if (n > 0) {
            session_written(port->session, (size_t)n);
            total += (size_t)n;
        } else if (errno == EAGAIN) {
            port->full = true;
        } else if (errno != EINTR) {
            port_lost(port);
        }
    }
    if (total >= LIMIT_ROUND_BYTES)
        port->loop->again = true;
}

void port_run(struct port *port)
{
    if (port->fd >= 0 && port->readable)
        port_read(port);
    if (port->fd >= 0)
        port_write(port);
    ask(port);
    if (port->readable)
        port->loop->again = true;
}

static int port_begin(struct port *port, int fd, struct err *e)
{
    port->fd = fd;
    port->full = port->asking = false;
    port->readable = true;
    if (loop_add(port->loop, &port->source, fd, EPOLLIN | EPOLLET, port_ready) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "watch the port");
    return 0;
}

static void port_init(struct port *port, struct loop *loop, struct session *session)
{
    *port = (struct port){.loop = loop, .session = session, .fd = -1, .listen_fd = -1};
    port->in = xmalloc(LIMIT_IN_BUFFER);
}

/* The device node's name ("vport1p1") of the port `name`. */
static int find_virtio(const char *name, char ret_node[64], struct err *e)
{
    DIR *dir = opendir("/sys/class/virtio-ports");
    bool found = false;
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        char path[320], text[64];
        snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (n <= 0 || strlen(entry->d_name) >= 64)
            continue;
        text[n] = '\0';
        text[strcspn(text, "\n")] = '\0';
        found = str_eq(text, name);
        if (found)
            snprintf(ret_node, 64, "%.63s", entry->d_name);
    }
    if (dir)
        closedir(dir);
    return found ? 0 : err_set(e, ERR_NOT_FOUND, "no virtio port %s", name);
}

int port_open_virtio(struct port *port, struct loop *loop, struct session *session, const char *name, struct err *e)
{
    char node[64], path[80];
    int r = find_virtio(name, node, e);
    if (r < 0)
        return r;
    snprintf(path, sizeof(path), "/dev/%s", node);
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "open %s", path);
    port_init(port, loop, session);
    return port_begin(port, fd, e);
}

static void connection_ready(struct loop_source *source, uint32_t events ATTR_UNUSED)
{
    struct port *port = container_of(source, struct port, listener);
    int fd = accept4(port->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    port_lost(port);
    if (port_begin(port, fd, NULL) < 0)
        close(steal_fd(&port->fd));
}

int port_open_socket(struct port *port, struct loop *loop, struct session *session, const char *path, struct err *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return err_set(e, ERR_INVALID, "the path of the socket is too long");
    strcpy(address.sun_path, path);
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 8) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "listen on %s", path);
    port_init(port, loop, session);
    port->listen_fd = steal_fd(&fd);
    return loop_add(loop, &port->listener, port->listen_fd, EPOLLIN, connection_ready);
}

void port_close(struct port *port)
{
    loop_remove(&port->source);
    loop_remove(&port->listener);
    loop_timer_cancel(&port->doubt);
    cleanup_close(&port->fd);
    cleanup_close(&port->listen_fd);
    free(port->in);
    port->in = NULL;
}

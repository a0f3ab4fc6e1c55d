/* space port: local TCP ports that lead to ports in a sandbox. One thread a connection: each is an upgraded connection
 * of its own to the server, so that TLS and proxies work as for every other call. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"
#include "cli/port_spec.h"

#define CONNECTIONS_MAX 256
#define PORTS_MAX 16
#define PIECE_BYTES (64 * 1024)
#define STACK_BYTES (512 * 1024)

struct port_args {
    bool show_url;
};

struct forward {
    struct cli *cli;
    struct api *api;
    char sandbox[ID_SIZE];
    struct port_spec specs[PORTS_MAX];
    int listeners[PORTS_MAX];
    size_t count;
    atomic_int open;
};

struct relay {
    struct forward *f;
    int fd;
    uint16_t port;
};

/* One direction: what was read and not yet written. */
struct lane {
    char data[PIECE_BYTES];
    size_t start, len;
    bool ended, passed_on;
};

static ssize_t local_read(int fd, void *data, size_t len)
{
    ssize_t n = recv(fd, data, len, MSG_DONTWAIT);
    return n < 0 ? -errno : n;
}

static ssize_t local_write(int fd, const void *data, size_t len)
{
    ssize_t n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n < 0 ? -errno : n;
}

/* false when the connection is over. */
static bool pump_up(struct lane *l, int fd, struct upgraded *up)
{
    if (!l->ended && l->len == 0) {
        ssize_t n = local_read(fd, l->data, sizeof(l->data));
        l->start = 0;
        l->len = n > 0 ? (size_t)n : 0;
        l->ended = n == 0;
        if (n < 0 && n != -EAGAIN && n != -EINTR)
            return false;
    }
    while (l->len > 0) {
        ssize_t n = upgraded_write(up, l->data + l->start, l->len);
        if (n == -EAGAIN)
            return true;
        if (n < 0)
            return false;
        l->start += (size_t)n;
        l->len -= (size_t)n;
    }
    if (l->ended && !l->passed_on) {
        shutdown(up->fd, SHUT_WR);
        l->passed_on = true;
    }
    return true;
}

static bool pump_down(struct lane *l, int fd, struct upgraded *up)
{
    for (;;) {
        while (l->len > 0) {
            ssize_t n = local_write(fd, l->data + l->start, l->len);
            if (n == -EAGAIN)
                return true;
            if (n < 0)
                return false;
            l->start += (size_t)n;
            l->len -= (size_t)n;
        }
        if (l->ended) {
            if (!l->passed_on)
                shutdown(fd, SHUT_WR);
            l->passed_on = true;
            return true;
        }
        ssize_t n;
        l->start = 0;
        if (up->early.len > 0) {
            n = (ssize_t)MIN(up->early.len, sizeof(l->data));
            memcpy(l->data, buf_data(&up->early), (size_t)n);
            buf_consume(&up->early, (size_t)n);
        } else {
            n = upgraded_read(up, l->data, sizeof(l->data));
        }
        if (n == -EAGAIN)
            return true;
        l->len = n > 0 ? (size_t)n : 0;
        l->ended = n <= 0;
    }
}

static void relay_bytes(int fd, struct upgraded *up)
{
    struct lane *lanes = xcalloc(2, sizeof(*lanes));
    struct lane *out = &lanes[0], *in = &lanes[1];
    while (pump_up(out, fd, up) && pump_down(in, fd, up) && !(out->passed_on && in->passed_on)) {
        struct pollfd fds[] = {
            {.fd = fd, .events = (short)((out->len == 0 && !out->ended ? POLLIN : 0) | (in->len > 0 ? POLLOUT : 0))},
            {.fd = up->fd, .events = (short)((in->len == 0 && !in->ended ? POLLIN : 0) | (out->len > 0 ? POLLOUT : 0))},
        };
        /* A side with nothing left to wait for must not wake us by its hang-up again and again. */
        for (size_t i = 0; i < ARRAY_LEN(fds); i++)
            if (fds[i].events == 0)
                fds[i].fd = -1;
        if (poll(fds, ARRAY_LEN(fds), -1) < 0 && errno != EINTR)
            break;
    }
    free(lanes);
}

static void *relay_main(void *arg)
{
    struct relay *r = arg;
    struct err e = {0};
    struct upgraded up;
    _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s/tcp/%u", r->f->sandbox, r->port);
    if (api_upgrade(r->f->api, path, "Upgrade: tcp\r\nConnection: Upgrade\r\n", &up, NULL, 0, &e) < 0) {
        _cleanup_free_ char *text = escaped(e.text);
        say(r->f->cli, "space: port %u: %s", r->port, text);
    } else {
        relay_bytes(r->fd, &up);
        upgraded_close(&up);
    }
    close(r->fd);
    atomic_fetch_sub(&r->f->open, 1);
    free(r);
    return NULL;
}

static void take_connection(struct forward *f, size_t i)
{
    int fd = accept4(f->listeners[i], NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (atomic_load(&f->open) >= CONNECTIONS_MAX) {
        say(f->cli, "space: more than %d connections at once; one is refused", CONNECTIONS_MAX);
        close(fd);
        return;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct relay *r = NEW(struct relay);
    *r = (struct relay){.f = f, .fd = fd, .port = f->specs[i].guest};
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    atomic_fetch_add(&f->open, 1);
    if (pthread_create(&thread, &attributes, relay_main, r) != 0) {
        atomic_fetch_sub(&f->open, 1);
        close(fd);
        free(r);
    }
    pthread_attr_destroy(&attributes);
}

static int listen_on(struct port_spec *spec, int *ret_fd, struct err *e)
{
    struct sockaddr_storage address = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;
    socklen_t len = sizeof(*v4);
    if (inet_pton(AF_INET, spec->address, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(spec->local);
    } else if (inet_pton(AF_INET6, spec->address, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(spec->local);
        len = sizeof(*v6);
    } else {
        return err_set(e, ERR_INVALID, "\"%s\" is no IP address", spec->address);
    }
    _cleanup_close_ int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, 64) < 0)
        return err_errno(e, errno == EADDRINUSE ? ERR_CONFLICT : ERR_SYSTEM, errno, "listen on %s port %u",
                         spec->address, spec->local);
    getsockname(fd, (struct sockaddr *)&address, &len);
    spec->local = ntohs(address.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
    *ret_fd = steal_fd(&fd);
    return 0;
}

static void show_urls(const struct forward *f)
{
    for (size_t i = 0; i < f->count; i++)
        printf("%s/v1/sandboxes/%s/ports/%u/\n", api_url(f->api), f->sandbox, f->specs[i].guest);
}

static int serve(struct forward *f, struct err *e)
{
    struct pollfd fds[PORTS_MAX];
    json_t *list = json_array();
    for (size_t i = 0; i < f->count; i++) {
        int r = listen_on(&f->specs[i], &f->listeners[i], e);
        if (r < 0) {
            json_decref(list);
            return r;
        }
        fds[i] = (struct pollfd){.fd = f->listeners[i], .events = POLLIN};
        json_array_append_new(list, json_pack("{s:s, s:i, s:i}", "address", f->specs[i].address, "port",
                                              f->specs[i].local, "guest_port", f->specs[i].guest));
        say(f->cli, "space: %s port %u leads to port %u of %s", f->specs[i].address, f->specs[i].local,
            f->specs[i].guest, f->sandbox);
    }
    if (f->cli->json)
        print_json(list);
    json_decref(list);
    fflush(stdout);
    for (;;) {
        if (poll(fds, (nfds_t)f->count, -1) < 0 && errno != EINTR)
            return err_errno(e, ERR_SYSTEM, errno, "wait for connections");
        for (size_t i = 0; i < f->count; i++)
            if (fds[i].revents)
                take_connection(f, i);
    }
}

static int run(struct cli *cli, void *args, int argc, char **argv, struct err *e)
{
    const struct port_args *a = args;
    struct forward f = {.cli = cli};
    if (argc - 1 > PORTS_MAX)
        return err_set(e, ERR_INVALID, "more than %d ports", PORTS_MAX);
    for (int i = 1; i < argc; i++) {
        int r = port_spec_parse(argv[i], &f.specs[f.count++], e);
        if (r < 0)
            return r;
    }
    _cleanup_json_ json_t *sandbox = NULL;
    int r = cli_api(cli, &f.api, e);
    if (r >= 0)
        r = sandbox_resolve(f.api, argv[0], f.sandbox, e);
    if (r < 0)
        return r;
    _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s", f.sandbox);
    r = api_call(f.api, "GET", path, NULL, &sandbox, NULL, e);
    if (r < 0)
        return r;
    if (a->show_url) {
        show_urls(&f);
        return 0;
    }
    return serve(&f, e);
}

static const struct opt options[] = {
    {.name = "show-url",
     .kind = OPT_FLAG,
     .offset = offsetof(struct port_args, show_url),
     .help = "print the URL of the port for HTTP and WebSocket, and do not forward"},
};

const struct command command_port = {
    .name = "port",
    .summary = "reach ports of a sandbox from here",
    .synopsis = "SANDBOX [[ADDRESS:]LOCAL:]PORT…",
    .text = "Listens here, and passes each TCP connection on to the port in the sandbox, until it is interrupted. "
            "LOCAL is\n"
            "PORT unless given; 0 takes one that is free. ADDRESS is 127.0.0.1 unless given.",
    .examples = "space port demo 8080\nspace port demo 15432:5432 0:80\nspace port demo '[::1]:9000:80'\n"
                "curl -H \"Authorization: Bearer $SPACE_API_KEY\" \"$(space port --show-url demo 8080)\"",
    .options = options,
    .option_count = ARRAY_LEN(options),
    .args_size = sizeof(struct port_args),
    .min_args = 2,
    .max_args = -1,
    .complete = "sandbox",
    .run = run,
};

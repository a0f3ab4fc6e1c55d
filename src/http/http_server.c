/* The server: options, libmicrohttpd on the loop, owed callbacks, stopping (see http_internal.h for how it works). */
#include "http/http_internal.h"

/* Let libmicrohttpd run until nothing is left to do, or for PUMP_BUDGET_NS; then the loop gets a turn. */
void server_pump(struct http_server *s)
{
    bool more = true;
    s->wanted = true;
    if (s->pumping || !s->daemon)
        return;
    s->pumping = true;
    for (uint64_t start = uv_hrtime(); more && uv_hrtime() - start < PUMP_BUDGET_NS;) {
        MHD_UNSIGNED_LONG_LONG timeout;
        struct due *d;
        s->wanted = false;
        MHD_run(s->daemon);
        TAILQ_HEAD(, due) now = TAILQ_HEAD_INITIALIZER(now);
        TAILQ_CONCAT(&now, &s->due, link);
        while ((d = TAILQ_FIRST(&now))) {
            TAILQ_REMOVE(&now, d, link);
            d->queued = false;
            d->run(d);
        }
        more = s->wanted || !TAILQ_EMPTY(&s->due) || (MHD_get_timeout(s->daemon, &timeout) == MHD_YES && timeout == 0);
    }
    s->pumping = false;
    s->wanted = more;
    if (more)
        uv_idle_start(&s->idle, s->idle.idle_cb);
    else
        uv_idle_stop(&s->idle);
    server_stop_step(s);
}

void server_schedule(struct http_server *s)
{
    s->wanted = true;
    if (!s->pumping && !s->closing)
        uv_idle_start(&s->idle, s->idle.idle_cb);
}

void server_due(struct http_server *s, struct due *d)
{
    if (d->queued)
        return;
    d->queued = true;
    TAILQ_INSERT_TAIL(&s->due, d, link);
    server_schedule(s);
}

void server_undue(struct http_server *s, struct due *d)
{
    if (!d->queued)
        return;
    d->queued = false;
    TAILQ_REMOVE(&s->due, d, link);
}

/* A request that a handler still holds outlives the server's end. */
void server_unref(struct http_server *s)
{
    if (--s->refs == 0)
        free(s);
}

static void on_epoll(uv_poll_t *handle, int status, int events)
{
    (void)status, (void)events;
    server_pump(handle->data);
}

static void on_prepare(uv_prepare_t *handle)
{
    struct http_server *s = handle->data;
    if (s->wanted)
        server_pump(s);
}

static void on_check(uv_check_t *handle)
{
    struct http_server *s = handle->data;
    if (s->wanted)
        server_pump(s);
}

static void on_idle(uv_idle_t *handle)
{
    (void)handle; /* it only keeps the loop from sleeping; prepare does the work */
}

static void on_sweep(uv_timer_t *timer)
{
    struct http_server *s = timer->data;
    conns_sweep(s);
    if (TAILQ_EMPTY(&s->conns) && !s->stopping)
        uv_timer_stop(timer);
    if (s->wanted)
        server_pump(s);
    server_stop_step(s);
}

static void options_default(struct http_options *o)
{
    const struct http_options d = {.header_max = 32 * KIB,
                                   .json_max = 1 * MIB,
                                   .output_max = 256 * KIB,
                                   .connections_max = 1024,
                                   .connections_per_address = 256,
                                   .idle_ms = 60000,
                                   .header_ms = 10000,
                                   .body_stall_ms = 30000,
                                   .write_stall_ms = 60000};
    o->header_max = o->header_max ? MIN(o->header_max, POOL_BYTES / 2) : d.header_max;
    o->json_max = o->json_max ? o->json_max : d.json_max;
    o->output_max = o->output_max ? MAX(o->output_max, 4 * KIB) : d.output_max;
    o->connections_max = o->connections_max ? o->connections_max : d.connections_max;
    o->connections_per_address = o->connections_per_address ? o->connections_per_address : d.connections_per_address;
    o->idle_ms = o->idle_ms ? o->idle_ms : d.idle_ms;
    o->header_ms = o->header_ms ? o->header_ms : d.header_ms;
    o->body_stall_ms = o->body_stall_ms ? o->body_stall_ms : d.body_stall_ms;
    o->write_stall_ms = o->write_stall_ms ? o->write_stall_ms : d.write_stall_ms;
}

/* Leaves the URI as it is: it is decoded by the router and the query parser. */
static size_t unescape_nothing(void *cls, struct MHD_Connection *mhd, char *text)
{
    (void)cls, (void)mhd;
    return strlen(text);
}

static struct MHD_Daemon *daemon_start(struct http_server *s)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE | MHD_USE_NO_LISTEN_SOCKET;
    return MHD_start_daemon(flags, 0, NULL, NULL, dispatch_access, s, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)(s->options.connections_max + REFUSED_EXTRA), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)(16 * KIB),
                            MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_NOTIFY_CONNECTION, conn_notify, s,
                            MHD_OPTION_NOTIFY_COMPLETED, dispatch_completed, s, MHD_OPTION_URI_LOG_CALLBACK,
                            dispatch_uri, s, MHD_OPTION_UNESCAPE_CALLBACK, unescape_nothing, s, MHD_OPTION_END);
}

static void handle_closed(uv_handle_t *handle)
{
    struct http_server *s = handle->data;
    s->handles--;
    server_stop_step(s);
}

static void handles_init(struct http_server *s, int epoll_fd)
{
    const struct http_options *o = &s->options;
    uint64_t least = MIN(MIN(o->idle_ms, o->header_ms), MIN(o->body_stall_ms, o->write_stall_ms));
    s->sweep_ms = least / 4 < 5 ? 5 : MIN(least / 4, SWEEP_MS_MAX);
    uv_poll_init(s->loop, &s->poll, epoll_fd);
    uv_prepare_init(s->loop, &s->prepare);
    uv_check_init(s->loop, &s->check);
    uv_idle_init(s->loop, &s->idle);
    uv_timer_init(s->loop, &s->sweep);
    s->poll.data = s->prepare.data = s->check.data = s->idle.data = s->sweep.data = s;
    s->idle.idle_cb = on_idle;
    s->sweep.timer_cb = on_sweep;
    s->handles = 5;
    uv_poll_start(&s->poll, UV_READABLE, on_epoll);
    uv_prepare_start(&s->prepare, on_prepare);
    uv_check_start(&s->check, on_check);
    /* The listeners and connections keep the loop alive, not the machinery. */
    uv_unref((uv_handle_t *)&s->poll);
    uv_unref((uv_handle_t *)&s->prepare);
    uv_unref((uv_handle_t *)&s->check);
}

int http_server_new(uv_loop_t *loop, const struct http_options *options, struct http_server **ret_server, struct err *e)
{
    struct http_server *s = NEW(struct http_server);
    s->loop = loop;
    s->options = *options;
    s->refs = 1;
    s->reserve_fd = -1;
    TAILQ_INIT(&s->due);
    TAILQ_INIT(&s->conns);
    SLIST_INIT(&s->listeners);
    options_default(&s->options);
    int r = router_new(options->routes, options->route_count, &s->router, e);
    if (r < 0) {
        free(s);
        return r;
    }
    s->daemon = daemon_start(s);
    const union MHD_DaemonInfo *info = s->daemon ? MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info || info->epoll_fd < 0) {
        if (s->daemon)
            MHD_stop_daemon(s->daemon);
        router_free(s->router);
        free(s);
        return err_set(e, ERR_SYSTEM, "the HTTP server could not be started");
    }
    s->scratch = xmalloc(SCRATCH_BYTES);
    handles_init(s, info->epoll_fd);
    *ret_server = s;
    return 0;
}

void http_server_stats(const struct http_server *server, struct http_stats *ret_stats)
{
    *ret_stats = server->stats;
}

/* ---- stopping ---- */

static void conn_stop(struct conn *c, bool cut)
{
    struct http_request *r = c->request;
    if (!r && c->deadline != DEADLINE_LINGER) {
        conn_cut(c);
    } else if (cut) {
        if (r && r->tunnel) {
            tunnel_lost(r->tunnel, "the server is stopping");
            return;
        }
        if (r)
            request_abort(r, HTTP_ABORT_SHUTDOWN);
        conn_cut(c);
    }
}

void http_server_stop(struct http_server *server, uint64_t grace_ms, void (*on_stopped)(void *arg), void *arg)
{
    struct http_server *s = server;
    struct conn *c;
    if (s->stopping)
        return;
    s->stopping = true;
    s->on_stopped = on_stopped;
    s->stopped_arg = arg;
    s->stop_deadline_ms = uv_now(s->loop) + grace_ms;
    listeners_close(s);
    TAILQ_FOREACH(c, &s->conns, link)
    conn_stop(c, false);
    s->sweep_ms = MIN(s->sweep_ms, 20);
    uv_timer_start(&s->sweep, on_sweep, 0, s->sweep_ms);
    server_schedule(s);
}

/* One step of stopping, wherever something that it waits for may have happened. Never inside of libmicrohttpd. */
void server_stop_step(struct http_server *s)
{
    struct conn *c;
    if (!s->stopping || s->pumping)
        return;
    if (!s->closing) {
        if (!s->stop_cut && uv_now(s->loop) >= s->stop_deadline_ms) {
            s->stop_cut = true;
            TAILQ_FOREACH(c, &s->conns, link)
            conn_stop(c, true);
            server_schedule(s);
        }
        if (!TAILQ_EMPTY(&s->conns) || !TAILQ_EMPTY(&s->due) || s->wanted)
            return;
        s->closing = true;
        uv_close((uv_handle_t *)&s->poll, handle_closed);
        uv_close((uv_handle_t *)&s->prepare, handle_closed);
        uv_close((uv_handle_t *)&s->check, handle_closed);
        uv_close((uv_handle_t *)&s->idle, handle_closed);
        uv_close((uv_handle_t *)&s->sweep, handle_closed);
        MHD_stop_daemon(s->daemon);
        s->daemon = NULL;
    }
    if (s->handles)
        return;
    void (*on_stopped)(void *arg) = s->on_stopped;
    void *arg = s->stopped_arg;
    router_free(steal(s->router));
    free(steal(s->scratch));
    if (s->reserve_fd >= 0)
        close(s->reserve_fd);
    server_unref(s);
    if (on_stopped)
        on_stopped(arg);
}

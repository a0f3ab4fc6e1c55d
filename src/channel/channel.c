/* The channel on a libuv loop: moves bytes between the socket and the session, and its time.
 *
 * Reading: one read of up to 256 KiB a turn of the loop, into a buffer that all channels of the loop's thread share
 * (what is read is handed on before the callback returns). A guest that sends tiny frames gets smaller reads, so that
 * its turn takes no longer than a neighbour's.
 * Writing: whatever was asked for during a turn goes out in one writev before the loop sleeps (a prepare handle that
 * runs only when there is something to do), the rest when the socket can take more.
 * Closing: handles are closed first, owners are told from the last close callback, then everything is freed. */
#include "channel/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/id.h"
#include "channel/h2client.h"

#define READ_MAX (256u * 1024)
#define READ_SMALL (16u * 1024)
#define TINY_FRAME 128  /* DATA frames below this size on average make for small reads */
#define WRITES_A_TURN 8 /* then the others of the loop have their turn */
#define WRITE_PIECES 64

struct channel {
    uv_loop_t *loop;
    uv_poll_t poll;
    uv_timer_t timer;
    uv_prepare_t prepare;
    unsigned open_handles;
    int fd;
    int events;        /* that poll waits for */
    uint64_t timer_at; /* in session time; UINT64_MAX: not running */
    size_t read_size;
    struct h2client *session;
    const struct channel_callbacks *callbacks;
    void *arg;
    bool told_ready;
    bool closing;
    bool held;
    uint64_t held_since; /* loop time */
    uint64_t held_ms;    /* before that, in all */
};

/* Read into by whichever channel has its turn; channels live on one thread. */
static uint8_t read_buffer[READ_MAX];

static const struct channel_options defaults = {
    .resync_timeout_ms = 5000,
    .resync_repeat_ms = 1000,
    .heartbeat_ms = 5000,
    .heartbeat_timeout_ms = 10000,
    .stream_window = 512 * 1024,
    .held_max = 32 * 1024 * 1024,
    .body_max = 256 * 1024,
    .streams_max = AGENT_STREAMS_MAX,
};

void channel_options_defaults(struct channel_options *o)
{
    *o = defaults;
}

static struct channel_options options_complete(const struct channel_options *o)
{
    struct channel_options full = o ? *o : defaults;
#define DEFAULT(field) full.field = full.field ? full.field : defaults.field
    DEFAULT(resync_timeout_ms);
    DEFAULT(resync_repeat_ms);
    DEFAULT(heartbeat_ms);
    DEFAULT(heartbeat_timeout_ms);
    DEFAULT(stream_window);
    DEFAULT(held_max);
    DEFAULT(body_max);
    DEFAULT(streams_max);
#undef DEFAULT
    return full;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static uint64_t channel_now(void *arg)
{
    struct channel *c = arg;
    return (c->held ? c->held_since : uv_now(c->loop)) - c->held_ms;
}

static void on_timer(uv_timer_t *timer);

static void timer_arm(struct channel *c)
{
    uint64_t at = h2client_deadline(c->session);
    if (c->held || c->closing || at >= c->timer_at)
        return;
    uint64_t now = channel_now(c);
    uv_timer_start(&c->timer, on_timer, at > now ? at - now : 0, 0);
    c->timer_at = at;
}

void channel_hold(struct channel *c, bool hold)
{
    if (hold == c->held || c->closing)
        return;
    uv_update_time(c->loop);
    if (hold) {
        c->held_since = uv_now(c->loop);
        c->held = true;
        uv_timer_stop(&c->timer);
        c->timer_at = UINT64_MAX;
    } else {
        c->held_ms += uv_now(c->loop) - c->held_since;
        c->held = false;
        timer_arm(c);
    }
}

/* --- closing ------------------------------------------------------------------------------------------------------ */

static void on_handle_closed(uv_handle_t *handle)
{
    struct channel *c = handle->data;
    if (--c->open_handles > 0)
        return;
    close(c->fd);
    h2client_end(c->session);
    struct err why = c->session->error;
    h2client_free(c->session);
    const struct channel_callbacks *callbacks = c->callbacks;
    void *arg = c->arg;
    free(c);
    callbacks->on_closed(arg, &why);
}

static void channel_end(struct channel *c)
{
    if (c->closing)
        return;
    c->closing = true;
    uv_poll_stop(&c->poll);
    /* The guest learns of the end at once, not when the loop comes to it. */
    shutdown(c->fd, SHUT_RDWR);
    uv_close((uv_handle_t *)&c->poll, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
    uv_close((uv_handle_t *)&c->prepare, on_handle_closed);
}

void channel_close(struct channel *c)
{
    struct err e;
    err_set(&e, ERR_CANCELLED, "the connection to the agent was closed");
    h2client_fail(c->session, &e);
    channel_end(c);
}

/* --- socket ------------------------------------------------------------------------------------------------------- */

static void on_prepare(uv_prepare_t *prepare);
static void on_poll(uv_poll_t *poll, int status, int events);

static void channel_wake(void *arg)
{
    struct channel *c = arg;
    if (!c->closing)
        uv_prepare_start(&c->prepare, on_prepare);
}

static void channel_random(void *arg, void *data, size_t len)
{
    (void)arg;
    random_bytes(data, len);
}

static void poll_for(struct channel *c, int events)
{
    if (c->events == events)
        return;
    c->events = events;
    uv_poll_start(&c->poll, events, on_poll);
}

/* The socket failed: `errnum` 0 stands for its end. */
static void socket_lost(struct channel *c, int errnum)
{
    struct err e;
    if (errnum == 0 || errnum == ECONNRESET || errnum == EPIPE)
        err_set(&e, ERR_GONE, "the machine closed the port of the agent");
    else
        err_errno(&e, ERR_SYSTEM, errnum, "talking to the agent");
    h2client_fail(c->session, &e);
}

/* Write until nothing is left, the socket is full, or others should have their turn. */
static void channel_flush(struct channel *c)
{
    struct iovec iov[WRITE_PIECES];
    for (int turns = 0; turns < WRITES_A_TURN; turns++) {
        int n = h2client_output(c->session, iov, WRITE_PIECES);
        if (n == 0) {
            if (h2client_deliver(c->session))
                continue;
            poll_for(c, UV_READABLE);
            return;
        }
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)n};
        ssize_t written = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            if (errno != EAGAIN)
                socket_lost(c, errno);
            break;
        }
        h2client_sent(c->session, (size_t)written);
        h2client_deliver(c->session);
    }
    if (!c->session->over)
        poll_for(c, UV_READABLE | UV_WRITABLE);
}

static void channel_settle(struct channel *c)
{
    if (c->session->over)
        channel_end(c);
    else
        timer_arm(c);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct channel *c = prepare->data;
    uv_prepare_stop(prepare);
    if (!c->session->over && !(c->events & UV_WRITABLE))
        channel_flush(c);
    channel_settle(c);
}

static void on_timer(uv_timer_t *timer)
{
    struct channel *c = timer->data;
    c->timer_at = UINT64_MAX;
    h2client_time(c->session);
    channel_settle(c);
}

static void channel_read(struct channel *c)
{
    ssize_t n = read(c->fd, read_buffer, c->read_size);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        socket_lost(c, n == 0 ? 0 : errno);
        return;
    }
    uint64_t frames = c->session->watch.frames;
    if (h2client_input(c->session, read_buffer, (size_t)n) < 0)
        return;
    frames = c->session->watch.frames - frames;
    c->read_size = frames > 16 && (size_t)n / frames < TINY_FRAME ? READ_SMALL : READ_MAX;
    if (c->session->ready && !c->told_ready) {
        c->told_ready = true;
        if (c->callbacks->on_ready)
            c->callbacks->on_ready(c->arg);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct channel *c = poll->data;
    if (status < 0)
        socket_lost(c, -status);
    if (!c->session->over && (events & UV_READABLE))
        channel_read(c);
    if (!c->session->over && (events & UV_WRITABLE))
        channel_flush(c);
    channel_settle(c);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static const struct h2client_hooks hooks = {.now_ms = channel_now, .random = channel_random, .wake = channel_wake};

int channel_open_fd(uv_loop_t *loop, int fd, const struct channel_options *o, const struct channel_callbacks *callbacks,
                    void *arg, struct channel **ret_channel, struct err *e)
{
    struct channel_options full = options_complete(o);
    if (full.stream_window > INT32_MAX || full.body_max > INT32_MAX)
        return err_set(e, ERR_INVALID, "a window of the agent's channel is over 2 GiB");
    struct channel *c = NEW(struct channel);
    *c = (struct channel){.loop = loop,
                          .fd = fd,
                          .open_handles = 3,
                          .callbacks = callbacks,
                          .arg = arg,
                          .timer_at = UINT64_MAX,
                          .read_size = READ_MAX};
    int r = uv_poll_init(loop, &c->poll, fd);
    if (r < 0) {
        free(c);
        return err_errno(e, ERR_SYSTEM, -r, "watching the agent's socket");
    }
    uv_timer_init(loop, &c->timer);
    uv_prepare_init(loop, &c->prepare);
    c->poll.data = c->timer.data = c->prepare.data = c;
    uv_update_time(loop);
    c->session = h2client_new(&full, &hooks, c);
    poll_for(c, UV_READABLE);
    channel_wake(c);
    *ret_channel = c;
    return 0;
}

int channel_open_path(uv_loop_t *loop, const char *path, const struct channel_options *o,
                      const struct channel_callbacks *callbacks, void *arg, struct channel **ret_channel, struct err *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return err_set(e, ERR_INVALID, "the path of the agent's socket is too long");
    memcpy(address.sun_path, path, strlen(path));
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "making a socket for the agent");
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        int code = errno == ENOENT || errno == ECONNREFUSED ? ERR_NOT_FOUND
                   : errno == EAGAIN                        ? ERR_UNAVAILABLE
                                                            : ERR_SYSTEM;
        return err_errno(e, code, errno, "connecting to the agent");
    }
    int r = channel_open_fd(loop, fd, o, callbacks, arg, ret_channel, e);
    if (r == 0)
        steal_fd(&fd);
    return r;
}

/* --- the rest goes to the session --------------------------------------------------------------------------------- */

bool channel_ready(const struct channel *c)
{
    return c->session->ready && !c->session->over;
}

bool channel_closing(const struct channel *c)
{
    return c->session->over;
}

size_t channel_stream_count(const struct channel *c)
{
    return c->session->stream_count;
}

int channel_request(struct channel *c, const struct channel_request *r,
                    const struct channel_stream_callbacks *callbacks, void *arg, struct channel_stream **ret_stream,
                    struct err *e)
{
    return h2client_request(c->session, r, callbacks, arg, ret_stream, e);
}

void channel_stats(const struct channel *c, struct channel_stats *ret_stats)
{
    *ret_stats = c->session->stats;
}

/* The QMP client (see qmp.h for the theory of operation). */
#include "qmp/qmp.h"

#include <errno.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "qmp/qmp_parser.h"

#define DEFAULT_TIMEOUT_MS 10000

struct command {
    TAILQ_ENTRY(command) link;
    uint64_t id;
    char *text; /* NULL once sent */
    size_t len, sent;
    int fd;
    bool alone; /* carries a descriptor: nothing behind it leaves before its answer */
    uint64_t deadline_ms;
    qmp_answer_cb cb;
    void *arg;
};

struct qmp {
    uv_loop_t *loop;
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;
    bool ready, failed, closing;
    int handles; /* libuv handles still open */
    uint64_t next_id;
    uint32_t pending;
    struct qmp_parser parser;
    TAILQ_HEAD(, command) commands; /* in order; the front ones are sent */
    struct qmp_callbacks callbacks;
    void *arg;
};

static void command_free(struct command *c)
{
    free(c->text);
    free(c);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct qmp *q = handle->data;
    if (--q->handles > 0)
        return;
    close(q->fd);
    qmp_parser_done(&q->parser);
    free(q);
}

void qmp_free(struct qmp *q)
{
    if (!q || q->closing)
        return;
    q->closing = true;
    struct command *c;
    struct err e = {0};
    err_set(&e, ERR_CANCELLED, "the control connection to qemu was closed");
    while ((c = TAILQ_FIRST(&q->commands))) {
        TAILQ_REMOVE(&q->commands, c, link);
        if (c->cb)
            c->cb(c->arg, NULL, &e);
        command_free(c);
    }
    uv_close((uv_handle_t *)&q->poll, on_handle_closed);
    uv_close((uv_handle_t *)&q->timer, on_handle_closed);
}

/* Nothing more can come: every waiting command gets `e`, then the owner. */
static void qmp_fail(struct qmp *q, const struct err *e)
{
    if (q->failed || q->closing)
        return;
    q->failed = true;
    uv_poll_stop(&q->poll);
    uv_timer_stop(&q->timer);
    struct command *c;
    while (!q->closing && (c = TAILQ_FIRST(&q->commands))) {
        TAILQ_REMOVE(&q->commands, c, link);
        q->pending--;
        if (c->cb)
            c->cb(c->arg, NULL, e);
        command_free(c);
    }
    if (!q->closing && q->callbacks.on_close)
        q->callbacks.on_close(q->arg, e);
}

static void poll_update(struct qmp *q);

/* Write what may leave; true when something has to wait for the socket. */
static bool commands_send(struct qmp *q, struct err *e)
{
    struct command *c;
    TAILQ_FOREACH (c, &q->commands, link) {
        if (!c->text) {
            if (c->alone)
                return false;
            continue;
        }
        if (!q->ready && c->id != 1)
            return false;
        if (c->alone && c != TAILQ_FIRST(&q->commands))
            return false; /* alone: wait for the answers of those before */
        while (c->sent < c->len) {
            struct iovec iov = {.iov_base = c->text + c->sent, .iov_len = c->len - c->sent};
            union {
                struct cmsghdr header;
                char space[CMSG_SPACE(sizeof(int))];
            } control;
            struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
            if (c->fd >= 0 && c->sent == 0) {
                message.msg_control = control.space;
                message.msg_controllen = sizeof(control.space);
                struct cmsghdr *h = CMSG_FIRSTHDR(&message);
                h->cmsg_level = SOL_SOCKET;
                h->cmsg_type = SCM_RIGHTS;
                h->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(h), &c->fd, sizeof(int));
            }
            ssize_t n = sendmsg(q->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0 && errno == EAGAIN)
                return true;
            if (n < 0) {
                err_errno(e, ERR_PROTOCOL, errno, "send a command to qemu");
                return false;
            }
            c->sent += (size_t)n;
        }
        free(steal(c->text));
        if (c->alone)
            return false;
    }
    return false;
}

static void timer_update(struct qmp *q);

static bool on_message(void *arg, const struct qmp_message *m)
{
    struct qmp *q = arg;
    if (m->kind == QMP_GREETING)
        return true;
    if (m->kind == QMP_EVENT) {
        if (q->callbacks.on_event)
            q->callbacks.on_event(q->arg, m->name, m->body);
        return !q->closing && !q->failed;
    }
    struct command *c;
    TAILQ_FOREACH (c, &q->commands, link)
        if (c->id == m->id && !c->text)
            break;
    struct err e = {0};
    if (!c) {
        err_set(&e, ERR_PROTOCOL, "qemu answered a command that was not sent");
        qmp_fail(q, &e);
        return false;
    }
    TAILQ_REMOVE(&q->commands, c, link);
    q->pending--;
    if (m->kind == QMP_ERROR) {
        const char *text = json_string_value(json_object_get(m->body, "desc"));
        err_set(&e, ERR_PROTOCOL, "qemu: %.300s", text ? text : "error without a text");
    }
    if (c->cb)
        c->cb(c->arg, m->kind == QMP_ANSWER ? m->body : NULL, m->kind == QMP_ANSWER ? NULL : &e);
    command_free(c);
    return !q->closing && !q->failed;
}

static void socket_flush(struct qmp *q)
{
    struct err e = {0};
    if (q->failed || q->closing)
        return;
    commands_send(q, &e);
    if (e.code) {
        qmp_fail(q, &e);
        return;
    }
    poll_update(q);
    timer_update(q);
}

static void on_socket(uv_poll_t *handle, int status, int events)
{
    struct qmp *q = handle->data;
    struct err e = {0};
    if (status < 0) {
        err_set(&e, ERR_GONE, "qemu closed its control socket"); /* libuv's word for POLLERR is EBADF */
        qmp_fail(q, &e);
        return;
    }
    if (events & (UV_READABLE | UV_DISCONNECT)) {
        uint8_t chunk[16384];
        ssize_t n = recv(q->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
        if (n == 0)
            err_set(&e, ERR_GONE, "qemu closed its control socket");
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            err_errno(&e, ERR_GONE, errno, "read from qemu");
        else if (n > 0)
            qmp_parser_feed(&q->parser, chunk, (size_t)n, clock_mono_ms(), on_message, q, &e);
        if (q->closing)
            return;
        if (e.code) {
            qmp_fail(q, &e);
            return;
        }
    }
    socket_flush(q);
}

static void poll_update(struct qmp *q)
{
    bool unsent = false;
    struct command *c;
    TAILQ_FOREACH (c, &q->commands, link)
        unsent = unsent || (c->text && c->sent > 0);
    uv_poll_start(&q->poll, UV_READABLE | (unsent ? UV_WRITABLE : 0), on_socket);
}

static void on_timer(uv_timer_t *timer)
{
    struct qmp *q = timer->data;
    uint64_t now = clock_mono_ms();
    struct command *c;
    TAILQ_FOREACH (c, &q->commands, link) {
        if (c->deadline_ms <= now) {
            struct err e = {0};
            err_set(&e, ERR_TIMEOUT, "qemu did not answer a command in time");
            qmp_fail(q, &e); /* its state is unknown from here on */
            return;
        }
    }
    timer_update(q);
}

static void timer_update(struct qmp *q)
{
    uint64_t next = UINT64_MAX, now = clock_mono_ms();
    struct command *c;
    TAILQ_FOREACH (c, &q->commands, link)
        next = MIN(next, c->deadline_ms);
    if (next == UINT64_MAX)
        uv_timer_stop(&q->timer);
    else
        uv_timer_start(&q->timer, on_timer, next > now ? next - now : 1, 0);
}

static void command_queue(struct qmp *q, const char *command, json_t *arguments, int fd, uint64_t timeout_ms,
                          qmp_answer_cb cb, void *arg)
{
    struct command *c = NEW(struct command);
    c->id = ++q->next_id;
    c->fd = fd;
    c->alone = fd >= 0;
    c->deadline_ms = clock_mono_ms() + (timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS);
    c->cb = cb;
    c->arg = arg;
    json_t *root = json_pack("{s:s, s:I}", "execute", command, "id", (json_int_t)c->id);
    if (arguments)
        json_object_set_new(root, "arguments", arguments);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    c->len = strlen(text) + 1;
    c->text = xrealloc(text, c->len + 1);
    c->text[c->len - 1] = '\n';
    TAILQ_INSERT_TAIL(&q->commands, c, link);
    q->pending++;
}

void qmp_command(struct qmp *q, const char *command, json_t *arguments, int fd, uint64_t timeout_ms, qmp_answer_cb cb,
                 void *arg)
{
    struct err e = {0};
    if (q->failed || q->closing)
        err_set(&e, ERR_GONE, "the control connection to qemu is closed");
    else if (q->pending >= QMP_PENDING_MAX)
        err_set(&e, ERR_LIMIT, "%d commands to qemu are waiting", QMP_PENDING_MAX);
    if (e.code) {
        json_decref(arguments);
        if (cb)
            cb(arg, NULL, &e);
        return;
    }
    command_queue(q, command, arguments, fd, timeout_ms, cb, arg);
    socket_flush(q);
}

static void on_capabilities(void *arg, json_t *answer, const struct err *e)
{
    struct qmp *q = arg;
    (void)e;
    if (!answer)
        return; /* qmp_fail tells the owner, or the error is QEMU's refusal */
    q->ready = true;
    if (q->callbacks.on_ready)
        q->callbacks.on_ready(q->arg);
}

int qmp_open(uv_loop_t *loop, const char *path, const struct qmp_callbacks *callbacks, void *arg, struct qmp **ret_qmp,
             struct err *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return err_set(e, ERR_INVALID, "socket path of %zu bytes is too long", strlen(path));
    strcpy(address.sun_path, path);
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make a socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return err_errno(e, ERR_UNAVAILABLE, errno, "connect to the control socket of qemu");
    struct qmp *q = NEW(struct qmp);
    q->loop = loop;
    q->fd = steal_fd(&fd);
    q->callbacks = *callbacks;
    q->arg = arg;
    q->handles = 2;
    TAILQ_INIT(&q->commands);
    qmp_parser_init(&q->parser, QMP_LINE_MAX);
    uv_poll_init(loop, &q->poll, q->fd);
    uv_timer_init(loop, &q->timer);
    q->poll.data = q->timer.data = q;
    command_queue(q, "qmp_capabilities", NULL, -1, 0, on_capabilities, q);
    socket_flush(q);
    *ret_qmp = q;
    return 0;
}

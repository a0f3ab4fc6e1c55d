/* The test client (see agent_client.h). */
#include "agent_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"

static struct reply *reply_of(nghttp2_session *h2, int32_t id)
{
    return nghttp2_session_get_stream_user_data(h2, id);
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags ATTR_UNUSED, void *arg ATTR_UNUSED)
{
    struct reply *r = reply_of(h2, frame->hd.stream_id);
    if (!r)
        return 0;
    const char *n = (const char *)name;
    if (name_len == 7 && memcmp(n, ":status", 7) == 0)
        r->status = atoi((const char *)value);
    struct {
        const char *name;
        char *to;
    } wanted[] = {{AGENT_HEADER_ERROR, r->error},
                  {AGENT_HEADER_SIZE, r->size},
                  {AGENT_HEADER_MODE, r->mode},
                  {AGENT_HEADER_MTIME, r->mtime}};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (strlen(wanted[i].name) == name_len && memcmp(n, wanted[i].name, name_len) == 0)
            snprintf(wanted[i].to, 32, "%.*s", (int)value_len, value);
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags ATTR_UNUSED, int32_t id, const uint8_t *data, size_t len,
                   void *arg ATTR_UNUSED)
{
    struct reply *r = reply_of(h2, id);
    nghttp2_session_consume_connection(h2, len);
    if (r) {
        r->received += len;
        if (!r->discard)
            buf_put(&r->body, data, len);
        if (!r->hold)
            nghttp2_session_consume_stream(h2, id, len);
    }
    return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *arg ATTR_UNUSED)
{
    struct reply *r = frame->hd.stream_id > 0 ? reply_of(h2, frame->hd.stream_id) : NULL;
    if (r && (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        r->ended = true;
    return 0;
}

static int on_close(nghttp2_session *h2, int32_t id, uint32_t code, void *arg ATTR_UNUSED)
{
    struct reply *r = reply_of(h2, id);
    if (r) {
        r->closed = true;
        r->code = code;
    }
    return 0;
}

static ssize_t on_read(nghttp2_session *h2 ATTR_UNUSED, int32_t id ATTR_UNUSED, uint8_t *to, size_t len,
                       uint32_t *flags, nghttp2_data_source *source, void *arg ATTR_UNUSED)
{
    struct reply *r = source->ptr;
    size_t n = MIN(len, r->send_len);
    if (n == 0 && !r->send_end) {
        r->waiting = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    memcpy(to, r->send, n);
    r->send += n;
    r->send_len -= n;
    if (r->send_len == 0 && r->send_end)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

void client_connect(struct client *c)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, c->path);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint64_t until = clock_mono_ms() + CLIENT_DEADLINE_MS;
    while (connect(c->fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        assert_true(clock_mono_ms() < until);
        poll(NULL, 0, 2);
    }
}

void client_disconnect(struct client *c)
{
    struct reply *r;
    while ((r = LIST_FIRST(&c->replies))) {
        LIST_REMOVE(r, entry);
        r->entry.le_prev = NULL;
        r->closed = true;
    }
    nghttp2_session_del(c->h2);
    c->h2 = NULL;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

void client_write_raw(struct client *c, const void *data, size_t len)
{
    const uint8_t *p = data;
    while (len > 0) {
        ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);
        assert_true(n > 0);
        p += n;
        len -= (size_t)n;
    }
}

void client_read_raw(struct client *c, void *data, size_t len)
{
    uint8_t *p = data;
    while (len > 0) {
        struct pollfd poller = {.fd = c->fd, .events = POLLIN};
        assert_int_equal(poll(&poller, 1, CLIENT_DEADLINE_MS), 1);
        ssize_t n = read(c->fd, p, len);
        assert_true(n > 0);
        p += n;
        len -= (size_t)n;
    }
}

void client_prelude(struct client *c, uint8_t nonce, bool flush)
{
    static const uint8_t zeros[AGENT_RESYNC_FLUSH];
    uint8_t prelude[AGENT_PRELUDE_SIZE];
    memcpy(prelude, AGENT_PRELUDE_MAGIC, AGENT_MAGIC_SIZE);
    memset(prelude + AGENT_MAGIC_SIZE, nonce, AGENT_NONCE_SIZE);
    if (flush)
        client_write_raw(c, zeros, sizeof(zeros));
    client_write_raw(c, prelude, sizeof(prelude));
    uint8_t window[AGENT_PRELUDE_SIZE] = {0};
    for (size_t seen = 0;; seen++) { /* whatever the session before still sends is thrown away */
        assert_true(seen < AGENT_RESYNC_DISCARD_MAX);
        memmove(window, window + 1, sizeof(window) - 1);
        client_read_raw(c, window + sizeof(window) - 1, 1);
        if (memcmp(window, prelude, sizeof(window)) == 0)
            return;
    }
}

void client_http(struct client *c)
{
    nghttp2_session_callbacks *cb;
    nghttp2_option *option;
    nghttp2_session_callbacks_new(&cb);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_option_new(&option);
    nghttp2_option_set_no_auto_window_update(option, 1);
    assert_int_equal(nghttp2_session_client_new2(&c->h2, cb, c, option), 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, AGENT_STREAM_WINDOW},
                                         {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, AGENT_FRAME_MAX},
                                         {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}};
    nghttp2_submit_settings(c->h2, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    nghttp2_session_set_local_window_size(c->h2, NGHTTP2_FLAG_NONE, 0, AGENT_CONNECTION_WINDOW);
}

/* Move bytes once in both directions; wait for the agent at most `ms`. */
static void step(struct client *c, int ms)
{
    static uint8_t chunk[65536];
    const uint8_t *data;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(c->h2, &data)) > 0) {
        while (n > 0) { /* never block for writing while the agent waits for us to read */
            struct pollfd poller = {.fd = c->fd, .events = POLLIN | POLLOUT};
            assert_true(poll(&poller, 1, CLIENT_DEADLINE_MS) > 0);
            if (poller.revents & POLLIN) {
                ssize_t got = recv(c->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
                assert_true(got > 0);
                assert_int_equal(nghttp2_session_mem_recv(c->h2, chunk, (size_t)got), got);
            }
            if (poller.revents & POLLOUT) {
                ssize_t sent = send(c->fd, data, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
                assert_true(sent > 0 || errno == EAGAIN);
                data += MAX(sent, 0);
                n -= MAX(sent, 0);
            }
        }
    }
    assert_int_equal(n, 0);
    struct pollfd poller = {.fd = c->fd, .events = POLLIN};
    if (poll(&poller, 1, ms) != 1)
        return;
    ssize_t got = read(c->fd, chunk, sizeof(chunk));
    assert_true(got > 0);
    assert_int_equal(nghttp2_session_mem_recv(c->h2, chunk, (size_t)got), got);
}

/* A guest's agent that has served others before: without their execs. */
static void forget_execs(struct client *c)
{
    struct reply *list = client_callf(c, "GET", AGENT_PATH_EXECS);
    struct wire_reader reader, inner;
    struct wire_field f, g;
    char id[AGENT_EXEC_ID_MAX + 1];
    wire_reader_init(&reader, buf_data(&list->body), list->body.len);
    while (wire_next(&reader, &f)) {
        wire_field_nested(&f, &inner);
        while (wire_next(&inner, &g))
            if (g.tag == AGENT_TAG_STATE_ID && wire_field_text(&g, id, sizeof(id)))
                reply_free(client_callf(c, "DELETE", AGENT_PATH_EXECS "/%s", id));
    }
    reply_free(list);
}

void client_start(struct client *c)
{
    static int serial;
    const char *agent = getenv("SPACE_AGENT"), *other = getenv("SPACE_AGENT_SOCKET");
    *c = (struct client){.fd = -1};
    LIST_INIT(&c->replies);
    if (other) {
        snprintf(c->path, sizeof(c->path), "%s", other);
        client_connect(c);
        client_prelude(c, (uint8_t)(clock_mono_ns() >> 10), true);
        client_http(c);
        forget_execs(c);
        return;
    }
    assert_non_null(agent);
    snprintf(c->path, sizeof(c->path), "/tmp/space-agent-test-%d-%d", (int)getpid(), serial++);
    c->agent_pid = fork();
    assert_true(c->agent_pid >= 0);
    if (c->agent_pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDOUT_FILENO);
        execl(agent, agent, "--test-socket", c->path, (char *)NULL);
        _exit(127);
    }
    client_connect(c);
    client_prelude(c, 1, false);
    client_http(c);
}

void client_stop(struct client *c)
{
    int status;
    client_disconnect(c);
    if (c->agent_pid == 0)
        return;
    kill(c->agent_pid, SIGTERM);
    assert_int_equal(waitpid(c->agent_pid, &status, 0), c->agent_pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0); /* a sanitizer's finding is another status */
    unlink(c->path);
}

static struct reply *submit(struct client *c, const char *method, const char *path, bool with_body, struct reply *r)
{
    bool is_connect = strcmp(method, "CONNECT") == 0;
    nghttp2_nv nv[4];
    size_t count = 0;
#define NV(n, v) ((nghttp2_nv){(uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), strlen(v), 0})
    nv[count++] = NV(":method", method);
    if (is_connect) {
        nv[count++] = NV(":authority", path);
    } else {
        nv[count++] = NV(":scheme", "http");
        nv[count++] = NV(":path", path);
        nv[count++] = NV(":authority", "agent");
    }
    nghttp2_data_provider provider = {.source.ptr = r, .read_callback = on_read};
    r->id = nghttp2_submit_request(c->h2, NULL, nv, count, with_body ? &provider : NULL, r);
    assert_true(r->id > 0);
    LIST_INSERT_HEAD(&c->replies, r, entry);
    return r;
}

struct reply *client_open(struct client *c, const char *method, const char *path, const void *body, size_t len)
{
    struct reply *r = NEW(struct reply);
    r->send = body;
    r->send_len = len;
    r->send_end = true;
    return submit(c, method, path, body != NULL, r);
}

struct reply *client_open_stream(struct client *c, const char *method, const char *path)
{
    return submit(c, method, path, true, NEW(struct reply));
}

void client_send(struct client *c, struct reply *r, const void *data, size_t len, bool end)
{
    r->send = data;
    r->send_len = len;
    r->send_end = end;
    if (r->waiting) {
        r->waiting = false;
        nghttp2_session_resume_data(c->h2, r->id);
    }
    uint64_t until = clock_mono_ms() + CLIENT_DEADLINE_MS;
    while (r->send_len > 0 && !r->closed) {
        assert_true(clock_mono_ms() < until);
        step(c, 10);
    }
    step(c, 0);
}

void client_wait_closed(struct client *c, struct reply *r)
{
    uint64_t until = clock_mono_ms() + CLIENT_DEADLINE_MS;
    while (!r->closed) {
        assert_true(clock_mono_ms() < until);
        step(c, 100);
    }
}

void client_wait_status(struct client *c, struct reply *r)
{
    uint64_t until = clock_mono_ms() + CLIENT_DEADLINE_MS;
    while (!r->closed && r->status == 0) {
        assert_true(clock_mono_ms() < until);
        step(c, 100);
    }
}

void client_wait_body(struct client *c, struct reply *r, size_t len)
{
    uint64_t until = clock_mono_ms() + CLIENT_DEADLINE_MS;
    while (!r->closed && r->body.len < len) {
        assert_true(clock_mono_ms() < until);
        step(c, 100);
    }
}

void client_run_ms(struct client *c, int ms)
{
    for (uint64_t until = clock_mono_ms() + (uint64_t)ms; clock_mono_ms() < until;)
        step(c, 5);
}

void client_release(struct client *c, struct reply *r)
{
    r->hold = false;
    nghttp2_session_consume_stream(c->h2, r->id, r->body.len);
}

void client_cancel(struct client *c, struct reply *r)
{
    nghttp2_submit_rst_stream(c->h2, NGHTTP2_FLAG_NONE, r->id, NGHTTP2_CANCEL);
    client_wait_closed(c, r);
}

void reply_free(struct reply *r)
{
    assert_true(r->closed);
    if (r->entry.le_prev)
        LIST_REMOVE(r, entry);
    buf_done(&r->body);
    free(r);
}

struct reply *client_call(struct client *c, const char *method, const char *path, const void *body, size_t len)
{
    struct reply *r = client_open(c, method, path, body, len);
    client_wait_closed(c, r);
    return r;
}

struct reply *client_callf(struct client *c, const char *method, const char *format, ...)
{
    char path[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    return client_call(c, method, path, NULL, 0);
}

/* See http_fixture.h. */
#include "http_fixture.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

struct fixture fixture;

void event_post(enum event event)
{
    pthread_mutex_lock(&fixture.lock);
    fixture.events[event]++;
    pthread_cond_broadcast(&fixture.changed);
    pthread_mutex_unlock(&fixture.lock);
}

unsigned event_count(enum event event)
{
    pthread_mutex_lock(&fixture.lock);
    unsigned n = fixture.events[event];
    pthread_mutex_unlock(&fixture.lock);
    return n;
}

void event_wait(enum event event, unsigned count)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    pthread_mutex_lock(&fixture.lock);
    int rc = 0;
    while (fixture.events[event] < count && rc == 0)
        rc = pthread_cond_timedwait(&fixture.changed, &fixture.lock, &until);
    unsigned n = fixture.events[event];
    pthread_mutex_unlock(&fixture.lock);
    if (n < count)
        fail_msg("event %d came %u times, not %u", event, n, count);
}

void on_abort_event(struct http_request *r, enum http_abort why, void *arg)
{
    (void)r, (void)arg;
    fixture.last_abort = why;
    event_post(EVENT_ABORT);
}

static void on_log(void *arg, const struct http_log_entry *entry)
{
    (void)arg;
    pthread_mutex_lock(&fixture.lock);
    fixture.last_log = *entry;
    snprintf(fixture.log_id, sizeof(fixture.log_id), "%s", entry->request_id);
    snprintf(fixture.log_path, sizeof(fixture.log_path), "%s", entry->path);
    pthread_mutex_unlock(&fixture.lock);
    event_post(EVENT_LOG);
}

static void on_error(void *arg, const char *request_id, const struct err *error)
{
    (void)arg, (void)request_id;
    snprintf(fixture.last_error, sizeof(fixture.last_error), "%s", error->text);
    event_post(EVENT_ERROR);
}

static void on_async(uv_async_t *async)
{
    (void)async;
    pthread_mutex_lock(&fixture.lock);
    void (*job)(void *arg) = fixture.job;
    fixture.job = NULL;
    pthread_mutex_unlock(&fixture.lock);
    if (!job)
        return;
    job(fixture.job_arg);
    pthread_mutex_lock(&fixture.lock);
    fixture.job_done = true;
    pthread_cond_broadcast(&fixture.changed);
    pthread_mutex_unlock(&fixture.lock);
}

void fixture_call(void (*job)(void *arg), void *arg)
{
    pthread_mutex_lock(&fixture.lock);
    fixture.job = job;
    fixture.job_arg = arg;
    fixture.job_done = false;
    uv_async_send(&fixture.async);
    while (!fixture.job_done)
        pthread_cond_wait(&fixture.changed, &fixture.lock);
    pthread_mutex_unlock(&fixture.lock);
}

static void *thread_main(void *arg)
{
    (void)arg;
    uv_run(&fixture.loop, UV_RUN_DEFAULT);
    return NULL;
}

void fixture_start(const struct http_options *options)
{
    struct http_options o = *options;
    struct err e = {0};
    memset(&fixture, 0, sizeof(fixture));
    pthread_mutex_init(&fixture.lock, NULL);
    pthread_cond_init(&fixture.changed, NULL);
    if (!o.on_log)
        o.on_log = on_log;
    o.on_error = on_error;
    assert_int_equal(uv_loop_init(&fixture.loop), 0);
    uv_async_init(&fixture.loop, &fixture.async, on_async);
    snprintf(fixture.unix_path, sizeof(fixture.unix_path), "/tmp/space-http-test.%d.sock", getpid());
    if (http_server_new(&fixture.loop, &o, &fixture.server, &e) < 0 ||
        http_server_listen_tcp(fixture.server, "127.0.0.1", 0, &fixture.port, &e) < 0 ||
        http_server_listen_unix(fixture.server, fixture.unix_path, 0600, &e) < 0)
        fail_msg("%s", e.text);
    pthread_create(&fixture.thread, NULL, thread_main, NULL);
}

static void on_stopped(void *arg)
{
    (void)arg;
    fixture.stopped = true;
    uv_close((uv_handle_t *)&fixture.async, NULL);
}

static void job_stop(void *arg)
{
    http_server_stop(fixture.server, *(uint64_t *)arg, on_stopped, NULL);
}

void fixture_stop(uint64_t grace_ms)
{
    fixture_call(job_stop, &grace_ms);
    pthread_join(fixture.thread, NULL);
    assert_true(fixture.stopped);
    assert_int_equal(uv_loop_close(&fixture.loop), 0);
    assert_int_equal(access(fixture.unix_path, F_OK), -1);
}

/* ---- client ---- */

int client_connect(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(fixture.port)};
    struct timeval limit = {.tv_sec = 10};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

void client_send_bytes(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n <= 0)
            fail_msg("send: %s", strerror(errno));
        p += n;
        len -= (size_t)n;
    }
}

void client_send(int fd, const char *text)
{
    client_send_bytes(fd, text, strlen(text));
}

static bool read_byte(int fd, char *ret_byte)
{
    ssize_t n = recv(fd, ret_byte, 1, 0);
    if (n < 0 && errno == EAGAIN)
        fail_msg("no answer within 10 s");
    return n == 1;
}

static bool read_line(int fd, char *line, size_t size)
{
    size_t n = 0;
    while (n + 1 < size) {
        if (!read_byte(fd, line + n))
            return false;
        if (line[n] == '\n') {
            line[n > 0 && line[n - 1] == '\r' ? n - 1 : n] = '\0';
            return true;
        }
        n++;
    }
    fail_msg("a line is too long");
    return false;
}

static bool read_into(int fd, struct buf *out, size_t len)
{
    while (len) {
        uint8_t *to = buf_reserve(out, MIN(len, 65536));
        ssize_t n = recv(fd, to, MIN(len, 65536), 0);
        if (n < 0 && errno == EAGAIN)
            fail_msg("no body within 10 s");
        if (n <= 0)
            return false;
        buf_commit(out, (size_t)n);
        len -= (size_t)n;
    }
    return true;
}

static bool read_chunks(int fd, struct buf *out)
{
    char line[128];
    for (;;) {
        if (!read_line(fd, line, sizeof(line)))
            return false;
        size_t len = strtoul(line, NULL, 16);
        if (len && !read_into(fd, out, len))
            return false;
        if (!read_line(fd, line, sizeof(line)))
            return false;
        if (!len)
            return true;
    }
}

const char *response_header(const struct response *r, const char *name, char *ret_value, size_t size)
{
    size_t len = strlen(name);
    for (const char *p = r->head; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (strncasecmp(p, name, len) == 0 && p[len] == ':') {
            p += len + 1 + strspn(p + len + 1, " ");
            snprintf(ret_value, size, "%.*s", (int)strcspn(p, "\n"), p);
            return ret_value;
        }
    }
    return NULL;
}

void client_read(int fd, bool head, struct response *ret)
{
    char line[4096], value[128];
    size_t used = 0;
    memset(ret, 0, sizeof(*ret));
    do {
        ret->head[0] = '\0';
        used = 0;
        if (!read_line(fd, line, sizeof(line)))
            return;
        assert_int_equal(sscanf(line, "HTTP/1.1 %d", &ret->status), 1);
        while (read_line(fd, line, sizeof(line)) && line[0])
            used += (size_t)snprintf(ret->head + used, sizeof(ret->head) - used, "%s\n", line);
    } while (ret->status == 100);
    if (head || ret->status == 204 || ret->status == 304 || ret->status == 101)
        ret->whole = true;
    else if (response_header(ret, "Transfer-Encoding", value, sizeof(value)))
        ret->whole = read_chunks(fd, &ret->body);
    else if (response_header(ret, "Content-Length", value, sizeof(value)))
        ret->whole = read_into(fd, &ret->body, strtoul(value, NULL, 10));
    else
        ret->whole = !read_into(fd, &ret->body, SIZE_MAX);
}

void response_done(struct response *r)
{
    buf_done(&r->body);
}

void client_ask(const char *request, struct response *ret_response)
{
    int fd = client_connect();
    client_send(fd, request);
    client_read(fd, strncmp(request, "HEAD", 4) == 0, ret_response);
    close(fd);
}

void client_expect_end(int fd)
{
    char scrap[4096];
    ssize_t n;
    while ((n = recv(fd, scrap, sizeof(scrap), 0)) > 0)
        ;
    if (n < 0 && errno == EAGAIN)
        fail_msg("the server did not close within 10 s");
}

long rss_kib(void)
{
    long pages = 0, size = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    assert_int_equal(fscanf(f, "%ld %ld", &size, &pages), 2);
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

void assert_body(const struct response *r, const char *text)
{
    assert_int_equal(r->body.len, strlen(text));
    assert_memory_equal(buf_data(&r->body), text, strlen(text));
}

void assert_body_holds(struct response *r, const char *part)
{
    const char *body = buf_cstr(&r->body);
    if (!strstr(body, part))
        fail_msg("\"%s\" is not in: %s", part, body);
}

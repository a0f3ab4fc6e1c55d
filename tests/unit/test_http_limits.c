/* Limits of src/http: sizes, counts, slow clients, stopping. Deadlines are short here, the mechanism is the same. */
#include "base/clock.h"
#include "http_fixture.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

static struct http_request *held;

static void handle_hello(struct http_request *r, void *arg)
{
    (void)arg;
    http_reply_data(r, 200, "text/plain", "hello", 5);
}

static void handle_hang(struct http_request *r, void *arg)
{
    (void)arg;
    held = r;
    http_request_on_abort(r, on_abort_event, NULL);
    event_post(EVENT_HANDLER);
}

static void source_more(struct http_request *r, void *arg)
{
    static const char zeros[65536];
    (void)arg;
    while (http_stream_write(r, zeros, sizeof(zeros)) == sizeof(zeros))
        ;
}

static void handle_source(struct http_request *r, void *arg)
{
    http_request_on_abort(r, on_abort_event, NULL);
    http_stream_begin(r, 200, "application/octet-stream", -1, source_more, NULL);
    source_more(r, arg);
}

static size_t body_taken(struct http_request *r, const void *data, size_t len, void *arg)
{
    (void)r, (void)data, (void)arg;
    return len;
}

static void body_end(struct http_request *r, void *arg)
{
    (void)arg;
    http_reply_empty(r, 204);
}

static void handle_sink(struct http_request *r, void *arg)
{
    static const struct http_body_events events = {.on_data = body_taken, .on_end = body_end};
    (void)arg;
    http_request_on_abort(r, on_abort_event, NULL);
    http_request_read_body(r, &events, NULL);
    event_post(EVENT_HANDLER);
}

static const struct http_route routes[] = {
    {"GET", "/hello", handle_hello},   {"POST", "/json", handle_hello, HTTP_BODY_JSON}, {"GET", "/hang", handle_hang},
    {"GET", "/source", handle_source}, {"PUT", "/sink", handle_sink, HTTP_BODY_STREAM},
};

static void start(struct http_options o)
{
    o.routes = routes;
    o.route_count = ARRAY_LEN(routes);
    fixture_start(&o);
}

static void hello(int fd, int status)
{
    struct response r;
    client_send(fd, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    client_read(fd, false, &r);
    assert_int_equal(r.status, status);
    response_done(&r);
}

static void test_header_size(void **state)
{
    size_t sizes[] = {40000, 200000};
    (void)state;
    start((struct http_options){0});
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (size_t k = 0; k < 2; k++) {
            char *filler = xmalloc(sizes[i] + 1);
            memset(filler, 'a', sizes[i]);
            filler[sizes[i]] = '\0';
            char *text = xasprintf(
                k ? "GET /hello HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n" : "GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", filler);
            struct response r;
            int fd = client_connect();
            (void)!send(fd, text, strlen(text), MSG_NOSIGNAL); /* the server may close before all is sent */
            client_read(fd, false, &r);
            if (sizes[i] < 100000)
                assert_int_equal(r.status, 431);
            else
                assert_true(r.status == 431 || r.status == 414 || r.status == 0);
            close(fd);
            response_done(&r);
            free(text);
            free(filler);
        }
    }
    /* Just under the limit. */
    char *filler = xmalloc(32001), *text;
    memset(filler, 'a', 32000);
    filler[32000] = '\0';
    text = xasprintf("GET /hello HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", filler);
    struct response r;
    client_ask(text, &r);
    assert_int_equal(r.status, 200);
    response_done(&r);
    free(text);
    free(filler);
    fixture_stop(1000);
}

static void connections(struct http_options o, int most)
{
    int fds[32], fd;
    struct http_stats stats;
    start(o);
    for (int i = 0; i < most; i++) {
        fds[i] = client_connect();
        hello(fds[i], 200);
    }
    fd = client_connect();
    hello(fd, 503);
    client_expect_end(fd);
    close(fd);
    close(fds[0]);
    /* The place becomes free when the server has seen the end. */
    for (uint64_t until = clock_mono_ms() + 5000;;) {
        struct response r;
        client_ask("GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &r);
        int status = r.status;
        response_done(&r);
        if (status == 200)
            break;
        if (clock_mono_ms() > until)
            fail_msg("no place becomes free");
    }
    http_server_stats(fixture.server, &stats);
    assert_true(stats.connections_refused >= 1);
    for (int i = 1; i < most; i++)
        close(fds[i]);
    fixture_stop(1000);
}

static void test_connections_max(void **state)
{
    (void)state;
    connections((struct http_options){.connections_max = 20}, 20);
}

static void test_connections_per_address(void **state)
{
    (void)state;
    connections((struct http_options){.connections_per_address = 10}, 10);
}

static void test_requests_per_connection(void **state)
{
    (void)state;
    start((struct http_options){.requests_per_connection = 3});
    int fd = client_connect();
    for (int i = 0; i < 3; i++)
        hello(fd, 200);
    client_expect_end(fd);
    close(fd);
    fixture_stop(1000);
}

static void test_header_deadline(void **state)
{
    struct response r;
    (void)state;
    start((struct http_options){.header_ms = 200, .idle_ms = 60000});
    /* Nothing at all; half a line; a byte now and then; and half a request on a connection that was used. */
    int silent = client_connect(), half = client_connect(), used = client_connect(), drip = client_connect();
    client_send(half, "GET /hello HT");
    hello(used, 200);
    client_send(used, "GET /hello HTTP/1.1\r\nHo");
    uint64_t begin = clock_mono_ms();
    for (int i = 0; clock_mono_ms() - begin < 5000 && send(drip, "G", 1, MSG_NOSIGNAL) == 1; i++)
        usleep(10000);
    assert_true(clock_mono_ms() - begin < 5000);
    client_read(half, false, &r);
    assert_int_equal(r.status, 408);
    assert_body_holds(&r, "request_id");
    response_done(&r);
    client_expect_end(half);
    client_expect_end(silent);
    client_read(used, false, &r);
    assert_int_equal(r.status, 408);
    response_done(&r);
    close(silent), close(half), close(used), close(drip);
    fixture_stop(1000);
}

static void test_idle(void **state)
{
    (void)state;
    start((struct http_options){.idle_ms = 200});
    int idle = client_connect(), busy = client_connect();
    hello(idle, 200);
    client_send(busy, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n"); /* a resting request is not idle */
    event_wait(EVENT_HANDLER, 1);
    client_expect_end(idle);
    uint64_t until = clock_mono_ms() + 400;
    while (clock_mono_ms() < until)
        usleep(10000);
    assert_int_equal(event_count(EVENT_ABORT), 0);
    close(idle), close(busy);
    event_wait(EVENT_ABORT, 1);
    fixture_stop(1000);
}

static void test_body_stall(void **state)
{
    struct response r;
    (void)state;
    start((struct http_options){.body_stall_ms = 200});
    int fd = client_connect();
    client_send(fd, "PUT /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    client_read(fd, false, &r);
    assert_int_equal(r.status, 408);
    response_done(&r);
    event_wait(EVENT_ABORT, 1);
    assert_int_equal(fixture.last_abort, HTTP_ABORT_TIMEOUT);
    client_expect_end(fd);
    close(fd);
    fd = client_connect();
    client_send(fd, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
    client_read(fd, false, &r);
    assert_int_equal(r.status, 408);
    response_done(&r);
    close(fd);
    fixture_stop(1000);
}

static void test_write_stall(void **state)
{
    (void)state;
    start((struct http_options){.write_stall_ms = 300});
    int fd = client_connect();
    client_send(fd, "GET /source HTTP/1.1\r\nHost: x\r\n\r\n"); /* endless, and not read */
    event_wait(EVENT_ABORT, 1);
    assert_int_equal(fixture.last_abort, HTTP_ABORT_TIMEOUT);
    event_wait(EVENT_LOG, 1);
    assert_true(fixture.last_log.aborted);
    close(fd);
    fixture_stop(1000);
}

static void test_stop_waits(void **state)
{
    (void)state;
    start((struct http_options){0});
    int idle = client_connect(), busy = client_connect();
    hello(idle, 200);
    client_send(busy, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    event_wait(EVENT_HANDLER, 1);
    uint64_t begin = clock_mono_ms();
    fixture_stop(200);
    assert_true(clock_mono_ms() - begin >= 200);
    client_expect_end(idle);
    client_expect_end(busy);
    assert_int_equal(event_count(EVENT_ABORT), 1);
    assert_int_equal(fixture.last_abort, HTTP_ABORT_SHUTDOWN);
    close(idle), close(busy);
}

static void answer_held(void *arg)
{
    (void)arg;
    http_reply_data(held, 200, "text/plain", "done", 4);
}

static void job_stop_then_answer(void *arg)
{
    http_server_stop(fixture.server, 5000, arg, NULL);
    answer_held(NULL);
}

static void on_stopped(void *arg)
{
    (void)arg;
    fixture.stopped = true;
    uv_close((uv_handle_t *)&fixture.async, NULL);
}

static void test_stop_finishes_running(void **state)
{
    struct response r;
    char value[32];
    (void)state;
    start((struct http_options){0});
    int busy = client_connect();
    client_send(busy, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    event_wait(EVENT_HANDLER, 1);
    uint64_t begin = clock_mono_ms();
    fixture_call(job_stop_then_answer, on_stopped);
    client_read(busy, false, &r);
    assert_body(&r, "done");
    assert_string_equal(response_header(&r, "Connection", value, sizeof(value)), "close");
    response_done(&r);
    pthread_join(fixture.thread, NULL);
    assert_true(clock_mono_ms() - begin < 4000);
    assert_int_equal(event_count(EVENT_ABORT), 0);
    assert_int_equal(uv_loop_close(&fixture.loop), 0);
    close(busy);
}

static void test_descriptors_used_up(void **state)
{
    struct rlimit old, few;
    int fds[64], n = 0;
    (void)state;
    start((struct http_options){0});
    int first = client_connect();
    hello(first, 200);
    getrlimit(RLIMIT_NOFILE, &old);
    int top = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(top);
    few = (struct rlimit){.rlim_cur = (rlim_t)top + 2, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    while (n < 64 && (fds[n] = socket(AF_INET, SOCK_STREAM, 0)) >= 0)
        n++;
    hello(first, 200); /* served as before */
    assert_true(n > 0);
    close(fds[--n]);
    int late = client_connect();
    client_expect_end(late); /* refused, not left waiting */
    close(late);
    while (n)
        close(fds[--n]);
    setrlimit(RLIMIT_NOFILE, &old);
    hello(first, 200);
    int last = client_connect();
    hello(last, 200);
    close(last), close(first);
    fixture_stop(1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_size),
        cmocka_unit_test(test_connections_max),
        cmocka_unit_test(test_connections_per_address),
        cmocka_unit_test(test_requests_per_connection),
        cmocka_unit_test(test_header_deadline),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_body_stall),
        cmocka_unit_test(test_write_stall),
        cmocka_unit_test(test_stop_waits),
        cmocka_unit_test(test_stop_finishes_running),
        cmocka_unit_test(test_descriptors_used_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Requests and buffered answers of src/http over real sockets: routing, headers, limits, slow and vanishing clients. */
#include "base/clock.h"
#include "base/str.h"
#include "http_fixture.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct http_request *held; /* by the handlers that do not answer; touched on the loop's thread only */

static void handle_hello(struct http_request *r, void *arg)
{
    (void)arg;
    event_post(EVENT_HANDLER);
    http_reply_json(r, 200, json_pack("{s:s}", "hello", "world"));
}

static void timer_free(uv_handle_t *handle)
{
    free(handle);
}

static void on_later(uv_timer_t *timer)
{
    struct http_request *r = timer->data;
    http_reply_data(r, 200, "text/plain", "later", 5);
    uv_close((uv_handle_t *)timer, timer_free);
}

static void handle_later(struct http_request *r, void *arg)
{
    uv_timer_t *timer = xmalloc(sizeof(*timer));
    uint64_t ms = 10;
    (void)arg;
    http_query_u64(http_request_query(r), "ms", 0, 10000, &ms, NULL);
    uv_timer_init(http_request_loop(r), timer);
    timer->data = r;
    uv_timer_start(timer, on_later, ms, 0);
    event_post(EVENT_HANDLER);
}

static void handle_item(struct http_request *r, void *arg)
{
    const char *x = "";
    struct err e;
    (void)arg;
    if (http_query_get(http_request_query(r), "x", &x, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    http_reply_json(r, 200,
                    json_pack("{s:s?, s:s?, s:s, s:s}", "id", http_request_param(r, "id"), "rest",
                              http_request_tail_raw(r), "x", x, "path", http_request_path(r)));
}

static void handle_echo(struct http_request *r, void *arg)
{
    json_t *json = http_request_json(r);
    (void)arg;
    event_post(EVENT_HANDLER);
    http_reply_json(r, 200, json ? json_incref(json) : json_pack("{s:b}", "none", 1));
}

static void handle_fail(struct http_request *r, void *arg)
{
    struct err e;
    (void)arg;
    err_set(&e, ERR_SYSTEM, "open /var/lib/space/space.db: permission denied");
    http_reply_error(r, &e);
}

static void handle_limit(struct http_request *r, void *arg)
{
    struct err e;
    (void)arg;
    err_set(&e, ERR_LIMIT, "too many");
    http_reply_error(r, &e);
}

static void handle_hang(struct http_request *r, void *arg)
{
    (void)arg;
    http_request_on_abort(r, on_abort_event, NULL);
    event_post(EVENT_HANDLER);
}

static void handle_deaf(struct http_request *r, void *arg)
{
    (void)arg;
    held = r;
    event_post(EVENT_HANDLER);
}

static void handle_big(struct http_request *r, void *arg)
{
    size_t len = 3000000;
    char *data = xmalloc(len);
    (void)arg;
    memset(data, 'b', len);
    http_reply_data(r, 200, "application/octet-stream", data, len);
    free(data);
}

static void handle_headers(struct http_request *r, void *arg)
{
    (void)arg;
    assert_false(http_reply_header(r, "X-Bad", "a\r\nSet-Cookie: x"));
    assert_false(http_reply_header(r, "X Bad", "a"));
    assert_true(http_reply_header(r, "Location", "/v1/x"));
    http_reply_empty(r, 204);
}

static void handle_late_proceed(uv_timer_t *timer)
{
    http_request_proceed(timer->data);
    uv_close((uv_handle_t *)timer, timer_free);
}

/* "deny": refused; "later": allowed after 5 ms. */
static int authorize(struct http_request *r, void *arg, struct err *e)
{
    const char *key = http_request_header(r, "Authorization");
    (void)arg;
    if (key && str_eq(key, "deny"))
        return err_set(e, ERR_UNAUTHENTICATED, "no such key");
    if (key && str_eq(key, "later")) {
        uv_timer_t *timer = xmalloc(sizeof(*timer));
        uv_timer_init(http_request_loop(r), timer);
        timer->data = r;
        uv_timer_start(timer, handle_late_proceed, 5, 0);
        return HTTP_LATER;
    }
    return 0;
}

static bool on_host(void *arg, const char *host, const char *path, struct buf *ret_path)
{
    uint16_t port;
    char id[22];
    (void)arg;
    if (!http_host_port(host, "space.test", &port, id))
        return false;
    buf_printf(ret_path, "/items/%s/%s", id, path + 1);
    return true;
}

static const struct http_route routes[] = {
    {"GET", "/hello", handle_hello},
    {"GET", "/later", handle_later},
    {"GET", "/items/{id}/{rest...}", handle_item},
    {"POST", "/echo", handle_echo, HTTP_BODY_JSON},
    {"POST", "/echo-optional", handle_echo, HTTP_BODY_JSON_OPTIONAL, 100},
    {"GET", "/fail", handle_fail},
    {"GET", "/limit", handle_limit},
    {"GET", "/hang", handle_hang},
    {"GET", "/deaf", handle_deaf},
    {"GET", "/big", handle_big},
    {"GET", "/headers", handle_headers},
};

static struct http_options options(void)
{
    return (struct http_options){
        .routes = routes, .route_count = ARRAY_LEN(routes), .authorize = authorize, .on_host = on_host};
}

static int start(void **state)
{
    struct http_options o = options();
    (void)state;
    fixture_start(&o);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    fixture_stop(1000);
    return 0;
}

static void ask(const char *request, int status, const char *part)
{
    struct response r;
    client_ask(request, &r);
    if (r.status != status)
        fail_msg("%.60s: %d instead of %d: %s", request, r.status, status, buf_cstr(&r.body));
    assert_true(r.whole);
    if (part)
        assert_body_holds(&r, part);
    response_done(&r);
}

static void test_simple(void **state)
{
    char value[128];
    struct response r;
    (void)state;
    client_ask("GET /hello HTTP/1.1\r\nHost: x\r\nX-Request-Id: my-id_1.2\r\n\r\n", &r);
    assert_int_equal(r.status, 200);
    assert_body(&r, "{\"hello\":\"world\"}");
    assert_string_equal(response_header(&r, "X-Request-Id", value, sizeof(value)), "my-id_1.2");
    assert_string_equal(response_header(&r, "Content-Type", value, sizeof(value)), "application/json");
    response_done(&r);
    event_wait(EVENT_LOG, 1);
    assert_string_equal(fixture.log_id, "my-id_1.2");
    assert_string_equal(fixture.log_path, "/hello");
    assert_int_equal(fixture.last_log.status, 200);
    assert_int_equal(fixture.last_log.bytes_out, 17);
    assert_false(fixture.last_log.aborted);
    client_ask("GET /hello?token=secret HTTP/1.1\r\nHost: x\r\nX-Request-Id: bad id\r\n\r\n", &r);
    assert_int_equal(strlen(response_header(&r, "X-Request-Id", value, sizeof(value))), 21);
    assert_int_equal(value[0], 'r');
    response_done(&r);
    event_wait(EVENT_LOG, 2);
    assert_string_equal(fixture.log_path, "/hello");
}

static void test_routing(void **state)
{
    char value[128];
    struct response r;
    (void)state;
    ask("GET /items/a%20b/x/y%2Fz?x=1+2 HTTP/1.1\r\nHost: x\r\n\r\n", 200,
        "\"id\":\"a b\",\"rest\":\"x/y%2Fz\",\"x\":\"1 2\"");
    ask("GET http://x/items/a/b?x=q HTTP/1.1\r\nHost: x\r\n\r\n", 200, "\"x\":\"q\",\"path\":\"/items/a/b\"");
    ask("GET /x/y?z HTTP/1.1\r\nHost: 80-sabcdefghij234567abcd.space.test\r\n\r\n", 200,
        "\"id\":\"sabcdefghij234567abcd\",\"rest\":\"x/y\"");
    ask("GET /items/a/b?x=1&x=2 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "more than once");
    ask("GET /items/a/b?x=%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, "percent");
    ask("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, "\"type\":\"/problems/not_found\"");
    client_ask("POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", &r);
    assert_int_equal(r.status, 405);
    assert_string_equal(response_header(&r, "Allow", value, sizeof(value)), "GET, HEAD, OPTIONS");
    assert_string_equal(response_header(&r, "Content-Type", value, sizeof(value)), "application/problem+json");
    assert_non_null(response_header(&r, "X-Request-Id", value, sizeof(value)));
    response_done(&r);
    client_ask("OPTIONS /echo HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_int_equal(r.status, 204);
    assert_string_equal(response_header(&r, "Allow", value, sizeof(value)), "POST, OPTIONS");
    response_done(&r);
    ask("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 204, NULL);
    client_ask("HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(response_header(&r, "Content-Length", value, sizeof(value)), "17");
    response_done(&r);
    client_ask("GET /headers HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_int_equal(r.status, 204);
    assert_string_equal(response_header(&r, "Location", value, sizeof(value)), "/v1/x");
    response_done(&r);
}

static void test_bad_requests(void **state)
{
    (void)state;
    ask("GET /hello HTTP/1.1\r\n\r\n", 400, "Host");
    ask("GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "repeated");
    ask("GET hello HTTP/1.1\r\nHost: a\r\n\r\n", 400, "not a path");
    ask("GET /hel lo HTTP/1.1\r\nHost: a\r\n\r\n", 400, "space");
    ask("GET /hello?a b HTTP/1.1\r\nHost: a\r\n\r\n", 400, "space");
    ask("G(T /hello HTTP/1.1\r\nHost: a\r\n\r\n", 400, "method");
    ask("GET /hello HTTP/1.1\r\nHost: a\r\nX Y: 1\r\n\r\n", 400, "header name");
    ask("GET /hello HTTP/1.1\r\nHost: a\r\nX: a\x01z\r\n\r\n", 400, "control");
    ask("GET /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 400, "no body");
    ask("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, "repeated");
    ask("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        400, "together");
    ask("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 501,
        "chunked");
    ask("POST /echo HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400, "HTTP/1.0");
    struct response r; /* libmicrohttpd's own answers: no request id, but an answer and a closed connection */
    client_ask("GET /hello HTTP/9.9\r\nHost: a\r\n\r\n", &r);
    assert_int_equal(r.status, 505);
    response_done(&r);
    client_ask("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", &r);
    assert_int_equal(r.status, 400);
    response_done(&r);
    client_ask("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", &r);
    assert_int_equal(r.status, 400);
    response_done(&r);
    assert_int_equal(event_count(EVENT_HANDLER), 0);
}

static void test_garbage(void **state)
{
    (void)state;
    static const char *const garbage[] = {"\r\n\r\n\r\nfoo\r\n\r\n",
                                          "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\r\n\r\n",
                                          "GET\r\n\r\n",
                                          " \r\n\r\n",
                                          "GET /hello\r\n\r\n",
                                          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(garbage); i++) {
        int fd = client_connect();
        client_send(fd, garbage[i]);
        shutdown(fd, SHUT_WR);
        client_expect_end(fd);
        close(fd);
    }
    ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 200, NULL);
}

static void test_json(void **state)
{
    (void)state;
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{\"a\":[1]}", 200, "{\"a\":[1]}");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n5\r\n:[1]}\r\n0\r\n\r\n",
        200, "{\"a\":[1]}");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n{\"a\":[1]}", 200,
        "{\"a\":[1]}");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n{\"a\"", 400, "not valid JSON");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"a\":1,\"a\":2}", 400, "not valid JSON");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]", 400, "must be a JSON object");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 400, "is needed");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\n\r\n", 400, "is needed");
    ask("POST /echo-optional HTTP/1.1\r\nHost: x\r\n\r\n", 200, "none");
    ask("POST /echo-optional HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n", 413, "longer than 100");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n", 413, "longer than 1048576");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 413, NULL);
}

static void test_json_chunked_too_large(void **state)
{
    char *chunk = xmalloc(65536 + 1);
    int fd = client_connect();
    struct response r;
    (void)state;
    memset(chunk, ' ', 65536);
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 20; i++) { /* 1.25 MiB: the answer comes in the middle */
        client_send(fd, "10000\r\n");
        client_send_bytes(fd, chunk, 65536);
        client_send(fd, "\r\n");
    }
    client_read(fd, false, &r);
    assert_int_equal(r.status, 413);
    assert_true(r.whole);
    client_expect_end(fd);
    close(fd);
    response_done(&r);
    free(chunk);
    assert_int_equal(event_count(EVENT_HANDLER), 0);
}

static void test_authorize(void **state)
{
    char value[64];
    struct response r;
    (void)state;
    client_ask("GET /hello HTTP/1.1\r\nHost: x\r\nAuthorization: deny\r\n\r\n", &r);
    assert_int_equal(r.status, 401);
    assert_string_equal(response_header(&r, "WWW-Authenticate", value, sizeof(value)), "Bearer");
    response_done(&r);
    ask("GET /hello HTTP/1.1\r\nHost: x\r\nAuthorization: later\r\n\r\n", 200, "world");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: later\r\nContent-Length: 9\r\n\r\n{\"a\":[1]}", 200,
        "{\"a\":[1]}");
    ask("POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: deny\r\nContent-Length: 9\r\n\r\n{\"a\":[1]}", 401, NULL);
    assert_int_equal(event_count(EVENT_HANDLER), 3 - 1);
    /* Refused before a body is invited. */
    int fd = client_connect();
    client_send(
        fd,
        "POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: deny\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
    client_read(fd, false, &r);
    assert_int_equal(r.status, 401);
    response_done(&r);
    client_expect_end(fd);
    close(fd);
    /* A short refused body leaves the connection usable. */
    fd = client_connect();
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: deny\r\nContent-Length: 9\r\n\r\n{\"a\":[1]}"
                    "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    client_read(fd, false, &r);
    assert_int_equal(r.status, 401);
    response_done(&r);
    client_read(fd, false, &r);
    assert_int_equal(r.status, 200);
    response_done(&r);
    close(fd);
}

static void test_problem_hidden(void **state)
{
    char value[64];
    struct response r;
    (void)state;
    client_ask("GET /fail HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_int_equal(r.status, 500);
    assert_null(strstr(buf_cstr(&r.body), "/var"));
    response_done(&r);
    event_wait(EVENT_ERROR, 1);
    assert_string_equal(fixture.last_error, "open /var/lib/space/space.db: permission denied");
    client_ask("GET /limit HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_int_equal(r.status, 429);
    assert_non_null(response_header(&r, "Retry-After", value, sizeof(value)));
    response_done(&r);
}

static void test_keepalive_and_pipelining(void **state)
{
    int fd = client_connect();
    struct response r;
    (void)state;
    for (int i = 0; i < 50; i++) {
        client_send(fd,
                    i % 2 ? "GET /later?ms=1 HTTP/1.1\r\nHost: x\r\n\r\n" : "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        client_read(fd, false, &r);
        assert_int_equal(r.status, 200);
        response_done(&r);
    }
    /* Ten at once; the answers come in order, though the first ones are asynchronous. */
    client_send(
        fd, "GET /later?ms=20 HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
            "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n{\"n\":3}GET /later HTTP/1.1\r\nHost: x\r\n\r\n"
            "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    static const char *const expected[] = {"later", "{\"hello\":\"world\"}", "{\"n\":3}", "later",
                                           "{\"hello\":\"world\"}"};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        client_read(fd, false, &r);
        assert_body(&r, expected[i]);
        response_done(&r);
    }
    client_expect_end(fd);
    close(fd);
    client_ask("GET /hello HTTP/1.0\r\n\r\n", &r);
    assert_body(&r, expected[1]);
    response_done(&r);
}

static void test_slow_bytes(void **state)
{
    static const char text[] = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{\"a\":[1]}";
    int fd = client_connect();
    struct response r;
    (void)state;
    for (const char *p = text; *p; p++)
        client_send_bytes(fd, p, 1);
    client_read(fd, false, &r);
    assert_int_equal(r.status, 200);
    response_done(&r);
    close(fd);
}

static void test_latency(void **state)
{
    enum { ROUNDS = 500 };
    uint64_t best = UINT64_MAX, total = 0;
    int fd = client_connect();
    struct response r;
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = clock_mono_ns();
        client_send(fd, "GET /later?ms=0 HTTP/1.1\r\nHost: x\r\n\r\n");
        client_read(fd, false, &r);
        uint64_t ns = clock_mono_ns() - start;
        response_done(&r);
        best = MIN(best, ns);
        total += ns;
    }
    close(fd);
    print_message("tiny asynchronous request: best %.0f us, mean %.0f us\n", (double)best / 1e3,
                  (double)total / ROUNDS / 1e3);
    assert_true(total / ROUNDS < 20000000); /* no delayed timers or acknowledgements (40 ms) are waited for */
}

static void test_big_answer(void **state)
{
    struct response r;
    (void)state;
    client_ask("GET /big HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_int_equal(r.body.len, 3000000);
    assert_true(r.whole);
    response_done(&r);
    client_ask("HEAD /big HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    char value[32];
    assert_string_equal(response_header(&r, "Content-Length", value, sizeof(value)), "3000000");
    response_done(&r);
}

static void test_client_gone_while_suspended(void **state)
{
    int fd = client_connect();
    (void)state;
    client_send(fd, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    event_wait(EVENT_HANDLER, 1);
    close(fd);
    event_wait(EVENT_ABORT, 1);
    assert_int_equal(fixture.last_abort, HTTP_ABORT_CLIENT);
    event_wait(EVENT_LOG, 1);
    assert_true(fixture.last_log.aborted);
    /* By a reset, and with a pipelined request behind it that must not run. */
    fd = client_connect();
    client_send(fd, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    event_wait(EVENT_HANDLER, 2);
    struct linger now = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
    event_wait(EVENT_ABORT, 2);
    event_wait(EVENT_LOG, 2);
    assert_int_equal(event_count(EVENT_HANDLER), 2);
    assert_int_equal(event_count(EVENT_ABORT), 2);
}

static void job_abort_late(void *arg)
{
    (void)arg;
    http_request_on_abort(held, on_abort_event, NULL);
    held = NULL;
}

static void job_answer_held(void *arg)
{
    (void)arg;
    assert_true(http_request_over(held));
    http_reply_data(held, 200, "text/plain", "x", 1);
    held = NULL;
}

static void test_answer_after_client_gone(void **state)
{
    int fd = client_connect();
    (void)state;
    client_send(fd, "GET /deaf HTTP/1.1\r\nHost: x\r\n\r\n");
    event_wait(EVENT_HANDLER, 1);
    close(fd);
    event_wait(EVENT_LOG, 1);
    fixture_call(job_answer_held, NULL);
    fd = client_connect();
    client_send(fd, "GET /deaf HTTP/1.1\r\nHost: x\r\n\r\n");
    event_wait(EVENT_HANDLER, 2);
    close(fd);
    event_wait(EVENT_LOG, 2);
    assert_int_equal(event_count(EVENT_ABORT), 0);
    fixture_call(job_abort_late, NULL);
    event_wait(EVENT_ABORT, 1);
    ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 200, NULL);
}

static void test_unix_socket(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct response r;
    struct err e;
    (void)state;
    strcpy(at.sun_path, fixture.unix_path);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    client_send(fd, "GET /later?ms=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    client_read(fd, false, &r);
    assert_body(&r, "later");
    response_done(&r);
    client_send(fd, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    event_wait(EVENT_HANDLER, 2);
    close(fd);
    event_wait(EVENT_ABORT, 1);
    assert_int_equal(http_server_listen_unix(fixture.server, fixture.unix_path, 0600, &e), ERR_CONFLICT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(test_simple),
        TEST(test_routing),
        TEST(test_bad_requests),
        TEST(test_garbage),
        TEST(test_json),
        TEST(test_json_chunked_too_large),
        TEST(test_authorize),
        TEST(test_problem_hidden),
        TEST(test_keepalive_and_pipelining),
        TEST(test_slow_bytes),
        TEST(test_latency),
        TEST(test_big_answer),
        TEST(test_client_gone_while_suspended),
        TEST(test_answer_after_client_gone),
        TEST(test_unix_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Streams of src/http: answers and bodies that do not fit into memory, back-pressure, cuts, Server-Sent Events. */
#include "base/clock.h"
#include "base/str.h"
#include "http/sse.h"
#include "http_fixture.h"

#include <curl/curl.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* ---- /source?bytes=N[&known=1][&end=cut|short] ---- */

struct source {
    uint64_t left, at;
    bool cut;
};

static uint8_t pattern[65536 + 256];

static void source_more(struct http_request *r, void *arg)
{
    struct source *s = arg;
    event_post(EVENT_DRAIN);
    while (s->left) {
        size_t len = (size_t)MIN(s->left, 65536);
        size_t n = http_stream_write(r, pattern + s->at % 256, len);
        s->left -= n;
        s->at += n;
        if (n < len)
            return;
    }
    if (s->cut)
        http_stream_abort(r);
    else
        http_stream_end(r);
    free(s);
}

static void source_gone(struct http_request *r, enum http_abort why, void *arg)
{
    on_abort_event(r, why, NULL);
    free(arg);
}

static void handle_source(struct http_request *r, void *arg)
{
    struct source *s = NEW(struct source);
    const struct http_query *q = http_request_query(r);
    uint64_t known = 0, cut = 0, more = 0;
    (void)arg;
    http_query_u64(q, "bytes", 0, UINT64_MAX, &s->left, NULL);
    http_query_u64(q, "known", 0, 1, &known, NULL);
    http_query_u64(q, "cut", 0, 1, &cut, NULL);
    http_query_u64(q, "more", 0, 1000, &more, NULL); /* promise more than comes */
    s->cut = cut;
    http_request_on_abort(r, source_gone, s);
    http_stream_begin(r, 200, "application/octet-stream", known ? (int64_t)(s->left + more) : -1, source_more, s);
    source_more(r, s);
}

/* ---- /sink[?slow=1][&refuse=1][&early=1] ---- */

struct sink {
    uint64_t bytes, sum;
    bool slow;
    uint64_t early; /* answer after so many bytes */
    uv_timer_t *timer;
    struct http_request *request;
};

static void timer_free(uv_handle_t *handle)
{
    free(handle);
}

static void sink_free(struct sink *s)
{
    if (s->timer)
        uv_close((uv_handle_t *)s->timer, timer_free);
    free(s);
}

static void sink_resume(uv_timer_t *timer)
{
    struct sink *s = timer->data;
    http_request_resume_body(s->request);
}

static size_t sink_data(struct http_request *r, const void *data, size_t len, void *arg)
{
    struct sink *s = arg;
    const uint8_t *p = data;
    if (s->slow && len > 10000)
        len = 10000;
    for (size_t i = 0; i < len; i++)
        s->sum += p[i];
    s->bytes += len;
    if (s->early && s->bytes >= s->early) {
        struct err e;
        err_set(&e, ERR_NO_SPACE, "disk full");
        http_reply_error(r, &e);
        sink_free(s);
        return len;
    }
    if (s->slow) {
        http_request_pause_body(r);
        uv_timer_start(s->timer, sink_resume, 1, 0);
    }
    return len;
}

static void sink_end(struct http_request *r, void *arg)
{
    struct sink *s = arg;
    http_reply_json(r, 200, json_pack("{s:I, s:I}", "bytes", (json_int_t)s->bytes, "sum", (json_int_t)s->sum));
    sink_free(s);
}

static void sink_gone(struct http_request *r, enum http_abort why, void *arg)
{
    on_abort_event(r, why, NULL);
    sink_free(arg);
}

static void handle_sink(struct http_request *r, void *arg)
{
    static const struct http_body_events events = {.on_data = sink_data, .on_end = sink_end};
    const struct http_query *q = http_request_query(r);
    uint64_t slow = 0, refuse = 0;
    (void)arg;
    http_query_u64(q, "slow", 0, 1, &slow, NULL);
    http_query_u64(q, "refuse", 0, 1, &refuse, NULL);
    event_post(EVENT_HANDLER);
    if (refuse) {
        struct err e;
        err_set(&e, ERR_FORBIDDEN, "not there");
        http_reply_error(r, &e);
        return;
    }
    struct sink *s = NEW(struct sink);
    s->slow = slow;
    s->request = r;
    http_query_u64(q, "early", 0, UINT64_MAX, &s->early, NULL);
    s->timer = xmalloc(sizeof(*s->timer));
    uv_timer_init(http_request_loop(r), s->timer);
    s->timer->data = s;
    http_request_on_abort(r, sink_gone, s);
    http_request_read_body(r, &events, s);
}

/* ---- /mirror: the body comes back while it is being sent ---- */

static size_t mirror_data(struct http_request *r, const void *data, size_t len, void *arg)
{
    (void)arg;
    return http_stream_write(r, data, len);
}

static void mirror_end(struct http_request *r, void *arg)
{
    (void)arg;
    http_stream_end(r);
}

static void mirror_drain(struct http_request *r, void *arg)
{
    (void)arg;
    http_request_resume_body(r);
}

static void handle_mirror(struct http_request *r, void *arg)
{
    static const struct http_body_events events = {.on_data = mirror_data, .on_end = mirror_end};
    (void)arg;
    http_request_on_abort(r, on_abort_event, NULL);
    http_stream_begin(r, 200, "text/plain", -1, mirror_drain, NULL);
    http_request_read_body(r, &events, NULL);
}

/* ---- /events ---- */

struct counter {
    struct sse *sse;
    uv_timer_t timer;
    uint64_t at, end;
};

static void counter_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void counter_tick(uv_timer_t *timer)
{
    struct counter *c = timer->data;
    char id[32], text[64];
    if (c->at == c->end) {
        sse_end(c->sse);
        uv_close((uv_handle_t *)timer, counter_closed);
        return;
    }
    snprintf(id, sizeof(id), "%llu", (unsigned long long)++c->at);
    int len = snprintf(text, sizeof(text), "line %s\nsecond\r\nthird", id);
    assert_true(sse_send(c->sse, id, "count", text, (size_t)len));
    assert_false(sse_send(c->sse, "a\nb", NULL, "x", 1));
}

static void counter_gone(struct http_request *r, enum http_abort why, void *arg)
{
    struct counter *c = arg;
    on_abort_event(r, why, NULL);
    uv_close((uv_handle_t *)&c->timer, counter_closed);
}

static void handle_events(struct http_request *r, void *arg)
{
    struct counter *c = NEW(struct counter);
    const char *last = sse_last_id(r);
    uint64_t every = 1;
    (void)arg;
    c->end = 3;
    if (last)
        str_to_u64(last, 0, 100, &c->at);
    http_query_u64(http_request_query(r), "every", 1, 100000, &every, NULL);
    uv_timer_init(http_request_loop(r), &c->timer);
    c->timer.data = c;
    http_request_on_abort(r, counter_gone, c);
    c->sse = sse_begin(r, 50, NULL, NULL);
    uv_timer_start(&c->timer, counter_tick, every, every);
    event_post(EVENT_HANDLER);
}

/* ---- /base64?bytes=N ---- */

struct flood {
    uint64_t left, at;
};

static void flood_more(struct sse *sse, void *arg)
{
    struct flood *f = arg;
    char id[32];
    while (f->left) {
        size_t len = (size_t)MIN(f->left, 65536);
        snprintf(id, sizeof(id), "%llu", (unsigned long long)(f->at + len));
        if (!sse_send_base64(sse, id, "stdout", pattern + f->at % 256, len))
            return;
        f->left -= len;
        f->at += len;
    }
    sse_end(sse);
    free(f);
}

static void flood_gone(struct http_request *r, enum http_abort why, void *arg)
{
    on_abort_event(r, why, NULL);
    free(arg);
}

static void handle_base64(struct http_request *r, void *arg)
{
    struct flood *f = NEW(struct flood);
    (void)arg;
    http_query_u64(http_request_query(r), "bytes", 0, UINT64_MAX, &f->left, NULL);
    http_request_on_abort(r, flood_gone, f);
    flood_more(sse_begin(r, 0, flood_more, f), f);
}

static const struct http_route routes[] = {
    {"GET", "/source", handle_source},
    {"PUT", "/sink", handle_sink, HTTP_BODY_STREAM},
    {"PUT", "/small-sink", handle_sink, HTTP_BODY_STREAM, 1000},
    {"POST", "/mirror", handle_mirror, HTTP_BODY_STREAM},
    {"GET", "/events", handle_events},
    {"GET", "/base64", handle_base64},
};

static int start(void **state)
{
    struct http_options o = {.routes = routes, .route_count = ARRAY_LEN(routes)};
    (void)state;
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (uint8_t)i;
    fixture_start(&o);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    fixture_stop(1000);
    return 0;
}

/* ---- libcurl ---- */

struct transfer {
    uint64_t up_left, up_at, down_at;
    bool down_wrong;
    char answer[512];
    size_t answer_len;
    long status;
    long chunked_upload;
};

static size_t curl_up(char *to, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    size_t len = (size_t)MIN(MIN(size * count, t->up_left), 65536);
    memcpy(to, pattern + t->up_at % 256, len);
    t->up_at += len;
    t->up_left -= len;
    return len;
}

static size_t curl_down(char *data, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    size_t len = size * count;
    for (size_t done = 0; done < len;) {
        size_t n = MIN(len - done, (size_t)65536);
        if (memcmp(data + done, pattern + (t->down_at + done) % 256, n) != 0)
            t->down_wrong = true;
        done += n;
    }
    t->down_at += len;
    size_t n = MIN(len, sizeof(t->answer) - 1 - t->answer_len);
    memcpy(t->answer + t->answer_len, data, n);
    t->answer_len += n;
    return len;
}

static CURLcode curl(const char *path, uint64_t upload, struct transfer *t)
{
    CURL *c = curl_easy_init();
    char url[256], error[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", fixture.port, path);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_TIMEOUT, 120L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 262144L);
    curl_easy_setopt(c, CURLOPT_UPLOAD_BUFFERSIZE, 262144L);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, curl_down);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    if (upload) {
        t->up_left = upload;
        curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(c, CURLOPT_READFUNCTION, curl_up);
        curl_easy_setopt(c, CURLOPT_READDATA, t);
        if (!t->chunked_upload)
            curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)upload);
        if (strncmp(path, "/mirror", 7) == 0)
            curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, "POST");
        headers = curl_slist_append(headers, "Expect:");
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    }
    CURLcode rc = curl_easy_perform(c);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &t->status);
    curl_easy_cleanup(c);
    curl_slist_free_all(headers);
    return rc;
}

static uint64_t cpu_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

#if defined(__SANITIZE_ADDRESS__)
#define BIG (64 * MIB)
#define FLAT_KIB RSS_SLACK_KIB
#else
#define BIG (1 * GIB)
#define FLAT_KIB 8000
#endif

static void figure(const char *what, uint64_t bytes, uint64_t ms, uint64_t cpu)
{
    print_message("%s: %.0f MB/s, %.2f s CPU a GB (client and server together)\n", what,
                  (double)bytes / 1e6 / ((double)ms / 1e3 + 1e-9), (double)cpu / 1e3 / ((double)bytes / 1e9));
}

static void stream_down(bool known)
{
    struct transfer t = {0};
    char path[128];
    snprintf(path, sizeof(path), "/source?known=%d&bytes=%llu", known, (unsigned long long)BIG);
    struct transfer warm = {0};
    curl("/source?bytes=10000000", 0, &warm);
    long rss = rss_kib();
    uint64_t begin = clock_mono_ms(), cpu = cpu_ms();
    assert_int_equal(curl(path, 0, &t), CURLE_OK);
    figure(known ? "answer of known length" : "answer in chunks", BIG, clock_mono_ms() - begin, cpu_ms() - cpu);
    assert_int_equal(t.down_at, BIG);
    assert_false(t.down_wrong);
    assert_true(rss_kib() - rss < FLAT_KIB);
    assert_true(event_count(EVENT_DRAIN) > BIG / (1 * MIB));
}

static void test_down_known(void **state)
{
    (void)state;
    stream_down(true);
}

static void test_down_chunked(void **state)
{
    (void)state;
    stream_down(false);
}

static void test_up(void **state)
{
    char expected[64];
    (void)state;
    for (long chunked = 0; chunked < 2; chunked++) {
        struct transfer warm = {.chunked_upload = chunked}, t = {.chunked_upload = chunked};
        assert_int_equal(curl("/sink", 10000000, &warm), CURLE_OK);
        long rss = rss_kib();
        uint64_t begin = clock_mono_ms(), cpu = cpu_ms();
        assert_int_equal(curl("/sink", BIG, &t), CURLE_OK);
        figure(chunked ? "body in chunks" : "body of known length", BIG, clock_mono_ms() - begin, cpu_ms() - cpu);
        snprintf(expected, sizeof(expected), "{\"bytes\":%llu,\"sum\":%llu}", (unsigned long long)BIG,
                 (unsigned long long)BIG / 256 * (255 * 128));
        assert_string_equal(t.answer, expected);
        assert_true(rss_kib() - rss < FLAT_KIB);
    }
}

static void test_up_slow(void **state)
{
    struct transfer t = {0};
    (void)state;
    assert_int_equal(curl("/sink?slow=1", 3000000, &t), CURLE_OK);
    assert_non_null(strstr(t.answer, "\"bytes\":3000000"));
    struct transfer c = {.chunked_upload = 1};
    assert_int_equal(curl("/sink?slow=1", 3000000, &c), CURLE_OK);
    assert_non_null(strstr(c.answer, "\"bytes\":3000000"));
}

static void test_up_refused(void **state)
{
    (void)state;
    /* A long body, refused before and in the middle: curl reads the answer all the same. */
    static const struct {
        const char *path;
        long status;
    } cases[] = {{"/sink?refuse=1", 403}, {"/sink?early=500000", 507}, {"/nothing", 404}, {"/small-sink", 413}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (long chunked = 0; chunked < 2; chunked++) {
            struct transfer t = {.chunked_upload = chunked};
            curl(cases[i].path, 300 * MIB, &t); /* its own verdict on the unsent rest does not matter */
            if (t.status != cases[i].status)
                fail_msg("%s: %ld instead of %ld", cases[i].path, t.status, cases[i].status);
            assert_true(t.up_at < 100 * MIB);
        }
    }
}

static void test_up_client_gone(void **state)
{
    (void)state;
    /* An end before the promised length; in the middle of a chunk; while the handler has paused. */
    static const char *const heads[] = {
        "PUT /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc",
        "PUT /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\nabc",
        "PUT /sink?slow=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc"};
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        int fd = client_connect();
        client_send(fd, heads[i]);
        event_wait(EVENT_HANDLER, (unsigned)i + 1);
        close(fd);
        event_wait(EVENT_ABORT, (unsigned)i + 1);
        event_wait(EVENT_LOG, (unsigned)i + 1);
        assert_true(fixture.last_log.aborted);
    }
    assert_int_equal(event_count(EVENT_ABORT), ARRAY_LEN(heads));
}

static void test_expect_continue(void **state)
{
    char line[64];
    struct response r;
    int fd = client_connect();
    (void)state;
    client_send(fd, "PUT /sink HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_int_equal(recv(fd, line, 25, MSG_WAITALL), 25);
    assert_memory_equal(line, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    client_send(fd, "abc");
    client_read(fd, false, &r);
    assert_body(&r, "{\"bytes\":3,\"sum\":294}");
    response_done(&r);
    client_send(fd, "PUT /sink?refuse=1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_int_equal(recv(fd, line, 12, MSG_WAITALL), 12);
    assert_memory_equal(line, "HTTP/1.1 403", 12);
    client_expect_end(fd);
    close(fd);
}

static void test_empty_body(void **state)
{
    struct response r;
    (void)state;
    client_ask("PUT /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", &r);
    assert_body(&r, "{\"bytes\":0,\"sum\":0}");
    response_done(&r);
    client_ask("PUT /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &r);
    assert_body(&r, "{\"bytes\":0,\"sum\":0}");
    response_done(&r);
    client_ask("GET /source?bytes=0&known=1 HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_true(r.whole);
    assert_int_equal(r.body.len, 0);
    response_done(&r);
    client_ask("GET /source?bytes=0 HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_true(r.whole);
    response_done(&r);
}

static void test_mirror(void **state)
{
    struct response r;
    struct transfer t = {0};
    (void)state;
    client_ask("POST /mirror HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", &r);
    assert_body(&r, "hello");
    response_done(&r);
    assert_int_equal(curl("/mirror", 50000000, &t), CURLE_OK); /* both directions at once */
    assert_int_equal(t.down_at, 50000000);
    assert_false(t.down_wrong);
    struct transfer c = {.chunked_upload = 1};
    assert_int_equal(curl("/mirror", 50000000, &c), CURLE_OK);
    assert_int_equal(c.down_at, 50000000);
    assert_false(c.down_wrong);
}

static void test_cut(void **state)
{
    struct response r;
    struct transfer t = {0};
    (void)state;
    /* The client notices, in each framing. */
    client_ask("GET /source?bytes=1000&cut=1 HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_false(r.whole);
    response_done(&r);
    client_ask("GET /source?bytes=1000&known=1&more=10 HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_false(r.whole);
    response_done(&r);
    assert_int_not_equal(curl("/source?bytes=3000000&cut=1", 0, &t), CURLE_OK);
    int fd = client_connect();
    char scrap[4096];
    ssize_t n;
    client_send(fd, "GET /source?bytes=10000000&cut=1 HTTP/1.0\r\n\r\n");
    while ((n = recv(fd, scrap, sizeof(scrap), 0)) > 0)
        ;
    assert_int_equal(n, -1); /* a reset: HTTP/1.0 has no other sign */
    close(fd);
    event_wait(EVENT_LOG, 4);
    assert_true(fixture.last_log.aborted);
    assert_int_equal(event_count(EVENT_ABORT), 0);
}

static void test_down_client_gone(void **state)
{
    char scrap[1000];
    (void)state;
    int fd = client_connect();
    client_send(fd, "GET /source?bytes=100000000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(recv(fd, scrap, sizeof(scrap), MSG_WAITALL), sizeof(scrap));
    close(fd);
    event_wait(EVENT_ABORT, 1);
    fd = client_connect(); /* a stream that rests between two events */
    client_send(fd, "GET /events?every=100000 HTTP/1.1\r\nHost: x\r\n\r\n");
    event_wait(EVENT_HANDLER, 1);
    assert_true(recv(fd, scrap, sizeof(scrap), 0) > 0);
    close(fd);
    event_wait(EVENT_ABORT, 2);
}

static void test_head(void **state)
{
    struct response r;
    char value[64];
    (void)state;
    client_ask("HEAD /source?bytes=100000000&known=1 HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_string_equal(response_header(&r, "Content-Length", value, sizeof(value)), "100000000");
    response_done(&r);
    client_ask("HEAD /events?every=100000 HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_int_equal(r.status, 200);
    response_done(&r);
    event_wait(EVENT_ABORT, 1); /* nobody reads what would come */
}

static void test_sse(void **state)
{
    struct response r;
    char value[64];
    (void)state;
    client_ask("GET /events HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_string_equal(response_header(&r, "Content-Type", value, sizeof(value)), "text/event-stream");
    assert_body(&r, "id: 1\nevent: count\ndata: line 1\ndata: second\ndata: third\n\n"
                    "id: 2\nevent: count\ndata: line 2\ndata: second\ndata: third\n\n"
                    "id: 3\nevent: count\ndata: line 3\ndata: second\ndata: third\n\n");
    response_done(&r);
    client_ask("GET /events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 2\r\n\r\n", &r);
    assert_body(&r, "id: 3\nevent: count\ndata: line 3\ndata: second\ndata: third\n\n");
    response_done(&r);
    client_ask("GET /events?last_event_id=2 HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_body_holds(&r, "id: 3");
    response_done(&r);
    client_ask("GET /events?every=120 HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 2\r\n\r\n", &r);
    assert_body_holds(&r, ": keepalive\n\n: keepalive\n\nid: 3");
    response_done(&r);
}

/* The head of a stream goes out at once, also when the first event is far away. */
static void test_sse_head_at_once(void **state)
{
    char scrap[12];
    uint64_t best = UINT64_MAX;
    (void)state;
    for (int i = 0; i < 5; i++) {
        int fd = client_connect();
        uint64_t begin = clock_mono_ms();
        client_send(fd, "GET /events?every=100000 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_int_equal(recv(fd, scrap, sizeof(scrap), MSG_WAITALL), sizeof(scrap));
        best = MIN(best, clock_mono_ms() - begin);
        close(fd);
    }
    assert_true(best < 30); /* the kernel would hold it back for 200 ms */
}

static void test_sse_base64(void **state)
{
    struct transfer t = {0};
    struct response r;
    char text[64];
    (void)state;
    client_ask("GET /base64?bytes=6 HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    base64_encode(pattern, 6, text);
    char expected[128];
    snprintf(expected, sizeof(expected), "id: 6\nevent: stdout\ndata: %s\n\n", text);
    assert_body(&r, expected);
    response_done(&r);
    uint64_t begin = clock_mono_ms(), cpu = cpu_ms();
    assert_int_equal(curl("/base64?bytes=100000000", 0, &t), CURLE_OK);
    figure("Server-Sent Events, base64 (bytes before it)", 100000000, clock_mono_ms() - begin, cpu_ms() - cpu);
    assert_true(t.down_at > 133333333);
}

static void test_parallel(void **state)
{
    enum { CLIENTS = 50 };
    int fds[CLIENTS];
    (void)state;
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_connect();
        client_send(fds[i], "GET /source?bytes=1000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct response r;
        client_read(fds[i], false, &r);
        assert_true(r.whole);
        assert_int_equal(r.body.len, 1000000);
        response_done(&r);
        close(fds[i]);
    }
}

/* ---- many clients that do everything and go at any moment ---- */

static void *storm_client(void *arg)
{
    static const char *const requests[] = {
        "GET /source?bytes=300000 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /source?bytes=30000000&known=1 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /source?bytes=3000&cut=1 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /events HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /events?every=100000 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /base64?bytes=3000000 HTTP/1.1\r\nHost: x\r\n\r\n",
        "HEAD /base64?bytes=3000000 HTTP/1.1\r\nHost: x\r\n\r\n",
        "PUT /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n",
        "PUT /sink?slow=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
        "PUT /sink?early=20000 HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n",
        "PUT /sink?refuse=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
        "POST /mirror HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n",
        "POST /mirror HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 500000\r\n\r\n",
        "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\nGET /events HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /half HTTP/1.1\r\nHo",
    };
    unsigned seed = (unsigned)(uintptr_t)arg;
    char scrap[65536];
    for (int i = 0; i < 150; i++) {
        int fd = client_connect();
        const char *request = requests[(unsigned)rand_r(&seed) % ARRAY_LEN(requests)];
        client_send(fd, request);
        for (int k = rand_r(&seed) % 30; k > 0; k--) {
            if (rand_r(&seed) % 2)
                (void)!send(fd, pattern, (size_t)rand_r(&seed) % 30000, MSG_NOSIGNAL | MSG_DONTWAIT);
            else
                (void)!recv(fd, scrap, (size_t)rand_r(&seed) % sizeof(scrap), MSG_DONTWAIT);
            if (rand_r(&seed) % 8 == 0)
                usleep(500);
        }
        struct linger now = {.l_onoff = rand_r(&seed) % 2};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        if (rand_r(&seed) % 4 == 0)
            shutdown(fd, rand_r(&seed) % 2 ? SHUT_WR : SHUT_RDWR);
        close(fd);
    }
    return NULL;
}

static void test_storm(void **state)
{
    enum { THREADS = 12 };
    pthread_t threads[THREADS];
    struct http_stats stats;
    (void)state;
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, storm_client, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (uint64_t until = clock_mono_ms() + 10000;;) {
        http_server_stats(fixture.server, &stats);
        if (!stats.connections && !stats.requests_running)
            break;
        if (clock_mono_ms() > until)
            fail_msg("%zu connections and %zu requests stay behind", stats.connections, stats.requests_running);
        usleep(10000);
    }
    assert_int_equal(stats.connections_accepted, THREADS * 150);
    assert_int_equal(stats.timeouts, 0); /* every end was noticed by itself */
    struct response r;
    client_ask("GET /events HTTP/1.1\r\nHost: x\r\n\r\n", &r);
    assert_true(r.whole);
    response_done(&r);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(test_down_known),
        TEST(test_down_chunked),
        TEST(test_up),
        TEST(test_up_slow),
        TEST(test_up_refused),
        TEST(test_up_client_gone),
        TEST(test_expect_continue),
        TEST(test_empty_body),
        TEST(test_mirror),
        TEST(test_cut),
        TEST(test_down_client_gone),
        TEST(test_head),
        TEST(test_sse),
        TEST(test_sse_head_at_once),
        TEST(test_sse_base64),
        TEST(test_parallel),
        TEST(test_storm),
    };
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    curl_global_cleanup();
    return rc;
}

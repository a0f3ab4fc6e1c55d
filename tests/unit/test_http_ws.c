/* Upgraded connections of src/http: tunnels, and WebSockets against hand-made frames and node's own client. */
#include "base/clock.h"
#include "base/str.h"
#include "http/http_tunnel.h"
#include "http/websocket.h"
#include "http_fixture.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- /ws: echo; text commands: "close", "flood" ---- */

#define FLOOD 3000 /* messages of 10,000 bytes: more than all the kernel's buffers take */

struct echo {
    struct websocket *ws;
    char *held; /* a message that could not be sent back yet */
    size_t held_len;
    bool held_text;
    unsigned flood; /* messages still to be sent */
    uv_timer_t *timer;
};

static int last_code;

static void timer_free(uv_handle_t *handle)
{
    free(handle);
}

static void echo_resume(uv_timer_t *timer)
{
    struct echo *s = timer->data;
    websocket_resume(s->ws);
}

static void echo_flood(struct echo *s)
{
    char block[10000];
    memset(block, 'f', sizeof(block));
    while (s->flood && websocket_send(s->ws, false, block, sizeof(block)))
        s->flood--;
    if (s->flood)
        event_post(EVENT_BLOCKED);
}

static bool echo_message(struct websocket *w, bool text, const void *data, size_t len, void *arg)
{
    struct echo *s = arg;
    event_post(EVENT_HANDLER);
    if (text && len == 5 && memcmp(data, "close", 5) == 0) {
        websocket_close(w, 4001, "as asked");
        return true;
    }
    if (text && len == 5 && memcmp(data, "flood", 5) == 0) {
        s->flood = FLOOD;
        echo_flood(s);
        return true;
    }
    if (text && len == 5 && memcmp(data, "pause", 5) == 0) {
        uv_timer_start(s->timer, echo_resume, 50, 0);
        return false;
    }
    if (websocket_send(w, text, data, len))
        return true;
    s->held = xmalloc(len + 1);
    memcpy(s->held, data, len);
    s->held_len = len;
    s->held_text = text;
    return false;
}

static void echo_drain(struct websocket *w, void *arg)
{
    struct echo *s = arg;
    event_post(EVENT_DRAIN);
    echo_flood(s);
    if (s->held && websocket_send(w, s->held_text, s->held, s->held_len)) {
        free(steal(s->held));
        websocket_resume(w);
    }
}

static void echo_close(struct websocket *w, int code, void *arg)
{
    struct echo *s = arg;
    (void)w;
    last_code = code;
    free(s->held);
    uv_close((uv_handle_t *)s->timer, timer_free);
    free(s);
    event_post(EVENT_CLOSE);
}

static void handle_ws(struct http_request *r, void *arg)
{
    static const char *const protocols[] = {"space.v2", "space.v1", NULL};
    static const struct websocket_options options = {.message_max = 100000, .ping_ms = 60000, .protocols = protocols};
    static const struct websocket_events events = {
        .on_message = echo_message, .on_drain = echo_drain, .on_close = echo_close};
    struct echo *s = NEW(struct echo);
    uv_loop_t *loop = http_request_loop(r);
    (void)arg;
    s->ws = websocket_accept(r, &options, &events, s);
    if (!s->ws) {
        free(s);
        return;
    }
    s->timer = xmalloc(sizeof(*s->timer));
    uv_timer_init(loop, s->timer);
    s->timer->data = s;
}

static void handle_quiet(struct http_request *r, void *arg)
{
    static const struct websocket_options options = {.ping_ms = 60};
    static const struct websocket_events events = {
        .on_message = echo_message, .on_drain = echo_drain, .on_close = echo_close};
    struct echo *s = NEW(struct echo);
    (void)arg;
    s->timer = xmalloc(sizeof(*s->timer));
    uv_timer_init(http_request_loop(r), s->timer);
    s->ws = websocket_accept(r, &options, &events, s);
    assert_non_null(s->ws);
}

/* ---- /tunnel: echo of bytes ---- */

static size_t tunnel_data(struct http_tunnel *t, const void *data, size_t len, void *arg)
{
    (void)arg;
    return http_tunnel_write(t, data, len);
}

static void tunnel_open(struct http_tunnel *t, void *arg)
{
    (void)arg;
    assert_int_equal(http_tunnel_write(t, "welcome", 7), 7);
}

static void tunnel_drain(struct http_tunnel *t, void *arg)
{
    (void)arg;
    http_tunnel_resume(t);
}

static void tunnel_eof(struct http_tunnel *t, void *arg)
{
    (void)arg;
    http_tunnel_write(t, "bye", 3);
    http_tunnel_shutdown(t);
}

static void tunnel_closed(struct http_tunnel *t, const char *why, void *arg)
{
    (void)t, (void)why, (void)arg;
    event_post(EVENT_CLOSE);
}

static void handle_tunnel(struct http_request *r, void *arg)
{
    static const struct http_tunnel_events events = {.on_open = tunnel_open,
                                                     .on_data = tunnel_data,
                                                     .on_eof = tunnel_eof,
                                                     .on_drain = tunnel_drain,
                                                     .on_close = tunnel_closed};
    (void)arg;
    http_reply_header(r, "X-From-Guest", "yes");
    http_tunnel_accept(r, "chat", &events, 0, NULL);
    event_post(EVENT_HANDLER);
}

static void flood_drain(struct http_tunnel *t, void *arg)
{
    static char zeros[65536];
    (void)arg;
    while (http_tunnel_write(t, zeros, sizeof(zeros)) == sizeof(zeros))
        ;
}

static size_t flood_data(struct http_tunnel *t, const void *data, size_t len, void *arg)
{
    (void)t, (void)data, (void)arg;
    return len;
}

static void handle_flood(struct http_request *r, void *arg)
{
    static const struct http_tunnel_events events = {
        .on_open = flood_drain, .on_data = flood_data, .on_drain = flood_drain, .on_close = tunnel_closed};
    (void)arg;
    http_tunnel_accept(r, "chat", &events, 0, NULL);
}

static struct http_request *late;

static void handle_late(struct http_request *r, void *arg)
{
    (void)arg;
    late = r;
    event_post(EVENT_HANDLER);
}

static void job_accept_late(void *arg)
{
    static const struct http_tunnel_events events = {.on_data = tunnel_data, .on_close = tunnel_closed};
    struct http_tunnel *t = http_tunnel_accept(late, "chat", &events, 0, NULL);
    assert_int_equal(http_tunnel_write(t, "x", 1), 0);
    (void)arg;
}

static const struct http_route routes[] = {
    {"GET", "/late", handle_late},   {"GET", "/ws", handle_ws},
    {"GET", "/quiet", handle_quiet}, {"*", "/tunnel", handle_tunnel, HTTP_BODY_STREAM},
    {"GET", "/flood", handle_flood},
};

static int start(void **state)
{
    struct http_options o = {.routes = routes, .route_count = ARRAY_LEN(routes), .write_stall_ms = 2000};
    (void)state;
    last_code = 0;
    fixture_start(&o);
    return 0;
}

static int stop(void **state)
{
    struct http_stats stats;
    (void)state;
    http_server_stats(fixture.server, &stats);
    fixture_stop(1000);
    return 0;
}

/* ---- client ---- */

#define HANDSHAKE(path)                                                                                                \
    "GET " path " HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"                    \
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

static int ws_connect(const char *handshake)
{
    struct response r;
    int fd = client_connect();
    client_send(fd, handshake);
    client_read(fd, false, &r);
    assert_int_equal(r.status, 101);
    response_done(&r);
    return fd;
}

static void put_frame(struct buf *b, unsigned first, const void *data, size_t len, bool masked)
{
    static const uint8_t mask[4] = {0x12, 0x34, 0x56, 0x78};
    buf_put_byte(b, (uint8_t)first);
    if (len < 126) {
        buf_put_byte(b, (uint8_t)(len | (masked ? 0x80 : 0)));
    } else if (len < 65536) {
        buf_put_byte(b, (uint8_t)(126 | (masked ? 0x80 : 0)));
        buf_put_u16(b, (uint16_t)len);
    } else {
        buf_put_byte(b, (uint8_t)(127 | (masked ? 0x80 : 0)));
        buf_put_u64(b, len);
    }
    if (masked)
        buf_put(b, mask, 4);
    for (size_t i = 0; i < len; i++)
        buf_put_byte(b, (uint8_t)(((const uint8_t *)data)[i] ^ (masked ? mask[i % 4] : 0)));
}

static void send_frame(int fd, unsigned first, const void *data, size_t len, bool masked)
{
    _cleanup_buf_ struct buf b = {0};
    put_frame(&b, first, data, len, masked);
    client_send_bytes(fd, buf_data(&b), b.len);
}

static void read_exact(int fd, void *to, size_t len)
{
    if (len && recv(fd, to, len, MSG_WAITALL) != (ssize_t)len)
        fail_msg("the connection ended in the middle of a frame");
}

/* The next frame: its first byte; payload into `ret` (NUL-terminated). */
static unsigned read_frame(int fd, char *ret, size_t size, size_t *ret_len)
{
    uint8_t head[10];
    read_exact(fd, head, 2);
    size_t len = head[1] & 0x7f;
    assert_int_equal(head[1] & 0x80, 0); /* a server does not mask */
    if (len == 126) {
        read_exact(fd, head + 2, 2);
        len = get_u16(head + 2);
    } else if (len == 127) {
        read_exact(fd, head + 2, 8);
        len = get_u64(head + 2);
    }
    assert_true(len < size);
    read_exact(fd, ret, len);
    ret[len] = '\0';
    *ret_len = len;
    return head[0];
}

static char got[200000];

static void expect_frame(int fd, unsigned first, const void *data, size_t len)
{
    size_t got_len;
    unsigned f = read_frame(fd, got, sizeof(got), &got_len);
    if (f != first || got_len != len)
        fail_msg("frame %#x of %zu bytes instead of %#x of %zu", f, got_len, first, len);
    assert_memory_equal(got, data, len);
}

static void expect_close(int fd, int code)
{
    size_t len;
    assert_int_equal(read_frame(fd, got, sizeof(got), &len), 0x88);
    assert_true(len >= 2);
    assert_int_equal(get_u16((uint8_t *)got), code);
}

/* ---- WebSocket ---- */

static void test_handshake(void **state)
{
    char value[128];
    struct response r;
    (void)state;
    int fd = client_connect();
    client_send(fd, HANDSHAKE("/ws") "Sec-WebSocket-Protocol: other, space.v1\r\n\r\n");
    client_read(fd, false, &r);
    assert_int_equal(r.status, 101);
    assert_string_equal(response_header(&r, "Sec-WebSocket-Accept", value, sizeof(value)),
                        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_string_equal(response_header(&r, "Sec-WebSocket-Protocol", value, sizeof(value)), "space.v1");
    assert_string_equal(response_header(&r, "Upgrade", value, sizeof(value)), "websocket");
    assert_string_equal(response_header(&r, "Connection", value, sizeof(value)), "Upgrade");
    assert_non_null(response_header(&r, "X-Request-Id", value, sizeof(value)));
    response_done(&r);
    close(fd);
    event_wait(EVENT_CLOSE, 1);
    assert_int_equal(last_code, 1006);
    static const struct {
        const char *request;
        int status;
    } bad[] = {
        {"GET /ws HTTP/1.1\r\nHost: x\r\n\r\n", 426},
        {"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
         426},
        {"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n\r\n",
         400},
        {"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: "
         "13\r\n\r\n",
         400},
        {"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
         426},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        client_ask(bad[i].request, &r);
        assert_int_equal(r.status, bad[i].status);
        assert_string_equal(response_header(&r, "Sec-WebSocket-Version", value, sizeof(value)), "13");
        response_done(&r);
    }
    assert_int_equal(event_count(EVENT_CLOSE), 1);
}

static void test_echo(void **state)
{
    size_t sizes[] = {0, 1, 125, 126, 1000, 65535, 65536, 100000};
    char *data = xmalloc(100000);
    (void)state;
    int fd = ws_connect(HANDSHAKE("/ws") "\r\n");
    for (size_t i = 0; i < 100000; i++)
        data[i] = (char)(i * 7);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        send_frame(fd, 0x82, data, sizes[i], true);
        expect_frame(fd, 0x82, data, sizes[i]);
    }
    send_frame(fd, 0x81, "h\xc3\xa4llo", 6, true);
    expect_frame(fd, 0x81, "h\xc3\xa4llo", 6);
    /* In fragments, with a ping between them. */
    send_frame(fd, 0x01, "one ", 4, true);
    send_frame(fd, 0x89, "ping", 4, true);
    send_frame(fd, 0x00, "two ", 4, true);
    send_frame(fd, 0x80, "three", 5, true);
    expect_frame(fd, 0x8a, "ping", 4);
    expect_frame(fd, 0x81, "one two three", 13);
    /* A frame byte by byte, and several frames at once. */
    _cleanup_buf_ struct buf b = {0};
    put_frame(&b, 0x81, "slow", 4, true);
    for (size_t i = 0; i < b.len; i++)
        client_send_bytes(fd, buf_data(&b) + i, 1);
    expect_frame(fd, 0x81, "slow", 4);
    buf_reset(&b);
    for (int i = 0; i < 100; i++)
        put_frame(&b, 0x81, "many", 4, true);
    client_send_bytes(fd, buf_data(&b), b.len);
    for (int i = 0; i < 100; i++)
        expect_frame(fd, 0x81, "many", 4);
    /* Close by the client. */
    send_frame(fd, 0x88,
               "\x03\xe8"
               "done",
               6, true);
    expect_close(fd, 1000);
    client_expect_end(fd);
    close(fd);
    event_wait(EVENT_CLOSE, 1);
    assert_int_equal(last_code, 1000);
    free(data);
}

static void test_close_by_server(void **state)
{
    (void)state;
    int fd = ws_connect(HANDSHAKE("/ws") "\r\n");
    send_frame(fd, 0x81, "close", 5, true);
    expect_close(fd, 4001);
    assert_string_equal(got + 2, "as asked");
    send_frame(fd, 0x88, "\x0f\xa1", 2, true);
    client_expect_end(fd);
    close(fd);
    event_wait(EVENT_CLOSE, 1);
    assert_int_equal(last_code, 4001);
}

static void test_violations(void **state)
{
    static char big[100001];
    static const struct {
        unsigned first;
        const char *data;
        size_t len;
        bool masked;
        int code;
    } cases[] = {
        {0x81, "hello", 5, false, 1002},                                         /* not masked */
        {0x83, "hello", 5, true, 1002},                                          /* reserved opcode */
        {0xc1, "hello", 5, true, 1002},                                          /* reserved bit */
        {0x80, "hello", 5, true, 1002},                                          /* continuation of nothing */
        {0x09, "ping", 4, true, 1002},                                           /* fragmented control frame */
        {0x89, big, 126, true, 1002},                                            /* long control frame */
        {0x81, "\xff\xfe", 2, true, 1007},                                       /* not UTF-8 */
        {0x82, big, sizeof(big), true, 1009}, {0x88, "\x00\x01", 2, true, 1002}, /* close code out of range */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = ws_connect(HANDSHAKE("/ws") "\r\n");
        _cleanup_buf_ struct buf b = {0};
        size_t len;
        put_frame(&b, cases[i].first, cases[i].data, cases[i].len, cases[i].masked);
        (void)!send(fd, buf_data(&b), b.len, MSG_NOSIGNAL);
        unsigned f = read_frame(fd, got, sizeof(got), &len);
        if (f != 0x88 || len < 2 || get_u16((uint8_t *)got) != cases[i].code)
            fail_msg("case %zu: frame %#x, %zu bytes, code %d", i, f, len, len >= 2 ? get_u16((uint8_t *)got) : 0);
        client_expect_end(fd);
        close(fd);
        event_wait(EVENT_CLOSE, (unsigned)i + 1);
    }
    assert_int_equal(event_count(EVENT_HANDLER), 0);
    /* A long message in short fragments is long all the same. */
    int fd = ws_connect(HANDSHAKE("/ws") "\r\n");
    for (int i = 0; i < 11; i++) {
        _cleanup_buf_ struct buf b = {0};
        put_frame(&b, i ? 0x00 : 0x02, big, 10000, true);
        (void)!send(fd, buf_data(&b), b.len, MSG_NOSIGNAL);
    }
    expect_close(fd, 1009);
    close(fd);
    event_wait(EVENT_CLOSE, ARRAY_LEN(cases) + 1);
}

static void test_back_pressure(void **state)
{
    (void)state;
    int fd = ws_connect(HANDSHAKE("/ws") "\r\n");
    char block[10000];
    memset(block, 'f', sizeof(block));
    send_frame(fd, 0x81, "flood", 5, true); /* read after the server has run into its limit */
    event_wait(EVENT_BLOCKED, 1);
    for (int i = 0; i < FLOOD; i++)
        expect_frame(fd, 0x82, block, sizeof(block));
    assert_true(event_count(EVENT_DRAIN) > 0);
    /* A paused owner sees the next message later, and none is lost. */
    send_frame(fd, 0x81, "pause", 5, true);
    for (int i = 0; i < 10; i++)
        send_frame(fd, 0x81, "after", 5, true);
    for (int i = 0; i < 10; i++)
        expect_frame(fd, 0x81, "after", 5);
    close(fd);
    event_wait(EVENT_CLOSE, 1);
}

static void test_ping_flood(void **state)
{
    (void)state;
    int fd = ws_connect(HANDSHAKE("/ws") "\r\n");
    char ping[125];
    memset(ping, 'p', sizeof(ping));
    _cleanup_buf_ struct buf b = {0};
    for (int i = 0; i < 1000; i++)
        put_frame(&b, 0x89, ping, sizeof(ping), true);
    long rss = rss_kib();
    uint64_t begin = clock_mono_ms();
    size_t sent = 0;
    /* Never read: the server must stop reading, then give the client up, and not collect pongs. */
    while (clock_mono_ms() - begin < 8000) {
        ssize_t n = send(fd, buf_data(&b), b.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            sent += (size_t)n;
        else if (errno != EAGAIN)
            break;
        else
            usleep(1000);
    }
    event_wait(EVENT_CLOSE, 1);
    assert_true(rss_kib() - rss < 20000 + RSS_SLACK_KIB);
    close(fd);
}

static void test_silent_client(void **state)
{
    (void)state;
    int fd = ws_connect(HANDSHAKE("/quiet") "\r\n");
    expect_frame(fd, 0x89, "", 0); /* asked … */
    client_expect_end(fd);         /* … and given up */
    close(fd);
    event_wait(EVENT_CLOSE, 1);
    assert_int_equal(last_code, 1006);
    fd = ws_connect(HANDSHAKE("/quiet") "\r\n");
    for (int i = 0; i < 5; i++) {
        expect_frame(fd, 0x89, "", 0);
        send_frame(fd, 0x8a, "", 0, true);
    }
    assert_int_equal(event_count(EVENT_CLOSE), 1);
    close(fd);
    event_wait(EVENT_CLOSE, 2);
}

static void test_node(void **state)
{
    static const char script[] =
        "const ws = new WebSocket(process.argv[1]); ws.binaryType = 'arraybuffer';"
        "const big = new Uint8Array(99000).map((_, i) => i); let step = 0;"
        "ws.onopen = () => ws.send('hello');"
        "ws.onerror = (e) => { console.error(e.message ?? e); process.exit(2); };"
        "ws.onmessage = (m) => {"
        "  if (step === 0 && m.data === 'hello') { step = 1; ws.send(big); }"
        "  else if (step === 1 && Buffer.compare(Buffer.from(m.data), Buffer.from(big)) === 0) { step = 2; "
        "ws.send('close'); }"
        "  else process.exit(3); };"
        "ws.onclose = (e) => process.exit(step === 2 && e.code === 4001 && e.reason === 'as asked' ? 0 : 4);"
        "setTimeout(() => process.exit(5), 8000);";
    char url[64];
    (void)state;
    if (system("node --experimental-websocket -e 0 >/dev/null 2>&1") != 0)
        skip();
    snprintf(url, sizeof(url), "ws://127.0.0.1:%u/ws", fixture.port);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("node", "node", "--no-warnings", "--experimental-websocket", "-e", script, url, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
    event_wait(EVENT_CLOSE, 1);
}

/* ---- tunnels ---- */

#define UPGRADE(path) "GET " path " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n"

static void test_tunnel(void **state)
{
    struct response r;
    struct http_stats stats;
    char value[64], text[64];
    (void)state;
    int fd = client_connect();
    client_send(fd, UPGRADE("/tunnel") "early"); /* bytes behind the request belong to the tunnel */
    client_read(fd, false, &r);
    assert_int_equal(r.status, 101);
    assert_string_equal(response_header(&r, "X-From-Guest", value, sizeof(value)), "yes");
    assert_string_equal(response_header(&r, "Upgrade", value, sizeof(value)), "chat");
    response_done(&r);
    read_exact(fd, text, 12);
    assert_memory_equal(text, "welcomeearly", 12);
    client_send(fd, "more");
    read_exact(fd, text, 4);
    assert_memory_equal(text, "more", 4);
    http_server_stats(fixture.server, &stats);
    assert_int_equal(stats.upgraded, 1);
    shutdown(fd, SHUT_WR); /* half-closed: the other direction goes on */
    read_exact(fd, text, 3);
    assert_memory_equal(text, "bye", 3);
    client_expect_end(fd);
    close(fd);
    event_wait(EVENT_CLOSE, 1);
    event_wait(EVENT_LOG, 1);
    assert_int_equal(fixture.last_log.status, 101);
    assert_int_equal(fixture.last_log.bytes_out, 7 + 5 + 4 + 3);
    assert_int_equal(fixture.last_log.bytes_in, 9);
}

static void *tunnel_writer(void *arg)
{
    char block[65536];
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = (char)i;
    for (int i = 0; i < 800; i++)
        client_send_bytes(*(int *)arg, block, sizeof(block));
    shutdown(*(int *)arg, SHUT_WR);
    return NULL;
}

static void test_tunnel_throughput(void **state)
{
    char *block = xmalloc(65536), text[8];
    pthread_t writer;
    (void)state;
    int fd = ws_connect(UPGRADE("/tunnel"));
    read_exact(fd, text, 7);
    uint64_t begin = clock_mono_ms();
    long rss = rss_kib();
    pthread_create(&writer, NULL, tunnel_writer, &fd);
    for (int i = 0; i < 800; i++) {
        read_exact(fd, block, 65536);
        assert_int_equal((uint8_t)block[77], 77);
        assert_int_equal((uint8_t)block[65535], 255);
    }
    read_exact(fd, text, 3);
    assert_memory_equal(text, "bye", 3);
    pthread_join(writer, NULL);
    print_message("tunnel, echo: %.0f MB/s each way\n", 800 * 65.536 / (double)(clock_mono_ms() - begin + 1));
    assert_true(rss_kib() - rss < 20000 + RSS_SLACK_KIB);
    client_expect_end(fd);
    close(fd);
    event_wait(EVENT_CLOSE, 1);
    free(block);
}

static void test_tunnel_ends(void **state)
{
    struct linger now = {.l_onoff = 1};
    (void)state;
    int fd = ws_connect(UPGRADE("/tunnel"));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd); /* a reset */
    event_wait(EVENT_CLOSE, 1);
    fd = client_connect(); /* gone before the handler accepts */
    client_send(fd, UPGRADE("/late"));
    event_wait(EVENT_HANDLER, 2);
    close(fd);
    event_wait(EVENT_LOG, 2);
    fixture_call(job_accept_late, NULL);
    event_wait(EVENT_CLOSE, 2);
    fd = ws_connect(UPGRADE("/flood")); /* never reads what is sent */
    event_wait(EVENT_CLOSE, 3);
    close(fd);
    struct response r; /* HTTP/1.0 cannot be upgraded */
    client_ask("GET /tunnel HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n", &r);
    assert_int_equal(r.status, 400);
    response_done(&r);
    event_wait(EVENT_CLOSE, 4);
    /* One is open when the server stops. */
    fd = ws_connect(UPGRADE("/tunnel"));
    event_wait(EVENT_HANDLER, 4);
    (void)fd;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(test_handshake),         TEST(test_echo),          TEST(test_close_by_server),
        TEST(test_violations),        TEST(test_back_pressure), TEST(test_ping_flood),
        TEST(test_silent_client),     TEST(test_node),          TEST(test_tunnel),
        TEST(test_tunnel_throughput), TEST(test_tunnel_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The start of a session with the guest agent, and its start anew after whatever a former host left on the line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "agent_client.h"

static struct client client;

static int setup(void **state)
{
    *state = &client;
    client_start(&client);
    return 0;
}

static int teardown(void **state ATTR_UNUSED)
{
    client_stop(&client);
    return 0;
}

static void assert_alive(struct client *c)
{
    struct reply *r = client_callf(c, "GET", AGENT_PATH_HELLO);
    assert_int_equal(r->status, 200);
    reply_free(r);
}

/* A new client without a word to the old one, on the same connection. */
static void forget(struct client *c)
{
    int fd = c->fd;
    c->fd = -1;
    client_disconnect(c);
    c->fd = fd;
}

static void hello(void **state)
{
    struct reply *r = client_callf(*state, "GET", AGENT_PATH_HELLO);
    struct wire_reader reader;
    struct wire_field f;
    uint64_t version = 0;
    wire_reader_init(&reader, buf_data(&r->body), r->body.len);
    while (wire_next(&reader, &f))
        if (f.tag == AGENT_TAG_HELLO_PROTOCOL)
            wire_field_u64(&f, &version);
    assert_int_equal(version, AGENT_PROTOCOL_VERSION);
    reply_free(r);
}

static void identity(void **state)
{
    _cleanup_buf_ struct buf b = BUF_MAX(4096);
    uint8_t entropy[64] = {1};
    wire_put_bytes(&b, AGENT_TAG_IDENTITY_ENTROPY, entropy, sizeof(entropy));
    wire_put_u64(&b, AGENT_TAG_IDENTITY_REALTIME_NS, 1);
    wire_put_text(&b, AGENT_TAG_IDENTITY_HOSTNAME, "host-1");
    wire_put_text(&b, AGENT_TAG_IDENTITY_MACHINE_ID, "0123456789abcdef0123456789abcdef");
    wire_put_text(&b, AGENT_TAG_IDENTITY_SANDBOX_ID, "sabc");
    wire_put_text(&b, AGENT_TAG_IDENTITY_BOOT_ID, "01234567-89ab-cdef-0123-456789abcdef");
    wire_put_text(&b, AGENT_TAG_IDENTITY_ENV, "FROM_IDENTITY=yes");
    struct reply *r = client_call(*state, "POST", AGENT_PATH_IDENTITY, buf_data(&b), b.len);
    assert_int_equal(r->status, 200);
    reply_free(r);
    r = client_callf(*state, "GET", AGENT_PATH_HELLO);
    assert_non_null(memmem(buf_data(&r->body), r->body.len, "sabc", 4));
    assert_non_null(memmem(buf_data(&r->body), r->body.len, "01234567-89ab", 13));
    reply_free(r);
    b.len -= 1; /* cut off */
    r = client_call(*state, "POST", AGENT_PATH_IDENTITY, buf_data(&b), b.len);
    assert_int_equal(r->status, 400);
    reply_free(r);
}

static void garbage_before_the_prelude(void **state)
{
    static const char garbage[] = "SPACE-AGENT-vSPACE-AGENT-v1\rSPACE-RAW-TESTXxx\0\xff SPACESPACE-AGENT-v1\r";
    forget(*state);
    client_write_raw(*state, garbage, sizeof(garbage) - 1);
    client_prelude(*state, 2, false);
    client_http(*state);
    assert_alive(*state);
}

static void new_prelude_at_a_frame_boundary(void **state)
{
    assert_alive(*state);
    for (uint8_t i = 2; i < 10; i++) {
        forget(*state);
        client_prelude(*state, i, false);
        client_http(*state);
        assert_alive(*state);
    }
}

static void new_prelude_in_the_middle_of_a_frame(void **state)
{
    /* DATA of 60,000 bytes for a stream that is being written, of which 1,000 come. */
    struct reply *r = client_open_stream(*state, "PUT", AGENT_PATH_BENCH_SINK);
    client_run_ms(*state, 20);
    uint8_t part[1009] = {0, 60000 >> 8, 60000 & 255, 0, 0, 0, 0, 0, (uint8_t)r->id};
    client_write_raw(*state, part, sizeof(part));
    forget(*state);
    client_prelude(*state, 2, true);
    client_http(*state);
    assert_alive(*state);
    reply_free(r);
}

static void prelude_twice(void **state)
{
    uint8_t prelude[AGENT_PRELUDE_SIZE];
    static const uint8_t zeros[AGENT_RESYNC_FLUSH];
    forget(*state);
    memcpy(prelude, AGENT_PRELUDE_MAGIC, AGENT_MAGIC_SIZE);
    memset(prelude + AGENT_MAGIC_SIZE, 3, AGENT_NONCE_SIZE);
    client_write_raw(*state, prelude, sizeof(prelude));
    client_write_raw(*state, zeros, sizeof(zeros));
    client_prelude(*state, 3, false); /* reads one answer: a second would break HTTP/2 */
    client_http(*state);
    assert_alive(*state);
}

static void prelude_byte_by_byte(void **state)
{
    uint8_t prelude[AGENT_PRELUDE_SIZE], answer[AGENT_PRELUDE_SIZE];
    client_disconnect(*state);
    client_connect(*state);
    memcpy(prelude, AGENT_PRELUDE_MAGIC, AGENT_MAGIC_SIZE);
    memset(prelude + AGENT_MAGIC_SIZE, 'S', AGENT_NONCE_SIZE);
    for (size_t i = 0; i < sizeof(prelude); i++)
        client_write_raw(*state, prelude + i, 1);
    client_read_raw(*state, answer, sizeof(answer));
    assert_memory_equal(prelude, answer, sizeof(answer));
    client_http(*state);
    assert_alive(*state);
}

static void protocol_errors_end_the_session_alone(void **state)
{
    static const struct {
        const char *frame;
        size_t len;
    } frames[] = {
        {"\0\0\4\3\0\0\0\0\0xxxx", 13},                 /* RST_STREAM of stream 0 */
        {"\0\0\5\1\4\0\0\0\3\xff\xff\xff\xff\xff", 14}, /* HPACK rubbish */
        {"\0\0\0\5\0\0\0\0\0", 9},                      /* PUSH_PROMISE from a client */
        {"\0\0\3\4\0\0\0\0\0abc", 12},                  /* SETTINGS of a wrong size */
        {"\xff\xff\xff\0\0\0\0\0\1", 9},                /* a frame far too long */
        {"\0\0\0\x77\0\0\0\0\0", 9},                    /* a type that does not exist */
    };
    for (size_t i = 0; i < ARRAY_LEN(frames); i++) {
        assert_alive(*state);
        client_write_raw(*state, frames[i].frame, frames[i].len);
        forget(*state);
        client_prelude(*state, (uint8_t)(10 + i), false);
        client_http(*state);
    }
    assert_alive(*state);
}

static void execs_outlive_the_session(void **state)
{
    _cleanup_buf_ struct buf b = BUF_MAX(4096);
    wire_put_text(&b, AGENT_TAG_EXEC_SHELL, "sleep 0.2; echo still here");
    if (geteuid() == 0)
        wire_put_text(&b, AGENT_TAG_EXEC_USER, "root");
    struct reply *r = client_call(*state, "POST", AGENT_PATH_EXECS "/x1", buf_data(&b), b.len);
    assert_int_equal(r->status, 201);
    reply_free(r);
    struct reply *reader = client_open(*state, "GET", AGENT_PATH_EXECS "/x1/output", NULL, 0);
    client_run_ms(*state, 20);
    client_disconnect(*state);
    reply_free(reader);
    client_connect(*state);
    client_prelude(*state, 9, false);
    client_http(*state);
    r = client_callf(*state, "GET", AGENT_PATH_EXECS "/x1/output?from=0");
    assert_non_null(memmem(buf_data(&r->body), r->body.len, "still here\n", 11));
    reply_free(r);
}

static void raw_throughput(void **state)
{
    uint8_t prelude[AGENT_RAW_PRELUDE_SIZE] = AGENT_RAW_MAGIC, done;
    size_t len = 3000000;
    _cleanup_free_ uint8_t *data = xcalloc(1, len);
    forget(*state);
    prelude[AGENT_MAGIC_SIZE + 5] = (uint8_t)(len >> 16);
    prelude[AGENT_MAGIC_SIZE + 6] = (uint8_t)(len >> 8);
    prelude[AGENT_MAGIC_SIZE + 7] = (uint8_t)len;
    prelude[AGENT_MAGIC_SIZE + 8] = AGENT_RAW_TO_HOST;
    client_disconnect(*state);
    client_connect(*state);
    client_write_raw(*state, prelude, sizeof(prelude));
    client_read_raw(*state, data, len);
    prelude[AGENT_MAGIC_SIZE + 8] = AGENT_RAW_TO_GUEST;
    client_write_raw(*state, prelude, sizeof(prelude));
    client_write_raw(*state, data, len);
    client_read_raw(*state, &done, 1);
    assert_int_equal(done, AGENT_RAW_DONE);
    client_prelude(*state, 7, false);
    client_http(*state);
    assert_alive(*state);
}

static void malformed_requests(void **state)
{
    static const struct {
        const char *method, *path;
        int status;
    } cases[] = {
        {"GET", "/", 404},
        {"GET", "/v1/hello?x", 400},
        {"GET", "/v1/hello?x=%zz", 400},
        {"GET", "/v1/hello?x=%00", 400},
        {"GET", "/v1/hello?a=1&a=2", 400},
        {"PUT", "/v1/hello", 405},
        {"GET", "/v1/execs/", 400},
        {"GET", "/v1/execs/a/b/c", 404},
        {"GET", "/v1/file", 400},
        {"GET", "/v1/file?path=relative", 400},
        {"GET", "/v1/file?path=/etc/passwd&offset=-1", 400},
        {"GET", "/v1/dir?path=/&limit=0", 400},
        {"GET", "/v1/dir?path=/&limit=1001", 400},
        {"POST", "/v1/mkdir?path=/tmp/x&mode=999", 400},
        {"POST", "/v1/bench/spawn?n=100000", 400},
        {"CONNECT", "10.0.0.1:80", 400},
        {"CONNECT", "127.0.0.1:0", 400},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply *r = client_call(*state, cases[i].method, cases[i].path, NULL, 0);
        if (r->status != cases[i].status)
            fail_msg("%s %s: %d", cases[i].method, cases[i].path, r->status);
        reply_free(r);
    }
    char path[12000] = "/v1/stat?path=/";
    memset(path + 15, 'a', 5000);
    struct reply *r = client_call(*state, "GET", path, NULL, 0);
    assert_int_equal(r->status, 400);
    reply_free(r);
    size_t len = AGENT_BODY_MAX + 1;
    _cleanup_free_ uint8_t *body = xcalloc(1, len);
    r = client_call(*state, "POST", "/v1/execs/x1", body, len);
    assert_int_equal(r->status, 413);
    reply_free(r);
    assert_alive(*state);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(hello),
                                       CASE(identity),
                                       CASE(garbage_before_the_prelude),
                                       CASE(new_prelude_at_a_frame_boundary),
                                       CASE(new_prelude_in_the_middle_of_a_frame),
                                       CASE(prelude_twice),
                                       CASE(prelude_byte_by_byte),
                                       CASE(protocol_errors_end_the_session_alone),
                                       CASE(execs_outlive_the_session),
                                       CASE(raw_throughput),
                                       CASE(malformed_requests)};
    return cmocka_run_group_tests_name("agent_session", tests, NULL, NULL);
}

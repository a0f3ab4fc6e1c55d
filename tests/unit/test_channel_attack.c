/* Unit tests of the channel's HTTP/2 client against a guest that wants harm: class G of the attack catalogue, frames
 * made by hand. Each attack runs against a session with three open streams; what breaks the protocol must end the
 * session with ERR_PROTOCOL and each stream once, and nothing may grow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "h2_peer.h"

#define STREAMS 3

struct attack {
    struct rig rig;
    struct seen seen[STREAMS]; /* streams 1, 3, 5 */
    struct buf out;            /* bytes to give */
};

static void attack_begin(struct attack *a)
{
    *a = (struct attack){0};
    rig_ready(&a->rig, NULL);
    for (int i = 0; i < STREAMS; i++) {
        a->seen[i].consume = true;
        struct channel_request r = rig_get("/");
        assert_int_equal(rig_request(&a->rig, &a->seen[i], &r), 0);
    }
    rig_output(&a->rig);
    buf_reset(&a->rig.sent);
}

static void attack_end(struct attack *a)
{
    rig_close(&a->rig);
    for (int i = 0; i < STREAMS; i++)
        assert_int_equal(a->seen[i].ends, 1);
    buf_done(&a->out);
}

/* The session is over because of the protocol, and said so. */
static void attack_refused(struct attack *a)
{
    rig_give_buf(&a->rig, &a->out);
    assert_true(a->rig.client->over);
    assert_int_equal(a->rig.client->error.code, ERR_PROTOCOL);
    assert_true(strlen(a->rig.client->error.text) > 10);
    attack_end(a);
}

static void put(struct attack *a, uint8_t type, uint8_t flags, uint32_t id, const void *payload, size_t len)
{
    frame_put(&a->out, type, flags, id, payload, len);
}

static void put_headers(struct attack *a, uint32_t id, const char *block, size_t len)
{
    put(a, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, id, block, len);
}

/* A literal header without indexing, names and values below 127 bytes. */
static void block_literal(struct buf *b, const char *name, size_t name_len, const char *value, size_t value_len)
{
    buf_put_byte(b, 0);
    buf_put_byte(b, (uint8_t)name_len);
    buf_put(b, name, name_len);
    buf_put_byte(b, (uint8_t)value_len);
    buf_put(b, value, value_len);
}

/* Give the same frame again and again; returns how many it took until the session ended, or `max`. */
static size_t flood(struct attack *a, size_t max)
{
    struct buf one = a->out;
    size_t per_read = MAX((size_t)1, 16384 / one.len), count = 0;
    struct buf many = {0};
    for (size_t i = 0; i < per_read; i++)
        buf_put(&many, buf_data(&one), one.len);
    a->out = (struct buf){0};
    buf_done(&one);
    while (count < max && rig_give(&a->rig, buf_data(&many), many.len) == 0) {
        count += per_read;
        buf_reset(&a->rig.sent);
        assert_true(a->rig.client->out.bytes < 512 * 1024);
    }
    buf_done(&many);
    return count;
}

static void flood_refused(struct attack *a, size_t allowed)
{
    size_t count = flood(a, 1000000);
    assert_true(count <= allowed);
    assert_int_equal(a->rig.client->error.code, ERR_PROTOCOL);
    attack_end(a);
}

/* --- control: the same scene without an attack ----------------------------------------------------------------------
 */

static void an_honest_agent_is_left_alone(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    for (uint32_t i = 0; i < STREAMS; i++) {
        put_headers(&a, 2 * i + 1, STATUS_200, 1);
        put(&a, NGHTTP2_PING, 0, 0, "12345678", 8);
        put(&a, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 2 * i + 1, "\0", 1);
    }
    assert_int_equal(rig_give_buf(&a.rig, &a.out), 0);
    for (int i = 0; i < STREAMS; i++)
        assert_int_equal(a.seen[i].error, 0);
    attack_end(&a);
}

/* --- G01, G02 ----------------------------------------------------------------------------------------------------- */

static void g01_what_is_no_http2(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "HTTP/1.1 200 OK\r\n\r\n",
        "\x16\x03\x01\x02\x05\x01\x01\x01\xfc\x03\x03 a TLS ClientHello and so on",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        AGENT_PRELUDE_MAGIC "0123456789abcdef",
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct attack a;
        attack_begin(&a);
        buf_put_str(&a.out, texts[i]);
        attack_refused(&a);
    }
    /* The first frame after the echo is not SETTINGS. */
    struct rig rig = {0};
    struct buf out = {0};
    rig_open(&rig, NULL);
    rig_echo(&rig);
    frame_put(&out, NGHTTP2_PING, 0, 0, "12345678", 8);
    assert_int_equal(rig_give_buf(&rig, &out), ERR_PROTOCOL);
    buf_done(&out);
    rig_close(&rig);
}

static void g02_a_byte_now_and_then(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    put(&a, NGHTTP2_PING, 0, 0, "12345678", 8);
    for (int i = 0; i < 8 && !a.rig.client->over; i++) {
        rig_give(&a.rig, buf_data(&a.out) + i, 1);
        rig_advance(&a.rig, 10000);
    }
    assert_true(a.rig.client->over); /* by the heartbeat */
    assert_int_equal(a.rig.client->error.code, ERR_TIMEOUT);
    attack_end(&a);
}

/* --- G04, G05: frames that cannot be -------------------------------------------------------------------------------
 */

static void g04_frames_over_the_maximum(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "\xff\xff\xff\x00\x00\x00\x00\x00\x01x", /* DATA, 2^24-1 */
        "\x01\x00\x01\x00\x00\x00\x00\x00\x01x", /* DATA, one more than the maximum */
        "\xff\xff\xff\x04\x00\x00\x00\x00\x00x", /* SETTINGS */
        "\xff\xff\xff\x77\x00\x00\x00\x00\x00x", /* unknown */
    };
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        struct attack a;
        attack_begin(&a);
        put_headers(&a, 1, STATUS_200, 1);
        buf_put(&a.out, heads[i], 10);
        attack_refused(&a);
    }
}

static void g04_frames_of_a_wrong_size(void **state)
{
    (void)state;
    static const struct {
        uint8_t type;
        size_t len;
    } cases[] = {{NGHTTP2_PING, 7},   {NGHTTP2_PING, 9},   {NGHTTP2_SETTINGS, 5},
                 {NGHTTP2_GOAWAY, 7}, {NGHTTP2_GOAWAY, 0}, {NGHTTP2_SETTINGS, 7}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct attack a;
        attack_begin(&a);
        put(&a, cases[i].type, 0, 0, "0123456789", cases[i].len);
        attack_refused(&a);
    }
    struct attack a;
    attack_begin(&a);
    put(&a, NGHTTP2_RST_STREAM, 0, 1, "12345", 5);
    attack_refused(&a);
    attack_begin(&a);
    put(&a, NGHTTP2_WINDOW_UPDATE, 0, 1, "12345", 5);
    attack_refused(&a);
}

static void g05_stream_ids_out_of_place(void **state)
{
    (void)state;
    static const struct {
        uint8_t type, flags;
        uint32_t id;
    } cases[] = {
        {NGHTTP2_DATA, 0, 0},       {NGHTTP2_HEADERS, 4, 0},      {NGHTTP2_HEADERS, 4, 2},  {NGHTTP2_HEADERS, 4, 7},
        {NGHTTP2_DATA, 0, 7},       {NGHTTP2_DATA, 0, 2},         {NGHTTP2_SETTINGS, 0, 1}, {NGHTTP2_RST_STREAM, 0, 0},
        {NGHTTP2_RST_STREAM, 0, 9}, {NGHTTP2_CONTINUATION, 4, 1}, {NGHTTP2_DATA, 0, 1}, /* before its header */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct attack a;
        attack_begin(&a);
        put(&a, cases[i].type, cases[i].flags, cases[i].id, cases[i].type == NGHTTP2_HEADERS ? STATUS_200 : "\0\0\0\1",
            cases[i].type == NGHTTP2_HEADERS ? 1 : 4);
        put(&a, NGHTTP2_PING, 0, 0, "12345678", 8);
        attack_refused(&a);
    }
}

/* --- G06 to G12: floods ------------------------------------------------------------------------------------------- */

static void g06_unknown_frames(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    put(&a, 0x77, 0xff, 1, "abc", 3);
    flood_refused(&a, 2000);
}

static void g07_settings_flood(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    put(&a, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    flood_refused(&a, 2000);
    attack_begin(&a);
    put(&a, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0); /* more acknowledgements than were asked for */
    flood_refused(&a, 2000);
    attack_begin(&a);
    uint8_t entries[6 * 200] = {0};
    put(&a, NGHTTP2_SETTINGS, 0, 0, entries, sizeof(entries)); /* one frame with 200 settings */
    attack_refused(&a);
}

static void g09_ping_flood(void **state)
{
    (void)state;
    for (int flags = 0; flags < 2; flags++) {
        struct attack a;
        attack_begin(&a);
        put(&a, NGHTTP2_PING, (uint8_t)flags, 0, "12345678", 8);
        flood_refused(&a, 2000);
    }
}

static void g09_pings_over_time_are_allowed(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    for (uint32_t i = 0; i < STREAMS; i++) {
        put_headers(&a, 2 * i + 1, STATUS_200, 1);
        put(&a, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 2 * i + 1, NULL, 0);
    }
    for (int i = 0; i < 1000; i++) {
        put(&a, NGHTTP2_PING, 0, 0, "12345678", 8);
        assert_int_equal(rig_give_buf(&a.rig, &a.out), 0);
        rig_advance(&a.rig, 250);
    }
    attack_end(&a);
}

static void g10_every_stream_is_reset(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    size_t count = 0;
    uint32_t id = 2 * STREAMS + 1;
    for (; count < 100000 && !a.rig.client->over; count++, id += 2) {
        struct seen seen = {0};
        struct channel_request r = rig_get("/");
        assert_int_equal(rig_request(&a.rig, &seen, &r), 0);
        rig_output(&a.rig);
        buf_reset(&a.rig.sent);
        put(&a, NGHTTP2_RST_STREAM, 0, id, "\0\0\0\x8", 4);
        if (rig_give_buf(&a.rig, &a.out) < 0)
            h2client_end(a.rig.client);
        assert_int_equal(seen.ends, 1);
    }
    assert_true(count < 2000);
    assert_int_equal(a.rig.client->error.code, ERR_PROTOCOL);
    attack_end(&a);
}

static void g10_resets_after_whole_answers_are_allowed(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    uint32_t id = 2 * STREAMS + 1;
    for (int i = 0; i < 5000; i++, id += 2) { /* a put that is refused before its body has come, again and again */
        struct seen seen = {.consume = true};
        struct channel_request r = {.method = "PUT", .target = "/", .streamed = true};
        assert_int_equal(rig_request(&a.rig, &seen, &r), 0);
        rig_output(&a.rig);
        buf_reset(&a.rig.sent);
        put(&a, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, id, STATUS_200, 1);
        put(&a, NGHTTP2_RST_STREAM, 0, id, "\0\0\0\0", 4);
        assert_int_equal(rig_give_buf(&a.rig, &a.out), 0);
        assert_int_equal(seen.error, 0);
    }
    attack_end(&a);
}

static void g11_provoked_resets(void **state)
{
    (void)state;
    /* A window update of zero on a stream; one that overflows; data after the end. */
    for (int kind = 0; kind < 3; kind++) {
        struct attack a;
        attack_begin(&a);
        put_headers(&a, 1, STATUS_200, 1);
        if (kind == 0) {
            put(&a, NGHTTP2_WINDOW_UPDATE, 0, 1, "\0\0\0\0", 4);
        } else if (kind == 1) {
            put(&a, NGHTTP2_WINDOW_UPDATE, 0, 1, "\x7f\xff\xff\xff", 4);
            put(&a, NGHTTP2_WINDOW_UPDATE, 0, 0, "\x7f\xff\xff\xff", 4);
        } else {
            rig_give_buf(&a.rig, &a.out);
            static uint8_t zeros[16000];
            put(&a, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, zeros, sizeof(zeros));
            flood_refused(&a, 64);
            continue;
        }
        attack_refused(&a);
    }
}

static void g11_data_for_streams_that_are_gone(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    struct seen seen = {0};
    struct channel_request r = rig_get("/");
    assert_int_equal(rig_request(&a.rig, &seen, &r), 0);
    rig_output(&a.rig);
    channel_stream_cancel(seen.stream);
    rig_output(&a.rig);
    static uint8_t zeros[16000];
    put(&a, NGHTTP2_DATA, 0, 7, zeros, sizeof(zeros));
    size_t count = flood(&a, 10000);
    assert_true(count >= 16 && count <= 64); /* a window may have been under way, not much more */
    assert_int_equal(a.rig.client->error.code, ERR_PROTOCOL);
    attack_end(&a);
}

static void g12_continuation_flood(void **state)
{
    (void)state;
    for (int empty = 0; empty < 2; empty++) {
        struct attack a;
        attack_begin(&a);
        put(&a, NGHTTP2_HEADERS, 0, 1, STATUS_200, 1);
        assert_int_equal(rig_give_buf(&a.rig, &a.out), 0);
        put(&a, NGHTTP2_CONTINUATION, 0, 1, "\0\1a\1b", empty ? 0 : 5);
        flood_refused(&a, 10);
    }
    /* Few but large ones. */
    struct attack a;
    attack_begin(&a);
    static uint8_t block[16000];
    memset(block, 0x88, sizeof(block));
    put(&a, NGHTTP2_HEADERS, 0, 1, STATUS_200, 1);
    put(&a, NGHTTP2_CONTINUATION, 0, 1, block, 8000);
    put(&a, NGHTTP2_CONTINUATION, 0, 1, block, 9000);
    attack_refused(&a);
    /* Something else between. */
    attack_begin(&a);
    put(&a, NGHTTP2_HEADERS, 0, 1, STATUS_200, 1);
    put(&a, NGHTTP2_PING, 0, 0, "12345678", 8);
    attack_refused(&a);
}

/* --- G14 to G19: slow and heavy -------------------------------------------------------------------------------------
 */

static void g14_window_updates_of_one_byte(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    struct seen seen = {0};
    static uint8_t body[128 * 1024];
    struct channel_request r = {
        .method = "PUT", .target = "/", .body = body, .body_len = sizeof(body), .total_timeout_ms = 60000};
    assert_int_equal(rig_request(&a.rig, &seen, &r), 0);
    rig_output(&a.rig);
    put(&a, NGHTTP2_WINDOW_UPDATE, 0, 7, "\0\0\0\1", 4);
    size_t count = flood(&a, 1000000);
    assert_true(count < 10000);
    assert_int_equal(a.rig.client->error.code, ERR_PROTOCOL);
    attack_end(&a);
    assert_int_equal(seen.ends, 1);
    /* Slowly, so that no budget ends it: its deadline does. */
    attack_begin(&a);
    seen = (struct seen){0};
    assert_int_equal(rig_request(&a.rig, &seen, &r), 0);
    rig_output(&a.rig);
    for (int i = 0; i < 59 && !seen.ends; i++) {
        put(&a, NGHTTP2_WINDOW_UPDATE, 0, 7, "\0\0\0\1", 4);
        put(&a, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "\0\0\0\0\0\0\0\1", 8);
        a.out.mem[a.out.start + a.out.len - 1] = (uint8_t)a.rig.client->ping_count;
        assert_int_equal(rig_give_buf(&a.rig, &a.out), 0);
        rig_advance(&a.rig, 1000);
    }
    assert_int_equal(seen.ends, 0);
    rig_advance(&a.rig, 1000);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.error, ERR_TIMEOUT);
    attack_end(&a);
}

static void g14_header_bomb(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    /* A header of 3,000 bytes into the table, then references to it of one byte each. */
    struct buf block = {0};
    buf_put(&block, STATUS_200 "\x40\x01x\x7f\xb9\x16", 7);
    for (int i = 0; i < 3000; i++)
        buf_put_byte(&block, 'v');
    for (int i = 0; i < 1000; i++)
        buf_put_byte(&block, 0xbe);
    put_headers(&a, 1, (const char *)buf_data(&block), block.len);
    buf_done(&block);
    attack_refused(&a);
    assert_int_equal(a.seen[0].responses, 0);
    /* Many small ones. */
    attack_begin(&a);
    buf_put(&block, STATUS_200, 1);
    for (int i = 0; i < 200; i++)
        block_literal(&block, "a", 1, "", 0);
    put_headers(&a, 1, (const char *)buf_data(&block), block.len);
    buf_done(&block);
    attack_refused(&a);
}

static void g15_broken_compression(void **state)
{
    (void)state;
    static const struct {
        const char *block;
        size_t len;
    } cases[] = {
        {"\x80", 1},                         /* index 0 */
        {"\xff\x80\x01", 3},                 /* index beyond the table */
        {"\x88\x3f\xe1\xff\x03", 5},         /* table size update after a field, above the limit */
        {"\x3f\xe1\xff\xff\xff\x07\x88", 7}, /* … at the start, above the limit */
        {"\x88\x00\x81\xff\x01z", 6},        /* Huffman padding that is none */
        {"\x88\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 13}, /* an integer without an end */
        {"\x88\x00\x05"
         "ab",
         5}, /* a string that is cut off */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct attack a;
        attack_begin(&a);
        put_headers(&a, 1, cases[i].block, cases[i].len);
        attack_refused(&a);
        assert_int_equal(a.seen[0].responses, 0);
    }
    struct attack a;
    attack_begin(&a);
    struct buf block = {0};
    buf_put(&block, "\x88\x00\x7f", 3);
    for (int i = 0; i < 40; i++)
        buf_put_byte(&block, 0x80);
    put_headers(&a, 1, (const char *)buf_data(&block), block.len);
    buf_done(&block);
    attack_refused(&a);
}

static void g16_headers_that_are_not_valid(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t name_len;
        const char *value;
        size_t value_len;
    } cases[] = {
        {"Upper", 5, "x", 1},
        {"a\0b", 3, "x", 1},
        {"a\rb", 3, "x", 1},
        {"a\nb", 3, "x", 1},
        {"a:b", 3, "x", 1},
        {"", 0, "x", 1},
        {"a b", 3, "x", 1},
        {"a", 1, "x\0y", 3},
        {"a", 1, "x\r\ny: z", 7},
        {"a", 1, "x\ny", 3},
        {":status", 7, "200", 3},
        {":method", 7, "GET", 3},
        {":path", 5, "/", 1},
        {"connection", 10, "x", 1},
        {"transfer-encoding", 17, "chunked", 7},
        {"content-length", 14, "-1", 2},
        {"content-length", 14, "99999999999999999999", 20},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct attack a;
        struct buf block = {0};
        attack_begin(&a);
        buf_put(&block, STATUS_200, 1);
        block_literal(&block, cases[i].name, cases[i].name_len, cases[i].value, cases[i].value_len);
        put_headers(&a, 1, (const char *)buf_data(&block), block.len);
        buf_done(&block);
        attack_refused(&a);
        assert_int_equal(a.seen[0].responses, 0);
    }
}

static void g16_status_that_is_none(void **state)
{
    (void)state;
    static const char *const values[] = {"20", "2000", "abc", "-20", "2 0", "", "100", "103", "101"};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct attack a;
        struct buf block = {0};
        attack_begin(&a);
        block_literal(&block, ":status", 7, values[i], strlen(values[i]));
        put_headers(&a, 1, (const char *)buf_data(&block), block.len);
        buf_done(&block);
        attack_refused(&a);
        assert_int_equal(a.seen[0].responses, 0);
    }
    struct attack a;
    attack_begin(&a);
    struct buf block = {0};
    block_literal(&block, "a", 1, "b", 1); /* none at all */
    put_headers(&a, 1, (const char *)buf_data(&block), block.len);
    attack_refused(&a);
    attack_begin(&a);
    buf_put(&block, STATUS_200, 1); /* after another header */
    put_headers(&a, 1, (const char *)buf_data(&block), block.len);
    buf_done(&block);
    attack_refused(&a);
}

static void g17_empty_and_padded_frames(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    put_headers(&a, 1, STATUS_200, 1);
    rig_give_buf(&a.rig, &a.out);
    put(&a, NGHTTP2_DATA, 0, 1, NULL, 0);
    flood_refused(&a, 2500);
    /* All padding. */
    attack_begin(&a);
    put_headers(&a, 1, STATUS_200, 1);
    rig_give_buf(&a.rig, &a.out);
    static uint8_t padding[256] = {255};
    put(&a, NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, padding, sizeof(padding));
    flood_refused(&a, 200);
    /* More padding than payload. */
    attack_begin(&a);
    put_headers(&a, 1, STATUS_200, 1);
    put(&a, NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, "\x20xx", 3);
    attack_refused(&a);
    attack_begin(&a);
    put(&a, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_PADDED, 1, "\x20" STATUS_200, 2);
    attack_refused(&a);
    /* Header blocks without end. */
    attack_begin(&a);
    put_headers(&a, 1, NULL, 0);
    flood_refused(&a, 2000);
}

static void g17_data_beyond_the_window(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    a.seen[0].consume = false;
    put(&a, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
    put_headers(&a, 1, STATUS_200, 1);
    rig_give_buf(&a.rig, &a.out);
    static uint8_t zeros[16384];
    put(&a, NGHTTP2_DATA, 0, 1, zeros, sizeof(zeros));
    size_t count = flood(&a, 1000);
    assert_int_equal(count, 16); /* the window of 256 KiB */
    assert_int_equal(a.rig.client->error.code, ERR_PROTOCOL);
    attack_end(&a);
}

static void g19_peer_with_a_window_of_one_byte(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    put(&a, NGHTTP2_SETTINGS, 0, 0, "\0\4\0\0\0\1", 6);
    rig_give_buf(&a.rig, &a.out);
    struct seen seen = {0};
    struct channel_request r = {.method = "PUT", .target = "/", .streamed = true, .idle_timeout_ms = 20000};
    assert_int_equal(rig_request(&a.rig, &seen, &r), 0);
    static uint8_t body[1024 * 1024];
    assert_int_equal(channel_stream_write(seen.stream, body, sizeof(body)), 128 * 1024);
    rig_output(&a.rig);
    assert_int_equal(channel_stream_write(seen.stream, body, sizeof(body)), 1);
    for (int i = 0; i < 25 && !seen.ends; i++) {
        put(&a, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "\0\0\0\0\0\0\0\0", 8);
        a.out.mem[a.out.start + a.out.len - 1] = (uint8_t)a.rig.client->ping_count;
        rig_give_buf(&a.rig, &a.out);
        rig_advance(&a.rig, 1000);
    }
    assert_int_equal(seen.error, ERR_TIMEOUT);
    assert_false(a.rig.client->over);
    attack_end(&a);
}

/* --- G20 to G34 --------------------------------------------------------------------------------------------------- */

static void g20_priority_flood(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    put(&a, NGHTTP2_PRIORITY, 0, 1, "\0\0\0\3\xff", 5);
    put(&a, NGHTTP2_PRIORITY, 0, 3, "\0\0\0\1\xff", 5);
    flood_refused(&a, 2000);
    attack_begin(&a);
    put(&a, NGHTTP2_PRIORITY, 0, 1, "\0\0\0\1\xff", 5); /* on itself */
    flood_refused(&a, 2000);
}

static void g21_push_promise(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    put(&a, NGHTTP2_PUSH_PROMISE, NGHTTP2_FLAG_END_HEADERS, 1, "\0\0\0\2\x82\x84\x86", 7);
    attack_refused(&a);
}

static void g22_goaway(void **state)
{
    (void)state;
    static const char *const payloads[] = {
        "\0\0\0\1\0\0\0\0",         /* mid-stream */
        "\0\0\0\0\0\0\0\0",         /* nothing was handled */
        "\x7f\xff\xff\xff\0\0\0\0", /* above any used */
        "\0\0\0\2\0\0\0\1",         /* a stream of the wrong side */
    };
    for (size_t i = 0; i < ARRAY_LEN(payloads); i++) {
        struct attack a;
        attack_begin(&a);
        put_headers(&a, 1, STATUS_200, 1);
        put(&a, NGHTTP2_GOAWAY, 0, 0, payloads[i], 8);
        put(&a, NGHTTP2_GOAWAY, 0, 0, payloads[i], 8);
        attack_refused(&a);
    }
}

static void g26_answers_that_do_not_end_well(void **state)
{
    (void)state;
    struct attack a;
    /* Trailers. */
    attack_begin(&a);
    put_headers(&a, 1, STATUS_200, 1);
    put(&a, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 1, "\0\1a\1b", 5);
    attack_refused(&a);
    /* A second response. */
    attack_begin(&a);
    put_headers(&a, 1, STATUS_200, 1);
    put_headers(&a, 1, STATUS_200, 1);
    attack_refused(&a);
    /* Another length than promised: too long, too short. */
    for (int kind = 0; kind < 2; kind++) {
        struct buf block = {0};
        attack_begin(&a);
        buf_put(&block, STATUS_200, 1);
        block_literal(&block, "content-length", 14, "4", 1);
        put_headers(&a, 1, (const char *)buf_data(&block), block.len);
        put(&a, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, "\0\0\0\0\0", kind ? 3 : 5);
        buf_done(&block);
        attack_refused(&a);
    }
}

static void g29_answers_nobody_asked_for(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    put_headers(&a, 1, STATUS_200, 1);
    put(&a, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, NULL, 0);
    put_headers(&a, 1, STATUS_200, 1); /* the same answer twice */
    rig_give_buf(&a.rig, &a.out);
    assert_int_equal(a.seen[0].responses, 1);
    assert_int_equal(a.seen[0].ends, 1);
    attack_end(&a);
    for (int i = 1; i < STREAMS; i++)
        assert_int_equal(a.seen[i].responses, 0);
}

static void g34_the_guest_asks(void **state)
{
    (void)state;
    struct attack a;
    attack_begin(&a);
    put(&a, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 2, "\x82\x84\x86", 3);
    attack_refused(&a);
    attack_begin(&a);
    put(&a, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 7, "\x82\x84\x86", 3);
    attack_refused(&a);
}

/* --- G39 ---------------------------------------------------------------------------------------------------------- */

static void g39_the_machine_dies_at_every_byte(void **state)
{
    (void)state;
    size_t total = SIZE_MAX;
    for (size_t cut = 0; cut <= total; cut++) {
        struct attack a;
        attack_begin(&a);
        put_headers(&a, 1, STATUS_200, 1);
        put(&a, NGHTTP2_DATA, 0, 1, "\0\x1f\x3e", 3);
        put(&a, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
        put(&a, NGHTTP2_HEADERS, 0, 3, STATUS_200, 1);
        put(&a, NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 3, "\0\1a\1b", 5);
        put(&a, NGHTTP2_PING, 0, 0, "12345678", 8);
        put(&a, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 3, "\0", 1);
        put(&a, NGHTTP2_RST_STREAM, 0, 5, "\0\0\0\2", 4);
        total = a.out.len;
        assert_int_equal(rig_give(&a.rig, buf_data(&a.out), cut), 0);
        struct err e;
        err_set(&e, ERR_GONE, "the machine ended");
        h2client_fail(a.rig.client, &e);
        h2client_end(a.rig.client);
        attack_end(&a);
        assert_int_equal(a.seen[0].error, ERR_GONE);
    }
}

static void every_split_of_the_bytes_reads_the_same(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 40; piece++) {
        struct attack a;
        attack_begin(&a);
        for (uint32_t i = 0; i < STREAMS; i++) {
            put_headers(&a, 2 * i + 1, STATUS_200, 1);
            put(&a, NGHTTP2_DATA, 0, 2 * i + 1, "\0\x1f\x3e", 3);
            put(&a, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 2 * i + 1, NULL, 0);
        }
        for (size_t at = 0; at < a.out.len; at += piece)
            assert_int_equal(rig_give(&a.rig, buf_data(&a.out) + at, MIN(piece, a.out.len - at)), 0);
        for (int i = 0; i < STREAMS; i++) {
            assert_int_equal(a.seen[i].bytes, 3);
            assert_false(a.seen[i].wrong);
        }
        attack_end(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_agent_is_left_alone),
        cmocka_unit_test(g01_what_is_no_http2),
        cmocka_unit_test(g02_a_byte_now_and_then),
        cmocka_unit_test(g04_frames_over_the_maximum),
        cmocka_unit_test(g04_frames_of_a_wrong_size),
        cmocka_unit_test(g05_stream_ids_out_of_place),
        cmocka_unit_test(g06_unknown_frames),
        cmocka_unit_test(g07_settings_flood),
        cmocka_unit_test(g09_ping_flood),
        cmocka_unit_test(g09_pings_over_time_are_allowed),
        cmocka_unit_test(g10_every_stream_is_reset),
        cmocka_unit_test(g10_resets_after_whole_answers_are_allowed),
        cmocka_unit_test(g11_provoked_resets),
        cmocka_unit_test(g11_data_for_streams_that_are_gone),
        cmocka_unit_test(g12_continuation_flood),
        cmocka_unit_test(g14_window_updates_of_one_byte),
        cmocka_unit_test(g14_header_bomb),
        cmocka_unit_test(g15_broken_compression),
        cmocka_unit_test(g16_headers_that_are_not_valid),
        cmocka_unit_test(g16_status_that_is_none),
        cmocka_unit_test(g17_empty_and_padded_frames),
        cmocka_unit_test(g17_data_beyond_the_window),
        cmocka_unit_test(g19_peer_with_a_window_of_one_byte),
        cmocka_unit_test(g20_priority_flood),
        cmocka_unit_test(g21_push_promise),
        cmocka_unit_test(g22_goaway),
        cmocka_unit_test(g26_answers_that_do_not_end_well),
        cmocka_unit_test(g29_answers_nobody_asked_for),
        cmocka_unit_test(g34_the_guest_asks),
        cmocka_unit_test(g39_the_machine_dies_at_every_byte),
        cmocka_unit_test(every_split_of_the_bytes_reads_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

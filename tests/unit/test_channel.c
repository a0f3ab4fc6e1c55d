/* Unit tests of the channel's HTTP/2 client: the ordinary course of streams. Hostile peers are in
 * test_channel_attack.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "h2_peer.h"

/* --- start of a session ------------------------------------------------------------------------------------------- */

static void resync_finds_the_echo_among_rubbish(void **state)
{
    (void)state;
    struct rig rig = {0};
    rig_open(&rig, NULL);
    rig_output(&rig);
    assert_int_equal(rig.sent.len, AGENT_PRELUDE_SIZE);
    assert_memory_equal(buf_data(&rig.sent), AGENT_PRELUDE_MAGIC, AGENT_MAGIC_SIZE);
    uint8_t echo[AGENT_PRELUDE_SIZE];
    memcpy(echo, buf_data(&rig.sent), sizeof(echo));
    buf_reset(&rig.sent);
    /* Rubbish, beginnings of the echo, a broken one, then the echo byte by byte. */
    assert_int_equal(rig_give(&rig, "\0\0rubbishSPACE-AGENT-", 21), 0);
    assert_int_equal(rig_give(&rig, echo, 31), 0);
    assert_int_equal(rig_give(&rig, "SPACE-AGENT-v1\r", 15), 0);
    for (size_t i = 0; i < sizeof(echo); i++) {
        assert_false(rig.client->ready);
        assert_int_equal(rig.sent.len, 0);
        rig_give(&rig, echo + i, 1);
    }
    assert_true(rig.client->ready);
    assert_memory_equal(buf_data(&rig.sent), NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    rig_close(&rig);
}

static void resync_takes_the_echo_of_the_last_prelude_alone(void **state)
{
    (void)state;
    struct rig rig = {0};
    rig_open(&rig, NULL);
    rig_output(&rig);
    uint8_t first[AGENT_PRELUDE_SIZE];
    memcpy(first, buf_data(&rig.sent), sizeof(first));
    rig_advance(&rig, 1000);
    assert_int_equal(rig.sent.len, 2 * AGENT_PRELUDE_SIZE + AGENT_RESYNC_FLUSH);
    rig_give(&rig, first, sizeof(first));
    rig_give(&rig, "\0\0\0\4\0\0\0\0\0", 9);
    assert_false(rig.client->ready);
    rig_echo(&rig);
    assert_true(rig.client->ready);
    rig_close(&rig);
}

static void resync_gives_up(void **state)
{
    (void)state;
    struct rig rig = {0};
    rig_open(&rig, NULL);
    struct seen seen = {0};
    assert_int_equal(rig_request(&rig, &seen, &(struct channel_request){.method = "GET", .target = "/v1/hello"}), 0);
    rig_advance(&rig, 4999);
    assert_false(rig.client->over);
    rig_advance(&rig, 1);
    assert_int_equal(rig.client->error.code, ERR_TIMEOUT);
    h2client_end(rig.client);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.error, ERR_TIMEOUT);
    rig_close(&rig);
    assert_int_equal(seen.ends, 1);
}

static void resync_bounds_what_it_throws_away(void **state)
{
    (void)state;
    struct rig rig = {0};
    rig_open(&rig, NULL);
    static uint8_t rubbish[65536];
    size_t given = 0;
    while (rig_give(&rig, rubbish, sizeof(rubbish)) == 0)
        given += sizeof(rubbish);
    assert_int_equal(rig.client->error.code, ERR_PROTOCOL);
    assert_true(given <= AGENT_RESYNC_DISCARD_MAX);
    rig_close(&rig);
}

/* --- requests and responses --------------------------------------------------------------------------------------- */

static void answer_small(struct rig *rig, int32_t id)
{
    server_answer(rig, id, 1000);
}

static void request_made_before_the_echo_is_answered(void **state)
{
    (void)state;
    struct rig rig = {.on_request_end = answer_small};
    struct seen seen = {.consume = true};
    rig_serve(&rig, NULL);
    struct channel_request r = rig_get("/v1/x?path=%20");
    r.headers = &(struct channel_header){"space-a", "b"};
    r.header_count = 1;
    assert_int_equal(rig_request(&rig, &seen, &r), 0);
    assert_int_equal(seen.responses, 0); /* nothing is called from within the call */
    rig_pump(&rig);
    assert_int_equal(seen.status, 200);
    assert_int_equal(seen.headers, 1);
    assert_string_equal(seen.first_header, "space-size: 12");
    assert_int_equal(seen.bytes, 1000);
    assert_false(seen.wrong);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.error, 0);
    assert_int_equal(rig.client->stream_count, 0);
    rig_close(&rig);
}

static void request_that_cannot_be_sent_is_refused(void **state)
{
    (void)state;
    struct rig rig = {0};
    struct seen seen = {0};
    rig_ready(&rig, NULL);
    _cleanup_free_ char *large = xmalloc(20000);
    memset(large, 'a', 19999);
    large[19999] = '\0';
    struct channel_request r = rig_get("/a b");
    assert_int_equal(rig_request(&rig, &seen, &r), ERR_INVALID);
    r.target = "/\r\nx: y";
    assert_int_equal(rig_request(&rig, &seen, &r), ERR_INVALID);
    r.target = "";
    assert_int_equal(rig_request(&rig, &seen, &r), ERR_INVALID);
    r.target = large;
    assert_int_equal(rig_request(&rig, &seen, &r), ERR_TOO_LARGE);
    r.target = "/";
    r.body = large;
    r.body_len = 1024 * 1024;
    assert_int_equal(rig_request(&rig, &seen, &r), ERR_TOO_LARGE);
    assert_int_equal(rig.client->stream_count, 0);
    rig_close(&rig);
    assert_int_equal(seen.ends, 0);
}

static void streams_are_limited(void **state)
{
    (void)state;
    struct rig rig = {0};
    struct seen seen[65] = {0};
    rig_serve(&rig, NULL);
    struct channel_request r = rig_get("/");
    for (int i = 0; i < 64; i++)
        assert_int_equal(rig_request(&rig, &seen[i], &r), 0);
    assert_int_equal(rig_request(&rig, &seen[64], &r), ERR_LIMIT);
    channel_stream_cancel(seen[7].stream);
    assert_int_equal(rig_request(&rig, &seen[64], &r), 0);
    rig_close(&rig);
    for (int i = 0; i < 65; i++)
        assert_int_equal(seen[i].ends, i == 7 ? 0 : 1);
}

/* --- request bodies ----------------------------------------------------------------------------------------------- */

static uint64_t written;

static void write_more(struct seen *seen, const char *event)
{
    (void)event;
    static uint8_t piece[50000];
    while (written < 3000000) {
        size_t n = (size_t)MIN(sizeof(piece), 3000000 - written);
        for (size_t i = 0; i < n; i++)
            piece[i] = pattern_byte(written + i);
        size_t taken = channel_stream_write(seen->stream, piece, n);
        written += taken;
        if (taken < n)
            return;
    }
    channel_stream_write_end(seen->stream);
}

static void write_on_drain(struct seen *seen, const char *event)
{
    if (strcmp(event, "drain") == 0)
        write_more(seen, event);
}

static void body_is_written_with_back_pressure(void **state)
{
    (void)state;
    struct rig rig = {.on_request_end = answer_small};
    struct seen seen = {.consume = true, .then = write_on_drain};
    rig_serve(&rig, NULL);
    written = 0;
    assert_int_equal(
        rig_request(&rig, &seen, &(struct channel_request){.method = "PUT", .target = "/", .streamed = true}), 0);
    write_more(&seen, "start");
    assert_int_equal(written, 128 * 1024); /* body_max of the options */
    assert_int_equal(channel_stream_writable(seen.stream), 0);
    assert_int_equal(seen.drains, 0);
    rig_pump(&rig);
    assert_int_equal(written, 3000000);
    assert_int_equal(rig.server_received, 3000000);
    assert_false(rig.server_wrong);
    assert_true(seen.drains > 10);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.error, 0);
    rig_close(&rig);
}

static void body_waits_for_the_peer_window(void **state)
{
    (void)state;
    struct rig rig = {.server_holds = true};
    struct seen seen = {.then = write_on_drain};
    rig_serve(&rig, NULL);
    written = 0;
    struct channel_request r = {.method = "PUT", .target = "/", .streamed = true, .idle_timeout_ms = 60000};
    assert_int_equal(rig_request(&rig, &seen, &r), 0);
    write_more(&seen, "start");
    rig_pump(&rig);
    assert_int_equal(rig.server_received, 65535);
    assert_true(written <= 65535 + 128 * 1024);
    /* A guest that takes nothing for the idle time is to blame. */
    rig_advance(&rig, 59000);
    assert_int_equal(seen.ends, 0);
    rig_advance(&rig, 2000);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.error, ERR_TIMEOUT);
    assert_int_equal(rig.server_resets, 1);
    assert_false(rig.client->over);
    rig_close(&rig);
}

static void whole_body_is_sent(void **state)
{
    (void)state;
    struct rig rig = {.on_request_end = answer_small};
    struct seen seen = {.consume = true};
    static uint8_t body[100000];
    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = pattern_byte(i);
    rig_serve(&rig, NULL);
    struct channel_request r = {.method = "POST", .target = "/", .body = body, .body_len = sizeof(body)};
    assert_int_equal(rig_request(&rig, &seen, &r), 0);
    rig_pump(&rig);
    assert_int_equal(rig.server_received, sizeof(body));
    assert_false(rig.server_wrong);
    assert_int_equal(seen.ends, 1);
    rig_close(&rig);
}

static void early_answer_ends_the_request(void **state)
{
    (void)state;
    struct rig rig = {.on_request = answer_small};
    struct seen seen = {.consume = true};
    rig_serve(&rig, NULL);
    assert_int_equal(
        rig_request(&rig, &seen, &(struct channel_request){.method = "PUT", .target = "/", .streamed = true}), 0);
    channel_stream_write(seen.stream, "abc", 3);
    rig_pump(&rig);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.error, 0);
    assert_int_equal(rig.server_resets, 1);
    assert_int_equal(rig.client->stream_count, 0);
    rig_close(&rig);
}

static void close_own_side(struct seen *seen, const char *event)
{
    if (strcmp(event, "read_end") == 0) {
        assert_int_equal(channel_stream_write(seen->stream, "\0\x1f", 2), 2);
        channel_stream_write_end(seen->stream);
    }
}

static void both_directions_end_by_themselves(void **state)
{
    (void)state;
    struct rig rig = {.on_request = answer_small};
    struct seen seen = {.consume = true, .then = close_own_side};
    rig_serve(&rig, NULL);
    struct channel_request r = {.method = "CONNECT", .target = "127.0.0.1:80", .streamed = true, .both_ways = true};
    assert_int_equal(rig_request(&rig, &seen, &r), 0);
    rig_pump(&rig);
    assert_int_equal(seen.read_ends, 1);
    assert_int_equal(rig.server_received, 2);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.error, 0);
    rig_close(&rig);
}

/* --- flow control ------------------------------------------------------------------------------------------------- */

static void answer_large(struct rig *rig, int32_t id)
{
    server_answer(rig, id, 2000000);
}

static void slow_owner_slows_its_stream_alone(void **state)
{
    (void)state;
    struct rig rig = {.on_request_end = answer_large};
    struct seen slow[3] = {0}, quick = {.consume = true};
    rig_serve(&rig, NULL);
    struct channel_request r = rig_get("/");
    r.idle_timeout_ms = 1000;
    for (int i = 0; i < 3; i++)
        assert_int_equal(rig_request(&rig, &slow[i], &r), 0);
    rig_pump(&rig);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(slow[i].bytes, 256 * 1024); /* the window */
        assert_int_equal(channel_stream_held(slow[i].stream), 256 * 1024);
    }
    /* Another stream moves all it has meanwhile, and the guest is not blamed for what the owners do not take. */
    rig_advance(&rig, 5000);
    assert_int_equal(rig_request(&rig, &quick, &r), 0);
    rig_pump(&rig);
    assert_int_equal(quick.bytes, 2000000);
    assert_int_equal(quick.ends, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(slow[i].bytes, 256 * 1024);
        while (!slow[i].ends) {
            channel_stream_consume(slow[i].stream, 100000);
            rig_pump(&rig);
        }
        assert_int_equal(slow[i].bytes, 2000000);
        assert_false(slow[i].wrong);
        assert_int_equal(slow[i].error, 0);
    }
    assert_int_equal(rig.client->held, 0);
    assert_int_equal(rig.client->owed, 0);
    rig_close(&rig);
}

static void what_owners_hold_is_bounded_in_all(void **state)
{
    (void)state;
    struct rig rig = {.on_request_end = answer_large};
    struct seen slow[40] = {0};
    rig_serve(&rig, NULL);
    struct channel_request r = rig_get("/");
    for (int i = 0; i < 40; i++)
        assert_int_equal(rig_request(&rig, &slow[i], &r), 0);
    rig_pump(&rig);
    /* held_max of the options and what the connection's window lets through beyond it. */
    assert_true(rig.client->held <= 1024 * 1024 + AGENT_CONNECTION_WINDOW);
    assert_true(rig.client->held > 1024 * 1024);
    for (int i = 0; i < 40; i += 2)
        channel_stream_cancel(slow[i].stream);
    for (int left = 20, guard = 0; left > 0 && guard < 1000; guard++) {
        left = 0;
        for (int i = 1; i < 40; i += 2) {
            if (!slow[i].ends)
                channel_stream_consume(slow[i].stream, slow[i].bytes);
            left += !slow[i].ends;
        }
        rig_pump(&rig);
    }
    for (int i = 1; i < 40; i += 2) {
        assert_int_equal(slow[i].bytes, 2000000);
        assert_int_equal(slow[i].error, 0);
    }
    assert_int_equal(rig.client->held, 0);
    assert_int_equal(rig.client->owed, 0);
    rig_close(&rig);
}

/* --- ends --------------------------------------------------------------------------------------------------------- */

static const char *cancel_at;

static void cancel_in(struct seen *seen, const char *event)
{
    if (strcmp(event, cancel_at) != 0)
        return;
    if (seen->other) {
        struct seen *other = seen->other;
        if (!other->ends && other->stream)
            channel_stream_cancel(other->stream);
        other->stream = NULL;
    }
    channel_stream_cancel(seen->stream);
}

static void cancelling_inside_a_callback_is_safe(void **state)
{
    (void)state;
    const char *const events[] = {"response", "data", "read_end", "drain", "end"};
    for (size_t k = 0; k < ARRAY_LEN(events); k++) {
        struct rig rig = {.on_request = answer_large};
        struct seen a = {.consume = true, .then = cancel_in}, b = {.consume = true}, c = {.consume = true};
        cancel_at = events[k];
        a.other = &b;
        rig_serve(&rig, NULL);
        struct channel_request r = {
            .method = "PUT", .target = "/", .streamed = true, .both_ways = strcmp(events[k], "read_end") == 0};
        static uint8_t zeros[200000];
        assert_int_equal(rig_request(&rig, &a, &r), 0);
        r.both_ways = false;
        assert_int_equal(rig_request(&rig, &b, &r), 0);
        assert_int_equal(rig_request(&rig, &c, &r), 0);
        channel_stream_write(a.stream, zeros, sizeof(zeros));
        rig_pump(&rig);
        assert_int_equal(c.ends, 1);
        assert_int_equal(c.error, 0);
        assert_int_equal(c.bytes, 2000000);
        assert_int_equal(a.ends, strcmp(events[k], "end") == 0 || strcmp(events[k], "drain") == 0 ? a.ends : 0);
        assert_false(rig.client->over);
        rig_close(&rig);
    }
}

static void answer_after_cancel_goes_nowhere(void **state)
{
    (void)state;
    struct rig rig = {0};
    struct seen a = {0}, b = {.consume = true};
    rig_ready(&rig, NULL);
    struct channel_request r = rig_get("/");
    assert_int_equal(rig_request(&rig, &a, &r), 0);
    rig_output(&rig);
    channel_stream_cancel(a.stream);
    assert_int_equal(rig_request(&rig, &b, &r), 0);
    rig_output(&rig);
    struct buf out = {0};
    uint8_t data[100];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = pattern_byte(i);
    frame_put(&out, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, STATUS_200, 1);
    frame_put(&out, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, data, sizeof(data));
    frame_put(&out, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 3, STATUS_200, 1);
    frame_put(&out, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 3, data, sizeof(data));
    assert_int_equal(rig_give_buf(&rig, &out), 0);
    assert_int_equal(a.responses + a.datas + a.ends, 0);
    assert_int_equal(b.ends, 1);
    assert_int_equal(b.bytes, 100);
    buf_done(&out);
    rig_close(&rig);
}

static void reset_by_the_guest_ends_one_stream(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        int error;
    } cases[] = {{NGHTTP2_INTERNAL_ERROR, ERR_PROTOCOL},
                 {NGHTTP2_REFUSED_STREAM, ERR_LIMIT},
                 {NGHTTP2_CONNECT_ERROR, ERR_GONE},
                 {NGHTTP2_NO_ERROR, ERR_PROTOCOL},
                 {NGHTTP2_CANCEL, ERR_PROTOCOL}};
    struct rig rig = {0};
    rig_ready(&rig, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct seen seen = {0};
        struct channel_request r = rig_get("/");
        assert_int_equal(rig_request(&rig, &seen, &r), 0);
        rig_output(&rig);
        struct buf out = {0};
        uint8_t code[4] = {0, 0, 0, (uint8_t)cases[i].code};
        frame_put(&out, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, (uint32_t)(2 * i + 1), STATUS_200, 1);
        frame_put(&out, NGHTTP2_RST_STREAM, 0, (uint32_t)(2 * i + 1), code, 4);
        assert_int_equal(rig_give_buf(&rig, &out), 0);
        assert_int_equal(seen.ends, 1);
        assert_int_equal(seen.error, cases[i].error);
        buf_done(&out);
    }
    rig_close(&rig);
}

static void request_in(struct seen *seen, const char *event)
{
    struct rig *rig = seen->other;
    if (strcmp(event, "end") == 0) {
        struct channel_request r = rig_get("/");
        assert_int_equal(rig_request(rig, seen, &r), ERR_STATE);
    }
}

static void end_of_the_session_ends_each_stream_once(void **state)
{
    (void)state;
    struct rig rig = {0};
    struct seen seen[10] = {0};
    rig_serve(&rig, NULL);
    struct channel_request r = {.method = "PUT", .target = "/", .streamed = true};
    for (int i = 0; i < 10; i++) {
        seen[i].then = request_in;
        seen[i].other = &rig;
        assert_int_equal(rig_request(&rig, &seen[i], &r), 0);
    }
    rig_pump(&rig);
    struct err e;
    err_set(&e, ERR_GONE, "the machine ended");
    h2client_fail(rig.client, &e);
    assert_int_equal(seen[0].ends, 0); /* called by h2client_end alone */
    assert_int_equal(channel_stream_write(seen[0].stream, "abc", 3), 3);
    channel_stream_write_end(seen[0].stream);
    channel_stream_consume(seen[0].stream, 10);
    channel_stream_cancel(seen[1].stream);
    h2client_end(rig.client);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(seen[i].ends, i == 1 ? 0 : 1);
        assert_int_equal(seen[i].error, i == 1 ? 0 : ERR_GONE);
    }
    rig_close(&rig);
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static void deadlines_end_a_stream(void **state)
{
    (void)state;
    struct rig rig = {.on_request_end = answer_large};
    struct seen unanswered = {0}, total = {0}, fine = {.consume = true};
    rig_serve(&rig, NULL);
    struct channel_request r = {.method = "PUT", .target = "/", .streamed = true, .response_timeout_ms = 3000};
    assert_int_equal(rig_request(&rig, &unanswered, &r), 0);
    r = rig_get("/");
    r.total_timeout_ms = 4000;
    assert_int_equal(rig_request(&rig, &total, &r), 0);
    r.response_timeout_ms = 1000;
    assert_int_equal(rig_request(&rig, &fine, &r), 0);
    rig_pump(&rig);
    assert_int_equal(fine.ends, 1);
    rig_advance(&rig, 2750);
    assert_int_equal(unanswered.ends, 0);
    rig_advance(&rig, 250);
    assert_int_equal(unanswered.ends, 1);
    assert_int_equal(unanswered.error, ERR_TIMEOUT);
    assert_int_equal(total.ends, 0);
    rig_advance(&rig, 1000);
    assert_int_equal(total.ends, 1);
    assert_int_equal(total.error, ERR_TIMEOUT);
    assert_int_equal(rig.client->held, 0);
    rig_advance(&rig, 20000);
    assert_false(rig.client->over);
    rig_close(&rig);
}

static void upload_waits_for_its_owner(void **state)
{
    (void)state;
    struct rig rig = {0};
    struct seen seen = {0};
    rig_serve(&rig, NULL);
    struct channel_request r = {.method = "PUT", .target = "/", .streamed = true, .idle_timeout_ms = 1000};
    assert_int_equal(rig_request(&rig, &seen, &r), 0);
    rig_advance(&rig, 30000); /* the owner has nothing to send: nobody is late */
    assert_int_equal(seen.ends, 0);
    channel_stream_write_end(seen.stream);
    rig_advance(&rig, 750);
    assert_int_equal(seen.ends, 0);
    rig_advance(&rig, 500); /* the answer is due */
    assert_int_equal(seen.ends, 1);
    rig_close(&rig);
}

static void heartbeats_are_sent_while_streams_are_open(void **state)
{
    (void)state;
    struct rig rig = {0};
    struct seen seen = {0};
    rig_serve(&rig, NULL);
    rig_advance(&rig, 60000);
    assert_int_equal(rig.server_pings, 0);
    struct channel_request r = rig_get("/");
    assert_int_equal(rig_request(&rig, &seen, &r), 0);
    rig_advance(&rig, 5000);
    assert_int_equal(rig.server_pings, 1);
    rig_advance(&rig, 50000);
    assert_in_range(rig.server_pings, 10, 11);
    assert_false(rig.client->over);
    channel_stream_cancel(seen.stream);
    uint64_t pings = rig.server_pings;
    rig_advance(&rig, 60000);
    assert_in_range(rig.server_pings, pings, pings + 1);
    rig_close(&rig);
}

static void silence_after_a_heartbeat_ends_the_session(void **state)
{
    (void)state;
    struct rig rig = {0};
    struct seen seen = {.consume = true};
    rig_ready(&rig, NULL);
    struct channel_request r = rig_get("/");
    assert_int_equal(rig_request(&rig, &seen, &r), 0);
    rig_output(&rig);
    struct buf out = {0};
    uint8_t byte = pattern_byte(0);
    frame_put(&out, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, STATUS_200, 1);
    rig_give_buf(&rig, &out);
    for (int i = 0; i < 14; i++) { /* data that flows is no answer (G44) */
        rig_advance(&rig, 1000);
        frame_put(&out, NGHTTP2_DATA, 0, 1, &byte, 1);
        assert_int_equal(rig_give_buf(&rig, &out), 0);
    }
    rig_advance(&rig, 1000);
    assert_true(rig.client->over);
    assert_int_equal(rig.client->error.code, ERR_TIMEOUT);
    buf_done(&out);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resync_finds_the_echo_among_rubbish),
        cmocka_unit_test(resync_takes_the_echo_of_the_last_prelude_alone),
        cmocka_unit_test(resync_gives_up),
        cmocka_unit_test(resync_bounds_what_it_throws_away),
        cmocka_unit_test(request_made_before_the_echo_is_answered),
        cmocka_unit_test(request_that_cannot_be_sent_is_refused),
        cmocka_unit_test(streams_are_limited),
        cmocka_unit_test(body_is_written_with_back_pressure),
        cmocka_unit_test(body_waits_for_the_peer_window),
        cmocka_unit_test(whole_body_is_sent),
        cmocka_unit_test(early_answer_ends_the_request),
        cmocka_unit_test(both_directions_end_by_themselves),
        cmocka_unit_test(slow_owner_slows_its_stream_alone),
        cmocka_unit_test(what_owners_hold_is_bounded_in_all),
        cmocka_unit_test(cancelling_inside_a_callback_is_safe),
        cmocka_unit_test(answer_after_cancel_goes_nowhere),
        cmocka_unit_test(reset_by_the_guest_ends_one_stream),
        cmocka_unit_test(end_of_the_session_ends_each_stream_once),
        cmocka_unit_test(deadlines_end_a_stream),
        cmocka_unit_test(upload_waits_for_its_owner),
        cmocka_unit_test(heartbeats_are_sent_while_streams_are_open),
        cmocka_unit_test(silence_after_a_heartbeat_ends_the_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

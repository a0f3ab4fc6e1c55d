/* HTTP/1.1 of programs in sandboxes (src/api/port_head.c) and byte ranges (src/api/byte_range.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "api/byte_range.h"
#include "api/port_head.h"
#include "base/str.h"

static int parse(const char *head, bool to_head, struct port_response *r, struct err *e)
{
    return port_response_parse((const uint8_t *)head, strlen(head), to_head, r, e);
}

static void the_head_ends_at_the_empty_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {
        {"", 0},
        {"HTTP/1.1 200 OK\r\n", 0},
        {"HTTP/1.1 200 OK\r\n\r", 0},
        {"HTTP/1.1 200 OK\r\n\r\nbody", 19},
        {"HTTP/1.1 200 OK\n\nbody", 17},
        {"HTTP/1.1 200 OK\nA: b\r\n\r\n", 24},
        {"\r\r\r\n", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(port_head_len((const uint8_t *)cases[i].text, strlen(cases[i].text)), cases[i].len);
}

static void a_response_is_taken_apart(void **state)
{
    (void)state;
    struct port_response r;
    struct err e = {0};
    assert_int_equal(parse("HTTP/1.1 200 OK\r\nContent-Length: 12\r\nX-A:  b c \r\nEmpty:\r\n\r\n", false, &r, &e), 0);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body, PORT_BODY_LENGTH);
    assert_int_equal(r.length, 12);
    assert_int_equal(r.header_count, 3);
    assert_string_equal(r.headers[1].value, "b c");
    assert_string_equal(r.headers[2].value, "");
    port_response_done(&r);
    assert_int_equal(parse("HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", false, &r, &e), 0);
    assert_string_equal(r.upgrade, "websocket");
    port_response_done(&r);
}

static void the_body_is_framed_as_the_rfc_says(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        bool to_head;
        enum port_body body;
    } cases[] = {
        {"HTTP/1.0 200 OK\r\n\r\n", false, PORT_BODY_TO_CLOSE},
        {"HTTP/1.1 200\r\nTransfer-Encoding: Chunked\r\n\r\n", false, PORT_BODY_CHUNKED},
        {"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", false, PORT_BODY_NONE},
        {"HTTP/1.1 304 No\r\n\r\n", false, PORT_BODY_NONE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, PORT_BODY_NONE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", false, PORT_BODY_LENGTH},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct port_response r;
        struct err e = {0};
        assert_int_equal(parse(cases[i].head, cases[i].to_head, &r, &e), 0);
        assert_int_equal(r.body, cases[i].body);
        port_response_done(&r);
    }
}

static void what_is_not_well_formed_is_refused(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: empty\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA b: c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        struct port_response r;
        struct err e = {0};
        assert_int_equal(parse(heads[i], false, &r, &e), ERR_PROTOCOL);
    }
    struct port_response r;
    assert_int_equal(port_response_parse((const uint8_t *)"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", 26, false, &r, NULL),
                     ERR_PROTOCOL);
    _cleanup_buf_ struct buf many = BUF_MAX(PORT_HEAD_MAX);
    buf_put_str(&many, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i <= PORT_HEADERS_MAX; i++)
        buf_printf(&many, "H%d: x\r\n", i);
    buf_put_str(&many, "\r\n");
    assert_int_equal(port_response_parse(buf_data(&many), many.len, false, &r, NULL), ERR_PROTOCOL);
}

static void hop_headers_are_known(void **state)
{
    (void)state;
    assert_true(port_hop_by_hop("connection", NULL));
    assert_true(port_hop_by_hop("Keep-Alive", NULL));
    assert_true(port_hop_by_hop("X-Mine", "close, x-mine"));
    assert_false(port_hop_by_hop("X-Mine", "close, x-mine2"));
    assert_false(port_hop_by_hop("Content-Type", "close"));
    assert_true(port_list_has(" a ,b", "A"));
    assert_false(port_list_has("", "a"));
}

/* The body of a chunked text, fed in two parts cut at `cut`; NULL when it is refused. */
static char *dechunk(const char *text, size_t cut, bool *ret_end)
{
    struct port_chunks c = {0};
    struct buf out;
    buf_init(&out, 4096);
    size_t total = strlen(text);
    for (int part = 0; part < 2; part++) {
        const uint8_t *data = (const uint8_t *)text + (part ? cut : 0), *piece;
        size_t len = part ? total - cut : cut;
        ssize_t n;
        while ((n = port_chunks_next(&c, &data, &len, &piece, NULL)) > 0)
            buf_put(&out, piece, (size_t)n);
        if (n < 0) {
            buf_done(&out);
            return NULL;
        }
    }
    *ret_end = c.end;
    char *result = buf_steal_str(&out);
    buf_done(&out);
    return result;
}

static void chunks_are_put_together_wherever_they_are_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text, *body;
    } good[] = {
        {"0\r\n\r\n", ""},
        {"3\r\nabc\r\n0\r\n\r\n", "abc"},
        {"3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", "abc0123456789"},
        {"3\nabc\n0\n\n", "abc"},
    };
    static const char *const bad[] = {"\r\n", "x\r\n", "3\r\nabcd\r\n", "ffffffffffffffffff\r\n", "3 abc", "-1\r\n",
                                      "3\r\nabc\r0\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        for (size_t cut = 0; cut <= strlen(good[i].text); cut++) {
            bool end = false;
            _cleanup_free_ char *body = dechunk(good[i].text, cut, &end);
            assert_non_null(body);
            assert_string_equal(body, good[i].body);
            assert_true(end);
        }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        bool end = false;
        _cleanup_free_ char *body = dechunk(bad[i], strlen(bad[i]), &end);
        assert_true(!body || !end);
    }
}

static void ranges(void **state)
{
    (void)state;
    struct byte_range r;
    byte_range_parse("bytes=2-4", &r);
    assert_true(r.given && !r.suffix && r.first == 2 && r.length == 3);
    byte_range_parse("bytes=7-", &r);
    assert_true(r.given && r.first == 7 && r.length == UINT64_MAX);
    byte_range_parse("bytes=-5", &r);
    assert_true(r.given && r.suffix && r.length == 5);
    byte_range_parse("Bytes=0-9223372036854775807", &r);
    assert_true(r.given && r.length == 1ull << 63);
    static const char *const none[] = {"bytes=", "bytes=-", "bytes=-0", "bytes=4-2", "bytes=1-2,4-5", "items=1-2",
                                       "bytes=a-b", "bytes=1", "bytes=99999999999999999999-"};
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        byte_range_parse(none[i], &r);
        assert_false(r.given);
    }
    byte_range_parse(NULL, &r);
    assert_false(r.given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_head_ends_at_the_empty_line),
        cmocka_unit_test(a_response_is_taken_apart),
        cmocka_unit_test(the_body_is_framed_as_the_rfc_says),
        cmocka_unit_test(what_is_not_well_formed_is_refused),
        cmocka_unit_test(hop_headers_are_known),
        cmocka_unit_test(chunks_are_put_together_wherever_they_are_cut),
        cmocka_unit_test(ranges),
    };
    return cmocka_run_group_tests_name("port_head", tests, NULL, NULL);
}

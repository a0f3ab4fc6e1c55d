/* Fields and records: what goes in comes out, and what is broken is refused whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "wire/agent_protocol.h"
#include "wire/wire.h"

static void round_trip(void **state ATTR_UNUSED)
{
    _cleanup_buf_ struct buf b = BUF_MAX(4096);
    wire_put_u64(&b, 1, 0x0102030405060708ull);
    wire_put_i64(&b, 2, -5);
    wire_put_text(&b, 3, "héllo");
    wire_put_text(&b, 4, NULL);
    size_t mark = wire_begin(&b, 5);
    wire_put_bytes(&b, 6, "a\0b", 3);
    wire_end(&b, mark);
    wire_put_text(&b, 7, "");

    struct wire_reader r, inner;
    struct wire_field f;
    uint64_t u;
    int64_t i;
    char text[16];
    wire_reader_init(&r, buf_data(&b), b.len);
    assert_true(wire_next(&r, &f) && f.tag == 1 && wire_field_u64(&f, &u));
    assert_true(u == 0x0102030405060708ull);
    assert_true(wire_next(&r, &f) && f.tag == 2 && wire_field_i64(&f, &i) && i == -5);
    assert_true(wire_next(&r, &f) && f.tag == 3 && wire_field_text(&f, text, sizeof(text)));
    assert_string_equal(text, "héllo");
    assert_true(wire_next(&r, &f) && f.tag == 5);
    wire_field_nested(&f, &inner);
    assert_true(wire_next(&inner, &f) && f.tag == 6 && f.len == 3);
    assert_false(wire_field_text(&f, text, sizeof(text))); /* a NUL inside */
    assert_true(wire_done(&inner));
    assert_true(wire_next(&r, &f) && f.tag == 7 && wire_field_text(&f, text, sizeof(text)) && text[0] == '\0');
    assert_false(wire_next(&r, &f));
    assert_true(wire_done(&r));
}

static void refuses_broken(void **state ATTR_UNUSED)
{
    static const struct {
        const char *raw;
        size_t len;
    } cases[] = {
        {"\0\1\0\0\0", 5},            /* a header cut off */
        {"\0\1\0\0\0\2x", 7},         /* a value cut off */
        {"\0\1\xff\xff\xff\xffx", 7}, /* a length beyond everything */
        {"\0\0\0\0\0\0", 6},          /* tag 0 */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct wire_reader r;
        struct wire_field f;
        wire_reader_init(&r, cases[i].raw, cases[i].len);
        assert_false(wire_next(&r, &f));
        assert_true(r.broken);
        assert_false(wire_done(&r));
        assert_false(wire_next(&r, &f)); /* for good */
    }
}

static void values_are_strict(void **state ATTR_UNUSED)
{
    struct wire_field seven = {.tag = 1, .len = 7, .data = (const uint8_t *)"\0\0\0\0\0\0\1"};
    struct wire_field two = {.tag = 1, .len = 8, .data = (const uint8_t *)"\0\0\0\0\0\0\0\2"};
    uint64_t u = 99;
    bool b = false;
    char text[4];
    char *copy = NULL;
    assert_false(wire_field_u64(&seven, &u));
    assert_true(u == 99);
    assert_false(wire_field_bool(&two, &b));
    struct wire_field four = {.tag = 1, .len = 4, .data = (const uint8_t *)"abcd"};
    assert_false(wire_field_text(&four, text, sizeof(text)));
    assert_false(wire_field_text_dup(&four, 3, &copy));
    assert_true(wire_field_text_dup(&four, 4, &copy));
    assert_string_equal(copy, "abcd");
    free(copy);
}

static void too_large_a_message(void **state ATTR_UNUSED)
{
    _cleanup_buf_ struct buf b = BUF_MAX(16);
    wire_put_text(&b, 1, "0123456789");
    assert_false(b.overflow);
    size_t mark = wire_begin(&b, 2);
    wire_end(&b, mark);
    assert_true(b.overflow);
    assert_int_equal(b.len, 16);
}

static void records(void **state ATTR_UNUSED)
{
    uint8_t raw[WIRE_RECORD_HEADER];
    struct wire_record in = {.type = AGENT_RECORD_STDERR, .len = 70000, .offset = 1ull << 40}, out;
    wire_record_encode(&in, raw);
    assert_true(wire_record_decode(raw, &out));
    assert_true(out.type == in.type && out.len == in.len && out.offset == in.offset);
    raw[2] = 1;
    assert_false(wire_record_decode(raw, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip), cmocka_unit_test(refuses_broken),
                                       cmocka_unit_test(values_are_strict), cmocka_unit_test(too_large_a_message),
                                       cmocka_unit_test(records)};
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}

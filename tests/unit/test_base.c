/* Unit tests of src/base. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/id.h"
#include "base/str.h"

static void err_says_what_and_keeps_code(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(err_set(&e, ERR_NOT_FOUND, "no sandbox \"%s\"", "x"), ERR_NOT_FOUND);
    assert_string_equal(e.text, "no sandbox \"x\"");
    assert_int_equal(err_prefix(&e, "create"), ERR_NOT_FOUND);
    assert_string_equal(e.text, "create: no sandbox \"x\"");
    assert_int_equal(err_errno(&e, ERR_SYSTEM, ENOSPC, "write"), ERR_NO_SPACE);
    assert_int_equal(err_info(ERR_NO_SPACE)->http_status, 507);
    assert_int_equal(err_info(12345)->code, ERR_INTERNAL);
    assert_int_equal(err_code_by_name("conflict"), ERR_CONFLICT);
    assert_int_equal(err_set(NULL, ERR_GONE, "x"), ERR_GONE);
}

static void buf_refuses_past_maximum_and_keeps_content(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_MAX(8);
    assert_true(buf_put(&b, "12345", 5));
    assert_false(buf_put(&b, "6789", 4));
    assert_true(b.overflow);
    assert_int_equal(b.len, 5);
    buf_consume(&b, 3);
    assert_true(buf_put(&b, "abcdef", 6));
    assert_string_equal(buf_cstr(&b), "45abcdef");
}

static void numbers_are_strict(void **state)
{
    (void)state;
    uint64_t v = 7;
    assert_true(str_to_u64("18446744073709551615", 0, UINT64_MAX, &v));
    assert_false(str_to_u64("18446744073709551616", 0, UINT64_MAX, &v));
    static const char *const wrong[] = {"", " 1", "1 ", "-1", "+1", "0x1", "1.0", "a"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_false(str_to_u64(wrong[i], 0, UINT64_MAX, &v));
    assert_true(str_to_bytes("64MiB", &v) && v == 64 * MIB);
    assert_false(str_to_bytes("99999999999T", &v));
    assert_true(str_to_ms("2m", &v) && v == 120000);
    assert_true(str_to_ms("250ms", &v) && v == 250);
    assert_false(str_to_ms("5 s", &v));
}

static void base64_round_trip_and_strictness(void **state)
{
    (void)state;
    for (size_t len = 0; len < 70; len++) {
        uint8_t data[70], back[80];
        char text[100];
        random_bytes(data, sizeof(data));
        size_t n = base64_encode(data, len, text);
        assert_int_equal(n, base64_encoded_len(len));
        assert_int_equal(base64_decode(text, n, back), (ssize_t)len);
        assert_memory_equal(data, back, len);
    }
    uint8_t out[8];
    assert_int_equal(base64_decode("QQ=", 3, out), -1);
    assert_int_equal(base64_decode("QR==", 4, out), -1); /* bits left over */
    assert_int_equal(base64_decode("Q===", 4, out), -1);
}

static void percent_and_utf8(void **state)
{
    (void)state;
    char good[] = "a%20b%2Fc+", broken[] = "a%2", nul[] = "a%00b";
    assert_true(percent_decode(good));
    assert_string_equal(good, "a b/c+");
    assert_false(percent_decode(broken));
    assert_false(percent_decode(nul));
    assert_true(utf8_valid("h\xc3\xa9", 3));
    assert_false(utf8_valid("\xc0\x80", 2));     /* overlong */
    assert_false(utf8_valid("\xed\xa0\x80", 3)); /* surrogate */
    _cleanup_buf_ struct buf out = BUF_MAX(0);
    text_escape(&out, "a\x1b]52;c\n\xff\xe2\x80\xae", 12);
    assert_string_equal(buf_cstr(&out), "a\\x1b]52;c\\n\\xff\\u{202e}");
}

static void ids_have_their_kind(void **state)
{
    (void)state;
    char a[ID_SIZE], b[ID_SIZE];
    id_new(ID_SANDBOX, a);
    id_new(ID_SANDBOX, b);
    assert_true(id_valid(ID_SANDBOX, a));
    assert_false(id_valid(ID_EXEC, a));
    assert_string_not_equal(a, b);
    assert_false(id_valid(ID_SANDBOX, "s../../../../../../etc"));
    assert_true(equal_constant_time("abc", "abc", 3));
    assert_false(equal_constant_time("abc", "abd", 3));
}

static void times_round_trip(void **state)
{
    (void)state;
    char text[RFC3339_SIZE];
    int64_t ms = 0;
    clock_format_ms(1767225600123, text);
    assert_string_equal(text, "2026-01-01T00:00:00.123Z");
    assert_true(clock_parse_ms(text, &ms) && ms == 1767225600123);
    assert_true(clock_parse_ms("2026-01-01T02:00:00+02:00", &ms) && ms == 1767225600000);
    assert_false(clock_parse_ms("2026-01-01", &ms));
    assert_false(clock_parse_ms("2026-01-01T00:00:00Zx", &ms));
}

static void files_are_replaced_whole(void **state)
{
    (void)state;
    char folder[] = "/tmp/space-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    _cleanup_free_ char *deep = xasprintf("%s/a/b", folder), *path = xasprintf("%s/a/b/file", folder);
    struct err e = {0};
    assert_int_equal(dir_make(deep, 0700, &e), 0);
    assert_int_equal(file_write_atomic(path, "one", 3, 0600, &e), 0);
    assert_int_equal(file_write_atomic(path, "two!", 4, 0640, &e), 0);
    _cleanup_buf_ struct buf b = BUF_MAX(100);
    assert_int_equal(file_read(path, 100, &b, &e), 0);
    assert_string_equal(buf_cstr(&b), "two!");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(file_read(path, 3, &b, &e), ERR_TOO_LARGE);
    _cleanup_free_ char *link = xasprintf("%s/a/link", folder);
    assert_int_equal(symlink("/etc", link), 0);
    assert_int_equal(dir_remove_tree(folder, &e), 0);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
    assert_int_equal(access(folder, F_OK), -1);
    assert_int_equal(dir_remove_tree(folder, &e), 0);
    assert_int_equal(file_read(path, 3, &b, &e), ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_says_what_and_keeps_code),
        cmocka_unit_test(buf_refuses_past_maximum_and_keeps_content),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(base64_round_trip_and_strictness),
        cmocka_unit_test(percent_and_utf8),
        cmocka_unit_test(ids_have_their_kind),
        cmocka_unit_test(times_round_trip),
        cmocka_unit_test(files_are_replaced_whole),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}

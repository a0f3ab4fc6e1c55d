/* The tar format: what is written is read back, whatever the pieces; what is broken is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "agent/tar_format.h"

struct seen {
    struct tar_entry entries[8];
    size_t count, ends;
    struct buf content;
};

static int on_entry(void *arg, const struct tar_entry *entry, struct err *e ATTR_UNUSED)
{
    struct seen *s = arg;
    assert_true(s->count < ARRAY_LEN(s->entries));
    s->entries[s->count++] = *entry;
    return 0;
}

static int on_data(void *arg, const uint8_t *data, size_t len, struct err *e ATTR_UNUSED)
{
    buf_put(&((struct seen *)arg)->content, data, len);
    return 0;
}

static int on_end(void *arg, struct err *e ATTR_UNUSED)
{
    ((struct seen *)arg)->ends++;
    return 0;
}

static int parse(const struct buf *archive, size_t piece, struct seen *s)
{
    struct tar_parser p;
    struct err e;
    int r = 0;
    tar_parser_init(&p);
    p.entry = on_entry;
    p.data = on_data;
    p.end = on_end;
    p.arg = s;
    memset(s, 0, sizeof(*s));
    for (size_t at = 0; r == 0 && at < archive->len; at += piece)
        r = tar_parser_feed(&p, buf_data(archive) + at, MIN(piece, archive->len - at), &e);
    if (r == 0)
        r = tar_parser_finish(&p, &e);
    tar_parser_done(&p);
    return r;
}

static void put_content(struct buf *b, const char *text)
{
    static const uint8_t zeros[TAR_BLOCK];
    buf_put_str(b, text);
    buf_put(b, zeros, tar_padding(strlen(text)));
}

static void round_trip(void **state ATTR_UNUSED)
{
    _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
    static const uint8_t zeros[2 * TAR_BLOCK];
    struct tar_entry dir = {
        .type = TAR_DIRECTORY, .path = "d/", .mode = 01755, .uid = 1000, .gid = 3000000, .mtime = 7};
    struct tar_entry file = {.type = TAR_REGULAR, .mode = 0640, .size = 5, .mtime = -3};
    struct tar_entry link = {.type = TAR_SYMLINK, .path = "d/l"};
    memset(file.path, 'x', 3000);
    memset(link.link, 'y', 2000);
    tar_header_put(&b, &dir);
    tar_header_put(&b, &file);
    put_content(&b, "hello");
    tar_header_put(&b, &link);
    buf_put(&b, zeros, sizeof(zeros));
    static struct seen s;
    for (size_t piece = 1; piece < 2000; piece = piece * 3 + 1) {
        assert_int_equal(parse(&b, piece, &s), 0);
        assert_int_equal(s.count, 3);
        assert_int_equal(s.ends, 3);
        assert_string_equal(s.entries[0].path, "d/");
        assert_int_equal(s.entries[0].mode, 01755);
        assert_int_equal(s.entries[0].gid, 3000000);
        assert_string_equal(s.entries[1].path, file.path);
        assert_true(s.entries[1].mtime == -3 && s.entries[1].size == 5);
        assert_string_equal(s.entries[2].link, link.link);
        assert_int_equal(s.content.len, 5);
        assert_memory_equal(buf_data(&s.content), "hello", 5);
        buf_done(&s.content);
    }
}

static void refuses_broken(void **state ATTR_UNUSED)
{
    struct tar_entry file = {.type = TAR_REGULAR, .path = "f", .mode = 0644, .size = 5};
    static struct seen s;
    _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
    tar_header_put(&b, &file);
    put_content(&b, "hello");
    buf_data(&b)[0] ^= 1; /* the checksum tells */
    assert_int_equal(parse(&b, b.len, &s), ERR_INVALID);
    buf_data(&b)[0] ^= 1;
    b.len -= 508; /* in the middle of the content */
    b.len -= 2;
    assert_int_equal(parse(&b, b.len, &s), ERR_INVALID);
    buf_done(&s.content);
}

static void huge_sizes(void **state ATTR_UNUSED)
{
    struct tar_entry file = {.type = TAR_REGULAR, .path = "f", .mode = 0644, .size = 1ull << 40};
    struct tar_parser p;
    static struct seen s;
    struct err e;
    _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
    memset(&s, 0, sizeof(s));
    tar_header_put(&b, &file);
    tar_parser_init(&p);
    p.entry = on_entry;
    p.data = on_data;
    p.end = on_end;
    p.arg = &s;
    assert_int_equal(tar_parser_feed(&p, buf_data(&b), b.len, &e), 0);
    assert_true(s.count == 1 && s.entries[0].size == 1ull << 40);
    assert_int_equal(tar_parser_finish(&p, &e), ERR_INVALID);
    tar_parser_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip), cmocka_unit_test(refuses_broken),
                                       cmocka_unit_test(huge_sizes)};
    return cmocka_run_group_tests_name("tar_format", tests, NULL, NULL);
}

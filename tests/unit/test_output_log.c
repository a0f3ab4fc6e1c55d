/* The log of an exec's output: offsets, kinds, what is dropped and what is kept for a reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "agent/output_log.h"

static struct output_budget wide = {.max = 1 << 30};

/* Byte at an offset is a function of the offset, so that every mix-up shows. */
static uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)(offset * 7 + (offset >> 9));
}

/* Append `len` bytes as far as they are taken; the number taken. */
static size_t append(struct output_log *log, uint8_t kind, size_t len, uint64_t keep_from)
{
    size_t done = 0, room;
    while (done < len) {
        uint8_t *to = output_log_reserve(log, keep_from, &room);
        if (!to)
            break;
        size_t n = MIN(room, len - done);
        for (size_t i = 0; i < n; i++)
            to[i] = byte_at(log->end + i);
        output_log_commit(log, kind, n);
        done += n;
    }
    return done;
}

static void check(const struct output_log *log, uint64_t from, size_t len)
{
    _cleanup_free_ uint8_t *copy = xmalloc(len);
    output_log_copy(log, from, copy, len);
    for (size_t i = 0; i < len; i++)
        if (copy[i] != byte_at(from + i))
            fail_msg("wrong byte at %llu", (unsigned long long)(from + i));
}

static void runs_tell_kinds(void **state ATTR_UNUSED)
{
    struct output_log log;
    uint8_t kind;
    output_log_init(&log, &wide, 1 << 20);
    append(&log, 1, 10, UINT64_MAX);
    append(&log, 1, 5, UINT64_MAX);
    append(&log, 2, 7, UINT64_MAX);
    append(&log, 1, 3, UINT64_MAX);
    assert_int_equal(output_log_run(&log, 0, &kind), 15);
    assert_int_equal(kind, 1);
    assert_int_equal(output_log_run(&log, 14, &kind), 1);
    assert_int_equal(output_log_run(&log, 15, &kind), 7);
    assert_int_equal(kind, 2);
    assert_int_equal(output_log_run(&log, 22, &kind), 3);
    assert_int_equal(kind, 1);
    check(&log, 0, 25);
    output_log_done(&log);
    assert_int_equal(wide.used, 0);
}

static void drops_the_oldest_without_a_reader(void **state ATTR_UNUSED)
{
    struct output_log log;
    uint8_t kind;
    output_log_init(&log, &wide, 256 * 1024);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(append(&log, (uint8_t)(1 + i % 2), 1000 + (size_t)i, UINT64_MAX), 1000 + (size_t)i);
    assert_true(log.end - log.start >= 256 * 1024);
    assert_true(log.end - log.start <= 256 * 1024 + LIMIT_READ_CHUNK);
    check(&log, log.start, (size_t)(log.end - log.start));
    uint64_t at = log.start;
    int last = 0;
    while (at < log.end) {
        at += output_log_run(&log, at, &kind);
        assert_int_not_equal(kind, last);
        last = kind;
    }
    assert_true(at == log.end);
    output_log_done(&log);
}

static void keeps_what_a_reader_needs(void **state ATTR_UNUSED)
{
    struct output_log log;
    size_t room;
    output_log_init(&log, &wide, 128 * 1024);
    size_t taken = append(&log, 1, 1 << 20, 0);
    assert_true(taken >= 128 * 1024 && taken < (1 << 20));
    assert_null(output_log_reserve(&log, 0, &room));
    assert_true(log.start == 0);
    assert_non_null(output_log_reserve(&log, 100000, &room)); /* the reader moved on */
    assert_true(log.start <= 100000);
    check(&log, 100000, (size_t)(log.end - 100000));
    output_log_done(&log);
}

static void budget_limits_growth(void **state ATTR_UNUSED)
{
    struct output_budget tight = {.max = 100 * 1024};
    struct output_log log, other;
    output_log_init(&log, &tight, 4 << 20);
    output_log_init(&other, &tight, 4 << 20);
    append(&log, 1, 1 << 20, UINT64_MAX);
    assert_true(tight.used <= tight.max);
    check(&log, log.start, (size_t)(log.end - log.start));
    assert_true(append(&other, 1, 100, UINT64_MAX) == 100); /* a little is always granted */
    output_log_done(&log);
    output_log_done(&other);
    assert_int_equal(tight.used, 0);
}

static void changes_of_kind_are_bounded(void **state ATTR_UNUSED)
{
    struct output_log log;
    output_log_init(&log, &wide, 4 << 20);
    for (uint32_t i = 0; i < 3 * LIMIT_OUTPUT_RUNS; i++)
        assert_int_equal(append(&log, (uint8_t)(1 + i % 2), 1, UINT64_MAX), 1);
    assert_true(log.run_count <= LIMIT_OUTPUT_RUNS);
    check(&log, log.start, (size_t)(log.end - log.start));
    size_t room;
    while (log.run_count < LIMIT_OUTPUT_RUNS)
        append(&log, (uint8_t)(1 + log.end % 2), 1, log.start);
    assert_null(output_log_reserve(&log, log.start, &room)); /* a reader is behind: wait for it */
    assert_non_null(output_log_reserve(&log, log.end, &room));
    output_log_done(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_tell_kinds), cmocka_unit_test(drops_the_oldest_without_a_reader),
        cmocka_unit_test(keeps_what_a_reader_needs), cmocka_unit_test(budget_limits_growth),
        cmocka_unit_test(changes_of_kind_are_bounded)};
    return cmocka_run_group_tests_name("output_log", tests, NULL, NULL);
}

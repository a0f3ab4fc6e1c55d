/* Unit tests of src/cli: options, tables, events, ports, build lines, percentiles, help. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/str.h"
#include "cli/api.h"
#include "cli/build_progress.h"
#include "cli/commands.h"
#include "cli/doctor_checks.h"
#include "cli/exec.h"
#include "cli/help.h"
#include "cli/opt.h"
#include "cli/out.h"
#include "cli/port_spec.h"
#include "cli/sse.h"
#include "cli/stats.h"
#include "cli/websocket_accept.h"

struct values {
    bool flag, other;
    const char *text, *choice;
    struct opt_list list;
    uint64_t number, time, bytes;
};

#define OPTION(member, ...)                                                                                            \
    {                                                                                                                  \
        .offset = offsetof(struct values, member), __VA_ARGS__                                                         \
    }

static const struct opt options[] = {
    OPTION(flag, .key = 'f', .name = "flag", .kind = OPT_FLAG),
    OPTION(other, .key = 'o', .name = "other", .kind = OPT_FLAG),
    OPTION(text, .key = 't', .name = "text", .arg = "T", .kind = OPT_TEXT),
    OPTION(list, .key = 'l', .name = "list", .arg = "L", .kind = OPT_LIST),
    OPTION(number, .key = 'n', .name = "number", .arg = "N", .kind = OPT_NUMBER, .min = 2, .max = 9),
    OPTION(time, .name = "time", .arg = "T", .kind = OPT_TIME),
    OPTION(bytes, .name = "bytes", .arg = "B", .kind = OPT_BYTES),
    OPTION(choice, .name = "choice", .arg = "C", .kind = OPT_CHOICE, .choices = "one|two"),
};

/* Splits at spaces; returns what opt_parse did, with what it left in argv. */
static int parse(const char *line, int words, struct values *v, char **argv, int *argc, struct err *e)
{
    static char copy[8192];
    snprintf(copy, sizeof(copy), "%s", line);
    *argc = 0;
    for (char *save = NULL, *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
        argv[(*argc)++] = p;
    struct opt_table table = {options, ARRAY_LEN(options), v};
    return opt_parse(&table, 1, words, argv, argc, e);
}

static void options_in_every_form(void **state)
{
    (void)state;
    struct values v = {0};
    struct err e = {0};
    char *argv[64];
    int argc;
    assert_int_equal(parse("a -fot x -lA --list B --list=C b --number=3 -n4 --time 2m --bytes 4K --choice two", -1, &v,
                           argv, &argc, &e),
                     0);
    assert_true(v.flag && v.other);
    assert_string_equal(v.text, "x");
    assert_int_equal(v.list.len, 3);
    assert_string_equal(v.list.items[2], "C");
    assert_int_equal(v.number, 4);
    assert_int_equal(v.time, 120000);
    assert_int_equal(v.bytes, 4096);
    assert_string_equal(v.choice, "two");
    assert_int_equal(argc, 2);
    assert_string_equal(argv[0], "a");
    assert_string_equal(argv[1], "b");
}

static void options_end_where_a_command_begins(void **state)
{
    (void)state;
    struct err e = {0};
    char *argv[64];
    int argc;
    struct values run = {0}, exec = {0}, dashes = {0};
    assert_int_equal(parse("-f ls -o -- --text", 0, &run, argv, &argc, &e), 0);
    assert_true(run.flag && !run.other);
    assert_int_equal(argc, 4);
    assert_string_equal(argv[2], "--");
    assert_int_equal(parse("box -f ls -o", 1, &exec, argv, &argc, &e), 0);
    assert_true(exec.flag && !exec.other);
    assert_int_equal(argc, 3);
    assert_int_equal(parse("box -- -f", 1, &dashes, argv, &argc, &e), 0);
    assert_true(!dashes.flag);
    assert_int_equal(argc, 2);
    assert_string_equal(argv[1], "-f");
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"--nothing", "no option --nothing"},
        {"-x", "no option -x"},
        {"--flag=1", "--flag takes no value"},
        {"--text", "--text needs a value (T)"},
        {"-t", "-t needs a value (T)"},
        {"--number 1", "--number: 1 is not between 2 and 9"},
        {"--number x", "--number: \"x\" is not a number"},
        {"--time soon", "--time: \"soon\" is not a duration such as 250ms, 30s, 5m or 2h"},
        {"--choice three", "--choice: \"three\" is not one of one|two"},
        {"--choice on", "--choice: \"on\" is not one of one|two"},
        {"--fla", "no option --fla"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct values v = {0};
        struct err e = {0};
        char *argv[64];
        int argc;
        assert_int_equal(parse(cases[i][0], -1, &v, argv, &argc, &e), ERR_INVALID);
        assert_string_equal(e.text, cases[i][1]);
    }
}

static void a_list_of_options_has_a_maximum(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf line = BUF_MAX(0);
    char *argv[OPT_LIST_MAX + 8];
    int argc;
    struct values v = {0};
    struct err e = {0};
    for (size_t i = 0; i < OPT_LIST_MAX; i++)
        buf_put_str(&line, "-la ");
    assert_int_equal(parse(buf_cstr(&line), -1, &v, argv, &argc, &e), 0);
    buf_put_str(&line, "-la");
    v = (struct values){0};
    assert_int_equal(parse(buf_cstr(&line), -1, &v, argv, &argc, &e), ERR_INVALID);
}

static void tables_align_and_escape(void **state)
{
    (void)state;
    static const char *const titles[] = {"NAME", ">SIZE", "TEXT"};
    _cleanup_table_ struct table t = {0};
    _cleanup_buf_ struct buf out = BUF_MAX(0);
    table_init(&t, titles, ARRAY_LEN(titles));
    table_row(&t, (const char *const[]){"a", "1", "x\033[31m"}, -1, COLOR_NONE);
    table_row(&t, (const char *const[]){"größer", "1000", NULL}, 0, COLOR_GOOD);
    table_render(&t, false, &out);
    assert_string_equal(buf_cstr(&out), "NAME    SIZE  TEXT\n"
                                        "a          1  x\\x1b[31m\n"
                                        "größer  1000  -\n");
    buf_reset(&out);
    table_render(&t, true, &out);
    assert_non_null(strstr(buf_cstr(&out), "\033[32mgrößer\033[0m"));
}

static void sizes_and_times_are_short(void **state)
{
    (void)state;
    char text[24];
    assert_string_equal(format_bytes(0, text), "0 B");
    assert_string_equal(format_bytes(1536, text), "1.5 KiB");
    assert_string_equal(format_bytes(256 * MIB, text), "256 MiB");
    assert_string_equal(format_bytes(UINT64_MAX, text), "16777216 TiB");
    assert_string_equal(format_duration(-1, text), "-");
    assert_string_equal(format_duration(999, text), "999 ms");
    assert_string_equal(format_duration(1234, text), "1.2 s");
    assert_string_equal(format_duration(61000, text), "1m 1s");
    assert_string_equal(format_duration(90061000, text), "1d 1h");
    assert_string_equal(format_since("2026-01-01T00:00:00.000Z", 1767225600000 + 61000, text), "1m ago");
    assert_string_equal(format_since("2026-01-01T00:01:00.000Z", 1767225600000, text), "in 1m");
    assert_string_equal(format_since("rubbish", 0, text), "-");
    assert_string_equal(format_since(NULL, 0, text), "-");
}

static void progress_shows_step_share_and_time(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf out = BUF_MAX(0);
    progress_render(&out, "load\n", 1, 4, 1500, false, false);
    assert_string_equal(buf_cstr(&out), "━━━━━─────────────── 1/4 load\\n  1.5 s");
}

static int collect(void *arg, const struct sse_event *event)
{
    buf_printf(arg, "[%s|%s|%s]", event->name, event->id, event->data);
    return str_eq(event->name, "stop") ? 7 : 0;
}

static void events_come_out_whole_however_they_are_cut(void **state)
{
    (void)state;
    static const char stream[] =
        ": hello\r\n\r\nid: 5\nevent: stdout\ndata: QQ==\n\ndata: a\ndata:b\n\nevent: none\n\nid: end\r\n"
        "event: exit\r\ndata: {}\r\n\r\n";
    for (size_t piece = 1; piece < sizeof(stream); piece++) {
        _cleanup_buf_ struct buf out = BUF_MAX(0);
        _cleanup_(sse_done) struct sse s;
        sse_init(&s, collect, &out);
        for (size_t at = 0; at < strlen(stream); at += piece)
            assert_int_equal(sse_feed(&s, stream + at, MIN(piece, strlen(stream) - at), NULL), 0);
        assert_string_equal(buf_cstr(&out), "[stdout|5|QQ==][message|5|a\nb][exit|end|{}]");
    }
}

static void events_have_a_maximum_and_can_stop(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf out = BUF_MAX(0);
    _cleanup_(sse_done) struct sse s;
    struct err e = {0};
    static char big[SSE_LINE_MAX + 1];
    memset(big, 'x', sizeof(big));
    sse_init(&s, collect, &out);
    assert_int_equal(sse_feed(&s, big, sizeof(big), &e), ERR_PROTOCOL);
    sse_restart(&s);
    assert_int_equal(sse_feed(&s, "event: stop\ndata: x\n\ndata: y\n\n", 31, &e), 7);
    assert_string_equal(buf_cstr(&out), "[stop||x]");
    sse_restart(&s);
    assert_int_equal(sse_feed(&s, "data: ha", 8, &e), 0);
    sse_restart(&s);
    assert_int_equal(sse_feed(&s, "data: z\n\n", 9, &e), 0);
    assert_string_equal(buf_cstr(&out), "[stop||x][message||z]");
}

static void ports_are_parsed(void **state)
{
    (void)state;
    struct port_spec p;
    assert_int_equal(port_spec_parse("80", &p, NULL), 0);
    assert_true(p.local == 80 && p.guest == 80 && str_eq(p.address, "127.0.0.1"));
    assert_int_equal(port_spec_parse("0:5432", &p, NULL), 0);
    assert_true(p.local == 0 && p.guest == 5432);
    assert_int_equal(port_spec_parse("0.0.0.0:9000:80", &p, NULL), 0);
    assert_true(p.local == 9000 && p.guest == 80 && str_eq(p.address, "0.0.0.0"));
    assert_int_equal(port_spec_parse("[::1]:9000:80", &p, NULL), 0);
    assert_true(p.local == 9000 && str_eq(p.address, "::1"));
    static const char *const wrong[] = {"", ":", "0", "65536", "x", "80:", ":80", "1:2:3:", ":1:2", "[]:1:2", "80 "};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(port_spec_parse(wrong[i], &p, NULL), ERR_INVALID);
}

static void build_lines_are_parsed(void **state)
{
    (void)state;
    struct build_line l;
    assert_true(build_line_parse("@progress rootfs 5 10 installing python3 3.11", &l));
    assert_true(!l.is_result && l.done == 5 && l.total == 10);
    assert_string_equal(l.step, "rootfs");
    assert_string_equal(l.text, "installing python3 3.11");
    assert_true(build_line_parse("@progress kernel 0 1", &l));
    assert_string_equal(l.text, "");
    assert_true(build_line_parse("@result base-20260131-120000", &l));
    assert_true(l.is_result);
    assert_string_equal(l.text, "base-20260131-120000");
    static const char *const wrong[] = {"",          "hello",       "@progress",  "@progress x", "@progress x a 1 t",
                                        "@result ",  "@result a/b", "@result ..", "@result a b", "@progress x 1 -1 t",
                                        "@resultx a"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_false(build_line_parse(wrong[i], &l));
}

static void percentiles_are_nearest_ranks(void **state)
{
    (void)state;
    _cleanup_(stats_done) struct stats s = {0};
    assert_true(stats_at(&s, 0.5) == 0);
    for (int i = 100; i >= 1; i--)
        stats_add(&s, i);
    assert_true(stats_at(&s, 0.5) == 50 && stats_at(&s, 0.99) == 99 && stats_at(&s, 1) == 100);
    assert_true(stats_at(&s, 0.000001) == 1);
}

static void paths_are_percent_encoded(void **state)
{
    (void)state;
    _cleanup_free_ char *path = api_path("/v1/x", "path", "/a b&c", "left_out", NULL, "n", "1", NULL);
    assert_string_equal(path, "/v1/x?path=%2Fa%20b%26c&n=1");
    _cleanup_free_ char *more = api_path("/v1/x?a=1", "b", "2", NULL);
    assert_string_equal(more, "/v1/x?a=1&b=2");
}

static void problems_become_errors(void **state)
{
    (void)state;
    struct err e = {0};
    static const char body[] = "{\"code\":\"no_space\",\"detail\":\"the disk is full\",\"request_id\":\"r1\"}";
    assert_int_equal(api_problem(507, body, strlen(body), &e), ERR_NO_SPACE);
    assert_string_equal(e.text, "the disk is full (request r1)");
    static const char fields[] =
        "{\"code\":\"invalid_request\",\"detail\":\"not valid\",\"errors\":[{\"field\":\"/shape\","
        "\"detail\":\"no such member\"}]}";
    assert_int_equal(api_problem(400, fields, strlen(fields), &e), ERR_INVALID);
    assert_string_equal(e.text, "not valid: /shape: no such member");
    assert_int_equal(api_problem(503, "<html>", 6, &e), ERR_UNAVAILABLE);
    assert_int_equal(api_problem(500, "", 0, &e), ERR_INTERNAL);
}

static void every_command_is_described(void **state)
{
    (void)state;
    struct cli cli = {0};
    _cleanup_buf_ struct buf overview = BUF_MAX(0);
    help_overview(&cli, &overview);
    for (size_t i = 0; i < command_count; i++) {
        const struct command *c = commands[i];
        _cleanup_free_ char *first = xstrndup(c->name, strcspn(c->name, " ")), *line = xasprintf("\n  %s ", first);
        assert_non_null(strstr(buf_cstr(&overview), line));
        assert_true(c->summary[0] >= 'a' && c->summary[0] <= 'z');
        assert_non_null(c->run);
        for (size_t k = 0; k < c->option_count; k++) {
            const struct opt *o = &c->options[k];
            assert_non_null(o->help);
            assert_true((o->kind == OPT_FLAG) == (o->arg == NULL));
            assert_true(o->offset < c->args_size);
            for (size_t m = 0; m < k; m++)
                assert_true(!str_eq(o->name, c->options[m].name) && (!o->key || o->key != c->options[m].key));
            for (size_t m = 0; m < global_option_count; m++)
                assert_true(!str_eq(o->name, global_options[m].name) && (!o->key || o->key != global_options[m].key));
        }
    }
}

static void endings_become_exit_codes(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int status;
    } cases[] = {
        {"{\"state\":\"exited\",\"exit_code\":0,\"signal\":null}", 0},
        {"{\"state\":\"exited\",\"exit_code\":42}", 42},
        {"{\"state\":\"exited\",\"exit_code\":null,\"signal\":\"KILL\"}", 137},
        {"{\"state\":\"exited\",\"exit_code\":null,\"signal\":\"KILL\",\"timed_out\":true}", 124},
        {"{}", 125},
    };
    struct cli cli = {.quiet = true};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *result = json_loads(cases[i].json, 0, NULL);
        assert_int_equal(exec_status(&cli, result), cases[i].status);
        json_decref(result);
    }
    assert_int_equal(signal_number("SIGTERM"), 15);
    assert_string_equal(signal_name(9), "KILL");
}

static void hosts_are_read(void **state)
{
    (void)state;
    unsigned major = 0, minor = 0;
    assert_true(qemu_version_parse("QEMU emulator version 7.2.22 (Debian 1:7.2)", &major, &minor));
    assert_true(major == 7 && minor == 2);
    assert_false(qemu_version_parse("command not found", &major, &minor));
    assert_true(cpu_has_flag("processor: 0\nflags\t\t: fpu vmx sse\n", "vmx"));
    assert_false(cpu_has_flag("processor: 0\nflags\t\t: fpu xvmx vmxx\nbugs: vmx\n", "vmx"));
    char accept[32];
    websocket_accept("dGhlIHNhbXBsZSBub25jZQ==", accept); /* the example of RFC 6455, section 1.3 */
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_in_every_form),
        cmocka_unit_test(options_end_where_a_command_begins),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(a_list_of_options_has_a_maximum),
        cmocka_unit_test(tables_align_and_escape),
        cmocka_unit_test(sizes_and_times_are_short),
        cmocka_unit_test(progress_shows_step_share_and_time),
        cmocka_unit_test(events_come_out_whole_however_they_are_cut),
        cmocka_unit_test(events_have_a_maximum_and_can_stop),
        cmocka_unit_test(ports_are_parsed),
        cmocka_unit_test(build_lines_are_parsed),
        cmocka_unit_test(percentiles_are_nearest_ranks),
        cmocka_unit_test(paths_are_percent_encoded),
        cmocka_unit_test(problems_become_errors),
        cmocka_unit_test(every_command_is_described),
        cmocka_unit_test(endings_become_exit_codes),
        cmocka_unit_test(hosts_are_read),
    };
    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}

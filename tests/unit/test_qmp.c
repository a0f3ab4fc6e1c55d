/* Unit tests of src/qmp: the parser against what a hostile QEMU can send (J21), the client against a scripted peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <sys/socket.h>
#include <sys/un.h>

#include "base/file.h"
#include "qmp/qmp.h"
#include "qmp/qmp_parser.h"

static int seen;

static bool count(void *arg, const struct qmp_message *m)
{
    (void)m;
    seen++;
    return arg == NULL || seen < *(int *)arg;
}

static int feed(struct qmp_parser *p, const char *text, struct err *e)
{
    return qmp_parser_feed(p, text, strlen(text), 1000, count, NULL, e);
}

static void parser_takes_lines_in_pieces(void **state)
{
    (void)state;
    struct qmp_parser p;
    struct err e = {0};
    qmp_parser_init(&p, 4096);
    seen = 0;
    const char *text = "{\"QMP\":{}}\r\n{\"return\":{},\"id\":1}\r\n{\"event\":\"STOP\"}\r\n";
    for (const char *c = text; *c; c++)
        assert_int_equal(qmp_parser_feed(&p, c, 1, 1000, count, NULL, &e), 0);
    assert_int_equal(seen, 3);
    qmp_parser_done(&p);
}

static void parser_refuses_what_is_no_qmp(void **state)
{
    (void)state;
    _cleanup_free_ char *deep = xmalloc(20002);
    memset(deep, '[', 20000);
    strcpy(deep + 20000, "\n");
    const char *const wrong[] = {
        "[]\n", "1\n", "{}\n", "{\"return\":{}}\n", "{\"return\":{},\"id\":\"1\"}\n", "{\"return\":{},\"id\":-1}\n",
        "{\"id\":1,\"id\":1,\"return\":1}\n", "{\"event\":1}\n", "nonsense\n", "{\"return\":\"\\u0000\",\"id\":1}\n", deep,
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct qmp_parser p;
        struct err e = {0};
        qmp_parser_init(&p, 65536);
        assert_int_equal(feed(&p, wrong[i], &e), ERR_PROTOCOL);
        qmp_parser_done(&p);
    }
}

static void parser_bounds_line_and_events(void **state)
{
    (void)state;
    struct qmp_parser p;
    struct err e = {0};
    qmp_parser_init(&p, 1000);
    char line[600];
    memset(line, 'a', sizeof(line));
    assert_int_equal(qmp_parser_feed(&p, line, sizeof(line), 0, count, NULL, &e), 0);
    assert_int_equal(qmp_parser_feed(&p, line, sizeof(line), 0, count, NULL, &e), ERR_PROTOCOL);
    qmp_parser_done(&p);
    qmp_parser_init(&p, 1000);
    int r = 0, sent = 0;
    while (r == 0 && sent < 10 * QMP_EVENTS_PER_SECOND) {
        r = feed(&p, "{\"event\":\"X\"}\n", &e);
        sent++;
    }
    assert_int_equal(r, ERR_PROTOCOL);
    assert_int_equal(sent, QMP_EVENTS_PER_SECOND + 1);
    qmp_parser_done(&p);
}

struct peer {
    uv_loop_t loop;
    char folder[64], path[80];
    int listener, fd;
    int answers, errors, closed;
    int error_code;
};

static void peer_up(struct peer *p)
{
    *p = (struct peer){.fd = -1};
    strcpy(p->folder, "/tmp/space-qmp-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->path, sizeof(p->path), "%s/q", p->folder);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, p->path);
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(p->listener, 1), 0);
    uv_loop_init(&p->loop);
}

static void peer_down(struct peer *p, struct qmp *q)
{
    qmp_free(q);
    uv_run(&p->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&p->loop), 0);
    close(p->listener);
    if (p->fd >= 0)
        close(p->fd);
    dir_remove_tree(p->folder, NULL);
}

static void say(int fd, const char *text)
{
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static void on_answer(void *arg, json_t *answer, const struct err *e)
{
    struct peer *p = arg;
    if (answer)
        p->answers++;
    else {
        p->errors++;
        p->error_code = e->code;
    }
}

static void on_close(void *arg, const struct err *e)
{
    (void)e;
    ((struct peer *)arg)->closed++;
}

static void client_matches_answers_and_reports_close_once(void **state)
{
    (void)state;
    struct peer p;
    struct qmp *q;
    struct err e = {0};
    peer_up(&p);
    const struct qmp_callbacks callbacks = {.on_close = on_close};
    assert_int_equal(qmp_open(&p.loop, p.path, &callbacks, &p, &q, &e), 0);
    p.fd = accept(p.listener, NULL, NULL);
    qmp_command(q, "stop", NULL, -1, 0, on_answer, &p);
    qmp_command(q, "cont", NULL, -1, 0, on_answer, &p);
    qmp_command(q, "query-status", NULL, -1, 0, on_answer, &p);
    say(p.fd, "{\"QMP\":{}}\n{\"return\":{},\"id\":1}\n");
    while (p.answers + p.errors < 2) {
        uv_run(&p.loop, UV_RUN_NOWAIT);
        char text[1000];
        ssize_t n = recv(p.fd, text, sizeof(text) - 1, MSG_DONTWAIT);
        if (n > 0 && memmem(text, (size_t)n, "\"id\":3", 6))
            say(p.fd, "{\"return\":{},\"id\":2}\n{\"error\":{\"desc\":\"no\"},\"id\":3}\n");
    }
    assert_int_equal(p.answers, 1);
    assert_int_equal(p.error_code, ERR_PROTOCOL);
    close(p.fd);
    p.fd = -1;
    while (!p.closed)
        uv_run(&p.loop, UV_RUN_ONCE);
    assert_int_equal(p.errors, 2);
    assert_int_equal(p.error_code, ERR_GONE);
    qmp_command(q, "stop", NULL, -1, 0, on_answer, &p);
    assert_int_equal(p.errors, 3);
    peer_down(&p, q);
}

static void client_gives_up_at_the_deadline(void **state)
{
    (void)state;
    struct peer p;
    struct qmp *q;
    struct err e = {0};
    peer_up(&p);
    const struct qmp_callbacks callbacks = {.on_close = on_close};
    assert_int_equal(qmp_open(&p.loop, p.path, &callbacks, &p, &q, &e), 0);
    qmp_command(q, "stop", NULL, -1, 30, on_answer, &p);
    while (!p.closed)
        uv_run(&p.loop, UV_RUN_ONCE);
    assert_int_equal(p.error_code, ERR_TIMEOUT);
    peer_down(&p, q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parser_takes_lines_in_pieces),
        cmocka_unit_test(parser_refuses_what_is_no_qmp),
        cmocka_unit_test(parser_bounds_line_and_events),
        cmocka_unit_test(client_matches_answers_and_reports_close_once),
        cmocka_unit_test(client_gives_up_at_the_deadline),
    };
    return cmocka_run_group_tests_name("qmp", tests, NULL, NULL);
}

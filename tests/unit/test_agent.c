/* The guest agent as an ordinary process, spoken to as the host does: execs. Files and the like: test_agent_files.c;
 * the session's start and restart: test_agent_session.c. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "agent_client.h"
#include "base/clock.h"

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

/* --- helpers --------------------------------------------------------------------------------------------------------
 */

/* An output stream taken apart. */
struct output {
    struct buf out, err;
    uint64_t dropped, next; /* offset after the last record */
    bool exited;
    int64_t code, sig, total, lost;
    bool timed_out;
};

static void output_done(struct output *o)
{
    buf_done(&o->out);
    buf_done(&o->err);
}

static void take_exit(struct output *o, const uint8_t *data, size_t len)
{
    struct wire_reader r;
    struct wire_field f;
    o->exited = true;
    wire_reader_init(&r, data, len);
    while (wire_next(&r, &f)) {
        if (f.tag == AGENT_TAG_EXIT_CODE)
            wire_field_i64(&f, &o->code);
        if (f.tag == AGENT_TAG_EXIT_SIGNAL)
            wire_field_i64(&f, &o->sig);
        if (f.tag == AGENT_TAG_EXIT_TOTAL_BYTES)
            wire_field_i64(&f, &o->total);
        if (f.tag == AGENT_TAG_EXIT_DROPPED_BYTES)
            wire_field_i64(&f, &o->lost);
        if (f.tag == AGENT_TAG_EXIT_TIMED_OUT)
            wire_field_bool(&f, &o->timed_out);
    }
    assert_true(wire_done(&r));
}

/* Offsets must be without gap: each record begins where the one before ended. */
static void output_parse(const struct buf *body, uint64_t from, struct output *o)
{
    const uint8_t *at = buf_data(body), *end = at + body->len;
    *o = (struct output){.next = from, .code = -1, .sig = -1};
    while (end - at >= WIRE_RECORD_HEADER) {
        struct wire_record rec;
        assert_true(wire_record_decode(at, &rec));
        at += WIRE_RECORD_HEADER;
        assert_true(rec.len <= AGENT_RECORD_MAX);
        if ((size_t)(end - at) < rec.len)
            return; /* cut off by the reader */
        assert_int_equal(rec.offset, o->next);
        assert_false(o->exited);
        if (rec.type == AGENT_RECORD_STDOUT || rec.type == AGENT_RECORD_STDERR) {
            buf_put(rec.type == AGENT_RECORD_STDOUT ? &o->out : &o->err, at, rec.len);
            o->next += rec.len;
        } else if (rec.type == AGENT_RECORD_DROPPED) {
            assert_int_equal(rec.len, 8);
            o->dropped += get_u64(at);
            o->next += get_u64(at);
        } else if (rec.type == AGENT_RECORD_EXIT) {
            take_exit(o, at, rec.len);
        }
        at += rec.len;
    }
}

struct exec_args {
    const char *const *argv;
    const char *shell, *user, *cwd;
    const char *const *env;
    bool tty, want_stdin;
    unsigned rows, cols;
    uint64_t buffer, timeout_ms;
};

static void exec_body(const struct exec_args *a, struct buf *b)
{
    for (const char *const *s = a->argv; s && *s; s++)
        wire_put_text(b, AGENT_TAG_EXEC_ARG, *s);
    wire_put_text(b, AGENT_TAG_EXEC_SHELL, a->shell);
    wire_put_text(b, AGENT_TAG_EXEC_USER, a->user ? a->user : geteuid() == 0 ? "root" : NULL);
    wire_put_text(b, AGENT_TAG_EXEC_CWD, a->cwd);
    for (const char *const *s = a->env; s && *s; s++)
        wire_put_text(b, AGENT_TAG_EXEC_ENV, *s);
    if (a->tty)
        wire_put_u64(b, AGENT_TAG_EXEC_TTY, 1);
    if (a->rows) {
        wire_put_u64(b, AGENT_TAG_EXEC_ROWS, a->rows);
        wire_put_u64(b, AGENT_TAG_EXEC_COLS, a->cols);
    }
    if (a->want_stdin)
        wire_put_u64(b, AGENT_TAG_EXEC_STDIN, 1);
    if (a->buffer)
        wire_put_u64(b, AGENT_TAG_EXEC_BUFFER, a->buffer);
    if (a->timeout_ms)
        wire_put_u64(b, AGENT_TAG_EXEC_TIMEOUT_MS, a->timeout_ms);
}

static struct reply *start_reply(struct client *c, const char *id, const struct exec_args *a)
{
    char path[128];
    _cleanup_buf_ struct buf b = BUF_MAX(AGENT_BODY_MAX);
    exec_body(a, &b);
    snprintf(path, sizeof(path), AGENT_PATH_EXECS "/%s", id);
    return client_call(c, "POST", path, buf_data(&b), b.len);
}

static void start(struct client *c, const char *id, const struct exec_args *a)
{
    struct reply *r = start_reply(c, id, a);
    if (r->status != 201)
        fail_msg("%d %.*s", r->status, (int)r->body.len, (const char *)buf_data(&r->body));
    reply_free(r);
}

static struct reply *attach(struct client *c, const char *id, uint64_t from)
{
    char path[128];
    snprintf(path, sizeof(path), AGENT_PATH_EXECS "/%s/output?from=%llu", id, (unsigned long long)from);
    return client_open(c, "GET", path, NULL, 0);
}

static void finish(struct client *c, struct reply *r, uint64_t from, struct output *o)
{
    client_wait_closed(c, r);
    assert_int_equal(r->status, 200);
    assert_true(r->ended);
    output_parse(&r->body, from, o);
    assert_true(o->exited);
    reply_free(r);
}

static void run(struct client *c, const char *id, const struct exec_args *a, struct output *o)
{
    start(c, id, a);
    finish(c, attach(c, id, 0), 0, o);
}

static void run_shell(struct client *c, const char *id, const char *line, struct output *o)
{
    run(c, id, &(struct exec_args){.shell = line}, o);
}

static void assert_text(const struct buf *b, const char *text)
{
    if (b->len != strlen(text) || memcmp(buf_data(b), text, b->len) != 0)
        fail_msg("got \"%.*s\" and not \"%s\"", (int)b->len, b->len ? (const char *)buf_data(b) : "", text);
}

static bool has(const struct buf *b, const char *text)
{
    return b->len > 0 && b->mem && memmem(buf_data(b), b->len, text, strlen(text));
}

static void assert_has(const struct buf *b, const char *text)
{
    if (!has(b, text))
        fail_msg("no \"%s\" in \"%.*s\"", text, (int)b->len, b->len ? (const char *)buf_data(b) : "");
}

static void assert_error(struct reply *r, int status, const char *name)
{
    if (r->status != status || strcmp(r->error, name) != 0)
        fail_msg("got %d %s: %.*s", r->status, r->error, (int)r->body.len,
                 r->body.len ? (char *)buf_data(&r->body) : "");
    assert_true(r->body.len > 0 && r->body.len <= AGENT_ERROR_TEXT_MAX);
    reply_free(r);
}

/* --- tests ----------------------------------------------------------------------------------------------------------
 */

static void arguments(void **state)
{
    static const char *const argv[] = {"printf", "%s|%s|", "a b", "", NULL};
    struct output o;
    run(*state, "x1", &(struct exec_args){.argv = argv}, &o);
    assert_text(&o.out, "a b||");
    assert_int_equal(o.code, 0);
    assert_int_equal(o.total, 5);
    output_done(&o);
}

static void shell_and_kinds(void **state)
{
    struct output o;
    run_shell(*state, "x1", "echo out; sleep 0.05; echo err >&2; sleep 0.05; echo more; exit 7", &o);
    assert_text(&o.out, "out\nmore\n");
    assert_text(&o.err, "err\n");
    assert_int_equal(o.code, 7);
    output_done(&o);
}

static void ended_by_signal(void **state)
{
    struct output o;
    run_shell(*state, "x1", "kill -SEGV $$", &o);
    assert_int_equal(o.sig, SIGSEGV);
    assert_int_equal(o.code, -1);
    output_done(&o);
    start(*state, "x2", &(struct exec_args){.shell = "sleep 100 & wait"});
    struct reply *r = client_callf(*state, "POST", AGENT_PATH_EXECS "/x2/signal?sig=%d", SIGTERM);
    assert_int_equal(r->status, 200);
    reply_free(r);
    finish(*state, attach(*state, "x2", 0), 0, &o);
    assert_int_equal(o.sig, SIGTERM);
    output_done(&o);
    assert_error(client_callf(*state, "POST", AGENT_PATH_EXECS "/x2/signal?sig=9"), 409, "wrong_state");
}

static void environment_and_folder(void **state)
{
    static const char *const env[] = {"A=1", "LANG=xx", "PATH=/usr/bin:/bin", NULL};
    struct output o;
    run(*state, "x1",
        &(struct exec_args){.shell = "echo $A $LANG $PATH; pwd; umask; ulimit -n; trap", .env = env, .cwd = "/usr"},
        &o);
    assert_text(&o.out, "1 xx /usr/bin:/bin\n/usr\n0022\n1024\n");
    output_done(&o);
    run_shell(*state, "x2", "cat /proc/self/status; ls /proc/self/fd; echo HOME=$HOME", &o);
    assert_has(&o.out, "SigBlk:\t0000000000000000");
    assert_has(&o.out, "SigIgn:\t0000000000000000");
    assert_has(&o.out, "HOME=/");
    assert_has(&o.out, "\n0\n1\n2\n3\n"); /* and ls has opened the folder itself: nothing was inherited */
    assert_false(has(&o.out, "\n4\n"));
    output_done(&o);
}

static void other_user(void **state)
{
    struct output o;
    if (geteuid() != 0)
        skip();
    run(*state, "x1", &(struct exec_args){.shell = "id -u; id -g; id -G; echo $USER $HOME", .user = "daemon"}, &o);
    assert_text(&o.out, "1\n1\n1\ndaemon /usr/sbin\n");
    output_done(&o);
    run(*state, "x2", &(struct exec_args){.shell = "id -u; id -g; id -G", .user = "54321"}, &o);
    assert_text(&o.out, "54321\n54321\n54321\n");
    output_done(&o);
    assert_error(start_reply(*state, "x3", &(struct exec_args){.shell = "true", .user = "nobody-there"}), 404,
                 "not_found");
}

static void what_cannot_start(void **state)
{
    static const char *const missing[] = {"/no/such/program", NULL}, *const plain[] = {"no-such-program", NULL},
                             *const file[] = {"/etc/passwd", NULL};
    assert_error(start_reply(*state, "x1", &(struct exec_args){.argv = missing}), 404, "not_found");
    assert_error(start_reply(*state, "x1", &(struct exec_args){.argv = plain}), 404, "not_found");
    assert_error(start_reply(*state, "x1", &(struct exec_args){.argv = file}), 403, "forbidden");
    assert_error(start_reply(*state, "x1", &(struct exec_args){.shell = "true", .cwd = "/no/such"}), 404, "not_found");
    assert_error(start_reply(*state, "x1", &(struct exec_args){0}), 400, "invalid_request");
    assert_error(start_reply(*state, "x.1", &(struct exec_args){.shell = "true"}), 400, "invalid_request");
    assert_error(client_callf(*state, "GET", AGENT_PATH_EXECS "/x1"), 404, "not_found");
    start(*state, "x1", &(struct exec_args){.shell = "true"});
    assert_error(start_reply(*state, "x1", &(struct exec_args){.shell = "true"}), 409, "conflict");
}

/* A script without an interpreter line runs in the shell, as everywhere. */
static void plain_script(void **state)
{
    char path[] = "/tmp/space-script-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "echo \"script $1\"\n", 17) == 17);
    fchmod(fd, 0755);
    close(fd);
    const char *const argv[] = {path, "one", NULL};
    struct output o;
    run(*state, "x1", &(struct exec_args){.argv = argv}, &o);
    assert_text(&o.out, "script one\n");
    output_done(&o);
    unlink(path);
}

static uint64_t accepted(struct reply *r)
{
    struct wire_reader reader;
    struct wire_field f;
    uint64_t v = UINT64_MAX;
    assert_int_equal(r->status, 200);
    wire_reader_init(&reader, buf_data(&r->body), r->body.len);
    while (wire_next(&reader, &f))
        if (f.tag == AGENT_TAG_STDIN_ACCEPTED)
            wire_field_u64(&f, &v);
    reply_free(r);
    return v;
}

static void input(void **state)
{
    struct output o;
    start(*state, "x1", &(struct exec_args){.shell = "cat; echo end", .want_stdin = true});
    assert_int_equal(accepted(client_call(*state, "POST", AGENT_PATH_EXECS "/x1/stdin", "hello ", 6)), 6);
    assert_int_equal(accepted(client_call(*state, "POST", AGENT_PATH_EXECS "/x1/stdin?eof=1", "world", 5)), 5);
    finish(*state, attach(*state, "x1", 0), 0, &o);
    assert_text(&o.out, "hello worldend\n");
    output_done(&o);
    assert_error(client_call(*state, "POST", AGENT_PATH_EXECS "/x1/stdin", "x", 1), 409, "wrong_state");
    run_shell(*state, "x2", "cat; echo end", &o); /* without: nothing to read */
    assert_text(&o.out, "end\n");
    output_done(&o);
}

static void input_is_held_back(void **state)
{
    size_t len = 3 << 20;
    _cleanup_free_ char *data = xmalloc(len);
    struct output o;
    memset(data, 'z', len);
    start(*state, "x1", &(struct exec_args){.shell = "sleep 0.4; wc -c", .want_stdin = true});
    struct reply *r = client_open(*state, "POST", AGENT_PATH_EXECS "/x1/stdin?eof=1", data, len);
    client_run_ms(*state, 150);
    assert_true(r->send_len > 0); /* the process sleeps: pipe and window are full, the rest stays here */
    struct reply *hello = client_callf(*state, "GET", AGENT_PATH_HELLO); /* and nobody else is held up */
    assert_int_equal(hello->status, 200);
    reply_free(hello);
    client_wait_closed(*state, r);
    assert_int_equal(accepted(r), len);
    finish(*state, attach(*state, "x1", 0), 0, &o);
    assert_text(&o.out, "3145728\n");
    output_done(&o);
    start(*state, "x2", &(struct exec_args){.shell = "exec 0<&-; sleep 0.2", .want_stdin = true});
    r = client_call(*state, "POST", AGENT_PATH_EXECS "/x2/stdin", data, len);
    assert_true(accepted(r) < len);
}

static void terminal(void **state)
{
    struct output o;
    start(*state, "x1",
          &(struct exec_args){
              .shell = "tty >/dev/null && echo is-tty $TERM; stty size; trap 'stty size' WINCH; echo ready; read line; "
                       "echo got $line; read line; echo eof",
              .tty = true,
              .want_stdin = true,
              .rows = 40,
              .cols = 123});
    struct reply *out = attach(*state, "x1", 0);
    while (!has(&out->body, "ready"))
        client_wait_body(*state, out, out->body.len + 1);
    struct reply *r = client_callf(*state, "POST", AGENT_PATH_EXECS "/x1/resize?rows=50&cols=60");
    assert_int_equal(r->status, 200);
    reply_free(r);
    assert_int_equal(accepted(client_call(*state, "POST", AGENT_PATH_EXECS "/x1/stdin", "abc\n", 4)), 4);
    while (!has(&out->body, "got abc"))
        client_wait_body(*state, out, out->body.len + 1);
    assert_int_equal(accepted(client_call(*state, "POST", AGENT_PATH_EXECS "/x1/stdin?eof=1", "", 0)), 0);
    finish(*state, out, 0, &o);
    assert_has(&o.out, "is-tty xterm-256color");
    assert_has(&o.out, "40 123");
    assert_has(&o.out, "50 60");
    assert_has(&o.out, "eof\r\n");
    assert_int_equal(o.code, 0);
    output_done(&o);
}

static void many_at_once(void **state)
{
    enum { N = 200 };
    struct reply *made[N], *outs[N];
    struct buf bodies[N];
    char path[64];
    for (int i = 0; i < N; i++) {
        char line[64];
        snprintf(line, sizeof(line), "sleep 0.2; echo %d; echo %d >&2; exit %d", i, i, i % 100);
        bodies[i] = BUF_MAX(4096);
        exec_body(&(struct exec_args){.shell = line}, &bodies[i]);
        snprintf(path, sizeof(path), AGENT_PATH_EXECS "/x%d", i);
        made[i] = client_open(*state, "POST", path, buf_data(&bodies[i]), bodies[i].len);
    }
    for (int i = 0; i < N; i++) {
        client_wait_closed(*state, made[i]);
        assert_int_equal(made[i]->status, 201);
        reply_free(made[i]);
        buf_done(&bodies[i]);
        snprintf(path, sizeof(path), "x%d", i);
        outs[i] = attach(*state, path, 0);
    }
    for (int i = 0; i < N; i++) {
        struct output o;
        char text[16];
        finish(*state, outs[i], 0, &o);
        snprintf(text, sizeof(text), "%d\n", i);
        assert_text(&o.out, text);
        assert_text(&o.err, text);
        assert_int_equal(o.code, i % 100);
        output_done(&o);
    }
    struct reply *r = client_callf(*state, "GET", AGENT_PATH_EXECS);
    struct wire_reader reader;
    struct wire_field f;
    int count = 0;
    wire_reader_init(&reader, buf_data(&r->body), r->body.len);
    while (wire_next(&reader, &f))
        count += f.tag == AGENT_TAG_EXEC_STATE;
    assert_int_equal(count, N);
    reply_free(r);
}

static void attach_again(void **state)
{
    struct output o, p;
    start(*state, "x1",
          &(struct exec_args){.shell = "for i in 1 2 3 4 5 6 7 8; do echo line $i; echo e$i >&2; sleep 0.05; done"});
    struct reply *first = attach(*state, "x1", 0), *other = attach(*state, "x1", 0);
    client_wait_body(*state, first, 40);
    output_parse(&first->body, 0, &o);
    client_cancel(*state, first); /* a reader goes, the exec stays */
    reply_free(first);
    uint64_t next = o.next;
    finish(*state, attach(*state, "x1", next), next, &p);
    buf_put(&o.out, buf_data(&p.out), p.out.len);
    assert_text(&o.out, "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\n");
    assert_int_equal(p.total, 56 + 24);
    output_done(&o);
    output_done(&p);
    finish(*state, other, 0, &o);
    assert_int_equal(o.out.len, 56);
    output_done(&o);
    finish(*state, attach(*state, "x1", 80), 80, &o); /* at the very end: the exit alone */
    assert_int_equal(o.out.len, 0);
    output_done(&o);
    assert_error(client_callf(*state, "GET", AGENT_PATH_EXECS "/x1/output?from=81"), 416, "range_not_satisfiable");
}

/* Both requests at once, the reader's before the exec's body: one round trip for a whole exec. */
static void attach_before_the_answer(void **state)
{
    struct output o;
    _cleanup_buf_ struct buf b = BUF_MAX(4096);
    exec_body(&(struct exec_args){.shell = "echo quick"}, &b);
    struct reply *made = client_open(*state, "POST", AGENT_PATH_EXECS "/x1", buf_data(&b), b.len);
    finish(*state, attach(*state, "x1", 0), 0, &o);
    assert_text(&o.out, "quick\n");
    output_done(&o);
    client_wait_closed(*state, made);
    assert_int_equal(made->status, 201);
    reply_free(made);
    made = client_open(*state, "POST", AGENT_PATH_EXECS "/x2", "rubbish", 7);
    struct reply *r = attach(*state, "x2", 0);
    client_wait_closed(*state, r);
    assert_error(r, 404, "not_found");
    client_wait_closed(*state, made);
    reply_free(made);
}

static void without_following(void **state)
{
    struct output o;
    start(*state, "x1", &(struct exec_args){.shell = "echo now; sleep 100"});
    struct reply *r;
    for (;;) {
        r = client_callf(*state, "GET", AGENT_PATH_EXECS "/x1/output?follow=0");
        assert_true(r->ended);
        if (r->body.len > 0)
            break;
        reply_free(r);
    }
    output_parse(&r->body, 0, &o);
    assert_text(&o.out, "now\n");
    assert_false(o.exited);
    output_done(&o);
    reply_free(r);
}

static void drops_without_a_reader(void **state)
{
    struct output o;
    start(*state, "x1", &(struct exec_args){.shell = "seq 1 200000", .buffer = 64 * 1024});
    for (;;) { /* until it has ended, nobody attached */
        struct reply *r = client_callf(*state, "GET", AGENT_PATH_EXECS "/x1");
        struct wire_reader reader;
        struct wire_field f;
        bool ended = false;
        wire_reader_init(&reader, buf_data(&r->body), r->body.len);
        while (wire_next(&reader, &f))
            ended |= f.tag == AGENT_TAG_STATE_EXIT;
        reply_free(r);
        if (ended)
            break;
    }
    finish(*state, attach(*state, "x1", 0), 0, &o);
    assert_int_equal(o.total, 1288895);
    assert_int_equal(o.dropped + o.out.len, 1288895);
    assert_int_equal(o.lost, o.dropped);
    assert_true(o.out.len >= 64 * 1024);
    assert_memory_equal(buf_data(&o.out) + o.out.len - 7, "200000\n", 7);
    output_done(&o);
}

static void holds_back_for_a_reader(void **state)
{
    struct output o;
    size_t total = 20u << 20;
    start(*state, "x1",
          &(struct exec_args){.shell = "head -c 20971520 /dev/zero | tr '\\0' x; echo done >&2", .buffer = 128 * 1024});
    struct reply *r = attach(*state, "x1", 0);
    r->hold = true;
    r->body.max = 64u << 20;
    client_run_ms(*state, 300);
    assert_true(r->body.len <= AGENT_STREAM_WINDOW); /* and the writer stands still */
    struct reply *state_reply = client_callf(*state, "GET", AGENT_PATH_EXECS "/x1");
    struct wire_reader reader;
    struct wire_field f;
    uint64_t end = 0, oldest = 1;
    wire_reader_init(&reader, buf_data(&state_reply->body), state_reply->body.len);
    while (wire_next(&reader, &f)) {
        if (f.tag == AGENT_TAG_STATE_END)
            wire_field_u64(&f, &end);
        if (f.tag == AGENT_TAG_STATE_OLDEST)
            wire_field_u64(&f, &oldest);
    }
    reply_free(state_reply);
    assert_true(end < AGENT_STREAM_WINDOW + 512 * 1024);
    client_release(*state, r);
    finish(*state, r, 0, &o);
    assert_int_equal(o.dropped, 0);
    assert_int_equal(o.out.len, total);
    assert_text(&o.err, "done\n");
    for (size_t i = 0; i < total; i++)
        if (buf_data(&o.out)[i] != 'x')
            fail_msg("wrong byte at %zu", i);
    output_done(&o);
}

static void background_children(void **state)
{
    struct output o;
    uint64_t begin = clock_mono_ms();
    run_shell(*state, "x1", "(sleep 1; echo late; echo late >/tmp/space-late.$$) & echo $$; exit 3", &o);
    assert_true(clock_mono_ms() - begin < 900); /* does not wait for the child */
    assert_int_equal(o.code, 3);
    char path[64];
    snprintf(path, sizeof(path), "/tmp/space-late.%d", atoi(buf_cstr(&o.out)));
    output_done(&o);
    begin = clock_mono_ms();
    while (access(path, F_OK) < 0) { /* and the child does not die of its broken pipe */
        assert_true(clock_mono_ms() - begin < CLIENT_DEADLINE_MS);
        client_run_ms(*state, 10);
    }
    unlink(path);
}

static void orphans_are_reaped(void **state)
{
    struct output o;
    char path[64], line[256] = "";
    run_shell(*state, "x1", "for i in 1 2 3 4 5; do (setsid sleep 0.1 &) ; done", &o);
    output_done(&o);
    client_run_ms(*state, 400);
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", client.agent_pid, client.agent_pid);
    FILE *f = fopen(path, "re");
    if (!f)
        skip();
    if (!fgets(line, sizeof(line), f))
        line[0] = '\0';
    fclose(f);
    assert_string_equal(line, "");
}

static void times_out(void **state)
{
    struct output o;
    uint64_t begin = clock_mono_ms();
    run(*state, "x1", &(struct exec_args){.shell = "sleep 100 & sleep 100", .timeout_ms = 100}, &o);
    assert_true(clock_mono_ms() - begin < 5000);
    assert_int_equal(o.sig, SIGKILL);
    assert_true(o.timed_out);
    output_done(&o);
}

static void deleting(void **state)
{
    start(*state, "x1", &(struct exec_args){.shell = "echo $$; exec sleep 100"});
    struct reply *out = attach(*state, "x1", 0);
    client_wait_body(*state, out, WIRE_RECORD_HEADER + 2);
    int pid = atoi(buf_cstr(&out->body) + WIRE_RECORD_HEADER);
    struct reply *r = client_callf(*state, "DELETE", AGENT_PATH_EXECS "/x1");
    assert_int_equal(r->status, 200);
    reply_free(r);
    client_wait_closed(*state, out);
    assert_false(out->ended);
    reply_free(out);
    uint64_t until = clock_mono_ms() + CLIENT_DEADLINE_MS;
    while (kill(pid, 0) == 0) {
        assert_true(clock_mono_ms() < until);
        client_run_ms(*state, 5);
    }
    assert_error(client_callf(*state, "GET", AGENT_PATH_EXECS "/x1"), 404, "not_found");
}

static void the_oldest_finished_make_room(void **state)
{
    char id[16];
    for (int i = 0; i < AGENT_EXECS_MAX; i++) {
        static const char *const argv[] = {"/bin/true", NULL};
        snprintf(id, sizeof(id), "x%d", i);
        start(*state, id, &(struct exec_args){.argv = argv});
    }
    struct output o;
    finish(*state, attach(*state, "x1023", 0), 0, &o);
    start(*state, "more", &(struct exec_args){.shell = "true"});
    assert_error(client_callf(*state, "GET", AGENT_PATH_EXECS "/x0"), 404, "not_found");
    struct reply *r = client_callf(*state, "GET", AGENT_PATH_EXECS "/x1");
    assert_int_equal(r->status, 200);
    reply_free(r);
}

static void bench_and_metrics(void **state)
{
    struct reply *r = client_callf(*state, "POST", AGENT_PATH_BENCH_SPAWN "?n=5&path=/bin/true");
    struct wire_reader reader;
    struct wire_field f;
    int count = 0;
    assert_int_equal(r->status, 200);
    wire_reader_init(&reader, buf_data(&r->body), r->body.len);
    while (wire_next(&reader, &f))
        count += f.tag == AGENT_TAG_BENCH_EACH_NS;
    assert_int_equal(count, 5);
    reply_free(r);
    r = client_callf(*state, "GET", AGENT_PATH_BENCH_SOURCE "?bytes=10000000");
    assert_int_equal(r->body.len, 10000000);
    reply_free(r);
    r = client_callf(*state, "GET", AGENT_PATH_METRICS);
    uint64_t seen = 0, v;
    wire_reader_init(&reader, buf_data(&r->body), r->body.len);
    while (wire_next(&reader, &f))
        if (wire_field_u64(&f, &v) && (f.tag == AGENT_TAG_METRICS_EXECS_RUNNING || v > 0))
            seen++;
    assert_true(seen >= 10);
    reply_free(r);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(arguments),
                                       CASE(shell_and_kinds),
                                       CASE(ended_by_signal),
                                       CASE(environment_and_folder),
                                       CASE(other_user),
                                       CASE(what_cannot_start),
                                       CASE(plain_script),
                                       CASE(input),
                                       CASE(input_is_held_back),
                                       CASE(terminal),
                                       CASE(many_at_once),
                                       CASE(attach_again),
                                       CASE(attach_before_the_answer),
                                       CASE(without_following),
                                       CASE(drops_without_a_reader),
                                       CASE(holds_back_for_a_reader),
                                       CASE(background_children),
                                       CASE(orphans_are_reaped),
                                       CASE(times_out),
                                       CASE(deleting),
                                       CASE(the_oldest_finished_make_room),
                                       CASE(bench_and_metrics)};
    return cmocka_run_group_tests_name("agent", tests, NULL, NULL);
}

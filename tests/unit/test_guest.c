/* Unit tests of the calls to the guest agent, against an agent that answers what the test says: typed results, errors,
 * streams, cancelling, deadlines, the end of the connection, and answers that are wrong (G29 to G32, G36, G37, G40). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/socket.h>

#include "base/str.h"
#include "fake_agent.h"
#include "guest/decode.h"
#include "guest/guest.h"
#include "wire/wire.h"

struct world {
    uv_loop_t loop;
    uv_timer_t guard;
    bool late;
    unsigned ticks;
    struct fake_agent agent;
    struct guest *guest;
    bool ready, closed;
    int closed_code;
    unsigned done_before_close;
};

static struct world w;
static unsigned done_count;
static int done_code; /* of the last done */
static char done_text[512];

static void on_ready(void *arg)
{
    ((struct world *)arg)->ready = true;
}

static void on_closed(void *arg, const struct err *e)
{
    struct world *world = arg;
    assert_false(world->closed);
    world->closed = true;
    world->closed_code = e->code;
    world->done_before_close = done_count;
}

static const struct guest_callbacks guest_callbacks = {on_ready, on_closed};

static void on_guard(uv_timer_t *timer)
{
    struct world *world = timer->data;
    world->late = --world->ticks == 0;
}

/* Run the loop for at most so long. The ticks wake it: what happens before it sleeps is seen soon. */
static bool turn(void)
{
    if (!w.late)
        uv_run(&w.loop, UV_RUN_ONCE);
    return !w.late;
}

static void guard_start(unsigned ms)
{
    w.late = false;
    w.ticks = ms / 5;
    uv_timer_start(&w.guard, on_guard, 5, 5);
}

/* Run the loop until `condition` or ten seconds. */
#define run_until(condition)                                                                                           \
    do {                                                                                                               \
        guard_start(10000);                                                                                            \
        while (!(condition) && turn())                                                                                 \
            ;                                                                                                          \
        uv_timer_stop(&w.guard);                                                                                       \
        assert_true(condition);                                                                                        \
    } while (0)

static void open_with(void (*handle)(struct fake_request *r), bool whole, const struct guest_options *o)
{
    int fds[2];
    struct err e;
    w = (struct world){0};
    done_count = 0;
    done_code = 1;
    uv_loop_init(&w.loop);
    uv_timer_init(&w.loop, &w.guard);
    w.guard.data = &w;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    w.agent.handle = handle;
    w.agent.whole = whole;
    fake_agent_start(&w.agent, &w.loop, fds[1]);
    assert_int_equal(guest_open_fd(&w.loop, fds[0], o, &guest_callbacks, &w, &w.guest, &e), 0);
}

static void close_all(void)
{
    if (!w.closed)
        guest_close(w.guest);
    run_until(w.closed);
    fake_agent_stop(&w.agent);
    uv_close((uv_handle_t *)&w.guard, NULL);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w.loop), 0);
}

static void note(const struct err *e)
{
    done_count++;
    done_code = e ? e->code : 0;
    snprintf(done_text, sizeof(done_text), "%s", e ? e->text : "");
}

static void on_done(void *arg, const struct err *e)
{
    (void)arg;
    note(e);
}

/* --- the simplest call, and errors -------------------------------------------------------------------------------- */

static struct guest_hello hello_seen;

static void on_hello(void *arg, const struct guest_hello *hello, const struct err *e)
{
    (void)arg;
    assert_true((hello == NULL) == (e != NULL));
    if (hello)
        hello_seen = *hello;
    note(e);
}

static void put_hello(struct buf *b, uint64_t protocol)
{
    wire_put_u64(b, AGENT_TAG_HELLO_PROTOCOL, protocol);
    wire_put_text(b, AGENT_TAG_HELLO_VERSION, "0.1.0");
    wire_put_u64(b, AGENT_TAG_HELLO_UPTIME_MS, 1234);
    wire_put_text(b, AGENT_TAG_HELLO_BOOT_ID, "b6e9c3f0-0000-4000-8000-000000000000");
    wire_put_text(b, AGENT_TAG_HELLO_SANDBOX_ID, "");
}

static void answer_hello(struct fake_request *r)
{
    assert_string_equal(r->method, "GET");
    assert_string_equal(r->target, "/v1/hello");
    put_hello(&r->reply, 1);
    fake_answer(r, 200, true, NULL);
}

static void hello_is_decoded(void **state)
{
    (void)state;
    open_with(answer_hello, true, NULL);
    guest_hello(w.guest, on_hello, NULL);
    assert_int_equal(done_count, 0);
    run_until(done_count == 1);
    assert_true(w.ready);
    assert_int_equal(done_code, 0);
    assert_int_equal(hello_seen.uptime_ms, 1234);
    assert_string_equal(hello_seen.version, "0.1.0");
    close_all();
    assert_int_equal(w.closed_code, ERR_CANCELLED);
}

static const char *answer_name, *answer_text;
static int answer_status;

static void answer_error(struct fake_request *r)
{
    if (answer_text)
        buf_put_str(&r->reply, answer_text);
    fake_answer(r, answer_status, true, answer_name ? AGENT_HEADER_ERROR : NULL, answer_name, NULL);
}

static int error_of(int status, const char *name, const char *text)
{
    unsigned before = done_count;
    answer_status = status;
    answer_name = name;
    answer_text = text;
    guest_sync(w.guest, on_done, NULL);
    run_until(done_count == before + 1);
    return done_code;
}

static void errors_of_the_guest_are_a_fixed_set(void **state)
{
    (void)state;
    open_with(answer_error, true, NULL);
    assert_int_equal(error_of(404, "not_found", "no such file"), ERR_NOT_FOUND);
    assert_string_equal(done_text, "no such file");
    assert_int_equal(error_of(403, "forbidden", NULL), ERR_FORBIDDEN);
    assert_int_equal(error_of(409, "conflict", ""), ERR_CONFLICT);
    assert_int_equal(error_of(409, "wrong_state", ""), ERR_STATE);
    assert_int_equal(error_of(507, "no_space", ""), ERR_NO_SPACE);
    assert_int_equal(error_of(503, "unavailable", ""), ERR_UNAVAILABLE);
    assert_int_equal(error_of(416, "range_not_satisfiable", ""), ERR_RANGE);
    /* What would look like a fault of the host, of the key, or of nobody. */
    const char *const others[] = {"unauthenticated", "internal", "system", "cancelled",
                                  "guest_protocol",  "",         "x",      NULL};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_int_equal(error_of(500, others[i], "text"), ERR_PROTOCOL);
    /* Neither success nor an error. */
    assert_int_equal(error_of(204, NULL, NULL), ERR_PROTOCOL);
    assert_int_equal(error_of(302, NULL, NULL), ERR_PROTOCOL);
    assert_true(guest_ready(w.guest));
    close_all();
}

static void texts_of_the_guest_are_escaped_and_cut(void **state)
{
    (void)state;
    open_with(answer_error, true, NULL);
    error_of(404, "not_found",
             "a\x1b]52;c;eA==\x07"
             "b\nc%n\"\xff\xe2\x80\xae");
    assert_string_equal(done_text, "a\\x1b]52;c;eA==\\x07b\\nc%n\"\\xff\\u{202e}");
    _cleanup_free_ char *large = xmalloc(1000001);
    for (size_t i = 0; i < 1000000; i += 2)
        memcpy(large + i, "ä", 2);
    large[1000000] = '\0';
    assert_int_equal(error_of(404, "not_found", large), ERR_NOT_FOUND);
    assert_true(strlen(done_text) < 450);
    assert_true(utf8_valid(done_text, strlen(done_text)));
    assert_string_equal(done_text + strlen(done_text) - strlen("…"), "…");
    close_all();
}

static struct buf wrong_reply;

static void answer_wrong(struct fake_request *r)
{
    buf_put(&r->reply, buf_data(&wrong_reply), wrong_reply.len);
    fake_answer(r, 200, true, NULL);
}

static void answers_that_do_not_decode(void **state)
{
    (void)state;
    open_with(answer_wrong, true, NULL);
    for (int kind = 0; kind < 6; kind++) {
        buf_done(&wrong_reply);
        put_hello(&wrong_reply, kind == 0 ? 2 : 1);
        if (kind == 1)
            wrong_reply.len--; /* cut off */
        if (kind == 2)
            put_hello(&wrong_reply, 1); /* twice */
        if (kind == 3)
            wrong_reply.len = 0;
        if (kind == 4)
            buf_put(&wrong_reply, "\x77\x77\xff\xff\xff\xff", 6);
        if (kind == 5)
            buf_commit(&wrong_reply, (size_t)(memset(buf_reserve(&wrong_reply, 2000000), 0, 2000000), 2000000));
        unsigned before = done_count;
        guest_hello(w.guest, on_hello, NULL);
        run_until(done_count == before + 1);
        assert_int_equal(done_code, kind == 0 ? ERR_UNSUPPORTED : ERR_PROTOCOL);
    }
    buf_done(&wrong_reply);
    close_all();
}

/* --- identity ----------------------------------------------------------------------------------------------------- */

static bool confirm_other;

static void answer_identity(struct fake_request *r)
{
    struct wire_reader reader;
    struct wire_field f;
    unsigned envs = 0;
    char text[100];
    wire_reader_init(&reader, buf_data(&r->body), r->body.len);
    while (wire_next(&reader, &f)) {
        if (f.tag == AGENT_TAG_IDENTITY_ENTROPY)
            assert_int_equal(f.len, 64);
        if (f.tag == AGENT_TAG_IDENTITY_SANDBOX_ID)
            assert_true(wire_field_text(&f, text, sizeof(text)) && strcmp(text, "s2345") == 0);
        envs += f.tag == AGENT_TAG_IDENTITY_ENV;
    }
    assert_true(wire_done(&reader));
    assert_int_equal(envs, 2);
    wire_put_text(&r->reply, AGENT_TAG_CONFIRM_SANDBOX_ID, confirm_other ? "s2346" : "s2345");
    wire_put_u64(&r->reply, AGENT_TAG_CONFIRM_REALTIME_NS, 77);
    wire_put_u64(&r->reply, AGENT_TAG_CONFIRM_OK, 1);
    fake_answer(r, 200, true, NULL);
}

static void on_identity(void *arg, const struct guest_confirm *confirm, const struct err *e)
{
    (void)arg;
    if (confirm)
        assert_int_equal(confirm->realtime_ns, 77);
    note(e);
}

static void identity_is_confirmed_for_this_sandbox_alone(void **state)
{
    (void)state;
    uint8_t entropy[64] = {1};
    struct guest_identity identity = {.entropy = entropy,
                                      .entropy_len = sizeof(entropy),
                                      .hostname = "h",
                                      .machine_id = "00000000000000000000000000000000",
                                      .sandbox_id = "s2345",
                                      .boot_id = "b6e9c3f0-0000-4000-8000-000000000000",
                                      .env = (const char *const[]){"A=1", "B=2", NULL}};
    open_with(answer_identity, true, NULL);
    confirm_other = false;
    guest_identity(w.guest, &identity, on_identity, NULL);
    run_until(done_count == 1);
    assert_int_equal(done_code, 0);
    confirm_other = true;
    guest_identity(w.guest, &identity, on_identity, NULL);
    run_until(done_count == 2);
    assert_int_equal(done_code, ERR_PROTOCOL);
    identity.entropy_len = 10;
    guest_identity(w.guest, &identity, on_identity, NULL);
    assert_int_equal(done_count, 2);
    run_until(done_count == 3);
    assert_int_equal(done_code, ERR_INVALID);
    close_all();
}

/* --- execs -------------------------------------------------------------------------------------------------------- */

static void answer_start(struct fake_request *r)
{
    struct wire_reader reader;
    struct wire_field f;
    _cleanup_buf_ struct buf text = {0};
    assert_string_equal(r->method, "POST");
    assert_string_equal(r->target, "/v1/execs/x1");
    wire_reader_init(&reader, buf_data(&r->body), r->body.len);
    while (wire_next(&reader, &f)) {
        uint64_t n;
        if (wire_field_u64(&f, &n) && f.tag >= AGENT_TAG_EXEC_TTY)
            buf_printf(&text, "%x=%llu ", f.tag, (unsigned long long)n);
        else
            buf_printf(&text, "%x=%.*s ", f.tag, (int)f.len, (const char *)f.data);
    }
    assert_string_equal(buf_cstr(&text),
                        "301=echo 301=a b 303=user 304=/tmp 305=K=V 306=1 307=30 308=80 309=1 30b=5000 ");
    wire_put_u64(&r->reply, AGENT_TAG_STARTED_PID, 42);
    wire_put_i64(&r->reply, AGENT_TAG_STARTED_AT_MS,
                 -5); /* a guest may say any time: it is shown within 1970 to 9999 */
    fake_answer(r, 201, true, NULL);
}

static void on_started(void *arg, const struct guest_exec_started *started, const struct err *e)
{
    (void)arg;
    if (started) {
        assert_int_equal(started->pid, 42);
        assert_int_equal(started->started_ms, 0);
    }
    note(e);
}

static void exec_is_started_as_specified(void **state)
{
    (void)state;
    struct guest_exec_spec spec = {.argv = (const char *const[]){"echo", "a b", NULL},
                                   .user = "user",
                                   .cwd = "/tmp",
                                   .env = (const char *const[]){"K=V", NULL},
                                   .terminal = true,
                                   .rows = 30,
                                   .stdin_open = true,
                                   .timeout_ms = 5000};
    open_with(answer_start, true, NULL);
    guest_exec_start(w.guest, "x1", &spec, on_started, NULL);
    run_until(done_count == 1);
    assert_int_equal(done_code, 0);
    spec.shell = "both";
    guest_exec_start(w.guest, "x1", &spec, on_started, NULL);
    run_until(done_count == 2);
    assert_int_equal(done_code, ERR_INVALID);
    spec = (struct guest_exec_spec){0};
    guest_exec_start(w.guest, "x1", &spec, on_started, NULL);
    run_until(done_count == 3);
    assert_int_equal(done_code, ERR_INVALID);
    spec.shell = "true";
    const char *const ids[] = {"", "../x", "a b", "a/b", "x?y", "ä"};
    for (unsigned i = 0; i < ARRAY_LEN(ids); i++) {
        guest_exec_start(w.guest, ids[i], &spec, on_started, NULL);
        run_until(done_count == 4 + i);
        assert_int_equal(done_code, ERR_INVALID);
    }
    assert_int_equal(w.agent.requests_seen, 1);
    close_all();
}

static struct buf script; /* what answer_script sends */
static bool script_end;

static void answer_script(struct fake_request *r)
{
    buf_put(&r->reply, buf_data(&script), script.len);
    fake_answer(r, 200, script_end, NULL);
}

static void put_record(uint8_t type, uint64_t offset, const void *payload, size_t len)
{
    uint8_t head[WIRE_RECORD_HEADER];
    wire_record_encode(&(struct wire_record){.type = type, .len = (uint32_t)len, .offset = offset}, head);
    buf_put(&script, head, sizeof(head));
    buf_put(&script, payload, len);
}

static void put_exit(uint64_t offset, uint16_t tag, uint64_t value)
{
    _cleanup_buf_ struct buf b = {0};
    wire_put_u64(&b, tag, value);
    wire_put_u64(&b, AGENT_TAG_EXIT_TOTAL_BYTES, offset);
    put_record(AGENT_RECORD_EXIT, offset, buf_data(&b), b.len);
}

static struct buf output_seen;
static struct guest_call *output_call;
static uint64_t output_next;

static void on_output(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    (void)arg;
    assert_int_equal(offset, output_next);
    output_next += len;
    buf_printf(&output_seen, "%d[%.*s]", stream, (int)len, (const char *)data);
    guest_call_consume(output_call, len);
}

static void on_dropped(void *arg, uint64_t offset, uint64_t count)
{
    (void)arg;
    assert_int_equal(offset, output_next);
    output_next += count;
    buf_printf(&output_seen, "dropped(%llu)", (unsigned long long)count);
}

static void on_exit_seen(void *arg, uint64_t end, const struct guest_exit *x)
{
    (void)arg;
    assert_int_equal(end, output_next);
    buf_printf(&output_seen, "%s(%d)", x->signalled ? "signal" : "exit", x->signalled ? x->signal : x->code);
}

static const struct guest_output_callbacks output_callbacks = {on_output, on_dropped, on_exit_seen, on_done};

/* Read the script as output; the code at the end. */
static int read_output(uint64_t from, bool follow)
{
    buf_reset(&output_seen);
    output_next = from;
    script_end = true;
    unsigned before = done_count;
    output_call = guest_exec_output(w.guest, "x1", from, follow, &output_callbacks, NULL);
    run_until(done_count == before + 1);
    buf_reset(&script);
    return done_code;
}

static void output_is_cut_into_records(void **state)
{
    (void)state;
    uint8_t count[8] = {0, 0, 0, 0, 0, 0, 0, 90};
    open_with(answer_script, true, NULL);
    put_record(AGENT_RECORD_DROPPED, 10, count, 8);
    put_record(AGENT_RECORD_STDOUT, 100, "out", 3);
    put_record(AGENT_RECORD_KEEPALIVE, 103, NULL, 0);
    put_record(99, 103, "not known", 9);
    put_record(AGENT_RECORD_STDERR, 103, "err", 3);
    put_exit(106, AGENT_TAG_EXIT_CODE, 7);
    assert_int_equal(read_output(10, true), 0);
    assert_string_equal(buf_cstr(&output_seen), "dropped(90)1[out]2[err]exit(7)");
    put_exit(0, AGENT_TAG_EXIT_SIGNAL, 9);
    assert_int_equal(read_output(0, true), 0);
    assert_string_equal(buf_cstr(&output_seen), "signal(9)");
    /* Ends without an exit: fine for what is kept, not for what should have been followed. */
    put_record(AGENT_RECORD_STDOUT, 0, "x", 1);
    assert_int_equal(read_output(0, false), 0);
    put_record(AGENT_RECORD_STDOUT, 0, "x", 1);
    assert_int_equal(read_output(0, true), ERR_GONE);
    close_all();
}

static void output_that_cannot_be(void **state)
{
    (void)state;
    open_with(answer_script, true, NULL);
    for (int kind = 0; kind < 16; kind++) {
        uint8_t count[8] = {0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
        _cleanup_buf_ struct buf b = {0};
        switch (kind) {
        case 0: /* a gap */
            put_record(AGENT_RECORD_STDOUT, 1, "x", 1);
            break;
        case 1: /* twice the same */
            put_record(AGENT_RECORD_STDOUT, 0, "x", 1);
            put_record(AGENT_RECORD_STDOUT, 0, "x", 1);
            break;
        case 2: /* after the end */
            put_exit(0, AGENT_TAG_EXIT_CODE, 0);
            put_record(AGENT_RECORD_STDOUT, 0, "x", 1);
            break;
        case 3:
            put_exit(0, AGENT_TAG_EXIT_CODE, 0);
            put_exit(0, AGENT_TAG_EXIT_CODE, 0);
            break;
        case 4:
            put_exit(0, AGENT_TAG_EXIT_CODE, 1ULL << 40);
            break;
        case 5:
            put_exit(0, AGENT_TAG_EXIT_CODE, 256);
            break;
        case 6:
            put_exit(0, AGENT_TAG_EXIT_SIGNAL, 0);
            break;
        case 7:
            put_exit(0, AGENT_TAG_EXIT_SIGNAL, 65);
            break;
        case 8:
            put_record(AGENT_RECORD_EXIT, 0, NULL, 0);
            break;
        case 9:
            put_record(AGENT_RECORD_DROPPED, 0, count, 8);
            break;
        case 10:
            put_record(AGENT_RECORD_DROPPED, 0, count, 7);
            break;
        case 11: /* cut off */
            put_record(AGENT_RECORD_STDOUT, 0, "xy", 2);
            script.len--;
            break;
        case 12: /* a length of 4 GiB */
            buf_put(&script, "\1\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\0x", 17);
            break;
        case 13: /* bytes that should be zero */
            buf_put(&script, "\1\1\0\0\0\0\0\1\0\0\0\0\0\0\0\0x", 17);
            break;
        case 14: /* an offset near where it would wrap */
            put_record(AGENT_RECORD_STDOUT, UINT64_MAX, "x", 1);
            break;
        default: /* both a code and a signal */
            wire_put_u64(&b, AGENT_TAG_EXIT_CODE, 0);
            wire_put_u64(&b, AGENT_TAG_EXIT_SIGNAL, 9);
            put_record(AGENT_RECORD_EXIT, 0, buf_data(&b), b.len);
            break;
        }
        if (read_output(0, true) != ERR_PROTOCOL)
            fail_msg("kind %d gave %d", kind, done_code);
        assert_true(guest_ready(w.guest));
    }
    close_all();
}

static void put_state(struct buf *b, const char *id, bool running)
{
    wire_put_text(b, AGENT_TAG_STATE_ID, id);
    wire_put_u64(b, AGENT_TAG_STATE_RUNNING, running);
    wire_put_u64(b, AGENT_TAG_STATE_PID, 5);
    wire_put_i64(b, AGENT_TAG_STATE_STARTED_MS, INT64_MAX);
    wire_put_u64(b, AGENT_TAG_STATE_OLDEST, 10);
    wire_put_u64(b, AGENT_TAG_STATE_END, 20);
    if (!running) {
        size_t mark = wire_begin(b, AGENT_TAG_STATE_EXIT);
        wire_put_u64(b, AGENT_TAG_EXIT_CODE, 3);
        wire_end(b, mark);
    }
}

static void on_state(void *arg, const struct guest_exec_state *s, const struct err *e)
{
    (void)arg;
    if (s) {
        assert_int_equal(s->started_ms, DECODE_TIME_MAX_MS);
        assert_int_equal(s->exit.code, 3);
    }
    note(e);
}

static size_t list_count;

static void on_list(void *arg, const struct guest_exec_state *execs, size_t count, const struct err *e)
{
    (void)arg;
    list_count = count;
    if (count > 1)
        assert_string_equal(execs[1].id, "x2");
    note(e);
}

static void states_are_about_what_was_asked(void **state)
{
    (void)state;
    open_with(answer_script, true, NULL);
    script_end = true;
    buf_reset(&script);
    put_state(&script, "x1", false);
    guest_exec_state(w.guest, "x1", on_state, NULL);
    run_until(done_count == 1);
    assert_int_equal(done_code, 0);
    guest_exec_state(w.guest, "x2", on_state, NULL); /* the answer is about x1 */
    run_until(done_count == 2);
    assert_int_equal(done_code, ERR_PROTOCOL);
    buf_reset(&script);
    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof(id), "x%d", i + 1);
        size_t mark = wire_begin(&script, AGENT_TAG_EXEC_STATE);
        put_state(&script, id, i != 0);
        wire_end(&script, mark);
    }
    guest_exec_list(w.guest, on_list, NULL);
    run_until(done_count == 3);
    assert_int_equal(done_code, 0);
    assert_int_equal(list_count, 3);
    buf_reset(&script);
    for (int i = 0; i < 1025; i++) {
        size_t mark = wire_begin(&script, AGENT_TAG_EXEC_STATE);
        put_state(&script, "x", true);
        wire_end(&script, mark);
    }
    guest_exec_list(w.guest, on_list, NULL);
    run_until(done_count == 4);
    assert_int_equal(done_code, ERR_PROTOCOL);
    buf_reset(&script);
    close_all();
}

/* --- streams towards the guest ------------------------------------------------------------------------------------ */

static uint64_t give_total, given, taken_by_agent, claim;
static struct guest_call *give_call;

static void give(void)
{
    static uint8_t piece[30000];
    while (given < give_total) {
        size_t n = (size_t)MIN(sizeof(piece), give_total - given);
        size_t took = guest_call_write(give_call, piece, n);
        given += took;
        if (took < n)
            return;
    }
    guest_call_write_end(give_call);
}

static void on_give_drain(void *arg)
{
    (void)arg;
    give();
}

static uint64_t give_result;

static void on_give_done(void *arg, uint64_t count, const struct err *e)
{
    (void)arg;
    give_result = count;
    note(e);
}

static void answer_taken(struct fake_request *r)
{
    if (r->answered)
        return;
    taken_by_agent += r->body.len;
    buf_reset(&r->body);
    if (!r->body_ended)
        return;
    uint16_t tag = strstr(r->target, "/stdin") ? AGENT_TAG_STDIN_ACCEPTED : AGENT_TAG_FILE_SIZE;
    wire_put_u64(&r->reply, tag, claim ? claim : taken_by_agent);
    fake_answer(r, 200, true, NULL);
}

static void input_and_files_are_streamed(void **state)
{
    (void)state;
    static const struct guest_stdin_callbacks in = {on_give_drain, on_give_done};
    static const struct guest_put_callbacks put = {on_give_drain, on_give_done};
    open_with(answer_taken, false, NULL);
    w.agent.on_body = answer_taken;
    for (int kind = 0; kind < 4; kind++) {
        unsigned before = done_count;
        give_total = 5000000;
        given = taken_by_agent = 0;
        claim = kind >= 2 ? give_total + 1 : 0;
        give_call = kind % 2
                        ? guest_exec_stdin(w.guest, "x1", true, &in, NULL)
                        : guest_file_put(w.guest, &(struct guest_file_put){.path = "/a b", .mode = 0644}, &put, NULL);
        give();
        assert_true(given < give_total);
        run_until(done_count == before + 1);
        assert_int_equal(taken_by_agent, give_total);
        assert_int_equal(done_code, kind >= 2 ? ERR_PROTOCOL : 0);
        assert_int_equal(give_result, kind >= 2 ? 0 : give_total);
    }
    close_all();
}

static void answer_no_at_once(struct fake_request *r)
{
    assert_string_equal(r->target, "/v1/file?path=/etc/x%20%3F&user=u&mode=644&make_parents=1");
    buf_put_str(&r->reply, "not writable");
    fake_answer(r, 403, true, AGENT_HEADER_ERROR, "forbidden", NULL);
}

static void refused_put_ends_early(void **state)
{
    (void)state;
    static const struct guest_put_callbacks put = {on_give_drain, on_give_done};
    open_with(answer_no_at_once, false, NULL);
    give_total = 1ULL << 40;
    given = 0;
    give_call = guest_file_put(
        w.guest, &(struct guest_file_put){.path = "/etc/x ?", .user = "u", .mode = 0644, .make_parents = true}, &put,
        NULL);
    give();
    run_until(done_count == 1);
    assert_int_equal(done_code, ERR_FORBIDDEN);
    assert_string_equal(done_text, "not writable");
    assert_true(given < 2000000);
    close_all();
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static uint64_t got, info_size;
static struct guest_call *get_call;
static bool get_consume;

static void on_info(void *arg, const struct guest_file_info *info)
{
    (void)arg;
    info_size = info->size;
    assert_int_equal(info->mode, 0640);
    assert_int_equal(info->mtime_ms, 0);
}

static void on_get_data(void *arg, const uint8_t *data, size_t len)
{
    (void)arg;
    (void)data;
    got += len;
    if (get_consume)
        guest_call_consume(get_call, len);
}

static void on_get_done(void *arg, uint64_t bytes, const struct err *e)
{
    (void)arg;
    assert_int_equal(bytes, got);
    note(e);
}

static const struct guest_file_get_callbacks get_callbacks = {on_info, on_get_data, on_get_done};
static const char *get_size, *get_mode;

static void answer_get(struct fake_request *r)
{
    r->zeros = 3000000;
    fake_answer(r, 200, true, AGENT_HEADER_SIZE, get_size, AGENT_HEADER_MTIME, "-1", AGENT_HEADER_MODE, get_mode, NULL);
}

static void file_is_read_in_pieces_with_back_pressure(void **state)
{
    (void)state;
    open_with(answer_get, true, NULL);
    got = 0;
    get_size = "3000000";
    get_mode = "0640";
    get_consume = false;
    get_call = guest_file_get(w.guest, "/f", NULL, 0, UINT64_MAX, &get_callbacks, NULL);
    run_until(got == 512 * 1024);
    assert_int_equal(info_size, 3000000);
    get_consume = true;
    guest_call_consume(get_call, 512 * 1024);
    run_until(got == 3000000);
    run_until(done_count == 1);
    assert_int_equal(done_code, 0);
    /* More than was asked for. */
    got = 0;
    get_call = guest_file_get(w.guest, "/f", NULL, 5, 100000, &get_callbacks, NULL);
    run_until(done_count == 2);
    assert_int_equal(done_code, ERR_PROTOCOL);
    assert_true(got <= 100000);
    /* Headers that are wrong. */
    static const char *const wrong[][2] = {{"-1", "0640"}, {"1e9", "0640"}, {"99999999999999999999", "0640"},
                                           {"5", "abc"},   {"5", "777777"}, {"5", "09"}};
    for (unsigned i = 0; i < ARRAY_LEN(wrong); i++) {
        got = 0;
        get_size = wrong[i][0];
        get_mode = wrong[i][1];
        get_call = guest_file_get(w.guest, "/f", NULL, 0, UINT64_MAX, &get_callbacks, NULL);
        run_until(done_count == 3 + i);
        assert_int_equal(done_code, ERR_PROTOCOL);
        assert_int_equal(got, 0);
    }
    close_all();
}

static void put_entry(struct buf *b, const char *name, size_t name_len, uint64_t type)
{
    wire_put_bytes(b, AGENT_TAG_ENTRY_NAME, name, name_len);
    wire_put_u64(b, AGENT_TAG_ENTRY_TYPE, type);
    wire_put_u64(b, AGENT_TAG_ENTRY_MODE, 0644);
    wire_put_u64(b, AGENT_TAG_ENTRY_UID, 0);
    wire_put_u64(b, AGENT_TAG_ENTRY_GID, 0);
    wire_put_u64(b, AGENT_TAG_ENTRY_SIZE, 5);
    wire_put_i64(b, AGENT_TAG_ENTRY_MTIME_MS, 1000);
    wire_put_text(b, AGENT_TAG_ENTRY_OWNER, "ro\x1b[0mot"); /* not shown */
    wire_put_text(b, AGENT_TAG_ENTRY_GROUP, "root");
}

static void put_dir_entry(struct buf *b, const char *name, size_t name_len)
{
    size_t mark = wire_begin(b, AGENT_TAG_DIR_ENTRY);
    put_entry(b, name, name_len, AGENT_FILE_REGULAR);
    wire_end(b, mark);
}

static int dir_decode(struct buf *b, const char *after, uint32_t limit)
{
    _cleanup_free_ struct guest_entry *entries = NULL;
    _cleanup_free_ char *arena = NULL;
    size_t count;
    bool more;
    struct err e;
    int r = decode_dir(buf_data(b), b->len, after, limit, &entries, &count, &more, &arena, &e);
    if (r == 0 && count > 0) {
        assert_null(entries[0].owner);
        assert_string_equal(entries[0].group, "root");
    }
    buf_done(b);
    return r;
}

static void folders_are_lists_of_opaque_names(void **state)
{
    (void)state;
    struct buf b = {0};
    /* Anything a file system can hold. */
    put_dir_entry(&b, "\x1b]0;x\x07", 6);
    put_dir_entry(&b, "..x", 3);
    put_dir_entry(&b, "a\nb", 3);
    put_dir_entry(&b, "\xff\xfe", 2);
    assert_int_equal(dir_decode(&b, NULL, 1000), 0);
    /* What it cannot. */
    static const struct {
        const char *name;
        size_t len;
    } wrong[] = {{"", 0}, {".", 1}, {"..", 2}, {"../../etc/passwd", 16}, {"/etc", 4}, {"a\0b", 3}};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        put_dir_entry(&b, wrong[i].name, wrong[i].len);
        assert_int_equal(dir_decode(&b, NULL, 1000), ERR_PROTOCOL);
    }
    char name[300];
    memset(name, 'a', sizeof(name));
    put_dir_entry(&b, name, 256);
    assert_int_equal(dir_decode(&b, NULL, 1000), ERR_PROTOCOL);
    /* Out of order, the same again, before where the page begins, more than a page. */
    put_dir_entry(&b, "b", 1);
    put_dir_entry(&b, "a", 1);
    assert_int_equal(dir_decode(&b, NULL, 1000), ERR_PROTOCOL);
    put_dir_entry(&b, "a", 1);
    put_dir_entry(&b, "a", 1);
    assert_int_equal(dir_decode(&b, NULL, 1000), ERR_PROTOCOL);
    put_dir_entry(&b, "b", 1);
    assert_int_equal(dir_decode(&b, "b", 1000), ERR_PROTOCOL);
    put_dir_entry(&b, "b", 1);
    put_dir_entry(&b, "c", 1);
    assert_int_equal(dir_decode(&b, NULL, 1), ERR_PROTOCOL);
    wire_put_u64(&b, AGENT_TAG_DIR_MORE, 1); /* more, but nothing to go on from */
    assert_int_equal(dir_decode(&b, NULL, 10), ERR_PROTOCOL);
    /* A million entries do not get as far as a decoder: the answer is cut off at a megabyte. */
}

static void deep_and_doubled_messages_are_refused(void **state)
{
    (void)state;
    struct err e;
    struct guest_entry entry;
    _cleanup_free_ char *arena = NULL;
    _cleanup_buf_ struct buf b = {0};
    put_entry(&b, "f", 1, AGENT_FILE_REGULAR);
    assert_int_equal(decode_stat(buf_data(&b), b.len, &entry, &arena, &e), 0);
    free(steal(arena));
    wire_put_u64(&b, AGENT_TAG_ENTRY_SIZE, 5); /* a second time */
    assert_int_equal(decode_stat(buf_data(&b), b.len, &entry, &arena, &e), ERR_PROTOCOL);
    static const struct {
        uint64_t type, mode, size;
    } wrong[] = {{0, 0, 0}, {8, 0, 0}, {1ULL << 32 | 1, 0, 0}, {1, 010000, 0}, {1, 0, UINT64_MAX}};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        buf_reset(&b);
        wire_put_text(&b, AGENT_TAG_ENTRY_NAME, "f");
        wire_put_u64(&b, AGENT_TAG_ENTRY_TYPE, wrong[i].type);
        wire_put_u64(&b, AGENT_TAG_ENTRY_MODE, wrong[i].mode);
        wire_put_u64(&b, AGENT_TAG_ENTRY_UID, 0);
        wire_put_u64(&b, AGENT_TAG_ENTRY_GID, 0);
        wire_put_u64(&b, AGENT_TAG_ENTRY_SIZE, wrong[i].size);
        wire_put_i64(&b, AGENT_TAG_ENTRY_MTIME_MS, 0);
        assert_int_equal(decode_stat(buf_data(&b), b.len, &entry, &arena, &e), ERR_PROTOCOL);
    }
    /* Metrics may be missing, never out of bounds. */
    struct guest_metrics metrics;
    buf_reset(&b);
    assert_int_equal(decode_metrics(buf_data(&b), b.len, &metrics, &e), 0);
    wire_put_u64(&b, AGENT_TAG_METRICS_MEMORY_TOTAL, UINT64_MAX);
    assert_int_equal(decode_metrics(buf_data(&b), b.len, &metrics, &e), ERR_PROTOCOL);
}

static struct buf watch_seen;

static void on_watch(void *arg, const struct guest_watch_event *event)
{
    (void)arg;
    buf_printf(&watch_seen, "%d:%s:%s ", event->type, event->path, event->to ? event->to : "");
}

static void changes_are_reported(void **state)
{
    (void)state;
    static const struct guest_watch_callbacks watch = {on_watch, on_done};
    open_with(answer_script, true, NULL);
    script_end = false;
    _cleanup_buf_ struct buf b = {0};
    wire_put_u64(&b, AGENT_TAG_WATCH_EVENT, AGENT_WATCH_READY);
    put_record(AGENT_RECORD_WATCH, 0, buf_data(&b), b.len);
    buf_reset(&b);
    wire_put_u64(&b, AGENT_TAG_WATCH_EVENT, AGENT_WATCH_MOVE);
    wire_put_text(&b, AGENT_TAG_WATCH_PATH, "a");
    wire_put_text(&b, AGENT_TAG_WATCH_TO, "b");
    put_record(AGENT_RECORD_WATCH, 1, buf_data(&b), b.len);
    struct guest_call *call = guest_watch(w.guest, "/d", true, NULL, &watch, NULL);
    run_until(watch_seen.len > 8);
    assert_string_equal(buf_cstr(&watch_seen), "7:: 4:a:b ");
    guest_call_cancel(call);
    assert_int_equal(done_count, 1);
    assert_int_equal(done_code, ERR_CANCELLED);
    buf_done(&watch_seen);
    buf_reset(&script);
    close_all();
}

/* --- ports -------------------------------------------------------------------------------------------------------- */

static struct fake_request *port_request;
static bool port_open, port_read_end;
static struct buf port_seen;
static struct guest_call *port_call;

static void answer_connect(struct fake_request *r)
{
    if (r->answered)
        return;
    assert_string_equal(r->method, "CONNECT");
    if (strcmp(r->target, "127.0.0.1:81") == 0) {
        buf_put_str(&r->reply, "nothing listens");
        fake_answer(r, 503, true, AGENT_HEADER_ERROR, "unavailable", NULL);
        return;
    }
    port_request = r;
    buf_put_str(&r->reply, "welcome");
    fake_answer(r, 200, false, NULL);
}

static void on_port_open(void *arg)
{
    (void)arg;
    port_open = true;
}

static void on_port_data(void *arg, const uint8_t *data, size_t len)
{
    (void)arg;
    buf_put(&port_seen, data, len);
    guest_call_consume(port_call, len);
}

static void on_port_read_end(void *arg)
{
    (void)arg;
    port_read_end = true;
}

static void port_is_a_connection_both_ways(void **state)
{
    (void)state;
    static const struct guest_connect_callbacks callbacks = {on_port_open, on_port_data, on_port_read_end, NULL,
                                                             on_done};
    open_with(answer_connect, false, NULL);
    port_open = port_read_end = false;
    port_call = guest_connect(w.guest, 81, &callbacks, NULL);
    run_until(done_count == 1);
    assert_int_equal(done_code, ERR_UNAVAILABLE);
    assert_string_equal(done_text, "nothing listens");
    assert_false(port_open || port_read_end);
    port_call = guest_connect(w.guest, 80, &callbacks, NULL);
    guest_call_write(port_call, "early", 5);
    run_until(port_seen.len == 7);
    assert_true(port_open);
    run_until(port_request->body.len == 5);
    port_request->reply_ended = true;
    fake_more(port_request);
    run_until(port_read_end);
    assert_int_equal(done_count, 1);
    guest_call_write(port_call, "late", 4);
    guest_call_write_end(port_call);
    run_until(done_count == 2);
    assert_int_equal(done_code, 0);
    buf_done(&port_seen);
    close_all();
}

/* --- cancelling, deadlines, ends ---------------------------------------------------------------------------------- */

static void answer_nothing(struct fake_request *r)
{
    (void)r;
}

static void cancelled_calls_are_done_at_once_and_never_again(void **state)
{
    (void)state;
    open_with(answer_hello, true, NULL);
    struct guest_call *call = guest_hello(w.guest, on_hello, NULL);
    guest_call_cancel(call);
    assert_int_equal(done_count, 1);
    assert_int_equal(done_code, ERR_CANCELLED);
    call = guest_hello(w.guest, on_hello, NULL);
    guest_call_drop(call);
    run_until(w.ready);
    /* The answer comes after it was given up (G30). */
    call = guest_hello(w.guest, on_hello, NULL);
    run_until(w.agent.requests_seen >= 1);
    guest_call_drop(call);
    guest_hello(w.guest, on_hello, NULL);
    run_until(done_count == 2);
    assert_int_equal(done_code, 0);
    close_all();
    assert_int_equal(done_count, 2);
}

static void calls_have_deadlines(void **state)
{
    (void)state;
    open_with(answer_nothing, true, &(struct guest_options){.timeouts = {.simple = 50, .freeze = 100}});
    guest_hello(w.guest, on_hello, NULL);
    run_until(done_count == 1);
    assert_int_equal(done_code, ERR_TIMEOUT);
    assert_true(guest_ready(w.guest));
    run_until(w.agent.resets_seen == 1);
    /* Not while the machine is held. */
    guest_sync(w.guest, on_done, NULL);
    guest_hold(w.guest, true);
    guard_start(300);
    while (turn())
        ;
    assert_int_equal(done_count, 1);
    guest_hold(w.guest, false);
    run_until(done_count == 2);
    assert_int_equal(done_code, ERR_TIMEOUT);
    close_all();
}

static void silent_agents_lose_the_connection(void **state)
{
    (void)state;
    struct guest_options o = {.channel = {.heartbeat_ms = 30, .heartbeat_timeout_ms = 60}};
    open_with(answer_nothing, true, &o);
    run_until(w.ready);
    w.agent.mute = true;
    guest_hello(w.guest, on_hello, NULL);
    run_until(w.closed);
    assert_int_equal(w.closed_code, ERR_TIMEOUT);
    assert_int_equal(done_count, 1);
    assert_int_equal(done_code, ERR_TIMEOUT);
    assert_int_equal(w.done_before_close, 1);
    close_all();
    /* Never in step. */
    o.channel = (struct channel_options){.resync_timeout_ms = 60, .resync_repeat_ms = 20};
    open_with(answer_nothing, true, &o);
    w.agent.skip_echo = true;
    guest_hello(w.guest, on_hello, NULL);
    run_until(w.closed);
    assert_int_equal(done_code, ERR_TIMEOUT);
    close_all();
}

static void the_end_of_the_machine_ends_every_call_once(void **state)
{
    (void)state;
    open_with(answer_nothing, true, NULL);
    for (int i = 0; i < 50; i++)
        guest_hello(w.guest, on_hello, NULL);
    run_until(w.agent.requests_seen == 50);
    fake_agent_stop(&w.agent);
    run_until(w.closed);
    assert_int_equal(w.closed_code, ERR_GONE);
    assert_int_equal(done_count, 50);
    assert_int_equal(w.done_before_close, 50);
    assert_int_equal(done_code, ERR_GONE);
    close_all();
}

static void on_hello_again(void *arg, const struct guest_hello *hello, const struct err *e)
{
    (void)hello;
    note(e);
    if (arg)
        guest_hello(w.guest, on_hello_again, NULL);
}

static void calls_made_while_it_closes_are_done_too(void **state)
{
    (void)state;
    open_with(answer_nothing, true, NULL);
    for (int i = 0; i < 5; i++)
        guest_hello(w.guest, on_hello_again, &w);
    guest_close(w.guest);
    guest_close(w.guest);
    assert_int_equal(done_count, 0);
    guest_hello(w.guest, on_hello_again, &w);
    run_until(w.closed);
    assert_int_equal(done_count, 12);
    assert_int_equal(w.done_before_close, 12);
    assert_int_equal(done_code, ERR_STATE);
    close_all();
}

static int in_callback; /* what on_data_then does */

static void on_data_then(void *arg, const uint8_t *data, size_t len)
{
    (void)arg;
    (void)data;
    got += len;
    if (in_callback == 0)
        guest_close(w.guest);
    else if (in_callback == 1)
        guest_call_cancel(get_call);
    else
        guest_call_drop(get_call);
    guest_call_consume(get_call, in_callback == 0 ? len : 0);
}

static void ending_inside_a_callback_is_safe(void **state)
{
    (void)state;
    struct guest_file_get_callbacks callbacks = {on_info, on_data_then, on_get_done};
    for (in_callback = 0; in_callback < 3; in_callback++) {
        open_with(answer_get, true, NULL);
        get_size = "3000000";
        get_mode = "0640";
        got = 0;
        get_call = guest_file_get(w.guest, "/f", NULL, 0, UINT64_MAX, &callbacks, NULL);
        run_until(got > 0);
        if (in_callback == 0)
            run_until(w.closed);
        assert_int_equal(done_count, in_callback == 2 ? 0 : 1);
        close_all();
        assert_int_equal(done_count, in_callback == 2 ? 0 : 1);
    }
}

static unsigned fds_open(void)
{
    unsigned n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void descriptors_sent_along_are_dropped(void **state)
{
    (void)state;
    open_with(answer_hello, true, NULL);
    guest_hello(w.guest, on_hello, NULL);
    run_until(done_count == 1);
    unsigned before = fds_open();
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    for (int i = 0; i < 20; i++) {
        /* An empty frame of an unknown kind: nine bytes that mean nothing. */
        struct iovec iov = {.iov_base = (char[]){0, 0, 0, 0x77, 0, 0, 0, 0, 0}, .iov_len = 9};
        struct msghdr message = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.space)};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &(int){STDERR_FILENO}, sizeof(int));
        assert_int_equal(sendmsg(w.agent.fd, &message, MSG_NOSIGNAL), 9);
    }
    guest_hello(w.guest, on_hello, NULL);
    run_until(done_count == 2);
    assert_int_equal(done_code, 0);
    assert_int_equal(fds_open(), before);
    close_all();
}

static void more_calls_than_streams_are_refused(void **state)
{
    (void)state;
    open_with(answer_nothing, true, NULL);
    for (int i = 0; i < AGENT_STREAMS_MAX + 3; i++)
        guest_sync(w.guest, on_done, NULL);
    run_until(done_count == 3);
    assert_int_equal(done_code, ERR_LIMIT);
    run_until(w.agent.requests_seen == AGENT_STREAMS_MAX);
    close_all();
    assert_int_equal(done_count, AGENT_STREAMS_MAX + 3);
}

static void opening_what_is_not_there_fails(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct guest *guest = NULL;
    struct err e;
    uv_loop_init(&loop);
    assert_int_equal(guest_open_path(&loop, "/nonexistent/agent.sock", NULL, &guest_callbacks, NULL, &guest, &e),
                     ERR_NOT_FOUND);
    char path[300];
    memset(path, 'a', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(guest_open_path(&loop, path, NULL, &guest_callbacks, NULL, &guest, &e), ERR_INVALID);
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* cannot be polled */
    assert_true(guest_open_fd(&loop, fd, NULL, &guest_callbacks, NULL, &guest, &e) < 0);
    close(fd);
    assert_null(guest);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static int teardown(void **state)
{
    (void)state;
    buf_done(&script);
    buf_done(&output_seen);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_is_decoded),
        cmocka_unit_test(errors_of_the_guest_are_a_fixed_set),
        cmocka_unit_test(texts_of_the_guest_are_escaped_and_cut),
        cmocka_unit_test(answers_that_do_not_decode),
        cmocka_unit_test(identity_is_confirmed_for_this_sandbox_alone),
        cmocka_unit_test(exec_is_started_as_specified),
        cmocka_unit_test(output_is_cut_into_records),
        cmocka_unit_test(output_that_cannot_be),
        cmocka_unit_test(states_are_about_what_was_asked),
        cmocka_unit_test(input_and_files_are_streamed),
        cmocka_unit_test(refused_put_ends_early),
        cmocka_unit_test(file_is_read_in_pieces_with_back_pressure),
        cmocka_unit_test(folders_are_lists_of_opaque_names),
        cmocka_unit_test(deep_and_doubled_messages_are_refused),
        cmocka_unit_test(changes_are_reported),
        cmocka_unit_test(port_is_a_connection_both_ways),
        cmocka_unit_test(cancelled_calls_are_done_at_once_and_never_again),
        cmocka_unit_test(calls_have_deadlines),
        cmocka_unit_test(silent_agents_lose_the_connection),
        cmocka_unit_test(the_end_of_the_machine_ends_every_call_once),
        cmocka_unit_test(calls_made_while_it_closes_are_done_too),
        cmocka_unit_test(ending_inside_a_callback_is_safe),
        cmocka_unit_test(descriptors_sent_along_are_dropped),
        cmocka_unit_test(more_calls_than_streams_are_refused),
        cmocka_unit_test(opening_what_is_not_there_fails),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}

/* The guest calls against the real agent, run as an ordinary process on a socket: both sides of the protocol together.
 * What an agent that lies may do is in test_guest.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/id.h"
#include "guest/guest.h"

#define DEADLINE_MS 30000

static struct {
    char folder[64], socket[96];
    pid_t pid;
    uv_loop_t loop;
    uv_timer_t guard;
    bool late;
    struct guest *guest;
    bool ready, closed;
    int closed_code;
} w;

/* The last end of a call. */
static unsigned done_count;
static int done_code;
static char done_text[512];

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

static void on_ready(void *arg)
{
    (void)arg;
    w.ready = true;
}

static void on_closed(void *arg, const struct err *e)
{
    (void)arg;
    w.closed = true;
    w.closed_code = e->code;
}

static const struct guest_callbacks guest_callbacks = {on_ready, on_closed};
static unsigned ticks;

static void on_guard(uv_timer_t *timer)
{
    (void)timer;
    w.late = --ticks == 0;
}

static bool turn(void)
{
    if (!w.late)
        uv_run(&w.loop, UV_RUN_ONCE);
    return !w.late;
}

#define run_until(condition)                                                                                           \
    do {                                                                                                               \
        w.late = false;                                                                                                \
        ticks = DEADLINE_MS / 10;                                                                                      \
        uv_timer_start(&w.guard, on_guard, 10, 10);                                                                    \
        while (!(condition) && turn())                                                                                 \
            ;                                                                                                          \
        uv_timer_stop(&w.guard);                                                                                       \
        assert_true(condition);                                                                                        \
    } while (0)

/* Wait for the end of the one call under way; its code. */
static int finish(void)
{
    run_until(done_count > 0);
    assert_int_equal(done_count, 1);
    done_count = 0;
    return done_code;
}

#define assert_done() assert_string_equal((finish(), done_text), "")

static void agent_connect(void)
{
    struct err e;
    uint64_t until = clock_mono_ms() + DEADLINE_MS;
    w.ready = w.closed = false;
    while (guest_open_path(&w.loop, w.socket, NULL, &guest_callbacks, NULL, &w.guest, &e) < 0) {
        assert_true(clock_mono_ms() < until);
        usleep(2000);
    }
    run_until(w.ready);
}

static void agent_disconnect(void)
{
    if (!w.closed)
        guest_close(w.guest);
    run_until(w.closed);
}

static int setup(void **state)
{
    (void)state;
    const char *agent = getenv("SPACE_AGENT");
    assert_non_null(agent);
    snprintf(w.folder, sizeof(w.folder), "/tmp/space-guest-XXXXXX");
    assert_non_null(mkdtemp(w.folder));
    chmod(w.folder, 0755);
    snprintf(w.socket, sizeof(w.socket), "%s/agent.sock", w.folder);
    w.pid = fork();
    assert_true(w.pid >= 0);
    if (w.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no agent behind */
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDOUT_FILENO);
        execl(agent, agent, "--test-socket", w.socket, (char *)NULL);
        _exit(127);
    }
    uv_loop_init(&w.loop);
    uv_timer_init(&w.loop, &w.guard);
    w.late = false;
    done_count = 0;
    agent_connect();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    int status;
    agent_disconnect();
    uv_close((uv_handle_t *)&w.guard, NULL);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w.loop), 0);
    kill(w.pid, SIGTERM);
    assert_int_equal(waitpid(w.pid, &status, 0), w.pid);
    dir_remove_tree(w.folder, NULL);
    return 0;
}

static const char *path_in(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", w.folder, name);
    return path;
}

static uint8_t pattern(uint64_t offset)
{
    return (uint8_t)(offset * 31 + (offset >> 8) * 7 + (offset >> 16));
}

/* --- the agent itself --------------------------------------------------------------------------------------------- */

static void on_hello(void *arg, const struct guest_hello *hello, const struct err *e)
{
    (void)arg;
    note(e);
    if (hello)
        assert_int_equal(hello->protocol, AGENT_PROTOCOL_VERSION);
}

static void on_metrics(void *arg, const struct guest_metrics *m, const struct err *e)
{
    (void)arg;
    note(e);
    if (m) {
        assert_true(m->memory_total > 0 && m->memory_used <= m->memory_total);
        assert_true(m->cpus > 0 && m->cpu_idle_us <= m->cpu_total_us);
        assert_true(m->processes > 0);
    }
}

static void on_bench(void *arg, const struct guest_bench_spawn *bench, const struct err *e)
{
    (void)arg;
    note(e);
    if (bench) {
        assert_int_equal(bench->count, 3);
        assert_true(bench->mean_ns > 0);
    }
}

static void agent_tells_about_itself(void **state)
{
    (void)state;
    guest_hello(w.guest, on_hello, NULL);
    assert_done();
    guest_metrics(w.guest, on_metrics, NULL);
    assert_done();
    guest_bench_spawn(w.guest, 3, NULL, on_bench, NULL);
    assert_done();
}

/* --- execs -------------------------------------------------------------------------------------------------------- */

static void on_started(void *arg, const struct guest_exec_started *started, const struct err *e)
{
    (void)arg;
    note(e);
    if (started)
        assert_true(started->pid > 0 && started->started_ms > 1600000000000);
}

static int start(const char *id, const char *shell, const struct guest_exec_spec *more)
{
    struct guest_exec_spec spec = more ? *more : (struct guest_exec_spec){0};
    spec.shell = shell;
    spec.user = geteuid() == 0 ? "root" : NULL;
    spec.cwd = w.folder;
    guest_exec_start(w.guest, id, &spec, on_started, NULL);
    return finish();
}

struct output {
    struct guest_call *call;
    struct buf out, err;
    uint64_t from, next, bytes, dropped, hold;
    bool wrong, exited, patterned;
    struct guest_exit exit;
};

static void on_output(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct output *o = arg;
    assert_int_equal(offset, o->next);
    o->next += len;
    o->bytes += len;
    if (o->patterned)
        for (size_t i = 0; i < len; i++)
            o->wrong |= data[i] != pattern(offset + i);
    else
        buf_put(stream == GUEST_STDERR ? &o->err : &o->out, data, len);
    if (o->hold == 0)
        guest_call_consume(o->call, len);
}

static void on_dropped(void *arg, uint64_t offset, uint64_t count)
{
    struct output *o = arg;
    assert_int_equal(offset, o->next);
    o->next += count;
    o->dropped += count;
}

static void on_exit_seen(void *arg, uint64_t end, const struct guest_exit *x)
{
    struct output *o = arg;
    assert_int_equal(end, o->next);
    o->exited = true;
    o->exit = *x;
}

static const struct guest_output_callbacks output_callbacks = {on_output, on_dropped, on_exit_seen, on_done};

static void attach(struct output *o, const char *id, bool follow)
{
    o->next = o->from;
    o->out.max = o->err.max = 64 * 1024 * 1024;
    o->call = guest_exec_output(w.guest, id, o->from, follow, &output_callbacks, o);
}

static void output_done(struct output *o)
{
    buf_done(&o->out);
    buf_done(&o->err);
}

static void forget(const char *id)
{
    guest_exec_forget(w.guest, id, on_done, NULL);
    assert_done();
}

static void on_state(void *arg, const struct guest_exec_state *s, const struct err *e)
{
    note(e);
    if (s)
        *(struct guest_exec_state *)arg = *s;
}

static void on_list(void *arg, const struct guest_exec_state *execs, size_t count, const struct err *e)
{
    note(e);
    *(size_t *)arg = count;
    if (count == 1)
        assert_string_equal(execs[0].id, "x1");
}

static void command_runs_and_is_remembered(void **state)
{
    (void)state;
    struct output o = {0}, again = {.from = 2};
    struct guest_exec_state s;
    size_t count;
    assert_int_equal(start("x1", "echo out; echo err >&2; exit 3", NULL), 0);
    attach(&o, "x1", true);
    assert_done();
    assert_string_equal(buf_cstr(&o.out), "out\n");
    assert_string_equal(buf_cstr(&o.err), "err\n");
    assert_true(o.exited && !o.exit.signalled);
    assert_int_equal(o.exit.code, 3);
    assert_int_equal(o.exit.total_bytes, 8);
    attach(&again, "x1", false);
    assert_done();
    assert_int_equal(again.bytes, 6);
    guest_exec_state(w.guest, "x1", on_state, &s);
    assert_done();
    assert_false(s.running);
    assert_int_equal(s.exit.code, 3);
    assert_int_equal(s.end, 8);
    guest_exec_list(w.guest, on_list, &count);
    assert_done();
    assert_int_equal(count, 1);
    again.from = 9;
    attach(&again, "x1", true);
    assert_int_equal(finish(), ERR_RANGE);
    assert_int_equal(start("x1", "true", NULL), ERR_CONFLICT);
    forget("x1");
    guest_exec_state(w.guest, "x1", on_state, &s);
    assert_int_equal(finish(), ERR_NOT_FOUND);
    output_done(&o);
    output_done(&again);
}

static void reader_that_stops_makes_the_command_wait(void **state)
{
    (void)state;
    struct output o = {.hold = 1};
    struct guest_exec_state s;
    assert_int_equal(start("x1", "head -c 20000000 /dev/zero | tr '\\0' x", NULL), 0);
    attach(&o, "x1", true);
    run_until(o.bytes > 400000);
    guest_hello(w.guest, on_hello, NULL); /* other streams move */
    assert_done();
    assert_true(o.bytes <= 512 * 1024);
    guest_exec_state(w.guest, "x1", on_state, &s);
    assert_done();
    assert_true(s.running);
    o.hold = 0;
    guest_call_consume(o.call, o.bytes);
    assert_done();
    assert_int_equal(o.bytes, 20000000);
    assert_int_equal(o.dropped, 0);
    assert_int_equal(o.exit.code, 0);
    output_done(&o);
    forget("x1");
}

static uint64_t give_total, given;
static struct guest_call *give_call;

static void give(void *arg)
{
    (void)arg;
    static uint8_t piece[100000];
    while (given < give_total) {
        size_t n = (size_t)MIN(sizeof(piece), give_total - given);
        for (size_t i = 0; i < n; i++)
            piece[i] = pattern(given + i);
        size_t took = guest_call_write(give_call, piece, n);
        given += took;
        if (took < n)
            return;
    }
    guest_call_write_end(give_call);
}

static uint64_t give_result;
static bool give_done;

static void on_given(void *arg, uint64_t count, const struct err *e)
{
    (void)arg;
    give_result = count;
    give_done = true;
    if (e)
        fail_msg("giving data: %s", e->text);
}

static const struct guest_stdin_callbacks stdin_callbacks = {give, on_given};

static void input_flows_through_a_command(void **state)
{
    (void)state;
    struct output o = {.patterned = true};
    assert_int_equal(start("x1", "exec cat", &(struct guest_exec_spec){.stdin_open = true}), 0);
    attach(&o, "x1", true);
    give_total = 20000000;
    given = 0;
    give_done = false;
    give_call = guest_exec_stdin(w.guest, "x1", true, &stdin_callbacks, NULL);
    give(NULL);
    assert_done();
    run_until(give_done);
    assert_int_equal(give_result, 20000000);
    assert_int_equal(o.bytes, 20000000);
    assert_false(o.wrong);
    forget("x1");
}

static void signals_and_terminals(void **state)
{
    (void)state;
    struct output o = {0}, t = {0};
    assert_int_equal(start("x1", "exec sleep 1000", NULL), 0);
    attach(&o, "x1", true);
    guest_exec_signal(w.guest, "x1", SIGTERM, on_done, NULL);
    run_until(done_count == 2);
    done_count = 0;
    assert_true(o.exit.signalled);
    assert_int_equal(o.exit.signal, SIGTERM);
    forget("x1");
    struct guest_exec_spec spec = {.terminal = true, .rows = 40, .cols = 100, .stdin_open = true};
    assert_int_equal(start("x2", "stty size; read line; stty size", &spec), 0);
    attach(&t, "x2", true);
    run_until(t.bytes >= 8);
    guest_exec_resize(w.guest, "x2", 50, 120, on_done, NULL);
    assert_done();
    give_done = false;
    give_call = guest_exec_stdin(w.guest, "x2", false, &stdin_callbacks, NULL);
    guest_call_write(give_call, "\n", 1);
    guest_call_write_end(give_call);
    assert_done();
    assert_non_null(strstr(buf_cstr(&t.out), "40 100"));
    assert_non_null(strstr(buf_cstr(&t.out), "50 120"));
    forget("x2");
    output_done(&o);
    output_done(&t);
}

static void execs_survive_the_connection(void **state)
{
    (void)state;
    struct output o = {.patterned = true};
    assert_int_equal(start("x1", "exec cat", &(struct guest_exec_spec){.stdin_open = true}), 0);
    attach(&o, "x1", true);
    give_total = 3000000;
    given = 0;
    give_done = false;
    give_call = guest_exec_stdin(w.guest, "x1", false, &stdin_callbacks, NULL);
    give(NULL);
    run_until(o.bytes > 1000000 && give_done);
    agent_disconnect();
    assert_int_equal(finish(), ERR_CANCELLED);
    agent_connect();
    o.from = o.next;
    attach(&o, "x1", true);
    give_total = given;
    give_done = false;
    give_call = guest_exec_stdin(w.guest, "x1", true, &stdin_callbacks, NULL);
    give(NULL);
    assert_done();
    assert_int_equal(o.bytes, 3000000);
    assert_int_equal(o.dropped, 0);
    assert_false(o.wrong);
    assert_true(o.exited);
}

static void two_hundred_at_once(void **state)
{
    (void)state;
    static struct output all[200];
    memset(all, 0, sizeof(all));
    for (int i = 0; i < 200; i++) {
        char id[16];
        snprintf(id, sizeof(id), "x%d", i);
        struct guest_exec_spec spec = {.argv = (const char *const[]){"/bin/echo", id, NULL},
                                       .user = geteuid() == 0 ? "root" : NULL};
        guest_exec_start(w.guest, id, &spec, on_started, NULL);
    }
    run_until(done_count == 200);
    done_count = 0;
    for (int i = 0; i < 200; i++) {
        char id[16];
        snprintf(id, sizeof(id), "x%d", i);
        attach(&all[i], id, true);
    }
    run_until(done_count == 200);
    done_count = 0;
    for (int i = 0; i < 200; i++) {
        char line[16];
        snprintf(line, sizeof(line), "x%d\n", i);
        assert_string_equal(buf_cstr(&all[i].out), line);
        assert_true(all[i].exited);
        output_done(&all[i]);
    }
}

static void death_of_the_agent_ends_what_is_under_way(void **state)
{
    (void)state;
    struct output o = {0};
    assert_int_equal(start("x1", "exec sleep 1000", NULL), 0);
    attach(&o, "x1", true);
    guest_hello(w.guest, on_hello, NULL);
    assert_done();
    struct guest_exec_state s;
    guest_exec_state(w.guest, "x1", on_state, &s);
    assert_done();
    kill(w.pid, SIGKILL);
    assert_int_equal(finish(), ERR_GONE);
    run_until(w.closed);
    assert_int_equal(w.closed_code, ERR_GONE);
    kill((pid_t)s.pid, SIGKILL);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const struct guest_put_callbacks put_callbacks = {give, on_given};

static void put(const char *path, uint64_t bytes)
{
    give_total = bytes;
    given = 0;
    give_done = false;
    struct guest_file_put spec = {.path = path, .mode = 0600, .make_parents = true};
    give_call = guest_file_put(w.guest, &spec, &put_callbacks, NULL);
    give(NULL);
    run_until(give_done);
    assert_int_equal(give_result, bytes);
}

struct got {
    struct guest_call *call;
    struct guest_file_info info;
    uint64_t offset, bytes;
    struct buf *keep;
    bool wrong;
};

static void on_info(void *arg, const struct guest_file_info *info)
{
    ((struct got *)arg)->info = *info;
}

static void on_file_data(void *arg, const uint8_t *data, size_t len)
{
    struct got *g = arg;
    if (g->keep)
        buf_put(g->keep, data, len);
    else
        for (size_t i = 0; i < len; i++)
            g->wrong |= data[i] != pattern(g->offset + g->bytes + i);
    g->bytes += len;
    guest_call_consume(g->call, len);
}

static void on_got(void *arg, uint64_t bytes, const struct err *e)
{
    assert_int_equal(bytes, ((struct got *)arg)->bytes);
    note(e);
}

static const struct guest_file_get_callbacks get_callbacks = {on_info, on_file_data, on_got};

static int get(struct got *g, const char *path, uint64_t offset, uint64_t length)
{
    *g = (struct got){.offset = offset};
    g->call = guest_file_get(w.guest, path, NULL, offset, length, &get_callbacks, g);
    return finish();
}

static void files_go_there_and_back(void **state)
{
    (void)state;
    struct got g;
    put(path_in("new/deep/file a?&=%"), 30000000);
    assert_int_equal(get(&g, path_in("new/deep/file a?&=%"), 0, UINT64_MAX), 0);
    assert_int_equal(g.bytes, 30000000);
    assert_int_equal(g.info.size, 30000000);
    assert_int_equal(g.info.mode, 0600);
    assert_false(g.wrong);
    assert_int_equal(get(&g, path_in("new/deep/file a?&=%"), 1234567, 100001), 0);
    assert_int_equal(g.bytes, 100001);
    assert_int_equal(g.info.size, 30000000);
    assert_false(g.wrong);
    assert_int_equal(get(&g, path_in("new/deep/file a?&=%"), 30000001, UINT64_MAX), ERR_RANGE);
    assert_int_equal(get(&g, path_in("none"), 0, UINT64_MAX), ERR_NOT_FOUND);
    put(path_in("empty"), 0);
    assert_int_equal(get(&g, path_in("empty"), 0, UINT64_MAX), 0);
    assert_int_equal(g.bytes, 0);
    assert_int_equal(get(&g, "relative", 0, UINT64_MAX), ERR_INVALID);
}

static void put_given_up_leaves_nothing(void **state)
{
    (void)state;
    struct stat st;
    static const struct guest_put_callbacks callbacks = {give, NULL};
    give_total = UINT64_MAX;
    given = 0;
    struct guest_file_put spec = {.path = path_in("half"), .mode = -1};
    give_call = guest_file_put(w.guest, &spec, &callbacks, NULL);
    give(NULL);
    run_until(given > 3000000);
    guest_call_drop(give_call);
    guest_hello(w.guest, on_hello, NULL);
    assert_done();
    assert_int_equal(stat(path_in("half"), &st), -1);
    give_call = guest_file_put(w.guest, &(struct guest_file_put){.path = w.folder, .mode = -1},
                               &(struct guest_put_callbacks){NULL, (void *)on_got}, &(struct got){0});
    guest_call_write_end(give_call);
    assert_true(finish() < 0); /* onto a folder */
    assert_int_not_equal(done_code, ERR_PROTOCOL);
}

static struct guest_entry entry;
static char entry_name[256], entry_target[256];

static void on_stat(void *arg, const struct guest_entry *e1, const struct err *e)
{
    (void)arg;
    note(e);
    if (!e1)
        return;
    entry = *e1;
    snprintf(entry_name, sizeof(entry_name), "%s", e1->name);
    snprintf(entry_target, sizeof(entry_target), "%s", e1->target ? e1->target : "");
}

static char dir_last[256];
static bool dir_more;
static size_t dir_count;

static void on_dir(void *arg, const struct guest_entry *entries, size_t count, bool more, const struct err *e)
{
    (void)arg;
    note(e);
    dir_count = count;
    dir_more = more;
    if (count)
        snprintf(dir_last, sizeof(dir_last), "%s", entries[count - 1].name);
}

static void names_are_listed_moved_and_removed(void **state)
{
    (void)state;
    guest_mkdir(w.guest, path_in("d/e"), true, 0750, NULL, on_done, NULL);
    assert_done();
    for (int i = 0; i < 25; i++) {
        char name[32];
        snprintf(name, sizeof(name), "d/f%02d\n\xff", i);
        close(open(path_in(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    }
    assert_int_equal(symlink("/nowhere/../x", path_in("d/link")), 0);
    size_t total = 0;
    dir_last[0] = '\0';
    do {
        guest_dir(w.guest, path_in("d"), dir_last[0] ? dir_last : NULL, 10, NULL, on_dir, NULL);
        assert_done();
        total += dir_count;
    } while (dir_more);
    assert_int_equal(total, 27);
    assert_string_equal(dir_last, "link");
    guest_stat(w.guest, path_in("d/link"), false, NULL, on_stat, NULL);
    assert_done();
    assert_int_equal(entry.type, AGENT_FILE_SYMLINK);
    assert_string_equal(entry_name, "link");
    assert_string_equal(entry_target, "/nowhere/../x");
    guest_stat(w.guest, path_in("d/link"), true, NULL, on_stat, NULL);
    assert_int_equal(finish(), ERR_NOT_FOUND);
    static const char *const called[][2] = {
        {"/", "/"}, {"//", "/"}, {"/.", "/"}, {"/tmp", "tmp"}, {"/tmp/", "tmp"}, {"/tmp//./", "tmp"}, {"/tmp/..", ".."}};
    for (size_t i = 0; i < ARRAY_LEN(called); i++) {
        guest_stat(w.guest, called[i][0], true, NULL, on_stat, NULL);
        assert_done();
        assert_int_equal(entry.type, AGENT_FILE_DIRECTORY);
        assert_string_equal(entry_name, called[i][1]);
    }
    guest_stat(w.guest, "/etc/passwd/", true, NULL, on_stat, NULL); /* no folder */
    assert_int_equal(finish(), ERR_NOT_FOUND);
    guest_attributes(w.guest, path_in("d/e"), &(struct guest_attributes){.mode = 0700}, NULL, on_done, NULL);
    assert_done();
    guest_stat(w.guest, path_in("d/e"), true, NULL, on_stat, NULL);
    assert_done();
    assert_int_equal(entry.mode, 0700);
    guest_move(w.guest, path_in("d"), path_in("moved"), false, NULL, on_done, NULL);
    assert_done();
    guest_remove(w.guest, path_in("moved"), false, NULL, on_done, NULL);
    assert_true(finish() < 0);
    guest_remove(w.guest, path_in("moved"), true, NULL, on_done, NULL);
    assert_done();
    guest_dir(w.guest, path_in("moved"), NULL, 10, NULL, on_dir, NULL);
    assert_int_equal(finish(), ERR_NOT_FOUND);
}

static void folders_travel_as_archives(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf archive = {0};
    put(path_in("src/a/one"), 100000);
    put(path_in("src/two"), 10);
    struct got g = {.keep = &archive};
    g.call = guest_tar_get(w.guest, path_in("src"), NULL, &get_callbacks, &g);
    assert_done();
    assert_true(archive.len > 100000);
    guest_mkdir(w.guest, path_in("dst"), false, 0755, NULL, on_done, NULL);
    assert_done();
    give_done = false;
    give_call = guest_tar_put(w.guest, path_in("dst"), NULL, &put_callbacks, NULL);
    size_t at = 0;
    given = give_total = UINT64_MAX; /* on_drain has nothing of its own to give */
    while (at < archive.len) {
        at += guest_call_write(give_call, buf_data(&archive) + at, archive.len - at);
        if (at < archive.len)
            turn();
    }
    guest_call_write_end(give_call);
    run_until(give_done);
    assert_true(give_result >= 3);
    struct stat st;
    assert_int_equal(stat(path_in("dst/a/one"), &st) == 0 || stat(path_in("dst/src/a/one"), &st) == 0, 1);
    assert_int_equal(st.st_size, 100000);
}

static bool watch_ready, watch_created;

static void on_watch(void *arg, const struct guest_watch_event *event)
{
    (void)arg;
    watch_ready |= event->type == AGENT_WATCH_READY;
    watch_created |= event->type == AGENT_WATCH_CREATE && strcmp(event->path, "sub/x") == 0;
}

static void changes_are_seen(void **state)
{
    (void)state;
    static const struct guest_watch_callbacks callbacks = {on_watch, on_done};
    watch_ready = watch_created = false;
    guest_mkdir(w.guest, path_in("w/sub"), true, -1, NULL, on_done, NULL);
    assert_done();
    struct guest_call *call = guest_watch(w.guest, path_in("w"), true, NULL, &callbacks, NULL);
    run_until(watch_ready);
    close(open(path_in("w/sub/x"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    run_until(watch_created);
    guest_call_cancel(call);
    assert_int_equal(finish(), ERR_CANCELLED);
}

/* --- ports -------------------------------------------------------------------------------------------------------- */

static struct guest_call *port_call;
static struct buf port_seen;
static bool port_open, port_read_end;

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

static void ports_are_reached(void **state)
{
    (void)state;
    static const struct guest_connect_callbacks callbacks = {on_port_open, on_port_data, on_port_read_end, NULL,
                                                             on_done};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    port_open = port_read_end = false;
    /* Nothing listens yet. */
    port_call = guest_connect(w.guest, ntohs(address.sin_port), &callbacks, NULL);
    assert_int_equal(finish(), ERR_UNAVAILABLE);
    assert_false(port_open);
    assert_int_equal(listen(fd, 1), 0);
    port_call = guest_connect(w.guest, ntohs(address.sin_port), &callbacks, NULL);
    guest_call_write(port_call, "hello", 5);
    run_until(port_open);
    int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    char text[6] = "";
    assert_int_equal(recv(peer, text, 5, MSG_WAITALL), 5);
    assert_string_equal(text, "hello");
    assert_int_equal(send(peer, "world", 5, 0), 5);
    shutdown(peer, SHUT_WR);
    run_until(port_read_end);
    assert_string_equal(buf_cstr(&port_seen), "world");
    guest_call_write(port_call, "again", 5);
    guest_call_write_end(port_call);
    assert_done();
    assert_int_equal(recv(peer, text, 5, MSG_WAITALL), 5);
    assert_string_equal(text, "again");
    assert_int_equal(recv(peer, text, 5, 0), 0);
    buf_done(&port_seen);
    close(peer);
    close(fd);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(agent_tells_about_itself),
        CASE(command_runs_and_is_remembered),
        CASE(reader_that_stops_makes_the_command_wait),
        CASE(input_flows_through_a_command),
        CASE(signals_and_terminals),
        CASE(execs_survive_the_connection),
        CASE(two_hundred_at_once),
        CASE(death_of_the_agent_ends_what_is_under_way),
        CASE(files_go_there_and_back),
        CASE(put_given_up_leaves_nothing),
        CASE(names_are_listed_moved_and_removed),
        CASE(folders_travel_as_archives),
        CASE(changes_are_seen),
        CASE(ports_are_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

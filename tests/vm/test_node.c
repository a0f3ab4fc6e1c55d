/* The node on real machines: import of a template, every way of a claim, pause, loss, panic, adoption.
 *
 * Needs SPACE_TEST_INCOMING (a folder made by the build script; it is copied) and, as the daemon does, a QEMU: SPACE_TEST_QEMU.
 * One state folder for the whole group; the tests build on each other in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "config/config.h"
#include "guest/guest.h"
#include "node/node.h"
#include "store/project.h"
#include "store/sandbox.h"
#include "store/store.h"

static uv_loop_t loop;
static struct config config;
static struct store *store;
static struct node *node;
static char state_dir[] = "/tmp/space-vm-XXXXXX";
static char digest[DIGEST_SIZE];
static struct shape shape;
static char project_id[ID_SIZE];

static bool done;
static struct err last;
static struct node_machine got;
static char lost_id[ID_SIZE], lost_reason[512];

static void on_lost(void *arg, const char *machine_id, const char *sandbox_id, const char *reason)
{
    (void)arg;
    (void)sandbox_id;
    snprintf(lost_id, sizeof(lost_id), "%s", machine_id);
    snprintf(lost_reason, sizeof(lost_reason), "%s", reason);
}

static void on_done(void *arg, const struct err *e)
{
    (void)arg;
    done = true;
    last = e ? *e : (struct err){0};
}

static void on_stopped(void *arg)
{
    (void)arg;
    done = true;
}

static void on_claimed(void *arg, const struct node_machine *m, const struct err *e)
{
    on_done(arg, e);
    if (m)
        got = *m;
}

static void on_template(void *arg, const char *d, const struct err *e)
{
    on_done(arg, e);
    if (d)
        snprintf(digest, sizeof(digest), "%s", d);
}

static void on_progress(void *arg, const char *step, uint64_t at, uint64_t total)
{
    (void)arg;
    print_message("  %s %llu/%llu\n", step, (unsigned long long)at, (unsigned long long)total);
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static bool wait_for(bool *flag, uint64_t timeout_ms)
{
    uint64_t end = clock_mono_ms() + timeout_ms;
    uv_timer_t tick;
    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 50, 50);
    while (!*flag && clock_mono_ms() < end)
        uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    return *flag;
}

static void run_until_done(uint64_t timeout_ms)
{
    assert_true(wait_for(&done, timeout_ms));
    done = false;
    if (last.code)
        print_message("  %s\n", last.text);
}

static void node_up(void)
{
    struct err e = {0};
    const struct node_callbacks callbacks = {.on_machine_lost = on_lost};
    if (node_new(&loop, &config, store, &callbacks, NULL, &node, &e) < 0)
        fail_msg("%s", e.text);
    node_reconcile(node, on_done, NULL);
    run_until_done(30000);
    assert_int_equal(last.code, 0);
}

static void node_down(bool kill_all)
{
    node_stop(node, kill_all, on_stopped, NULL);
    run_until_done(30000);
    node_free(node);
    node = NULL;
}

static int group_up(void **state)
{
    (void)state;
    const char *incoming = getenv("SPACE_TEST_INCOMING"), *qemu = getenv("SPACE_TEST_QEMU");
    struct err e = {0};
    if (!incoming)
        return -1;
    if (!mkdtemp(state_dir) || chmod(state_dir, 0711) < 0)
        return -1;
    uv_loop_init(&loop);
    config_init(&config);
    config_set(&config, "test", "state_dir", state_dir, &e);
    if (qemu)
        config_set(&config, "test", "qemu_path", qemu, &e);
    config_set(&config, "test", "pool_hot", "0", &e);
    config_set(&config, "test", "pool_blank", "0", &e);
    _cleanup_free_ char *path = xasprintf("%s/space.db", state_dir);
    _cleanup_free_ char *copy = xasprintf("mkdir -p %s/incoming && cp -r --sparse=always %s %s/incoming/base", state_dir, incoming,
                                          state_dir);
    _cleanup_store_project_ struct store_project *project = NULL;
    const struct store_options options = {.path = path, .exclusive = true};
    if (system(copy) != 0 || store_open(&options, &store, &e) < 0 ||
        store_project_make(store, "test", clock_wall_ms(), &project, &e) < 0) {
        print_error("%s\n", e.text);
        return -1;
    }
    memcpy(project_id, project->id, ID_SIZE);
    return 0;
}

static int group_down(void **state)
{
    (void)state;
    if (node)
        node_down(true);
    store_close(store);
    uv_run(&loop, UV_RUN_DEFAULT);
    config_done(&config);
    dir_remove_tree(state_dir, NULL);
    return 0;
}

static void claim(void)
{
    char sandbox_id[ID_SIZE];
    id_new(ID_SANDBOX, sandbox_id);
    struct store_sandbox sb = {
        .name = NULL,
        .state = STORE_SANDBOX_CREATING,
        .template_digest = digest,
        .vcpus = shape.vcpus,
        .memory_mib = shape.mem_mib,
        .disk_mib = shape.disk_mib,
        .timeout_ms = 600000,
        .created_at_ms = clock_wall_ms(),
    };
    memcpy(sb.id, sandbox_id, ID_SIZE);
    memcpy(sb.project_id, project_id, ID_SIZE);
    struct err e = {0};
    if (store_sandbox_insert(store, &sb, &e) < 0)
        fail_msg("%s", e.text);
    const struct node_identity identity = {.sandbox_id = sandbox_id, .hostname = "test-host"};
    got = (struct node_machine){0};
    node_claim(node, digest, &shape, &identity, on_claimed, NULL);
    run_until_done(60000);
    assert_int_equal(last.code, 0);
    print_message("  source %d, %llu us\n", (int)got.source, (unsigned long long)got.claim_us);
}

/* ---- exec in the guest ---- */

static char output[4096];
static size_t output_len;
static int exit_code;
static struct guest_call *output_call;

static void on_output(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    (void)arg;
    (void)stream;
    (void)offset;
    size_t n = MIN(len, sizeof(output) - 1 - output_len);
    memcpy(output + output_len, data, n);
    output_len += n;
    output[output_len] = '\0';
    guest_call_consume(output_call, len);
}

static void on_exit_seen(void *arg, uint64_t end, const struct guest_exit *x)
{
    (void)arg;
    (void)end;
    exit_code = x->signalled ? 128 + x->signal : x->code;
}

static const struct guest_output_callbacks output_callbacks = {.on_data = on_output, .on_exit = on_exit_seen, .done = on_done};

static void on_exec(void *arg, const struct guest_exec_started *started, const struct err *e)
{
    (void)started;
    on_done(arg, e);
}

static const char *sh(const char *line)
{
    static unsigned number;
    char id[32];
    struct err e = {0};
    struct guest *g = node_guest(node, got.id, &e);
    if (!g)
        fail_msg("%s", e.text);
    snprintf(id, sizeof(id), "t%u-%u", (unsigned)getpid(), number++);
    const struct guest_exec_spec spec = {.shell = line, .user = "root"};
    guest_exec_start(g, id, &spec, on_exec, NULL);
    run_until_done(30000);
    assert_int_equal(last.code, 0);
    output_len = 0;
    output[0] = '\0';
    exit_code = -1;
    output_call = guest_exec_output(g, id, 0, true, &output_callbacks, NULL);
    run_until_done(60000);
    return output;
}

static unsigned entries(const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", state_dir, name);
    DIR *dir = opendir(path);
    unsigned n = 0;
    for (struct dirent *d; dir && (d = readdir(dir));)
        n += d->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

static void remove_machine(void)
{
    node_remove(node, got.id, on_done, NULL);
    run_until_done(10000);
    assert_null(node_machine_find(node, got.id));
}

/* ---- tests ---- */

static void template_is_imported(void **state)
{
    (void)state;
    char longest[NODE_INCOMING_NAME_MAX + 2];
    memset(longest, 'a', sizeof(longest));
    longest[NODE_INCOMING_NAME_MAX + 1] = '\0';
    assert_false(node_incoming_valid(longest));
    longest[NODE_INCOMING_NAME_MAX] = '\0';
    assert_true(node_incoming_valid(longest));
    assert_true(node_incoming_valid("base-20260131-120000.1_x"));
    const char *const wrong[] = {"", ".", "..", ".hidden", "-x", "_x", "Upper", "a/b", "a b", "\xc3\xa4"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_false(node_incoming_valid(wrong[i]));
    node_up();
    node_template_import(node, "nothing", on_progress, on_template, NULL);
    run_until_done(1000);
    assert_int_equal(last.code, ERR_NOT_FOUND);
    node_template_import(node, "../etc", on_progress, on_template, NULL);
    run_until_done(1000);
    assert_int_equal(last.code, ERR_INVALID);
    node_template_import(node, "base", on_progress, on_template, NULL);
    run_until_done(300000);
    assert_int_equal(last.code, 0);
    shape = (struct shape){.vcpus = config.default_vcpus, .mem_mib = config.default_memory_mib,
                           .disk_mib = MAX(config.default_disk_mib, node_template_disk_mib(node, digest))};
    struct node_template_shape ready[4];
    assert_int_equal(node_template_shapes(node, digest, ready, ARRAY_LEN(ready)), 1);
    assert_memory_equal(&ready[0].shape, &shape, sizeof(shape));
    assert_int_equal(entries("templates"), 1);
    assert_int_equal(entries("incoming"), 0);
    assert_int_equal(entries("machines"), 0);
}

static void cold_claim_runs_code(void **state)
{
    (void)state;
    claim();
    assert_int_equal(got.source, CLAIM_COLD);
    assert_string_equal(sh("hostname; cat /proc/sys/kernel/hostname"), "test-host\ntest-host\n");
    assert_string_equal(sh("python3 -c 'print(6*7)'"), "42\n");
    assert_string_equal(sh("exit 7"), "");
    assert_int_equal(exit_code, 7);
    char now[32];
    snprintf(now, sizeof(now), "%s", sh("date +%s"));
    assert_true(llabs(atoll(now) - clock_wall_ms() / 1000) <= 2);
    assert_int_equal(entries("sandboxes"), 1);
    remove_machine();
    assert_int_equal(entries("sandboxes"), 0);
    assert_int_equal(entries("machines"), 0);
}

static void pools_serve_claims(void **state)
{
    (void)state;
    struct node_stats st;
    config_set(&config, "test", "pool_hot", "1", NULL);
    config_set(&config, "test", "pool_blank", "1", NULL);
    claim(); /* makes the pools fill */
    struct node_machine first = got;
    uint64_t end = clock_mono_ms() + 20000;
    do {
        bool never = false;
        wait_for(&never, 100);
        node_stats_get(node, &st);
    } while ((st.hot < 1 || st.blank < 1) && clock_mono_ms() < end);
    assert_int_equal(st.hot, 1);
    assert_int_equal(st.blank, 1);
    config_set(&config, "test", "pool_hot", "0", NULL);
    config_set(&config, "test", "pool_blank", "0", NULL);
    claim();
    assert_int_equal(got.source, CLAIM_HOT);
    assert_string_equal(sh("cat /proc/sys/kernel/hostname"), "test-host\n");
    remove_machine();
    claim();
    assert_int_equal(got.source, CLAIM_BLANK);
    assert_string_equal(sh("cat /proc/sys/kernel/hostname"), "test-host\n");
    remove_machine();
    got = first;
    remove_machine();
}

static void pause_stops_time_and_resume_sets_it(void **state)
{
    (void)state;
    claim();
    node_pause(node, got.id, on_done, NULL);
    run_until_done(5000);
    assert_int_equal(last.code, 0);
    assert_null(node_guest(node, got.id, &last));
    assert_int_equal(last.code, ERR_STATE);
    bool never = false;
    wait_for(&never, 2500);
    node_resume(node, got.id, on_done, NULL);
    run_until_done(10000);
    assert_int_equal(last.code, 0);
    char now[32];
    snprintf(now, sizeof(now), "%s", sh("date +%s"));
    assert_true(llabs(atoll(now) - clock_wall_ms() / 1000) <= 2);
    remove_machine();
}

static void a_dead_machine_is_told(void **state)
{
    (void)state;
    claim();
    lost_id[0] = '\0';
    kill(got.pid, SIGKILL);
    uint64_t end = clock_mono_ms() + 5000;
    while (!lost_id[0] && clock_mono_ms() < end)
        uv_run(&loop, UV_RUN_ONCE);
    assert_string_equal(lost_id, got.id);
    print_message("  %s\n", lost_reason);
    remove_machine();
    assert_int_equal(entries("machines"), 0);
}

static void on_exec_of_no_interest(void *arg, const struct guest_exec_started *started, const struct err *e)
{
    (void)arg;
    (void)started;
    (void)e;
}

static void a_panic_is_told_with_its_reason(void **state)
{
    (void)state;
    claim();
    lost_id[0] = '\0';
    struct err e = {0};
    const struct guest_exec_spec spec = {.shell = "echo c > /proc/sysrq-trigger", .user = "root"};
    guest_exec_start(node_guest(node, got.id, &e), "panic", &spec, on_exec_of_no_interest, NULL);
    uint64_t end = clock_mono_ms() + 10000;
    while (!lost_id[0] && clock_mono_ms() < end)
        uv_run(&loop, UV_RUN_ONCE);
    assert_string_equal(lost_id, got.id);
    print_message("  %s\n", lost_reason);
    assert_non_null(strstr(lost_reason, "sysrq"));
    remove_machine();
}

/* A process that has ended and waits to be reaped by whoever inherited it does not run. */
static bool process_runs(int pid)
{
    char path[64];
    _cleanup_buf_ struct buf text = BUF_MAX(4096);
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (file_read(path, 4096, &text, NULL) < 0)
        return false;
    const char *state = strrchr(buf_cstr(&text), ')');
    return state && state[1] == ' ' && state[2] != 'Z' && state[2] != 'X';
}

static void machines_survive_the_node(void **state)
{
    (void)state;
    claim();
    assert_string_equal(sh("echo kept > /root/kept; sleep 1000 & echo $!"), output);
    struct node_machine before = got;
    node_down(false);
    assert_true(process_runs(before.pid));
    node_up();
    const struct node_machine *m = node_machine_find(node, before.id);
    assert_non_null(m);
    assert_int_equal(m->pid, before.pid);
    got = *m;
    assert_string_equal(sh("cat /root/kept"), "kept\n");
    node_down(true);
    assert_false(process_runs(before.pid));
    node_up();
    assert_int_equal(entries("machines"), 0);
    assert_int_equal(entries("sandboxes"), 0);
}

int main(void)
{
    if (!getenv("SPACE_TEST_INCOMING")) {
        printf("skipped: SPACE_TEST_INCOMING does not name a built root file system\n");
        return 77;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(template_is_imported),
        cmocka_unit_test(cold_claim_runs_code),
        cmocka_unit_test(pools_serve_claims),
        cmocka_unit_test(pause_stops_time_and_resume_sets_it),
        cmocka_unit_test(a_dead_machine_is_told),
        cmocka_unit_test(a_panic_is_told_with_its_reason),
        cmocka_unit_test(machines_survive_the_node),
    };
    return cmocka_run_group_tests_name("node", tests, group_up, group_down);
}

/* The client side of space-priv on a real loop, against the real helper: a life from start to end, errors in words, a
 * helper that is killed, a queue that is longer than the socket takes. "rootless" as second argument: as an ordinary
 * user. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include "priv/priv_client.h"
#include "rig.h"

static uv_loop_t loop;
static struct rig rig; /* for its folder and its good SPAWN messages alone */
static struct priv *priv;

/* What the callbacks saw. */
static struct {
    int spawned, spawn_failed, done, done_failed, exits, gone, lists;
    struct priv_spawn_result result;
    struct priv_exit exit;
    struct err e;
    size_t list_count;
} seen;
static int inside; /* in a request: no callback may come */

static void on_spawn(void *arg, int code, const struct priv_spawn_result *result, const struct err *e)
{
    CHECK(!inside && arg == &seen, "callback from inside the request");
    if (code < 0) {
        seen.spawn_failed++;
        seen.e = *e;
        return;
    }
    CHECK(!e && result->pidfd >= 0, "result");
    seen.spawned++;
    seen.result = *result;
    close(result->pidfd);
}
static void on_done(void *arg, int code, const struct err *e)
{
    CHECK(!inside && arg == &seen, "callback from inside the request");
    if (code < 0) {
        seen.done_failed++;
        seen.e = *e;
    } else {
        seen.done++;
    }
}
static void on_list(void *arg, int code, const struct priv_machine *machines, size_t count, const struct err *e)
{
    (void)machines;
    CHECK(!inside && arg == &seen && (code == 0) == (e == NULL), "list");
    seen.lists++;
    seen.list_count = count;
}
static void on_exit_event(void *arg, const struct priv_exit *exited)
{
    (void)arg;
    seen.exits++;
    seen.exit = *exited;
}
static void on_gone(void *arg, const struct err *why)
{
    (void)arg;
    seen.gone++;
    seen.e = *why;
}

static void on_deadline(uv_timer_t *timer)
{
    (void)timer;
    rig_die(__FILE__, __LINE__, "nothing happens: spawned %d, failed %d, done %d, exits %d, gone %d", seen.spawned,
            seen.spawn_failed, seen.done, seen.exits, seen.gone);
}

static void on_deadline_closed(uv_handle_t *handle)
{
    *(bool *)handle->data = true;
}

/* Run the loop until `counter` is at least `wanted`. */
static void wait_for(const int *counter, int wanted)
{
    uv_timer_t deadline;
    uv_timer_init(&loop, &deadline);
    uv_timer_start(&deadline, on_deadline, 20000, 0);
    while (*counter < wanted)
        uv_run(&loop, UV_RUN_ONCE);
    bool closed = false;
    deadline.data = &closed;
    uv_close((uv_handle_t *)&deadline, on_deadline_closed);
    while (!closed)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static struct priv_config config(void)
{
    return (struct priv_config){.priv_path = SPACE_PRIV,
                                .jail_path = SPACE_JAIL,
                                .qemu_path = JAIL_PROBE,
                                .data_path = "/usr/share/doc/libc6:/usr/share/doc/libuv1",
                                .lock_path = rig.lock,
                                .uid_base = rig.uid_base,
                                .slots = RIG_SLOTS,
                                .allow_missing = rig_rootless ? JAIL_FEATURES_NEED_ROOT : 0,
                                .on_exit = on_exit_event,
                                .on_gone = on_gone};
}

static void start(void)
{
    struct priv_config c = config();
    struct err e = {0};
    CHECK(priv_start(&loop, &c, &priv, &e) == 0, "%s", e.text);
    CHECK(priv_info(priv)->root == !rig_rootless, "root");
    memset(&seen, 0, sizeof(seen));
}

static void stop(void)
{
    priv_stop(priv);
    uv_run(&loop, UV_RUN_DEFAULT);
}

/* A good machine; the caller may close everything when priv_spawn has returned. */
static void spawn(uint32_t slot, struct rig_machine *m)
{
    union priv_message message;
    int fds[PRIV_FDS_MAX];
    size_t count;
    rig_spawn_message(&rig, slot, &message, m, fds, &count);
    struct priv_spawn s = {.slot = slot,
                           .accel = PRIV_ACCEL_TCG,
                           .mode = PRIV_MODE_RESTORE,
                           .vcpus = 1,
                           .mem_mib = message.spawn.mem_mib,
                           .disk_bytes = message.spawn.disk_bytes,
                           .qmp_fd = fds[0],
                           .agent_fd = fds[1],
                           .egress_fd = fds[2],
                           .console_fd = fds[3],
                           .memory_fd = fds[4],
                           .kernel_fd = -1,
                           .initrd_fd = -1};
    inside++;
    priv_spawn(priv, &s, on_spawn, &seen);
    inside--;
    close(fds[3]);
}

static void life(void)
{
    struct rig_machine m;
    start();
    spawn(1, &m);
    wait_for(&seen.spawned, 1);
    char answer[256];
    CHECK(rig_ask(&m, answer, sizeof(answer), "show ids"), "the machine does not answer");
    struct priv_machine machine = seen.result.machine;
    CHECK(machine.slot == 1 && machine.pid > 1 && machine.start_time > 0, "machine");
    priv_list(priv, on_list, &seen);
    wait_for(&seen.lists, 1);
    CHECK(seen.list_count == 1, "%zu listed", seen.list_count);

    priv_set_limit(priv, 1, 50, on_done, &seen);
    if (rig_rootless) {
        wait_for(&seen.done_failed, 1);
        printf("#   set_limit: %s\n", seen.e.text);
        CHECK(seen.e.code == ERR_UNSUPPORTED && strstr(seen.e.text, "cpu cgroup"), "%s", seen.e.text);
        seen.done++;
    } else {
        wait_for(&seen.done, 1);
    }
    priv_clean(priv, 1, on_done, &seen);
    int failed = seen.done_failed;
    wait_for(&seen.done_failed, failed + 1);
    printf("#   clean: %s\n", seen.e.text);
    CHECK(seen.e.code == ERR_CONFLICT, "%s", seen.e.text);

    /* Restart: the machine lives, and is taken over. */
    stop();
    CHECK(seen.exits == 0 && seen.gone == 0, "events after stop");
    start();
    priv_adopt(priv, &machine, on_spawn, &seen);
    wait_for(&seen.spawned, 1);
    CHECK(memcmp(&seen.result.machine, &machine, sizeof(machine)) == 0, "another machine");
    struct priv_machine wrong = machine;
    wrong.slot = 2;
    priv_adopt(priv, &wrong, on_spawn, &seen);
    wait_for(&seen.spawn_failed, 1);
    printf("#   adopt: %s\n", seen.e.text);
    CHECK(seen.e.code == ERR_NOT_FOUND, "%s", seen.e.text);
    inside++;
    priv_kill(priv, &machine, on_done, &seen);
    inside--;
    wait_for(&seen.exits, 1);
    CHECK(seen.done == 1 && seen.exit.machine.pid == machine.pid, "exit");
    priv_clean(priv, 1, on_done, &seen);
    priv_kill_stray(priv, 2, on_done, &seen);
    wait_for(&seen.done, 3);
    rig_machine_close(&m);
    stop();
}

/* Far more requests than a socket holds, made at once. */
static void queue(void)
{
    enum { N = 2000 };
    start();
    struct rig_machine m[4];
    for (uint32_t i = 0; i < ARRAY_LEN(m); i++)
        spawn(i, &m[i]);
    inside++;
    for (int i = 0; i < N; i++) {
        priv_kill(priv, &(struct priv_machine){.slot = 60, .pid = 12345, .start_time = 1}, on_done, &seen);
        if (i % 500 == 0)
            priv_list(priv, on_list, &seen);
    }
    inside--;
    wait_for(&seen.done, N);
    wait_for(&seen.spawned, (int)ARRAY_LEN(m));
    CHECK(seen.lists == 4, "lists");
    for (uint32_t i = 0; i < ARRAY_LEN(m); i++) {
        rig_machine_close(&m[i]);
        priv_clean(priv, i, on_done, &seen); /* refused: the slots are held */
    }
    wait_for(&seen.done_failed, (int)ARRAY_LEN(m));
    stop();
    start();
    for (uint32_t i = 0; i < ARRAY_LEN(m); i++)
        priv_clean(priv, i, on_done, &seen);
    wait_for(&seen.done, (int)ARRAY_LEN(m));
    stop();
}

static pid_t child_of_ours(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    FILE *f = fopen(path, "r");
    int pid = 0;
    CHECK(f && fscanf(f, "%d", &pid) == 1, "children");
    fclose(f);
    return pid;
}

static void killed(void)
{
    start();
    pid_t pid = child_of_ours();
    kill(pid, SIGSTOP);
    priv_list(priv, on_list, &seen);
    priv_kill(priv, &(struct priv_machine){.slot = 1, .pid = 12345, .start_time = 1}, on_done, &seen);
    struct rig_machine m;
    spawn(1, &m);
    kill(pid, SIGKILL);
    wait_for(&seen.gone, 1);
    printf("#   gone: %s\n", seen.e.text);
    CHECK(seen.spawn_failed == 1 && seen.done_failed == 1, "requests were not answered");
    priv_kill(priv, &(struct priv_machine){.slot = 1, .pid = 12345, .start_time = 1}, on_done, &seen);
    wait_for(&seen.done_failed, 2);
    CHECK(seen.gone == 1, "gone twice");
    rig_machine_close(&m);
    stop();
    start();
    priv_clean(priv, 1, on_done, &seen);
    wait_for(&seen.done, 1);
    stop();
}

static void refused(struct priv_config c, int code, const char *text)
{
    struct err e = {0};
    int r = priv_start(&loop, &c, &priv, &e);
    printf("#   %s\n", e.text);
    CHECK(r == code && strstr(e.text, text), "%d", r);
}

static void words(void)
{
    struct priv_config c = config();
    c.qemu_path = "/nonexistent/qemu";
    refused(c, ERR_NOT_FOUND, "QEMU program");
    c = config();
    c.priv_path = "/nonexistent/space-priv";
    refused(c, ERR_SYSTEM, "/nonexistent/space-priv");
    c = config();
    c.slots = 0;
    refused(c, ERR_INVALID, "out of range");
    c = config();
    c.jail_path = "/bin/true"; /* is a link on some hosts, and no jail in any case */
    refused(c, ERR_SYSTEM, "jail program");
    char open_program[] = "/tmp/space-client.XXXXXX";
    int fd = mkstemp(open_program);
    CHECK(fd >= 0 && fchmod(fd, 0777) == 0, "file");
    close(fd);
    c = config();
    c.qemu_path = open_program;
    refused(c, ERR_FORBIDDEN, "can be changed by somebody else");
    unlink(open_program);
    if (rig_rootless) {
        c = config();
        c.allow_missing = 0;
        refused(c, ERR_UNSUPPORTED, "user id of its own");
        c.allow_missing = JAIL_UNIQUE_UID | JAIL_NOT_DUMPABLE;
        refused(c, ERR_UNSUPPORTED, "memory cgroup");
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"life", life}, {"queue", queue}, {"killed", killed}, {"words", words}};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(0022);
    if (argc > 2 && strcmp(argv[2], "rootless") == 0) {
        rig_become_user();
    } else if (getuid() != 0) {
        printf("skip: needs root\n");
        return SKIP;
    }
    rig_folder_make(&rig);
    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            size_t before = rig_fd_count();
            cases[i].run();
            CHECK(rig_fd_count() == before, "descriptors are left open: %zu, %zu", before, rig_fd_count());
            CHECK(uv_loop_close(&loop) == 0, "handles are left in the loop");
            rig.sock = -1;
            rig_stop(&rig);
            rig_nothing_left(&rig);
            printf("ok %s\n", cases[i].name);
            return 0;
        }
    printf("unknown case\n");
    return 1;
}

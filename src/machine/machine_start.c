/* A machine's beginning: a process started by space-priv, or one of an earlier life taken over. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/file.h"
#include "base/str.h"
#include "machine/machine_internal.h"

static void on_qmp_ready(void *arg)
{
    struct machine *m = arg;
    if (m->freeing || m->state != MACHINE_SPAWNING)
        return;
    uv_timer_stop(&m->timer);
    m->state = MACHINE_BLANK;
    step_done(m, NULL);
}

static const struct qmp_callbacks spawn_callbacks = {
    .on_ready = on_qmp_ready, .on_event = machine_on_event, .on_close = machine_on_qmp_close};

static int qmp_connect(struct machine *m, const struct qmp_callbacks *callbacks, struct err *e)
{
    _cleanup_free_ char *path = xasprintf("%s/qmp", m->folder);
    return qmp_open(m->context.loop, path, callbacks, m, &m->qmp, e);
}

static void on_spawned(void *arg, int code, const struct priv_spawn_result *result, const struct err *e)
{
    struct machine *m = arg;
    m->spawn_pending = false;
    if (code < 0) {
        m->exited = true;
        if (m->freeing) {
            machine_release(m);
            return;
        }
        machine_end(m, e->text);
        return;
    }
    close(result->pidfd); /* the exit comes from space-priv */
    m->process = result->machine;
    m->jail_missing = result->missing;
    if (m->freeing) {
        machine_kill(m);
        return;
    }
    /* The sockets were listening before QEMU was started: the connection waits in the backlog until QEMU takes it. */
    struct err connect_error = {0};
    if (qmp_connect(m, &spawn_callbacks, &connect_error) < 0)
        step_failed(m, &connect_error);
}

static int listener_make(const char *folder, const char *name, int *ret_fd, struct err *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", folder, name) >= sizeof(address.sun_path))
        return err_set(e, ERR_INVALID, "the state folder's path is too long for sockets (%zu bytes, at most %zu)",
                       strlen(folder), sizeof(address.sun_path) - 8);
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make a socket");
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 2) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "listen on the machine's socket \"%s\"", name);
    *ret_fd = steal_fd(&fd);
    return 0;
}

static struct machine *machine_alloc(const struct machine_context *context, const char *id, machine_ended_cb ended,
                                     machine_done_cb done, void *arg)
{
    struct machine *m = NEW(struct machine);
    m->context = *context;
    if (!m->context.spawn_timeout_ms)
        m->context.spawn_timeout_ms = 15000;
    if (!m->context.load_timeout_ms)
        m->context.load_timeout_ms = 10000;
    snprintf(m->id, sizeof(m->id), "%s", id);
    m->folder = xasprintf("%s/%s", context->folder_base, id);
    m->state_pipe = -1;
    m->ended = ended;
    m->step = done;
    m->arg = arg;
    buf_init(&m->console, 2 * MACHINE_CONSOLE_MAX);
    return m;
}

int machine_new(const struct machine_context *context, const struct machine_plan *plan, machine_ended_cb ended,
                machine_done_cb done, void *arg, struct machine **ret_machine, struct err *e)
{
    struct machine *m = machine_alloc(context, plan->id, ended, done, arg);
    _cleanup_close_ int qmp = -1, agent = -1, egress = -1, log = -1;
    _cleanup_free_ char *log_path = xasprintf("%s/qemu.log", m->folder);
    int r = dir_make(m->folder, 0700, e);
    if (r == 0)
        r = listener_make(m->folder, "qmp", &qmp, e);
    if (r == 0)
        r = listener_make(m->folder, "agent", &agent, e);
    if (r == 0)
        r = listener_make(m->folder, "egress", &egress, e);
    if (r == 0 && (log = open(log_path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600)) < 0)
        r = err_errno(e, ERR_SYSTEM, errno, "make the machine's log");
    if (r < 0) {
        dir_remove_tree(m->folder, NULL);
        free(m->folder);
        free(m);
        return r;
    }
    struct priv_spawn spawn = plan->spawn;
    spawn.qmp_fd = qmp;
    spawn.agent_fd = agent;
    spawn.egress_fd = egress;
    spawn.console_fd = log;
    uv_timer_init(context->loop, &m->timer);
    m->timer.data = m;
    m->timer_open = true;
    uv_timer_start(&m->timer, machine_on_timeout, m->context.spawn_timeout_ms, 0);
    m->process.slot = spawn.slot;
    m->spawn_pending = true;
    priv_spawn(context->priv, &spawn, on_spawned, m);
    *ret_machine = m;
    return 0;
}

static void on_adopted_status(void *arg, json_t *answer, const struct err *e)
{
    struct machine *m = arg;
    if (m->freeing || m->state == MACHINE_ENDED || e)
        return; /* an error has closed the connection, which ends the machine */
    const char *status = json_string_value(json_object_get(answer, "status"));
    uv_timer_stop(&m->timer);
    if (status && str_eq(status, "running"))
        m->state = MACHINE_RUNNING;
    else if (status && str_eq(status, "paused"))
        m->state = MACHINE_PAUSED;
    else if (status && str_eq(status, "shutdown")) { /* it ended while nobody listened */
        snprintf(m->shutdown_reason, sizeof(m->shutdown_reason), "shutdown");
        machine_last_words(m);
        return;
    } else {
        machine_kill(m);
        machine_end(m, "the machine was found in a state that it cannot go on from");
        return;
    }
    step_done(m, NULL);
}

static void on_adopted_ready(void *arg)
{
    struct machine *m = arg;
    qmp_command(m->qmp, "query-status", NULL, -1, 0, on_adopted_status, m);
}

static const struct qmp_callbacks adopt_callbacks = {
    .on_ready = on_adopted_ready, .on_event = machine_on_event, .on_close = machine_on_qmp_close};

static void on_adopted(void *arg, int code, const struct priv_spawn_result *result, const struct err *e)
{
    struct machine *m = arg;
    m->spawn_pending = false;
    if (code < 0) {
        m->exited = true;
        if (m->freeing) {
            machine_release(m);
            return;
        }
        machine_end(m, code == ERR_NOT_FOUND ? "the machine's process ended while the daemon was away" : e->text);
        return;
    }
    close(result->pidfd);
    m->process = result->machine;
    if (m->freeing) {
        machine_kill(m);
        return;
    }
    struct err connect_error = {0};
    if (qmp_connect(m, &adopt_callbacks, &connect_error) < 0)
        step_failed(m, &connect_error);
}

int machine_adopt(const struct machine_context *context, const char *id, const struct priv_machine *process,
                  machine_ended_cb ended, machine_done_cb done, void *arg, struct machine **ret_machine, struct err *e)
{
    if (!id_valid(ID_MACHINE, id))
        return err_set(e, ERR_INVALID, "\"%s\" is no machine id", id);
    struct machine *m = machine_alloc(context, id, ended, done, arg);
    m->process = *process;
    uv_timer_init(context->loop, &m->timer);
    m->timer.data = m;
    m->timer_open = true;
    uv_timer_start(&m->timer, machine_on_timeout, m->context.spawn_timeout_ms, 0);
    m->spawn_pending = true;
    priv_adopt(context->priv, process, on_adopted, m);
    *ret_machine = m;
    return 0;
}

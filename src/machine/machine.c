/* The driver of one QEMU (see machine.h for the theory of operation). */
#include "machine/machine.h"

#include <errno.h>
#include <fcntl.h>

#include "base/file.h"
#include "base/str.h"
#include "machine/machine_block.h"
#include "machine/machine_internal.h"
#include "qmp/qmp_batch.h"

#define EXIT_GRACE_MS 2000

/* ---- ending ---- */

void machine_release(struct machine *m)
{
    if (m->spawn_pending || m->guest || m->timer_open || !(m->exited || m->detached))
        return;
    if (m->state_pipe >= 0)
        close(m->state_pipe);
    if (!m->detached)
        dir_remove_tree(m->folder, NULL);
    if (m->freed)
        m->freed(m->freed_arg);
    buf_done(&m->console);
    free(m->folder);
    free(m);
}

void step_done(struct machine *m, const struct err *e)
{
    machine_done_cb step = m->step;
    m->step = NULL;
    if (step && !m->freeing)
        step(m->arg, e);
}

/* The machine cannot go on. Tells the step under way first, then the owner. */
void machine_end(struct machine *m, const char *reason)
{
    if (m->state == MACHINE_ENDED)
        return;
    m->state = MACHINE_ENDED;
    if (m->timer_open)
        uv_timer_stop(&m->timer);
    if (m->freeing)
        return;
    struct err e = {0};
    err_set(&e, ERR_GONE, "%s", reason);
    machine_done_cb step = m->step;
    m->step = NULL;
    /* The owner may free the machine in either call: the second needs to know. */
    machine_ended_cb ended = m->ended;
    void *arg = m->arg;
    if (step)
        step(arg, &e);
    if (!m->freeing && ended)
        ended(arg, m, reason);
}

static void on_killed(void *arg, int code, const struct err *e)
{
    (void)arg;
    (void)code;
    (void)e;
}

void machine_kill(struct machine *m)
{
    if (m->process.pid > 0 && !m->exited)
        priv_kill(m->context.priv, &m->process, on_killed, NULL);
}

/* QEMU's last line, for the reason. It may have been taken over by the guest: escaped and cut. */
static void last_words_add(struct machine *m, char *reason, size_t size)
{
    _cleanup_free_ char *path = xasprintf("%s/qemu.log", m->folder);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char tail[512];
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n = end <= 0 ? 0 : pread(fd, tail, sizeof(tail), MAX((off_t)0, end - (off_t)sizeof(tail)));
    while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == '\r'))
        n--;
    ssize_t from = n;
    while (from > 0 && tail[from - 1] != '\n' && n - from < 160)
        from--;
    if (n <= from)
        return;
    _cleanup_buf_ struct buf safe = BUF_MAX(2000);
    text_escape(&safe, tail + from, (size_t)(n - from));
    size_t used = strlen(reason);
    snprintf(reason + used, size - used, " (%.180s)", buf_cstr(&safe));
}

void machine_on_exit(struct machine *m, const struct priv_exit *exit)
{
    char reason[400];
    if (m->exited)
        return;
    m->exited = true;
    if (m->shutdown_reason[0])
        snprintf(reason, sizeof(reason), "the guest ended: %s", m->shutdown_reason);
    else if (exit->oom)
        snprintf(reason, sizeof(reason), "the machine used more memory than its limit and was killed by the kernel");
    else if (exit->signal)
        snprintf(reason, sizeof(reason), "the machine's process was ended by signal %d (%s)", exit->signal,
                 strsignal(exit->signal));
    else if (exit->exit_code >= 0)
        snprintf(reason, sizeof(reason), "the machine's process ended with status %d", exit->exit_code);
    else
        snprintf(reason, sizeof(reason), "the machine's process ended");
    if (!m->shutdown_reason[0])
        last_words_add(m, reason, sizeof(reason));
    machine_end(m, reason);
    if (m->freeing)
        machine_release(m);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct machine *m = handle->data;
    m->timer_open = false;
    machine_release(m);
}

static void on_guest_closed(void *arg, const struct err *e)
{
    struct machine *m = arg;
    machine_done_cb done = m->guest_closed;
    bool wanted = m->guest_closing;
    m->guest = NULL;
    m->guest_closing = false;
    m->guest_closed = NULL;
    if (m->freeing) {
        machine_release(m);
        return;
    }
    if (done)
        done(m->arg, NULL);
    else if (!wanted && m->context.guest_lost)
        m->context.guest_lost(m->arg, m, e);
}

static void machine_leave(struct machine *m, bool detach, void (*freed)(void *arg), void *arg)
{
    if (!m) {
        if (freed)
            freed(arg);
        return;
    }
    m->freeing = true;
    m->detached = detach;
    m->freed = freed;
    m->freed_arg = arg;
    m->state = MACHINE_ENDED;
    m->step = NULL;
    qmp_free(steal(m->qmp));
    if (m->guest && !m->guest_closing)
        guest_close(m->guest);
    if (!detach)
        machine_kill(m);
    if (m->timer_open)
        uv_close((uv_handle_t *)&m->timer, on_timer_closed);
    else
        machine_release(m);
}

void machine_free(struct machine *m, void (*freed)(void *arg), void *arg)
{
    machine_leave(m, false, freed, arg);
}

void machine_detach(struct machine *m, void (*freed)(void *arg), void *arg)
{
    machine_leave(m, true, freed, arg);
}

/* ---- steps ---- */

static bool step_begin(struct machine *m, enum machine_state needed, machine_done_cb done)
{
    struct err e = {0};
    if (m->step)
        err_set(&e, ERR_STATE, "another step of the machine is under way");
    else if (m->state != needed)
        err_set(&e, ERR_STATE, "the machine is in state %d, the step needs %d", (int)m->state, (int)needed);
    if (e.code) {
        done(m->arg, &e);
        return false;
    }
    m->step = done;
    return true;
}

void machine_on_timeout(uv_timer_t *timer)
{
    struct machine *m = timer->data;
    machine_kill(m);
    machine_end(m, m->state == MACHINE_SPAWNING ? "the machine's process did not answer in time after its start"
                                                : "the machine did not finish loading in time");
}

void step_failed(struct machine *m, const struct err *e)
{
    char reason[400];
    snprintf(reason, sizeof(reason), "%.390s", e->text);
    machine_kill(m);
    machine_end(m, reason);
}

static void on_batch_step(void *arg, const struct err *e)
{
    struct machine *m = arg;
    if (m->freeing || m->state == MACHINE_ENDED)
        return;
    if (e)
        step_failed(m, e);
    else
        step_done(m, NULL);
}

void machine_prepare(struct machine *m, int rootfs_fd, int layer_fd, const void *device_state, size_t device_state_len,
                     machine_done_cb done)
{
    if (!step_begin(m, MACHINE_BLANK, done))
        return;
    int ends[2];
    struct err e = {0};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        err_errno(&e, ERR_SYSTEM, errno, "make a pipe for the device state");
        step_failed(m, &e);
        return;
    }
    /* The whole state has to fit into the pipe: nobody would write the rest. */
    bool fits = fcntl(ends[1], F_SETPIPE_SZ, (int)MAX(device_state_len, (size_t)65536)) >= 0 &&
                write(ends[1], device_state, device_state_len) == (ssize_t)device_state_len;
    close(ends[1]);
    m->state_pipe = ends[0];
    if (!fits) {
        err_set(&e, ERR_SYSTEM, "a device state of %zu bytes does not fit into a pipe", device_state_len);
        step_failed(m, &e);
        return;
    }
    fcntl(m->state_pipe, F_SETFL, 0);
    struct qmp_step steps[5];
    size_t n = 0;
    steps[n++] = (struct qmp_step){"migrate-set-capabilities",
                                   json_pack("{s:[{s:s, s:b}]}", "capabilities", "capability", "events", "state", 1)};
    steps[n++] = (struct qmp_step){"add-fd", block_fdset(FDSET_ROOTFS), true, rootfs_fd};
    if (layer_fd >= 0)
        steps[n++] = (struct qmp_step){"add-fd", block_fdset(FDSET_LAYER), true, layer_fd};
    steps[n++] = (struct qmp_step){"getfd", json_pack("{s:s}", "fdname", "state"), true, m->state_pipe};
    steps[n++] = (struct qmp_step){"blockdev-add", block_base(layer_fd >= 0)};
    qmp_batch(m->qmp, steps, n, on_batch_step, m);
}

static void on_batch_loading(void *arg, const struct err *e)
{
    struct machine *m = arg;
    if (!m->freeing && m->state == MACHINE_LOADING && e)
        step_failed(m, e);
    /* success is the RESUME event */
}

static void load_begin(struct machine *m)
{
    m->state = MACHINE_LOADING;
    uv_timer_start(&m->timer, machine_on_timeout, m->context.load_timeout_ms, 0);
}

void machine_restore(struct machine *m, int overlay_fd, machine_done_cb done)
{
    if (!step_begin(m, MACHINE_BLANK, done))
        return;
    load_begin(m);
    /* "cont" during an incoming migration means: go on when it is complete. */
    struct qmp_step steps[] = {
        {"add-fd", block_fdset(FDSET_DISK), true, overlay_fd},
        {"blockdev-add", block_disk()},
        {"blockdev-reopen", block_attach()},
        {"migrate-incoming", json_pack("{s:s}", "uri", "fd:state")},
        {"cont", NULL},
    };
    qmp_batch(m->qmp, steps, ARRAY_LEN(steps), on_batch_loading, m);
}

void machine_boot(struct machine *m, int rootfs_fd, int disk_fd, machine_done_cb done)
{
    if (!step_begin(m, MACHINE_BLANK, done))
        return;
    load_begin(m);
    struct qmp_step steps[] = {
        {"add-fd", block_fdset(FDSET_ROOTFS), true, rootfs_fd},
        {"add-fd", block_fdset(FDSET_DISK), true, disk_fd},
        {"blockdev-add", block_base(false)},
        {"blockdev-add", block_disk()},
        {"blockdev-reopen", block_attach()},
        {"cont", NULL},
    };
    qmp_batch(m->qmp, steps, ARRAY_LEN(steps), on_batch_loading, m);
}

/* The commands of a step have been answered: false when that was the end of the machine. */
static bool step_went_well(struct machine *m, const struct err *e)
{
    if (m->freeing || m->state == MACHINE_ENDED)
        return false;
    if (e)
        step_failed(m, e);
    return !e;
}

static void on_stopped(void *arg, const struct err *e)
{
    struct machine *m = arg;
    if (!step_went_well(m, e))
        return;
    m->state = MACHINE_PAUSED;
    step_done(m, NULL);
}

void machine_freeze(struct machine *m, int state_fd, machine_done_cb done)
{
    if (!step_begin(m, MACHINE_RUNNING, done))
        return;
    char name[32];
    snprintf(name, sizeof(name), "/dev/fdset/%d", FDSET_STATE);
    struct qmp_step steps[] = {
        {"stop", NULL},
        {"add-fd", block_fdset(FDSET_STATE), true, state_fd},
        {"xen-save-devices-state", json_pack("{s:s, s:b}", "filename", name, "live", 0)},
        {"remove-fd", block_fdset(FDSET_STATE)},
    };
    qmp_batch(m->qmp, steps, ARRAY_LEN(steps), on_stopped, m);
}

void machine_pause(struct machine *m, machine_done_cb done)
{
    if (m->state == MACHINE_PAUSED && !m->step) {
        done(m->arg, NULL);
        return;
    }
    if (!step_begin(m, MACHINE_RUNNING, done))
        return;
    if (m->guest)
        guest_hold(m->guest, true);
    struct qmp_step steps[] = {{"stop", NULL}};
    qmp_batch(m->qmp, steps, 1, on_stopped, m);
}

static void on_resumed(void *arg, const struct err *e)
{
    struct machine *m = arg;
    if (!step_went_well(m, e))
        return;
    m->state = MACHINE_RUNNING;
    if (m->guest)
        guest_hold(m->guest, false);
    step_done(m, NULL);
}

void machine_resume(struct machine *m, machine_done_cb done)
{
    if (m->state == MACHINE_RUNNING && !m->step) {
        done(m->arg, NULL);
        return;
    }
    if (!step_begin(m, MACHINE_PAUSED, done))
        return;
    struct qmp_step steps[] = {{"cont", NULL}};
    qmp_batch(m->qmp, steps, 1, on_resumed, m);
}

/* ---- control connection ---- */

void machine_on_event(void *arg, const char *name, json_t *data)
{
    struct machine *m = arg;
    if (m->freeing)
        return;
    if (str_eq(name, "RESUME") && m->state == MACHINE_LOADING) {
        uv_timer_stop(&m->timer);
        m->state = MACHINE_RUNNING;
        step_done(m, NULL);
    } else if (str_eq(name, "SHUTDOWN") && m->state != MACHINE_ENDED) {
        const char *reason = json_string_value(json_object_get(data, "reason"));
        snprintf(m->shutdown_reason, sizeof(m->shutdown_reason), "%.40s", reason ? reason : "shutdown");
        machine_last_words(m);
    }
}

/* QEMU hangs up when it dies; if its exit is not reported soon, it is killed. */
static void on_exit_grace(uv_timer_t *timer)
{
    struct machine *m = timer->data;
    machine_kill(m);
    machine_end(m, "the machine's control connection broke");
}

void machine_on_qmp_close(void *arg, const struct err *e)
{
    struct machine *m = arg;
    if (m->freeing || m->state == MACHINE_ENDED)
        return;
    if (e->code == ERR_PROTOCOL || e->code == ERR_TIMEOUT) {
        step_failed(m, e);
        return;
    }
    uv_timer_start(&m->timer, on_exit_grace, EXIT_GRACE_MS, 0);
}

/* ---- guest connection ---- */

static const struct guest_callbacks guest_callbacks = {.on_closed = on_guest_closed};

int machine_guest_open(struct machine *m, struct err *e)
{
    if (m->guest && !m->guest_closing)
        return 0;
    if (m->guest_closing)
        return err_set(e, ERR_UNAVAILABLE, "the connection to the sandbox is being renewed");
    if (m->state == MACHINE_ENDED || m->state == MACHINE_SPAWNING)
        return err_set(e, ERR_GONE, "the machine is not there");
    _cleanup_free_ char *path = xasprintf("%s/agent", m->folder);
    int r = guest_open_path(m->context.loop, path, &m->context.guest, &guest_callbacks, m, &m->guest, e);
    if (r == 0 && m->state == MACHINE_PAUSED)
        guest_hold(m->guest, true);
    return r;
}

struct guest *machine_guest(struct machine *m)
{
    return m->guest_closing ? NULL : m->guest;
}

void machine_guest_close(struct machine *m, machine_done_cb done)
{
    if (!m->guest) {
        if (done)
            done(m->arg, NULL);
        return;
    }
    m->guest_closed = done;
    if (!m->guest_closing) {
        m->guest_closing = true;
        guest_close(m->guest);
    }
}

enum machine_state machine_state(const struct machine *m)
{
    return m->state;
}

const char *machine_id(const struct machine *m)
{
    return m->id;
}

const char *machine_folder(const struct machine *m)
{
    return m->folder;
}

const struct priv_machine *machine_process(const struct machine *m)
{
    return &m->process;
}

uint32_t machine_jail_missing(const struct machine *m)
{
    return m->jail_missing;
}

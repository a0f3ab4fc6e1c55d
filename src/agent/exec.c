/* Start, output and end of execs (see exec.h). Readers are in exec_output.c, input in exec_input.c. */
#include "agent/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#include "agent/env.h"
#include "agent/exec_internal.h"
#include "agent/spawn.h"
#include "base/clock.h"

static uint64_t oom_kills_read(void)
{
    char text[16384];
    _cleanup_close_ int fd = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n < 0)
        return 0;
    text[n] = '\0';
    const char *at = strstr(text, "\noom_kill ");
    return at ? strtoull(at + strlen("\noom_kill "), NULL, 10) : 0;
}

/* Forget the oldest finished execs that nobody reads until `need` bytes are left. */
static void make_room(void *arg, size_t need)
{
    struct execs *execs = arg;
    struct exec *x = TAILQ_FIRST(&execs->all), *next;
    for (; x && execs->budget.used + need > execs->budget.max; x = next) {
        next = TAILQ_NEXT(x, entry);
        if (exec_finished(x) && x->reader_count == 0)
            exec_delete(x);
    }
}

int execs_init(struct execs *execs, struct loop *loop, struct err *e)
{
    *execs = (struct execs){.loop = loop};
    TAILQ_INIT(&execs->all);
    execs->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (execs->null_fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "open /dev/null");
    struct sysinfo info;
    uint64_t ram = sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit : 128 * MIB;
    execs->budget = (struct output_budget){
        .max = (size_t)MIN(ram / 8, (uint64_t)LIMIT_OUTPUT_TOTAL), .make_room = make_room, .arg = execs};
    execs->oom_kills = oom_kills_read();
    return 0;
}

void execs_done(struct execs *execs)
{
    struct exec *x;
    while ((x = TAILQ_FIRST(&execs->all)))
        exec_delete(x);
    close(execs->null_fd);
}

struct exec *exec_find(struct execs *execs, const char *id)
{
    struct exec *x;
    HASH_FIND(by_id, execs->by_id, id, strlen(id), x);
    return x;
}

/* --- output --------------------------------------------------------------------------------------------------- */

/* A pipe whose writers outlive their exec: read and thrown away. */
struct drain {
    struct loop_source source;
    struct execs *execs;
};

static void drain_ready(struct loop_source *source, uint32_t events ATTR_UNUSED)
{
    static char scratch[4096];
    struct drain *d = container_of(source, struct drain, source);
    ssize_t n = 0;
    for (int i = 0; i < 16 && (n = read(source->fd, scratch, sizeof(scratch))) > 0; i++)
        ;
    if (n > 0 || (n < 0 && errno == EAGAIN))
        return;
    int fd = source->fd;
    loop_remove(source);
    close(fd);
    d->execs->drains--;
    free(d);
}

static void pipe_close(struct exec_pipe *p, bool drain)
{
    struct execs *execs = p->exec->execs;
    int fd = steal_fd(&p->fd);
    loop_remove(&p->source);
    p->paused = false;
    if (fd < 0)
        return;
    if (drain && execs->drains < LIMIT_DRAINS) {
        struct drain *d = NEW(struct drain);
        d->execs = execs;
        if (loop_add(execs->loop, &d->source, fd, EPOLLIN, drain_ready) == 0) {
            execs->drains++;
            return;
        }
        free(d);
    }
    close(fd);
}

static uint64_t keep_from(const struct exec *x)
{
    uint64_t least = UINT64_MAX;
    const struct exec_reader *reader;
    LIST_FOREACH(reader, &x->readers, entry)
    least = MIN(least, reader->at);
    return least;
}

static void readers_wake(struct exec *x)
{
    struct exec_reader *reader;
    LIST_FOREACH(reader, &x->readers, entry)
    request_wake(reader->request);
}

/* The exit record's payload; from here on the exec is finished. */
static void finish(struct exec *x)
{
    for (int i = 0; i < 2; i++)
        pipe_close(&x->out[i], !x->tty);
    exec_input_end(x);
    loop_timer_cancel(&x->linger);
    loop_timer_cancel(&x->gather);
    struct buf b = BUF_MAX(EXEC_EXIT_MAX);
    bool killed = WIFSIGNALED(x->status) && WTERMSIG(x->status) == SIGKILL, oom = false;
    if (killed && !x->timed_out) {
        uint64_t kills = oom_kills_read();
        oom = kills > x->execs->oom_kills;
        x->execs->oom_kills = kills;
    }
    if (WIFSIGNALED(x->status))
        wire_put_u64(&b, AGENT_TAG_EXIT_SIGNAL, (uint64_t)WTERMSIG(x->status));
    else
        wire_put_u64(&b, AGENT_TAG_EXIT_CODE, (uint64_t)WEXITSTATUS(x->status));
    wire_put_i64(&b, AGENT_TAG_EXIT_STARTED_MS, x->started_ms);
    wire_put_i64(&b, AGENT_TAG_EXIT_ENDED_MS, x->ended_ms);
    wire_put_u64(&b, AGENT_TAG_EXIT_USER_US,
                 (uint64_t)x->usage.ru_utime.tv_sec * 1000000u + (uint64_t)x->usage.ru_utime.tv_usec);
    wire_put_u64(&b, AGENT_TAG_EXIT_SYSTEM_US,
                 (uint64_t)x->usage.ru_stime.tv_sec * 1000000u + (uint64_t)x->usage.ru_stime.tv_usec);
    wire_put_u64(&b, AGENT_TAG_EXIT_MAX_RSS_KIB, (uint64_t)x->usage.ru_maxrss);
    wire_put_u64(&b, AGENT_TAG_EXIT_TOTAL_BYTES, x->log.end);
    wire_put_u64(&b, AGENT_TAG_EXIT_DROPPED_BYTES, x->log.start);
    wire_put_u64(&b, AGENT_TAG_EXIT_OOM, oom);
    wire_put_u64(&b, AGENT_TAG_EXIT_TIMED_OUT, x->timed_out);
    memcpy(x->exit, buf_data(&b), b.len);
    x->exit_len = b.len;
    buf_done(&b);
    readers_wake(x);
}

static void maybe_finish(struct exec *x)
{
    if (x->ended && !exec_finished(x) && x->out[0].fd < 0 && x->out[1].fd < 0)
        finish(x);
}

/* Read at most `most` bytes into the log. A read that finds less than there is room for ends it, unless `to_end` asks
 * for the one more that tells an empty pipe from one at its end. */
static void pipe_read(struct exec_pipe *p, size_t most, bool to_end)
{
    struct exec *x = p->exec;
    uint64_t keep = keep_from(x);
    while (most > 0) {
        size_t room;
        uint8_t *to = output_log_reserve(&x->log, keep, &room);
        if (!to) {
            p->paused = true;
            loop_remove(&p->source);
            return;
        }
        room = MIN(room, most);
        ssize_t n = read(p->fd, to, room);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) { /* a terminal without processes answers EIO */
            pipe_close(p, false);
            return;
        }
        output_log_commit(&x->log, p->kind, (size_t)n);
        most -= (size_t)n;
        if ((size_t)n < room && !to_end)
            return;
    }
}

static void pipe_ready(struct loop_source *source, uint32_t events);

static void gather_fire(struct loop_timer *timer)
{
    struct exec *x = container_of(timer, struct exec, gather);
    for (int i = 0; i < 2; i++) {
        struct exec_pipe *p = &x->out[i];
        if (p->fd >= 0 && !p->paused && !p->source.loop)
            loop_add(x->execs->loop, &p->source, p->fd, EPOLLIN, pipe_ready);
    }
}

/* Where much comes, each small write of the process would be an event, a frame and a change of processes of its own.
 * So its pipes are made larger and left to fill: the delay is a millisecond, and only where there is no end of output
 * to wait for. */
static void gather(struct exec *x, size_t bytes)
{
    uint64_t now = clock_mono_ms();
    if (now != x->gather_ms)
        x->gather_bytes = 0;
    x->gather_ms = now;
    x->gather_bytes += bytes;
    if (x->gather_bytes < LIMIT_GATHER_BYTES || x->ended)
        return;
    x->gather_bytes = 0;
    for (int i = 0; i < 2; i++) {
        struct exec_pipe *p = &x->out[i];
        if (p->fd >= 0 && !p->grown && !x->tty) {
            p->grown = true;
            fcntl(p->fd, F_SETPIPE_SZ, LIMIT_PIPE_BYTES);
        }
        loop_remove(&p->source);
    }
    loop_timer_set(x->execs->loop, &x->gather, LIMIT_GATHER_MS, gather_fire);
}

static void pipe_ready(struct loop_source *source, uint32_t events)
{
    struct exec_pipe *p = container_of(source, struct exec_pipe, source);
    struct exec *x = p->exec;
    uint64_t before = x->log.end;
    pipe_read(p, LIMIT_READ_ROUND, events & EPOLLHUP);
    if (x->log.end != before) {
        readers_wake(x);
        gather(x, (size_t)(x->log.end - before));
    }
    maybe_finish(x);
}

/* The time for background children is over: what stands in the pipes at this moment still counts. A pipe that is left
 * alone for a reader's sake stays until the reader has taken it. */
static void linger_end(struct exec *x)
{
    uint64_t before = x->log.end;
    x->linger_over = true;
    for (int i = 0; i < 2; i++) {
        struct exec_pipe *p = &x->out[i];
        int left = 0;
        if (p->fd < 0 || p->paused || ioctl(p->fd, FIONREAD, &left) < 0)
            left = 0;
        if (left > 0)
            pipe_read(p, (size_t)left, false);
    }
    if (x->log.end != before)
        readers_wake(x);
    if (!x->out[0].paused && !x->out[1].paused && !exec_finished(x))
        finish(x);
}

static void linger_fire(struct loop_timer *timer)
{
    linger_end(container_of(timer, struct exec, linger));
}

void exec_resume(struct exec *x)
{
    for (int i = 0; i < 2; i++) {
        struct exec_pipe *p = &x->out[i];
        size_t room;
        if (!p->paused || !output_log_reserve(&x->log, keep_from(x), &room))
            continue;
        p->paused = false;
        loop_add(x->execs->loop, &p->source, p->fd, EPOLLIN, pipe_ready);
    }
    if (x->linger_over && !exec_finished(x) && !x->out[0].paused && !x->out[1].paused)
        loop_timer_set(x->execs->loop, &x->linger, 0, linger_fire);
}

/* --- end ------------------------------------------------------------------------------------------------------ */

static void main_ended(struct exec *x, int status, const struct rusage *usage)
{
    struct execs *execs = x->execs;
    HASH_DELETE(by_pid, execs->by_pid, x);
    execs->running--;
    x->running = false;
    x->ended = true;
    x->status = status;
    x->usage = *usage;
    x->ended_ms = clock_wall_ms();
    loop_timer_cancel(&x->timeout);
    if (x->gather.loop) {
        loop_timer_cancel(&x->gather);
        gather_fire(&x->gather);
    }
    uint64_t before = x->log.end;
    for (int i = 0; i < 2; i++) /* mostly the end is there already: no need to wait for its event */
        if (x->out[i].fd >= 0 && !x->out[i].paused)
            pipe_read(&x->out[i], LIMIT_READ_ROUND, true);
    if (x->log.end != before)
        readers_wake(x);
    if (x->out[0].fd < 0 && x->out[1].fd < 0)
        finish(x);
    else
        loop_timer_set(execs->loop, &x->linger, LIMIT_LINGER_MS, linger_fire);
}

void execs_reap(struct execs *execs)
{
    int status;
    struct rusage usage;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        struct exec *x;
        HASH_FIND(by_pid, execs->by_pid, &pid, sizeof(pid), x);
        if (x)
            main_ended(x, status, &usage);
    }
}

static void timeout_fire(struct loop_timer *timer)
{
    struct exec *x = container_of(timer, struct exec, timeout);
    x->timed_out = true;
    kill(-x->pid, SIGKILL);
}

int exec_signal(struct exec *x, int sig, struct err *e)
{
    if (sig < 0 || sig > SIGRTMAX)
        return err_set(e, ERR_INVALID, "%d is no signal", sig);
    if (!x->running)
        return err_set(e, ERR_STATE, "exec %s has ended", x->id);
    if (kill(-x->pid, sig) < 0)
        return err_errno(e, ERR_STATE, errno, "signal exec %s", x->id);
    return 0;
}

int exec_resize(struct exec *x, uint16_t rows, uint16_t cols, struct err *e)
{
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    if (!x->tty || x->out[0].fd < 0)
        return err_set(e, ERR_STATE, "exec %s has no terminal", x->id);
    if (ioctl(x->out[0].fd, TIOCSWINSZ, &size) < 0)
        return err_errno(e, ERR_INVALID, errno, "resize the terminal of exec %s", x->id);
    return 0;
}

void exec_delete(struct exec *x)
{
    struct execs *execs = x->execs;
    if (x->running) {
        kill(-x->pid, SIGKILL);
        HASH_DELETE(by_pid, execs->by_pid, x);
        execs->running--;
    }
    HASH_DELETE(by_id, execs->by_id, x);
    TAILQ_REMOVE(&execs->all, x, entry);
    execs->count--;
    loop_timer_cancel(&x->linger);
    loop_timer_cancel(&x->gather);
    loop_timer_cancel(&x->timeout);
    for (int i = 0; i < 2; i++)
        pipe_close(&x->out[i], false);
    exec_input_end(x);
    exec_output_end(x);
    output_log_done(&x->log);
    free(x);
}

/* --- start ---------------------------------------------------------------------------------------------------- */

/* Descriptors of the child (stdio) and of the agent (the exec's own). Closed by the caller. */
static int open_terminal(struct exec *x, const struct exec_spec *spec, const struct user *user, int stdio[3],
                         struct err *e)
{
    _cleanup_close_ int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    int unlock = 0;
    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
        return err_errno(e, ERR_UNAVAILABLE, errno, "open a terminal");
    int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        return err_errno(e, ERR_UNAVAILABLE, errno, "open a terminal");
    stdio[0] = stdio[1] = stdio[2] = slave;
    gid_t tty_group;
    struct winsize size = {.ws_row = spec->rows ? spec->rows : 24, .ws_col = spec->cols ? spec->cols : 80};
    ioctl(master, TIOCSWINSZ, &size);
    if (fchown(slave, user->uid, group_find("tty", &tty_group, NULL) == 0 ? tty_group : user->gid) == 0)
        fchmod(slave, 0620);
    x->stdin_fd = fcntl(master, F_DUPFD_CLOEXEC, 3); /* of its own, for events of its own */
    x->out[0].fd = steal_fd(&master);
    return 0;
}

static int open_pipes(struct exec *x, const struct exec_spec *spec, int stdio[3], struct err *e)
{
    int fds[2];
    stdio[0] = x->execs->null_fd;
    for (int i = 0; i < 2; i++) {
        if (pipe2(fds, O_CLOEXEC) < 0)
            return err_errno(e, ERR_UNAVAILABLE, errno, "make a pipe");
        x->out[i].fd = fds[0];
        stdio[1 + i] = fds[1];
        fcntl(fds[0], F_SETFL, O_NONBLOCK);
    }
    if (!spec->want_stdin)
        return 0;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_errno(e, ERR_UNAVAILABLE, errno, "make a pipe");
    stdio[0] = fds[0];
    x->stdin_fd = fds[1];
    fcntl(fds[1], F_SETFL, O_NONBLOCK);
    return 0;
}

static int spawn_exec(struct exec *x, const struct exec_spec *spec, const int stdio[3], const struct user *user,
                      struct err *e)
{
    struct env env;
    char *shell_argv[] = {NULL, (char *)(uintptr_t) "/bin/bash", (char *)(uintptr_t) "-c",
                          (char *)(uintptr_t)spec->shell, NULL};
    if (!spec->argv && access("/bin/bash", X_OK) < 0)
        shell_argv[1] = (char *)(uintptr_t) "/bin/sh";
    env_init(&env, user, spec->tty);
    env_add_all(&env, spec->base_env);
    env_add_all(&env, spec->env);
    struct spawn s = {
        .argv = spec->argv ? spec->argv : shell_argv + 1,
        .envp = env_strings(&env),
        .path = env_get(&env, "PATH"),
        .cwd = spec->cwd ? spec->cwd : user->home,
        .cwd_optional = spec->cwd == NULL,
        .user = user,
        .stdio = {stdio[0], stdio[1], stdio[2]},
        .tty = spec->tty,
    };
    x->started_ms = clock_wall_ms();
    int r = spawn_process(&s, &x->pid, e);
    env_done(&env);
    return r;
}

static int start(struct exec *x, const struct exec_spec *spec, const struct user *user, struct err *e)
{
    int stdio[3] = {-1, -1, -1};
    int r = spec->tty ? open_terminal(x, spec, user, stdio, e) : open_pipes(x, spec, stdio, e);
    if (r >= 0)
        r = spawn_exec(x, spec, stdio, user, e);
    for (int i = 0; i < (spec->tty ? 1 : 3); i++)
        if (stdio[i] >= 0 && stdio[i] != x->execs->null_fd)
            close(stdio[i]);
    return r;
}

int exec_start(struct execs *execs, const char *id, const struct exec_spec *spec, struct exec **ret_exec, struct err *e)
{
    if (exec_find(execs, id))
        return err_set(e, ERR_CONFLICT, "exec %s exists", id);
    if (execs->count >= AGENT_EXECS_MAX) {
        struct exec *old = TAILQ_FIRST(&execs->all);
        while (old && !(exec_finished(old) && old->reader_count == 0))
            old = TAILQ_NEXT(old, entry);
        if (!old)
            return err_set(e, ERR_LIMIT, "%d execs are running", AGENT_EXECS_MAX);
        exec_delete(old);
    }
    struct user user;
    int r = user_find(spec->user, &user, e);
    if (r < 0)
        return r;
    struct exec *x = NEW(struct exec);
    x->execs = execs;
    x->tty = spec->tty;
    x->stdin_fd = -1;
    for (int i = 0; i < 2; i++)
        x->out[i] = (struct exec_pipe){
            .exec = x, .fd = -1, .kind = (uint8_t)(i == 0 ? AGENT_RECORD_STDOUT : AGENT_RECORD_STDERR)};
    TAILQ_INIT(&x->feeds);
    LIST_INIT(&x->readers);
    snprintf(x->id, sizeof(x->id), "%s", id);
    r = start(x, spec, &user, e);
    if (r < 0) {
        for (int i = 0; i < 2; i++)
            cleanup_close(&x->out[i].fd);
        cleanup_close(&x->stdin_fd);
        free(x);
        return r;
    }
    output_log_init(&x->log, &execs->budget, spec->buffer_bytes);
    x->running = true;
    HASH_ADD(by_id, execs->by_id, id, strlen(x->id), x);
    HASH_ADD(by_pid, execs->by_pid, pid, sizeof(x->pid), x);
    TAILQ_INSERT_TAIL(&execs->all, x, entry);
    execs->count++;
    execs->running++;
    for (int i = 0; i < 2; i++)
        if (x->out[i].fd >= 0)
            loop_add(execs->loop, &x->out[i].source, x->out[i].fd, EPOLLIN, pipe_ready);
    if (spec->timeout_ms > 0)
        loop_timer_set(execs->loop, &x->timeout, spec->timeout_ms, timeout_fire);
    *ret_exec = x;
    return 0;
}

void exec_state_put(const struct exec *x, struct buf *b)
{
    wire_put_text(b, AGENT_TAG_STATE_ID, x->id);
    wire_put_u64(b, AGENT_TAG_STATE_RUNNING, !exec_finished(x));
    wire_put_u64(b, AGENT_TAG_STATE_PID, (uint64_t)x->pid);
    wire_put_i64(b, AGENT_TAG_STATE_STARTED_MS, x->started_ms);
    wire_put_u64(b, AGENT_TAG_STATE_OLDEST, x->log.start);
    wire_put_u64(b, AGENT_TAG_STATE_END, x->log.end);
    wire_put_u64(b, AGENT_TAG_STATE_TTY, x->tty);
    if (exec_finished(x))
        wire_put_bytes(b, AGENT_TAG_STATE_EXIT, x->exit, x->exit_len);
}

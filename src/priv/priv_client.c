/* See priv_client.h. Requests that the socket cannot take at once wait in a list with duplicates of their descriptors;
 * requests that wait for their answer are in a table by tag. */
#include "priv/priv_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"

#define START_TIMEOUT_MS 15000
#define PENDING_MAX 65536u
#define PEER_FD 3
#define LOCK_FD 4

struct pending {
    TAILQ_ENTRY(pending) entry;
    uint64_t tag;
    uint32_t type;
    bool queued; /* not sent yet: message and fds are here */
    union {
        priv_spawn_cb spawn;
        priv_done_cb done;
        priv_list_cb list;
    } cb;
    void *arg;
    union priv_message *message;
    int fds[PRIV_FDS_MAX];
    size_t fd_count;
    struct priv_machine *machines; /* LIST: collected so far */
    size_t machine_count;
};
TAILQ_HEAD(pending_list, pending);

struct priv {
    uv_poll_t poll;
    uv_async_t wake; /* to answer from the loop what failed at once, and to free */
    int closing_handles;
    int sock;
    pid_t pid;
    uint64_t next_tag;
    struct pending_list pending; /* oldest first */
    uint32_t pending_count;
    struct priv_info info;
    void (*on_exit)(void *arg, const struct priv_exit *exit);
    void (*on_gone)(void *arg, const struct err *why);
    void *arg;
    bool stopped;
    bool gone;
    struct err why;
};

/* ---- words ---- */

static int failed_to_err(const struct priv_failed *f, struct err *e)
{
    const char *title = jail_stage_title(f->stage);
    int code = f->code < 0 ? f->code : ERR_INTERNAL;
    const char *feature = f->feature ? jail_feature_title(f->feature) : NULL;
    switch (f->stage) {
    case JAIL_STAGE_QEMU_FILE:
    case JAIL_STAGE_DATA_FILES:
    case JAIL_STAGE_LIBRARY_FILES:
    case JAIL_STAGE_JAIL_FILE:
        if (code == ERR_FORBIDDEN)
            return err_set(e, code, "%s: it, or a folder above it, can be changed by somebody else than root", title);
        break;
    case JAIL_STAGE_IDENTITY:
        return err_set(e, code, "%s: gone, or not the process that it was", title);
    case JAIL_STAGE_SLOT_HELD:
        return err_set(e, code, "%s: the machine runs", title);
    case JAIL_STAGE_SLOT_BUSY:
        return err_set(e, code, "%s: something of it is left", title);
    default:
        break;
    }
    if (f->feature) {
        const char *what = feature ? feature : title;
        return f->errnum ? err_errno(e, code, f->errnum, "%s refused", what)
                         : err_set(e, code, "%s not to be had on this host", what);
    }
    return f->errnum ? err_errno(e, code, f->errnum, "%s", title) : err_set(e, code, "%s failed", title);
}

/* ---- pending requests ---- */

static void pending_free(struct pending *q)
{
    for (size_t i = 0; i < q->fd_count; i++)
        close(q->fds[i]);
    free(q->message);
    free(q->machines);
    free(q);
}

static void pending_remove(struct priv *p, struct pending *q)
{
    TAILQ_REMOVE(&p->pending, q, entry);
    p->pending_count--;
}

/* Answer with an error and free. */
static void pending_fail(struct pending *q, const struct err *e)
{
    if (q->type == PRIV_SPAWN || q->type == PRIV_ADOPT)
        q->cb.spawn(q->arg, e->code, NULL, e);
    else if (q->type == PRIV_LIST)
        q->cb.list(q->arg, e->code, NULL, 0, e);
    else
        q->cb.done(q->arg, e->code, e);
    pending_free(q);
}

static void pending_fail_all(struct priv *p, const struct err *e)
{
    struct pending *q;
    while ((q = TAILQ_FIRST(&p->pending))) {
        pending_remove(p, q);
        pending_fail(q, e);
    }
}

static struct pending *pending_find(struct priv *p, uint64_t tag)
{
    struct pending *q;
    TAILQ_FOREACH(q, &p->pending, entry)
    if (q->tag == tag && !q->queued)
        return q;
    return NULL;
}

/* ---- the end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct priv *p = (struct priv *)handle->data;
    if (--p->closing_handles)
        return;
    free(p);
}

static void child_reap(struct priv *p)
{
    /* Its end of the socket is closed: it is about to exit, or has. A parent that reaps all children itself is fine. */
    for (int i = 0; p->pid > 0 && i < 500; i++) {
        pid_t r = waitpid(p->pid, NULL, WNOHANG);
        if (r == p->pid || (r < 0 && errno == ECHILD)) {
            p->pid = 0;
            return;
        }
        poll(NULL, 0, 1);
    }
}

/* space-priv is gone or speaks wrongly: nothing goes on. The socket is closed in the loop. */
static void gone_set(struct priv *p, const struct err *why)
{
    if (p->gone)
        return;
    p->gone = true;
    p->why = *why;
    uv_poll_stop(&p->poll);
    uv_async_send(&p->wake);
}

static void on_wake(uv_async_t *handle)
{
    struct priv *p = (struct priv *)handle->data;
    if (p->stopped) {
        struct err e = {0};
        err_set(&e, ERR_CANCELLED, "the privileged helper was stopped");
        pending_fail_all(p, &e);
        close(p->sock);
        child_reap(p);
        p->closing_handles = 2;
        uv_close((uv_handle_t *)&p->poll, on_closed);
        uv_close((uv_handle_t *)&p->wake, on_closed);
        return;
    }
    if (!p->gone)
        return;
    struct err why = p->why;
    why.code = ERR_UNAVAILABLE;
    pending_fail_all(p, &why);
    if (p->on_gone) {
        void (*on_gone)(void *arg, const struct err *why) = p->on_gone;
        p->on_gone = NULL;
        on_gone(p->arg, &why);
    }
}

void priv_stop(struct priv *p)
{
    p->stopped = true;
    uv_poll_stop(&p->poll);
    if (!p->gone)
        shutdown(p->sock, SHUT_RDWR);
    uv_async_send(&p->wake);
}

const struct priv_info *priv_info(const struct priv *p)
{
    return &p->info;
}

/* ---- answers ---- */

static void answer_spawned(struct pending *q, const struct priv_spawned *m, int *fd)
{
    struct priv_spawn_result result = {
        .machine = m->machine, .pidfd = steal_fd(fd), .features = m->features, .missing = m->missing};
    q->cb.spawn(q->arg, 0, &result, NULL);
}

/* True when the last part has come. */
static bool answer_listed(struct pending *q, const struct priv_listed *m)
{
    size_t count = MIN(m->count, PRIV_LIST_BATCH);
    q->machines = (struct priv_machine *)xrealloc(q->machines, (q->machine_count + count + 1) * sizeof(*q->machines));
    memcpy(q->machines + q->machine_count, m->machines, count * sizeof(*q->machines));
    q->machine_count += count;
    if (m->more && q->machine_count < 4 * (size_t)PRIV_SLOTS_MAX)
        return false;
    q->cb.list(q->arg, 0, q->machines, q->machine_count, NULL);
    return true;
}

static bool answer_fits(uint32_t request, uint32_t answer, size_t fd_count)
{
    if (answer == PRIV_FAILED)
        return fd_count == 0;
    if (request == PRIV_SPAWN || request == PRIV_ADOPT)
        return answer == PRIV_SPAWNED && fd_count == 1;
    return answer == (request == PRIV_LIST ? PRIV_LISTED : PRIV_DONE) && fd_count == 0;
}

/* One message from space-priv; false when it makes no sense. */
static bool message_handle(struct priv *p, const union priv_message *m, size_t len, int *fds, size_t fd_count)
{
    if (len < sizeof(m->header) || m->header.magic != PRIV_MAGIC || len != priv_message_size(m->header.type))
        return false;
    if (m->header.type == PRIV_EXITED) {
        struct priv_exit exited = {.machine = m->exited.machine,
                                   .exit_code = m->exited.exit_code,
                                   .signal = m->exited.signal,
                                   .oom = m->exited.oom != 0};
        p->on_exit(p->arg, &exited);
        return true;
    }
    struct pending *q = pending_find(p, m->header.tag);
    if (!q || !answer_fits(q->type, m->header.type, fd_count))
        return false;
    if (m->header.type == PRIV_LISTED) {
        if (m->listed.more && q->machine_count < 4 * (size_t)PRIV_SLOTS_MAX) {
            answer_listed(q, &m->listed);
            return true;
        }
        pending_remove(p, q);
        answer_listed(q, &m->listed);
        pending_free(q);
        return true;
    }
    pending_remove(p, q);
    if (m->header.type == PRIV_FAILED) {
        struct err e = {0};
        failed_to_err(&m->failed, &e);
        pending_fail(q, &e);
        return true;
    }
    if (m->header.type == PRIV_SPAWNED)
        answer_spawned(q, &m->spawned, &fds[0]);
    else
        q->cb.done(q->arg, 0, NULL);
    pending_free(q);
    return true;
}

static void poll_update(struct priv *p);

static void send_queued(struct priv *p)
{
    struct pending *q;
    TAILQ_FOREACH(q, &p->pending, entry)
    {
        if (!q->queued)
            continue;
        int r = priv_message_send(p->sock, q->message, q->fds, q->fd_count);
        if (r == -EAGAIN)
            return;
        if (r < 0) {
            struct err e = {0};
            err_errno(&e, ERR_UNAVAILABLE, -r, "send to the privileged helper");
            gone_set(p, &e);
            return;
        }
        q->queued = false;
        for (size_t i = 0; i < q->fd_count; i++)
            close(q->fds[i]);
        q->fd_count = 0;
        free(steal(q->message));
    }
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct priv *p = (struct priv *)handle->data;
    (void)status;
    if (events & UV_WRITABLE)
        send_queued(p);
    /* A bounded number at a time: others on the loop have their turn. */
    for (int i = 0; i < 64 && !p->gone && !p->stopped; i++) {
        union priv_message m;
        int fds[PRIV_FDS_MAX];
        size_t fd_count = 0;
        ssize_t len = priv_message_receive(p->sock, &m, fds, &fd_count);
        if (len == -EAGAIN)
            break;
        if (len == -ECONNRESET) /* it went without reading all requests; its last answers are still to be read */
            continue;
        struct err e = {0};
        if (len == 0)
            err_set(&e, ERR_UNAVAILABLE, "the privileged helper has ended");
        else if (len < 0)
            err_errno(&e, ERR_UNAVAILABLE, (int)-len, "receive from the privileged helper");
        else if (!message_handle(p, &m, (size_t)len, fds, fd_count))
            err_set(&e, ERR_UNAVAILABLE, "the privileged helper answered with nonsense");
        for (size_t k = 0; len > 0 && k < fd_count; k++)
            if (fds[k] >= 0)
                close(fds[k]);
        if (e.code)
            gone_set(p, &e);
    }
    if (!p->gone && !p->stopped)
        poll_update(p);
}

static void poll_update(struct priv *p)
{
    struct pending *q;
    int events = UV_READABLE;
    TAILQ_FOREACH(q, &p->pending, entry)
    if (q->queued)
        events |= UV_WRITABLE;
    uv_poll_start(&p->poll, events, on_poll);
}

/* ---- requests ---- */

static struct pending *request_new(struct priv *p, uint32_t type, void *arg)
{
    struct pending *q = NEW(struct pending);
    q->tag = ++p->next_tag;
    q->type = type;
    q->arg = arg;
    q->queued = true;
    return q;
}

/* Send, or keep for later. A request that cannot be sent at all is answered from the loop when the helper is gone. */
static void request_send(struct priv *p, struct pending *q, union priv_message *m, const int *fds, size_t fd_count)
{
    m->header = (struct priv_header){.magic = PRIV_MAGIC, .type = q->type, .tag = q->tag};
    bool first = true;
    struct pending *other;
    TAILQ_FOREACH(other, &p->pending, entry)
    first &= !other->queued;
    TAILQ_INSERT_TAIL(&p->pending, q, entry);
    p->pending_count++;
    if (p->gone || p->stopped) {
        uv_async_send(&p->wake);
        return;
    }
    int r = first ? priv_message_send(p->sock, m, fds, fd_count) : -EAGAIN;
    if (r == 0) {
        q->queued = false;
        return;
    }
    struct err e = {0};
    if (r != -EAGAIN) {
        err_errno(&e, ERR_UNAVAILABLE, -r, "send to the privileged helper");
        gone_set(p, &e);
        return;
    }
    q->message = NEW(union priv_message);
    *q->message = *m;
    for (; q->fd_count < fd_count; q->fd_count++) {
        int fd = fcntl(fds[q->fd_count], F_DUPFD_CLOEXEC, 3);
        if (fd < 0) {
            err_errno(&e, ERR_UNAVAILABLE, errno, "keep a descriptor for the privileged helper");
            gone_set(p, &e);
            return;
        }
        q->fds[q->fd_count] = fd;
    }
    poll_update(p);
}

void priv_spawn(struct priv *p, const struct priv_spawn *spec, priv_spawn_cb cb, void *arg)
{
    union priv_message m = {.spawn = {.slot = spec->slot,
                                      .accel = spec->accel,
                                      .mode = spec->mode,
                                      .vcpus = spec->vcpus,
                                      .mem_mib = spec->mem_mib,
                                      .tb_size_mib = spec->tb_size_mib,
                                      .tsc_khz = spec->tsc_khz,
                                      .disk_bytes = spec->disk_bytes}};
    const int fds[PRIV_FDS_MAX] = {spec->qmp_fd,    spec->agent_fd,  spec->egress_fd, spec->console_fd,
                                   spec->memory_fd, spec->kernel_fd, spec->initrd_fd};
    struct pending *q = request_new(p, PRIV_SPAWN, arg);
    q->cb.spawn = cb;
    request_send(p, q, &m, fds, spec->mode == PRIV_MODE_BOOT ? PRIV_SPAWN_FDS_BOOT : PRIV_SPAWN_FDS_RESTORE);
}

void priv_adopt(struct priv *p, const struct priv_machine *machine, priv_spawn_cb cb, void *arg)
{
    union priv_message m = {.machine = {.machine = *machine}};
    struct pending *q = request_new(p, PRIV_ADOPT, arg);
    q->cb.spawn = cb;
    request_send(p, q, &m, NULL, 0);
}

void priv_list(struct priv *p, priv_list_cb cb, void *arg)
{
    union priv_message m = {0};
    struct pending *q = request_new(p, PRIV_LIST, arg);
    q->cb.list = cb;
    request_send(p, q, &m, NULL, 0);
}

static void request_done(struct priv *p, uint32_t type, union priv_message *m, priv_done_cb cb, void *arg)
{
    struct pending *q = request_new(p, type, arg);
    q->cb.done = cb;
    request_send(p, q, m, NULL, 0);
}

void priv_kill(struct priv *p, const struct priv_machine *machine, priv_done_cb cb, void *arg)
{
    request_done(p, PRIV_KILL, &(union priv_message){.machine = {.machine = *machine}}, cb, arg);
}

void priv_kill_stray(struct priv *p, uint32_t slot, priv_done_cb cb, void *arg)
{
    request_done(p, PRIV_KILL_STRAY, &(union priv_message){.slot = {.slot = slot}}, cb, arg);
}

void priv_clean(struct priv *p, uint32_t slot, priv_done_cb cb, void *arg)
{
    request_done(p, PRIV_CLEAN, &(union priv_message){.slot = {.slot = slot}}, cb, arg);
}

void priv_set_limit(struct priv *p, uint32_t slot, uint32_t cpu_percent, priv_done_cb cb, void *arg)
{
    request_done(p, PRIV_SET_LIMIT, &(union priv_message){.slot = {.slot = slot, .cpu_percent = cpu_percent}}, cb, arg);
}

/* ---- start ---- */

#define ARGS_MAX 28

/* In the new process: nothing of the parent but two descriptors, no environment, no terminal, no blocked signal. */
static void child_run(const struct priv_config *c, char **argv, int sock, int lock) __attribute__((noreturn));
static void child_run(const struct priv_config *c, char **argv, int sock, int lock)
{
    int fd = fcntl(sock, F_DUPFD, 16), lock_copy = lock >= 0 ? fcntl(lock, F_DUPFD, 16) : -1;
    if (fd < 0 || dup2(fd, PEER_FD) < 0 || (lock >= 0 && dup2(lock_copy, LOCK_FD) < 0))
        _exit(PRIV_EXIT_SYSTEM);
    close_range(lock >= 0 ? LOCK_FD + 1 : PEER_FD + 1, ~0U, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    char *envp[] = {NULL};
    execve(c->priv_path, argv, envp);
    _exit(127);
}

static int hello(const struct priv_config *c, int sock, struct priv_info *ret_info, struct err *e)
{
    union priv_message m = {.hello = {.header = {.magic = PRIV_MAGIC, .type = PRIV_HELLO, .tag = 1},
                                      .version = PRIV_VERSION,
                                      .uid_base = c->uid_base,
                                      .slots = c->slots,
                                      .allow_missing = c->allow_missing & JAIL_FEATURES_OPTIONAL,
                                      .overhead_mib = c->overhead_mib,
                                      .cpu_percent = c->cpu_percent,
                                      .pids_max = c->pids_max}};
    if (!priv_request_valid(&m, sizeof(m.hello), 0))
        return err_set(e, ERR_INVALID, "start the privileged helper: a number of its configuration is out of range");
    int r = priv_message_send(sock, &m, NULL, 0);
    if (r < 0)
        return err_errno(e, ERR_SYSTEM, -r, "greet the privileged helper");
    struct pollfd wait = {.fd = sock, .events = POLLIN};
    while ((r = poll(&wait, 1, START_TIMEOUT_MS)) < 0 && errno == EINTR)
        ;
    if (r <= 0)
        return err_set(e, ERR_TIMEOUT, "start the privileged helper: no answer");
    int fds[PRIV_FDS_MAX];
    size_t fd_count = 0;
    ssize_t len = priv_message_receive(sock, &m, fds, &fd_count);
    for (size_t i = 0; len > 0 && i < fd_count; i++)
        close(fds[i]);
    if (len == 0 || len == -ECONNRESET)
        return err_set(e, ERR_SYSTEM, "start the privileged helper: %s ended at once", c->priv_path);
    if (len < (ssize_t)sizeof(m.header) || m.header.magic != PRIV_MAGIC ||
        (size_t)len != priv_message_size(m.header.type))
        return err_set(e, ERR_SYSTEM, "start the privileged helper: %s is of another build", c->priv_path);
    if (m.header.type == PRIV_FAILED) {
        failed_to_err(&m.failed, e);
        return err_prefix(e, "start the privileged helper");
    }
    *ret_info = (struct priv_info){.root = m.ready.root != 0,
                                   .features = m.ready.features,
                                   .missing = m.ready.missing,
                                   .cgroup_version = (int)m.ready.cgroup_version};
    return 0;
}

/* argv of space-priv; `data` holds the pieces of data_path, `numbers` those of the lock's range. */
static int arguments_make(const struct priv_config *c, char *data, char numbers[2][16], char *argv[ARGS_MAX],
                          struct err *e)
{
    size_t n = 0;
    argv[n++] = (char *)"space-priv";
    argv[n++] = (char *)"--fd";
    argv[n++] = (char *)"3";
    argv[n++] = (char *)"--qemu";
    argv[n++] = (char *)c->qemu_path;
    argv[n++] = (char *)"--jail";
    argv[n++] = (char *)c->jail_path;
    if (c->lock_path) {
        snprintf(numbers[0], 16, "%u", c->uid_base);
        snprintf(numbers[1], 16, "%u", c->slots + 1); /* uid_base itself is the service's */
        argv[n++] = (char *)"--lock";
        argv[n++] = (char *)"4";
        argv[n++] = (char *)"--lock-first";
        argv[n++] = numbers[0];
        argv[n++] = (char *)"--lock-count";
        argv[n++] = numbers[1];
    }
    for (char *folder = strsep(&data, ":"); folder; folder = strsep(&data, ":")) {
        if (n + 3 > ARGS_MAX)
            return err_set(e, ERR_INVALID, "start the privileged helper: too many firmware folders");
        argv[n++] = (char *)"--data";
        argv[n++] = folder;
    }
    argv[n] = NULL;
    return 0;
}

static int process_start(const struct priv_config *c, int *ret_sock, pid_t *ret_pid, struct err *e)
{
    _cleanup_free_ char *data = xstrdup(c->data_path);
    char *argv[ARGS_MAX];
    char numbers[2][16];
    int r = arguments_make(c, data, numbers, argv, e);
    if (r < 0)
        return r;
    _cleanup_close_ int lock = -1;
    if (c->lock_path && (lock = open(c->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "open the lock %s", c->lock_path);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make a socket for the privileged helper");
    _cleanup_close_ int ours = pair[0], theirs = pair[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(e, ERR_SYSTEM, errno, "start the privileged helper");
    if (pid == 0)
        child_run(c, argv, theirs, lock);
    *ret_pid = pid;
    *ret_sock = steal_fd(&ours);
    return 0;
}

int priv_start(uv_loop_t *loop, const struct priv_config *config, struct priv **ret, struct err *e)
{
    struct priv *p = NEW(struct priv);
    *p = (struct priv){
        .sock = -1, .next_tag = 1, .on_exit = config->on_exit, .on_gone = config->on_gone, .arg = config->arg};
    TAILQ_INIT(&p->pending);
    int r = process_start(config, &p->sock, &p->pid, e);
    r = r < 0 ? r : hello(config, p->sock, &p->info, e);
    if (r < 0) {
        if (p->sock >= 0)
            close(p->sock);
        child_reap(p);
        free(p);
        return r;
    }
    fcntl(p->sock, F_SETFL, O_NONBLOCK);
    p->poll.data = p->wake.data = p;
    r = uv_poll_init(loop, &p->poll, p->sock);
    r = r ?: uv_async_init(loop, &p->wake, on_wake);
    if (r < 0) {
        close(p->sock);
        child_reap(p);
        free(p); /* neither handle is active; a loop that cannot take them cannot go on */
        return err_errno(e, ERR_SYSTEM, -r, "watch the privileged helper");
    }
    poll_update(p);
    *ret = p;
    return 0;
}

/* Theory of operation. A slot is
 *
 *   FREE ──SPAWN──► STARTING ──BUILT, then end of file──► RUNNING ──process gone──► ENDING ──cgroup removed──► FREE
 *     │                └───────FAILED or process gone─────────────────────────────────▲
 *     └───ADOPT──────────────────────────────────────────► RUNNING
 *
 * STARTING ends with SPAWNED or FAILED (after the clean-up), RUNNING with EXITED (after the clean-up): when the peer
 * hears of it the slot is free. The peer knows the states too, so a SPAWN or ADOPT into a slot that is not free is no
 * mistake of timing: it ends the peer. A process is waited for and killed by its pidfd, never by number.
 *
 * What is not allowed to happen here: reading what a machine or the peer wrote other than fixed structs, waiting for
 * the peer, killing a process that is not known by start time or by the slot's own uid and cgroup. */
#include "priv/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "priv/process.h"
#include "priv/strays.h"

#define START_TIMEOUT_MS 10000
#define ENDING_RETRY_MS 2
#define DRAIN_TIMEOUT_MS 3000

enum slot_state { SLOT_FREE, SLOT_STARTING, SLOT_RUNNING, SLOT_ENDING };

struct slot {
    enum slot_state state;
    struct launch run;
    uint64_t tag;         /* STARTING: of the request */
    uint64_t deadline_ms; /* STARTING */
    bool adopted;         /* not our child: its exit status is not ours to know */
    bool killed;          /* by request: its end is near */
    bool built;
    bool failed; /* STARTING that did not work: ENDING answers with `fault` */
    struct fault fault;
    uint32_t features;
    uint32_t missing;
    struct priv_exited exited;
};

struct server {
    int sock;
    int epoll;
    bool greeted;
    uint32_t busy; /* slots in STARTING or ENDING: these have deadlines */
    struct launcher launcher;
    struct slot *slots;
};

enum event_kind { EVENT_PEER, EVENT_STATUS, EVENT_PROCESS };

static uint64_t event_data(enum event_kind kind, uint32_t slot)
{
    return (uint64_t)kind << 32 | slot;
}

/* ---- answers ---- */

static void answer(const struct server *s, union priv_message *m, uint32_t type, uint64_t tag, int fd)
{
    m->header = (struct priv_header){.magic = PRIV_MAGIC, .type = type, .tag = tag};
    /* A peer that is gone is noticed at the next receive. */
    (void)priv_message_send(s->sock, m, &fd, fd >= 0);
}

static void answer_done(const struct server *s, uint64_t tag)
{
    union priv_message m = {0};
    answer(s, &m, PRIV_DONE, tag, -1);
}

static void answer_failed(const struct server *s, uint64_t tag, const struct fault *f)
{
    union priv_message m = {.failed = {.code = f->code, .errnum = f->errnum, .stage = f->stage, .feature = f->feature}};
    answer(s, &m, PRIV_FAILED, tag, -1);
}

static void answer_spawned(const struct server *s, uint64_t tag, uint32_t slot)
{
    const struct slot *t = &s->slots[slot];
    union priv_message m = {.spawned = {.machine = {.slot = slot, .pid = t->run.pid, .start_time = t->run.start_time},
                                        .features = t->features,
                                        .missing = t->missing}};
    answer(s, &m, PRIV_SPAWNED, tag, t->run.pidfd);
}

/* ---- the life of a slot ---- */

static bool watch(const struct server *s, int fd, enum event_kind kind, uint32_t slot)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = event_data(kind, slot)};
    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void fd_drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Remove what is left of a machine whose process is gone, and tell. Called again until the cgroup is empty. */
static void slot_finish(struct server *s, uint32_t slot)
{
    struct slot *t = &s->slots[slot];
    int r = cgroup_remove(&s->launcher.cgroups, &t->run.cgroup);
    if (r == -EBUSY) {
        /* The first process of a pid namespace takes the others with it: they are on their way out. Without such a
         * namespace they have to be sent. */
        cgroup_kill(&s->launcher.cgroups, &t->run.cgroup);
        return;
    }
    fd_drop(&t->run.pidfd);
    if (t->failed) {
        answer_failed(s, t->tag, &t->fault);
    } else {
        union priv_message m = {.exited = t->exited};
        answer(s, &m, PRIV_EXITED, 0, -1);
    }
    *t = (struct slot){0};
    s->busy--;
}

static void slot_fail(struct slot *t, const struct fault *f)
{
    if (!t->failed)
        t->fault = *f;
    t->failed = true;
}

/* The process has ended. */
static void slot_ended(struct server *s, uint32_t slot)
{
    struct slot *t = &s->slots[slot];
    /* An event of this round may be of a process that the slot held before. */
    struct pollfd over = {.fd = t->run.pidfd, .events = POLLIN};
    if ((t->state != SLOT_STARTING && t->state != SLOT_RUNNING) || poll(&over, 1, 0) != 1)
        return;
    siginfo_t info = {0};
    t->exited = (struct priv_exited){.machine = {.slot = slot, .pid = t->run.pid, .start_time = t->run.start_time},
                                     .exit_code = -1};
    if (!t->adopted && waitid(P_PID, (id_t)t->run.pid, &info, WEXITED | WNOHANG) == 0) {
        if (info.si_code == CLD_EXITED)
            t->exited.exit_code = info.si_status;
        else
            t->exited.signal = info.si_status;
    }
    t->exited.oom = cgroup_oom(&s->launcher.cgroups, &t->run.cgroup);
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, t->run.pidfd, NULL);
    fd_drop(&t->run.status_fd);
    if (t->state == SLOT_STARTING)
        slot_fail(t, &(struct fault){.code = ERR_SYSTEM, .stage = JAIL_STAGE_JAIL_FILE});
    else
        s->busy++;
    t->state = SLOT_ENDING;
    slot_finish(s, slot);
}

/* space-jail says something, or QEMU has been executed (end of file after BUILT). */
static void slot_status(struct server *s, uint32_t slot)
{
    struct slot *t = &s->slots[slot];
    if (t->state != SLOT_STARTING || t->run.status_fd < 0)
        return;
    for (;;) {
        struct jail_status status;
        ssize_t n = read(t->run.status_fd, &status, sizeof(status));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n == 0)
            break;
        if (n != sizeof(status) || status.magic != JAIL_STATUS_MAGIC) {
            slot_fail(t, &(struct fault){.code = ERR_SYSTEM, .stage = JAIL_STAGE_JAIL_FILE, .errnum = EPROTO});
            break;
        }
        if (status.kind == JAIL_STATUS_FAILED) {
            slot_fail(t, &(struct fault){.code = status.feature ? ERR_UNSUPPORTED : ERR_SYSTEM,
                                         .errnum = status.errnum,
                                         .stage = status.stage,
                                         .feature = status.feature});
        } else {
            t->built = true;
            t->features = status.features;
            t->missing = (status.missing | s->launcher.missing) & s->launcher.features;
        }
    }
    fd_drop(&t->run.status_fd);
    if (t->built && !t->failed) {
        /* Killed just before the exec looks the same here: the process is waited for in any case, and EXITED follows.
         */
        t->state = SLOT_RUNNING;
        s->busy--;
        answer_spawned(s, t->tag, slot);
    }
    /* Else its end is near, and answers. */
}

/* Deadlines and retries of the slots that are between states. */
static void slots_tick(struct server *s)
{
    uint64_t now = clock_mono_ms();
    for (uint32_t i = 0; s->busy && i < s->launcher.slots; i++) {
        struct slot *t = &s->slots[i];
        if (t->state == SLOT_ENDING) {
            slot_finish(s, i);
        } else if (t->state == SLOT_STARTING && now >= t->deadline_ms) {
            slot_fail(t, &(struct fault){.code = ERR_TIMEOUT, .stage = JAIL_STAGE_JAIL_FILE, .errnum = ETIMEDOUT});
            syscall(SYS_pidfd_send_signal, t->run.pidfd, SIGKILL, NULL, 0);
            t->deadline_ms = UINT64_MAX;
        }
    }
}

static int wait_ms(const struct server *s)
{
    if (!s->busy)
        return -1;
    for (uint32_t i = 0; i < s->launcher.slots; i++)
        if (s->slots[i].state == SLOT_ENDING)
            return ENDING_RETRY_MS;
    return 1000;
}

/* ---- requests; false: no correct peer sends this ---- */

static bool listening_socket(int fd)
{
    int domain, type, listening;
    socklen_t size = sizeof(int);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening == 1;
}

static bool console_good(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return false;
    int flags = fcntl(fd, F_GETFL);
    return (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode)) && flags >= 0 && (flags & O_ACCMODE) == O_WRONLY &&
           !(flags & O_PATH);
}

/* A memfd of the right size. A template's memory is shared by all its machines: none may be able to write to it,
 * whatever QEMU opens it for. */
static bool memory_good(int fd, const struct priv_spawn_request *m)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != m->mem_mib * MIB)
        return false;
    const int sealed = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    return m->mode == PRIV_MODE_RESTORE ? (seals & sealed) == sealed : !(seals & F_SEAL_WRITE);
}

static bool readable_by_all(int fd)
{
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0444) == 0444 && flags >= 0 &&
           (flags & O_ACCMODE) != O_WRONLY && !(flags & O_PATH);
}

static bool spawn_fds_good(const struct priv_spawn_request *m, const int *fds)
{
    return listening_socket(fds[QEMU_FD_QMP - QEMU_FD_QMP]) && listening_socket(fds[QEMU_FD_AGENT - QEMU_FD_QMP]) &&
           listening_socket(fds[QEMU_FD_EGRESS - QEMU_FD_QMP]) && console_good(fds[QEMU_FD_CONSOLE - QEMU_FD_QMP]) &&
           memory_good(fds[QEMU_FD_MEMORY - QEMU_FD_QMP], m) &&
           (m->mode == PRIV_MODE_RESTORE ||
            (readable_by_all(fds[QEMU_FD_KERNEL - QEMU_FD_QMP]) && readable_by_all(fds[QEMU_FD_INITRD - QEMU_FD_QMP])));
}

static bool on_spawn(struct server *s, const struct priv_spawn_request *m, const int *fds, size_t fd_count)
{
    struct slot *t = &s->slots[m->slot];
    if (t->state != SLOT_FREE || !spawn_fds_good(m, fds))
        return false;
    struct fault f = {0};
    struct launch run;
    if (launcher_start(&s->launcher, m, fds, fd_count, &run, &f) < 0) {
        answer_failed(s, m->header.tag, &f);
        return true;
    }
    *t = (struct slot){
        .state = SLOT_STARTING, .run = run, .tag = m->header.tag, .deadline_ms = clock_mono_ms() + START_TIMEOUT_MS};
    s->busy++;
    if (!watch(s, run.status_fd, EVENT_STATUS, m->slot) || !watch(s, run.pidfd, EVENT_PROCESS, m->slot)) {
        slot_fail(t, &(struct fault){.code = ERR_SYSTEM, .stage = JAIL_STAGE_FORK, .errnum = errno});
        syscall(SYS_pidfd_send_signal, run.pidfd, SIGKILL, NULL, 0);
    }
    return true;
}

static bool on_kill(struct server *s, const struct priv_machine_request *m)
{
    struct slot *t = &s->slots[m->machine.slot];
    /* Another or no process there: the one that is meant has ended, and that was told. */
    if (t->state == SLOT_RUNNING && t->run.pid == m->machine.pid && t->run.start_time == m->machine.start_time) {
        if (syscall(SYS_pidfd_send_signal, t->run.pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH) {
            answer_failed(s, m->header.tag,
                          &(struct fault){.code = ERR_SYSTEM, .stage = JAIL_STAGE_SIGNAL, .errnum = errno});
            return true;
        }
        t->killed = true;
    }
    answer_done(s, m->header.tag);
    return true;
}

/* Is this process the machine of this slot? Asked after its pidfd was opened: the number cannot change its owner since.
 */
static bool machine_is(const struct server *s, const struct priv_machine *m)
{
    const struct launcher *l = &s->launcher;
    uint64_t start;
    uid_t uid;
    if (!process_start_time(m->pid, &start) || start != m->start_time || !process_real_uid(m->pid, &uid) ||
        !process_runs(m->pid, &l->qemu_file))
        return false;
    if (l->root)
        return uid == launcher_slot_uid(l, m->slot);
    uint32_t slot;
    return uid == l->own_uid && process_named_slot(m->pid, l->uid_base, &slot) && slot == m->slot;
}

static bool on_adopt(struct server *s, const struct priv_machine_request *m)
{
    struct slot *t = &s->slots[m->machine.slot];
    if (t->state != SLOT_FREE)
        return false;
    _cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, m->machine.pid, 0);
    if (pidfd < 0 || !machine_is(s, &m->machine) || !watch(s, pidfd, EVENT_PROCESS, m->machine.slot)) {
        answer_failed(s, m->header.tag, &(struct fault){.code = ERR_NOT_FOUND, .stage = JAIL_STAGE_IDENTITY});
        return true;
    }
    *t = (struct slot){
        .state = SLOT_RUNNING,
        .run = {.pid = m->machine.pid, .pidfd = steal_fd(&pidfd), .status_fd = -1, .start_time = m->machine.start_time},
        .adopted = true};
    launcher_slot_cgroup(&s->launcher, m->machine.slot, m->machine.pid, &t->run.cgroup);
    answer_spawned(s, m->header.tag, m->machine.slot);
    return true;
}

/* ---- what is there, known or not ---- */

static bool on_list(const struct server *s, const struct priv_slot_request *m)
{
    size_t max = 4 * (size_t)s->launcher.slots, sent = 0;
    _cleanup_free_ struct priv_machine *found = (struct priv_machine *)xcalloc(max, sizeof(*found));
    size_t count = strays_find(&s->launcher, -1, found, max);
    do {
        union priv_message a = {0};
        size_t n = MIN(count - sent, (size_t)PRIV_LIST_BATCH);
        if (n)
            memcpy(a.listed.machines, found + sent, n * sizeof(*found));
        sent += n;
        a.listed.count = (uint32_t)n;
        a.listed.more = sent < count;
        answer(s, &a, PRIV_LISTED, m->header.tag, -1);
    } while (sent < count);
    return true;
}

static bool on_clean(const struct server *s, const struct priv_slot_request *m, bool with_cgroup)
{
    const struct launcher *l = &s->launcher;
    if (s->slots[m->slot].state != SLOT_FREE) {
        answer_failed(s, m->header.tag, &(struct fault){.code = ERR_CONFLICT, .stage = JAIL_STAGE_SLOT_HELD});
        return true;
    }
    if (!strays_end(l, m->slot)) {
        answer_failed(s, m->header.tag,
                      &(struct fault){.code = ERR_TIMEOUT, .stage = JAIL_STAGE_SIGNAL, .errnum = ETIMEDOUT});
        return true;
    }
    int r = 0;
    struct cgroup g;
    launcher_slot_cgroup(l, m->slot, 0, &g);
    for (int i = 0; with_cgroup && i < 200 && (r = cgroup_remove(&l->cgroups, &g)) == -EBUSY; i++)
        poll(NULL, 0, 5);
    if (r < 0)
        answer_failed(s, m->header.tag, &(struct fault){.code = ERR_SYSTEM, .stage = JAIL_STAGE_CGROUP, .errnum = -r});
    else
        answer_done(s, m->header.tag);
    return true;
}

static bool on_set_limit(const struct server *s, const struct priv_slot_request *m)
{
    const struct slot *t = &s->slots[m->slot];
    struct fault f = {.code = ERR_NOT_FOUND, .stage = JAIL_STAGE_LIMIT};
    if (t->state == SLOT_RUNNING) {
        int r = cgroup_cpu_set(&s->launcher.cgroups, &t->run.cgroup, m->cpu_percent);
        if (r == 0) {
            answer_done(s, m->header.tag);
            return true;
        }
        f = (struct fault){.code = r == -ENOTSUP ? ERR_UNSUPPORTED : ERR_SYSTEM,
                           .stage = JAIL_STAGE_LIMIT,
                           .feature = JAIL_CGROUP_CPU,
                           .errnum = -r};
    }
    answer_failed(s, m->header.tag, &f);
    return true;
}

/* The first message. A host that cannot do what is asked answers FAILED and ends: *ret_status is not -1 then. */
static bool on_hello(struct server *s, const struct priv_hello *m, int *ret_status)
{
    struct fault f = {0};
    union priv_message a = {0};
    if (launcher_prepare(&s->launcher, m, &f) < 0 ||
        launcher_probe(&s->launcher, &a.ready.features, &a.ready.missing, &f) < 0) {
        answer_failed(s, m->header.tag, &f);
        *ret_status = PRIV_EXIT_START;
        return true;
    }
    s->launcher.empty_root = a.ready.features & JAIL_EMPTY_ROOT;
    s->slots = (struct slot *)xcalloc(m->slots, sizeof(*s->slots));
    s->greeted = true;
    a.ready.root = s->launcher.root;
    a.ready.cgroup_version = (uint32_t)s->launcher.cgroups.version;
    answer(s, &a, PRIV_READY, m->header.tag, -1);
    return true;
}

static bool slot_in_range(const struct server *s, const union priv_message *m)
{
    switch (m->header.type) {
    case PRIV_SPAWN:
        return m->spawn.slot < s->launcher.slots;
    case PRIV_KILL:
    case PRIV_ADOPT:
        return m->machine.machine.slot < s->launcher.slots;
    case PRIV_KILL_STRAY:
    case PRIV_CLEAN:
    case PRIV_SET_LIMIT:
        return m->slot.slot < s->launcher.slots;
    default:
        return true;
    }
}

static bool request_handle(struct server *s, const union priv_message *m, const int *fds, size_t fd_count,
                           int *ret_status)
{
    if ((m->header.type == PRIV_HELLO) == s->greeted || !slot_in_range(s, m))
        return false;
    switch (m->header.type) {
    case PRIV_HELLO:
        return on_hello(s, &m->hello, ret_status);
    case PRIV_SPAWN:
        return on_spawn(s, &m->spawn, fds, fd_count);
    case PRIV_KILL:
        return on_kill(s, &m->machine);
    case PRIV_ADOPT:
        return on_adopt(s, &m->machine);
    case PRIV_LIST:
        return on_list(s, &m->slot);
    case PRIV_KILL_STRAY:
        return on_clean(s, &m->slot, false);
    case PRIV_CLEAN:
        return on_clean(s, &m->slot, true);
    case PRIV_SET_LIMIT:
        return on_set_limit(s, &m->slot);
    default:
        return false;
    }
}

/* One message. Returns -1 to go on, else the exit status. */
static int peer_serve(struct server *s)
{
    union priv_message m;
    int fds[PRIV_FDS_MAX];
    size_t fd_count = 0;
    ssize_t len = priv_message_receive(s->sock, &m, fds, &fd_count);
    if (len == 0)
        return PRIV_EXIT_PEER_GONE;
    /* A reset says that the peer went without reading all answers; what it sent before is still to be read. */
    if (len == -EAGAIN || len == -ECONNRESET)
        return -1;
    if (len < 0)
        return len == -EBADMSG ? PRIV_EXIT_PROTOCOL : PRIV_EXIT_SYSTEM;
    int status = -1;
    bool good = priv_request_valid(&m, (size_t)len, fd_count) && request_handle(s, &m, fds, fd_count, &status);
    for (size_t i = 0; i < fd_count; i++)
        close(fds[i]);
    return good ? status : PRIV_EXIT_PROTOCOL;
}

/* One round of the loop. Returns -1 to go on, else the exit status. */
static int round_run(struct server *s, int timeout_ms)
{
    struct epoll_event events[64];
    int n = epoll_wait(s->epoll, events, ARRAY_LEN(events), timeout_ms);
    if (n < 0 && errno != EINTR)
        return PRIV_EXIT_SYSTEM;
    for (int i = 0; i < n; i++) {
        uint32_t slot = (uint32_t)events[i].data.u64;
        switch ((enum event_kind)(events[i].data.u64 >> 32)) {
        case EVENT_STATUS:
            slot_status(s, slot);
            break;
        case EVENT_PROCESS:
            /* What it said before it ended counts. */
            slot_status(s, slot);
            slot_ended(s, slot);
            break;
        case EVENT_PEER: {
            int status = peer_serve(s);
            if (status >= 0)
                return status;
            break;
        }
        }
    }
    slots_tick(s);
    return -1;
}

/* Is a machine on its way out: killed by request, or ended and not yet cleared away? */
static bool ending(const struct server *s)
{
    for (uint32_t i = 0; s->slots && i < s->launcher.slots; i++)
        if (s->slots[i].state == SLOT_ENDING || (s->slots[i].state == SLOT_RUNNING && s->slots[i].killed))
            return true;
    return false;
}

int server_run(int sock, const struct launch_paths *paths)
{
    static struct server s;
    s = (struct server){.sock = sock, .launcher.paths = *paths};
    s.epoll = epoll_create1(EPOLL_CLOEXEC);
    int status = s.epoll < 0 || !watch(&s, sock, EVENT_PEER, 0) ? PRIV_EXIT_SYSTEM : -1;
    while (status < 0)
        status = round_run(&s, wait_ms(&s));
    /* The peer does not wait for the machines that it killed last; their cgroups are removed all the same. */
    epoll_ctl(s.epoll, EPOLL_CTL_DEL, sock, NULL);
    shutdown(sock, SHUT_RDWR);
    uint64_t deadline = clock_mono_ms() + DRAIN_TIMEOUT_MS;
    while (ending(&s) && clock_mono_ms() < deadline && round_run(&s, ENDING_RETRY_MS) < 0)
        ;
    cgroups_close(&s.launcher.cgroups);
    free(s.slots);
    return status;
}

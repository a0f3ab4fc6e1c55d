/* See strays.h. This looks through all of /proc: for a start and for a clean-up, never for each machine. */
#include "priv/strays.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "priv/process.h"

#define STRAY_TIMEOUT_MS 5000
#define STRAYS_MAX 256

struct search {
    const struct launcher *launcher;
    int64_t only_slot; /* -1: all */
    size_t count;
    size_t max;
    struct priv_machine *found;
};

static void search_add(struct search *q, uint32_t slot, pid_t pid)
{
    for (size_t i = 0; i < q->count; i++)
        if (q->found[i].slot == slot && (q->found[i].pid == pid || pid == 0))
            return;
    struct priv_machine m = {.slot = slot, .pid = pid};
    if (q->count >= q->max || (pid && !process_start_time(pid, &m.start_time)))
        return;
    q->found[q->count++] = m;
}

static void search_process(void *arg, pid_t pid)
{
    struct search *q = (struct search *)arg;
    const struct launcher *l = q->launcher;
    uid_t uid;
    uint32_t slot;
    if (!process_real_uid(pid, &uid))
        return;
    if (l->root) {
        if (uid <= l->uid_base || uid > l->uid_base + l->slots)
            return;
        slot = uid - l->uid_base - 1;
    } else if (uid != l->own_uid || !process_runs(pid, &l->qemu_file) || !process_named_slot(pid, l->uid_base, &slot) ||
               slot >= l->slots) {
        return;
    }
    if (q->only_slot < 0 || q->only_slot == slot)
        search_add(q, slot, pid);
}

static void search_cgroup(void *arg, const char *name)
{
    struct search *q = (struct search *)arg;
    const struct launcher *l = q->launcher;
    char *end;
    unsigned long uid = strtoul(name, &end, 10);
    if (*end || uid <= l->uid_base || uid > (unsigned long)l->uid_base + l->slots)
        return;
    uint32_t slot = (uint32_t)uid - l->uid_base - 1;
    if (q->only_slot >= 0 && q->only_slot != slot)
        return;
    struct cgroup g;
    launcher_slot_cgroup(l, slot, 0, &g);
    pid_t pids[64];
    size_t count = cgroup_pids(&l->cgroups, &g, pids, ARRAY_LEN(pids));
    for (size_t i = 0; i < count; i++)
        search_add(q, slot, pids[i]);
    search_add(q, slot, 0);
}

size_t strays_find(const struct launcher *l, int64_t only_slot, struct priv_machine *ret_found, size_t max)
{
    struct search q = {.launcher = l, .only_slot = only_slot, .max = max, .found = ret_found};
    process_each(search_process, &q);
    cgroups_each(&l->cgroups, search_cgroup, &q);
    return q.count;
}

bool strays_end(const struct launcher *l, uint32_t slot)
{
    static struct priv_machine found[STRAYS_MAX];
    uint64_t deadline = clock_mono_ms() + STRAY_TIMEOUT_MS;
    for (;;) {
        size_t count = strays_find(l, slot, found, ARRAY_LEN(found)), alive = 0;
        for (size_t i = 0; i < count; i++) {
            _cleanup_close_ int pidfd = found[i].pid ? (int)syscall(SYS_pidfd_open, found[i].pid, 0) : -1;
            uint64_t start;
            if (pidfd < 0 || !process_start_time(found[i].pid, &start) || start != found[i].start_time)
                continue;
            alive++;
            syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
            struct pollfd wait = {.fd = pidfd, .events = POLLIN};
            poll(&wait, 1, 100);
        }
        if (!alive)
            return true;
        if (clock_mono_ms() >= deadline)
            return false;
    }
}

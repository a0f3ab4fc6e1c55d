/* Making the frozen machine of a template shape: boot, warm up, freeze, save.
 *
 *   FILES (worker)  staging folder, disks, memory
 *   BOOT            machine in boot mode with shared memory, until the agent answers
 *   WARM            the programs that people run first are run once, so that they lie in memory
 *   FREEZE          sync, let go of the agent, stop, device state
 *   SAVE (worker)   memory to disk (what is not zero), digests, rename into place
 *
 * Everything lies in a staging folder until the last rename; whatever fails or is interrupted removes it (a killed
 * daemon's is removed by the next one's reconciliation). The result is then loaded like any other shape. */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <x86intrin.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "node/node_internal.h"

#define SETTLE_MS 300 /* the guest notices that the host has closed the port, writeback ends */
#define PAGE 4096

struct build {
    struct node *node;
    struct shape_entry *shape;
    struct node_entry *entry;
    struct guest_call *call;
    uv_work_t work;
    uv_timer_t timer;
    char *staging;
    int memory_fd, disk_fd, state_fd;
    uint32_t tsc_khz;
    size_t warm_next;
    struct err e;
};

/* One line of shell each; a program that a template does not have is passed over. */
static const struct {
    const char *title, *line;
} warm_ups[] = {
    {"shell", "true; /bin/true; cat /etc/os-release >/dev/null; ls -l / >/dev/null; env >/dev/null; id >/dev/null"},
    {"python", "command -v python3 >/dev/null && python3 -c 'import json, os, sys, re, subprocess, urllib.request; print(1)'"},
    {"node", "command -v node >/dev/null && node -e 'require(\"fs\"); require(\"http\"); console.log(1)'"},
    {"git", "command -v git >/dev/null && git --version && git init -q /tmp/.warm && rm -rf /tmp/.warm"},
    {"curl", "command -v curl >/dev/null && curl --version"},
};
#define STEPS (ARRAY_LEN(warm_ups) + 4) /* files, boot, freeze, save */

static void build_finish(struct build *b);

static void on_closed(uv_handle_t *handle)
{
    struct build *b = handle->data;
    struct shape_entry *s = b->shape;
    struct err e = b->e;
    int *fds[] = {&b->memory_fd, &b->disk_fd, &b->state_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        cleanup_close(fds[i]);
    if (e.code)
        dir_remove_tree(b->staging, NULL);
    free(b->staging);
    free(b);
    if (e.code)
        shape_settled(s, &e);
    else
        shape_load(s);
}

static void on_removed(void *arg, const struct err *e)
{
    struct build *b = arg;
    (void)e;
    uv_close((uv_handle_t *)&b->timer, on_closed);
}

static void build_finish(struct build *b)
{
    if (b->call)
        guest_call_drop(b->call);
    b->call = NULL;
    uv_timer_stop(&b->timer);
    struct node_entry *m = b->entry;
    b->entry = NULL;
    if (m) {
        m->build = NULL;
        entry_remove(m, on_removed, b);
    } else {
        uv_close((uv_handle_t *)&b->timer, on_closed);
    }
}

static void build_fail(struct build *b, const struct err *e)
{
    if (b->e.code)
        return;
    b->e = *e;
    build_finish(b);
}

void build_machine_ended(struct build *b, const char *reason)
{
    struct err e = {0};
    err_set(&e, ERR_GONE, "the machine that boots the template ended: %s", reason);
    build_fail(b, &e);
}

/* ---- SAVE ---- */

static bool page_is_zero(const uint8_t *page)
{
    const uint64_t *words = (const uint64_t *)(const void *)page;
    uint64_t all = 0;
    for (size_t i = 0; i < PAGE / sizeof(uint64_t); i++)
        all |= words[i];
    return all == 0;
}

static int memory_save(int memory_fd, uint64_t bytes, const char *path, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make the memory file of a shape");
    _cleanup_free_ uint8_t *chunk = xmalloc(MIB);
    for (uint64_t at = 0; at < bytes; at += MIB) {
        if (pread(memory_fd, chunk, MIB, (off_t)at) != (ssize_t)MIB)
            return err_errno(e, ERR_SYSTEM, errno, "read the memory of a machine");
        for (size_t from = 0; from < MIB;) {
            size_t to = from;
            while (to < MIB && !page_is_zero(chunk + to))
                to += PAGE;
            if (to > from && pwrite(fd, chunk + from, to - from, (off_t)(at + from)) != (ssize_t)(to - from))
                return err_errno(e, ERR_SYSTEM, errno, "write the memory file of a shape");
            from = to + PAGE;
        }
    }
    if (fsync(fd) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "write the memory file of a shape");
    return 0;
}

static void save_work(uv_work_t *work)
{
    struct build *b = container_of(work, struct build, work);
    static const char *const parts[] = {"memory", "device.state", "disk.qcow2", "overlay.qcow2"};
    _cleanup_free_ char *memory = xasprintf("%s/memory", b->staging), *target = shape_folder(b->shape);
    _cleanup_free_ char *shapes = xasprintf("%s/shapes", b->shape->template->folder);
    if (memory_save(b->memory_fd, b->shape->shape.mem_mib * MIB, memory, &b->e) < 0)
        return;
    if (fsync(b->disk_fd) < 0 || fsync(b->state_fd) < 0) {
        err_errno(&b->e, ERR_SYSTEM, errno, "write the disk of a shape");
        return;
    }
    if (parts_write(b->staging, parts, ARRAY_LEN(parts), &b->e) < 0 || dir_sync(b->staging, &b->e) < 0)
        return;
    if (rename(b->staging, target) < 0)
        err_errno(&b->e, ERR_SYSTEM, errno, "put a finished shape in place");
    else
        dir_sync(shapes, &b->e);
}

static void save_done(uv_work_t *work, int status)
{
    struct build *b = container_of(work, struct build, work);
    if (status < 0 && !b->e.code)
        err_set(&b->e, ERR_CANCELLED, "save a shape: %s", uv_strerror(status));
    uv_close((uv_handle_t *)&b->timer, on_closed);
}

static void on_frozen_removed(void *arg, const struct err *e)
{
    struct build *b = arg;
    (void)e;
    shape_progress(b->shape, "save", STEPS - 1, STEPS);
    uv_queue_work(b->node->loop, &b->work, save_work, save_done);
}

/* ---- FREEZE ---- */

static void on_frozen(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    struct build *b = m->build;
    if (!b)
        return;
    if (e) {
        build_fail(b, e);
        return;
    }
    b->entry = NULL;
    m->build = NULL;
    entry_remove(m, on_frozen_removed, b); /* QEMU has let go of memory and disk when this is done */
}

static void on_settled(uv_timer_t *timer)
{
    struct build *b = timer->data;
    if (b->entry)
        machine_freeze(b->entry->machine, b->state_fd, on_frozen);
}

static void on_guest_closed(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    (void)e;
    if (m->build)
        uv_timer_start(&m->build->timer, on_settled, SETTLE_MS, 0);
}

static void on_synced(void *arg, const struct err *e)
{
    struct build *b = arg;
    b->call = NULL;
    if (e) {
        build_fail(b, e);
        return;
    }
    shape_progress(b->shape, "freeze", STEPS - 2, STEPS);
    machine_guest_close(b->entry->machine, on_guest_closed);
}

/* ---- WARM ---- */

static void warm_next(struct build *b);

static void on_warm_data(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct build *b = arg;
    (void)stream;
    (void)offset;
    (void)data;
    guest_call_consume(b->call, len);
}

static void on_warm_exit(void *arg, uint64_t end_offset, const struct guest_exit *x)
{
    /* A program that fails or is missing is the template's affair. */
    (void)arg;
    (void)end_offset;
    (void)x;
}

static void on_warm_end(void *arg, const struct err *e)
{
    struct build *b = arg;
    b->call = NULL;
    if (e) {
        build_fail(b, e);
        return;
    }
    b->warm_next++;
    warm_next(b);
}

static const struct guest_output_callbacks warm_output = {
    .on_data = on_warm_data, .on_exit = on_warm_exit, .done = on_warm_end};

static void on_warm_started(void *arg, const struct guest_exec_started *started, const struct err *e)
{
    struct build *b = arg;
    (void)started;
    b->call = NULL;
    if (e) {
        build_fail(b, e);
        return;
    }
    char id[32];
    snprintf(id, sizeof(id), "warm-%zu", b->warm_next);
    b->call = guest_exec_output(machine_guest(b->entry->machine), id, 0, true, &warm_output, b);
}

static void on_forgotten(void *arg, const struct err *e)
{
    (void)arg;
    (void)e;
}

static void warm_next(struct build *b)
{
    struct guest *guest = machine_guest(b->entry->machine);
    char id[32];
    if (b->warm_next > 0) {
        snprintf(id, sizeof(id), "warm-%zu", b->warm_next - 1);
        guest_exec_forget(guest, id, on_forgotten, NULL);
    }
    if (b->warm_next == ARRAY_LEN(warm_ups)) {
        b->call = guest_sync(guest, on_synced, b);
        return;
    }
    shape_progress(b->shape, warm_ups[b->warm_next].title, 2 + b->warm_next, STEPS);
    snprintf(id, sizeof(id), "warm-%zu", b->warm_next);
    const struct guest_exec_spec spec = {.shell = warm_ups[b->warm_next].line, .timeout_ms = 120000};
    b->call = guest_exec_start(guest, id, &spec, on_warm_started, b);
}

/* ---- BOOT ---- */

static void on_identified(void *arg, const struct guest_confirm *confirm, const struct err *e)
{
    struct build *b = arg;
    (void)confirm;
    b->call = NULL;
    if (e)
        build_fail(b, e);
    else
        warm_next(b);
}

static void on_hello(void *arg, const struct guest_hello *hello, const struct err *e)
{
    struct build *b = arg;
    (void)hello;
    b->call = NULL;
    if (e) {
        build_fail(b, e);
        return;
    }
    uint8_t entropy[256];
    random_bytes(entropy, sizeof(entropy));
    const struct guest_identity identity = {
        .entropy = entropy,
        .entropy_len = sizeof(entropy),
        .hostname = "template",
        .machine_id = "00000000000000000000000000000000",
        .sandbox_id = "template",
        .boot_id = "00000000-0000-4000-8000-000000000000",
    };
    b->call = guest_identity(machine_guest(b->entry->machine), &identity, on_identified, b);
}

static void on_booting(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    struct build *b = m->build;
    struct err own = {0};
    if (e || !b)
        return;
    if (machine_guest_open(m->machine, &own) < 0) {
        build_fail(b, &own);
        return;
    }
    b->call = guest_hello(machine_guest(m->machine), on_hello, b);
}

static void on_started(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    struct build *b = m->build;
    if (e || !b)
        return;
    const struct priv_machine *p = machine_process(m->machine);
    m->pub.pid = p->pid;
    m->pub.pid_start_time = p->start_time;
    m->pub.jail_missing = machine_jail_missing(m->machine);
    store_machine_set_process(b->node->store, m->pub.id, p->pid, p->start_time, m->pub.jail_missing, NULL);
    machine_boot(m->machine, b->shape->template->rootfs_fd, b->disk_fd, on_booting);
}

static int boot(struct build *b, struct err *e)
{
    struct node *n = b->node;
    struct shape_entry *s = b->shape;
    struct node_entry *m = entry_new(n, &s->shape, s->template->digest, e);
    if (!m)
        return e->code;
    m->stage = STAGE_BUILDING;
    m->build = b;
    b->entry = m;
    struct store_machine row = {
        .kind = STORE_MACHINE_BUILD,
        .slot = m->pub.slot,
        .template_digest = m->pub.template_digest,
        .vcpus = s->shape.vcpus,
        .memory_mib = s->shape.mem_mib,
        .disk_mib = s->shape.disk_mib,
        .accelerator = n->accelerator == ACCELERATOR_KVM ? STORE_ACCELERATOR_KVM : STORE_ACCELERATOR_TCG,
        .created_at_ms = clock_wall_ms(),
    };
    memcpy(row.id, m->pub.id, ID_SIZE);
    struct machine_plan plan = {
        .spawn = {
            .slot = m->pub.slot,
            .accel = n->accelerator == ACCELERATOR_KVM ? PRIV_ACCEL_KVM : PRIV_ACCEL_TCG,
            .mode = PRIV_MODE_BOOT,
            .vcpus = s->shape.vcpus,
            .mem_mib = s->shape.mem_mib,
            .tb_size_mib = n->config->tb_size_mib,
            .tsc_khz = b->tsc_khz,
            .disk_bytes = s->shape.disk_mib * MIB,
            .memory_fd = b->memory_fd,
            .kernel_fd = s->template->kernel_fd,
            .initrd_fd = s->template->initrd_fd,
        },
    };
    memcpy(plan.id, m->pub.id, ID_SIZE);
    struct machine_context context = n->context;
    uint32_t boot_ms = (uint32_t)n->config->boot_timeout_ms;
    context.load_timeout_ms = boot_ms;
    context.guest.channel.resync_timeout_ms = boot_ms;
    context.guest.timeouts.simple = boot_ms;
    context.guest.timeouts.identity = boot_ms;
    context.guest.channel.heartbeat_timeout_ms = boot_ms;
    context.guest.timeouts.freeze = boot_ms;
    int r = store_machine_insert(n->store, &row, e);
    if (r == 0)
        r = machine_new(&context, &plan, entry_machine_ended, on_started, m, &m->machine, e);
    return r;
}

/* ---- FILES ---- */

/* Ticks of the time stamp counter a millisecond: under TCG and KVM the guest sees the host's. */
static uint32_t tsc_khz_measure(void)
{
    uint64_t best = 0, best_error = UINT64_MAX;
    for (int round = 0; round < 3; round++) {
        uint64_t ns0 = clock_mono_ns(), t0 = __rdtsc();
        uint64_t after = clock_mono_ns();
        struct timespec wait = {.tv_nsec = 30000000};
        nanosleep(&wait, NULL);
        uint64_t ns1 = clock_mono_ns(), t1 = __rdtsc(), after1 = clock_mono_ns();
        uint64_t error = (after - ns0) + (after1 - ns1); /* how exactly both clocks were read together */
        if (error < best_error) {
            best_error = error;
            best = (t1 - t0) * 1000000 / (ns1 - ns0);
        }
    }
    return (uint32_t)((best + 50) / 100 * 100);
}

static int qcow2_make(const char *qemu_img, const char *path, uint64_t bytes, struct err *e)
{
    char size[32];
    snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
    char *const argv[] = {(char *)"qemu-img", (char *)"create", (char *)"-q", (char *)"-f", (char *)"qcow2",
                          (char *)"-o", (char *)"lazy_refcounts=off", (char *)path, size, NULL};
    char *const environment[] = {(char *)"PATH=/usr/bin:/bin", NULL};
    pid_t pid;
    int r = posix_spawn(&pid, qemu_img, NULL, NULL, argv, environment), status = 0;
    if (r != 0)
        return err_errno(e, ERR_SYSTEM, r, "run qemu-img");
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0)
        return err_set(e, ERR_SYSTEM, "qemu-img could not make a disk of %s bytes (status %d)", size, status);
    return 0;
}

static void files_work(uv_work_t *work)
{
    struct build *b = container_of(work, struct build, work);
    const char *qemu_img = b->node->qemu_img;
    uint64_t disk = b->shape->shape.disk_mib * MIB;
    _cleanup_free_ char *disk_path = xasprintf("%s/disk.qcow2", b->staging);
    _cleanup_free_ char *overlay = xasprintf("%s/overlay.qcow2", b->staging);
    _cleanup_free_ char *state = xasprintf("%s/device.state", b->staging);
    struct err *e = &b->e;
    if (dir_remove_tree(b->staging, e) < 0 || dir_make(b->staging, 0700, e) < 0 ||
        qcow2_make(qemu_img, disk_path, disk, e) < 0 || qcow2_make(qemu_img, overlay, disk, e) < 0)
        return;
    b->disk_fd = open(disk_path, O_RDWR | O_CLOEXEC);
    b->state_fd = open(state, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    b->memory_fd = memfd_create("space-build", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (b->disk_fd < 0 || b->state_fd < 0 || b->memory_fd < 0 ||
        ftruncate(b->memory_fd, (off_t)(b->shape->shape.mem_mib * MIB)) < 0) {
        err_errno(e, ERR_SYSTEM, errno, "make the files of a shape");
        return;
    }
    b->tsc_khz = tsc_khz_measure();
}

static void files_done(uv_work_t *work, int status)
{
    struct build *b = container_of(work, struct build, work);
    struct err e = b->e;
    b->e = (struct err){0};
    if (status < 0 && !e.code)
        err_set(&e, ERR_CANCELLED, "prepare a shape: %s", uv_strerror(status));
    shape_progress(b->shape, "boot", 1, STEPS);
    if (!e.code)
        boot(b, &e);
    if (e.code)
        build_fail(b, &e);
}

void shape_build(struct shape_entry *s)
{
    struct build *b = NEW(struct build);
    struct node *n = s->node;
    s->state = SHAPE_BUILDING;
    b->node = n;
    b->shape = s;
    b->memory_fd = b->disk_fd = b->state_fd = -1;
    b->staging = xasprintf("%s/shapes/.staging-%s", s->template->folder, s->key);
    uv_timer_init(n->loop, &b->timer);
    b->timer.data = b;
    shape_progress(s, "prepare", 0, STEPS);
    uv_queue_work(n->loop, &b->work, files_work, files_done);
}

/* One machine's way from nothing to ready.
 *
 *     STARTING ─► BLANK ─► RESTORING ─► IDENTIFYING ─► WARMING ─► HOT ─► (IDENTIFYING) ─► CLAIMED    any ─► REMOVING
 *
 * A machine stops at BLANK or HOT when nobody waits for it; a claim bound to it at any point makes it go on. It is
 * CLAIMED only when its agent has confirmed the identity of the very claim that it is bound to. Its end is node_end.c. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "node/node_internal.h"

static void entry_advance(struct node_entry *m);
static void entry_identify(struct node_entry *m);

/* ---- making an entry ---- */

int32_t slot_take(struct node *n)
{
    /* Round robin: a uid rests as long as possible before it is used again. */
    for (uint32_t i = 0; i < n->config->slots; i++) {
        uint32_t slot = (n->slot_next + i) % n->config->slots;
        if (!n->slots[slot]) {
            n->slot_next = slot + 1;
            return (int32_t)slot;
        }
    }
    return -1;
}

struct node_entry *entry_new(struct node *n, const struct shape *shape, const char *digest, struct err *e)
{
    int32_t slot = slot_take(n);
    if (slot < 0) {
        err_set(e, ERR_UNAVAILABLE, "all %u machine slots of this node are in use", n->config->slots);
        return NULL;
    }
    struct node_entry *m = NEW(struct node_entry);
    id_new(ID_MACHINE, m->pub.id);
    snprintf(m->pub.template_digest, sizeof(m->pub.template_digest), "%s", digest);
    m->pub.shape = *shape;
    m->pub.slot = (uint32_t)slot;
    m->pub.accelerator = n->accelerator;
    m->node = n;
    m->overlay_fd = -1;
    TAILQ_INIT(&m->removals);
    uv_timer_init(n->loop, &m->timer);
    m->timer.data = m;
    m->timer_open = true;
    n->slots[slot] = m;
    HASH_ADD_STR(n->machines, pub.id, m);
    return m;
}

static int row_insert(struct node_entry *m, enum store_machine_kind kind, struct err *e)
{
    struct store_machine row = {
        .kind = kind,
        .slot = m->pub.slot,
        .template_digest = m->pub.template_digest,
        .vcpus = m->pub.shape.vcpus,
        .memory_mib = m->pub.shape.mem_mib,
        .disk_mib = m->pub.shape.disk_mib,
        .accelerator = m->pub.accelerator == ACCELERATOR_KVM ? STORE_ACCELERATOR_KVM : STORE_ACCELERATOR_TCG,
        .jail_missing = priv_info(m->node->priv)->missing,
        .created_at_ms = clock_wall_ms(),
    };
    memcpy(row.id, m->pub.id, ID_SIZE);
    return store_machine_insert(m->node->store, &row, e);
}

static void row_process(struct node_entry *m)
{
    const struct priv_machine *p = machine_process(m->machine);
    m->pub.pid = p->pid;
    m->pub.pid_start_time = p->start_time;
    m->pub.jail_missing = machine_jail_missing(m->machine);
    store_machine_set_process(m->node->store, m->pub.id, p->pid, p->start_time, m->pub.jail_missing, NULL);
}

/* ---- the writable disk ---- */

char *entry_sandbox_folder(const struct node_entry *m)
{
    return xasprintf("%s/%s", m->node->sandboxes_folder, m->pub.sandbox_id);
}

/* An empty overlay of the machine's own, copied from the shape's. */
static int overlay_make(struct node_entry *m, struct err *e)
{
    _cleanup_free_ char *path = xasprintf("%s/overlay.qcow2", machine_folder(m->machine));
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make the disk of a machine");
    m->overlay_fd = fd;
    struct stat st;
    if (fstat(m->shape->overlay_fd, &st) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "look at an empty disk");
    loff_t from = 0;
    while (from < st.st_size) {
        ssize_t n = copy_file_range(m->shape->overlay_fd, &from, fd, NULL, (size_t)(st.st_size - from), 0);
        if (n <= 0)
            return err_errno(e, ERR_SYSTEM, n == 0 ? EIO : errno, "copy an empty disk");
    }
    return 0;
}

/* The disk belongs to the sandbox: it lies in the sandbox's folder, not the machine's. QEMU holds it open. */
static int overlay_place(struct node_entry *m, struct err *e)
{
    if (!m->claim || m->overlay_fd < 0)
        return 0;
    _cleanup_free_ char *folder = entry_sandbox_folder(m), *to = xasprintf("%s/overlay.qcow2", folder);
    _cleanup_free_ char *from = xasprintf("%s/overlay.qcow2", machine_folder(m->machine));
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return err_errno(e, ERR_SYSTEM, errno, "make the folder of a sandbox");
    if (rename(from, to) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "move the disk of a sandbox");
    return 0;
}

/* ---- warming ---- */

#define WARM_ID "warm"
#define WARM_TIMEOUT_MS 30000

static void on_forgotten(void *arg, const struct err *e)
{
    (void)arg;
    (void)e;
}

/* What a claim gets must not have it in its list of execs. */
static void warm_forget(struct node_entry *m)
{
    struct guest *g = machine_guest(m->machine);
    if (g)
        guest_exec_forget(g, WARM_ID, on_forgotten, NULL);
}

static void entry_hot(struct node_entry *m)
{
    m->stage = STAGE_HOT;
    m->node->spares_lost = 0;
    store_machine_set_kind(m->node->store, m->pub.id, STORE_MACHINE_HOT, NULL);
    entry_watch(m);
    pool_refill_soon(m->node);
}

static void on_warm_data(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct node_entry *m = arg;
    (void)stream;
    (void)offset;
    (void)data;
    guest_call_consume(m->call, len);
}

static void on_warm_exit(void *arg, uint64_t end_offset, const struct guest_exit *x)
{
    (void)arg;
    (void)end_offset;
    (void)x; /* a command that the template does not have warms nothing and harms nothing */
}

static void on_warm_done(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    m->call = NULL;
    if (e) {
        entry_lost(m, e->text);
        return;
    }
    warm_forget(m);
    entry_hot(m);
}

static const struct guest_output_callbacks warm_output = {
    .on_data = on_warm_data, .on_exit = on_warm_exit, .done = on_warm_done};

static void on_warm_started(void *arg, const struct guest_exec_started *started, const struct err *e)
{
    struct node_entry *m = arg;
    (void)started;
    m->call = NULL;
    if (e) {
        entry_hot(m);
        return;
    }
    m->call = guest_exec_output(machine_guest(m->machine), WARM_ID, 0, true, &warm_output, m);
}

static void entry_warm(struct node_entry *m)
{
    const char *line = m->node->config->pool_warm_command;
    if (!line[0]) {
        entry_hot(m);
        return;
    }
    m->stage = STAGE_WARMING;
    const struct guest_exec_spec spec = {.shell = line, .timeout_ms = WARM_TIMEOUT_MS};
    m->call = guest_exec_start(machine_guest(m->machine), WARM_ID, &spec, on_warm_started, m);
}

static void on_identified(void *arg, const struct guest_confirm *confirm, const struct err *e)
{
    struct node_entry *m = arg;
    (void)confirm;
    m->call = NULL;
    if (e) {
        char reason[400];
        snprintf(reason, sizeof(reason), "the guest agent did not confirm its identity: %.300s", e->text);
        entry_lost(m, reason);
        return;
    }
    if (m->claim && m->identified_for != m->claim->number) {
        entry_identify(m); /* claimed meanwhile: what was confirmed is the pool's */
        return;
    }
    if (!m->claim) {
        entry_warm(m);
        return;
    }
    entry_watch(m);
    m->stage = STAGE_CLAIMED;
    m->node->spares_lost = 0;
    claim_finish(m->claim, m, NULL);
}

static void entry_identify(struct node_entry *m)
{
    struct err e = {0};
    m->stage = STAGE_IDENTIFYING;
    uv_timer_stop(&m->timer);
    if (m->call) { /* a heartbeat */
        guest_call_drop(m->call);
        m->call = NULL;
        m->checking = false;
    }
    identity_take(m);
    if ((m->claim && identity_save(m, &e) < 0) || machine_guest_open(m->machine, &e) < 0) {
        entry_lost(m, e.text);
        return;
    }
    identity_send(m, on_identified);
}

/* ---- the way up ---- */

static void on_restored(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    if (e) /* machine_ended follows, or the machine was in no state for it */
        return;
    entry_identify(m);
}

static void entry_restore(struct node_entry *m)
{
    struct err e = {0};
    m->stage = STAGE_RESTORING;
    /* The connection is made first: its first bytes wait in the port when the guest goes on. */
    if (machine_guest_open(m->machine, &e) < 0) {
        entry_lost(m, e.text);
        return;
    }
    machine_restore(m->machine, m->overlay_fd, on_restored);
}

static void on_prepared(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    struct err own = {0};
    if (e)
        return;
    if (overlay_make(m, &own) < 0 || overlay_place(m, &own) < 0) {
        entry_lost(m, own.text);
        return;
    }
    m->stage = STAGE_BLANK;
    entry_advance(m);
}

static void on_started(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    if (e)
        return;
    row_process(m);
    if (!m->shape) {
        entry_lost(m, "the template is being removed");
        return;
    }
    machine_prepare(m->machine, m->shape->template->rootfs_fd, m->shape->layer_fd, buf_data(&m->shape->device_state),
                    m->shape->device_state.len, on_prepared);
}

/* Go on if somebody wants more than there is. */
static void entry_advance(struct node_entry *m)
{
    if (m->stage == STAGE_BLANK && (m->claim || m->counted_hot))
        entry_restore(m);
    else if (m->stage == STAGE_HOT && m->claim)
        entry_identify(m);
    else if (m->stage == STAGE_WARMING && m->claim) {
        if (m->call)
            guest_call_drop(m->call);
        m->call = NULL;
        warm_forget(m); /* ends it */
        entry_identify(m);
    }
}

struct node_entry *entry_start(struct shape_entry *s, bool hot, struct err *e)
{
    struct node *n = s->node;
    if (n->gone.code) {
        if (e)
            *e = n->gone;
        return NULL;
    }
    struct node_entry *m = entry_new(n, &s->shape, s->template->digest, e);
    if (!m)
        return NULL;
    m->shape = s;
    m->counted_hot = hot;
    struct machine_plan plan = {
        .spawn = {
            .slot = m->pub.slot,
            .accel = n->accelerator == ACCELERATOR_KVM ? PRIV_ACCEL_KVM : PRIV_ACCEL_TCG,
            .mode = PRIV_MODE_RESTORE,
            .vcpus = s->shape.vcpus,
            .mem_mib = s->shape.mem_mib,
            .tb_size_mib = n->config->tb_size_mib,
            .disk_bytes = s->shape.disk_mib * MIB,
            .memory_fd = s->memory_fd,
            .kernel_fd = -1,
            .initrd_fd = -1,
        },
    };
    memcpy(plan.id, m->pub.id, ID_SIZE);
    if (row_insert(m, hot ? STORE_MACHINE_HOT : STORE_MACHINE_BLANK, e) < 0 ||
        machine_new(&n->context, &plan, entry_machine_ended, on_started, m, &m->machine, e) < 0) {
        entry_remove(m, NULL, NULL);
        return NULL;
    }
    m->stage = STAGE_STARTING;
    return m;
}

void entry_prepare_for(struct node_entry *m, struct claim *c)
{
    struct err e = {0};
    if (c) {
        m->claim = c;
        memcpy(c->machine_id, m->pub.id, ID_SIZE);
        snprintf(m->pub.sandbox_id, sizeof(m->pub.sandbox_id), "%s", c->sandbox_id);
        if (store_machine_claim(m->node->store, m->pub.id, c->sandbox_id, &e) < 0 || overlay_place(m, &e) < 0) {
            entry_lost(m, e.text);
            return;
        }
    }
    entry_advance(m);
}

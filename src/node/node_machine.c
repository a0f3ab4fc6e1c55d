/* One machine's way from nothing to ready, and its end.
 *
 *     STARTING ─► BLANK ─► RESTORING ─► IDENTIFYING ─► WARMING ─► HOT ─► (IDENTIFYING) ─► CLAIMED    any ─► REMOVING
 *
 * A machine stops at BLANK or HOT when nobody waits for it; a claim bound to it at any point makes it go on. It is
 * CLAIMED only when its agent has confirmed the identity of the very claim that it is bound to. REMOVING ends when the
 * process, its cgroup, its folder and its row are gone; then the slot is free and the entry is freed. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "node/node_internal.h"

#define ENTROPY_BYTES 256

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

static char *sandbox_folder(const struct node_entry *m)
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
    _cleanup_free_ char *folder = sandbox_folder(m), *to = xasprintf("%s/overlay.qcow2", folder);
    _cleanup_free_ char *from = xasprintf("%s/overlay.qcow2", machine_folder(m->machine));
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return err_errno(e, ERR_SYSTEM, errno, "make the folder of a sandbox");
    if (rename(from, to) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "move the disk of a sandbox");
    return 0;
}

/* ---- identity ---- */

static void uuid_new(char ret_text[37])
{
    uint8_t r[16];
    char hex[33];
    random_bytes(r, sizeof(r));
    r[6] = (uint8_t)((r[6] & 0x0f) | 0x40);
    r[8] = (uint8_t)((r[8] & 0x3f) | 0x80);
    hex_encode(r, sizeof(r), hex);
    snprintf(ret_text, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

static void env_free(char **env)
{
    for (char **v = env; v && *v; v++)
        free(*v);
    free(env);
}

/* Kept beside the disk, so that a restarted daemon can renew it after a pause. */
static int identity_save(struct node_entry *m, struct err *e)
{
    json_t *env = json_array();
    for (char **v = m->env; v && *v; v++)
        json_array_append_new(env, json_string(*v));
    json_t *root = json_pack("{s:s, s:s, s:s, s:o}", "hostname", m->hostname, "machine_id", m->machine_uuid, "boot_id",
                             m->boot_uuid, "env", env);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    _cleanup_free_ char *folder = sandbox_folder(m), *path = xasprintf("%s/identity.json", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
    free(text);
    if (fd >= 0)
        close(fd);
    return r < 0 ? err_errno(e, ERR_SYSTEM, -r, "write the identity of a sandbox") : 0;
}

static bool identity_load(struct node_entry *m)
{
    _cleanup_free_ char *folder = sandbox_folder(m), *path = xasprintf("%s/identity.json", folder);
    _cleanup_buf_ struct buf text = BUF_MAX(4 * MIB);
    if (file_read(path, 4 * MIB, &text, NULL) < 0)
        return false;
    json_t *root = json_loadb((const char *)buf_data(&text), text.len, 0, NULL);
    const char *hostname = json_string_value(json_object_get(root, "hostname"));
    const char *machine_uuid = json_string_value(json_object_get(root, "machine_id"));
    const char *boot_uuid = json_string_value(json_object_get(root, "boot_id"));
    json_t *env = json_object_get(root, "env");
    bool good = hostname && machine_uuid && boot_uuid && strlen(machine_uuid) == 32 && strlen(boot_uuid) == 36;
    if (good) {
        free(m->hostname);
        env_free(m->env);
        m->hostname = xstrdup(hostname);
        memcpy(m->machine_uuid, machine_uuid, 33);
        memcpy(m->boot_uuid, boot_uuid, 37);
        m->env = xcalloc(json_array_size(env) + 1, sizeof(*m->env));
        for (size_t i = 0; i < json_array_size(env); i++)
            m->env[i] = xstrdup(json_string_value(json_array_get(env, i)) ?: "");
    }
    json_decref(root);
    return good;
}

static void identity_take(struct node_entry *m)
{
    struct claim *c = m->claim;
    free(m->hostname);
    env_free(m->env);
    m->env = NULL;
    m->hostname = xstrdup(c ? c->hostname : "space");
    if (c) {
        size_t count = 0;
        while (c->env[count])
            count++;
        m->env = xcalloc(count + 1, sizeof(*m->env));
        for (size_t i = 0; i < count; i++)
            m->env[i] = xstrdup(c->env[i]);
    }
    uint8_t raw[16];
    random_bytes(raw, sizeof(raw));
    hex_encode(raw, sizeof(raw), m->machine_uuid);
    uuid_new(m->boot_uuid);
    m->identified_for = c ? c->number : 0;
}

static void identity_send(struct node_entry *m, guest_identity_cb *done)
{
    uint8_t entropy[ENTROPY_BYTES];
    random_bytes(entropy, sizeof(entropy));
    const struct guest_identity identity = {
        .entropy = entropy,
        .entropy_len = sizeof(entropy),
        .hostname = m->hostname,
        .machine_id = m->machine_uuid,
        .sandbox_id = m->pub.sandbox_id[0] ? m->pub.sandbox_id : "pool",
        .boot_id = m->boot_uuid,
        .env = (const char *const *)m->env,
    };
    m->call = guest_identity(machine_guest(m->machine), &identity, done, m);
    wipe(entropy, sizeof(entropy));
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

/* ---- watching ---- */

static void on_heartbeat_timer(uv_timer_t *timer);

static void on_heartbeat(void *arg, const struct guest_hello *hello, const struct err *e)
{
    struct node_entry *m = arg;
    (void)hello;
    m->call = NULL;
    m->checking = false;
    if (m->stage == STAGE_REMOVING)
        return;
    if (!e)
        m->lost_since_ms = 0;
    else if (!m->lost_since_ms)
        m->lost_since_ms = clock_mono_ms();
    uv_timer_start(&m->timer, on_heartbeat_timer, e ? NODE_LOST_RETRY_MS : m->node->config->heartbeat_interval_ms, 0);
}

static void on_heartbeat_timer(uv_timer_t *timer)
{
    struct node_entry *m = timer->data;
    struct err e = {0};
    if (m->pub.paused || m->call || m->lost_reason || m->stage == STAGE_REMOVING)
        return;
    if (m->lost_since_ms && clock_mono_ms() - m->lost_since_ms > m->node->config->agent_timeout_ms) {
        entry_lost(m, "the guest agent does not answer any more");
        return;
    }
    if (machine_guest_open(m->machine, &e) < 0) {
        if (!m->lost_since_ms)
            m->lost_since_ms = clock_mono_ms();
        uv_timer_start(&m->timer, on_heartbeat_timer, NODE_LOST_RETRY_MS, 0);
        return;
    }
    m->checking = true;
    m->call = guest_hello(machine_guest(m->machine), on_heartbeat, m);
}

void entry_watch(struct node_entry *m)
{
    m->lost_since_ms = 0;
    uv_timer_start(&m->timer, on_heartbeat_timer, m->node->config->heartbeat_interval_ms, 0);
}

void entry_guest_lost(void *arg, struct machine *machine, const struct err *e)
{
    struct node_entry *m = arg;
    (void)machine;
    (void)e;
    if ((m->stage != STAGE_HOT && m->stage != STAGE_CLAIMED) || m->lost_reason)
        return; /* the call under way tells */
    if (!m->lost_since_ms)
        m->lost_since_ms = clock_mono_ms();
    if (!m->pub.paused)
        uv_timer_start(&m->timer, on_heartbeat_timer, 1, 0);
}

/* ---- the end ---- */

static void on_timer_closed(uv_handle_t *handle)
{
    struct node_entry *m = handle->data;
    free(m);
}

/* Everything is given back: nothing of the machine is left. */
static void entry_gone(struct node_entry *m)
{
    struct node *n = m->node;
    store_machine_delete(n->store, m->pub.id, NULL);
    if (m->pub.sandbox_id[0]) {
        _cleanup_free_ char *folder = sandbox_folder(m);
        dir_remove_tree(folder, NULL);
    }
    n->slots[m->pub.slot] = NULL;
    HASH_DEL(n->machines, m);
    free(m->hostname);
    free(m->lost_reason);
    env_free(m->env);
    struct node_removal *r;
    while ((r = TAILQ_FIRST(&m->removals))) {
        TAILQ_REMOVE(&m->removals, r, link);
        r->cb(r->arg, NULL);
        free(r);
    }
    uv_close((uv_handle_t *)&m->timer, on_timer_closed);
    pool_refill_soon(n);
    if (n->callbacks.on_change)
        n->callbacks.on_change(n->arg);
}

static void on_slot_clean(void *arg, int code, const struct err *e)
{
    (void)code;
    (void)e;
    entry_gone(arg);
}

static void on_machine_freed(void *arg)
{
    struct node_entry *m = arg;
    m->machine = NULL;
    /* A process that never was, or was only half made, can have left its cgroup. */
    if (m->pub.pid == 0 && !m->node->gone.code)
        priv_clean(m->node->priv, m->pub.slot, on_slot_clean, m);
    else
        entry_gone(m);
}

static void entry_gone_soon(void *arg)
{
    on_machine_freed(arg);
}

void entry_remove(struct node_entry *m, node_done_cb cb, void *arg)
{
    if (cb) {
        struct node_removal *r = NEW(struct node_removal);
        *r = (struct node_removal){.cb = cb, .arg = arg};
        TAILQ_INSERT_TAIL(&m->removals, r, link);
    }
    if (m->stage == STAGE_REMOVING)
        return;
    m->stage = STAGE_REMOVING;
    if (m->call)
        guest_call_drop(m->call);
    m->call = NULL;
    cleanup_close(&m->overlay_fd);
    m->overlay_fd = -1;
    uv_timer_stop(&m->timer);
    node_done_cb step = m->step;
    m->step = NULL;
    if (step) {
        struct err e = {0};
        err_set(&e, ERR_GONE, "the machine was removed");
        step(m->step_arg, &e);
    }
    if (m->machine)
        machine_free(m->machine, on_machine_freed, m);
    else
        node_defer(m->node, entry_gone_soon, m);
}

static void lost_now(struct node_entry *m, const char *reason)
{
    struct node *n = m->node;
    struct err e = {0};
    err_set(&e, ERR_GONE, "%s", reason);
    struct claim *c = m->claim;
    bool was_claimed = m->stage == STAGE_CLAIMED || m->stage == STAGE_ADOPTING, was_spare = !was_claimed && !m->build;
    m->claim = NULL;
    n->stats.machines_lost++;
    char id[ID_SIZE], sandbox_id[ID_SIZE];
    memcpy(id, m->pub.id, ID_SIZE);
    memcpy(sandbox_id, m->pub.sandbox_id, ID_SIZE);
    if (m->machine)
        console_keep(n, sandbox_id, machine_console_seen(m->machine));
    if (m->build) {
        struct build *b = m->build;
        m->build = NULL;
        build_machine_ended(b, reason);
    }
    if (c)
        m->pub.sandbox_id[0] = '\0'; /* its folder is the next machine's */
    if (was_spare)
        n->spares_lost++;
    entry_remove(m, NULL, NULL);
    if (was_claimed && n->callbacks.on_machine_lost)
        n->callbacks.on_machine_lost(n->arg, id, sandbox_id, reason);
    if (was_spare && n->callbacks.on_spare_lost)
        n->callbacks.on_spare_lost(n->arg, id, reason);
    if (c)
        claim_machine_failed(c, &e);
}

static void on_last_console(void *arg, const void *data, size_t len, const struct err *e)
{
    struct node_entry *m = arg;
    (void)data, (void)len, (void)e; /* what could be read, the machine has */
    if (m->stage == STAGE_REMOVING || !m->lost_reason)
        return;
    _cleanup_free_ char *reason = steal(m->lost_reason);
    lost_now(m, reason);
}

/* A machine whose QEMU still answers is asked for its console first: it is gone with the process. */
void entry_lost(struct node_entry *m, const char *reason)
{
    if (m->stage == STAGE_REMOVING)
        return;
    if (m->lost_reason) { /* it ended while it was being asked */
        _cleanup_free_ char *first = steal(m->lost_reason);
        lost_now(m, first);
        return;
    }
    bool answers = m->machine && (machine_state(m->machine) == MACHINE_RUNNING || machine_state(m->machine) == MACHINE_PAUSED);
    if (!answers || !m->pub.sandbox_id[0]) {
        lost_now(m, reason);
        return;
    }
    m->lost_reason = xstrdup(reason);
    uv_timer_stop(&m->timer);
    machine_console(m->machine, on_last_console, m);
}

void entry_machine_ended(void *arg, struct machine *machine, const char *reason)
{
    (void)machine;
    entry_lost(arg, reason);
}

/* ---- pause and resume ---- */

static void step_finish(struct node_entry *m, const struct err *e)
{
    node_done_cb step = m->step;
    m->step = NULL;
    if (step)
        step(m->step_arg, e);
}

static struct node_entry *step_begin(struct node *n, const char *machine_id, node_done_cb cb, void *arg)
{
    struct node_entry *m = NULL;
    struct err e = {0};
    HASH_FIND_STR(n->machines, machine_id, m);
    if (!m || m->stage != STAGE_CLAIMED || m->lost_reason)
        err_set(&e, ERR_NOT_FOUND, "the machine is not there");
    else if (m->step)
        err_set(&e, ERR_CONFLICT, "the machine is being paused or resumed");
    if (e.code) {
        cb(arg, &e);
        return NULL;
    }
    m->step = cb;
    m->step_arg = arg;
    return m;
}

static void on_paused(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    if (e && machine_state(m->machine) == MACHINE_ENDED)
        return; /* entry_lost tells */
    m->pub.paused = !e;
    step_finish(m, e);
}

void node_pause(struct node *n, const char *machine_id, node_done_cb cb, void *arg)
{
    struct node_entry *m = step_begin(n, machine_id, cb, arg);
    if (!m)
        return;
    if (m->call && m->checking) { /* a heartbeat would only wait for the guest to go on */
        guest_call_drop(m->call);
        m->call = NULL;
        m->checking = false;
    }
    uv_timer_stop(&m->timer);
    machine_pause(m->machine, on_paused);
}

static void on_renewed(void *arg, const struct guest_confirm *confirm, const struct err *e)
{
    struct node_entry *m = arg;
    (void)confirm;
    m->call = NULL;
    if (e) {
        char reason[400];
        snprintf(reason, sizeof(reason), "the guest agent did not answer after the machine went on: %.300s", e->text);
        entry_lost(m, reason);
        return;
    }
    entry_watch(m);
    step_finish(m, NULL);
}

static void on_resumed(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    struct err own = {0};
    if (e) {
        if (machine_state(m->machine) != MACHINE_ENDED)
            step_finish(m, e);
        return;
    }
    m->pub.paused = false;
    if (!m->hostname && !identity_load(m)) {
        entry_lost(m, "the identity of the sandbox is lost");
        return;
    }
    if (machine_guest_open(m->machine, &own) < 0) {
        entry_lost(m, own.text);
        return;
    }
    identity_send(m, on_renewed); /* the clock stood still, and so did the entropy */
}

void node_resume(struct node *n, const char *machine_id, node_done_cb cb, void *arg)
{
    struct node_entry *m = step_begin(n, machine_id, cb, arg);
    if (m)
        machine_resume(m->machine, on_resumed);
}

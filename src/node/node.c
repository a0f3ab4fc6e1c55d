/* The node's life, look-ups and figures (see node.h; node_internal.h says which file does what). */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "node/node_internal.h"
#include "node/node_programs.h"

int shape_check(const struct shape *s, struct err *e)
{
    static const struct {
        const char *name;
        size_t offset;
        uint32_t min, max;
    } bounds[] = {
        {"vcpus", offsetof(struct shape, vcpus), 1, 8},
        {"memory_mib", offsetof(struct shape, mem_mib), 128, 8192},
        {"disk_mib", offsetof(struct shape, disk_mib), 256, 65536},
    };
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
        uint32_t value;
        memcpy(&value, (const char *)s + bounds[i].offset, sizeof(value));
        if (value < bounds[i].min || value > bounds[i].max)
            return err_set(e, ERR_INVALID, "%s is %u, it must be %u to %u", bounds[i].name, value, bounds[i].min,
                           bounds[i].max);
    }
    return 0;
}

struct deferred {
    uv_timer_t timer;
    void (*call)(void *arg);
    void *arg;
};

static void on_deferred_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_deferred(uv_timer_t *timer)
{
    struct deferred *d = timer->data;
    d->call(d->arg);
    uv_close((uv_handle_t *)timer, on_deferred_closed);
}

void node_defer(struct node *n, void (*call)(void *arg), void *arg)
{
    struct deferred *d = NEW(struct deferred);
    d->call = call;
    d->arg = arg;
    uv_timer_init(n->loop, &d->timer);
    d->timer.data = d;
    uv_timer_start(&d->timer, on_deferred, 0, 0);
}

/* ---- start ---- */

static void on_process_exit(void *arg, const struct priv_exit *exit)
{
    struct node *n = arg;
    if (exit->machine.slot >= n->config->slots)
        return;
    struct node_entry *m = n->slots[exit->machine.slot];
    if (m && m->machine && machine_process(m->machine)->pid == exit->machine.pid)
        machine_on_exit(m->machine, exit);
}

static void on_priv_gone(void *arg, const struct err *why)
{
    struct node *n = arg;
    err_set(&n->gone, ERR_UNAVAILABLE, "the privileged helper has ended: %.300s", why ? why->text : "no reason known");
    n->ready = false;
    if (n->callbacks.on_helper_gone)
        n->callbacks.on_helper_gone(n->arg, &n->gone);
    if (n->callbacks.on_change)
        n->callbacks.on_change(n->arg);
}

/* /dev/kvm opens and the processor shows hardware virtualisation. The file alone proves nothing: under PVM hosts it
 * opens, and a stock guest kernel dies in the instruction emulator. */
static bool kvm_usable(void)
{
    _cleanup_close_ int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    _cleanup_buf_ struct buf cpuinfo = BUF_MAX(4 * MIB);
    if (fd < 0 || file_read("/proc/cpuinfo", 4 * MIB, &cpuinfo, NULL) < 0)
        return false;
    const char *text = buf_cstr(&cpuinfo);
    return strstr(text, " vmx ") || strstr(text, " svm ") || strstr(text, " vmx\n") || strstr(text, " svm\n");
}

static int accelerator_choose(const struct config *c, enum accelerator *ret, struct err *e)
{
    bool kvm = c->accelerator != CONFIG_ACCELERATOR_TCG && kvm_usable();
    if (!kvm && c->accelerator == CONFIG_ACCELERATOR_KVM)
        return err_set(e, ERR_UNSUPPORTED,
                       "accelerator is set to kvm, but /dev/kvm does not open or the processor shows "
                       "neither vmx nor svm");
    if (!kvm && c->require_hardware_isolation)
        return err_set(e, ERR_UNSUPPORTED,
                       "require_hardware_isolation is set, but this host has no usable KVM: machines "
                       "would run under TCG, which QEMU does not call a security boundary");
    *ret = kvm ? ACCELERATOR_KVM : ACCELERATOR_TCG;
    return 0;
}

static int folders_make(struct node *n, struct err *e)
{
    const struct {
        char **path;
        const char *name;
    } folders[] = {{&n->machines_folder, "machines"},
                   {&n->templates_folder, "templates"},
                   {&n->sandboxes_folder, "sandboxes"},
                   {&n->incoming_folder, "incoming"}};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        *folders[i].path = xasprintf("%s/%s", n->config->state_dir, folders[i].name);
        int r = dir_make(*folders[i].path, 0700, e);
        if (r < 0)
            return r;
        if (geteuid() == 0 && n->config->uid_base &&
            chown(*folders[i].path, n->config->uid_base, n->config->uid_base) < 0)
            return err_errno(e, ERR_SYSTEM, errno, "give %s to the service's user", *folders[i].path);
    }
    return 0;
}

_Static_assert(CONFIG_UID_BASE_MIN == PRIV_UID_MIN && CONFIG_UID_BASE_MAX == PRIV_UID_MAX - 2 * PRIV_SLOTS_MAX - 2,
               "uid_base is what the privileged half takes");
_Static_assert(CONFIG_TB_SIZE_MIB_MAX == PRIV_TB_SIZE_MIB_MAX, "tb_size_mib is what the privileged half takes");

int node_config_check(const struct config *config, struct err *e)
{
    for (size_t i = 0; i < config->allow_missing_isolation.count; i++) {
        const char *name = config->allow_missing_isolation.items[i];
        uint32_t feature = jail_feature_by_name(name);
        if (feature & JAIL_FEATURES_OPTIONAL)
            continue;
        _cleanup_buf_ struct buf names = BUF_MAX(1024);
        for (uint32_t bit = 1; bit & JAIL_FEATURES_ALL; bit <<= 1)
            if (bit & JAIL_FEATURES_OPTIONAL)
                buf_printf(&names, "%s%s", names.len ? ", " : "", jail_feature_name(bit));
        return err_set(e, ERR_INVALID,
                       feature ? "configuration: allow_missing_isolation: %s cannot be missing; what can: %s"
                               : "configuration: allow_missing_isolation: there is no feature \"%s\"; there are: %s",
                       name, buf_cstr(&names));
    }
    return 0;
}

static uint32_t features_allowed(const struct config *c)
{
    uint32_t allowed = 0;
    for (size_t i = 0; i < c->allow_missing_isolation.count; i++)
        allowed |= jail_feature_by_name(c->allow_missing_isolation.items[i]);
    /* An ordinary user cannot have these; require_jail refuses to go without. */
    if (geteuid() != 0)
        allowed |= JAIL_FEATURES_NEED_ROOT;
    return c->require_jail ? 0 : allowed & JAIL_FEATURES_OPTIONAL;
}

/* The helper would not start. It names one feature that is missing: name all that stand in the way. */
static int refusal_explain(struct node *n, const struct priv_config *priv, struct err *e)
{
    char names[JAIL_FEATURE_NAMES_SIZE];
    struct priv_config all = *priv;
    struct priv *p = NULL;
    struct err reason = {0};
    int code = e->code;
    if (code == ERR_CONFLICT)
        return err_set(e, code,
                       "the user ids %u to %u are in use by another platform of this host: give one of them another "
                       "uid_base",
                       priv->uid_base, priv->uid_base + priv->slots);
    if (code != ERR_UNSUPPORTED)
        return code;
    all.allow_missing = JAIL_FEATURES_OPTIONAL;
    if (priv_start(n->loop, &all, &p, &reason) < 0)
        return code; /* it was something else */
    uint32_t missing = priv_info(p)->missing & ~priv->allow_missing;
    priv_stop(p);
    if (!missing)
        return code;
    return err_set(e, code, "the jail of machines would lack %s: %s", jail_feature_names(missing, names),
                   n->config->require_jail ? "require_jail is set"
                                           : "what may be missing has to be listed in allow_missing_isolation");
}

int node_new(uv_loop_t *loop, const struct config *config, struct store *store, const struct node_callbacks *callbacks,
             void *arg, struct node **ret_node, struct err *e)
{
    struct node *n = NEW(struct node);
    n->loop = loop;
    n->config = config;
    n->store = store;
    n->callbacks = *callbacks;
    n->arg = arg;
    TAILQ_INIT(&n->shapes);
    TAILQ_INIT(&n->claims);
    TAILQ_INIT(&n->consoles);
    n->slots = xcalloc(config->slots, sizeof(*n->slots));
    struct programs programs = {0};
    int r = node_config_check(config, e);
    if (r == 0)
        r = accelerator_choose(config, &n->accelerator, e);
    if (r == 0)
        r = folders_make(n, e);
    if (r == 0)
        r = programs_find(config, &programs, e);
    /* Of a platform with root there may be one for each range of users on a host: it ends what it finds in the range.
     */
    _cleanup_free_ char *lock =
        geteuid() == 0 ? xstrdup("/run/space-uids.lock") : xasprintf("%s/space-priv.lock", config->state_dir);
    if (r == 0) {
        snprintf(n->qemu_version, sizeof(n->qemu_version), "%s", programs.qemu_version);
        n->qemu_img = xstrdup(programs.qemu_img);
        const struct priv_config priv = {
            .priv_path = programs.priv,
            .jail_path = programs.jail,
            .qemu_path = programs.qemu,
            .data_path = programs.qemu_data,
            .lock_path = lock,
            .uid_base = config->uid_base,
            .slots = config->slots,
            .allow_missing = features_allowed(config),
            .overhead_mib = config->memory_overhead_mib,
            .cpu_percent = config->cpu_percent,
            .pids_max = config->pids_max,
            .on_exit = on_process_exit,
            .on_gone = on_priv_gone,
            .arg = n,
        };
        r = priv_start(loop, &priv, &n->priv, e);
        if (r < 0)
            r = refusal_explain(n, &priv, e);
    }
    programs_done(&programs);
    if (r < 0) {
        node_free(n);
        return r;
    }
    n->context = (struct machine_context){
        .loop = loop,
        .priv = n->priv,
        .folder_base = n->machines_folder,
        .spawn_timeout_ms = (uint32_t)config->start_timeout_ms,
        .load_timeout_ms = (uint32_t)config->restore_timeout_ms,
        .guest = {.channel = {.heartbeat_timeout_ms = (uint32_t)config->agent_timeout_ms},
                  .timeouts = {.identity = (uint32_t)config->agent_timeout_ms}},
        .guest_lost = entry_guest_lost,
    };
    uv_timer_init(loop, &n->pool_timer);
    n->pool_timer.data = n;
    n->pool_timer_open = true;
    *ret_node = n;
    return 0;
}

/* ---- stop ---- */

static void stop_check(struct node *n)
{
    if (!n->stopped || HASH_COUNT(n->machines) > 0)
        return;
    void (*stopped)(void *) = n->stopped;
    n->stopped = NULL;
    stopped(n->stopped_arg);
}

static void on_stop_removed(void *arg, const struct err *e)
{
    (void)e;
    stop_check(arg);
}

static void on_detached(void *arg)
{
    struct node_entry *m = arg;
    struct node *n = m->node;
    n->slots[m->pub.slot] = NULL;
    HASH_DEL(n->machines, m);
    stop_check(n);
    free(m->hostname);
    free(m->lost_reason);
    for (char **v = m->env; v && *v; v++)
        free(*v);
    free(m->env);
    cleanup_close(&m->overlay_fd);
    free(m);
}

static void on_detach_timer_closed(uv_handle_t *handle)
{
    struct node_entry *m = handle->data;
    machine_detach(m->machine, on_detached, m);
}

static void stop_begin(void *arg)
{
    struct node *n = arg;
    struct node_entry *m, *next;
    struct claim *c;
    bool kill_all = n->kill_all;
    while ((c = TAILQ_FIRST(&n->claims)))
        node_claim_cancel(n, c->number);
    HASH_ITER(hh, n->machines, m, next)
    {
        if (!kill_all && m->stage == STAGE_CLAIMED && !m->step) {
            m->stage = STAGE_REMOVING;
            if (m->call)
                guest_call_drop(m->call);
            m->call = NULL;
            uv_close((uv_handle_t *)&m->timer, on_detach_timer_closed);
        } else {
            entry_remove(m, on_stop_removed, n);
        }
    }
    stop_check(n);
}

void node_stop(struct node *n, bool kill_all, void (*done)(void *arg), void *arg)
{
    n->stopping = true;
    n->stopped = done;
    n->stopped_arg = arg;
    n->kill_all = kill_all;
    if (n->pool_timer_open) {
        n->pool_timer_open = false;
        uv_close((uv_handle_t *)&n->pool_timer, NULL);
    }
    node_defer(n, stop_begin, n);
}

void node_free(struct node *n)
{
    if (!n)
        return;
    struct shape_entry *s;
    struct template *t, *next;
    while ((s = TAILQ_FIRST(&n->shapes)))
        shape_free(s);
    HASH_ITER(hh, n->templates, t, next)
    template_forget(n, t);
    if (n->priv)
        priv_stop(n->priv);
    consoles_free(n);
    char *strings[] = {n->machines_folder, n->templates_folder, n->sandboxes_folder, n->incoming_folder, n->qemu_img};
    for (size_t i = 0; i < ARRAY_LEN(strings); i++)
        free(strings[i]);
    free(n->slots);
    free(n);
}

/* ---- look-ups ---- */

struct node_entry *entry_find(struct node *n, const char *machine_id)
{
    struct node_entry *m = NULL;
    HASH_FIND_STR(n->machines, machine_id, m);
    return m && m->stage != STAGE_REMOVING ? m : NULL;
}

const struct node_machine *node_machine_find(struct node *n, const char *machine_id)
{
    struct node_entry *m = entry_find(n, machine_id);
    return m ? &m->pub : NULL;
}

void node_remove(struct node *n, const char *machine_id, node_done_cb cb, void *arg)
{
    struct node_entry *m = NULL;
    HASH_FIND_STR(n->machines, machine_id, m);
    if (!m)
        cb(arg, NULL);
    else
        entry_remove(m, cb, arg);
}

struct guest *node_guest(struct node *n, const char *machine_id, struct err *e)
{
    struct node_entry *m = entry_find(n, machine_id);
    if (!m || m->stage != STAGE_CLAIMED) {
        err_set(e, ERR_NOT_FOUND, "the machine is not there");
        return NULL;
    }
    if (m->pub.paused) {
        err_set(e, ERR_STATE, "the sandbox is paused");
        return NULL;
    }
    if (machine_guest_open(m->machine, e) < 0)
        return NULL;
    return machine_guest(m->machine);
}

bool node_template_exists(struct node *n, const char *digest)
{
    return template_find(n, digest, NULL) != NULL;
}

uint32_t node_template_disk_mib(struct node *n, const char *digest)
{
    struct template *t = template_find(n, digest, NULL);
    return t ? t->disk_mib : 0;
}

void node_stats_get(struct node *n, struct node_stats *ret_stats)
{
    struct node_stats st = n->stats;
    struct claim *c;
    st.accelerator = n->accelerator;
    st.qemu_version = n->qemu_version;
    st.jail_missing = priv_info(n->priv)->missing;
    st.root = priv_info(n->priv)->root;
    st.slots = n->config->slots;
    st.pool_memory_max_bytes = n->config->pool_memory_mib * MIB;
    st.ready = n->ready && !n->stopping;
    pool_count(n, &st);
    TAILQ_FOREACH(c, &n->claims, link)
    st.claims_waiting++;
    *ret_stats = st;
}

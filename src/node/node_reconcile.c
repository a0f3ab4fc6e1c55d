/* After a start: what the store says against the processes, cgroups and folders that exist. Claimed machines are
 * adopted; everything else of an earlier life is removed.
 *
 *   1. folders that nothing can own any more: staging folders of templates and shapes
 *   2. every row of the store: a claimed machine is adopted, any other is cleaned and its row deleted
 *   3. every machine process found on the host whose slot is not an adopted one's is ended
 *   4. machine and sandbox folders without an adopted machine are removed */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "node/node_internal.h"

#define INCOMING_KEPT_S (24 * 3600)

struct reconcile {
    struct node *node;
    size_t waiting;
    void (*done)(void *arg, const struct err *e);
    void *arg;
    bool listed;
    struct err e;
};

static void step_end(struct reconcile *r);

/* Remove what is in `folder` for which `keep` says no. */
static void folder_sweep(const char *folder, bool (*keep)(struct node *n, const char *folder, const char *name), struct node *n)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..") || keep(n, folder, entry->d_name))
            continue;
        _cleanup_free_ char *path = xasprintf("%s/%s", folder, entry->d_name);
        dir_remove_tree(path, NULL);
    }
    closedir(dir);
}

static bool keep_finished(struct node *n, const char *folder, const char *name)
{
    (void)n;
    (void)folder;
    return name[0] != '.';
}

static bool keep_template(struct node *n, const char *folder, const char *name)
{
    if (name[0] == '.')
        return false;
    _cleanup_free_ char *shapes = xasprintf("%s/%s/shapes", folder, name);
    folder_sweep(shapes, keep_finished, n);
    return true;
}

static bool keep_recent(struct node *n, const char *folder, const char *name)
{
    (void)n;
    _cleanup_free_ char *path = xasprintf("%s/%s", folder, name);
    struct stat st;
    return lstat(path, &st) == 0 && clock_wall_ms() / 1000 - st.st_mtim.tv_sec < INCOMING_KEPT_S;
}

static bool keep_machine(struct node *n, const char *folder, const char *name)
{
    (void)folder;
    struct node_entry *m = NULL;
    HASH_FIND_STR(n->machines, name, m);
    return m != NULL;
}

static bool keep_sandbox(struct node *n, const char *folder, const char *name)
{
    (void)folder;
    struct node_entry *m, *next;
    HASH_ITER (hh, n->machines, m, next)
        if (str_eq(m->pub.sandbox_id, name))
            return true;
    return false;
}

static void reconcile_finish(void *arg)
{
    struct reconcile *r = arg;
    struct node *n = r->node;
    folder_sweep(n->machines_folder, keep_machine, n);
    folder_sweep(n->sandboxes_folder, keep_sandbox, n);
    if (!r->e.code)
        n->ready = true;
    r->done(r->arg, r->e.code ? &r->e : NULL);
    free(r);
    pool_refill_soon(n);
}

static void on_cleaned(void *arg, int code, const struct err *e)
{
    struct reconcile *r = arg;
    if (code < 0 && !r->e.code && e)
        r->e = *e;
    step_end(r);
}

static void on_list(void *arg, int code, const struct priv_machine *machines, size_t count, const struct err *e)
{
    struct reconcile *r = arg;
    if (code < 0 && e)
        r->e = *e;
    for (size_t i = 0; code >= 0 && i < count; i++) {
        if (machines[i].slot < r->node->config->slots && r->node->slots[machines[i].slot])
            continue;
        r->waiting++;
        priv_clean(r->node->priv, machines[i].slot, on_cleaned, r);
    }
    step_end(r);
}

static void step_end(struct reconcile *r)
{
    if (--r->waiting > 0)
        return;
    if (!r->listed && !r->e.code) {
        r->listed = true;
        r->waiting = 1;
        priv_list(r->node->priv, on_list, r);
        return;
    }
    node_defer(r->node, reconcile_finish, r);
}

/* An adopted machine answers, or is lost. */
static void on_adopted(void *arg, const struct err *e)
{
    struct node_entry *m = arg;
    struct reconcile *r = m->step_arg;
    m->step_arg = NULL;
    if (!e) {
        m->stage = STAGE_CLAIMED;
        m->pub.paused = machine_state(m->machine) == MACHINE_PAUSED;
        if (!m->pub.paused) {
            entry_watch(m);
            uv_timer_stop(&m->timer);
            entry_guest_lost(m, m->machine, NULL); /* connect now and see that the agent answers */
        }
    }
    step_end(r); /* a failure goes on in entry_machine_ended */
}

static void adopt(struct reconcile *r, const struct store_machine *row)
{
    struct node *n = r->node;
    struct err e = {0};
    struct node_entry *m = NEW(struct node_entry);
    memcpy(m->pub.id, row->id, ID_SIZE);
    memcpy(m->pub.sandbox_id, row->sandbox_id, ID_SIZE);
    snprintf(m->pub.template_digest, sizeof(m->pub.template_digest), "%s", row->template_digest);
    m->pub.shape = (struct shape){row->vcpus, row->memory_mib, row->disk_mib};
    m->pub.slot = row->slot;
    m->pub.pid = row->pid;
    m->pub.pid_start_time = row->pid_start_time;
    m->pub.jail_missing = (uint32_t)row->jail_missing;
    m->pub.accelerator = row->accelerator == STORE_ACCELERATOR_KVM ? ACCELERATOR_KVM : ACCELERATOR_TCG;
    m->node = n;
    m->overlay_fd = -1;
    m->stage = STAGE_ADOPTING;
    TAILQ_INIT(&m->removals);
    uv_timer_init(n->loop, &m->timer);
    m->timer.data = m;
    m->timer_open = true;
    n->slots[row->slot] = m;
    HASH_ADD_STR(n->machines, pub.id, m);
    const struct priv_machine process = {.slot = row->slot, .pid = row->pid, .start_time = row->pid_start_time};
    m->step_arg = r;
    r->waiting++;
    if (machine_adopt(&n->context, row->id, &process, entry_machine_ended, on_adopted, m, &m->machine, &e) < 0) {
        step_end(r);
        entry_lost(m, e.text);
    }
}

void node_reconcile(struct node *n, void (*done)(void *arg, const struct err *e), void *arg)
{
    struct reconcile *r = NEW(struct reconcile);
    *r = (struct reconcile){.node = n, .done = done, .arg = arg, .waiting = 1};
    _cleanup_store_machine_list_ struct store_machine_list rows = {0};
    folder_sweep(n->templates_folder, keep_template, n);
    folder_sweep(n->incoming_folder, keep_recent, n);
    store_machine_list(n->store, &rows, &r->e);
    for (size_t i = 0; i < rows.count; i++) {
        const struct store_machine *row = rows.items[i];
        bool in_range = row->slot < n->config->slots && !n->slots[row->slot];
        if (row->kind == STORE_MACHINE_CLAIMED && row->pid > 0 && in_range) {
            adopt(r, row);
            continue;
        }
        if (in_range) {
            r->waiting++;
            priv_clean(n->priv, row->slot, on_cleaned, r);
        }
        store_machine_delete(n->store, row->id, NULL);
    }
    step_end(r);
}

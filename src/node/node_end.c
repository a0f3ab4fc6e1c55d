/* The end of a machine, by the node's will (entry_remove) or not (entry_lost). It is over when the process, its cgroup,
 * its folder and its row are gone; then the slot is free and the entry is freed. */
#include "base/file.h"
#include "node/node_internal.h"

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
        _cleanup_free_ char *folder = entry_sandbox_folder(m);
        dir_remove_tree(folder, NULL);
    }
    n->slots[m->pub.slot] = NULL;
    HASH_DEL(n->machines, m);
    identity_free(m);
    free(m->lost_reason);
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
    bool answers =
        m->machine && (machine_state(m->machine) == MACHINE_RUNNING || machine_state(m->machine) == MACHINE_PAUSED);
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

/* Consoles: of machines that are there, and the last words of those that were lost, which stay in memory. */
#include "base/str.h"
#include "node/node_internal.h"

struct kept_console {
    TAILQ_ENTRY(kept_console) link;
    char sandbox_id[ID_SIZE];
    struct buf bytes;
};

static struct kept_console *kept_find(struct node *n, const char *sandbox_id)
{
    struct kept_console *k;
    TAILQ_FOREACH (k, &n->consoles, link)
        if (str_eq(k->sandbox_id, sandbox_id))
            return k;
    return NULL;
}

static void kept_free(struct node *n, struct kept_console *k)
{
    TAILQ_REMOVE(&n->consoles, k, link);
    n->console_count--;
    buf_done(&k->bytes);
    free(k);
}

void console_keep(struct node *n, const char *sandbox_id, const struct buf *seen)
{
    if (!sandbox_id[0] || !seen)
        return;
    node_console_forget(n, sandbox_id);
    if (n->console_count >= NODE_CONSOLES_MAX)
        kept_free(n, TAILQ_FIRST(&n->consoles));
    struct kept_console *k = NEW(struct kept_console);
    snprintf(k->sandbox_id, sizeof(k->sandbox_id), "%s", sandbox_id);
    buf_init(&k->bytes, MACHINE_CONSOLE_MAX);
    buf_put(&k->bytes, buf_data(seen), MIN(seen->len, (size_t)MACHINE_CONSOLE_MAX));
    TAILQ_INSERT_TAIL(&n->consoles, k, link);
    n->console_count++;
}

const struct buf *node_console_kept(struct node *n, const char *sandbox_id)
{
    const struct kept_console *k = kept_find(n, sandbox_id);
    return k ? &k->bytes : NULL;
}

void node_console_forget(struct node *n, const char *sandbox_id)
{
    struct kept_console *k = kept_find(n, sandbox_id);
    if (k)
        kept_free(n, k);
}

void consoles_free(struct node *n)
{
    struct kept_console *k;
    while ((k = TAILQ_FIRST(&n->consoles)))
        kept_free(n, k);
}

void node_console(struct node *n, const char *machine_id, node_console_cb cb, void *arg)
{
    struct node_entry *m = entry_find(n, machine_id);
    if (m && m->machine) {
        machine_console(m->machine, cb, arg);
        return;
    }
    struct err e = {0};
    err_set(&e, ERR_NOT_FOUND, "the machine is not there");
    cb(arg, NULL, 0, &e);
}

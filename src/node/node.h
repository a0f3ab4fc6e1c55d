/* The node: everything that one host runs. It owns the machines, the slots, the pools of machines kept ready for each
 * template shape, and the memory budget; it brings a machine from nothing to "answers as this sandbox", and removes it.
 *
 * It knows templates and machines, not sandboxes' lifetimes, owners or the API: that is src/control. Machines are named
 * by id in every callback, so that a late callback misses a look-up instead of touching freed memory. */
#ifndef SPACE_NODE_NODE_H
#define SPACE_NODE_NODE_H

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"

struct config;
struct guest;
struct node;
struct store;

#define DIGEST_SIZE 65 /* SHA-256 in hex and NUL */

enum accelerator { ACCELERATOR_TCG = 0, ACCELERATOR_KVM = 1 };

struct shape {
    uint32_t vcpus;    /* 1–8 */
    uint32_t mem_mib;  /* 128–8192 */
    uint32_t disk_mib; /* 256–65536, not smaller than the template's root file system */
};

/* ERR_INVALID with the bound that was passed. */
int shape_check(const struct shape *s, struct err *e);

/* What a machine is to become. Strings are copied. */
struct node_identity {
    const char *sandbox_id;
    const char *hostname;
    const char *const *env; /* NULL-terminated "KEY=VALUE", may be NULL */
};

/* How a machine can end by itself. */
struct node_callbacks {
    /* A claimed machine is gone (QEMU ended, guest panicked, agent lost, out of protocol). The node has already begun
     * to free everything of it. */
    void (*on_machine_lost)(void *arg, const char *machine_id, const char *sandbox_id, const char *reason);
    /* A machine that was nobody's yet has ended: in a pool, on its way there, or on its way to a claim, which tries
     * another. Nothing has to be done. May be NULL. */
    void (*on_spare_lost)(void *arg, const char *machine_id, const char *reason);
    /* The privileged half has ended: no machine can be started any more. May be NULL. */
    void (*on_helper_gone)(void *arg, const struct err *why);
    /* Pools, templates or budget changed (for readiness and metrics); may be NULL. */
    void (*on_change)(void *arg);
};

/* How a claim was served, and what each step took. */
enum claim_source { CLAIM_COLD, CLAIM_BLANK, CLAIM_HOT };
struct node_machine {
    char id[ID_SIZE];
    char sandbox_id[ID_SIZE];
    char template_digest[DIGEST_SIZE];
    struct shape shape;
    uint32_t slot;
    int pid;
    uint64_t pid_start_time; /* clock ticks since boot, /proc/PID/stat field 22 */
    enum accelerator accelerator;
    uint32_t jail_missing; /* bits of enum jail_feature that are not in force */
    enum claim_source source;
    bool paused;
    uint64_t claim_us;
};

/* What the configuration's own check cannot know: names of jail features. node_new asks it too. */
int node_config_check(const struct config *config, struct err *e);

int node_new(uv_loop_t *loop, const struct config *config, struct store *store, const struct node_callbacks *callbacks,
             void *arg, struct node **ret_node, struct err *e);

/* Find the machines of an earlier life: adopt those that the store says belong to a living sandbox, remove the rest
 * (processes, cgroups, folders, sockets). Calls `done` when every one is adopted or removed; then node_machine_find
 * tells which are there. Machines that could not be adopted have been reported by on_machine_lost before. */
void node_reconcile(struct node *n, void (*done)(void *arg, const struct err *e), void *arg);

/* Stop: no new claims; pool machines are removed, claimed ones are left running unless kill_all. */
void node_stop(struct node *n, bool kill_all, void (*done)(void *arg), void *arg);
void node_free(struct node *n);

/* ---- machines ---- */

/* On success `m` describes the machine (valid during the call), its agent has confirmed the identity and answers.
 * ERR_UNAVAILABLE: no slot or memory left, nothing changed. Called exactly once, unless cancelled. */
typedef void (*node_claim_cb)(void *arg, const struct node_machine *m, const struct err *e);

/* Take a machine for a sandbox: from the hot pool, else a blank one, else a new one; first use of a shape builds its
 * checkpoint (progress by the template build functions below). machine_id receives the id of the machine as soon as
 * one is bound (in the store, before anything acts on it). Returns a claim number for node_claim_cancel. */
uint64_t node_claim(struct node *n, const char *template_digest, const struct shape *shape,
                    const struct node_identity *identity, node_claim_cb cb, void *arg);
/* No callback any more; a machine already bound is removed. An unknown number is fine. */
void node_claim_cancel(struct node *n, uint64_t claim);

const struct node_machine *node_machine_find(struct node *n, const char *machine_id); /* NULL if not there */

typedef void (*node_done_cb)(void *arg, const struct err *e);
void node_pause(struct node *n, const char *machine_id, node_done_cb cb, void *arg);  /* vCPUs stopped when called */
void node_resume(struct node *n, const char *machine_id, node_done_cb cb, void *arg); /* clock set again */
/* Kill and free everything; fine when it is gone already. Called when nothing is left. */
void node_remove(struct node *n, const char *machine_id, node_done_cb cb, void *arg);

/* The connection to the guest agent of a running machine, or NULL with ERR_STATE (paused), ERR_NOT_FOUND (gone) or
 * ERR_UNAVAILABLE (being reconnected). Borrowed: look it up for each call. */
struct guest *node_guest(struct node *n, const char *machine_id, struct err *e);

/* The newest bytes of the guest console (at most the ring's size; raw guest bytes, valid during the call), or an error.
 * Works on a paused machine too. */
typedef void (*node_console_cb)(void *arg, const void *data, size_t len, const struct err *e);
void node_console(struct node *n, const char *machine_id, node_console_cb cb, void *arg);

/* The last console bytes of a sandbox whose machine was lost, or NULL: of a QEMU that was killed from outside nothing can
 * be read any more but what somebody had read before. Kept in memory, of the NODE_CONSOLES_MAX sandboxes lost last. */
#define NODE_CONSOLES_MAX 64
const struct buf *node_console_kept(struct node *n, const char *sandbox_id);
void node_console_forget(struct node *n, const char *sandbox_id);

/* ---- templates ---- */

typedef void (*node_progress_cb)(void *arg, const char *step, uint64_t done, uint64_t total);
typedef void (*node_template_cb)(void *arg, const char *digest, const struct err *e);

/* The name of a folder in `<state>/incoming/`: [a-z0-9][a-z0-9._-]{0,79}. */
#define NODE_INCOMING_NAME_MAX 80
bool node_incoming_valid(const char *name);

/* Take `<state>/incoming/<name>` (made by the build script: manifest.json, rootfs.raw, vmlinuz, initramfs.img), check
 * every part against its digest, boot it once with the default shape, warm it up, freeze it, and move it to
 * `<state>/templates/<digest>`. A template that is there already is a success. Nothing is left of one that failed. */
void node_template_import(struct node *n, const char *incoming_name, node_progress_cb progress, node_template_cb done,
                          void *arg);
/* The checkpoint of one more shape (at once when there is one). */
void node_template_prepare(struct node *n, const char *digest, const struct shape *shape, node_progress_cb progress,
                           node_template_cb done, void *arg);
/* Machines in the pools are removed, then the folder. ERR_CONFLICT when a claimed machine uses it. */
void node_template_remove(struct node *n, const char *digest, node_done_cb cb, void *arg);
bool node_template_exists(struct node *n, const char *digest);
/* Size of the root file system in MiB, 0 when unknown. */
uint32_t node_template_disk_mib(struct node *n, const char *digest);

/* The shapes of which there is a checkpoint that this node's accelerator and QEMU can use, in no order. At most `max`;
 * returns how many there are. */
struct node_template_shape {
    struct shape shape;
    enum accelerator accelerator;
    char qemu_version[32];
};
size_t node_template_shapes(struct node *n, const char *digest, struct node_template_shape *ret_shapes, size_t max);

/* ---- state of the node ---- */

struct node_stats {
    enum accelerator accelerator;
    const char *qemu_version;       /* "10.0.2" */
    uint32_t jail_missing;          /* features that machines of this node lack */
    bool root;                      /* the privileged helper has root */
    uint32_t machines, claimed, paused, hot, blank, starting, claims_waiting;
    uint32_t slots, slots_used;
    uint64_t pool_memory_bytes, pool_memory_max_bytes;
    uint64_t claims_hot, claims_blank, claims_cold, claims_failed, machines_lost;
    bool ready; /* reconciled, privileged helper alive */
};
void node_stats_get(struct node *n, struct node_stats *ret_stats);

/* The pools of one template shape. */
struct node_pool {
    char template_digest[DIGEST_SIZE];
    struct shape shape;
    uint32_t hot, hot_starting, hot_target;
    uint32_t blank, blank_starting, blank_target;
};
/* At most `max` pools; returns how many there are. */
size_t node_pools_get(struct node *n, struct node_pool *ret_pools, size_t max);

#endif

/* What the files of src/node share. Nothing outside of this folder includes it.
 *
 *   node.c           life of the node, look-ups, stats      node_machine.c   one machine's way from nothing to ready
 *   node_claim.c     claims: who gets which machine         node_identity.c  who it is
 *   node_pool.c      how many machines are kept ready       node_watch.c     heartbeat, pause and resume
 *   node_shape.c     template shapes: load, verify          node_end.c       its end
 *   node_build.c     boot, warm up, freeze                  node_console.c   consoles, also of machines that were lost
 *   node_import.c    incoming folders to templates          node_reconcile.c an earlier life's leftovers
 *   node_programs.c  where QEMU and the helpers lie */
#ifndef SPACE_NODE_NODE_INTERNAL_H
#define SPACE_NODE_NODE_INTERNAL_H

#include <sys/queue.h>
#include <uthash.h>

#include "base/buf.h"
#include "config/config.h"
#include "machine/machine.h"
#include "node/node.h"
#include "store/machine.h"
#include "store/store.h"

#define NODE_LOST_RETRY_MS 200
#define SHAPE_KEY_SIZE 96
#define NODE_MACHINE_OVERHEAD_BYTES (48 * MIB) /* what a machine costs beside its guest memory, for the pools' budget */

struct template {
    char digest[DIGEST_SIZE];
    char *folder;
    int rootfs_fd, kernel_fd, initrd_fd;
    uint32_t disk_mib; /* of the root file system */
    UT_hash_handle hh;
};

enum shape_state { SHAPE_NEW, SHAPE_LOADING, SHAPE_BUILDING, SHAPE_READY };

struct shape_waiter {
    TAILQ_ENTRY(shape_waiter) link;
    node_progress_cb progress;
    void (*done)(void *arg, const struct err *e);
    void *arg;
};

/* A template at one machine shape: its frozen machine, kept ready to be cloned. */
struct shape_entry {
    TAILQ_ENTRY(shape_entry) link;
    struct node *node;
    struct template *template;
    struct shape shape;
    char key[SHAPE_KEY_SIZE];
    enum shape_state state;
    int memory_fd;  /* sealed memfd */
    int layer_fd;   /* disk.qcow2, read-only */
    int overlay_fd; /* an empty overlay to copy from */
    struct buf device_state;
    TAILQ_HEAD(, shape_waiter) waiters;
    uint64_t used_ms; /* when it was last claimed: the pools are for what is in use */
    bool pooled;
    bool removing;
};

enum stage {
    STAGE_STARTING,   /* process, control connection, shared disks */
    STAGE_BLANK,
    STAGE_RESTORING,  /* device state being read */
    STAGE_IDENTIFYING,
    STAGE_WARMING,    /* runs pool_warm_command once, so that the path of a first exec is translated and in memory */
    STAGE_HOT,
    STAGE_CLAIMED,
    STAGE_BUILDING,   /* belongs to node_build.c */
    STAGE_ADOPTING,
    STAGE_REMOVING,
};

struct claim;
struct build;

struct node_entry {
    struct node_machine pub;
    struct node *node;
    struct machine *machine;
    struct shape_entry *shape; /* NULL: built or adopted */
    enum stage stage;
    int overlay_fd;
    struct claim *claim;       /* waits for this machine */
    uint64_t identified_for;   /* number of the claim whose identity was sent last; 0: the pool's */
    char *hostname, **env;     /* of the sandbox, to be renewed after a pause */
    char machine_uuid[33], boot_uuid[37];
    bool counted_hot;          /* meant for the hot pool */
    /* a step asked for from outside: pause, resume */
    node_done_cb step;
    void *step_arg;
    bool checking;             /* the agent's answer is awaited */
    uint64_t lost_since_ms;    /* guest connection; 0: it is there */
    char *lost_reason;         /* it is lost, and its console is being read before it is removed */
    uv_timer_t timer;          /* reconnect, heartbeat */
    bool timer_open;
    struct guest_call *call;   /* under way by the node itself */
    struct build *build;       /* STAGE_BUILDING: node_build.c */
    TAILQ_HEAD(, node_removal) removals;
    UT_hash_handle hh;
};

struct node_removal {
    TAILQ_ENTRY(node_removal) link;
    node_done_cb cb;
    void *arg;
};

struct claim {
    TAILQ_ENTRY(claim) link;
    struct node *node;
    uint64_t number;
    char digest[DIGEST_SIZE];
    struct shape shape;
    unsigned attempts;
    char *sandbox_id, *hostname;
    char **env;
    node_claim_cb cb;
    void *arg;
    char machine_id[ID_SIZE]; /* empty: none bound */
    enum claim_source source;
    uint64_t start_ns;
    bool waiting_for_shape;
};

struct node {
    uv_loop_t *loop;
    const struct config *config;
    struct store *store;
    struct node_callbacks callbacks;
    void *arg;
    struct priv *priv;
    struct machine_context context;
    char *machines_folder, *templates_folder, *sandboxes_folder, *incoming_folder;
    char *qemu_path, *qemu_data, *qemu_img;
    char qemu_version[32];
    enum accelerator accelerator;
    struct template *templates;
    TAILQ_HEAD(, shape_entry) shapes;
    struct node_entry *machines;
    struct node_entry **slots;
    uint32_t slot_next;
    TAILQ_HEAD(, claim) claims;
    uint64_t claim_next;
    uv_timer_t pool_timer;
    bool pool_timer_open;
    TAILQ_HEAD(console_list, kept_console) consoles; /* of sandboxes whose machine was lost, oldest first */
    size_t console_count;
    unsigned spares_lost; /* one after the other: the pools wait longer each time */
    bool ready, stopping, kill_all;
    struct err gone; /* space-priv is gone: why */
    void (*stopped)(void *arg);
    void *stopped_arg;
    struct node_stats stats;
};

/* node.c */
struct node_entry *entry_find(struct node *n, const char *machine_id); /* NULL: not there, or being removed */
void node_defer(struct node *n, void (*call)(void *arg), void *arg); /* from the loop, soon */

/* node_machine.c */
void entry_prepare_for(struct node_entry *m, struct claim *c); /* bind and go on from where it is */
struct node_entry *entry_start(struct shape_entry *s, bool hot, struct err *e);
struct node_entry *entry_new(struct node *n, const struct shape *shape, const char *digest, struct err *e);
char *entry_sandbox_folder(const struct node_entry *m); /* the caller's */
int32_t slot_take(struct node *n); /* -1: none free */

/* node_console.c */
void console_keep(struct node *n, const char *sandbox_id, const struct buf *seen);
void consoles_free(struct node *n);

/* node_identity.c */
void identity_take(struct node_entry *m); /* made new for the claim that the machine is bound to, or for the pool */
int identity_save(struct node_entry *m, struct err *e);
bool identity_load(struct node_entry *m);
void identity_send(struct node_entry *m, guest_identity_cb *done); /* with entropy and the time; sets m->call */
void identity_free(struct node_entry *m);

/* node_watch.c (also node_pause, node_resume) */
void entry_watch(struct node_entry *m); /* heartbeat of a claimed or hot machine */
void entry_guest_lost(void *arg, struct machine *machine, const struct err *e);

/* node_end.c */
void entry_remove(struct node_entry *m, node_done_cb cb, void *arg);
void entry_lost(struct node_entry *m, const char *reason);
void entry_machine_ended(void *arg, struct machine *machine, const char *reason);

/* node_claim.c */
void claim_finish(struct claim *c, struct node_entry *m, const struct err *e); /* frees it */
void claim_machine_failed(struct claim *c, const struct err *e);               /* its machine ended before it was ready */

/* node_pool.c */
void pool_refill_soon(struct node *n);
void pool_forget_shape(struct shape_entry *s); /* remove its unclaimed machines */
void pool_count(struct node *n, struct node_stats *ret_stats);

/* node_shape.c */
struct template *template_find(struct node *n, const char *digest, struct err *e); /* opens it on first use */
struct template *template_open(struct node *n, const char *digest, const char *folder, struct err *e);
void template_forget(struct node *n, struct template *t);
struct shape_entry *shape_find(struct node *n, const char *digest, const struct shape *shape, struct err *e);
/* Make it READY: load from disk, or build. `done` from the loop. */
void shape_ensure(struct shape_entry *s, node_progress_cb progress, void (*done)(void *arg, const struct err *e),
                  void *arg);
void shape_key(const struct node *n, const struct shape *s, char ret_key[SHAPE_KEY_SIZE]); /* <template>/shapes/<key> */
char *shape_folder(const struct shape_entry *s);                   /* the caller's */
void shape_load(struct shape_entry *s);                            /* from its folder; ends by shape_settled */
void shape_settled(struct shape_entry *s, const struct err *e);    /* READY, or back to NEW and the waiters told */
void shape_progress(struct shape_entry *s, const char *step, uint64_t done, uint64_t total);
void shape_free(struct shape_entry *s);
int parts_write(const char *folder, const char *const *parts, size_t count, struct err *e); /* manifest with SHA-256 */
int parts_verify(const char *folder, const char *const *parts, size_t count, struct err *e);
int file_sha256(const char *path, char ret_hex[DIGEST_SIZE], uint64_t *ret_size, struct err *e);

/* node_build.c */
void shape_build(struct shape_entry *s); /* ends by shape_load or shape_settled */
void build_machine_ended(struct build *b, const char *reason);

#endif

/* Machines: every QEMU process that was started, so that a restarted daemon finds each of them again and can tell a
 * process of its own from one that got the same pid later. A row is written before the process is asked for. */
#ifndef SPACE_STORE_MACHINE_H
#define SPACE_STORE_MACHINE_H

#include "store/sandbox.h"

enum store_machine_kind {
    STORE_MACHINE_BLANK,   /* started, nothing loaded */
    STORE_MACHINE_HOT,     /* restored and running, belongs to nobody */
    STORE_MACHINE_CLAIMED, /* belongs to a sandbox */
    STORE_MACHINE_BUILD,   /* boots a template or a shape */
};
const char *store_machine_kind_name(enum store_machine_kind kind);

struct store_machine {
    char id[ID_SIZE];
    enum store_machine_kind kind;
    uint32_t slot;           /* unique */
    int32_t pid;             /* 0: not started yet */
    uint64_t pid_start_time; /* clock ticks since boot */
    char *template_digest;
    uint32_t vcpus, memory_mib, disk_mib;
    enum store_accelerator accelerator;
    uint64_t jail_missing;
    char sandbox_id[ID_SIZE]; /* of a claimed one; else empty */
    int64_t created_at_ms;
};

void store_machine_free(struct store_machine *m);
static inline void cleanup_store_machine(struct store_machine **m)
{
    store_machine_free(*m);
}
#define _cleanup_store_machine_ _cleanup_(cleanup_store_machine)

struct store_machine_list {
    struct store_machine **items;
    size_t count;
};
void store_machine_list_done(struct store_machine_list *list);
#define _cleanup_store_machine_list_ _cleanup_(store_machine_list_done)

/* ERR_CONFLICT: the id or the slot is taken. */
int store_machine_insert(struct store *s, const struct store_machine *m, struct err *e);
int store_machine_get(struct store *s, const char *id, struct store_machine **ret_machine, struct err *e);
int store_machine_list(struct store *s, struct store_machine_list *ret_list, struct err *e); /* all, by slot */
/* Its process, and what of the jail it lacks; for its sandbox too, if it has one. */
int store_machine_set_process(struct store *s, const char *id, int32_t pid, uint64_t pid_start_time,
                              uint64_t jail_missing, struct err *e);
/* blank ↔ hot; ERR_STATE when it is claimed. */
int store_machine_set_kind(struct store *s, const char *id, enum store_machine_kind kind, struct err *e);
/* One commit: the machine is the sandbox's (also in the sandbox's row, see store_sandbox_set_machine).
 * ERR_STATE: somebody else has it. */
int store_machine_claim(struct store *s, const char *id, const char *sandbox_id, struct err *e);
/* Also empties the machine of the sandbox that had it. A missing row is fine. */
int store_machine_delete(struct store *s, const char *id, struct err *e);

#endif

/* Sandboxes: what was asked for, which state they are in, and which machine is theirs.
 *
 * A row is made in state `creating` and ends in `deleted` or `failed`; rows that ended are kept for a time and then
 * pruned. State changes are compare-and-set; each one adds an event in the same transaction. */
#ifndef SPACE_STORE_SANDBOX_H
#define SPACE_STORE_SANDBOX_H

#include "store/store.h"

enum store_sandbox_state {
    STORE_SANDBOX_CREATING,
    STORE_SANDBOX_RUNNING,
    STORE_SANDBOX_PAUSING,
    STORE_SANDBOX_PAUSED,
    STORE_SANDBOX_RESUMING,
    STORE_SANDBOX_DELETING,
    STORE_SANDBOX_DELETED,
    STORE_SANDBOX_FAILED,
};
#define STORE_SANDBOX_STATES 8
#define STORE_SANDBOX_ANY ((1u << STORE_SANDBOX_STATES) - 1)
#define STORE_SANDBOX_ENDED (STORE_MASK(STORE_SANDBOX_DELETED) | STORE_MASK(STORE_SANDBOX_FAILED))
#define STORE_SANDBOX_LIVE (STORE_SANDBOX_ANY & ~STORE_SANDBOX_ENDED)
#define STORE_SANDBOX_CHANGING                                                                                         \
    (STORE_MASK(STORE_SANDBOX_CREATING) | STORE_MASK(STORE_SANDBOX_PAUSING) | STORE_MASK(STORE_SANDBOX_RESUMING) |     \
     STORE_MASK(STORE_SANDBOX_DELETING))

const char *store_sandbox_state_name(enum store_sandbox_state state);
bool store_sandbox_state_by_name(const char *name, enum store_sandbox_state *ret_state);

enum store_accelerator { STORE_ACCELERATOR_TCG, STORE_ACCELERATOR_KVM };

#define STORE_METADATA_PAIRS_MAX 64
#define STORE_METADATA_KEY_MAX 128
#define STORE_METADATA_VALUE_MAX 1024
#define STORE_METADATA_JSON_MAX 16384
#define STORE_ENV_PAIRS_MAX 1024
#define STORE_ENV_KEY_MAX 256
#define STORE_ENV_JSON_MAX 65536

struct store_sandbox {
    char id[ID_SIZE];
    char project_id[ID_SIZE];
    char *name; /* NULL or ≤ 128 bytes; need not be unique */
    enum store_sandbox_state state;
    char *reason; /* why it is in this state; NULL or ≤ 1,024 bytes, longer is cut */

    char *template_digest;
    char *template_tag; /* as asked for; NULL when the digest was given */
    uint32_t vcpus, memory_mib, disk_mib;
    enum store_accelerator accelerator;
    uint64_t jail_missing; /* bits of the jail's features that this host could not give; 0: a full jail */

    char *env_json;      /* object of strings; NULL stands for {} */
    char *metadata_json; /* object of strings; NULL stands for {} */

    uint64_t timeout_ms;
    int64_t created_at_ms;
    int64_t ready_at_ms;         /* 0: not yet */
    int64_t expires_at_ms;       /* 0: no deadline */
    int64_t state_changed_at_ms;
    int64_t ended_at_ms;         /* 0: has not ended */

    /* The machine that is its own; empty id and zeroes: none. */
    char machine_id[ID_SIZE];
    int32_t slot; /* -1: none */
    int32_t pid;
    uint64_t pid_start_time; /* clock ticks since boot, field 22 of /proc/PID/stat */
    uint64_t generation;     /* counts the machines that this sandbox has had */
};

void store_sandbox_free(struct store_sandbox *sb);
static inline void cleanup_store_sandbox(struct store_sandbox **sb)
{
    store_sandbox_free(*sb);
}
#define _cleanup_store_sandbox_ _cleanup_(cleanup_store_sandbox)

struct store_sandbox_list {
    struct store_sandbox **items;
    size_t count;
    char next_cursor[STORE_CURSOR_SIZE]; /* empty: this was the last page */
};
void store_sandbox_list_done(struct store_sandbox_list *list);
#define _cleanup_store_sandbox_list_ _cleanup_(store_sandbox_list_done)

/* `sb` is copied. Takes id, project, name, state, reason, template, shape, accelerator, jail, env, metadata, times;
 * a machine only through store_sandbox_set_machine. ERR_CONFLICT: the id exists. ERR_NOT_FOUND: no such project. */
int store_sandbox_insert(struct store *s, const struct store_sandbox *sb, struct err *e);

int store_sandbox_get(struct store *s, const char *project_id, const char *id, struct store_sandbox **ret_sandbox,
                      struct err *e);

#define STORE_SANDBOX_FILTERS_MAX 8
struct store_sandbox_filter {
    uint32_t state_mask; /* of STORE_MASK(state); 0 stands for STORE_SANDBOX_ANY */
    const char *name;    /* exactly; NULL: any */
    struct {
        const char *key, *value;
    } metadata[STORE_SANDBOX_FILTERS_MAX]; /* all of them must hold */
    size_t metadata_count;
};
/* `filter` and `page` may be NULL. */
int store_sandbox_list(struct store *s, const char *project_id, const struct store_sandbox_filter *filter,
                       const struct store_page *page, struct store_sandbox_list *ret_list, struct err *e);

/* How many have not ended; NULL: in all projects. Cheap. */
int store_sandbox_count_live(struct store *s, const char *project_id, uint64_t *ret_count, struct err *e);

/* Move to state `to` if the state is one of `from_mask`. Entering `running` for the first time sets ready_at, entering
 * `deleted` or `failed` sets ended_at. `reason` NULL clears it. ERR_NOT_FOUND; ERR_CONFLICT: it is in a state that
 * will end by itself (creating, pausing, …); ERR_STATE: it is in another state. */
int store_sandbox_set_state(struct store *s, const char *id, uint32_t from_mask, enum store_sandbox_state to,
                            const char *reason, int64_t now_ms, struct err *e);

struct store_machine_ref {
    const char *machine_id;
    int32_t slot;
    int32_t pid;
    uint64_t pid_start_time;
    enum store_accelerator accelerator;
    uint64_t jail_missing;
};
/* Its machine; adds 1 to `generation`. NULL: it has none any more. */
int store_sandbox_set_machine(struct store *s, const char *id, const struct store_machine_ref *machine,
                              struct err *e);

/* Change what the caller may change; each may be left alone. ERR_STATE: it has ended. */
struct store_sandbox_change {
    bool set_timeout;
    uint64_t timeout_ms;
    int64_t expires_at_ms;
    const char *metadata_json; /* replaces all of it; NULL: as it was */
    const char *name;          /* NULL: as it was; empty: none */
};
int store_sandbox_update(struct store *s, const char *project_id, const char *id,
                         const struct store_sandbox_change *change, int64_t now_ms, struct err *e);

/* ERR_INVALID or ERR_TOO_LARGE when the text is not an object of strings within the limits above; what
 * store_sandbox_insert and _update check, to be had before anything is done. NULL is valid. */
int store_metadata_check(const char *json, struct err *e);
int store_env_check(const char *json, struct err *e);

#endif

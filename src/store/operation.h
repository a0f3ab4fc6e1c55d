/* Operations: the durable record of each asynchronous change. */
#ifndef SPACE_STORE_OPERATION_H
#define SPACE_STORE_OPERATION_H

#include "store/store.h"

enum store_operation_state {
    STORE_OPERATION_PENDING,
    STORE_OPERATION_RUNNING,
    STORE_OPERATION_SUCCEEDED,
    STORE_OPERATION_FAILED,
};
#define STORE_OPERATION_STATES 4
#define STORE_OPERATION_ANY ((1u << STORE_OPERATION_STATES) - 1)
#define STORE_OPERATION_OPEN (STORE_MASK(STORE_OPERATION_PENDING) | STORE_MASK(STORE_OPERATION_RUNNING))

const char *store_operation_state_name(enum store_operation_state state);
bool store_operation_state_by_name(const char *name, enum store_operation_state *ret_state);

struct store_operation {
    char id[ID_SIZE];
    char project_id[ID_SIZE]; /* empty: the platform's own */
    char *kind;               /* "sandbox.create" …, 1–64 bytes */
    char *target_type;        /* "sandbox", "template"; 1–32 bytes */
    char *target_id;          /* 1–80 bytes */
    enum store_operation_state state;
    uint64_t progress_done, progress_total; /* total 0: not known */
    char *progress_step;                    /* NULL or ≤ 256 bytes */
    int error_code;                         /* of enum err_code; 0: none */
    char *error_text;                       /* NULL or ≤ 1,024 bytes */
    char *request_id;                       /* of the request that asked for it; NULL or ≤ 128 bytes */
    int64_t created_at_ms, started_at_ms, ended_at_ms; /* 0: not yet */
};

void store_operation_free(struct store_operation *op);
static inline void cleanup_store_operation(struct store_operation **op)
{
    store_operation_free(*op);
}
#define _cleanup_store_operation_ _cleanup_(cleanup_store_operation)

struct store_operation_list {
    struct store_operation **items;
    size_t count;
    char next_cursor[STORE_CURSOR_SIZE];
};
void store_operation_list_done(struct store_operation_list *list);
#define _cleanup_store_operation_list_ _cleanup_(store_operation_list_done)

int store_operation_insert(struct store *s, const struct store_operation *op, struct err *e);
int store_operation_get(struct store *s, const char *project_id, const char *id, struct store_operation **ret_op,
                        struct err *e);

struct store_operation_filter {
    uint32_t state_mask;   /* 0: any */
    const char *target_id; /* NULL: any */
    const char *kind;      /* NULL: any */
};
int store_operation_list(struct store *s, const char *project_id, const struct store_operation_filter *filter,
                         const struct store_page *page, struct store_operation_list *ret_list, struct err *e);

/* pending → running. ERR_STATE otherwise. */
int store_operation_start(struct store *s, const char *id, int64_t now_ms, struct err *e);
/* One commit a call: the caller decides how often. Ignored once the operation has ended. */
int store_operation_progress(struct store *s, const char *id, uint64_t done, uint64_t total, const char *step,
                             struct err *e);
/* Where the target is known only once the work is under way (the digest of an import). ERR_STATE: it has ended. */
int store_operation_set_target(struct store *s, const char *id, const char *target_id, struct err *e);
/* → succeeded when error_code is 0, else → failed. ERR_STATE: it had ended already. */
int store_operation_finish(struct store *s, const char *id, int error_code, const char *error_text, int64_t now_ms,
                           struct err *e);

#endif

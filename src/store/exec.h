/* Execs: one command in a sandbox. Made `reserved` with an attach token, started when first attached to. */
#ifndef SPACE_STORE_EXEC_H
#define SPACE_STORE_EXEC_H

#include "store/store.h"

enum store_exec_state {
    STORE_EXEC_RESERVED,
    STORE_EXEC_RUNNING,
    STORE_EXEC_EXITED,
    STORE_EXEC_FAILED, /* could not be started */
    STORE_EXEC_LOST,   /* its sandbox ended before it did */
};
#define STORE_EXEC_STATES 5
#define STORE_EXEC_ANY ((1u << STORE_EXEC_STATES) - 1)

const char *store_exec_state_name(enum store_exec_state state);
bool store_exec_state_by_name(const char *name, enum store_exec_state *ret_state);

#define STORE_TOKEN_PREFIX "at_"
#define STORE_TOKEN_SIZE 44 /* "at_", 40 hex digits, NUL */
#define STORE_EXEC_SPEC_MAX (1024 * 1024)

/* How it ended, as the guest says. */
struct store_exec_exit {
    int32_t exit_code;   /* -1: ended by a signal */
    int32_t exit_signal; /* 0: none */
    uint64_t output_bytes, dropped_bytes;
    uint64_t cpu_user_us, cpu_system_us, max_rss_bytes;
    bool oom, timed_out;
    int64_t started_at_ms, ended_at_ms; /* of the guest's clock; 0: not known */
};

struct store_exec {
    char id[ID_SIZE];
    char sandbox_id[ID_SIZE];
    char project_id[ID_SIZE];
    enum store_exec_state state;
    char *reason;     /* of failed and lost; NULL or ≤ 1,024 bytes */
    char *spec_json;  /* the request; ≤ 1 MiB */
    int32_t guest_pid; /* 0: not known */
    int64_t token_expires_at_ms;
    int64_t created_at_ms, started_at_ms, ended_at_ms; /* 0: not yet */
    struct store_exec_exit exit;                       /* of state exited */
};

void store_exec_free(struct store_exec *x);
static inline void cleanup_store_exec(struct store_exec **x)
{
    store_exec_free(*x);
}
#define _cleanup_store_exec_ _cleanup_(cleanup_store_exec)

struct store_exec_list {
    struct store_exec **items;
    size_t count;
    char next_cursor[STORE_CURSOR_SIZE];
};
void store_exec_list_done(struct store_exec_list *list);
#define _cleanup_store_exec_list_ _cleanup_(store_exec_list_done)

/* Insert in state `x->state`; a token is made, only its hash is kept. ERR_NOT_FOUND: no such sandbox. */
int store_exec_insert(struct store *s, const struct store_exec *x, char ret_token[STORE_TOKEN_SIZE], struct err *e);
/* sandbox_id NULL: of any sandbox. */
int store_exec_get(struct store *s, const char *project_id, const char *sandbox_id, const char *id,
                   struct store_exec **ret_exec, struct err *e);
/* state_mask 0: any. sandbox_id NULL: of all sandboxes. */
int store_exec_list(struct store *s, const char *project_id, const char *sandbox_id, uint32_t state_mask,
                    const struct store_page *page, struct store_exec_list *ret_list, struct err *e);
/* A token in the place of the one before, which is good no more. ERR_STATE: not reserved. */
int store_exec_renew_token(struct store *s, const char *id, int64_t token_expires_at_ms,
                           char ret_token[STORE_TOKEN_SIZE], struct err *e);
/* The exec if `token` is its attach token and not expired; else ERR_UNAUTHENTICATED, whatever the cause. */
int store_exec_verify_token(struct store *s, const char *sandbox_id, const char *id, const char *token,
                            int64_t now_ms, struct store_exec **ret_exec, struct err *e);

/* A new end of the token's life; ERR_NOT_FOUND. */
int store_exec_extend_token(struct store *s, const char *id, int64_t token_expires_at_ms, struct err *e);

/* reserved → running; ERR_STATE otherwise. */
int store_exec_start(struct store *s, const char *id, int32_t guest_pid, int64_t now_ms, struct err *e);
/* reserved or running → exited. The times that the API shows follow from how long the guest says that it ran. */
int store_exec_finish(struct store *s, const char *id, const struct store_exec_exit *exit, int64_t now_ms,
                      struct err *e);
/* reserved or running → failed or lost. */
int store_exec_fail(struct store *s, const char *id, enum store_exec_state to, const char *reason, int64_t now_ms,
                    struct err *e);
/* All of a sandbox that have not ended → lost; returns how many. */
int store_exec_lose_all(struct store *s, const char *sandbox_id, const char *reason, int64_t now_ms, struct err *e);
/* Remove the oldest that have ended, so that at most `keep` rows of the sandbox stay; returns how many went. */
int store_exec_trim(struct store *s, const char *sandbox_id, unsigned keep, struct err *e);
int store_exec_delete(struct store *s, const char *project_id, const char *sandbox_id, const char *id,
                      struct err *e);

#endif

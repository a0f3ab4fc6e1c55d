/* Idempotency keys: the same key of the same project gives the same answer for a time.
 *
 * For a change that is one commit, call _begin and _finish inside the transaction that writes the intent: a crash then
 * leaves either the answer or nothing. */
#ifndef SPACE_STORE_IDEMPOTENCY_H
#define SPACE_STORE_IDEMPOTENCY_H

#include "store/store.h"

#define STORE_IDEMPOTENCY_KEY_MAX 255
#define STORE_IDEMPOTENCY_BODY_MAX (256 * 1024)

enum store_idempotency_result {
    STORE_IDEMPOTENCY_NEW,     /* yours: go on, then finish or forget */
    STORE_IDEMPOTENCY_REPLAY,  /* *ret_answer is the kept answer */
    STORE_IDEMPOTENCY_RUNNING, /* the first request has no answer yet */
};

struct store_idempotency_answer {
    int status;     /* HTTP */
    char *location; /* NULL: none */
    char *body;
    size_t body_len;
    char *target_id; /* what it made; NULL: none */
    int64_t created_at_ms;
};
void store_idempotency_answer_done(struct store_idempotency_answer *answer);
#define _cleanup_store_idempotency_answer_ _cleanup_(store_idempotency_answer_done)

/* SHA-256 over method, path and body, for the parameter below. */
void store_request_hash(const char *method, const char *path, const void *body, size_t body_len,
                        uint8_t ret_hash[STORE_HASH_LEN]);

/* Returns an enum store_idempotency_result. Rows older than ttl_ms count as absent. ERR_CONFLICT: the key was used with
 * another request. ERR_INVALID: the key is empty or has other than printable ASCII; ERR_TOO_LARGE. */
int store_idempotency_begin(struct store *s, const char *project_id, const char *key,
                            const uint8_t request_hash[STORE_HASH_LEN], uint64_t ttl_ms, int64_t now_ms,
                            struct store_idempotency_answer *ret_answer, struct err *e);
int store_idempotency_finish(struct store *s, const char *project_id, const char *key,
                             const struct store_idempotency_answer *answer, struct err *e);
/* The request failed in a way that a repeat may cure. */
int store_idempotency_forget(struct store *s, const char *project_id, const char *key, struct err *e);

#endif

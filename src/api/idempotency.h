/* `Idempotency-Key`: a repeat of a call that has been answered gets that answer again. */
#ifndef SPACE_API_IDEMPOTENCY_H
#define SPACE_API_IDEMPOTENCY_H

#include "api/api_internal.h"
#include "store/idempotency.h"

struct idempotency {
    const char *key; /* NULL: the call has none, and the rest does nothing */
    char project_id[ID_SIZE];
    struct store_idempotency_answer kept; /* of a repeat */
};
void idempotency_done(struct idempotency *i);
#define _cleanup_idempotency_ _cleanup_(idempotency_done)

/* 0: go on; 1: a repeat, `kept` is the first answer (and the header that says so is added); negative: refused. */
int idempotency_begin(struct http_request *r, struct api *api, struct idempotency *ret, struct err *e);
/* Keep an answer; `body` is borrowed. */
int idempotency_keep(struct api *api, const struct idempotency *i, int status, const char *location, json_t *body,
                     const char *target_id, struct err *e);
/* Nothing was done: the key can be used again. */
void idempotency_forget(struct api *api, const struct idempotency *i);
/* Give the kept answer as it was. */
void idempotency_replay(struct http_request *r, const struct idempotency *i);

#endif

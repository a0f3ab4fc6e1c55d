/* Answers about a change of a sandbox: at once, or when it has ended. */
#ifndef SPACE_API_CHANGES_H
#define SPACE_API_CHANGES_H

#include "api/idempotency.h"

enum change { CHANGE_CREATE, CHANGE_OTHER };

/* Wait for the operation, then answer: 201 (create) or 200 with the finished thing, the problem that ended the
 * operation, or 202 when it has not ended in time. wait_ms 0: the state of this moment, 202 unless it failed. */
void change_wait(struct http_request *r, struct api *api, enum change change, const char *op_id,
                 const char *sandbox_id, uint64_t wait_ms);

/* A repeat: the kept answer, or with a wait what became of its operation. */
void change_replay(struct http_request *r, struct api *api, const struct idempotency *idem, enum change change,
                   uint64_t wait_ms);

#endif

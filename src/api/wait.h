/* `?wait=30s` and `Prefer: wait=30`. */
#ifndef SPACE_API_WAIT_H
#define SPACE_API_WAIT_H

#include "api/api_internal.h"

/* How long the client wants to wait, 0: not at all. Negative: refused. */
int wait_wanted(struct http_request *r, uint64_t *ret_ms, struct err *e);
/* The header that says that the wait was honoured. */
void wait_applied(struct http_request *r, uint64_t ms);

/* Wait for `id` (control/waiter.h) unless the client goes away, then call `go_on` once with the request still open. A
 * wait of 0 calls it at once. */
void wait_then(struct http_request *r, struct api *api, const char *id, uint64_t ms,
               void (*go_on)(struct http_request *r, struct api *api, void *data), void *data,
               void (*free_data)(void *data));

#endif

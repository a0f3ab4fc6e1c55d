/* Bytes from a guest call to the client's answer, with back-pressure from end to end: a byte is acknowledged to the
 * guest when the HTTP stream has taken it, so that never more than the guest call's window is held here. */
#ifndef SPACE_API_FLOW_H
#define SPACE_API_FLOW_H

#include "api/api_internal.h"
#include "guest/guest.h"

#define FLOW_HELD_MAX (4 * MIB) /* above every window of a stream */

struct outflow {
    struct http_request *request;
    struct guest_call *call; /* NULL: it has ended */
    struct buf held;
    bool finishing; /* end the answer when `held` is empty */
};

void outflow_init(struct outflow *o, struct http_request *r);
void outflow_done(struct outflow *o);
/* Bytes that the guest gave. */
void outflow_put(struct outflow *o, const uint8_t *data, size_t len);
/* The client can take more. True when that ended the answer: the owner frees itself. */
bool outflow_drain(struct outflow *o);
/* Nothing more comes from the guest. True as above. */
bool outflow_finish(struct outflow *o);

#endif

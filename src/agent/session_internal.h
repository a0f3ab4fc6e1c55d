/* Between session.c and request.c. */
#ifndef SPACE_AGENT_SESSION_INTERNAL_H
#define SPACE_AGENT_SESSION_INTERNAL_H

#include "agent/session.h"

/* The callbacks that make, feed and close requests. */
void request_callbacks(nghttp2_session_callbacks *cb);
/* `len` bytes of the answer. */
bool request_emit(struct request *r, uint8_t *to, size_t len);
/* The last call of a request: its handler hears of it, its memory goes. */
void request_close(struct request *r);

#endif

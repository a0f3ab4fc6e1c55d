/* The HTTP API: the routes of api/openapi.yaml over control, store and node. One file a resource; what they share is in
 * reply.h (answers), fields.h (JSON bodies), render.h (things as JSON), caller.h (who asks), wait.h, idempotency.h,
 * flow.h (bytes between a client and a guest). Nothing here keeps state that must survive. */
#ifndef SPACE_API_API_H
#define SPACE_API_API_H

#include "control/control.h"
#include "http/http_server.h"

struct api;

/* The server is made, and listens nowhere yet. */
int api_new(struct control *control, const struct config *config, const char *version, struct api **ret_api,
            struct err *e);
struct http_server *api_server(struct api *api);
/* After the server has stopped and the control too. `done` when no handle is open. */
void api_free(struct api *api, void (*done)(void *arg), void *arg);

/* Where accelerator and pools come from, in words: shown by /v1/node. */
void api_set_reason(struct api *api, const char *accelerator_reason);

#endif

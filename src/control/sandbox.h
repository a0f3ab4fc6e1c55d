/* Sandboxes: made, changed and ended. States and rules: lifecycle.h. */
#ifndef SPACE_CONTROL_SANDBOX_H
#define SPACE_CONTROL_SANDBOX_H

#include "control/control.h"
#include "control/lifecycle.h"

struct guest;
struct store_sandbox;

/* What a new sandbox is to be; strings are copied, NULL and 0 stand for the configured default. */
struct sandbox_spec {
    const char *project_id;
    const char *name;
    const char *template_ref; /* tag or digest; NULL: "base" */
    struct shape shape;
    const char *env_json;      /* objects of strings */
    const char *metadata_json;
    uint64_t timeout_ms;
    const char *request_id;
};

/* Check everything, write sandbox and operation to the store, and nothing else: the caller may put more into the same
 * transaction, and calls sandbox_begin after the commit. ERR_NOT_FOUND: no such template. ERR_INVALID: shape or timeout
 * out of bounds. ERR_LIMIT: the quota is used up. */
int sandbox_create(struct control *c, const struct sandbox_spec *spec, char ret_sandbox[ID_SIZE], char ret_op[ID_SIZE],
                   struct err *e);

/* Act on a sandbox that sandbox_create wrote. */
void sandbox_begin(struct control *c, const char *id);

/* A request for a change: LIFE_PAUSE, LIFE_RESUME or LIFE_DELETE. `ret_op` is the operation that does it, its own or the
 * one that is under way. ERR_NOT_FOUND; ERR_STATE: not possible in the present state. */
int sandbox_request(struct control *c, const char *project_id, const char *id, enum life_event request,
                    const char *request_id, char ret_op[ID_SIZE], struct err *e);

/* Timeout (counted from this moment; 0: as it was), metadata and name (NULL: as they were). */
int sandbox_change(struct control *c, const char *project_id, const char *id, uint64_t timeout_ms,
                   const char *metadata_json, const char *name, struct err *e);

/* The connection to the agent of a running sandbox, for one call. ERR_NOT_FOUND; ERR_STATE: paused or about to be
 * something else; ERR_GONE: it has ended; ERR_UNAVAILABLE: the agent is being connected again. */
struct guest *sandbox_guest(struct control *c, const char *project_id, const char *id, struct err *e);

/* Whether sandbox_guest could give one, without asking the node. */
int sandbox_require_running(struct control *c, const char *project_id, const char *id, struct err *e);

/* The machine of a sandbox that has one. Errors as above, but paused is fine. */
int sandbox_machine(struct control *c, const char *project_id, const char *id, char ret_machine[ID_SIZE],
                    struct err *e);

/* The newest bytes of its console, as node_console gives them; of one that has failed, what was kept of it. ERR_GONE:
 * nothing was, or it is deleted. */
void sandbox_console(struct control *c, const char *project_id, const char *id, node_console_cb cb, void *arg);

/* Which pool its machine came from; false when that is not known (any more). */
bool sandbox_claim_source(struct control *c, const char *id, enum claim_source *ret_source);

#endif

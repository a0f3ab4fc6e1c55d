/* Between live.c and sandbox.c. */
#ifndef SPACE_CONTROL_SANDBOX_INTERNAL_H
#define SPACE_CONTROL_SANDBOX_INTERNAL_H

#include "control/internal.h"

/* A request on a sandbox in memory: see sandbox_request. `l` may be gone after it. */
int live_request(struct live *l, enum life_event request, const char *request_id, char ret_op[ID_SIZE],
                 struct err *e);

/* "KEY=VALUE" strings, NULL-terminated, from a JSON object of strings (NULL: none). */
struct env_list {
    char **items;
    size_t count;
};
void env_list_init(struct env_list *ret_list, const char *json);
void env_list_done(struct env_list *list);

#endif

/* Templates: imported from `incoming/`, tagged, removed. */
#ifndef SPACE_CONTROL_TEMPLATE_H
#define SPACE_CONTROL_TEMPLATE_H

#include "control/control.h"

/* Take `<state>/incoming/<name>` and give it `tag` (NULL: none) when it is ready. The operation's target is the name.
 * ERR_INVALID: no such name or tag can be. ERR_CONFLICT: the same folder is being taken. */
int template_import(struct control *c, const char *name, const char *tag, const char *request_id,
                    char ret_op[ID_SIZE], struct err *e);

/* The checkpoint of one more shape. */
int template_prepare(struct control *c, const char *project_id, const char *reference, const struct shape *shape,
                     const char *request_id, char ret_op[ID_SIZE], struct err *e);

/* ERR_STATE while a sandbox uses it; ERR_NOT_FOUND. */
typedef void (*template_done_cb)(void *arg, const struct err *e);
void template_remove(struct control *c, const char *digest, template_done_cb done, void *arg);

#endif

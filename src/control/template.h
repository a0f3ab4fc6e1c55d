/* Templates: taken in from `incoming/`, removed. Tags are the store's affair alone. */
#ifndef SPACE_CONTROL_TEMPLATE_H
#define SPACE_CONTROL_TEMPLATE_H

#include "base/buf.h"
#include "control/control.h"

#define TEMPLATE_LOG_NAME "build.log" /* beside the template's parts */
#define TEMPLATE_LOG_MAX (4 * MIB)

bool template_tag_valid(const char *tag);       /* [a-z0-9][a-z0-9._-]{0,62} */
bool template_digest_valid(const char *digest); /* 64 lower-case hex digits */

/* Take `<state>/incoming/<name>` and move `tag` (NULL: none) to it when it is ready. The operation's target is empty
 * until the digest is known. ERR_CONFLICT: the same folder is being taken in. */
int template_import(struct control *c, const char *project_id, const char *name, const char *tag,
                    const char *request_id, char ret_op[ID_SIZE], struct err *e);

/* ERR_CONFLICT while a sandbox uses it; ERR_NOT_FOUND. */
typedef void (*template_done_cb)(void *arg, const struct err *e);
void template_remove(struct control *c, const char *digest, template_done_cb done, void *arg);

/* The last TEMPLATE_LOG_MAX bytes of the log of its build, appended. ERR_NOT_FOUND: it has none. */
int template_log(struct control *c, const char *digest, struct buf *ret_text, struct err *e);

#endif

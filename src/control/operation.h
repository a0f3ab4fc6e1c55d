/* Operations: the durable record of each asynchronous change, and who waits for its end. */
#ifndef SPACE_CONTROL_OPERATION_H
#define SPACE_CONTROL_OPERATION_H

#include "control/control.h"
#include "store/operation.h"

/* Write a running operation to the store (in the caller's transaction, if there is one). */
int operation_open(struct control *c, const char *project_id, const char *kind, const char *target_type,
                   const char *target_id, const char *request_id, char ret_op[ID_SIZE], struct err *e);
/* One that has succeeded before it began: what was asked for is the case. */
int operation_open_done(struct control *c, const char *project_id, const char *kind, const char *target_type,
                        const char *target_id, const char *request_id, char ret_op[ID_SIZE], struct err *e);
/* Write the end. An operation that has ended already is fine. Wakes nobody: call operation_wake after the commit. */
int operation_close(struct control *c, const char *op_id, int error_code, const char *error_text, struct err *e);
void operation_wake(struct control *c, const char *op_id);

#endif

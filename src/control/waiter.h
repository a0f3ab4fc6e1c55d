/* Somebody waits, for a limited time, until the thing with an id changes: an operation ends, an exec ends. */
#ifndef SPACE_CONTROL_WAITER_H
#define SPACE_CONTROL_WAITER_H

#include "control/control.h"

struct waiter;

/* Called once, from the loop: woken, or (timed_out) the time has passed or the control stops. */
typedef void (*waiter_cb)(void *arg, bool timed_out);

struct waiter *waiter_add(struct control *c, const char *id, uint64_t timeout_ms, waiter_cb cb, void *arg);
void waiter_cancel(struct waiter *w); /* not called any more; NULL is fine */
/* Call everyone who waits for `id`; those who are added by these calls are not called. */
void waiter_wake(struct control *c, const char *id);
bool waiter_any(struct control *c, const char *id);

#endif

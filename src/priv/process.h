/* What /proc says of a process: the facts by which a machine is known again. */
#ifndef SPACE_PRIV_PROCESS_H
#define SPACE_PRIV_PROCESS_H

#include <sys/stat.h>
#include <sys/types.h>

#include "base/defs.h"

/* Field 22 of /proc/PID/stat; false when there is no such process, or it has ended and only waits to be reaped. */
bool process_start_time(pid_t pid, uint64_t *ret_ticks);
bool process_real_uid(pid_t pid, uid_t *ret_uid);
/* Does it run the file that `file` (a stat of it) describes? */
bool process_runs(pid_t pid, const struct stat *file);
/* The slot in its command line's "-name space-<instance>-<slot>"; false for any other process. */
bool process_named_slot(pid_t pid, uint32_t instance, uint32_t *ret_slot);
/* Does any process with this real uid live? Cheap while there is none; else /proc is looked through, because those that
 * have ended and wait to be reaped do not count. */
bool process_uid_exists(uid_t uid);
/* Call `found` for every process of the host. */
void process_each(void (*found)(void *arg, pid_t pid), void *arg);

#endif

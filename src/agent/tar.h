/* Archives of folders of the guest: made from a tree, unpacked into one. Blocking; for worker threads. */
#ifndef SPACE_AGENT_TAR_H
#define SPACE_AGENT_TAR_H

#include "base/err.h"

/* Write the tree at `fd` (a folder, or one regular file called `name`) to `out` as an archive. Entries are relative to
 * the folder; what is neither file, folder, link nor FIFO is left out. -errno of writing to `out`, or an error code. */
int tar_write(int fd, const char *name, int out, struct err *e);

/* Unpack what is read from `in` below the folder `fd`, never outside of it: a path with ".." or a leading '/' is
 * ERR_INVALID, links on the way are followed only within. `own`: keep owners. What is there is replaced, except that a
 * folder stays. */
int tar_extract(int fd, int in, bool own, uint64_t *ret_entries, struct err *e);

#endif

/* Resolving of paths for file operations. Never through the links of /proc that lead out of the tree (openat2(2),
 * RESOLVE_NO_MAGICLINKS). Who may is decided by the kernel, with the credentials that the thread has assumed. */
#ifndef SPACE_AGENT_PATHS_H
#define SPACE_AGENT_PATHS_H

#include <limits.h>
#include <sys/stat.h>

#include "agent/limits.h"
#include "base/buf.h"
#include "base/err.h"

/* The code for an errno that the file system of the guest gave. */
int path_error(struct err *e, int errnum, const char *what, const char *path);
/* openat2 below `dir` (AT_FDCWD for none), O_CLOEXEC added; `beneath`: not out of `dir` on any way. -errno. */
int path_openat(int dir, const char *path, int flags, mode_t mode, bool beneath);
/* The folder that holds the last component (O_PATH), and that component. `follow`: when it is a symbolic link, those of
 * what it points to, if that is in a folder that exists. ERR_INVALID for a path without a last component. */
int path_parent(const char *path, bool follow, int *ret_dir, char ret_name[NAME_MAX + 1], struct err *e);
/* Make the folders on the way to the last component. */
int path_make_parents(const char *path, mode_t mode, struct err *e);
/* Remove `name` in `dir`, with all below it; never follows a link. -errno. */
int path_remove_tree(int dir, const char *name, int depth);
/* The fields of one entry (ENTRY_*). `target` may be NULL. */
void entry_put(struct buf *b, const char *name, const struct stat *st, const char *target);

#endif

/* Files of the platform's own: whole small files, atomic replacement, folders, removal of trees. Never follows a
 * symbolic link when it removes. All descriptors are close-on-exec. */
#ifndef SPACE_BASE_FILE_H
#define SPACE_BASE_FILE_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* The whole file, at most max_bytes; appended to `ret_content`. ERR_NOT_FOUND, ERR_TOO_LARGE, ERR_SYSTEM. */
int file_read(const char *path, size_t max_bytes, struct buf *ret_content, struct err *e);
/* Write to a temporary file beside it, fsync, rename. The old content stays when it fails. */
int file_write_atomic(const char *path, const void *data, size_t len, mode_t mode, struct err *e);
int dir_make(const char *path, mode_t mode, struct err *e); /* with parents; an existing folder is fine */
int dir_remove_tree(const char *path, struct err *e);        /* a missing one is fine */
int fd_write_all(int fd, const void *data, size_t len);      /* 0 or -errno */
int dir_sync(const char *path, struct err *e);               /* fsync of the folder: makes a rename durable */

#endif

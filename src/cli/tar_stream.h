/* Folders as tar streams over a descriptor (libarchive). */
#ifndef SPACE_CLI_TAR_STREAM_H
#define SPACE_CLI_TAR_STREAM_H

#include "base/err.h"

struct tar_count {
    uint64_t files, skipped;
};

/* Write what is in `folder` (names relative to it, owner 0) to `fd` as a pax archive. Sockets, pipes and devices are
 * skipped and counted. */
int tar_pack(const char *folder, int fd, struct tar_count *ret_count, struct err *e);

/* Unpack a tar stream that is not trusted into the working folder: nothing lands outside of it, no symbolic link is
 * followed, no device or pipe made, no set-user-id kept; ERR_TOO_LARGE after max_bytes of content or max_files. */
int tar_unpack(int fd, uint64_t max_bytes, uint64_t max_files, struct tar_count *ret_count, struct err *e);

#endif

/* Block device nodes for QMP: which image lies on which. Formats are named, never probed; files are descriptor sets,
 * so that QEMU opens nothing by path. */
#ifndef SPACE_MACHINE_MACHINE_BLOCK_H
#define SPACE_MACHINE_MACHINE_BLOCK_H

#include <jansson.h>

#include "base/defs.h"

enum fdset { FDSET_ROOTFS = 1, FDSET_LAYER = 2, FDSET_DISK = 3, FDSET_STATE = 4 };

/* Arguments of add-fd. */
json_t *block_fdset(enum fdset set);
/* blockdev-add of the read-only base: the root file system alone, or with the frozen layer on it. Node "base". */
json_t *block_base(bool with_layer);
/* blockdev-add of the writable qcow2 on "base". Node "disk". */
json_t *block_disk(void);
/* blockdev-reopen that puts "disk" under the device in place of the null disk. */
json_t *block_attach(void);

#endif

/* Block device nodes for QMP (see machine_block.h). */
#include "machine/machine_block.h"

json_t *block_fdset(enum fdset set)
{
    return json_pack("{s:i}", "fdset-id", (int)set);
}

static json_t *file_node(enum fdset set, bool read_only)
{
    char name[32];
    snprintf(name, sizeof(name), "/dev/fdset/%d", (int)set);
    json_t *file = json_pack("{s:s, s:s, s:b}", "driver", "file", "filename", name, "read-only", read_only);
    if (!read_only)
        json_object_set_new(file, "discard", json_string("unmap"));
    return file;
}

json_t *block_base(bool with_layer)
{
    if (!with_layer)
        return json_pack("{s:s, s:s, s:b, s:o}", "driver", "raw", "node-name", "base", "read-only", 1, "file",
                         file_node(FDSET_ROOTFS, true));
    json_t *rootfs = json_pack("{s:s, s:s, s:b, s:o}", "driver", "raw", "node-name", "rootfs", "read-only", 1, "file",
                               file_node(FDSET_ROOTFS, true));
    return json_pack("{s:s, s:s, s:b, s:o, s:o}", "driver", "qcow2", "node-name", "base", "read-only", 1, "file",
                     file_node(FDSET_LAYER, true), "backing", rootfs);
}

json_t *block_disk(void)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:s}", "driver", "qcow2", "node-name", "disk", "discard", "unmap", "file",
                     file_node(FDSET_DISK, false), "backing", "base");
}

json_t *block_attach(void)
{
    return json_pack("{s:[{s:s, s:s, s:s}]}", "options", "driver", "raw", "node-name", "d0", "file", "disk");
}

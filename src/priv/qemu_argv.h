/* QEMU's command line, composed from numbers alone. A pure function: the whole of what a machine is can be read and
 * tested here. */
#ifndef SPACE_PRIV_QEMU_ARGV_H
#define SPACE_PRIV_QEMU_ARGV_H

#include "jail/plan.h"
#include "priv/priv_proto.h"

/* Where things lie in the root of the jail. */
#define QEMU_JAIL_PATH "/qemu/qemu"
#define QEMU_JAIL_DATA "/qemu/data" /* + 0 … QEMU_DATA_MAX - 1 */
#define QEMU_JAIL_MODULES "/qemu/modules"
#define QEMU_DATA_MAX 4

struct qemu_options {
    uint32_t instance; /* uid_base: part of the machine's name */
    uint32_t data_count;
    bool jailed_root;      /* false: no root of its own, host paths are used */
    const char *qemu_path; /* not jailed_root alone */
    const char *const *data_paths;
};

/* The process name that marks a machine, for those who look for it by command line: "space-<instance>-<slot>". */
#define QEMU_NAME_FORMAT "space-%u-%u"

/* Append the arguments of the machine `m` to the plan. false when they do not fit. */
bool qemu_argv_compose(const struct priv_spawn_request *m, const struct qemu_options *o, struct jail_plan *plan);

#endif

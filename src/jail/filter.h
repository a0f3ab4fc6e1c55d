/* Our own system call filter for QEMU, under QEMU's (`-sandbox`): an allow list. Compiled once by space-priv with
 * libseccomp; space-jail only loads the finished program. */
#ifndef SPACE_JAIL_FILTER_H
#define SPACE_JAIL_FILTER_H

#include <linux/filter.h>

#include "base/err.h"

enum filter_profile {
    FILTER_TCG, /* translated code: memory that is writable and executable */
    FILTER_KVM, /* no memory is ever both, or made executable later */
};

/* Compile the filter that lets execve pass with the path pointer `exec_address` alone. Writes at most `max`
 * instructions. ERR_UNSUPPORTED, ERR_SYSTEM. */
int filter_compile(enum filter_profile profile, uint64_t exec_address, struct sock_filter *ret_program, size_t max,
                   size_t *ret_len, struct err *e);

#endif

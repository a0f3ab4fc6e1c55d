/* The duties of PID 1 in the guest, from the initramfs to the root file system. */
#ifndef SPACE_AGENT_BOOT_H
#define SPACE_AGENT_BOOT_H

#include "base/err.h"

/* Mounts, modules, root file system grown to its device, chroot. An error leaves the machine without a way on. */
int boot_guest(struct err *e);
/* For guest and test alike: limits, signals, not to be looked into. */
int boot_process(bool is_guest, struct err *e);

#endif

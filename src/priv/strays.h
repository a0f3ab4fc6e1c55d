/* What runs in the slots, whether this space-priv knows of it or not: processes with the slot's uid or in its cgroup
 * (root), or QEMUs of this user that carry the slot's name. */
#ifndef SPACE_PRIV_STRAYS_H
#define SPACE_PRIV_STRAYS_H

#include "priv/launch.h"

/* Up to `max` of them, of one slot or (-1) of all; the number found. A cgroup without processes is one with pid 0. */
size_t strays_find(const struct launcher *l, int64_t only_slot, struct priv_machine *ret_found, size_t max);

/* Kill, by pidfd, what is found in the slot and wait for the end of each; false when some are there after 5 s. */
bool strays_end(const struct launcher *l, uint32_t slot);

#endif

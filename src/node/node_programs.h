/* Where the other programs and QEMU lie. */
#ifndef SPACE_NODE_NODE_PROGRAMS_H
#define SPACE_NODE_NODE_PROGRAMS_H

#include "config/config.h"

struct programs {
    char *priv, *jail;     /* space-priv, space-jail */
    char *qemu, *qemu_data;
    char *qemu_img;
    char qemu_version[32]; /* "10.0.2" */
};

/* The helpers beside this program (build tree) or in ../libexec/space (installed); QEMU from the configuration, else
 * <state>/qemu, else the system's. ERR_UNSUPPORTED says what was not found and where it was looked for. */
int programs_find(const struct config *config, struct programs *ret_programs, struct err *e);
void programs_done(struct programs *p);

#endif

/* What makes this machine another than its copies: entropy, clock, names, ids, and the environment of its execs. */
#ifndef SPACE_AGENT_IDENTITY_H
#define SPACE_AGENT_IDENTITY_H

#include "agent/limits.h"

struct identity {
    char sandbox_id[64];
    char boot_id[37];
    char **env; /* NULL-terminated, or NULL */
};

void identity_done(struct identity *id);

#endif

/* Start of one process: credentials, working folder, standard descriptors, session, then the program. */
#ifndef SPACE_AGENT_SPAWN_H
#define SPACE_AGENT_SPAWN_H

#include <sys/types.h>

#include "agent/users.h"

struct spawn {
    char *const *argv; /* argv[0] without '/' is looked for in `path`; one writable slot stands before argv[0] */
    char *const *envp;
    const char *path; /* "dir:dir…" */
    const char *cwd;
    bool cwd_optional; /* "/" when it cannot be entered */
    const struct user *user;
    int stdio[3];
    bool tty; /* stdio[0] becomes the controlling terminal */
};

/* Returns after the new program was loaded. ERR_NOT_FOUND, ERR_FORBIDDEN, ERR_INVALID, ERR_TOO_LARGE, ERR_LIMIT. */
int spawn_process(const struct spawn *s, pid_t *ret_pid, struct err *e);

#endif

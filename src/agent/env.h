/* The environment of a new process: NAME=VALUE strings, a later one replaces an earlier one of the same name. */
#ifndef SPACE_AGENT_ENV_H
#define SPACE_AGENT_ENV_H

#include "agent/users.h"

struct env {
    char **strings; /* NULL-terminated; those that env_init made come first and are owned */
    size_t count, capacity, owned;
};

/* As after a login: HOME USER LOGNAME SHELL PATH LANG, and TERM on a terminal. */
void env_init(struct env *env, const struct user *user, bool tty);
void env_done(struct env *env);
/* Add strings that outlive `env`; NULL adds none. */
void env_add_all(struct env *env, char *const *strings);
char *const *env_strings(const struct env *env);
const char *env_get(const struct env *env, const char *name); /* "" when it is not set */

#endif

/* The environment of a new process (see env.h). */
#include "agent/env.h"

static void put(struct env *env, char *string)
{
    if (env->count + 1 >= env->capacity) {
        env->capacity = env->capacity ? env->capacity * 2 : 32;
        env->strings = xrealloc(env->strings, env->capacity * sizeof(*env->strings));
    }
    env->strings[env->count++] = string;
    env->strings[env->count] = NULL;
}

void env_init(struct env *env, const struct user *user, bool tty)
{
    *env = (struct env){0};
    put(env, xasprintf("HOME=%s", user->home));
    put(env, xasprintf("USER=%s", user->name));
    put(env, xasprintf("LOGNAME=%s", user->name));
    put(env, xasprintf("SHELL=%s", user->shell));
    put(env, xstrdup(user->uid == 0 ? "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
                                    : "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"));
    put(env, xstrdup("LANG=C.UTF-8"));
    if (tty)
        put(env, xstrdup("TERM=xterm-256color"));
    env->owned = env->count;
}

void env_done(struct env *env)
{
    for (size_t i = 0; i < env->owned; i++)
        free(env->strings[i]);
    free(env->strings);
}

void env_add_all(struct env *env, char *const *strings)
{
    for (; strings && *strings; strings++) {
        size_t name_len = (size_t)(strchrnul(*strings, '=') - *strings) + 1, i = 0;
        while (i < env->count && strncmp(env->strings[i], *strings, name_len) != 0)
            i++;
        if (i == env->count) {
            put(env, *strings);
            continue;
        }
        if (i < env->owned) { /* owned strings stay in front: the last of them fills the gap */
            free(env->strings[i]);
            env->owned--;
            env->strings[i] = env->strings[env->owned];
            env->strings[env->owned] = *strings;
        } else {
            env->strings[i] = *strings;
        }
    }
}

char *const *env_strings(const struct env *env)
{
    return env->strings;
}

const char *env_get(const struct env *env, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < env->count; i++)
        if (strncmp(env->strings[i], name, len) == 0 && env->strings[i][len] == '=')
            return env->strings[i] + len + 1;
    return "";
}

/* Users and groups of the root file system, read from /etc/passwd and /etc/group themselves: a static program has no
 * name service. What was read is kept until the files change. May be called from any thread. */
#ifndef SPACE_AGENT_USERS_H
#define SPACE_AGENT_USERS_H

#include <sys/types.h>

#include "agent/limits.h"
#include "base/err.h"

struct user {
    uid_t uid;
    gid_t gid;
    char name[LIMIT_USER_NAME];
    char home[LIMIT_USER_HOME];
    char shell[LIMIT_USER_HOME];
    gid_t groups[LIMIT_GROUPS]; /* the primary one is among them */
    size_t group_count;
};

/* By name or decimal uid; root and numbers work without an entry. NULL: `user`, and root where there is none.
 * ERR_NOT_FOUND. */
int user_find(const char *name, struct user *ret_user, struct err *e);
int group_find(const char *name, gid_t *ret_gid, struct err *e);
bool user_name(uid_t uid, char *ret_name, size_t size);
bool group_name(gid_t gid, char *ret_name, size_t size);

/* Let this thread, and only it, open, make and remove files as `user` (setfsuid(2)); NULL: as the agent itself again.
 */
int user_assume(const struct user *user, struct err *e);

#endif

/* One operation on files: read from a request, carried out on a worker thread as the user that it names, answered on
 * the loop's thread if its request is still there. */
#ifndef SPACE_AGENT_FS_CALL_H
#define SPACE_AGENT_FS_CALL_H

#include "agent/agent.h"
#include "agent/query.h"

struct fs_call {
    struct loop_job job;
    struct agent *agent;
    struct request *request; /* NULL when it went away meanwhile */
    struct user user;
    char *path, *to, *name; /* name: `after` of a page, owner */
    char *group;
    uint32_t mode;
    uint64_t offset, length, limit;
    int64_t mtime_ms;
    bool flag;
    void *extra;                           /* of the operation; freed with the call */
    int (*operate)(struct fs_call *call);  /* on the worker; fills `reply`, or `e` and a negative return */
    void (*finish)(struct fs_call *call);  /* on the loop after success; NULL: answer 200 with `reply` */
    void (*failed)(struct fs_call *call);  /* before the error is answered; may be NULL */
    void (*abandon)(struct fs_call *call); /* the same when the request is gone; may be NULL */
    int fd, dir;                           /* results for `finish`; what is left is closed */
    struct buf reply;
    struct err e;
    int result;
};

/* Read `path` and `user`. NULL: refused, the request is answered. */
struct fs_call *fs_call_new(struct request *r, const struct query *q, int (*operate)(struct fs_call *call));
/* The same for what was read before. */
struct fs_call *fs_call_make(struct request *r, const struct user *user, const char *path,
                             int (*operate)(struct fs_call *call));
/* Hand to a worker; the request is answered later. */
void fs_call_submit(struct fs_call *call);
/* Not submitted after all: answer with `e` and free. */
void fs_call_refuse(struct fs_call *call, const struct err *e);

#endif

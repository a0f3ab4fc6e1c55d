/* The agent's parts, as the request handlers see them. */
#ifndef SPACE_AGENT_AGENT_H
#define SPACE_AGENT_AGENT_H

#include "agent/exec.h"
#include "agent/identity.h"
#include "agent/loop.h"
#include "agent/port.h"
#include "agent/session.h"

#define AGENT_VERSION "0.1.0"

struct agent {
    struct loop loop;
    struct session session;
    struct port port;
    struct execs execs;
    struct identity identity;
    bool is_guest; /* PID 1 of a machine; otherwise a test: nothing of the system is changed */
    bool frozen;   /* the root file system: no write may be begun */
    struct loop_timer thaw;
    LIST_HEAD(, upload) uploads; /* being written */
    int watches, tars;
};

/* Go on with uploads that waited for the thaw. */
void uploads_run(struct agent *agent);

static inline struct agent *request_agent(const struct request *r)
{
    return container_of(r->session, struct agent, session);
}

#endif

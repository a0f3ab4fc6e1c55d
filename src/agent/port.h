/* The descriptor that the session talks over: the guest's virtio port, or a Unix socket for tests.
 *
 * The port is watched edge-triggered: a closed host side is one event, not a stream of them, and a guest at rest makes
 * no system call. Writing is asked for only while the port is full. */
#ifndef SPACE_AGENT_PORT_H
#define SPACE_AGENT_PORT_H

#include "agent/loop.h"
#include "agent/session.h"

struct port {
    struct loop *loop;
    struct session *session;
    struct loop_source source;
    struct loop_source listener;
    int fd, listen_fd;
    bool readable, full, asking;
    uint64_t born_ms; /* when the newest session began */
    struct loop_timer doubt;
    uint8_t *in;
};

/* The virtio port of this name. ERR_NOT_FOUND. */
int port_open_virtio(struct port *port, struct loop *loop, struct session *session, const char *name, struct err *e);
/* Listen on a Unix socket; one connection at a time, a new one takes the place of the old. */
int port_open_socket(struct port *port, struct loop *loop, struct session *session, const char *path, struct err *e);
void port_close(struct port *port);
/* Move what there is to move in both directions, within limits. To be called after every batch of events. */
void port_run(struct port *port);

#endif

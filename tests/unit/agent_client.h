/* A small synchronous HTTP/2 client for tests of the guest agent: starts the agent on a socket of its own, makes calls,
 * waits with a deadline. Failures end the test through cmocka. */
#ifndef SPACE_TESTS_AGENT_CLIENT_H
#define SPACE_TESTS_AGENT_CLIENT_H

#include <nghttp2/nghttp2.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "wire/agent_protocol.h"
#include "wire/wire.h"

#define CLIENT_DEADLINE_MS 20000

struct reply {
    int32_t id;
    int status; /* 0: none yet */
    char error[32], size[32], mode[32], mtime[32];
    struct buf body;
    bool closed, ended; /* the stream; the answer, by END_STREAM */
    uint32_t code;      /* of the closing */
    const uint8_t *send;
    size_t send_len;
    bool send_end, waiting; /* END_STREAM after `send`; nothing to send at the moment */
    bool discard;           /* count the body in `received`, keep nothing of it */
    uint64_t received;
    bool hold; /* take no more from the agent: the window is not given back */
    LIST_ENTRY(reply) entry;
};

struct client {
    char path[64];
    int fd;
    int agent_pid;
    nghttp2_session *h2;
    LIST_HEAD(, reply) replies;
};

/* A running agent and an open session with it; stops it. With SPACE_AGENT_SOCKET in the environment the agent there is
 * used and left running: a guest's port can be tested so. */
void client_start(struct client *c);
void client_stop(struct client *c);
/* The transport alone, and the session on top (prelude, nonce, HTTP/2). */
void client_connect(struct client *c);
void client_disconnect(struct client *c);
void client_prelude(struct client *c, uint8_t nonce, bool flush);
void client_http(struct client *c);
void client_write_raw(struct client *c, const void *data, size_t len);
void client_read_raw(struct client *c, void *data, size_t len);

/* Send a request, with a body when `body` is not NULL or `len` is not 0; do not wait. */
struct reply *client_open(struct client *c, const char *method, const char *path, const void *body, size_t len);
/* The same with a body that is sent in parts: client_send, the last with `end`. */
struct reply *client_open_stream(struct client *c, const char *method, const char *path);
void client_send(struct client *c, struct reply *r, const void *data, size_t len, bool end);
/* Until the condition holds; the test fails at the deadline. */
void client_wait_closed(struct client *c, struct reply *r);
void client_wait_status(struct client *c, struct reply *r);
void client_wait_body(struct client *c, struct reply *r, size_t len);
/* Let the session run for so long, whatever comes. */
void client_run_ms(struct client *c, int ms);
void client_release(struct client *c, struct reply *r); /* end of `hold` */
void client_cancel(struct client *c, struct reply *r);
void reply_free(struct reply *r);
/* Open, wait for the end, give the answer. */
struct reply *client_call(struct client *c, const char *method, const char *path, const void *body, size_t len);
struct reply *client_callf(struct client *c, const char *method, const char *format, ...) ATTR_PRINTF(3, 4);

#endif

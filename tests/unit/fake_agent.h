/* An agent that says what a test tells it, on the other end of a socket pair, served by the same loop: resync, HTTP/2,
 * one function of the test's for each request. */
#ifndef SPACE_TESTS_UNIT_FAKE_AGENT_H
#define SPACE_TESTS_UNIT_FAKE_AGENT_H

#include "base/buf.h"

#include <sys/queue.h>
#include <uv.h>

#include <nghttp2/nghttp2.h>

struct fake_agent;

struct fake_request {
    LIST_ENTRY(fake_request) link;
    struct fake_agent *agent;
    int32_t id;
    char method[16];
    char target[16384]; /* :path, or :authority of CONNECT */
    struct buf body;    /* so far */
    bool body_ended;
    bool closed_by_client; /* RST_STREAM */
    struct buf reply;
    bool reply_ended;
    uint64_t zeros; /* after `reply`: that many zero bytes */
    bool deferred, answered;
};

struct fake_agent {
    uv_poll_t poll;
    int fd;
    nghttp2_session *h2;
    bool in_step;
    struct buf in; /* before the session */
    LIST_HEAD(, fake_request) requests;
    /* The request's header is complete (body_ended: the body too) and, when `whole`, only once it has all come. */
    void (*handle)(struct fake_request *r);
    bool whole;
    void (*on_body)(struct fake_request *r); /* more of it, when not `whole`; may be NULL */
    uint64_t requests_seen, resets_seen, pings_seen;
    bool mute;      /* reads, but answers nothing, not even PING */
    bool skip_echo; /* never in step */
    bool closed;
    void *arg;
};

/* Serve `fd` until the other side closes it. */
void fake_agent_start(struct fake_agent *a, uv_loop_t *loop, int fd);
void fake_agent_stop(struct fake_agent *a); /* closes the socket now */
/* Answer with a status, optional headers (name, value, …, NULL) and what is in r->reply; `end`: that is all. */
void fake_answer(struct fake_request *r, int status, int end, ...);
void fake_more(struct fake_request *r); /* r->reply or r->reply_ended changed */
void fake_reset(struct fake_request *r, uint32_t code);
void fake_flush(struct fake_agent *a);

#endif

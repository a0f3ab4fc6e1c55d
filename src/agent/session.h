/* The conversation over the port: finds the prelude, then is an HTTP/2 server. No I/O: bytes in, bytes out, so that a
 * test or a fuzzer drives it without a port.
 *
 *   SCAN ── prelude ──► FRESH ── client preface ──► HTTP ──┐
 *    ▲  ◄── raw test done ── RAW_IN, RAW_OUT ◄── raw magic │
 *    └──────────── session_drop, or a breach of protocol ──┘
 *
 * In HTTP the session walks the frame headers itself before nghttp2 sees them: what cannot be a frame ends the session
 * at that very byte, and the bytes from there on are looked at for a prelude. So a host that starts anew is understood
 * although its predecessor stopped in the middle of something.
 *
 * A request lives from its header until its stream closes; `ops->closed` is the last call. Between them a handler
 * either answers at once (request_reply, request_fail), collects the body first (request_collect), or streams. */
#ifndef SPACE_AGENT_SESSION_H
#define SPACE_AGENT_SESSION_H

#include <sys/queue.h>

#include <nghttp2/nghttp2.h>

#include "agent/limits.h"
#include "base/buf.h"
#include "base/err.h"

struct session;
struct request;

struct request_ops {
    /* A part of the body. What was used up is to be given back with request_consume, sooner or later; without this
     * function the body is thrown away. */
    void (*body)(struct request *r, const uint8_t *data, size_t len);
    void (*body_end)(struct request *r);
    /* How many bytes of the answer can be had at this moment, at most `max`; 0 to wait for request_wake. `*ret_end`:
     * these are the last. Exactly that many are then taken by one call of `emit`. */
    size_t (*available)(struct request *r, size_t max, bool *ret_end);
    bool (*emit)(struct request *r, uint8_t *to, size_t len); /* false resets the stream */
    void (*closed)(struct request *r);
};

struct request_header {
    const char *name; /* a constant */
    char value[32];
};

struct request {
    struct session *session;
    int32_t stream_id;
    char *method, *path, *authority; /* path with its query, encoded */
    const struct request_ops *ops;
    void *ctx; /* of the ops */
    struct buf body, reply;
    void (*collected)(struct request *r);
    struct request_header headers[LIMIT_REPLY_HEADERS];
    size_t header_count;
    size_t header_bytes;
    bool dispatched, body_ended, answered;
    bool replying; /* the answer is `reply`: no more calls to ops but `closed` */
    bool waiting;  /* for request_wake */
    LIST_ENTRY(request) entry;
};

enum session_state { SESSION_SCAN, SESSION_FRESH, SESSION_HTTP, SESSION_RAW_IN, SESSION_RAW_OUT };

struct session {
    enum session_state state;
    nghttp2_session *h2;
    void (*handle)(void *arg, struct request *r); /* a request's header is complete */
    void *handle_arg;
    LIST_HEAD(, request) requests;
    uint8_t nonce[AGENT_NONCE_SIZE];
    uint8_t head[AGENT_PRELUDE_SIZE]; /* the beginning of a prelude, preface or frame header, not yet complete */
    size_t head_len;
    uint32_t frame_left; /* of the frame under way */
    uint64_t raw_left;
    bool broken;
    uint8_t *out;
    size_t out_start, out_len;
    uint64_t sessions; /* begun so far */
};

int session_init(struct session *s, void (*handle)(void *arg, struct request *r), void *handle_arg);
void session_done(struct session *s);

/* Take `len` bytes from the port. */
void session_feed(struct session *s, const uint8_t *data, size_t len);
/* Make bytes for the port as far as they fit; true when there are any. */
bool session_pump(struct session *s);
/* The bytes to write; session_written tells how many went out. */
const uint8_t *session_out(const struct session *s, size_t *ret_len);
void session_written(struct session *s, size_t len);
/* The other side went away: every request is closed, what was to be written is forgotten. */
void session_drop(struct session *s);

/* Collect the body (at most AGENT_BODY_MAX bytes) and call `complete` when it is whole. */
void request_collect(struct request *r, void (*complete)(struct request *r));
/* Add a header to the answer that follows. `name` must live on. */
void request_header(struct request *r, const char *name, const char *format, ...) ATTR_PRINTF(3, 4);
/* Answer at once. `body` may be NULL; its content is taken over and the buffer left empty. */
void request_reply(struct request *r, int status, struct buf *body);
/* An error answer; after the beginning of a stream, the stream is reset instead. */
void request_fail(struct request *r, const struct err *e);
void request_failf(struct request *r, int code, const char *format, ...) ATTR_PRINTF(3, 4);
/* Begin an answer whose body comes from `available` and `emit`. */
void request_stream(struct request *r, int status);
/* There may be more to send. */
void request_wake(struct request *r);
/* Allow the peer `len` more bytes of body. */
void request_consume(struct request *r, size_t len);
/* Let the body come in larger steps: for handlers that use it up at once. */
void request_widen(struct request *r);
void request_reset(struct request *r);

#endif

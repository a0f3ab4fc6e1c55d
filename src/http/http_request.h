/* One request, from its headers to its answer. Handlers are asynchronous: a handler may return without an answer and
 * give it later from any callback of the loop; meanwhile the connection rests.
 *
 * Life of `struct http_request *r` as a handler sees it: it is valid until one of these
 *   - an answer call (http_reply_*, http_stream_end, http_stream_abort, http_tunnel_accept, websocket_accept), or
 *   - the on_abort callback returns (only when one was set),
 * after which the handler must not use r. Without an on_abort callback r stays valid until the handler answers; an
 * answer to a client that has gone is dropped silently. A handler that only goes on when body or drain callbacks come
 * needs on_abort: they come no more when the client has gone, and the request would stay for ever. A handler that must
 * keep the pointer longer takes a reference (http_request_ref): every call on a request that is over does nothing, and
 * http_request_over tells. No call in this file runs a handler or another callback before it returns, except that
 * on_data and on_end of a body and on_drain come from the loop only. Everything runs on the loop's thread.
 *
 * A client that closes its sending side while its request is being worked on counts as gone. */
#ifndef SPACE_HTTP_HTTP_REQUEST_H
#define SPACE_HTTP_HTTP_REQUEST_H

#include "base/err.h" /* before uv.h, which brings the MIN and MAX of sys/param.h */
#include "http/router.h"

#include <jansson.h>
#include <sys/types.h>
#include <uv.h>

struct http_server;
struct http_request;

enum http_abort {
    HTTP_ABORT_CLIENT,   /* the client closed, reset, or ended its body early */
    HTTP_ABORT_TIMEOUT,  /* a slow-client deadline passed (body stalled, output not taken) */
    HTTP_ABORT_SHUTDOWN, /* the server is stopping */
};

/* ---- what was asked ---- */
const char *http_request_id(const struct http_request *r); /* X-Request-Id, given or made */
const char *http_request_method(const struct http_request *r);
const char *http_request_path(const struct http_request *r);      /* raw, without query; as routed (see on_host) */
const char *http_request_raw_query(const struct http_request *r); /* what follows "?", or NULL */
const char *http_request_remote(const struct http_request *r);    /* "192.0.2.1", "2001:db8::1", "unix" */
const char *http_request_header(const struct http_request *r, const char *name); /* first one, or NULL; any case */
/* Calls `each` for every header in order. */
void http_request_headers(const struct http_request *r, void (*each)(void *arg, const char *name, const char *value),
                          void *arg);
const struct http_route *http_request_route(const struct http_request *r);
const char *http_request_param(const struct http_request *r, const char *name); /* path parameter, decoded */
const char *http_request_tail_raw(const struct http_request *r);                /* "{rest...}" as it came, or NULL */
const struct http_query *http_request_query(const struct http_request *r);
json_t *http_request_json(const struct http_request *r); /* borrowed; NULL when the route has no JSON body */
const void *http_request_json_text(const struct http_request *r, size_t *ret_len); /* the body's bytes (idempotency) */
int64_t http_request_content_length(const struct http_request *r);                 /* -1: unknown (chunked) */
bool http_request_is_upgrade(const struct http_request *r, const char *protocol);  /* "websocket"; NULL: any */
uv_loop_t *http_request_loop(const struct http_request *r);
struct http_server *http_request_server(const struct http_request *r);

/* The caller's own pointer (the principal found by the authorize hook). `destroy` (may be NULL) runs when the request
 * is freed. */
void http_request_set_data(struct http_request *r, void *data, void (*destroy)(void *data));
void *http_request_data(const struct http_request *r);

/* ---- its life ---- */
/* Called at most once, and never after an answer was complete or given: the client is gone, give up the work. May be
 * set late: when the client has gone already, the call comes from the loop. */
void http_request_on_abort(struct http_request *r,
                           void (*on_abort)(struct http_request *r, enum http_abort why, void *arg), void *arg);
struct http_request *http_request_ref(struct http_request *r);
void http_request_unref(struct http_request *r);
bool http_request_over(const struct http_request *r); /* answered or aborted */

/* After the authorize hook returned HTTP_LATER: run the handler. (To refuse, answer instead.) */
void http_request_proceed(struct http_request *r);

/* ---- the body of HTTP_BODY_STREAM routes ---- */
struct http_body_events {
    /* Returns how many bytes were taken; fewer than `len` pauses until http_request_resume_body. */
    size_t (*on_data)(struct http_request *r, const void *data, size_t len, void *arg);
    void (*on_end)(struct http_request *r, void *arg); /* the body is complete and matches its length */
};

/* Start taking the body; to be called in the handler or later (until then nothing is read, and a client that waits for
 * "100 Continue" is not invited). An early end calls on_abort, never on_end. Answering before on_end is fine: what is
 * left of the body is thrown away, or the connection closed when that is much. */
void http_request_read_body(struct http_request *r, const struct http_body_events *events, void *arg);
void http_request_pause_body(struct http_request *r);
void http_request_resume_body(struct http_request *r);

/* ---- answers ---- */
/* Add a header to the answer; before the answer call. False, and nothing added, for control characters and for
 * Content-Length and Transfer-Encoding, which follow from the answer's kind. */
bool http_reply_header(struct http_request *r, const char *name, const char *value);

void http_reply_json(struct http_request *r, int status, json_t *body);          /* takes the reference */
void http_reply_json_text(struct http_request *r, int status, const char *text); /* JSON already written */
void http_reply_data(struct http_request *r, int status, const char *content_type, const void *data, size_t len);
void http_reply_empty(struct http_request *r, int status);
/* Problem details from an error (see problem.h). Adds WWW-Authenticate on 401, Retry-After on 429 and 503. */
void http_reply_error(struct http_request *r, const struct err *error);
void http_reply_error_status(struct http_request *r, int status,
                             const struct err *error); /* status other than the code's */

/* ---- streamed answers ---- */
/* Send the head. `length` -1: unknown (chunked). `on_drain` (may be NULL) comes whenever room has appeared after a
 * write was cut short. For HEAD the body is swallowed. */
void http_stream_begin(struct http_request *r, int status, const char *content_type, int64_t length,
                       void (*on_drain)(struct http_request *r, void *arg), void *arg);
/* Take bytes into the output buffer; returns how many (fewer than len: wait for on_drain). More than a known length
 * is not taken. */
size_t http_stream_write(struct http_request *r, const void *data, size_t len);
size_t http_stream_room(const struct http_request *r);
/* Room for `len` bytes in one piece for writing straight into the output buffer, or NULL (then on_drain will come);
 * followed by http_stream_commit of at most `len` bytes. */
uint8_t *http_stream_reserve(struct http_request *r, size_t len);
void http_stream_commit(struct http_request *r, size_t len);
size_t http_stream_pending(const struct http_request *r); /* bytes not yet given to the socket */
/* The answer is complete. With a known length that was not reached the connection is cut. */
void http_stream_end(struct http_request *r);
/* Cut the connection, so that the client sees that the answer is not whole. */
void http_stream_abort(struct http_request *r);

#endif

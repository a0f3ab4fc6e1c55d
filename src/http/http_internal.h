/* Inside of src/http: the structures shared by its files.
 *
 * Theory of operation. libmicrohttpd parses and writes HTTP; it runs only inside server_pump (one MHD_run after another
 * until nothing is left to do), which is called from the poll callback of its epoll descriptor and, when somebody has
 * resumed a connection, from the prepare and check phases of the same turn of the loop: an answer never waits for
 * another event. A request is in one of these stages:
 *
 *   NEW ──first call──► HEADERS ──go_body──► BODY ──end──► FULL ──answer queued──► REPLYING ──► DONE
 *                          └── no body: at once ────────────┘
 *
 * libmicrohttpd takes an answer only in HEADERS (then it closes the connection afterwards) and FULL. So answers given
 * in HEADERS or BODY wait for the end of a body that is short, and beside a long one are written to the socket directly
 * ("raw"): both directions then go on at once. Afterwards the rest of the body is swallowed for LINGER_MS, so that the
 * client can read the answer, and the connection ends.
 *
 * A connection is suspended whenever the next step is not the client's. libmicrohttpd neither watches nor times a
 * suspended connection, and on one that it reads it can miss the end (its epoll is edge-triggered: an end that came
 * together with the last bytes makes no new edge). So a uv_poll handle on the same socket watches for the end all the
 * time, and all deadlines are kept here, one a connection, looked at by one sweep timer. To end a connection it is shut
 * down on the socket level (conn_cut) and resumed; libmicrohttpd then finds its end and reports the request as
 * complete, and that is the only place where a request leaves its connection.
 *
 * References on a request: libmicrohttpd's (until DONE), the handler's ("owned": from authorize or the handler's call
 * until it answers or was told of the abort), and those of http_request_ref. */
#ifndef SPACE_HTTP_HTTP_INTERNAL_H
#define SPACE_HTTP_HTTP_INTERNAL_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "http/http_server.h"
#include "http/http_tunnel.h"

#include <microhttpd.h>
#include <sys/queue.h>
#include <uthash.h>

#define POOL_BYTES (128 * KIB) /* libmicrohttpd's memory for one connection: its read and write buffers */
#define STREAM_BLOCK_BYTES (128 * KIB)
#define INLINE_MAX (64 * KIB)  /* longer buffered answers go the way of streams, where progress is seen */
#define DISCARD_MAX (64 * KIB) /* what is left of a body after an early answer, read and thrown away */
#define REPLY_HEADERS_MAX 32
#define REQUEST_ID_MAX 64
#define LINGER_MS 2000
#define DISCARD_MS 500
#define SWEEP_MS_MAX 250
#define REFUSED_EXTRA 64 /* connections over the limit that still get a 503 */
#define PUMP_BUDGET_NS 5000000
#define SCRATCH_BYTES (128 * KIB)

struct due { /* a callback that is owed, to be made from the loop */
    TAILQ_ENTRY(due) link;
    bool queued;
    void (*run)(struct due *d);
};

struct address {
    char text[64];
    size_t count;
    UT_hash_handle hh;
};

struct listener {
    struct http_server *server;
    uv_poll_t poll;
    int fd;
    char *unlink_path;
    SLIST_ENTRY(listener) link;
};

enum deadline {
    DEADLINE_NONE,
    DEADLINE_HEADER,
    DEADLINE_IDLE,
    DEADLINE_BODY,
    DEADLINE_WRITE,
    DEADLINE_DISCARD, /* of a short body that is thrown away: then the answer is given without waiting for it */
    DEADLINE_LINGER,
};

struct conn {
    struct http_server *server;
    struct MHD_Connection *mhd;
    int fd;
    uv_poll_t poll;
    int watching;   /* events of the poll handle */
    bool suspended; /* as libmicrohttpd will see it after its next run */
    bool cut;
    bool half_closed; /* the client's end came while an answer was going out */
    bool refused;     /* over a limit: answered with 503 */
    enum deadline deadline;
    uint64_t deadline_ms;
    uint64_t seen_bytes; /* received by the kernel when the connection became idle */
    uint64_t requests;
    struct http_request *request;
    struct buf raw_out; /* of an answer written past libmicrohttpd */
    struct address *address;
    char remote[64];
    TAILQ_ENTRY(conn) link;
};

struct http_server {
    uv_loop_t *loop;
    struct MHD_Daemon *daemon;
    struct http_options options;
    struct router *router;
    uv_poll_t poll;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle;
    uv_timer_t sweep;
    uint64_t sweep_ms;
    bool wanted; /* a connection was resumed or a callback is owed since the last run */
    bool pumping;
    TAILQ_HEAD(, due) due;
    TAILQ_HEAD(, conn) conns;
    SLIST_HEAD(, listener) listeners;
    struct address *addresses;
    struct { /* handed from accept to the notification of libmicrohttpd */
        char remote[64];
        struct address *address;
        bool refused;
        int fd;
    } accepting;
    int reserve_fd; /* given up for a moment to refuse a client when descriptors have run out */
    struct http_stats stats;
    uint8_t *scratch;
    bool stopping;
    bool stop_cut;
    bool closing;
    uint64_t stop_deadline_ms;
    void (*on_stopped)(void *arg);
    void *stopped_arg;
    size_t handles; /* of libuv, to be closed before the end */
    size_t refs;    /* the server's own and one a request object */
};

enum stage { STAGE_NEW, STAGE_HEADERS, STAGE_BODY, STAGE_FULL, STAGE_REPLYING, STAGE_DONE };

struct http_request {
    size_t refs;
    struct http_server *server;
    struct conn *conn; /* NULL when DONE */
    struct due due;
    enum stage stage;
    uint64_t start_ns;

    /* what was asked */
    char id[REQUEST_ID_MAX + 1];
    char method[32];
    char *target; /* raw path, and the query behind its NUL */
    char *path;
    const char *raw_query;
    char remote[64];
    bool http10, head, has_body, expect_continue;
    int64_t content_length;
    uint64_t bytes_in, bytes_out;
    struct http_match match;
    struct http_query query;
    struct buf body;
    json_t *json;
    void *data;
    void (*data_destroy)(void *data);

    /* its life */
    bool owned;    /* by the handler */
    bool answered; /* the handler gave its answer (a stream: ended it) */
    bool gone;     /* aborted */
    enum http_abort why;
    bool waiting; /* authorize said HTTP_LATER */
    bool proceed_due, abort_due;
    bool dispatched;
    int refusal_status;
    struct err refusal; /* found in the headers; answered when an answer is possible */
    void (*on_abort)(struct http_request *r, enum http_abort why, void *arg);
    void *abort_arg;
    void (*on_over)(struct http_request *r, void *arg); /* inner: the handler's ownership ends (sse) */
    void *over_arg;

    /* its body */
    struct http_body_events body_events;
    void *body_arg;
    bool reading, paused, discard, go_body, body_done, end_due;

    /* its answer */
    bool reply_set;  /* status and the rest are known */
    bool raw;        /* written past libmicrohttpd, complete; what comes of the body is swallowed */
    bool raw_stream; /* being written past libmicrohttpd, while the body still comes */
    bool early;      /* queued before the body; the connection ends with it */
    bool no_body;
    int status;
    char *content_type;
    char *data_out; /* buffered answer */
    size_t data_len;
    size_t header_count;
    struct {
        char *name, *value;
    } headers[REPLY_HEADERS_MAX];

    bool streaming, ended, broken, want_drain, drain_due, flushed;
    struct buf out;
    int64_t length;    /* of the stream, -1 unknown */
    uint64_t accepted; /* bytes taken from the handler */
    void (*on_drain)(struct http_request *r, void *arg);
    void *drain_arg;

    struct http_tunnel *tunnel;
};

/* http_server.c */
void server_schedule(struct http_server *s); /* let libmicrohttpd run before the loop sleeps */
void server_pump(struct http_server *s);
void server_due(struct http_server *s, struct due *d);
void server_undue(struct http_server *s, struct due *d);
void server_stop_step(struct http_server *s);
void server_unref(struct http_server *s);

/* listen.c */
void listeners_close(struct http_server *s);
void address_release(struct http_server *s, struct address *a);

/* connection.c */
void conn_notify(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode code);
void conn_suspend(struct conn *c);
void conn_resume(struct conn *c);
void conn_watch(struct conn *c);
void conn_cut(struct conn *c);
void conn_reset(struct conn *c); /* as conn_cut, but the client sees a reset */
void conn_deadline(struct conn *c, enum deadline deadline);
void conn_raw_send(struct conn *c);
void conn_raw_problem(struct conn *c, int status, const struct err *error, const char *request_id);
void conns_sweep(struct http_server *s);

/* socket.c */
uint64_t socket_received(int fd);

/* request.c */
struct http_request *request_new(struct conn *c, const char *uri);
void request_abort(struct http_request *r, enum http_abort why);
void request_release(struct http_request *r);                                      /* the handler's ownership ends */
void request_finish(struct http_request *r, enum MHD_RequestTerminationCode code); /* libmicrohttpd is done with it */
void request_due(struct http_request *r); /* run what proceed_due, end_due and drain_due say, from the loop */

/* dispatch.c */
void dispatch_proceed(struct http_request *r);
void *dispatch_uri(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result dispatch_access(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                const char *version, const char *upload_data, size_t *upload_size, void **context);
void dispatch_completed(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code);

/* reply.c */
void reply_render(struct http_request *r, struct buf *out); /* the whole answer as text, with Connection: close */
struct MHD_Response *reply_make(struct http_request *r);
void reply_submit(struct http_request *r); /* status and kind of answer are set */
void reply_raw(struct http_request *r);    /* status and data are set: write past libmicrohttpd, then linger */
int reply_queue(struct http_request *r);   /* inside dispatch_access, stages HEADERS and FULL */
/* The first lines of an answer; `length` -1: said by other headers. The caller ends them with an empty line. */
void raw_head(struct buf *out, int status, const char *content_type, int64_t length, const char *request_id);
void reply_content_type(struct http_request *r, const char *content_type); /* unless the headers say one */
uint64_t reply_body_left(const struct http_request *r); /* of the request's body; UINT64_MAX: unknown */

/* stream.c */
struct MHD_Response *stream_response(struct http_request *r);
void stream_drain_check(struct http_request *r);
void stream_raw_start(struct http_request *r); /* if the answer has begun and much of the body is still to come */

/* tunnel.c */
struct MHD_Response *tunnel_response(struct http_request *r);
void tunnel_poll(struct http_tunnel *t, int status, int events);
void tunnel_lost(struct http_tunnel *t, const char *why); /* its request was completed by libmicrohttpd */
int tunnel_events(const struct http_tunnel *t);

#endif

/* The HTTP/2 session of a channel without any I/O: bytes in, bytes out, the time asked from the owner.
 *
 * Theory of operation. A session is in one of three states:
 *
 *   resync ──echo found──► open ──┐
 *      └──────────────────────────┴──breach, deadline, session_fail──► over
 *
 * In `resync` the prelude is the only thing sent and everything received before its echo is dropped; requests made
 * meanwhile wait inside nghttp2. `over` is final: no input is looked at, nothing is sent, no request is taken;
 * `session_error` says why. The owner then calls session_end, which ends each stream, and frees.
 *
 * A stream is in `streams` from channel_request until its on_end or its cancelling, whichever comes first; nghttp2
 * knows it by the user data of the stream id, which is taken away at that moment: whatever the guest still sends for it
 * is dropped and counted. A stream that ends inside a callback is freed when the outermost entry below returns.
 *
 * Entries that call back: session_input, session_time, session_deliver, session_end. All others never do. */
#ifndef SPACE_CHANNEL_SESSION_H
#define SPACE_CHANNEL_SESSION_H

#include <sys/queue.h>
#include <sys/uio.h>

#include <nghttp2/nghttp2.h>

#include "channel/framewatch.h"
#include "channel/outq.h"
#include "channel/resync.h"
#include "channel/stream.h"

struct session_hooks {
    uint64_t (*now_ms)(void *arg);                     /* monotonic; stands still while the machine does */
    void (*random)(void *arg, void *data, size_t len); /* nonces */
    void (*wake)(void *arg);                           /* there may be something to send or deliver; may be NULL */
};

TAILQ_HEAD(stream_list, channel_stream);

struct session {
    struct channel_options options;
    const struct session_hooks *hooks;
    void *hooks_arg;

    nghttp2_session *h2;
    struct resync resync;
    struct framewatch watch;
    struct outq out;
    struct err error;
    bool ready; /* the echo was found */
    bool over;

    struct stream_list streams;
    struct stream_list graveyard; /* ended inside a callback */
    size_t stream_count;
    size_t drains;  /* streams whose owner waits to write */
    unsigned depth; /* of entries that call back */

    uint64_t held; /* bytes given to owners and not consumed */
    uint64_t owed; /* … for which the connection's window was not opened again, because of options.held_max */

    uint64_t resync_deadline, resync_repeat_at, resync_repeat_ms;
    uint64_t ping_at;       /* when the next PING is due; 0: no stream is open */
    uint64_t ping_deadline; /* of the PING under way; 0: none */
    uint64_t ping_count;
    uint64_t deadline; /* no timer of the session or a stream is earlier */

    struct channel_stats stats;
};

struct channel_stream {
    struct session *session;
    TAILQ_ENTRY(channel_stream) link;
    const struct channel_stream_callbacks *callbacks;
    void *arg;
    int32_t id;
    bool both_ways, streamed;
    bool responded;   /* the final header came */
    bool read_ended;  /* … and all data */
    bool write_ended; /* the owner gave all */
    bool deferred;    /* nghttp2 waits for channel_stream_write */
    bool want_drain;  /* a write was cut short */
    bool gone;        /* ended or cancelled: nothing is called any more */

    struct block_list body; /* request bytes not yet taken into a frame */
    size_t body_bytes;

    struct buf head; /* of the response under way: name, NUL, value, NUL … */
    size_t head_count, head_bytes;
    int status;

    size_t held; /* given by on_data, not consumed */
    uint32_t idle_ms;
    uint64_t response_deadline, total_deadline; /* 0: none */
    uint64_t active_at;                         /* when the guest last moved enough, or was last not to blame */
    size_t moved;                               /* since then */
};

/* `o` is complete (no zero). Never fails. */
struct session *session_new(const struct channel_options *o, const struct session_hooks *hooks, void *hooks_arg);
/* After session_end, or with no stream left. */
void session_free(struct session *s);

/* Bytes from the guest. 0, or the code of the error that ended the session. */
int session_input(struct session *s, const uint8_t *data, size_t len);

/* What to send next, at most `max` pieces; 0: nothing. Then session_sent with what the socket took. */
int session_output(struct session *s, struct iovec *ret_iov, int max);
void session_sent(struct session *s, size_t len);
/* Tell owners that may write again. True when one was told (there may be more to send). */
bool session_deliver(struct session *s);

/* When session_time wants to be called at the latest; UINT64_MAX: not at all. */
uint64_t session_deadline(const struct session *s);
int session_time(struct session *s);

/* It is over, for this reason; a first reason stays. Calls nobody. */
void session_fail(struct session *s, const struct err *why);
/* On a session that is over: end every stream with its error. */
void session_end(struct session *s);

int session_request(struct session *s, const struct channel_request *r,
                    const struct channel_stream_callbacks *callbacks, void *arg, struct channel_stream **ret_stream,
                    struct err *e);

/* --- between the files of the session ------------------------------------------------------------------------------
 */

uint64_t session_now(const struct session *s);
void session_wake(struct session *s);
void session_enter(struct session *s);
void session_leave(struct session *s);
int session_break(struct session *s, int code, const char *format, ...) ATTR_PRINTF(3, 4);
void session_deadline_lower(struct session *s, uint64_t at);

void stream_finish(struct channel_stream *st, const struct err *e); /* on_end, then gone */
void stream_reset(struct channel_stream *st); /* tell the guest that it is given up; calls nobody */
void stream_moved(struct channel_stream *st, size_t bytes);
void stream_data(struct channel_stream *st, const uint8_t *data, size_t len);
/* The stream's next deadline; when it has passed `ret_e` says which. */
uint64_t stream_deadline(struct channel_stream *st, uint64_t now, struct err *ret_e);

/* nghttp2 callbacks for request bodies (stream.c). */
ssize_t stream_body_length(nghttp2_session *h2, uint8_t frame_type, int32_t stream_id, int32_t session_window,
                           int32_t stream_window, uint32_t frame_max, void *arg);
int stream_body_send(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *head, size_t len,
                     nghttp2_data_source *source, void *arg);

#endif

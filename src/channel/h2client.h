/* The HTTP/2 session of a channel without any I/O: bytes in, bytes out, the time asked from the owner.
 *
 * Theory of operation. A session is in one of three states:
 *
 *   resync ──echo found──► open ──┐
 *      └──────────────────────────┴──breach, deadline, h2client_fail──► over
 *
 * In `resync` the prelude is the only thing sent and everything received before its echo is dropped; requests made
 * meanwhile wait inside nghttp2. `over` is final: no input is looked at, nothing is sent, no request is taken;
 * `error` says why. The owner then calls h2client_end, which ends each stream, and frees.
 *
 * A stream is in `streams` from channel_request until its on_end or its cancelling, whichever comes first; nghttp2
 * knows it by the user data of the stream id, which is taken away at that moment: whatever the guest still sends for it
 * is dropped and counted. A stream that ends inside a callback is freed when the outermost entry below returns.
 *
 * Entries that call back: h2client_input, h2client_time, h2client_deliver, h2client_end. All others never do. */
#ifndef SPACE_CHANNEL_H2CLIENT_H
#define SPACE_CHANNEL_H2CLIENT_H

#include <sys/queue.h>
#include <sys/uio.h>

#include <nghttp2/nghttp2.h>

#include "channel/framewatch.h"
#include "channel/outq.h"
#include "channel/resync.h"
#include "channel/stream.h"

struct h2client_hooks {
    uint64_t (*now_ms)(void *arg);                     /* monotonic; stands still while the machine does */
    void (*random)(void *arg, void *data, size_t len); /* nonces */
    void (*wake)(void *arg);                           /* there may be something to send or deliver; may be NULL */
};

TAILQ_HEAD(stream_list, channel_stream);

struct h2client {
    struct channel_options options;
    const struct h2client_hooks *hooks;
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
    struct h2client *session;
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
struct h2client *h2client_new(const struct channel_options *o, const struct h2client_hooks *hooks, void *hooks_arg);
/* After h2client_end, or with no stream left. */
void h2client_free(struct h2client *s);

/* Bytes from the guest. 0, or the code of the error that ended the session. */
int h2client_input(struct h2client *s, const uint8_t *data, size_t len);

/* What to send next, at most `max` pieces; 0: nothing. Then h2client_sent with what the socket took. */
int h2client_output(struct h2client *s, struct iovec *ret_iov, int max);
void h2client_sent(struct h2client *s, size_t len);
/* Tell owners that may write again. True when one was told (there may be more to send). */
bool h2client_deliver(struct h2client *s);

/* When h2client_time wants to be called at the latest; UINT64_MAX: not at all. */
uint64_t h2client_deadline(const struct h2client *s);
int h2client_time(struct h2client *s);

/* It is over, for this reason; a first reason stays. Calls nobody. */
void h2client_fail(struct h2client *s, const struct err *why);
/* On a session that is over: end every stream with its error. */
void h2client_end(struct h2client *s);

int h2client_request(struct h2client *s, const struct channel_request *r,
                     const struct channel_stream_callbacks *callbacks, void *arg, struct channel_stream **ret_stream,
                     struct err *e);

/* --- between the files of the session ------------------------------------------------------------------------------
 */

uint64_t h2client_now(const struct h2client *s);
void h2client_wake(struct h2client *s);
void h2client_enter(struct h2client *s);
void h2client_leave(struct h2client *s);
int h2client_break(struct h2client *s, int code, const char *format, ...) ATTR_PRINTF(3, 4);
void h2client_deadline_lower(struct h2client *s, uint64_t at);

struct channel_stream *h2events_stream(struct h2client *s, int32_t id); /* NULL: none that an owner still has */
nghttp2_session_callbacks *h2events_callbacks(void);                    /* the caller deletes them */

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

/* An HTTP/2 client over one Unix stream socket, whose other end is the agent of a sandbox: hostile by assumption.
 *
 * A channel opens with the resync prelude (the agent drops what it had and echoes 32 bytes), then carries streams. A
 * stream is one request and its response. Rules that hold everywhere:
 *
 *  - Callbacks come from the loop, never from within a call of the owner's.
 *  - Each stream's on_end is called exactly once, also when the channel closes, unless the owner cancelled the stream:
 *    after channel_stream_cancel returns none of its callbacks is called again. The stream pointer is valid until then.
 *  - on_closed is called exactly once, after the last on_end, whoever closed it. The channel pointer is invalid after.
 *  - Inside any callback every call is allowed, cancel and close too.
 *  - Bytes that on_data gives count against the stream's window until the owner acknowledges them with
 *    channel_stream_consume: an owner that passes them on slowly slows the guest, and no other stream.
 *  - What is out of protocol, over a limit or silent for too long closes this channel with a text, and nothing else. */
#ifndef SPACE_CHANNEL_CHANNEL_H
#define SPACE_CHANNEL_CHANNEL_H

#include "base/err.h"

#include <uv.h>

struct channel;
struct channel_stream;

/* Zero in any field stands for the default, which channel_options_defaults gives. */
struct channel_options {
    uint32_t resync_timeout_ms;    /* connect to the echo of the prelude: 5,000 */
    uint32_t resync_repeat_ms;     /* a prelude with a fresh nonce again after this: 1,000 */
    uint32_t heartbeat_ms;         /* a PING this often while streams are open: 5,000; UINT32_MAX: never */
    uint32_t heartbeat_timeout_ms; /* without its answer for this long the channel closes: 10,000 */
    uint32_t stream_window;        /* bytes a stream may send ahead of channel_stream_consume: 512 KiB */
    uint32_t held_max;             /* … all streams together: 32 MiB */
    uint32_t body_max;             /* request bytes kept a stream before channel_stream_write says wait: 256 KiB */
    uint32_t streams_max;          /* open at once: 256 */
};

void channel_options_defaults(struct channel_options *o);

struct channel_callbacks {
    void (*on_ready)(void *arg);                       /* the agent echoed; may be NULL */
    void (*on_closed)(void *arg, const struct err *e); /* why; ERR_CANCELLED after channel_close */
};

/* Connect to the Unix socket at `path`. ERR_NOT_FOUND, ERR_UNAVAILABLE, ERR_SYSTEM. Streams can be started at once:
 * they wait for the agent. */
int channel_open_path(uv_loop_t *loop, const char *path, const struct channel_options *o,
                      const struct channel_callbacks *callbacks, void *arg, struct channel **ret_channel,
                      struct err *e);
/* As channel_open_path with a connected stream socket, which belongs to the channel on success alone. */
int channel_open_fd(uv_loop_t *loop, int fd, const struct channel_options *o, const struct channel_callbacks *callbacks,
                    void *arg, struct channel **ret_channel, struct err *e);

/* Begin to close; each stream ends with ERR_CANCELLED, then on_closed comes. Calling it again changes nothing. */
void channel_close(struct channel *c);

bool channel_ready(const struct channel *c);   /* the agent echoed and the channel is not closing */
bool channel_closing(const struct channel *c); /* closed or broken; on_closed is about to come */
size_t channel_stream_count(const struct channel *c);

/* The machine stands still (hold) or goes on: while held no heartbeat is sent and no deadline passes; what was left of
 * each is left after. Does not nest. */
void channel_hold(struct channel *c, bool hold);

struct channel_header {
    const char *name; /* lower case */
    const char *value;
};

struct channel_request {
    const char *method;
    const char *target; /* path and query; of CONNECT the authority */
    const struct channel_header *headers;
    size_t header_count;
    const void *body; /* a whole body, copied (at most body_max); NULL: none, or streamed */
    size_t body_len;
    bool streamed;                /* the body comes by channel_stream_write and ends by channel_stream_write_end */
    bool both_ways;               /* the owner may go on sending after the response has ended (CONNECT) */
    uint32_t response_timeout_ms; /* until the response's header; 0: none */
    uint32_t idle_timeout_ms;     /* no byte either way that the guest could have sent or taken; 0: none */
    uint32_t total_timeout_ms;    /* whole life; 0: none */
};

struct channel_stream_callbacks {
    /* Once, before any data. The headers are valid during the call. */
    void (*on_response)(void *arg, int status, const struct channel_header *headers, size_t header_count);
    /* Points into the receive buffer, valid during the call. */
    void (*on_data)(void *arg, const uint8_t *data, size_t len);
    /* All of the response has come while the request goes on (both_ways alone; may be NULL). */
    void (*on_read_end)(void *arg);
    /* There is room again after channel_stream_write took less than all (may be NULL). */
    void (*on_drain)(void *arg);
    /* The last one. `e` is NULL when the whole response came. */
    void (*on_end)(void *arg, const struct err *e);
};

/* Start a request. `callbacks` must stay valid as long as the stream. ERR_LIMIT when streams_max are open, ERR_STATE
 * when the channel closes, ERR_INVALID for a request that cannot be sent, ERR_TOO_LARGE. */
int channel_request(struct channel *c, const struct channel_request *r,
                    const struct channel_stream_callbacks *callbacks, void *arg, struct channel_stream **ret_stream,
                    struct err *e);

/* Give request bytes (copied). Returns how many were taken, 0..len; when less than `len`, on_drain follows. Bytes for a
 * stream whose request is over (response complete, broken channel) are taken and dropped. */
size_t channel_stream_write(struct channel_stream *s, const void *data, size_t len);
/* How much channel_stream_write would take. */
size_t channel_stream_writable(const struct channel_stream *s);
/* No more request bytes. */
void channel_stream_write_end(struct channel_stream *s);

/* `len` bytes that on_data gave have been passed on: the guest may send as many more. */
void channel_stream_consume(struct channel_stream *s, size_t len);
/* Bytes given and not yet consumed. */
size_t channel_stream_held(const struct channel_stream *s);

/* Give up: RST_STREAM to the agent, no callback any more, the pointer is invalid. */
void channel_stream_cancel(struct channel_stream *s);

/* What happened so far, for metrics. */
struct channel_stats {
    uint64_t bytes_in, bytes_out, frames_in, streams_opened, streams_reset_by_guest;
};
void channel_stats(const struct channel *c, struct channel_stats *ret_stats);

#endif

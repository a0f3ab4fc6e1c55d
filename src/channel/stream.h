/* What needs no loop: options of a channel, and what a stream is to its owner (the rules are at the top of channel.h).
 */
#ifndef SPACE_CHANNEL_STREAM_H
#define SPACE_CHANNEL_STREAM_H

#include "base/err.h"

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

struct channel_stats {
    uint64_t bytes_in, bytes_out, frames_in, streams_opened, streams_reset_by_guest;
};

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

#endif

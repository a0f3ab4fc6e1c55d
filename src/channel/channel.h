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

#include "channel/stream.h"

#include <uv.h>

struct channel;

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

/* Start a request. `callbacks` must stay valid as long as the stream. ERR_LIMIT when streams_max are open, ERR_STATE
 * when the channel closes, ERR_INVALID for a request that cannot be sent, ERR_TOO_LARGE. */
int channel_request(struct channel *c, const struct channel_request *r,
                    const struct channel_stream_callbacks *callbacks, void *arg, struct channel_stream **ret_stream,
                    struct err *e);

/* What happened so far, for metrics. */
void channel_stats(const struct channel *c, struct channel_stats *ret_stats);

#endif

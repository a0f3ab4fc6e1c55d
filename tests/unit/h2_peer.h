/* The other end of a channel's HTTP/2 client, in memory: hand-made frames for what no library would send, and an
 * nghttp2 server where the ordinary course of things is wanted. Time stands still until a test moves it. */
#ifndef SPACE_TESTS_UNIT_H2_PEER_H
#define SPACE_TESTS_UNIT_H2_PEER_H

#include "base/buf.h"
#include "channel/h2client.h"

struct answer {
    LIST_ENTRY(answer) link;
    uint64_t at, end;
};

struct rig {
    struct h2client *client;
    uint64_t now;
    struct buf sent; /* what the client sent since rig_take */
    uint8_t nonce;   /* of the next prelude: sixteen times this byte */
    /* The server, when one was asked for. */
    nghttp2_session *server;
    void (*on_request)(struct rig *rig, int32_t stream_id); /* the request's header is complete */
    void (*on_request_end)(struct rig *rig, int32_t stream_id);
    uint64_t server_received; /* request bytes */
    bool server_wrong;        /* … one of them was not what pattern_byte says */
    bool server_holds;        /* … and gives no window back */
    uint64_t server_resets;   /* RST_STREAM frames from the client */
    uint64_t server_pings;
    LIST_HEAD(, answer) answers;
};

/* What the owner of a stream saw. */
struct seen {
    struct channel_stream *stream;
    int status;
    size_t headers;
    char first_header[64];
    uint64_t bytes;
    bool wrong; /* a byte was not what pattern_byte says */
    unsigned responses, datas, read_ends, drains, ends;
    int error; /* of the end; 0: success */
    char text[512];
    bool consume;                                       /* at once */
    void (*then)(struct seen *seen, const char *event); /* called in each callback */
    void *other;
};

void rig_open(struct rig *rig, const struct channel_options *o);  /* not yet in step; o may be NULL */
void rig_echo(struct rig *rig);                                   /* the peer echoes the newest prelude */
void rig_ready(struct rig *rig, const struct channel_options *o); /* open, echo, the peer's SETTINGS */
void rig_serve(struct rig *rig, const struct channel_options *o); /* open, echo, an nghttp2 server */
void rig_pump(struct rig *rig);                                   /* move bytes until both are quiet */
void rig_output(struct rig *rig);                                 /* take what the client sends into `sent` */
void rig_advance(struct rig *rig, uint64_t ms);                   /* in steps of a quarter second */
void rig_close(struct rig *rig);                                  /* end and free, streams included */
int rig_request(struct rig *rig, struct seen *seen, const struct channel_request *r);
struct channel_request rig_get(const char *target);

/* Give the client bytes; the code of its error, or 0. */
int rig_give(struct rig *rig, const void *data, size_t len);
int rig_give_buf(struct rig *rig, struct buf *b); /* empties it */

void frame_put(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream_id, const void *payload, size_t len);
/* A header block with ":status: 200" alone. */
#define STATUS_200 "\x88"

/* Answer from the server: a header, then `bytes` of pattern. */
void server_answer(struct rig *rig, int32_t stream_id, uint64_t bytes);

static inline uint8_t pattern_byte(uint64_t offset)
{
    return (uint8_t)(offset * 31 + (offset >> 8) * 7 + (offset >> 16));
}

extern const struct channel_stream_callbacks seen_callbacks;

#endif

/* Looks at the frames that the guest sends before the HTTP/2 library sees them, and says when it is enough: sizes,
 * kinds and rates that no agent of ours produces. It reads the nine bytes of each frame header and passes over the
 * rest, so it costs next to nothing on large frames and allocates nothing.
 *
 * A budget is a bucket: it holds `burst` tokens at first, fills by `rate` a second, and by what the host does (a stream
 * opened, bytes sent). Each frame of its kind takes one token. */
#ifndef SPACE_CHANNEL_FRAMEWATCH_H
#define SPACE_CHANNEL_FRAMEWATCH_H

#include "base/buf.h"
#include "base/err.h"

struct budget {
    uint64_t burst;
    uint64_t per_second;
    uint64_t millitokens;
    uint64_t filled_ms;
};

struct framewatch {
    uint8_t head[9];
    unsigned head_len;
    uint32_t payload_left;
    uint32_t block_bytes;   /* of the header block under way */
    unsigned continuations; /* … its CONTINUATION frames */
    uint32_t frame_max;
    uint64_t frames;        /* seen in all */
    uint64_t data_frames;   /* … of which DATA */
    uint64_t orphan_credit; /* DATA bytes for streams that are no more: what may still be under way */
    uint64_t sent_credit;   /* bytes sent that have not yet made a token for a WINDOW_UPDATE */
    struct budget control;  /* SETTINGS, PING, PRIORITY, unknown kinds, DATA without data, padding */
    struct budget resets;   /* RST_STREAM: one a stream */
    struct budget breaks;   /* … that ended a stream before its answer was whole */
    struct budget windows;  /* WINDOW_UPDATE */
    struct budget headers;  /* HEADERS: one a stream */
};

/* True when the owner of the session knows this stream. */
typedef bool framewatch_stream_cb(void *arg, uint32_t stream_id);

void framewatch_init(struct framewatch *w, uint32_t frame_max, uint64_t now_ms);
/* ERR_PROTOCOL when a frame is one too many or of a kind that has no place here. */
int framewatch_input(struct framewatch *w, const uint8_t *data, size_t len, uint64_t now_ms,
                     framewatch_stream_cb *known, void *arg, struct err *e);
/* The guest broke off an answer; false when it did that too often. */
bool framewatch_broken_off(struct framewatch *w, uint64_t now_ms);
void framewatch_opened(struct framewatch *w);                    /* the host opened a stream */
void framewatch_abandoned(struct framewatch *w, uint64_t bytes); /* … gave one up, so many bytes may be under way */
void framewatch_sent(struct framewatch *w, size_t bytes);        /* … sent DATA */

#endif

/* Budgets on incoming frames (see framewatch.h). Frame kinds and flags: RFC 9113 section 6. */
#include "channel/framewatch.h"

#include <nghttp2/nghttp2.h>

#include "wire/agent_protocol.h"

#define CONTROL_BURST 100
#define CONTROL_RATE 10
#define RESET_BURST 16   /* above one a stream: what is reset was opened by the host */
#define BREAK_BURST 1000 /* answers that are broken off or never begun */
#define BREAK_RATE 200
#define WINDOW_BURST 2000
#define WINDOW_RATE 200
#define WINDOW_BYTES 1024 /* so many bytes sent pay for one more WINDOW_UPDATE */
#define HEADERS_BURST                                                                                                  \
    16 /* above one a stream: none is due, but a stream may be reset while its answer is under way                     \
        */
#define CONTINUATIONS_MAX 8
#define ORPHAN_SLACK (256u * 1024)

static struct budget budget_make(uint64_t burst, uint64_t per_second, uint64_t now_ms)
{
    return (struct budget){.burst = burst, .per_second = per_second, .millitokens = burst * 1000, .filled_ms = now_ms};
}

static bool budget_take(struct budget *b, uint64_t now_ms)
{
    if (now_ms > b->filled_ms) {
        uint64_t gain = (now_ms - b->filled_ms) * b->per_second;
        /* What the host's own doings added stays above the burst; time alone does not fill further than it. */
        if (b->millitokens < b->burst * 1000)
            b->millitokens = MIN(b->millitokens + gain, b->burst * 1000);
        b->filled_ms = now_ms;
    }
    if (b->millitokens < 1000)
        return false;
    b->millitokens -= 1000;
    return true;
}

static void budget_give(struct budget *b, uint64_t tokens)
{
    b->millitokens = MIN(b->millitokens + tokens * 1000, b->burst * 4000);
}

void framewatch_init(struct framewatch *w, uint32_t frame_max, uint64_t now_ms)
{
    *w = (struct framewatch){
        .frame_max = frame_max,
        .orphan_credit = ORPHAN_SLACK,
        .control = budget_make(CONTROL_BURST, CONTROL_RATE, now_ms),
        .resets = budget_make(RESET_BURST, 0, now_ms),
        .breaks = budget_make(BREAK_BURST, BREAK_RATE, now_ms),
        .windows = budget_make(WINDOW_BURST, WINDOW_RATE, now_ms),
        .headers = budget_make(HEADERS_BURST, 0, now_ms),
    };
}

bool framewatch_broken_off(struct framewatch *w, uint64_t now_ms)
{
    return budget_take(&w->breaks, now_ms);
}

void framewatch_opened(struct framewatch *w)
{
    /* Never capped: streams that have been open for long may all be answered at once. */
    w->headers.millitokens += 1000;
    w->resets.millitokens += 1000;
}

void framewatch_abandoned(struct framewatch *w, uint64_t bytes)
{
    w->orphan_credit += bytes;
}

void framewatch_sent(struct framewatch *w, size_t bytes)
{
    w->sent_credit += bytes;
    if (w->sent_credit >= WINDOW_BYTES) {
        budget_give(&w->windows, w->sent_credit / WINDOW_BYTES);
        w->sent_credit %= WINDOW_BYTES;
    }
}

static int take(struct budget *b, uint64_t now_ms, const char *what, struct err *e)
{
    if (budget_take(b, now_ms))
        return 0;
    return err_set(e, ERR_PROTOCOL, "the agent sent too many %s", what);
}

static int block_grow(struct framewatch *w, uint32_t len, struct err *e)
{
    w->block_bytes += len;
    if (w->block_bytes > AGENT_HEADER_LIST_MAX)
        return err_set(e, ERR_PROTOCOL, "the agent sent a header block of more than %d bytes", AGENT_HEADER_LIST_MAX);
    return 0;
}

static int data_check(struct framewatch *w, uint32_t len, uint8_t flags, uint32_t stream_id, uint64_t now_ms,
                      framewatch_stream_cb *known, void *arg, struct err *e)
{
    w->data_frames++;
    if ((flags & NGHTTP2_FLAG_PADDED) || (len == 0 && !(flags & NGHTTP2_FLAG_END_STREAM))) {
        int r = take(&w->control, now_ms, "empty or padded frames", e);
        if (r < 0)
            return r;
    }
    if (!known(arg, stream_id)) {
        /* The fixed part pays for frames without bytes. */
        uint64_t cost = (uint64_t)len + 16;
        if (cost > w->orphan_credit)
            return err_set(e, ERR_PROTOCOL, "the agent sent data for a stream that is not open");
        w->orphan_credit -= cost;
    }
    return 0;
}

static int frame_check(struct framewatch *w, uint64_t now_ms, framewatch_stream_cb *known, void *arg, struct err *e)
{
    uint32_t len = (uint32_t)w->head[0] << 16 | (uint32_t)w->head[1] << 8 | w->head[2];
    uint8_t type = w->head[3], flags = w->head[4];
    uint32_t stream_id = get_u32(w->head + 5) & 0x7fffffff;
    int r;
    w->frames++;
    w->payload_left = len;
    if (len > w->frame_max)
        return err_set(e, ERR_PROTOCOL, "the agent sent a frame of %u bytes", len);
    switch (type) {
    case NGHTTP2_DATA:
        return data_check(w, len, flags, stream_id, now_ms, known, arg, e);
    case NGHTTP2_HEADERS:
        w->block_bytes = 0;
        w->continuations = 0;
        r = take(&w->headers, now_ms, "header blocks", e);
        return r < 0 ? r : block_grow(w, len, e);
    case NGHTTP2_CONTINUATION:
        if (++w->continuations > CONTINUATIONS_MAX)
            return err_set(e, ERR_PROTOCOL, "the agent sent too many CONTINUATION frames");
        return block_grow(w, len, e);
    case NGHTTP2_RST_STREAM:
        return take(&w->resets, now_ms, "RST_STREAM frames", e);
    case NGHTTP2_WINDOW_UPDATE:
        return take(&w->windows, now_ms, "WINDOW_UPDATE frames", e);
    case NGHTTP2_PUSH_PROMISE:
        return err_set(e, ERR_PROTOCOL, "the agent sent a PUSH_PROMISE");
    default:
        return take(&w->control, now_ms, "control frames", e);
    }
}

int framewatch_input(struct framewatch *w, const uint8_t *data, size_t len, uint64_t now_ms,
                     framewatch_stream_cb *known, void *arg, struct err *e)
{
    while (len > 0) {
        size_t n;
        if (w->payload_left > 0) {
            n = MIN(len, (size_t)w->payload_left);
            w->payload_left -= (uint32_t)n;
        } else {
            n = MIN(len, sizeof(w->head) - w->head_len);
            memcpy(w->head + w->head_len, data, n);
            w->head_len += (unsigned)n;
            if (w->head_len == sizeof(w->head)) {
                w->head_len = 0;
                int r = frame_check(w, now_ms, known, arg, e);
                if (r < 0)
                    return r;
            }
        }
        data += n;
        len -= n;
    }
    return 0;
}

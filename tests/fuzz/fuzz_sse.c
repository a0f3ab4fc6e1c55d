/* Event streams as a server may send them: whole and cut into pieces they give the same events. */
#include "cli/sse.h"

#include "fuzz.h"

static int on_event(void *arg, const struct sse_event *event)
{
    struct buf *out = arg;
    buf_printf(out, "%s|%s|%zu|", event->name, event->id, event->len);
    buf_put(out, event->data, event->len);
    return 0;
}

static int feed(const uint8_t *data, size_t size, size_t piece, struct buf *out)
{
    struct sse s;
    int r = 0;
    sse_init(&s, on_event, out);
    for (size_t at = 0; at < size && r == 0; at += piece)
        r = sse_feed(&s, data + at, MIN(piece, size - at), NULL);
    sse_done(&s);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_buf_ struct buf whole = BUF_MAX(0), pieces = BUF_MAX(0);
    if (size == 0)
        return 0;
    int a = feed(data, size, size, &whole), b = feed(data, size, 1 + data[0] % 7, &pieces);
    assert(a == b);
    assert(whole.len == pieces.len && (whole.len == 0 || memcmp(buf_data(&whole), buf_data(&pieces), whole.len) == 0));
    return 0;
}

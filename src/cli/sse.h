/* Server-Sent Events: bytes in, events out, no I/O. */
#ifndef SPACE_CLI_SSE_H
#define SPACE_CLI_SSE_H

#include "base/buf.h"
#include "base/err.h"

#define SSE_LINE_MAX (512 * KIB)
#define SSE_DATA_MAX (1 * MIB)

struct sse_event {
    const char *name; /* "message" when the stream names none */
    const char *id;   /* the last id seen, "" at first */
    const char *data; /* lines joined by newlines; NUL-terminated */
    size_t len;
};

struct sse {
    struct buf line, data;
    char name[32], id[64];
    bool has_data;
    /* Non-zero ends sse_feed with that value. */
    int (*on_event)(void *arg, const struct sse_event *event);
    void *arg;
};

void sse_init(struct sse *s, int (*on_event)(void *arg, const struct sse_event *event), void *arg);
/* Forget a half-received event, as at a new connection; the last id stays. */
void sse_restart(struct sse *s);
void sse_done(struct sse *s);
/* ERR_PROTOCOL when a line or an event is larger than the limits above; what on_event returned if that is not 0. */
int sse_feed(struct sse *s, const void *data, size_t len, struct err *e);

#endif

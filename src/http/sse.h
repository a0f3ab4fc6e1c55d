/* Server-Sent Events (WHATWG HTML, section 9.2) over a streamed answer. An event is taken whole or not at all. */
#ifndef SPACE_HTTP_SSE_H
#define SPACE_HTTP_SSE_H

#include "http/http_request.h"

#define SSE_KEEPALIVE_MS 15000

struct sse;

/* Begin the answer (200, text/event-stream, no caching). `on_drain` comes after a refused event when there is room
 * again. The request's on_abort tells that the reader is gone; the `struct sse` is then freed by the server (after
 * on_abort returned). keepalive_ms: a comment line after so long without output; 0 takes 15 s. */
struct sse *sse_begin(struct http_request *r, uint64_t keepalive_ms, void (*on_drain)(struct sse *s, void *arg),
                      void *arg);
struct http_request *sse_request(struct sse *s);

/* The id that a reader that comes back has seen last: the Last-Event-ID header, else the query parameter
 * "last_event_id", else NULL. */
const char *sse_last_id(const struct http_request *r);

/* Text; line ends (LF, CR, CRLF) in it begin new "data:" lines. `id` and `event` may be NULL. False: no room, nothing
 * was sent, on_drain will come. An event that could never fit (output_max) is also false: keep below sse_max. */
bool sse_send(struct sse *s, const char *id, const char *event, const char *data, size_t len);
/* Bytes, written as base64 straight into the output buffer. */
bool sse_send_base64(struct sse *s, const char *id, const char *event, const void *data, size_t len);
/* How many bytes sse_send_base64 would take at this moment in one event with id and event names of up to 64 bytes. */
size_t sse_room_base64(const struct sse *s);
size_t sse_max_base64(const struct sse *s); /* the same for an empty buffer */

void sse_end(struct sse *s);   /* complete; frees s */
void sse_abort(struct sse *s); /* cut; frees s */

#endif

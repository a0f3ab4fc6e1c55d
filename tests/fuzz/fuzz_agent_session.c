/* The agent's session: any bytes from the port, in pieces of any size, with answers of every kind. In the input, each
 * piece begins with its length (one byte; 255 asks for output to be taken instead, 254 for the port to close and open).
 * So that the fuzzer gets past the start of a session, an input that begins with 'H' is preceded by prelude and
 * preface. */
#include "agent/query.h"
#include "agent/session.h"
#include "base/str.h"
#include "fuzz.h"

struct stream {
    size_t left;
    struct request *request;
};

static size_t available(struct request *r, size_t max, bool *ret_end)
{
    struct stream *s = r->ctx;
    *ret_end = s->left <= max;
    return MIN(s->left, max);
}

static bool emit(struct request *r, uint8_t *to, size_t len)
{
    struct stream *s = r->ctx;
    assert(len <= s->left);
    memset(to, 'x', len);
    s->left -= len;
    return s->left % 7 != 3; /* now and then the source fails */
}

static void body(struct request *r, const uint8_t *data, size_t len)
{
    struct stream *s = r->ctx;
    s->left += data[len - 1];
    request_consume(r, len);
    request_wake(r);
}

static void body_end(struct request *r)
{
    request_wake(r);
}

static void closed(struct request *r)
{
    free(r->ctx);
}

static const struct request_ops stream_ops = {
    .body = body, .body_end = body_end, .available = available, .emit = emit, .closed = closed};

static void collected(struct request *r)
{
    struct buf copy = BUF_MAX(AGENT_BODY_MAX);
    if (r->body.len > 0)
        buf_put(&copy, buf_data(&r->body), r->body.len);
    request_reply(r, 200, &copy);
}

static void handle(void *arg, struct request *r)
{
    struct query q;
    struct err e;
    (void)arg;
    char *query = r->path, *path = query ? strsep(&query, "?") : NULL;
    if (!path || query_parse(query, &q, &e) < 0) {
        request_failf(r, ERR_INVALID, "no path");
    } else if (str_starts(path, "/c")) {
        request_collect(r, collected);
    } else if (str_starts(path, "/s")) {
        struct stream *s = NEW(struct stream);
        s->left = strlen(path) * 1000;
        r->ops = &stream_ops;
        r->ctx = s;
        request_header(r, AGENT_HEADER_SIZE, "%zu", s->left);
        request_widen(r);
        request_stream(r, 200);
    } else if (str_starts(path, "/r")) {
        request_reset(r);
    } else if (str_starts(path, "/h")) {
        return; /* never answered */
    } else {
        request_reply(r, 200, NULL);
    }
}

static void take_output(struct session *s)
{
    for (int i = 0; i < 8 && session_pump(s); i++) {
        size_t len;
        const uint8_t *out = session_out(s, &len);
        assert(out && len > 0 && len <= LIMIT_OUT_BUFFER);
        session_written(s, i % 3 == 0 && len > 1 ? len / 2 : len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct session s;
    session_init(&s, handle, NULL);
    if (size > 0 && data[0] == 'H') {
        static const char start[] = AGENT_PRELUDE_MAGIC "0123456789abcdef" NGHTTP2_CLIENT_MAGIC "\0\0\0\4\0\0\0\0\0";
        session_feed(&s, (const uint8_t *)start, sizeof(start) - 1);
        data++;
        size--;
    }
    while (size > 0) {
        size_t n = data[0];
        data++;
        size--;
        if (n == 255) {
            take_output(&s);
        } else if (n == 254) {
            session_drop(&s);
        } else {
            n = MIN(n, size);
            session_feed(&s, data, n);
            data += n;
            size -= n;
        }
    }
    take_output(&s);
    session_done(&s);
    return 0;
}

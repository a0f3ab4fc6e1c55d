/* The channel's HTTP/2 client: a hostile guest's bytes mixed with what owners of streams do and with time. The input is
 * a list of steps, each one byte and what belongs to it: 0..127    that many bytes from the guest follow (as they are)
 *   128..191  a frame follows: type, flags, stream id; the low six bits say how many bytes of payload
 *   192..255  something the owner does; the low bits choose what and with which stream */
#include "channel/h2client.h"
#include "fuzz.h"

#define SLOTS 4

struct owner {
    struct h2client *client;
    struct channel_stream *stream;
    unsigned ends;
    bool live;
    uint8_t habit; /* what it does in its callbacks */
};

static uint64_t now;
static struct owner owners[SLOTS];

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return now;
}

static void no_random(void *arg, void *data, size_t len)
{
    (void)arg;
    memset(data, 'n', len);
}

static const struct h2client_hooks hooks = {.now_ms = clock_now, .random = no_random};

static void habit(struct owner *o, uint8_t event)
{
    assert(o->live);
    if (o->habit == event) {
        o->live = false;
        channel_stream_cancel(o->stream);
    }
}

static void on_response(void *arg, int status, const struct channel_header *headers, size_t count)
{
    assert(status >= 200 && status <= 999);
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        assert(headers[i].name[0] != '\0' && headers[i].name[0] != ':');
        assert(!strpbrk(headers[i].name, "\r\n: ") && !strpbrk(headers[i].value, "\r\n"));
        total += strlen(headers[i].name) + strlen(headers[i].value);
    }
    assert(total <= AGENT_HEADER_LIST_MAX);
    habit(arg, 1);
}

static void on_data(void *arg, const uint8_t *data, size_t len)
{
    struct owner *o = arg;
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < len; i++)
        sum = (uint8_t)(sum + data[i]);
    if (o->habit & 8)
        channel_stream_consume(o->stream, len);
    habit(o, 2);
}

static void on_read_end(void *arg)
{
    habit(arg, 3);
}

static void on_drain(void *arg)
{
    struct owner *o = arg;
    channel_stream_write(o->stream, "drained", 7);
    habit(o, 4);
}

static void on_end(void *arg, const struct err *e)
{
    struct owner *o = arg;
    assert(o->live);
    assert(!e || e->code < 0);
    o->live = false;
    o->ends++;
}

static const struct channel_stream_callbacks callbacks = {on_response, on_data, on_read_end, on_drain, on_end};

static void owner_step(struct h2client *c, uint8_t what)
{
    static uint8_t body[100000];
    struct owner *o = &owners[what & 3];
    switch (what >> 2 & 15) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
        if (!o->live) {
            unsigned kind = what >> 2 & 15;
            struct channel_request r = {.method = kind == 4 ? "CONNECT" : "PUT",
                                        .target = kind == 4 ? "127.0.0.1:80" : "/",
                                        .streamed = kind != 0,
                                        .both_ways = kind == 4,
                                        .response_timeout_ms = kind == 2 ? 1000 : 0,
                                        .idle_timeout_ms = kind == 3 ? 1000 : 0,
                                        .total_timeout_ms = kind == 1 ? 5000 : 0};
            o->live = h2client_request(c, &r, &callbacks, o, &o->stream, NULL) == 0;
        }
        break;
    case 5:
    case 6:
        if (o->live)
            channel_stream_write(o->stream, body, (what & 64) ? sizeof(body) : 10);
        break;
    case 7:
        if (o->live)
            channel_stream_write_end(o->stream);
        break;
    case 8:
        if (o->live)
            channel_stream_consume(o->stream, 100);
        break;
    case 9:
        if (o->live) {
            o->live = false;
            channel_stream_cancel(o->stream);
        }
        break;
    case 10:
        now += 1000;
        h2client_time(c);
        break;
    case 11:
        h2client_deliver(c);
        break;
    default:
        o->habit = what >> 2 & 15;
        break;
    }
}

static void output(struct h2client *c)
{
    struct iovec iov[8];
    int n, guard = 0;
    while ((n = h2client_output(c, iov, 8)) > 0) {
        assert(++guard < 10000);
        size_t total = 0;
        for (int i = 0; i < n; i++)
            total += iov[i].iov_len;
        h2client_sent(c, total > 1 && (guard & 1) ? total / 2 : total);
    }
    assert(c->out.bytes <= 1024 * 1024);
}

static void guest_gives(struct h2client *c, const uint8_t *data, size_t len)
{
    /* A copy of exact size shows reads beyond its end. */
    uint8_t *copy = xmalloc(len + 1);
    memcpy(copy, data, len);
    h2client_input(c, copy, len);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct channel_options options = {.resync_timeout_ms = 5000,
                                                   .resync_repeat_ms = 1000,
                                                   .heartbeat_ms = 5000,
                                                   .heartbeat_timeout_ms = 10000,
                                                   .stream_window = 65536,
                                                   .held_max = 100000,
                                                   .body_max = 65536,
                                                   .streams_max = 3};
    now = 1;
    memset(owners, 0, sizeof(owners));
    struct h2client *c = h2client_new(&options, &hooks, NULL);
    output(c);
    if (size > 0 && data[0] != 0xff)
        guest_gives(c, c->resync.prelude, sizeof(c->resync.prelude));
    output(c);
    while (size > 0 && !c->over) {
        uint8_t step = *data++;
        size--;
        if (step < 128) {
            size_t n = MIN((size_t)step, size);
            guest_gives(c, data, n);
            data += n;
            size -= n;
        } else if (step < 192 && size >= 3) {
            size_t n = MIN((size_t)(step & 63), size - 3);
            uint8_t frame[9 + 63] = {0, 0, (uint8_t)n, data[0], data[1], 0, 0, 0, data[2]};
            memcpy(frame + 9, data + 3, n);
            guest_gives(c, frame, 9 + n);
            data += 3 + n;
            size -= 3 + n;
        } else {
            owner_step(c, step & 63);
        }
        output(c);
    }
    struct err e;
    err_set(&e, ERR_CANCELLED, "end");
    h2client_fail(c, &e);
    h2client_end(c);
    for (int i = 0; i < SLOTS; i++)
        assert(!owners[i].live);
    assert(c->stream_count == 0 && c->held == 0 && c->drains == 0);
    h2client_free(c);
    return 0;
}

/* The session proper: states, input, output, time (see h2client.h). What nghttp2 makes of the input is in h2events.c.
 */
#include "channel/h2client.h"

#include <stdarg.h>

uint64_t h2client_now(const struct h2client *s)
{
    return s->hooks->now_ms(s->hooks_arg);
}

void h2client_wake(struct h2client *s)
{
    if (s->hooks->wake)
        s->hooks->wake(s->hooks_arg);
}

void h2client_enter(struct h2client *s)
{
    s->depth++;
}

void h2client_leave(struct h2client *s)
{
    if (--s->depth > 0)
        return;
    struct channel_stream *st;
    while ((st = TAILQ_FIRST(&s->graveyard))) {
        TAILQ_REMOVE(&s->graveyard, st, link);
        free(st);
    }
}

void h2client_deadline_lower(struct h2client *s, uint64_t at)
{
    if (at < s->deadline) {
        s->deadline = at;
        h2client_wake(s);
    }
}

void h2client_fail(struct h2client *s, const struct err *why)
{
    if (s->over)
        return;
    s->over = true;
    s->error = *why;
    h2client_wake(s);
}

int h2client_break(struct h2client *s, int code, const char *format, ...)
{
    struct err e = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(e.text, sizeof(e.text), format, args);
    va_end(args);
    h2client_fail(s, &e);
    return code;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

/* Each prelude has a nonce of its own, and only the echo of the last one counts: an agent that comes to answer several
 * does it in their order, so nothing of an earlier answer can be taken for the session. A repeat first ends whatever
 * frame of an older session the agent may still be waiting for. */
static void prelude_send(struct h2client *s)
{
    uint8_t nonce[AGENT_NONCE_SIZE];
    if (s->resync_repeat_at) {
        static const uint8_t zeros[AGENT_RESYNC_FLUSH];
        outq_copy(&s->out, zeros, sizeof(zeros));
    }
    s->hooks->random(s->hooks_arg, nonce, sizeof(nonce));
    resync_begin(&s->resync, nonce);
    outq_copy(&s->out, s->resync.prelude, sizeof(s->resync.prelude));
    /* Each repeat waits twice as long, so that the last one has time for its echo. */
    s->resync_repeat_at = h2client_now(s) + s->resync_repeat_ms;
    s->resync_repeat_ms *= 2;
    h2client_deadline_lower(s, MIN(s->resync_repeat_at, s->resync_deadline));
}

static void h2_make(struct h2client *s)
{
    nghttp2_session_callbacks *cb = h2events_callbacks();
    nghttp2_option *option;
    if (nghttp2_option_new(&option) != 0)
        abort();
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_peer_max_concurrent_streams(option, AGENT_STREAMS_MAX);
    nghttp2_option_set_max_reserved_remote_streams(option, 0);
    nghttp2_option_set_max_outbound_ack(option, 128);
    nghttp2_option_set_max_settings(option, 16);
    int r = nghttp2_session_client_new2(&s->h2, cb, s, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
    if (r != 0)
        abort();
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, s->options.stream_window},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, AGENT_FRAME_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, AGENT_HEADER_LIST_MAX},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    r = nghttp2_submit_settings(s->h2, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    if (r == 0)
        r = nghttp2_session_set_local_window_size(s->h2, NGHTTP2_FLAG_NONE, 0, AGENT_CONNECTION_WINDOW);
    if (r != 0)
        abort();
}

struct h2client *h2client_new(const struct channel_options *o, const struct h2client_hooks *hooks, void *hooks_arg)
{
    struct h2client *s = NEW(struct h2client);
    s->options = *o;
    s->hooks = hooks;
    s->hooks_arg = hooks_arg;
    TAILQ_INIT(&s->streams);
    TAILQ_INIT(&s->graveyard);
    h2_make(s);
    s->deadline = UINT64_MAX;
    s->resync_repeat_ms = o->resync_repeat_ms;
    s->resync_deadline = h2client_now(s) + o->resync_timeout_ms;
    prelude_send(s);
    return s;
}

void h2client_free(struct h2client *s)
{
    if (!s)
        return;
    nghttp2_session_del(s->h2);
    outq_done(&s->out);
    free(s);
}

/* --- input -------------------------------------------------------------------------------------------------------- */

static bool stream_known(void *arg, uint32_t stream_id)
{
    return h2events_stream(arg, (int32_t)stream_id) != NULL;
}

/* Everything up to the echo is of an older session. Returns how many bytes were taken. */
static size_t resync_take(struct h2client *s, const uint8_t *data, size_t len)
{
    size_t n = resync_input(&s->resync, data, len);
    if (s->resync.discarded > AGENT_RESYNC_DISCARD_MAX) {
        h2client_break(s, ERR_PROTOCOL, "the agent sent more than %d bytes without beginning a session",
                       AGENT_RESYNC_DISCARD_MAX);
    } else if (s->resync.done) {
        s->ready = true;
        framewatch_init(&s->watch, AGENT_FRAME_MAX, h2client_now(s));
        for (size_t i = 0; i < s->stats.streams_opened; i++)
            framewatch_opened(&s->watch);
    }
    return n;
}

int h2client_input(struct h2client *s, const uint8_t *data, size_t len)
{
    struct err e;
    if (s->over)
        return s->error.code;
    h2client_enter(s);
    s->stats.bytes_in += len;
    if (!s->ready) {
        size_t n = resync_take(s, data, len);
        data += n;
        len -= n;
    }
    if (!s->over && len > 0) {
        if (framewatch_input(&s->watch, data, len, h2client_now(s), stream_known, s, &e) < 0) {
            h2client_fail(s, &e);
        } else {
            ssize_t n = nghttp2_session_mem_recv(s->h2, data, len);
            if (n < 0)
                h2client_break(s, ERR_PROTOCOL, "the agent broke HTTP/2: %s", nghttp2_strerror((int)n));
        }
        s->stats.frames_in = s->watch.frames;
    }
    h2client_wake(s);
    h2client_leave(s);
    return s->over ? s->error.code : 0;
}

/* --- output ------------------------------------------------------------------------------------------------------- */

static void output_fill(struct h2client *s)
{
    while (!s->over && !outq_full(&s->out)) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(s->h2, &data);
        if (n < 0) /* before_send may have said why already: a first reason stays */
            h2client_break(s, ERR_INTERNAL, "HTTP/2 output failed: %s", nghttp2_strerror((int)n));
        if (n <= 0)
            break;
        outq_copy(&s->out, data, (size_t)n);
    }
}

int h2client_output(struct h2client *s, struct iovec *ret_iov, int max)
{
    if (s->over)
        return 0;
    h2client_enter(s);
    if (s->ready)
        output_fill(s);
    h2client_leave(s);
    return s->over ? 0 : outq_peek(&s->out, ret_iov, max);
}

void h2client_sent(struct h2client *s, size_t len)
{
    s->stats.bytes_out += len;
    outq_consume(&s->out, len);
}

bool h2client_deliver(struct h2client *s)
{
    struct channel_stream *st;
    bool told = false;
    if (s->drains == 0)
        return false;
    h2client_enter(s);
again:
    TAILQ_FOREACH(st, &s->streams, link)
    {
        if (!st->want_drain || s->over || st->body_bytes > s->options.body_max / 2)
            continue;
        st->want_drain = false;
        s->drains--;
        told = true;
        if (st->callbacks->on_drain) {
            st->callbacks->on_drain(st->arg);
            goto again; /* the list may be another one */
        }
    }
    h2client_leave(s);
    return told;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

uint64_t h2client_deadline(const struct h2client *s)
{
    return s->over ? UINT64_MAX : s->deadline;
}

static uint64_t resync_time(struct h2client *s, uint64_t now)
{
    if (now >= s->resync_deadline) {
        h2client_break(s, ERR_TIMEOUT, "the agent did not begin a session within %u ms", s->options.resync_timeout_ms);
        return UINT64_MAX;
    }
    if (now >= s->resync_repeat_at)
        prelude_send(s);
    return MIN(s->resync_repeat_at, s->resync_deadline);
}

static uint64_t heartbeat_time(struct h2client *s, uint64_t now)
{
    if (s->ping_deadline) {
        if (now >= s->ping_deadline)
            h2client_break(s, ERR_TIMEOUT, "the agent did not answer a heartbeat within %u ms",
                           s->options.heartbeat_timeout_ms);
        return s->ping_deadline;
    }
    if (!s->ping_at)
        return UINT64_MAX;
    if (now < s->ping_at)
        return s->ping_at;
    if (s->stream_count == 0) {
        s->ping_at = 0;
        return UINT64_MAX;
    }
    uint8_t payload[8];
    s->ping_count++;
    for (int i = 0; i < 8; i++)
        payload[i] = (uint8_t)(s->ping_count >> (56 - 8 * i));
    if (nghttp2_submit_ping(s->h2, NGHTTP2_FLAG_NONE, payload) != 0)
        h2client_break(s, ERR_INTERNAL, "a heartbeat could not be sent");
    s->ping_deadline = now + s->options.heartbeat_timeout_ms;
    return s->ping_deadline;
}

static uint64_t streams_time(struct h2client *s, uint64_t now)
{
    struct channel_stream *st;
    uint64_t next;
again:
    next = UINT64_MAX;
    TAILQ_FOREACH(st, &s->streams, link)
    {
        struct err e;
        uint64_t at = stream_deadline(st, now, &e);
        if (at <= now) {
            stream_reset(st);
            stream_finish(st, &e);
            if (s->over)
                return UINT64_MAX;
            goto again;
        }
        next = MIN(next, at);
    }
    return next;
}

int h2client_time(struct h2client *s)
{
    if (s->over)
        return s->error.code;
    uint64_t now = h2client_now(s);
    if (now < s->deadline)
        return 0;
    h2client_enter(s);
    s->deadline = UINT64_MAX;
    uint64_t next = s->ready ? heartbeat_time(s, now) : resync_time(s, now);
    if (!s->over)
        next = MIN(next, streams_time(s, now));
    s->deadline = MIN(s->deadline, next);
    h2client_wake(s);
    h2client_leave(s);
    return s->over ? s->error.code : 0;
}

void h2client_end(struct h2client *s)
{
    struct channel_stream *st;
    h2client_enter(s);
    while ((st = TAILQ_FIRST(&s->streams)))
        stream_finish(st, &s->error);
    h2client_leave(s);
}

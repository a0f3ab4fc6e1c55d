/* Reading the output of an exec: start it if need be, then the guest's stream; its end is recorded on the way.
 *
 * An exec that is being started is asked for its output at the same moment, which saves a round trip to the guest. What
 * comes before the start is confirmed is kept (`struct early`, within the call's window) and given in order after. */
#include "control/exec_internal.h"

#include "base/str.h"
#include "control/sandbox.h"
#include "control/waiter.h"

#define EARLY_STREAMS_MAX 32 /* with more calls to the guest under way a round trip is not worth a second call */
#define EARLY_MAX (2 * MIB) /* above the window of a stream, with the records' heads */

struct early {
    struct buf data; /* records: u8 stream, u64 offset, u32 length, bytes */
    bool exited, ended;
    uint64_t end_offset;
    struct guest_exit exit;
    struct err error; /* of the end; code 0: none */
};

struct exec_stream {
    struct control *control;
    char project_id[ID_SIZE]; /* empty: any */
    char sandbox_id[ID_SIZE];
    char id[ID_SIZE];
    uint64_t from;
    bool follow;
    struct exec_stream_callbacks callbacks;
    void *arg;
    uv_timer_t *begin; /* callbacks come from the loop: the start is put off to it */
    struct exec_start_wait *start;
    struct guest_call *call;
    bool counted; /* among the streams of the exec */
    bool started; /* the guest has confirmed the start */
    struct early *early;
    bool *freed; /* set when the stream is freed in one of its callbacks */
};

/* The exec and its sandbox, if they are not at rest. */
static struct exec_live *find(const struct exec_stream *s, struct live **ret_live)
{
    *ret_live = live_find(s->control, s->sandbox_id);
    return *ret_live ? exec_live_find(*ret_live, s->id) : NULL;
}

static void uncount(struct exec_stream *s)
{
    struct live *l;
    struct exec_live *x = find(s, &l);
    if (!s->counted)
        return;
    s->counted = false;
    if (!x || !x->streams || --x->streams)
        return;
    if (waiter_any(s->control, s->id))
        exec_watch_begin(l, x);
    exec_poll_soon(l, true);
}

static void stream_free(struct exec_stream *s)
{
    timer_done(s->control, &s->begin);
    uncount(s);
    if (s->early)
        buf_done(&s->early->data);
    free(s->early);
    if (s->freed)
        *s->freed = true;
    free(s);
}

static void finish(struct exec_stream *s, const struct err *e)
{
    void (*done)(void *arg, const struct err *e) = s->callbacks.done;
    void *arg = s->arg;
    stream_free(s);
    done(arg, e);
}

static void on_data(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct exec_stream *s = arg;
    if (s->started) {
        s->callbacks.on_data(s->arg, stream, offset, data, len);
        return;
    }
    buf_put_byte(&s->early->data, (uint8_t)stream);
    buf_put_u64(&s->early->data, offset);
    buf_put_u32(&s->early->data, (uint32_t)len);
    buf_put(&s->early->data, data, len);
}

static void on_dropped(void *arg, uint64_t offset, uint64_t count)
{
    struct exec_stream *s = arg;
    if (s->started && s->callbacks.on_dropped) /* from the very start nothing can be missing */
        s->callbacks.on_dropped(s->arg, offset, count);
}

static void on_exit_record(void *arg, uint64_t end_offset, const struct guest_exit *x)
{
    struct exec_stream *s = arg;
    if (!s->started) {
        s->early->exited = true;
        s->early->end_offset = end_offset;
        s->early->exit = *x;
        return;
    }
    exec_ended(s->control, s->sandbox_id, s->id, x);
    s->callbacks.on_exit(s->arg, end_offset, x);
}

static void on_end(void *arg, const struct err *e)
{
    struct exec_stream *s = arg;
    struct err gone;
    s->call = NULL;
    if (!s->started) {
        s->early->ended = true;
        s->early->error = e ? *e : (struct err){0};
        return;
    }
    if (e && e->code == ERR_NOT_FOUND) {
        err_set(&gone, ERR_GONE, "the output of exec %s is not kept any more", s->id);
        e = &gone;
    }
    finish(s, e);
}

static const struct guest_output_callbacks output_callbacks = {
    .on_data = on_data, .on_dropped = on_dropped, .on_exit = on_exit_record, .done = on_end};

/* Give what came early; the stream may be freed by any of the callbacks. */
static void early_give(struct exec_stream *s)
{
    struct early *early = s->early;
    bool freed = false;
    s->early = NULL;
    s->freed = &freed;
    const uint8_t *at = buf_data(&early->data), *end = at + early->data.len;
    bool broken = early->data.overflow;
    while (!freed && !broken && at < end) {
        enum guest_output stream = at[0];
        uint64_t offset = get_u64(at + 1);
        uint32_t len = get_u32(at + 9);
        s->callbacks.on_data(s->arg, stream, offset, at + 13, len);
        at += 13 + len;
    }
    if (!freed && broken) {
        struct err e = {0};
        err_set(&e, ERR_PROTOCOL, "the agent sent more output than it may");
        if (s->call)
            guest_call_drop(s->call);
        s->call = NULL;
        finish(s, &e);
    }
    if (!freed && early->exited)
        on_exit_record(s, early->end_offset, &early->exit);
    if (!freed && early->ended)
        on_end(s, early->error.code ? &early->error : NULL);
    if (!freed)
        s->freed = NULL;
    buf_done(&early->data);
    free(early);
}

static void on_started(void *arg, const struct err *e)
{
    struct exec_stream *s = arg;
    struct err error = {0};
    s->start = NULL;
    struct guest *g = e ? NULL : sandbox_guest(s->control, s->project_id[0] ? s->project_id : NULL, s->sandbox_id, &error);
    if (!g) {
        if (s->call)
            guest_call_drop(s->call);
        s->call = NULL;
        finish(s, e ? e : &error);
        return;
    }
    struct live *l;
    struct exec_live *x = find(s, &l);
    if (x) {
        s->counted = true;
        x->streams++;
        exec_watch_end(x);
    }
    s->started = true;
    if (!s->early)
        s->call = guest_exec_output(g, s->id, s->from, s->follow, &output_callbacks, s);
    bool freed = false;
    s->freed = &freed;
    if (s->callbacks.on_started)
        s->callbacks.on_started(s->arg);
    if (freed)
        return;
    s->freed = NULL;
    if (s->early)
        early_give(s);
}

/* The start is under way: ask for the output behind it on the same connection. */
static void early_begin(struct exec_stream *s)
{
    struct live *l;
    struct exec_live *x = find(s, &l);
    struct guest *g = sandbox_guest(s->control, s->project_id[0] ? s->project_id : NULL, s->sandbox_id, NULL);
    if (!x || x->phase != EXEC_STARTING || !g || s->from > 0 || !s->follow ||
        channel_stream_count(guest_channel(g)) > EARLY_STREAMS_MAX)
        return;
    s->early = NEW(struct early);
    buf_init(&s->early->data, EARLY_MAX);
    s->call = guest_exec_output(g, s->id, 0, true, &output_callbacks, s);
}

static void on_begin(uv_timer_t *timer)
{
    struct exec_stream *s = timer->data;
    struct control *c = s->control;
    timer_done(c, &s->begin);
    char project[ID_SIZE], sandbox[ID_SIZE], id[ID_SIZE];
    memcpy(project, s->project_id, ID_SIZE);
    memcpy(sandbox, s->sandbox_id, ID_SIZE);
    memcpy(id, s->id, ID_SIZE);
    struct exec_start_wait *w = exec_start_begin(c, project[0] ? project : NULL, sandbox, id, on_started, s);
    /* NULL: on_started was called already, and the stream may be gone. */
    if (w) {
        s->start = w;
        early_begin(s);
    }
}

struct exec_stream *exec_stream_open(struct control *c, const char *project_id, const char *sandbox_id, const char *id,
                                     uint64_t from, bool follow, const struct exec_stream_callbacks *callbacks,
                                     void *arg)
{
    struct exec_stream *s = NEW(struct exec_stream);
    *s = (struct exec_stream){.control = c, .from = from, .follow = follow, .callbacks = *callbacks, .arg = arg};
    if (project_id)
        snprintf(s->project_id, sizeof(s->project_id), "%s", project_id);
    snprintf(s->sandbox_id, sizeof(s->sandbox_id), "%s", sandbox_id);
    snprintf(s->id, sizeof(s->id), "%s", id);
    s->begin = timer_new(c, s);
    uv_timer_start(s->begin, on_begin, 0, 0);
    return s;
}

void exec_stream_consume(struct exec_stream *s, size_t len)
{
    if (s->call)
        guest_call_consume(s->call, len);
}

void exec_stream_drop(struct exec_stream *s)
{
    if (!s)
        return;
    if (s->call)
        guest_call_drop(s->call);
    if (s->start) {
        struct live *l = live_find(s->control, s->sandbox_id);
        if (l)
            exec_start_cancel(l, s->id, s->start);
    }
    stream_free(s);
}

/* One call: an exec is started, fed, read to its end, and its output collected up to a cap. */
#include "base/buf.h"
#include "control/exec_internal.h"

#include "control/sandbox.h"

#include <signal.h>

struct exec_run {
    struct control *control;
    char project_id[ID_SIZE];
    char sandbox_id[ID_SIZE];
    char id[ID_SIZE];
    struct exec_stream *stream;
    struct guest_call *input_call;
    struct buf input, out, err;
    size_t max_output;
    bool truncated, ended;
    struct guest_exit exit;
    exec_run_cb done;
    void *arg;
};

static void run_free(struct exec_run *r)
{
    if (r->input_call)
        guest_call_drop(r->input_call);
    buf_done(&r->input);
    buf_done(&r->out);
    buf_done(&r->err);
    free(r);
}

static void feed(struct exec_run *r)
{
    size_t taken = guest_call_write(r->input_call, buf_data(&r->input), r->input.len);
    buf_consume(&r->input, taken);
    if (!r->input.len)
        guest_call_write_end(r->input_call);
}

static void on_input_drain(void *arg)
{
    struct exec_run *r = arg;
    if (r->input.len)
        feed(r);
}

static void on_input_done(void *arg, uint64_t accepted, const struct err *e)
{
    /* A program that does not read its input is no error of the call. */
    (void)accepted, (void)e;
    struct exec_run *r = arg;
    r->input_call = NULL;
}

static void on_started(void *arg)
{
    static const struct guest_stdin_callbacks callbacks = {.on_drain = on_input_drain, .done = on_input_done};
    struct exec_run *r = arg;
    if (!r->input.len)
        return;
    struct guest *g = exec_guest(r->control, r->project_id, r->sandbox_id, r->id, NULL);
    if (!g)
        return;
    r->input_call = guest_exec_stdin(g, r->id, true, &callbacks, r);
    feed(r);
}

static void on_data(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len)
{
    (void)offset;
    struct exec_run *r = arg;
    struct buf *b = stream == GUEST_STDERR ? &r->err : &r->out;
    size_t room = r->max_output - (r->out.len + r->err.len), take = MIN(room, len);
    buf_put(b, data, take);
    if (take < len)
        r->truncated = true;
    exec_stream_consume(r->stream, len);
}

static void on_dropped(void *arg, uint64_t offset, uint64_t count)
{
    (void)offset, (void)count;
    struct exec_run *r = arg;
    r->truncated = true;
}

static void on_exit_seen(void *arg, uint64_t end_offset, const struct guest_exit *x)
{
    (void)end_offset;
    struct exec_run *r = arg;
    r->exit = *x;
    r->ended = true;
}

static void on_done(void *arg, const struct err *e)
{
    struct exec_run *r = arg;
    struct err lost = {0};
    r->stream = NULL;
    if (!r->ended && !e) {
        err_set(&lost, ERR_GONE, "the output of exec %s ended before the exec did", r->id);
        e = &lost;
    }
    struct exec_run_result result = {
        .exit = r->exit,
        .out = buf_data(&r->out),
        .out_len = r->out.len,
        .err = buf_data(&r->err),
        .err_len = r->err.len,
        .truncated = r->truncated,
    };
    if (r->ended)
        r->done(r->arg, &result, NULL);
    else
        r->done(r->arg, NULL, e);
    run_free(r);
}

struct exec_run *exec_run_start(struct control *c, const char *project_id, const char *sandbox_id, const char *id,
                                const void *input, size_t input_len, size_t max_output, exec_run_cb done, void *arg)
{
    static const struct exec_stream_callbacks callbacks = {.on_started = on_started,
                                                           .on_data = on_data,
                                                           .on_dropped = on_dropped,
                                                           .on_exit = on_exit_seen,
                                                           .done = on_done};
    struct exec_run *r = NEW(struct exec_run);
    *r = (struct exec_run){.control = c, .max_output = max_output, .done = done, .arg = arg};
    snprintf(r->project_id, sizeof(r->project_id), "%s", project_id);
    snprintf(r->sandbox_id, sizeof(r->sandbox_id), "%s", sandbox_id);
    snprintf(r->id, sizeof(r->id), "%s", id);
    buf_init(&r->input, input_len + 1);
    if (input_len)
        buf_put(&r->input, input, input_len);
    buf_init(&r->out, max_output + 1);
    buf_init(&r->err, max_output + 1);
    r->stream = exec_stream_open(c, project_id, sandbox_id, id, 0, true, &callbacks, r);
    return r;
}

static void on_killed(void *arg, const struct err *e)
{
    (void)arg, (void)e;
}

void exec_run_drop(struct exec_run *r)
{
    if (!r)
        return;
    struct guest *g = exec_guest(r->control, r->project_id, r->sandbox_id, r->id, NULL);
    if (g)
        guest_exec_signal(g, r->id, SIGKILL, on_killed, NULL);
    exec_stream_drop(r->stream);
    run_free(r);
}

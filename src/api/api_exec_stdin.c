/* POST …/execs/{id}/stdin: the body goes on to the guest as it arrives and as fast as the program reads. */
#include "api/render.h"
#include "control/exec.h"

struct input {
    struct http_request *request;
    struct guest_call *call;
    bool eof;
};

static void input_free(struct input *in)
{
    if (in->call)
        guest_call_drop(in->call);
    free(in);
}

static void on_abort(struct http_request *r, enum http_abort why, void *arg)
{
    (void)r, (void)why;
    input_free(arg);
}

static void on_drain(void *arg)
{
    struct input *in = arg;
    http_request_resume_body(in->request);
}

static size_t on_body(struct http_request *r, const void *data, size_t len, void *arg)
{
    (void)r;
    struct input *in = arg;
    return guest_call_write(in->call, data, len);
}

static void on_body_end(struct http_request *r, void *arg)
{
    (void)r;
    struct input *in = arg;
    guest_call_write_end(in->call);
}

static void on_done(void *arg, uint64_t accepted, const struct err *e)
{
    struct input *in = arg;
    struct http_request *r = in->request;
    in->call = NULL;
    http_request_on_abort(r, NULL, NULL);
    if (e)
        http_reply_error(r, e);
    else
        http_reply_json(r, 200,
                        json_pack("{s:I, s:b}", "accepted_bytes", (json_int_t)accepted, "eof", (int)in->eof));
    input_free(in);
}

void api_exec_stdin(struct http_request *r, void *arg)
{
    static const struct guest_stdin_callbacks callbacks = {.on_drain = on_drain, .done = on_done};
    static const struct http_body_events events = {.on_data = on_body, .on_end = on_body_end};
    struct api *api = arg;
    const char *sandbox = http_request_param(r, "sandbox_id"), *id = http_request_param(r, "exec_id");
    _cleanup_store_exec_ struct store_exec *x = NULL;
    struct err e = {0};
    bool eof = false;
    struct guest *g = NULL;
    int result = http_query_only(http_request_query(r), (const char *[]){"token", "eof", NULL}, &e);
    if (result >= 0)
        result = http_query_bool(http_request_query(r), "eof", &eof, &e);
    if (result >= 0)
        result = store_exec_get(api->store, project_of(r), sandbox, id, &x, &e);
    if (result >= 0) {
        json_t *spec = json_loads(x->spec_json, 0, NULL);
        if (!json_is_true(json_object_get(spec, "stdin")) && !json_is_object(json_object_get(spec, "terminal")))
            result = err_set(&e, ERR_STATE, "exec %s was made without stdin", id);
        json_decref(spec);
    }
    if (result < 0 || !(g = exec_guest(api->control, project_of(r), sandbox, id, &e))) {
        http_reply_error(r, &e);
        return;
    }
    struct input *in = NEW(struct input);
    *in = (struct input){.request = r, .eof = eof};
    http_request_on_abort(r, on_abort, in);
    in->call = guest_exec_stdin(g, id, eof, &callbacks, in);
    http_request_read_body(r, &events, in);
}

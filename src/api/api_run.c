/* POST /v1/sandboxes/{id}/run: one call from command to output. */
#include "api/exec_body.h"
#include "api/render.h"
#include "control/exec.h"

#define INPUT_MAX (16 * MIB)

struct run {
    struct api *api;
    struct http_request *request;
    struct exec_run *run;
    bool base64;
    char exec_id[ID_SIZE];
};

static json_t *render_output(const uint8_t *data, size_t len, bool base64)
{
    if (!base64)
        return render_text(data ? (const void *)data : "", len);
    char *text = xmalloc(base64_encoded_len(len) + 1);
    json_t *json = json_stringn(text, base64_encode(data, len, text));
    free(text);
    return json;
}

static void on_done(void *arg, const struct exec_run_result *result, const struct err *e)
{
    struct run *run = arg;
    struct http_request *r = run->request;
    http_request_on_abort(r, NULL, NULL);
    if (e)
        http_reply_error(r, e);
    else {
        const struct guest_exit *x = &result->exit;
        const char *signal = x->signalled ? signal_name(x->signal) : NULL;
        _cleanup_store_exec_ struct store_exec *row = NULL;
        bool kept = store_exec_get(run->api->store, NULL, NULL, run->exec_id, &row, NULL) >= 0 && row->ended_at_ms;
        int64_t duration = kept                         ? row->ended_at_ms - row->started_at_ms
                           : x->ended_ms > x->started_ms ? x->ended_ms - x->started_ms
                                                         : 0;
        http_reply_json(r, 200,
                        json_pack("{s:s, s:o, s:s?, s:b, s:b, s:o, s:o, s:s, s:b, s:I, s:I}", "exec_id", run->exec_id,
                                  "exit_code", x->signalled ? json_null() : json_integer(x->code), "signal", signal,
                                  "timed_out", (int)x->timed_out, "oom_killed", (int)x->oom, "stdout",
                                  render_output(result->out, result->out_len, run->base64), "stderr",
                                  render_output(result->err, result->err_len, run->base64), "encoding",
                                  run->base64 ? "base64" : "utf-8", "truncated", (int)result->truncated,
                                  "output_bytes", (json_int_t)x->total_bytes, "duration_ms", (json_int_t)duration));
    }
    free(run);
}

static void on_abort(struct http_request *r, enum http_abort why, void *arg)
{
    (void)r, (void)why;
    struct run *run = arg;
    exec_run_drop(run->run);
    free(run);
}

/* The bytes of standard input; false and a fault when they are not of the form that was said. */
static bool decode_input(const struct exec_body *body, struct buf *ret_input, struct faults *f)
{
    size_t len = body->stdin_data ? strlen(body->stdin_data) : 0;
    if (!str_eq(body->encoding, "base64"))
        return len <= INPUT_MAX && (!len || buf_put(ret_input, body->stdin_data, len));
    uint8_t *room = len ? buf_reserve(ret_input, len / 4 * 3 + 3) : NULL;
    ssize_t n = room ? base64_decode(body->stdin_data, len, room) : 0;
    if (n < 0 || (len && !room)) {
        faults_add(f, "/stdin_data", "expected base64 of at most 16 MiB");
        return false;
    }
    if (n)
        buf_commit(ret_input, (size_t)n);
    return n <= (ssize_t)INPUT_MAX;
}

void api_run(struct http_request *r, void *arg)
{
    struct api *api = arg;
    _cleanup_faults_ struct faults f = {0};
    _cleanup_buf_ struct buf input = BUF_MAX(INPUT_MAX + 4);
    struct exec_body body;
    struct err e = {0};
    char id[ID_SIZE], token[STORE_TOKEN_SIZE];
    run_body_parse(http_request_json(r), &body, &f);
    if (!f.list && !decode_input(&body, &input, &f) && !f.list)
        faults_add(&f, "/stdin_data", "expected at most 16 MiB");
    if (faults_reply(r, &f))
        return;
    _cleanup_free_ char *spec = exec_body_spec(&body, api->config->exec_buffer_bytes);
    if (http_query_only(http_request_query(r), (const char *[]){NULL}, &e) < 0 ||
        exec_create(api->control, project_of(r), http_request_param(r, "sandbox_id"), spec, id, token, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    wipe(token, sizeof(token)); /* nobody else attaches */
    struct run *run = NEW(struct run);
    *run = (struct run){.api = api, .request = r, .base64 = str_eq(body.encoding, "base64")};
    memcpy(run->exec_id, id, ID_SIZE);
    http_request_on_abort(r, on_abort, run);
    run->run = exec_run_start(api->control, project_of(r), http_request_param(r, "sandbox_id"), id, buf_data(&input),
                              input.len, (size_t)body.max_output_bytes, on_done, run);
}

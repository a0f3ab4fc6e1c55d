/* /v1/sandboxes/{id}/execs: make, list, get, attach, result, signal, resize, delete. Streams: api_exec_output.c,
 * api_exec_stdin.c, api_exec_ws.c. */
#include "api/exec_body.h"
#include "api/idempotency.h"
#include "api/render.h"
#include "api/wait.h"
#include "control/exec.h"
#include "control/waiter.h"

static const char *sandbox_of(const struct http_request *r)
{
    return http_request_param(r, "sandbox_id");
}

static const char *exec_of(const struct http_request *r)
{
    return http_request_param(r, "exec_id");
}

static bool only_parameters(struct http_request *r, const char *const *names)
{
    struct err e = {0};
    if (http_query_only(http_request_query(r), names, &e) >= 0)
        return true;
    http_reply_error(r, &e);
    return false;
}

/* ---- make ---- */

/* Answer with the exec and a token; `status` 201. */
static void reply_created(struct http_request *r, const struct store_exec *x, const char *token)
{
    char location[96];
    snprintf(location, sizeof(location), "/v1/sandboxes/%s/execs/%s", x->sandbox_id, x->id);
    http_reply_header(r, "Location", location);
    http_reply_json(r, 201,
                    json_pack("{s:o, s:s, s:o}", "exec", render_exec(x), "attach_token", token,
                              "attach_token_expires_at", render_time(x->token_expires_at_ms)));
}

/* The kept answer holds no token: a repeat gets one of its own, as long as nobody has attached. */
static void replay(struct http_request *r, struct api *api, const struct idempotency *idem)
{
    _cleanup_store_exec_ struct store_exec *x = NULL;
    struct err e = {0};
    char token[STORE_TOKEN_SIZE];
    const char *id = idem->kept.target_id ? idem->kept.target_id : "";
    int64_t expires = clock_wall_ms() + (int64_t)api->config->attach_token_ttl_ms;
    int result = store_exec_renew_token(api->store, id, expires, token, &e);
    if (result == ERR_STATE)
        result = err_set(&e, ERR_CONFLICT, "exec %s of the first call with this Idempotency-Key has started already", id);
    if (result < 0 || store_exec_get(api->store, project_of(r), NULL, id, &x, &e) < 0)
        http_reply_error(r, &e);
    else
        reply_created(r, x, token);
}

void api_exec_create(struct http_request *r, void *arg)
{
    struct api *api = arg;
    _cleanup_faults_ struct faults f = {0};
    struct exec_body body;
    struct err e = {0};
    exec_body_parse(http_request_json(r), &body, &f);
    if (faults_reply(r, &f))
        return;
    _cleanup_free_ char *spec = exec_body_spec(&body, api->config->exec_buffer_bytes);
    _cleanup_idempotency_ struct idempotency idem = {0};
    _cleanup_store_exec_ struct store_exec *x = NULL;
    char id[ID_SIZE], token[STORE_TOKEN_SIZE];
    int result = idempotency_begin(r, api, &idem, &e);
    if (result > 0) {
        replay(r, api, &idem);
        return;
    }
    if (result >= 0)
        result = exec_create(api->control, project_of(r), sandbox_of(r), spec, id, token, &e);
    if (result >= 0)
        result = store_exec_get(api->store, project_of(r), sandbox_of(r), id, &x, &e);
    if (result >= 0 && idem.key) {
        json_t *kept = json_pack("{s:o}", "exec", render_exec(x));
        idempotency_keep(api, &idem, 201, NULL, kept, id, NULL);
        json_decref(kept);
    }
    if (result < 0) {
        idempotency_forget(api, &idem);
        http_reply_error(r, &e);
    } else
        reply_created(r, x, token);
    wipe(token, sizeof(token));
}

/* ---- get and list ---- */

static void reply_exec(struct http_request *r, struct api *api)
{
    _cleanup_store_exec_ struct store_exec *x = NULL;
    struct err e = {0};
    if (store_exec_get(api->store, project_of(r), sandbox_of(r), exec_of(r), &x, &e) < 0)
        http_reply_error(r, &e);
    else
        http_reply_json(r, 200, render_exec(x));
}

void api_exec_get(struct http_request *r, void *arg)
{
    reply_exec(r, arg);
}

static const char *state_name(unsigned i)
{
    return store_exec_state_name((enum store_exec_state)i);
}

void api_exec_list(struct http_request *r, void *arg)
{
    struct api *api = arg;
    struct store_page page;
    uint32_t mask = 0;
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    _cleanup_store_exec_list_ struct store_exec_list list = {0};
    struct err e = {0};
    int result = http_query_only(http_request_query(r), (const char *[]){LIST_PARAMETERS, "state", NULL}, &e);
    if (result >= 0)
        result = page_of(r, &page, &e);
    if (result >= 0)
        result = query_mask(r, "state", state_name, STORE_EXEC_STATES, &mask, &e);
    if (result >= 0)
        result = store_sandbox_get(api->store, project_of(r), sandbox_of(r), &sb, &e);
    if (result >= 0)
        result = store_exec_list(api->store, project_of(r), sb->id, mask, &page, &list, &e);
    if (result < 0) {
        http_reply_error(r, &e);
        return;
    }
    json_t *items = json_array();
    for (size_t i = 0; i < list.count; i++)
        json_array_append_new(items, render_exec(list.items[i]));
    reply_list(r, items, list.next_cursor);
}

/* ---- attach, delete ---- */

struct pending {
    struct http_request *request;
    struct api *api;
};

static struct pending *pending_new(struct http_request *r, struct api *api)
{
    struct pending *p = NEW(struct pending);
    *p = (struct pending){.request = http_request_ref(r), .api = api};
    return p;
}

static void pending_free(struct pending *p)
{
    http_request_unref(p->request);
    free(p);
}

static void on_attached(void *arg, const struct err *e)
{
    struct pending *p = arg;
    if (http_request_over(p->request))
        ;
    else if (e)
        http_reply_error(p->request, e);
    else
        reply_exec(p->request, p->api);
    pending_free(p);
}

void api_exec_attach(struct http_request *r, void *arg)
{
    struct api *api = arg;
    if (only_parameters(r, (const char *[]){"token", NULL}))
        exec_start(api->control, project_of(r), sandbox_of(r), exec_of(r), on_attached, pending_new(r, api));
}

static void on_sent(void *arg, const struct err *e)
{
    struct pending *p = arg;
    if (e)
        http_reply_error(p->request, e);
    else
        http_reply_empty(p->request, 204);
    pending_free(p);
}

void api_exec_delete(struct http_request *r, void *arg)
{
    struct api *api = arg;
    exec_delete(api->control, project_of(r), sandbox_of(r), exec_of(r), on_sent, pending_new(r, api));
}

/* ---- signal, resize ---- */

void api_exec_signal(struct http_request *r, void *arg)
{
    static const struct field fields[] = {{"signal", FIELD_ANY, 0, FIELD_REQUIRED}};
    struct api *api = arg;
    _cleanup_faults_ struct faults f = {0};
    const json_t *value = NULL;
    struct err e = {0};
    fields_parse(http_request_json(r), "", fields, ARRAY_LEN(fields), &value, &f);
    int number = value ? signal_body_parse(value, "/signal", &f) : 0;
    if (faults_reply(r, &f) || !only_parameters(r, (const char *[]){"token", NULL}))
        return;
    struct guest *g = exec_guest(api->control, project_of(r), sandbox_of(r), exec_of(r), &e);
    if (!g)
        http_reply_error(r, &e);
    else
        guest_exec_signal(g, exec_of(r), number, on_sent, pending_new(r, api));
}

void api_exec_resize(struct http_request *r, void *arg)
{
    struct api *api = arg;
    _cleanup_faults_ struct faults f = {0};
    struct terminal_body body;
    struct err e = {0};
    terminal_body_parse(http_request_json(r), "", &body, &f);
    if (faults_reply(r, &f) || !only_parameters(r, (const char *[]){"token", NULL}))
        return;
    struct guest *g = exec_guest(api->control, project_of(r), sandbox_of(r), exec_of(r), &e);
    if (!g)
        http_reply_error(r, &e);
    else
        guest_exec_resize(g, exec_of(r), (uint16_t)body.rows, (uint16_t)body.cols, on_sent, pending_new(r, api));
}

/* ---- result ---- */

static bool ended(const struct store_exec *x)
{
    return x->state != STORE_EXEC_RESERVED && x->state != STORE_EXEC_RUNNING;
}

static void reply_result(struct http_request *r, struct api *api, void *data)
{
    (void)data;
    _cleanup_store_exec_ struct store_exec *x = NULL;
    struct err e = {0};
    if (store_exec_get(api->store, project_of(r), sandbox_of(r), exec_of(r), &x, &e) < 0)
        http_reply_error(r, &e);
    else
        http_reply_json(r, ended(x) ? 200 : 202, render_exec_result(x));
}

void api_exec_result(struct http_request *r, void *arg)
{
    struct api *api = arg;
    _cleanup_store_exec_ struct store_exec *x = NULL;
    uint64_t wait_ms = 0;
    struct err e = {0};
    if (http_query_only(http_request_query(r), (const char *[]){"wait", "token", NULL}, &e) < 0 ||
        wait_wanted(r, &wait_ms, &e) < 0 ||
        store_exec_get(api->store, project_of(r), sandbox_of(r), exec_of(r), &x, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    wait_applied(r, wait_ms);
    if (ended(x) || !wait_ms) {
        reply_result(r, api, NULL);
        return;
    }
    wait_then(r, api, x->id, wait_ms, reply_result, NULL, NULL);
    exec_watch(api->control, x->sandbox_id, x->id);
}

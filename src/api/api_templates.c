/* /v1/templates. */
#include "api/fields.h"
#include "api/idempotency.h"
#include "api/render.h"
#include "api/wait.h"
#include "control/template.h"

/* By digest or tag, ready or not found. */
static int find(struct http_request *r, struct api *api, struct store_template **ret_template, struct err *e)
{
    return store_template_resolve(api->store, project_of(r), http_request_param(r, "template"), ret_template, e);
}

void api_template_list(struct http_request *r, void *arg)
{
    struct api *api = arg;
    struct store_page page;
    _cleanup_(store_template_list_done) struct store_template_list list = {0};
    struct err e = {0};
    if (http_query_only(http_request_query(r), (const char *[]){LIST_PARAMETERS, NULL}, &e) < 0 ||
        page_of(r, &page, &e) < 0 || store_template_list(api->store, &page, &list, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    json_t *items = json_array();
    for (size_t i = 0; i < list.count; i++)
        if (list.items[i]->state == STORE_TEMPLATE_READY)
            json_array_append_new(items, render_template(api, project_of(r), list.items[i], false));
    reply_list(r, items, list.next_cursor);
}

void api_template_get(struct http_request *r, void *arg)
{
    struct api *api = arg;
    _cleanup_store_template_ struct store_template *t = NULL;
    struct err e = {0};
    if (find(r, api, &t, &e) < 0)
        http_reply_error(r, &e);
    else
        http_reply_json(r, 200, render_template(api, project_of(r), t, true));
}

/* What changes the platform for everybody needs the operator's key. */
static bool may_change(struct http_request *r)
{
    struct err e = {0};
    if (caller_may(caller_of(r), STORE_SCOPE_TEMPLATES_WRITE))
        return true;
    err_set(&e, ERR_FORBIDDEN, "the key lacks the scope templates:write");
    http_reply_error(r, &e);
    return false;
}

struct import_body {
    const char *incoming, *tag;
};

struct pending_import {
    uint64_t wait_ms;
    char op_id[ID_SIZE];
};

static void free_pending(void *data)
{
    free(data);
}

/* 201 with the template when it is there in time, else 202, or the problem that ended the operation. */
static void import_answer(struct http_request *r, struct api *api, void *data)
{
    const struct pending_import *p = data;
    _cleanup_store_operation_ struct store_operation *op = NULL;
    _cleanup_store_template_ struct store_template *t = NULL;
    struct err e = {0};
    char location[128];
    int result = store_operation_get(api->store, NULL, p->op_id, &op, &e);
    if (result >= 0 && op->state == STORE_OPERATION_SUCCEEDED)
        result = store_template_get(api->store, op->target_id, &t, &e);
    if (result < 0) {
        http_reply_error(r, &e);
        return;
    }
    wait_applied(r, p->wait_ms);
    if (op->state == STORE_OPERATION_FAILED) {
        err_set(&e, op->error_code ? op->error_code : ERR_INTERNAL, "%s", op->error_text ? op->error_text : "");
        reply_problem(r, &e, json_pack("{s:s}", "operation_id", op->id));
        return;
    }
    json_t *body = json_pack("{s:o}", "operation", render_operation(op));
    snprintf(location, sizeof(location), t ? "/v1/templates/%s" : "/v1/operations/%s", t ? t->digest : op->id);
    if (t)
        json_object_set_new(body, "template", render_template(api, project_of(r), t, false));
    http_reply_header(r, "Location", location);
    http_reply_json(r, t ? 201 : 202, body);
}

static void import_wait(struct http_request *r, struct api *api, const struct store_operation *op, uint64_t wait_ms)
{
    struct pending_import *p = NEW(struct pending_import);
    *p = (struct pending_import){.wait_ms = wait_ms};
    memcpy(p->op_id, op->id, ID_SIZE);
    bool open = STORE_MASK(op->state) & STORE_OPERATION_OPEN;
    wait_then(r, api, op->id, open ? wait_ms : 0, import_answer, p, free_pending);
}

void api_template_import(struct http_request *r, void *arg)
{
    static const struct field fields[] = {
        {"incoming", FIELD_STRING, offsetof(struct import_body, incoming), FIELD_REQUIRED,
         .valid = node_incoming_valid, .expect = "the name of a folder in incoming/"},
        {"tag", FIELD_STRING, offsetof(struct import_body, tag), .valid = template_tag_valid, .expect = "a tag"},
    };
    struct api *api = arg;
    _cleanup_faults_ struct faults f = {0};
    _cleanup_idempotency_ struct idempotency idem = {0};
    _cleanup_store_operation_ struct store_operation *op = NULL;
    struct import_body body = {0};
    struct err e = {0};
    char op_id[ID_SIZE], location[64];
    uint64_t wait_ms = 0;
    fields_parse(http_request_json(r), "", fields, ARRAY_LEN(fields), &body, &f);
    if (!may_change(r) || faults_reply(r, &f))
        return;
    int result = http_query_only(http_request_query(r), (const char *[]){"wait", NULL}, &e);
    if (result >= 0)
        result = wait_wanted(r, &wait_ms, &e);
    if (result >= 0)
        result = idempotency_begin(r, api, &idem, &e);
    if (result > 0) {
        if (wait_ms && idem.kept.target_id &&
            store_operation_get(api->store, NULL, idem.kept.target_id, &op, NULL) >= 0)
            import_wait(r, api, op, wait_ms);
        else
            idempotency_replay(r, &idem);
        return;
    }
    if (result >= 0) {
        result = template_import(api->control, project_of(r), body.incoming, body.tag, http_request_id(r), op_id, &e);
        if (result < 0)
            idempotency_forget(api, &idem);
    }
    if (result < 0 || store_operation_get(api->store, NULL, op_id, &op, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    json_t *answer = json_pack("{s:o}", "operation", render_operation(op));
    snprintf(location, sizeof(location), "/v1/operations/%s", op_id);
    idempotency_keep(api, &idem, 202, location, answer, op_id, NULL);
    if (wait_ms) {
        json_decref(answer);
        import_wait(r, api, op, wait_ms);
        return;
    }
    http_reply_header(r, "Location", location);
    http_reply_json(r, 202, answer);
}

static void on_removed(void *arg, const struct err *e)
{
    struct http_request *r = arg;
    if (e)
        http_reply_error(r, e);
    else
        http_reply_empty(r, 204);
    http_request_unref(r);
}

void api_template_delete(struct http_request *r, void *arg)
{
    struct api *api = arg;
    const char *digest = http_request_param(r, "template");
    struct err e = {0};
    if (!template_digest_valid(digest)) {
        err_set(&e, ERR_INVALID, "a template is removed by its digest");
        http_reply_error(r, &e);
        return;
    }
    template_remove(api->control, digest, on_removed, http_request_ref(r));
}

void api_template_log(struct http_request *r, void *arg)
{
    struct api *api = arg;
    _cleanup_store_template_ struct store_template *t = NULL;
    _cleanup_buf_ struct buf text = BUF_MAX(TEMPLATE_LOG_MAX + 64 * KIB);
    struct err e = {0};
    if (find(r, api, &t, &e) < 0 || template_log(api->control, t->digest, &text, &e) < 0)
        http_reply_error(r, &e);
    else
        http_reply_data(r, 200, "text/plain; charset=utf-8", buf_data(&text), text.len);
}

/* ---- tags ---- */

void api_template_tag_set(struct http_request *r, void *arg)
{
    struct api *api = arg;
    const char *tag = http_request_param(r, "tag");
    _cleanup_store_template_ struct store_template *t = NULL;
    struct err e = {0};
    int result = template_tag_valid(tag) ? find(r, api, &t, &e) : err_set(&e, ERR_INVALID, "\"%.64s\" is no tag", tag);
    if (result >= 0)
        result = store_template_tag_set(api->store, NULL, tag, t->digest, clock_wall_ms(), &e);
    if (result < 0)
        http_reply_error(r, &e);
    else
        http_reply_json(r, 200, render_template(api, project_of(r), t, false));
}

void api_template_tag_delete(struct http_request *r, void *arg)
{
    struct api *api = arg;
    const char *tag = http_request_param(r, "tag");
    _cleanup_store_template_ struct store_template *t = NULL;
    _cleanup_free_ struct store_template_tag *tags = NULL;
    struct err e = {0};
    size_t count = 0;
    int result = find(r, api, &t, &e);
    if (result >= 0)
        result = store_template_tag_list(api->store, NULL, t->digest, &tags, &count, &e);
    size_t i = 0;
    while (result >= 0 && i < count && !str_eq(tags[i].tag, tag))
        i++;
    if (result >= 0 && i == count)
        result = err_set(&e, ERR_NOT_FOUND, "the template has no tag \"%.64s\"", tag);
    if (result >= 0)
        result = store_template_tag_delete(api->store, NULL, tag, &e);
    if (result < 0)
        http_reply_error(r, &e);
    else
        http_reply_empty(r, 204);
}

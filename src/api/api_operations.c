/* /v1/operations. */
#include "api/render.h"
#include "api/wait.h"

static void answer(struct http_request *r, struct api *api, void *data)
{
    _cleanup_store_operation_ struct store_operation *op = NULL;
    struct err e = {0};
    if (store_operation_get(api->store, NULL, data, &op, &e) < 0)
        http_reply_error(r, &e);
    else
        http_reply_json(r, 200, render_operation(op));
}

static void free_id(void *data)
{
    free(data);
}

void api_operation_get(struct http_request *r, void *arg)
{
    struct api *api = arg;
    _cleanup_store_operation_ struct store_operation *op = NULL;
    uint64_t wait_ms = 0;
    struct err e = {0};
    if (http_query_only(http_request_query(r), (const char *[]){"wait", NULL}, &e) < 0 ||
        wait_wanted(r, &wait_ms, &e) < 0 ||
        store_operation_get(api->store, project_of(r), http_request_param(r, "operation_id"), &op, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    bool open = STORE_MASK(op->state) & STORE_OPERATION_OPEN;
    wait_applied(r, wait_ms);
    wait_then(r, api, op->id, open ? wait_ms : 0, answer, xstrdup(op->id), free_id);
}

static const char *state_name(unsigned i)
{
    return store_operation_state_name((enum store_operation_state)i);
}

void api_operation_list(struct http_request *r, void *arg)
{
    struct api *api = arg;
    const struct http_query *q = http_request_query(r);
    struct store_page page;
    struct store_operation_filter filter = {0};
    _cleanup_store_operation_list_ struct store_operation_list list = {0};
    struct err e = {0};
    int result = http_query_only(q, (const char *[]){LIST_PARAMETERS, "state", "kind", "sandbox", NULL}, &e);
    if (result >= 0)
        result = page_of(r, &page, &e);
    if (result >= 0)
        result = query_mask(r, "state", state_name, STORE_OPERATION_STATES, &filter.state_mask, &e);
    if (result >= 0)
        result = http_query_get(q, "kind", &filter.kind, &e);
    if (result >= 0)
        result = http_query_get(q, "sandbox", &filter.target_id, &e);
    if (result >= 0)
        result = store_operation_list(api->store, project_of(r), &filter, &page, &list, &e);
    if (result < 0) {
        http_reply_error(r, &e);
        return;
    }
    json_t *items = json_array();
    for (size_t i = 0; i < list.count; i++)
        json_array_append_new(items, render_operation(list.items[i]));
    reply_list(r, items, list.next_cursor);
}

/* Lists, problems. */
#include "api/reply.h"

#include "base/str.h"

int page_of(struct http_request *r, struct store_page *ret_page, struct err *e)
{
    const struct http_query *q = http_request_query(r);
    uint64_t limit = 100;
    *ret_page = (struct store_page){0};
    int result = http_query_u64(q, "limit", 1, STORE_PAGE_MAX, &limit, e);
    if (result < 0 || (result = http_query_get(q, "cursor", &ret_page->cursor, e)) < 0)
        return result;
    ret_page->limit = (uint32_t)limit;
    return 0;
}

void reply_list(struct http_request *r, json_t *items, const char *next_cursor)
{
    http_reply_json(r, 200, json_pack("{s:o, s:s?}", "items", items, "next_cursor",
                                      next_cursor && next_cursor[0] ? next_cursor : NULL));
}

void reply_problem(struct http_request *r, const struct err *error, json_t *extra)
{
    if (!extra) {
        http_reply_error(r, error);
        return;
    }
    json_t *problem = problem_json(error, 0, http_request_id(r));
    json_object_update(problem, extra);
    json_decref(extra);
    char *text = json_dumps(problem, JSON_COMPACT);
    const struct err_info *info = err_info(error->code);
    if (info->http_status == 429 || info->http_status == 503)
        http_reply_header(r, "Retry-After", "1");
    http_reply_data(r, info->http_status, "application/problem+json", text, strlen(text));
    free(text);
    json_decref(problem);
}

int query_mask(struct http_request *r, const char *parameter, const char *(*name_of)(unsigned i), unsigned count,
               uint32_t *ret_mask, struct err *e)
{
    const char *value;
    int result = http_query_get(http_request_query(r), parameter, &value, e);
    if (result <= 0)
        return result;
    uint32_t mask = 0;
    _cleanup_free_ char *copy = xstrdup(value);
    char *rest = copy, *name;
    while ((name = strsep(&rest, ","))) {
        unsigned i = 0;
        while (i < count && !str_eq(name, name_of(i)))
            i++;
        if (i == count)
            return err_set(e, ERR_INVALID, "query parameter \"%s\": there is no \"%.64s\"", parameter, name);
        mask |= 1u << i;
    }
    *ret_mask = mask;
    return 1;
}

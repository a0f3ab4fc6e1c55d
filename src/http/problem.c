/* Problem details (see problem.h). */
#include "http/problem.h"

#include "base/str.h"

bool problem_hides(int code)
{
    int known = err_info(code)->code;
    return known == ERR_SYSTEM || known == ERR_INTERNAL || known == ERR_NO_SPACE;
}

char *problem_detail(const struct err *error)
{
    const struct err_info *info = err_info(error->code);
    switch (info->code) {
    case ERR_SYSTEM:
        return xstrdup("the host could not do this; the server's log has the cause under this request id");
    case ERR_INTERNAL:
        return xstrdup("a fault of the server; its log has the cause under this request id");
    case ERR_NO_SPACE:
        return xstrdup("there is no space left to do this");
    default:
        break;
    }
    if (utf8_valid(error->text, strlen(error->text)))
        return xstrdup(error->text[0] ? error->text : info->title);
    _cleanup_buf_ struct buf text = BUF_MAX(8 * KIB);
    text_escape(&text, error->text, strlen(error->text));
    return buf_steal_str(&text);
}

json_t *problem_json(const struct err *error, int status, const char *request_id)
{
    const struct err_info *info = err_info(error->code);
    _cleanup_free_ char *detail = problem_detail(error);
    json_t *o = json_object();
    json_object_set_new(o, "type", json_sprintf("/problems/%s", info->name));
    json_object_set_new(o, "title", json_string(info->title));
    json_object_set_new(o, "status", json_integer(status ? status : info->http_status));
    json_object_set_new(o, "detail", json_string(detail));
    json_object_set_new(o, "code", json_string(info->name));
    if (request_id)
        json_object_set_new(o, "request_id", json_string(request_id));
    return o;
}

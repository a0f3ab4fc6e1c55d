/* Queries (see query.h). */
#include "agent/query.h"

#include "base/str.h"

int query_parse(char *text, struct query *ret_query, struct err *e)
{
    ret_query->count = 0;
    for (char *part; text && *text && (part = strsep(&text, "&"));) {
        char *name = strsep(&part, "=");
        if (!part || !*name || !percent_decode(name) || !percent_decode(part))
            return err_set(e, ERR_INVALID, "the query is broken at \"%.40s\"", name);
        if (query_get(ret_query, name))
            return err_set(e, ERR_INVALID, "%.40s stands twice in the query", name);
        if (ret_query->count == LIMIT_QUERY_PARAMS)
            return err_set(e, ERR_INVALID, "more than %d parameters", LIMIT_QUERY_PARAMS);
        ret_query->name[ret_query->count] = name;
        ret_query->value[ret_query->count++] = part;
    }
    return 0;
}

const char *query_get(const struct query *q, const char *name)
{
    for (size_t i = 0; i < q->count; i++)
        if (str_eq(q->name[i], name))
            return q->value[i];
    return NULL;
}

int query_u64(const struct query *q, const char *name, uint64_t fallback, uint64_t min, uint64_t max,
              uint64_t *ret_value, struct err *e)
{
    const char *text = query_get(q, name);
    if (!text) {
        *ret_value = fallback;
        return 0;
    }
    if (!str_to_u64(text, min, max, ret_value))
        return err_set(e, ERR_INVALID, "%s is no number from %llu to %llu", name, (unsigned long long)min,
                       (unsigned long long)max);
    return 0;
}

int query_flag(const struct query *q, const char *name, bool fallback, bool *ret_value, struct err *e)
{
    uint64_t v;
    int r = query_u64(q, name, fallback, 0, 1, &v, e);
    if (r == 0)
        *ret_value = v == 1;
    return r;
}

int query_mode(const struct query *q, uint32_t *ret_mode, struct err *e)
{
    const char *text = query_get(q, AGENT_QUERY_MODE);
    uint32_t mode = 0;
    if (!text) {
        *ret_mode = UINT32_MAX;
        return 0;
    }
    if (!*text || strlen(text) > 5 || text[strspn(text, "01234567")] != '\0')
        return err_set(e, ERR_INVALID, "mode is no octal number");
    for (; *text; text++)
        mode = mode << 3 | (uint32_t)(*text - '0');
    if (mode > 07777)
        return err_set(e, ERR_INVALID, "mode has more than the permission bits");
    *ret_mode = mode;
    return 0;
}

int query_path(const struct query *q, const char *name, const char **ret_path, struct err *e)
{
    const char *path = query_get(q, name);
    if (!path || path[0] != '/')
        return err_set(e, ERR_INVALID, "%s is no absolute path", name);
    if (strlen(path) > AGENT_PATH_MAX)
        return err_set(e, ERR_INVALID, "%s is longer than %d bytes", name, AGENT_PATH_MAX);
    *ret_path = path;
    return 0;
}

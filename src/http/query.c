/* Query strings (see router.h). */
#include "base/str.h"
#include "http/router.h"

static int pair_decode(char *s, struct err *e)
{
    for (char *p = s; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(e, ERR_INVALID, "the query holds a control character");
        if (*p == '+')
            *p = ' ';
    }
    if (!percent_decode(s))
        return err_set(e, ERR_INVALID, "the query holds a broken percent escape");
    return 0;
}

int http_query_parse(const char *raw, struct http_query *ret_query, struct err *e)
{
    struct http_query q = {0};
    int r;
    if (!raw || !*raw) {
        *ret_query = q;
        return 0;
    }
    q.storage = xstrdup(raw);
    char *next = q.storage;
    for (char *pair; (pair = strsep(&next, "&"));) {
        char *value = strchr(pair, '=');
        if (!*pair)
            continue; /* "a=1&&b=2" and a trailing "&" say nothing */
        if (value)
            *value++ = '\0';
        else
            value = pair + strlen(pair);
        if (q.count == HTTP_QUERY_MAX) {
            r = err_set(e, ERR_INVALID, "the query has more than %d parameters", HTTP_QUERY_MAX);
            goto fail;
        }
        if ((r = pair_decode(pair, e)) < 0 || (*value && (r = pair_decode(value, e)) < 0))
            goto fail;
        if (!*pair) {
            r = err_set(e, ERR_INVALID, "the query has a parameter without a name");
            goto fail;
        }
        q.pairs[q.count++] = (struct http_pair){.name = pair, .value = value};
    }
    *ret_query = q;
    return 0;
fail:
    http_query_done(&q);
    return r;
}

void http_query_done(struct http_query *q)
{
    free(q->storage);
    *q = (struct http_query){0};
}

int http_query_get(const struct http_query *q, const char *name, const char **ret_value, struct err *e)
{
    const char *value = NULL;
    for (size_t i = 0; i < q->count; i++) {
        if (!str_eq(q->pairs[i].name, name))
            continue;
        if (value)
            return err_set(e, ERR_INVALID, "query parameter \"%s\" is given more than once", name);
        value = q->pairs[i].value;
    }
    if (!value)
        return 0;
    *ret_value = value;
    return 1;
}

int http_query_u64(const struct http_query *q, const char *name, uint64_t min, uint64_t max, uint64_t *ret_value,
                   struct err *e)
{
    const char *text;
    int r = http_query_get(q, name, &text, e);
    if (r <= 0)
        return r;
    if (!str_to_u64(text, min, max, ret_value))
        return err_set(e, ERR_INVALID, "query parameter \"%s\" must be a number from %llu to %llu", name,
                       (unsigned long long)min, (unsigned long long)max);
    return 1;
}

int http_query_ms(const struct http_query *q, const char *name, uint64_t max_ms, uint64_t *ret_ms, struct err *e)
{
    const char *text;
    uint64_t ms;
    int r = http_query_get(q, name, &text, e);
    if (r <= 0)
        return r;
    if (!str_to_ms(text, &ms) || ms > max_ms)
        return err_set(e, ERR_INVALID, "query parameter \"%s\" must be a duration up to %llu ms, like 30s or 250ms",
                       name, (unsigned long long)max_ms);
    *ret_ms = ms;
    return 1;
}

int http_query_bool(const struct http_query *q, const char *name, bool *ret_value, struct err *e)
{
    const char *text;
    int r = http_query_get(q, name, &text, e);
    if (r <= 0)
        return r;
    if (*text && !str_to_bool(text, ret_value))
        return err_set(e, ERR_INVALID, "query parameter \"%s\" must be true or false", name);
    if (!*text)
        *ret_value = true;
    return 1;
}

int http_query_only(const struct http_query *q, const char *const *names, struct err *e)
{
    for (size_t i = 0; i < q->count; i++) {
        const char *const *n = names;
        while (*n && !(str_ends(*n, ".") ? str_starts(q->pairs[i].name, *n) : str_eq(q->pairs[i].name, *n)))
            n++;
        if (!*n)
            return err_set(e, ERR_INVALID, "unknown query parameter \"%.64s\"", q->pairs[i].name);
    }
    return 0;
}

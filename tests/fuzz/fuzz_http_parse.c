/* Paths against a table of routes, queries, Host names: input is "METHOD PATH[?QUERY]\nHOST". */
#include "base/str.h"
#include "fuzz.h"
#include "http/router.h"

static void handler(struct http_request *r, void *arg)
{
    (void)r, (void)arg;
}

static const struct http_route routes[] = {
    {"GET", "/", handler},
    {"GET", "/v1/sandboxes", handler},
    {"POST", "/v1/sandboxes", handler},
    {"GET", "/v1/sandboxes/{id}", handler},
    {"GET", "/v1/sandboxes/special", handler},
    {"GET", "/v1/sandboxes/{id}/execs/{xid}", handler},
    {"*", "/v1/sandboxes/{id}/ports/{port}/{rest...}", handler},
    {"GET", "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h...}", handler},
};

static void check_match(const struct router *router, const char *method, const char *path)
{
    struct http_match m;
    struct err e = {0};
    int rc = router_find(router, method, path, &m, &e);
    assert(rc == 0 || rc == ERR_NOT_FOUND || rc == ERR_METHOD || rc == ERR_INVALID);
    assert((rc == ERR_METHOD) == (m.allow != NULL));
    if (rc == 0) {
        assert(m.route && m.count <= HTTP_PARAMS_MAX);
        for (size_t i = 0; i < m.count; i++) {
            assert(m.params[i].name && m.params[i].value && http_match_param(&m, m.params[i].name));
            bool tail = m.tail_raw && i + 1 == m.count;
            assert(tail ||
                   (m.params[i].value[0] && !str_eq(m.params[i].value, ".") && !str_eq(m.params[i].value, "..")));
        }
        if (m.tail_raw)
            assert(m.tail_raw >= path && m.tail_raw <= path + strlen(path));
    } else {
        assert(e.code == rc && e.text[0]);
    }
    http_match_done(&m);
}

static void check_query(const char *raw)
{
    struct http_query q;
    struct err e = {0};
    uint64_t n = 0;
    bool b = false;
    if (http_query_parse(raw, &q, &e) < 0) {
        assert(e.code == ERR_INVALID);
        return;
    }
    assert(q.count <= HTTP_QUERY_MAX);
    for (size_t i = 0; i < q.count; i++) {
        const char *value;
        assert(q.pairs[i].name[0] && strlen(q.pairs[i].value) <= strlen(raw));
        assert(http_query_get(&q, q.pairs[i].name, &value, &e) != 0);
        (void)http_query_u64(&q, q.pairs[i].name, 1, 1000, &n, &e);
        (void)http_query_ms(&q, q.pairs[i].name, 1000, &n, &e);
        (void)http_query_bool(&q, q.pairs[i].name, &b, &e);
        const char *const names[] = {"limit", "metadata.", q.pairs[i].name, NULL};
        (void)http_query_only(&q, names, &e);
    }
    http_query_done(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct router *router;
    char id[22];
    uint16_t port;
    if (size > 8192)
        return 0;
    if (!router && router_new(routes, sizeof(routes) / sizeof(routes[0]), &router, NULL) < 0)
        abort();
    char *text = xstrndup((const char *)data, size), *rest = text;
    const char *line = strsep(&rest, "\n"), *method = strsep((char **)&line, " ");
    char *path = xstrdup(line ? line : ""), *query = strchr(path, '?');
    if (query)
        *query++ = '\0';
    check_match(router, method, path);
    if (query)
        check_query(query);
    if (rest && http_host_port(rest, "space.test", &port, id))
        assert(port && strlen(id) == 21);
    /* Whatever the text is: as a pattern it is refused or can be matched against. */
    struct http_route route = {"GET", text, handler};
    struct router *other = NULL;
    if (router_new(&route, 1, &other, NULL) == 0)
        check_match(other, "GET", path);
    router_free(other);
    free(path);
    free(text);
    return 0;
}

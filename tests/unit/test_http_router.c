/* Routes, queries, host names, problem details: src/http without a socket. */
#include "base/str.h"
#include "http/problem.h"
#include "http/router.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void handler(struct http_request *r, void *arg)
{
    (void)r, (void)arg;
}

static const struct http_route routes[] = {
    {"GET", "/", handler},
    {"GET", "/v1/sandboxes", handler},
    {"POST", "/v1/sandboxes", handler},
    {"GET", "/v1/sandboxes/{id}", handler},
    {"DELETE", "/v1/sandboxes/{id}", handler},
    {"GET", "/v1/sandboxes/{id}/execs/{xid}", handler},
    {"*", "/v1/sandboxes/{id}/ports/{port}/{rest...}", handler},
    {"GET", "/v1/sandboxes/special", handler},
    {"GET", "/docs/{rest...}", handler},
};

static struct router *router_of(const struct http_route *table, size_t count)
{
    struct router *router = NULL;
    struct err e = {0};
    if (router_new(table, count, &router, &e) < 0)
        fail_msg("%s", e.text);
    return router;
}

static void find(const char *method, const char *path, int code, const char *pattern, const char *params)
{
    struct router *router = router_of(routes, ARRAY_LEN(routes));
    struct http_match m;
    struct err e = {0};
    int r = router_find(router, method, path, &m, &e);
    char got[512] = "";
    for (size_t i = 0; i < m.count; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s=%s", i ? "," : "", m.params[i].name,
                 m.params[i].value);
    if (r != code)
        fail_msg("%s %s: %d instead of %d (%s)", method, path, r, code, e.text);
    if (code == 0) {
        assert_string_equal(m.route->pattern, pattern);
        assert_string_equal(got, params);
    } else if (code == ERR_METHOD) {
        assert_string_equal(m.allow, pattern);
    }
    http_match_done(&m);
    router_free(router);
}

static void test_find(void **state)
{
    (void)state;
    find("GET", "/", 0, "/", "");
    find("GET", "/v1/sandboxes", 0, "/v1/sandboxes", "");
    find("HEAD", "/v1/sandboxes", 0, "/v1/sandboxes", "");
    find("GET", "/v1/sandboxes/abc", 0, "/v1/sandboxes/{id}", "id=abc");
    find("GET", "/v1/sandboxes/special", 0, "/v1/sandboxes/special", "");
    find("DELETE", "/v1/sandboxes/special", 0, "/v1/sandboxes/{id}", "id=special");
    find("GET", "/v1/sandboxes/a/execs/b", 0, "/v1/sandboxes/{id}/execs/{xid}", "id=a,xid=b");
    find("GET", "/%761/sandboxes/a%20b", 0, "/v1/sandboxes/{id}", "id=a b");
    find("GET", "/v1/sandboxes/a%2Fb", 0, "/v1/sandboxes/{id}", "id=a/b");
    find("PROPFIND", "/v1/sandboxes/a/ports/80/x/y%20z", 0, "/v1/sandboxes/{id}/ports/{port}/{rest...}",
         "id=a,port=80,rest=x/y z");
    find("GET", "/v1/sandboxes/a/ports/80", 0, "/v1/sandboxes/{id}/ports/{port}/{rest...}", "id=a,port=80,rest=");
    find("GET", "/v1/sandboxes/a/ports/80/", 0, "/v1/sandboxes/{id}/ports/{port}/{rest...}", "id=a,port=80,rest=");
    find("GET", "/v1/sandboxes/a/ports/80//x", 0, "/v1/sandboxes/{id}/ports/{port}/{rest...}", "id=a,port=80,rest=/x");
    find("GET", "/docs/../x", 0, "/docs/{rest...}", "rest=../x");
}

static void test_find_nothing(void **state)
{
    (void)state;
    find("GET", "/v1", ERR_NOT_FOUND, NULL, NULL);
    find("GET", "/v1/sandboxes/", ERR_NOT_FOUND, NULL, NULL);
    find("GET", "//", ERR_NOT_FOUND, NULL, NULL);
    find("GET", "/v1//sandboxes", ERR_NOT_FOUND, NULL, NULL);
    find("GET", "/v1/sandboxes/a/execs/", ERR_NOT_FOUND, NULL, NULL);
    find("PUT", "/v1/sandboxes", ERR_METHOD, "GET, HEAD, POST, OPTIONS", NULL);
    find("get", "/v1/sandboxes", ERR_METHOD, "GET, HEAD, POST, OPTIONS", NULL);
    find("POST", "/v1/sandboxes/x", ERR_METHOD, "GET, HEAD, DELETE, OPTIONS", NULL);
    find("GET", "/v1/sandboxes/%", ERR_INVALID, NULL, NULL);
    find("GET", "/v1/sandboxes/%4", ERR_INVALID, NULL, NULL);
    find("GET", "/v1/sandboxes/%zz", ERR_INVALID, NULL, NULL);
    find("GET", "/v1/sandboxes/a%00b", ERR_INVALID, NULL, NULL);
    find("GET", "/v1/sandboxes/..", ERR_INVALID, NULL, NULL);
    find("GET", "/v1/sandboxes/%2e%2e", ERR_INVALID, NULL, NULL);
    find("GET", "/v1/sandboxes/.", ERR_INVALID, NULL, NULL);
    find("GET", "v1", ERR_INVALID, NULL, NULL);
    find("GET", "", ERR_INVALID, NULL, NULL);
    find("GET", "/docs/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/%zz", ERR_INVALID, NULL, NULL);
    find("GET", "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t", ERR_NOT_FOUND, NULL, NULL);
}

static void test_long_tail(void **state)
{
    (void)state;
    find("GET", "/docs/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t", 0, "/docs/{rest...}",
         "rest=a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t");
    struct router *router = router_of(routes, ARRAY_LEN(routes));
    struct http_match m;
    assert_int_equal(router_find(router, "GET", "/docs/a%20b/c", &m, NULL), 0);
    assert_string_equal(m.tail_raw, "a%20b/c");
    http_match_done(&m);
    router_free(router);
}

static void test_bad_patterns(void **state)
{
    static const char *const bad[] = {"",
                                      "x",
                                      "/a//b",
                                      "/a/",
                                      "/{}",
                                      "/{a",
                                      "/{A}",
                                      "/{...}",
                                      "/{r...}/x",
                                      "/{a b}",
                                      "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17",
                                      "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct http_route route = {"GET", bad[i], handler};
        struct router *router = NULL;
        if (router_new(&route, 1, &router, NULL) != ERR_INVALID)
            fail_msg("pattern \"%s\" was taken", bad[i]);
    }
}

static void test_query(void **state)
{
    struct http_query q;
    struct err e;
    const char *v = NULL;
    uint64_t n = 0;
    bool b = false;
    (void)state;
    assert_int_equal(http_query_parse("path=%2Fa+b%2B&n=42&flag&wait=30s&t=1&t=2&metadata.x=1&", &q, &e), 0);
    assert_int_equal(q.count, 7);
    assert_int_equal(http_query_get(&q, "path", &v, &e), 1);
    assert_string_equal(v, "/a b+");
    assert_int_equal(http_query_u64(&q, "n", 0, 100, &n, &e), 1);
    assert_int_equal(n, 42);
    assert_int_equal(http_query_u64(&q, "n", 0, 10, &n, &e), ERR_INVALID);
    assert_int_equal(http_query_u64(&q, "path", 0, 10, &n, &e), ERR_INVALID);
    assert_int_equal(http_query_u64(&q, "none", 0, 10, &n, &e), 0);
    assert_int_equal(http_query_bool(&q, "flag", &b, &e), 1);
    assert_true(b);
    assert_int_equal(http_query_ms(&q, "wait", 60000, &n, &e), 1);
    assert_int_equal(n, 30000);
    assert_int_equal(http_query_ms(&q, "wait", 1000, &n, &e), ERR_INVALID);
    assert_int_equal(http_query_get(&q, "t", &v, &e), ERR_INVALID);
    const char *const all[] = {"path", "n", "flag", "wait", "t", "metadata.", NULL}, *const few[] = {"path", NULL};
    assert_int_equal(http_query_only(&q, all, &e), 0);
    assert_int_equal(http_query_only(&q, few, &e), ERR_INVALID);
    http_query_done(&q);
    assert_int_equal(http_query_parse(NULL, &q, &e), 0);
    assert_int_equal(q.count, 0);
    http_query_done(&q);
}

static void test_query_bad(void **state)
{
    static const char *const bad[] = {"a=%", "a=%4", "a=%zz", "a=%00", "%00=1", "=1", "a=\x01", "a\x7f=1", "a=1&=2"};
    struct http_query q;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (http_query_parse(bad[i], &q, NULL) != ERR_INVALID)
            fail_msg("query \"%s\" was taken", bad[i]);
    char many[HTTP_QUERY_MAX * 2 + 3] = "";
    for (int i = 0; i < HTTP_QUERY_MAX; i++)
        strcat(many, "a&");
    assert_int_equal(http_query_parse(many, &q, NULL), 0);
    http_query_done(&q);
    strcat(many, "a");
    assert_int_equal(http_query_parse(many, &q, NULL), ERR_INVALID);
}

static void test_host(void **state)
{
    uint16_t port = 0;
    char id[22];
    (void)state;
    assert_true(http_host_port("8080-sabcdefghij234567abcd.space.test", "space.test", &port, id));
    assert_int_equal(port, 8080);
    assert_string_equal(id, "sabcdefghij234567abcd");
    assert_true(http_host_port("1-SABCDEFGHIJ234567ABCD.Space.Test:7070", "space.test", &port, id));
    assert_string_equal(id, "sabcdefghij234567abcd");
    static const char *const bad[] = {"",
                                      "space.test",
                                      "8080.space.test",
                                      "0-sabcdefghij234567abcd.space.test",
                                      "65536-sabcdefghij234567abcd.space.test",
                                      "8080-sabcdefghij234567abc.space.test",
                                      "8080-xabcdefghij234567abcd.space.test",
                                      "8080-sabcdefghij234567abcd.space.tes",
                                      "8080-sabcdefghij234567abcd.space.test.",
                                      "8080-sabcdefghij234567abcd.a.space.test",
                                      "80-80-sabcdefghij234567abc.space.test",
                                      "-sabcdefghij234567abcd.space.test",
                                      "8080-sabcdefghij234567abc1.space.test"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (http_host_port(bad[i], "space.test", &port, id))
            fail_msg("host \"%s\" was taken", bad[i]);
}

static void test_problem(void **state)
{
    struct err e;
    (void)state;
    err_set(&e, ERR_NOT_FOUND, "no sandbox \"x\"");
    json_t *p = problem_json(&e, 0, "r1");
    assert_string_equal(json_string_value(json_object_get(p, "type")), "/problems/not_found");
    assert_int_equal(json_integer_value(json_object_get(p, "status")), 404);
    assert_string_equal(json_string_value(json_object_get(p, "detail")), "no sandbox \"x\"");
    assert_string_equal(json_string_value(json_object_get(p, "request_id")), "r1");
    assert_string_equal(json_string_value(json_object_get(p, "code")), "not_found");
    json_decref(p);
    static const int hidden[] = {ERR_SYSTEM, ERR_INTERNAL, ERR_NO_SPACE, -999};
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
        err_set(&e, hidden[i], "open /var/lib/space/secret");
        char *detail = problem_detail(&e);
        assert_true(problem_hides(hidden[i]));
        assert_null(strstr(detail, "/var"));
        free(detail);
    }
    err_set(&e, ERR_INVALID, "bad \xff name");
    p = problem_json(&e, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(p, "detail")), "bad \\xff name");
    json_decref(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),         cmocka_unit_test(test_find_nothing), cmocka_unit_test(test_long_tail),
        cmocka_unit_test(test_bad_patterns), cmocka_unit_test(test_query),        cmocka_unit_test(test_query_bad),
        cmocka_unit_test(test_host),         cmocka_unit_test(test_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

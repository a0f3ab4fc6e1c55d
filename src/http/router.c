/* Table of routes (see router.h): patterns are cut into segments once and ordered so that the first row that fits a
 * path and a method is the most specific one. */
#include "http/router.h"

#include "base/id.h"
#include "base/str.h"

enum segment_kind { SEGMENT_LITERAL, SEGMENT_PARAM, SEGMENT_TAIL }; /* in the order in which they win */

struct segment {
    enum segment_kind kind;
    char *text; /* literal, or the parameter's name */
    size_t len;
};

struct row {
    const struct http_route *route;
    size_t count;
    struct segment segments[HTTP_SEGMENTS_MAX];
};

struct router {
    size_t count;
    struct row rows[];
};

static bool name_valid(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!(s[i] == '_' || (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9')))
            return false;
    return len > 0;
}

static int row_parse(struct row *row, const struct http_route *route, struct err *e)
{
    const char *p = route->pattern;
    size_t params = 0;
    row->route = route;
    if (!route->method || !*route->method || !route->handler || !p || *p != '/')
        return err_set(e, ERR_INVALID, "route \"%s %s\" lacks a method, handler or leading \"/\"",
                       route->method ? route->method : "", p ? p : "");
    if (str_eq(p, "/"))
        return 0;
    while (*p == '/') {
        const char *start = ++p;
        size_t len = strcspn(p, "/");
        struct segment *s = &row->segments[row->count];
        p += len;
        if (row->count == HTTP_SEGMENTS_MAX || len == 0)
            return err_set(e, ERR_INVALID, "route pattern \"%s\" has an empty segment or too many", route->pattern);
        if (row->count && s[-1].kind == SEGMENT_TAIL)
            return err_set(e, ERR_INVALID, "route pattern \"%s\" goes on after its tail", route->pattern);
        if (start[0] == '{') {
            bool tail = len > 5 && memcmp(start + len - 4, "...}", 4) == 0;
            size_t name_len = len - (tail ? 5 : 2);
            if (len < 3 || start[len - 1] != '}' || !name_valid(start + 1, name_len) || params == HTTP_PARAMS_MAX)
                return err_set(e, ERR_INVALID, "route pattern \"%s\" has a malformed parameter", route->pattern);
            s->kind = tail ? SEGMENT_TAIL : SEGMENT_PARAM;
            s->text = xstrndup(start + 1, name_len);
            params++;
        } else {
            s->kind = SEGMENT_LITERAL;
            s->text = xstrndup(start, len);
        }
        s->len = strlen(s->text);
        row->count++;
    }
    return 0;
}

/* Rows that can take the same path: the more specific one first, then by place in the caller's table. */
static int row_compare(const void *pa, const void *pb)
{
    const struct row *a = pa, *b = pb;
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (a->segments[i].kind != b->segments[i].kind)
            return a->segments[i].kind < b->segments[i].kind ? -1 : 1;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return a->route < b->route ? -1 : a->route > b->route;
}

int router_new(const struct http_route *routes, size_t count, struct router **ret_router, struct err *e)
{
    struct router *router = xcalloc(1, sizeof(*router) + count * sizeof(struct row));
    router->count = count;
    for (size_t i = 0; i < count; i++) {
        int r = row_parse(&router->rows[i], &routes[i], e);
        if (r < 0) {
            router_free(router);
            return r;
        }
    }
    if (count)
        qsort(router->rows, count, sizeof(struct row), row_compare);
    *ret_router = router;
    return 0;
}

void router_free(struct router *router)
{
    if (!router)
        return;
    for (size_t i = 0; i < router->count; i++)
        for (size_t k = 0; k < router->rows[i].count; k++)
            free(router->rows[i].segments[k].text);
    free(router);
}

static bool dot_segment(const char *s)
{
    return str_eq(s, ".") || str_eq(s, "..");
}

/* The path cut at "/" and decoded. A tail starts at a segment's place in the raw path. */
struct path {
    size_t count;
    struct {
        const char *decoded;
        const char *raw;
    } parts[HTTP_SEGMENTS_MAX + 1]; /* one more than any pattern has: there the cutting ends */
};

static int path_cut(const char *path, char *storage, struct path *ret_path, struct err *e)
{
    ret_path->count = 0;
    if (*path != '/')
        return err_set(e, ERR_INVALID, "the path does not begin with \"/\"");
    while (*path == '/' && ret_path->count < ARRAY_LEN(ret_path->parts)) {
        const char *start = path + 1;
        size_t len = strcspn(start, "/");
        memcpy(storage, start, len);
        storage[len] = '\0';
        if (!percent_decode(storage))
            return err_set(e, ERR_INVALID, "the path holds a broken percent escape");
        ret_path->parts[ret_path->count].decoded = storage;
        ret_path->parts[ret_path->count++].raw = start;
        storage += len + 1;
        path = start + len;
    }
    return 0;
}

static bool row_fits(const struct row *row, const struct path *path)
{
    size_t n = row->count;
    bool tail = n && row->segments[n - 1].kind == SEGMENT_TAIL;
    if (n == 0)
        return path->count == 1 && path->parts[0].decoded[0] == '\0';
    if (tail ? path->count < n - 1 : path->count != n)
        return false;
    for (size_t i = 0; i < n - tail; i++) {
        const struct segment *s = &row->segments[i];
        const char *part = path->parts[i].decoded;
        if (s->kind == SEGMENT_LITERAL ? !str_eq(s->text, part) : part[0] == '\0')
            return false;
    }
    return true;
}

static bool row_takes(const struct row *row, const char *method)
{
    return str_eq(row->route->method, "*") || str_eq(row->route->method, method);
}

static const char *param_raw(const struct path *path, size_t i, const char *whole)
{
    return i < path->count ? path->parts[i].raw : whole + strlen(whole);
}

/* Fill in the parameters; the tail is decoded as a whole behind the decoded segments. */
static int match_fill(struct http_match *m, const struct row *row, const struct path *path, const char *whole,
                      char *storage, struct err *e)
{
    m->route = row->route;
    for (size_t i = 0; i < row->count; i++) {
        const struct segment *s = &row->segments[i];
        if (s->kind == SEGMENT_LITERAL)
            continue;
        const char *value = i < path->count ? path->parts[i].decoded : "";
        if (s->kind == SEGMENT_TAIL) {
            m->tail_raw = param_raw(path, i, whole);
            strcpy(storage, m->tail_raw);
            if (!percent_decode(storage))
                return err_set(e, ERR_INVALID, "the path holds a broken percent escape");
            value = storage;
        } else if (dot_segment(value)) {
            return err_set(e, ERR_INVALID, "the path holds a dot segment");
        }
        m->params[m->count++] = (struct http_pair){.name = s->text, .value = value};
    }
    return 0;
}

static void allow_add(struct buf *allow, const char *method)
{
    size_t len = strlen(method);
    const char *have = buf_cstr(allow);
    for (const char *p = have; (p = strstr(p, method)); p += len)
        if ((p == have || p[-1] == ' ') && (p[len] == ',' || p[len] == '\0'))
            return;
    buf_printf(allow, "%s%s", allow->len ? ", " : "", method);
}

int router_find(const struct router *router, const char *method, const char *path, struct http_match *ret_match,
                struct err *e)
{
    size_t len = strlen(path);
    _cleanup_buf_ struct buf allow = BUF_MAX(1024);
    struct path parts;
    bool get = str_eq(method, "HEAD");
    *ret_match = (struct http_match){0};
    ret_match->storage = xmalloc(2 * (len + 2)); /* the segments, each with its NUL; behind them the tail */
    int r = path_cut(path, ret_match->storage, &parts, e);
    if (r < 0)
        return r;
    for (int pass = 0; pass < 1 + get; pass++) { /* HEAD takes a route of its own before that of GET */
        for (size_t i = 0; i < router->count; i++) {
            const struct row *row = &router->rows[i];
            if (!row_fits(row, &parts))
                continue;
            if (row_takes(row, pass ? "GET" : method))
                return match_fill(ret_match, row, &parts, path, ret_match->storage + len + 2, e);
            allow_add(&allow, row->route->method);
            if (str_eq(row->route->method, "GET"))
                allow_add(&allow, "HEAD");
        }
    }
    if (!allow.len)
        return err_set(e, ERR_NOT_FOUND, "there is nothing at this path");
    allow_add(&allow, "OPTIONS");
    ret_match->allow = buf_steal_str(&allow);
    return err_set(e, ERR_METHOD, "this path takes %s", ret_match->allow);
}

void http_match_done(struct http_match *m)
{
    free(m->allow);
    free(m->storage);
    *m = (struct http_match){0};
}

const char *http_match_param(const struct http_match *m, const char *name)
{
    for (size_t i = 0; i < m->count; i++)
        if (str_eq(m->params[i].name, name))
            return m->params[i].value;
    return NULL;
}

bool http_host_port(const char *host, const char *domain, uint16_t *ret_port, char ret_id[static ID_SIZE])
{
    char label[64], id[ID_SIZE];
    uint64_t port;
    size_t label_len = strcspn(host, "."), domain_len = strlen(domain);
    if (label_len >= sizeof(label) || host[label_len] != '.' || domain_len == 0)
        return false;
    const char *rest = host + label_len + 1;
    if (strncasecmp(rest, domain, domain_len) != 0 || (rest[domain_len] != '\0' && rest[domain_len] != ':'))
        return false;
    memcpy(label, host, label_len);
    label[label_len] = '\0';
    char *dash = strchr(label, '-');
    if (!dash || strlen(dash + 1) != ID_LEN)
        return false;
    *dash = '\0';
    for (size_t i = 0; i <= ID_LEN; i++) {
        char c = dash[1 + i];
        id[i] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    if (!str_to_u64(label, 1, 65535, &port) || !id_valid(ID_SANDBOX, id))
        return false;
    *ret_port = (uint16_t)port;
    memcpy(ret_id, id, ID_SIZE);
    return true;
}

/* Routes, paths and queries: pure functions over strings, no I/O (tests/fuzz/fuzz_http_parse.c drives them).
 *
 * A pattern is a list of segments: literal ("/v1/sandboxes"), "{name}" for exactly one segment that is not empty, and
 * as the last one "{name...}" for the rest of the path, which may be empty ("/v1/x/{rest...}" also takes "/v1/x" and
 * "/v1/x/"). Where several patterns take a path, a literal beats a parameter and a parameter beats a tail, decided at
 * the first segment where they differ. Paths are taken as they are: no folding of "//", no resolving of "..", a
 * trailing "/" is another path. A "." or ".." segment (also as %2e) is refused except in a tail, which a handler gets
 * both decoded and raw. */
#ifndef SPACE_HTTP_ROUTER_H
#define SPACE_HTTP_ROUTER_H

#include "base/err.h"

#define HTTP_PARAMS_MAX 8    /* parameters of one pattern */
#define HTTP_QUERY_MAX 64    /* name=value pairs of one query */
#define HTTP_SEGMENTS_MAX 16 /* segments of one pattern */

struct http_request;

/* What happens with a request's body before the handler runs. */
enum http_body_mode {
    HTTP_BODY_NONE,          /* a body is refused (400) */
    HTTP_BODY_JSON,          /* read whole, must be a JSON object; the handler runs when it is there */
    HTTP_BODY_JSON_OPTIONAL, /* as JSON, but may be missing or empty: http_request_json gives NULL */
    HTTP_BODY_STREAM,        /* the handler runs at the headers and takes the body with http_request_read_body */
};

/* One row of the caller's table. The table must live as long as the server. */
struct http_route {
    const char *method; /* "GET" also answers HEAD; "*" takes every method */
    const char *pattern;
    void (*handler)(struct http_request *r, void *arg); /* arg: http_options.handler_arg */
    enum http_body_mode body;
    uint64_t body_max; /* bytes; 0: http_options.json_max for JSON, no limit for STREAM */
    unsigned flags;    /* the caller's own (scopes, needs auth): see http_request_route */
    const void *data;  /* the caller's own */
};

struct http_pair {
    const char *name;
    const char *value; /* decoded, NUL-terminated, holds no other NUL */
};

struct http_match {
    const struct http_route *route;
    size_t count;
    struct http_pair params[HTTP_PARAMS_MAX];
    const char *tail_raw; /* the tail as it came (not decoded, no leading "/"), or NULL when the pattern has none */
    char *allow;          /* with ERR_METHOD: "GET, HEAD, OPTIONS" */
    char *storage;
};

struct router;

/* Check and order a table of routes. ERR_INVALID for a pattern that is not well formed. */
int router_new(const struct http_route *routes, size_t count, struct router **ret_router, struct err *e);
void router_free(struct router *router);

/* Find the route for a method and a path (raw, without query). ERR_NOT_FOUND; ERR_METHOD (ret_match->allow is set);
 * ERR_INVALID for a broken escape, an encoded NUL or a dot segment. The match is freed with http_match_done in every
 * case. */
int router_find(const struct router *router, const char *method, const char *path, struct http_match *ret_match,
                struct err *e);
void http_match_done(struct http_match *m);
const char *http_match_param(const struct http_match *m, const char *name); /* NULL when there is none */

struct http_query {
    size_t count;
    struct http_pair pairs[HTTP_QUERY_MAX];
    char *storage;
};

/* Parse what follows "?" (NULL and "" are an empty query): pairs parted by "&", "%XX" decoded, "+" is a space; a name
 * without "=" has the value "". ERR_INVALID for a broken escape, an encoded NUL, an empty name, a raw control byte or
 * more than HTTP_QUERY_MAX pairs. */
int http_query_parse(const char *raw, struct http_query *ret_query, struct err *e);
void http_query_done(struct http_query *q);

/* The one value of `name`: 1 and *ret_value, 0 when absent, ERR_INVALID when given more than once. */
int http_query_get(const struct http_query *q, const char *name, const char **ret_value, struct err *e);
/* As http_query_get, then as a number or a duration ("30s", "250ms", plain seconds). */
int http_query_u64(const struct http_query *q, const char *name, uint64_t min, uint64_t max, uint64_t *ret_value,
                   struct err *e);
int http_query_ms(const struct http_query *q, const char *name, uint64_t max_ms, uint64_t *ret_ms, struct err *e);
int http_query_bool(const struct http_query *q, const char *name, bool *ret_value, struct err *e);
/* Refuse names that are not in the NULL-terminated list; an entry that ends in "." allows every name that begins so. */
int http_query_only(const struct http_query *q, const char *const *names, struct err *e);

/* Take apart a Host header "<port>-<id>.<domain>[:listen port]": true when it has that form, port is 1..65535 and id
 * a valid sandbox id (id_valid). Letter case of the host does not matter. */
bool http_host_port(const char *host, const char *domain, uint16_t *ret_port, char ret_id[static 22]);

#endif

/* From libmicrohttpd to a handler: checks of the headers, routing, authority, bodies (stages: see http_internal.h). */
#include "http/http_internal.h"
#include "http/problem.h"

#include <ctype.h>

void *dispatch_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct conn *c = info ? info->socket_context : NULL;
    (void)cls;
    if (!c)
        return NULL;
    c->request = request_new(c, uri ? uri : "");
    c->requests++;
    conn_deadline(c, DEADLINE_HEADER);
    return c->request;
}

void dispatch_completed(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code)
{
    struct http_request *r = *context;
    (void)cls, (void)mhd;
    *context = NULL;
    if (r)
        request_finish(r, code);
}

/* ---- checks of the headers ---- */

static bool token_char(unsigned char c)
{
    return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool token_valid(const char *s)
{
    const char *start = s;
    while (token_char((unsigned char)*s))
        s++;
    return *s == '\0' && s > start;
}

struct header_check {
    const char *bad; /* what is wrong */
    const char *singles[7];
    unsigned seen[7];
};

static void header_check(void *arg, const char *name, const char *value)
{
    struct header_check *check = arg;
    if (!token_valid(name))
        check->bad = "a header name is not valid";
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if ((*p < 0x20 && *p != '\t') || *p == 0x7f)
            check->bad = "a header value holds a control character";
    for (size_t i = 0; i < ARRAY_LEN(check->singles); i++)
        if (strcasecmp(check->singles[i], name) == 0 && ++check->seen[i] > 1)
            check->bad = "a header that may come once is repeated";
}

static int refuse(struct http_request *r, int status, int code, const char *text)
{
    if (!r->refusal.code) {
        r->refusal_status = status;
        err_set(&r->refusal, code, "%s", text);
    }
    return code;
}

/* Content-Length and Transfer-Encoding (RFC 9112, section 6): what two programs could read in two ways is refused. */
static void check_framing(struct http_request *r)
{
    const char *length = http_request_header(r, "Content-Length");
    const char *encoding = http_request_header(r, "Transfer-Encoding");
    uint64_t n = 0;
    if (encoding) {
        r->content_length = -1;
        r->has_body = true;
        if (length || r->http10)
            refuse(r, 0, ERR_INVALID, "Transfer-Encoding together with Content-Length or HTTP/1.0");
        if (strcasecmp(encoding, "chunked") != 0)
            refuse(r, 0, ERR_UNSUPPORTED, "the only Transfer-Encoding that is understood is \"chunked\"");
    } else if (length) {
        if (!str_to_u64(length, 0, INT64_MAX, &n))
            refuse(r, 0, ERR_INVALID, "Content-Length is not a number");
        r->content_length = (int64_t)n;
        r->has_body = n > 0;
    }
    const char *expect = http_request_header(r, "Expect");
    r->expect_continue = expect && !r->http10 && strcasecmp(expect, "100-continue") == 0;
}

/* The path of a target in origin form, or in absolute form without its scheme and authority. */
static void check_target(struct http_request *r)
{
    char *path = r->target;
    if (strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0) {
        path = strstr(path, "://") + 3;
        path += strcspn(path, "/");
        if (*path != '/')
            path = NULL;
    }
    if (!path || (*path != '/' && !(str_eq(path, "*") && str_eq(r->method, "OPTIONS")))) {
        refuse(r, 0, ERR_INVALID, "the request target is not a path");
        return;
    }
    for (const unsigned char *p = (const unsigned char *)path; *p; p++)
        if (*p <= 0x20 || *p == 0x7f)
            refuse(r, 0, ERR_INVALID, "the request target holds a space or a control character");
    for (const unsigned char *p = (const unsigned char *)r->raw_query; p && *p; p++)
        if (*p <= 0x20 || *p == 0x7f)
            refuse(r, 0, ERR_INVALID, "the request target holds a space or a control character");
    r->path = xstrdup(path);
}

static void request_id_take(struct http_request *r)
{
    const char *given = http_request_header(r, "X-Request-Id");
    size_t len = given ? strspn(given, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") : 0;
    if (len > 0 && len <= REQUEST_ID_MAX && given[len] == '\0')
        memcpy(r->id, given, len + 1);
    else
        id_new(ID_REQUEST, r->id);
}

static void check_headers(struct http_request *r, const char *method, const char *version)
{
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(r->conn->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct header_check check = {.singles = {"Host", "Content-Length", "Transfer-Encoding", "Authorization",
                                             "Content-Type", "Expect", "X-Request-Id"}};
    snprintf(r->method, sizeof(r->method), "%s", method);
    r->head = str_eq(method, "HEAD");
    r->http10 = str_eq(version, "HTTP/1.0");
    request_id_take(r);
    if (size && size->header_size > r->server->options.header_max)
        refuse(r, 431, ERR_TOO_LARGE, "the request line and headers are too long");
    if (!token_valid(method) || strlen(method) >= sizeof(r->method))
        refuse(r, 0, ERR_INVALID, "the method is not valid");
    http_request_headers(r, header_check, &check);
    if (check.bad)
        refuse(r, 0, ERR_INVALID, check.bad);
    check_framing(r);
    if (!r->http10 && !http_request_header(r, "Host"))
        refuse(r, 0, ERR_INVALID, "the Host header is missing");
    check_target(r);
}

/* ---- start: route, authority, handler ---- */

static uint64_t body_max(const struct http_request *r)
{
    const struct http_route *route = r->match.route;
    if (route->body_max)
        return route->body_max;
    return route->body == HTTP_BODY_STREAM ? UINT64_MAX : r->server->options.json_max;
}

static bool wants_json(const struct http_request *r)
{
    return r->match.route->body == HTTP_BODY_JSON || r->match.route->body == HTTP_BODY_JSON_OPTIONAL;
}

static int json_take(struct http_request *r, struct err *e)
{
    json_error_t error;
    if (r->body.len == 0) {
        if (r->match.route->body == HTTP_BODY_JSON_OPTIONAL)
            return 0;
        return err_set(e, ERR_INVALID, "a JSON object is needed as the body");
    }
    r->json = json_loadb((const char *)buf_data(&r->body), r->body.len, JSON_REJECT_DUPLICATES, &error);
    if (!r->json)
        return err_set(e, ERR_INVALID, "the body is not valid JSON: line %d, column %d: %s", error.line, error.column,
                       error.text);
    if (!json_is_object(r->json))
        return err_set(e, ERR_INVALID, "the body must be a JSON object");
    return 0;
}

/* The handler's turn. A handler that does not answer leaves the connection suspended. */
static void dispatch_handler(struct http_request *r)
{
    struct err e = {0};
    if (wants_json(r) && json_take(r, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    r->dispatched = true;
    r->owned = true;
    http_request_ref(r);
    r->match.route->handler(r, r->server->options.handler_arg);
}

/* Allowed: take the body if it belongs to the request as such, else run the handler. */
static void dispatch_allowed(struct http_request *r)
{
    if (wants_json(r) && r->has_body && !r->body_done) {
        buf_init(&r->body, body_max(r));
        r->go_body = true;
        if (r->conn)
            conn_resume(r->conn);
        return;
    }
    dispatch_handler(r);
}

void dispatch_proceed(struct http_request *r)
{
    struct http_request *held = http_request_ref(r);
    request_release(r); /* the hook's; the handler takes its own */
    if (!r->gone && !r->answered)
        dispatch_allowed(r);
    http_request_unref(held);
}

static int dispatch_authorize(struct http_request *r, struct err *e)
{
    const struct http_options *o = &r->server->options;
    if (!o->authorize)
        return 0;
    r->owned = true;
    http_request_ref(r);
    r->waiting = true;
    int rc = o->authorize(r, o->hook_arg, e);
    if (rc > 0 || r->answered || r->proceed_due)
        return HTTP_LATER;
    r->waiting = false;
    r->on_abort = NULL;
    request_release(r);
    return rc;
}

static int dispatch_route(struct http_request *r, struct err *e)
{
    const struct http_options *o = &r->server->options;
    const char *host = http_request_header(r, "Host");
    _cleanup_buf_ struct buf other = BUF_MAX(64 * KIB);
    if (o->on_host && host && o->on_host(o->hook_arg, host, r->path, &other)) {
        free(r->path);
        r->path = buf_steal_str(&other);
    }
    int rc = router_find(r->server->router, r->method, r->path, &r->match, e);
    if (rc == ERR_METHOD)
        http_reply_header(r, "Allow", r->match.allow);
    if (rc == 0)
        rc = http_query_parse(r->raw_query, &r->query, e);
    if (rc < 0)
        return rc;
    if (r->match.route->body == HTTP_BODY_NONE && r->has_body)
        return err_set(e, ERR_INVALID, "this request takes no body");
    if (r->content_length > 0 && (uint64_t)r->content_length > body_max(r))
        return err_set(e, ERR_TOO_LARGE, "the body is longer than %llu bytes", (unsigned long long)body_max(r));
    return 0;
}

static void dispatch_start(struct http_request *r)
{
    struct err e = {0};
    int rc;
    if (r->conn->refused) {
        err_set(&e, ERR_UNAVAILABLE, "too many connections");
        http_reply_error(r, &e);
        return;
    }
    if (r->refusal.code) {
        http_reply_error_status(r, r->refusal_status, &r->refusal);
        return;
    }
    if (str_eq(r->path, "*")) {
        http_reply_empty(r, 204);
        return;
    }
    rc = dispatch_route(r, &e);
    if (rc == ERR_METHOD && str_eq(r->method, "OPTIONS")) {
        http_reply_empty(r, 204);
        return;
    }
    if (rc == 0)
        rc = dispatch_authorize(r, &e);
    if (rc < 0)
        http_reply_error(r, &e);
    else if (rc == 0)
        dispatch_allowed(r);
}

/* ---- bodies ---- */

static void body_too_large(struct http_request *r)
{
    struct err e = {0};
    err_set(&e, ERR_TOO_LARGE, "the body is longer than %llu bytes", (unsigned long long)body_max(r));
    if (wants_json(r)) {
        http_reply_error(r, &e);
        return;
    }
    request_abort(r, HTTP_ABORT_CLIENT); /* the handler's part ends here; the server answers for it */
    json_t *problem = problem_json(&e, 0, r->id);
    r->status = 413;
    r->reply_set = true;
    r->content_type = xstrdup("application/problem+json");
    r->data_out = json_dumps(problem, JSON_COMPACT);
    r->data_len = strlen(r->data_out);
    json_decref(problem);
    reply_raw(r);
}

/* One piece of the body; returns how much of it was taken. */
static size_t body_piece(struct http_request *r, const char *data, size_t len)
{
    struct conn *c = r->conn;
    if (r->raw)
        return len;
    if (r->discard || r->gone) {
        r->bytes_in += len;
        return len;
    }
    stream_raw_start(r);
    if (!c->raw_out.len)
        conn_deadline(c, DEADLINE_BODY);
    if (len > body_max(r) - r->bytes_in) {
        body_too_large(r);
        return len;
    }
    if (wants_json(r)) {
        buf_put(&r->body, data, len);
        r->bytes_in += len;
        return len;
    }
    if (r->paused) {
        conn_suspend(c);
        return 0;
    }
    size_t taken = !r->body_events.on_data ? len : r->body_events.on_data(r, data, len, r->body_arg);
    if (taken > len)
        taken = len;
    r->bytes_in += taken;
    if (r->discard || r->raw || c->cut)
        return len;
    if (taken < len)
        r->paused = true;
    if (r->paused)
        conn_suspend(c);
    return taken;
}

static void body_end(struct http_request *r)
{
    r->body_done = true;
    if (r->raw || r->discard || r->gone || r->answered)
        return;
    if (wants_json(r)) {
        dispatch_handler(r);
    } else if (r->reading) {
        r->end_due = true;
        request_due(r);
    }
}

/* The body is over; an answer written past libmicrohttpd may not be. */
static enum MHD_Result raw_wait(struct http_request *r)
{
    struct conn *c = r->conn;
    if (r->raw && !c->raw_out.len)
        return MHD_NO;
    conn_suspend(c);
    if (c->raw_out.len)
        conn_deadline(c, DEADLINE_WRITE);
    return MHD_YES;
}

/* What libmicrohttpd shall do after a call without body data. */
static enum MHD_Result dispatch_settle(struct http_request *r)
{
    struct conn *c = r->conn;
    if (c->cut)
        return MHD_NO;
    if (r->stage == STAGE_HEADERS) {
        /* A streamed answer whose handler does not take the body: a short one is thrown away first. */
        if (r->reply_set && !r->go_body && !r->raw) {
            bool wait = reply_body_left(r) <= DISCARD_MAX && !r->expect_continue;
            r->discard = r->go_body = wait;
            r->early = !wait;
        }
        if (r->go_body || r->raw) {
            r->stage = STAGE_BODY;
            if (!r->raw)
                conn_deadline(c, r->discard ? DEADLINE_DISCARD : DEADLINE_BODY);
            return MHD_YES;
        }
        if (r->reply_set && r->early)
            return reply_queue(r) < 0 ? MHD_NO : MHD_YES;
    } else {
        if (r->raw || r->raw_stream)
            return raw_wait(r);
        if (r->reply_set)
            return reply_queue(r) < 0 ? MHD_NO : MHD_YES;
    }
    conn_suspend(c);
    return MHD_YES;
}

enum MHD_Result dispatch_access(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                const char *version, const char *upload_data, size_t *upload_size, void **context)
{
    struct http_request *r = *context;
    (void)cls, (void)mhd, (void)url;
    if (!r || r->conn->cut)
        return MHD_NO;
    if (*upload_size) {
        *upload_size -= body_piece(r, upload_data, *upload_size);
        return r->conn->cut ? MHD_NO : MHD_YES;
    }
    switch (r->stage) {
    case STAGE_NEW:
        r->stage = STAGE_HEADERS;
        conn_deadline(r->conn, DEADLINE_NONE);
        check_headers(r, method, version);
        if (!r->has_body)
            return MHD_YES; /* called again at once, when an answer leaves the connection open */
        dispatch_start(r);
        break;
    case STAGE_HEADERS:
        if (r->has_body)
            break;
        r->stage = STAGE_FULL;
        r->body_done = true;
        dispatch_start(r);
        break;
    case STAGE_BODY:
        r->stage = STAGE_FULL;
        if (!r->raw)
            conn_deadline(r->conn, DEADLINE_NONE);
        body_end(r);
        break;
    default:
        break;
    }
    return dispatch_settle(r);
}

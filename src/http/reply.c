/* Answers that are known as a whole (streams: stream.c). */
#include "http/http_internal.h"
#include "http/problem.h"

#include <sys/socket.h>
#include <time.h>

static bool header_set(const struct http_request *r, const char *name)
{
    for (size_t i = 0; i < r->header_count; i++)
        if (strcasecmp(r->headers[i].name, name) == 0)
            return true;
    return false;
}

void reply_content_type(struct http_request *r, const char *content_type)
{
    r->content_type = content_type && !header_set(r, "Content-Type") ? xstrdup(content_type) : NULL;
}

bool http_reply_header(struct http_request *r, const char *name, const char *value)
{
    if (strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0)
        return false;
    if (r->reply_set || r->gone || r->header_count == REPLY_HEADERS_MAX || !*name)
        return false;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f || *p == ':')
            return false;
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if ((*p < 0x20 && *p != '\t') || *p == 0x7f)
            return false;
    r->headers[r->header_count].name = xstrdup(name);
    r->headers[r->header_count++].value = xstrdup(value);
    return true;
}

void raw_head(struct buf *out, int status, const char *content_type, int64_t length, const char *request_id)
{
    char date[64];
    struct tm tm;
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm); /* no locale is ever set */
    buf_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: close\r\nX-Request-Id: %s\r\n", status,
               MHD_get_reason_phrase_for((unsigned)status), date, request_id);
    if (length >= 0)
        buf_printf(out, "Content-Length: %lld\r\n", (long long)length);
    if (content_type)
        buf_printf(out, "Content-Type: %s\r\n", content_type);
}

void reply_render(struct http_request *r, struct buf *out)
{
    bool chunked = r->streaming && r->length < 0 && !r->http10;
    raw_head(out, r->status, r->content_type, r->streaming ? r->length : (int64_t)r->data_len, r->id);
    if (chunked)
        buf_put_str(out, "Transfer-Encoding: chunked\r\n");
    for (size_t i = 0; i < r->header_count; i++)
        buf_printf(out, "%s: %s\r\n", r->headers[i].name, r->headers[i].value);
    buf_put_str(out, "\r\n");
    if (!r->no_body && r->data_len)
        buf_put(out, r->data_out, r->data_len);
}

/* The response object for what the request's reply fields say. */
struct MHD_Response *reply_make(struct http_request *r)
{
    struct http_server *s = r->server;
    struct MHD_Response *response;
    uint64_t most = s->options.requests_per_connection;
    if (r->tunnel)
        response = tunnel_response(r);
    else if (r->streaming)
        response = stream_response(r);
    else if (r->data_len)
        response = MHD_create_response_from_buffer(r->data_len, steal(r->data_out), MHD_RESPMEM_MUST_FREE);
    else
        response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return NULL;
    MHD_add_response_header(response, "X-Request-Id", r->id);
    if (r->content_type)
        MHD_add_response_header(response, "Content-Type", r->content_type);
    for (size_t i = 0; i < r->header_count; i++)
        MHD_add_response_header(response, r->headers[i].name, r->headers[i].value);
    if (!r->tunnel && (s->stopping || r->conn->refused || (most && r->conn->requests >= most)))
        MHD_add_response_header(response, "Connection", "close");
    return response;
}

int reply_queue(struct http_request *r)
{
    if (!r->streaming && !r->tunnel && r->data_len > INLINE_MAX) {
        r->streaming = r->ended = true;
        r->length = (int64_t)r->data_len;
        r->out = (struct buf){
            .mem = (uint8_t *)r->data_out, .len = r->data_len, .capacity = r->data_len, .max = r->data_len};
        r->data_out = NULL;
    }
    struct MHD_Response *response = reply_make(r);
    enum MHD_Result ok = response ? MHD_queue_response(r->conn->mhd, (unsigned)r->status, response) : MHD_NO;
    if (response)
        MHD_destroy_response(response);
    if (ok != MHD_YES)
        return ERR_INTERNAL; /* the connection is closed */
    r->stage = STAGE_REPLYING;
    conn_deadline(r->conn, DEADLINE_WRITE);
    return 0;
}

void reply_raw(struct http_request *r)
{
    struct conn *c = r->conn;
    r->raw = true;
    r->bytes_out = r->no_body ? 0 : r->data_len;
    buf_init(&c->raw_out, 0);
    reply_render(r, &c->raw_out);
    conn_raw_send(c);
}

uint64_t reply_body_left(const struct http_request *r)
{
    return r->content_length < 0 ? UINT64_MAX : (uint64_t)r->content_length - r->bytes_in;
}

/* The answer's head is known: bring it out now, or see to it that the place where it can go is reached. */
void reply_submit(struct http_request *r)
{
    struct conn *c = r->conn;
    r->reply_set = true;
    r->no_body = r->head || r->status < 200 || r->status == 204 || r->status == 304;
    if (!c || c->cut)
        return;
    if (r->streaming && r->stage == STAGE_BODY && r->reading && r->bytes_in) {
        stream_raw_start(r);
        return;
    }
    if (!r->streaming && !r->tunnel && (r->stage == STAGE_HEADERS || r->stage == STAGE_BODY)) {
        bool invited = r->stage == STAGE_BODY || !r->expect_continue;
        if (reply_body_left(r) > DISCARD_MAX || !invited) {
            reply_raw(r);
            return;
        }
        r->discard = r->go_body = true;
        if (r->stage == STAGE_BODY)
            conn_deadline(c, DEADLINE_DISCARD);
    }
    conn_resume(c); /* the rest: dispatch_settle */
}

/* Is an answer possible? If the client has gone the handler is done with the request. */
static bool reply_begin(struct http_request *r)
{
    bool possible = !r->gone && !r->answered && !r->reply_set;
    if (r->gone && !r->answered) {
        r->answered = true;
        request_release(r); /* may free it */
    }
    return possible;
}

/* Takes `data`. */
static void reply_buffered(struct http_request *r, int status, const char *content_type, char *data, size_t len)
{
    if (!reply_begin(r)) {
        free(data);
        return;
    }
    r->status = status;
    reply_content_type(r, content_type);
    r->data_out = data;
    r->data_len = len;
    r->answered = true;
    reply_submit(r);
    request_release(r);
}

void http_reply_data(struct http_request *r, int status, const char *content_type, const void *data, size_t len)
{
    char *copy = len ? xmalloc(len) : NULL;
    if (len)
        memcpy(copy, data, len);
    reply_buffered(r, status, content_type, copy, len);
}

void http_reply_json(struct http_request *r, int status, json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (!text) {
        struct err e;
        err_set(&e, ERR_INTERNAL, "the answer could not be written as JSON");
        http_reply_error(r, &e);
        return;
    }
    if (!header_set(r, "Cache-Control"))
        http_reply_header(r, "Cache-Control", "no-store");
    reply_buffered(r, status, "application/json", text, strlen(text));
}

void http_reply_json_text(struct http_request *r, int status, const char *text)
{
    if (!header_set(r, "Cache-Control"))
        http_reply_header(r, "Cache-Control", "no-store");
    http_reply_data(r, status, "application/json", text, strlen(text));
}

void http_reply_empty(struct http_request *r, int status)
{
    reply_buffered(r, status, NULL, NULL, 0);
}

void http_reply_error_status(struct http_request *r, int status, const struct err *error)
{
    const struct http_options *o = &r->server->options;
    json_t *problem = problem_json(error, status, r->id);
    char *text = json_dumps(problem, JSON_COMPACT);
    json_decref(problem);
    if (!status)
        status = err_info(error->code)->http_status;
    if (problem_hides(error->code) && o->on_error)
        o->on_error(o->hook_arg, r->id, error);
    if (status == 401 && !header_set(r, "WWW-Authenticate"))
        http_reply_header(r, "WWW-Authenticate", "Bearer");
    if ((status == 429 || status == 503) && !header_set(r, "Retry-After"))
        http_reply_header(r, "Retry-After", "1");
    reply_buffered(r, status, "application/problem+json", text, text ? strlen(text) : 0);
}

void http_reply_error(struct http_request *r, const struct err *error)
{
    http_reply_error_status(r, 0, error);
}

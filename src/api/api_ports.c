/* /v1/sandboxes/{id}/ports/{port}/…: a request to a program in the sandbox. The head is written anew (Host, forwarding
 * headers, nothing that ends at a hop, no key of ours), bodies stream both ways, and a WebSocket becomes a tunnel. One
 * request is one connection to the guest's port. */
#include "api/flow.h"
#include "api/port_head.h"
#include "api/port_tunnel.h"
#include "control/sandbox.h"

#include <strings.h>

#define REQUEST_HEAD_MAX (64 * KIB)
#define UPLOAD_HELD_MAX (2 * MIB) /* one piece of the client's body, in chunked form */

struct proxy {
    struct outflow flow; /* its request and call are this proxy's */
    struct port_tunnel tunnel;
    bool in_tunnel;
    bool head_over;   /* the answer's head has been passed on */
    bool to_head, upgrade;
    bool chunked_up;  /* the client's body is of unknown length */
    struct buf head;  /* of the answer */
    struct buf up;    /* to the guest, not taken yet */
    struct port_chunks chunks;
    enum port_body body;
    uint64_t left;
};

static void proxy_free(void *owner)
{
    struct proxy *p = owner;
    if (p->in_tunnel)
        p->flow.call = NULL; /* it was the tunnel's */
    outflow_done(&p->flow);
    port_tunnel_done(&p->tunnel);
    buf_done(&p->head);
    buf_done(&p->up);
    free(p);
}

static void on_abort(struct http_request *r, enum http_abort why, void *arg)
{
    (void)r, (void)why;
    proxy_free(arg);
}

/* It cannot go on: a problem while nothing was passed on, else the answer is cut. */
static void fail(struct proxy *p, const struct err *e)
{
    struct http_request *r = p->flow.request;
    struct err error = *e;
    bool begun = p->head_over;
    proxy_free(p);
    if (begun)
        http_stream_abort(r);
    else
        http_reply_error(r, &error);
}

/* ---- the request's head ---- */

struct head_writer {
    struct buf *out;
    const char *connection; /* header of the client, or NULL */
    bool keep_authorization;
    const char *forwarded_for;
};

static void write_header(void *arg, const char *name, const char *value)
{
    /* Written anew below, ours, or of no use to who answers a single request. */
    static const char *const dropped[] = {"Host", "Content-Length", "Expect", "Space-Key", "X-Forwarded-For",
                                          "X-Forwarded-Host", "X-Forwarded-Proto"};
    struct head_writer *w = arg;
    for (size_t i = 0; i < ARRAY_LEN(dropped); i++)
        if (strcasecmp(name, dropped[i]) == 0)
            return;
    if (port_hop_by_hop(name, w->connection) || (strcasecmp(name, "Authorization") == 0 && !w->keep_authorization))
        return;
    buf_printf(w->out, "%s: %s\r\n", name, value);
}

static bool write_head(struct proxy *p, struct http_request *r, uint16_t port, struct buf *out)
{
    const char *tail = http_request_tail_raw(r), *query = http_request_raw_query(r);
    const char *host = http_request_header(r, "Host"), *through = http_request_header(r, "X-Forwarded-For");
    int64_t length = http_request_content_length(r);
    struct head_writer w = {.out = out,
                            .connection = http_request_header(r, "Connection"),
                            .keep_authorization = http_request_header(r, "Space-Key") != NULL};
    p->chunked_up = length < 0 && http_request_header(r, "Transfer-Encoding");
    buf_printf(out, "%s /%s%s%s HTTP/1.1\r\n", http_request_method(r), tail ? tail : "", query ? "?" : "",
               query ? query : "");
    buf_printf(out, "Host: localhost:%u\r\n", port);
    http_request_headers(r, write_header, &w);
    buf_printf(out, "X-Forwarded-For: %s%s%s\r\n", through ? through : "", through ? ", " : "", http_request_remote(r));
    if (host)
        buf_printf(out, "X-Forwarded-Host: %s\r\n", host);
    buf_printf(out, "X-Forwarded-Proto: http\r\n");
    if (p->upgrade)
        buf_printf(out, "Connection: Upgrade\r\nUpgrade: %s\r\n", http_request_header(r, "Upgrade"));
    else
        buf_printf(out, "Connection: close\r\n");
    if (p->chunked_up)
        buf_printf(out, "Transfer-Encoding: chunked\r\n");
    else if (length > 0 || str_eq(http_request_method(r), "POST") || str_eq(http_request_method(r), "PUT"))
        buf_printf(out, "Content-Length: %lld\r\n", (long long)MAX(length, 0));
    buf_put_str(out, "\r\n");
    return !out->overflow;
}

/* ---- up ---- */

static void push_up(struct proxy *p)
{
    if (p->flow.call && p->up.len)
        buf_consume(&p->up, guest_call_write(p->flow.call, buf_data(&p->up), p->up.len));
}

static void on_guest_drain(void *arg)
{
    struct proxy *p = arg;
    if (p->in_tunnel) {
        port_tunnel_drain(&p->tunnel);
        return;
    }
    push_up(p);
    if (!p->up.len)
        http_request_resume_body(p->flow.request);
}

static size_t on_body(struct http_request *r, const void *data, size_t len, void *arg)
{
    (void)r;
    struct proxy *p = arg;
    if (p->up.len)
        return 0;
    len = MIN(len, (size_t)MIB);
    if (p->chunked_up)
        buf_printf(&p->up, "%zx\r\n", len);
    buf_put(&p->up, data, len);
    if (p->chunked_up)
        buf_put_str(&p->up, "\r\n");
    push_up(p);
    return len;
}

static void on_body_end(struct http_request *r, void *arg)
{
    (void)r;
    struct proxy *p = arg;
    /* The connection stays open: to some servers the end of the input means that the client is gone. */
    if (p->chunked_up)
        buf_put_str(&p->up, "0\r\n\r\n");
    push_up(p);
}

/* ---- down ---- */

static void on_http_drain(struct http_request *r, void *arg)
{
    (void)r;
    struct proxy *p = arg;
    if (outflow_drain(&p->flow))
        proxy_free(p);
}

static void finish(struct proxy *p)
{
    if (outflow_finish(&p->flow))
        proxy_free(p);
}

/* Body bytes; `p` may be gone after it. */
static void take_body(struct proxy *p, const uint8_t *data, size_t len)
{
    const uint8_t *piece;
    struct err e = {0};
    ssize_t n;
    size_t used = 0, all = len;
    switch (p->body) {
    case PORT_BODY_CHUNKED:
        while ((n = port_chunks_next(&p->chunks, &data, &len, &piece, &e)) > 0) {
            outflow_put(&p->flow, piece, (size_t)n);
            used += (size_t)n;
        }
        if (n < 0) {
            fail(p, &e);
            return;
        }
        if (p->flow.call)
            guest_call_consume(p->flow.call, all - used); /* what lay between the pieces */
        if (p->chunks.end)
            finish(p);
        return;
    case PORT_BODY_LENGTH:
        n = (ssize_t)MIN((uint64_t)len, p->left);
        p->left -= (uint64_t)n;
        outflow_put(&p->flow, data, (size_t)n);
        if (p->left == 0)
            finish(p);
        return;
    case PORT_BODY_TO_CLOSE:
        outflow_put(&p->flow, data, len);
        return;
    default:
        return;
    }
}

static void copy_headers(struct http_request *r, const struct port_response *response)
{
    const char *connection = NULL;
    for (size_t i = 0; i < response->header_count; i++)
        if (strcasecmp(response->headers[i].name, "Connection") == 0)
            connection = response->headers[i].value;
    for (size_t i = 0; i < response->header_count; i++) {
        const char *name = response->headers[i].name;
        if (!port_hop_by_hop(name, connection) && strcasecmp(name, "Content-Length") != 0 &&
            strcasecmp(name, "Date") != 0)
            http_reply_header(r, name, response->headers[i].value);
    }
}

/* The head is complete: pass it on. False: `p` is gone or the rest of the bytes is no body. */
static bool take_head(struct proxy *p, size_t head_len, const uint8_t *rest, size_t rest_len)
{
    struct http_request *r = p->flow.request;
    struct port_response response;
    struct err e = {0};
    if (port_response_parse(buf_data(&p->head), head_len, p->to_head, &response, &e) < 0) {
        fail(p, &e);
        return false;
    }
    if (response.status == 101 && p->upgrade && response.upgrade) {
        copy_headers(r, &response);
        p->in_tunnel = true;
        http_request_on_abort(r, NULL, NULL);
        port_tunnel_accept(&p->tunnel, r, response.upgrade, p->flow.call, proxy_free, p);
        port_response_done(&response);
        port_tunnel_data(&p->tunnel, rest, rest_len);
        return false;
    }
    if (response.status < 200) {
        /* 100, 103: another head follows. */
        port_response_done(&response);
        buf_consume(&p->head, head_len);
        return true;
    }
    copy_headers(r, &response);
    p->head_over = true;
    p->body = response.body;
    p->left = response.length;
    int64_t length = response.body == PORT_BODY_LENGTH || (p->to_head && response.length) ? (int64_t)response.length : -1;
    int status = response.status;
    bool none = response.body == PORT_BODY_NONE || (response.body == PORT_BODY_LENGTH && response.length == 0);
    port_response_done(&response);
    if (none && !p->to_head) {
        proxy_free(p);
        http_reply_empty(r, status);
        return false;
    }
    http_stream_begin(r, status, NULL, length, on_http_drain, p);
    if (none) {
        proxy_free(p);
        http_stream_end(r);
        return false;
    }
    return true;
}

static void on_data(void *arg, const uint8_t *data, size_t len)
{
    struct proxy *p = arg;
    struct err e = {0};
    if (p->in_tunnel) {
        port_tunnel_data(&p->tunnel, data, len);
        return;
    }
    while (!p->head_over) {
        size_t before = p->head.len, room = PORT_HEAD_MAX - before, n = MIN(room, len);
        buf_put(&p->head, data, n);
        size_t head_len = port_head_len(buf_data(&p->head), p->head.len);
        if (!head_len) {
            if (n < len || p->head.len == PORT_HEAD_MAX) {
                err_set(&e, ERR_PROTOCOL, "the program answered with a head of more than %llu bytes", PORT_HEAD_MAX);
                fail(p, &e);
            } else
                guest_call_consume(p->flow.call, n);
            return;
        }
        /* What was kept from before had no end in it, so the end lies in these bytes. */
        size_t of_head = head_len > before ? head_len - before : 0;
        p->head.len = before + of_head;
        guest_call_consume(p->flow.call, of_head);
        data += of_head;
        len -= of_head;
        if (!take_head(p, head_len, data, len))
            return;
    }
    if (len)
        take_body(p, data, len);
}

static void on_read_end(void *arg)
{
    struct proxy *p = arg;
    struct err e = {0};
    if (p->in_tunnel)
        port_tunnel_read_end(&p->tunnel);
    else if (p->flow.finishing)
        ; /* what it sent is on its way to the client */
    else if (p->head_over && p->body == PORT_BODY_TO_CLOSE)
        finish(p);
    else {
        err_set(&e, ERR_PROTOCOL, "the program closed the connection before its answer was complete");
        fail(p, &e);
    }
}

static void on_end(void *arg, const struct err *e)
{
    struct proxy *p = arg;
    if (p->in_tunnel) {
        port_tunnel_ended(&p->tunnel, e);
        return;
    }
    p->flow.call = NULL;
    if (p->flow.finishing)
        return;
    if (e)
        fail(p, e);
    else
        on_read_end(p);
}

static void on_open(void *arg)
{
    (void)arg; /* the request is on its way already */
}

static const struct guest_connect_callbacks connect_callbacks = {
    .on_open = on_open, .on_data = on_data, .on_read_end = on_read_end, .on_drain = on_guest_drain, .done = on_end};

/* The port of the path; 0 and an error when it is none. */
static uint16_t port_of(struct http_request *r, struct err *e)
{
    uint64_t port;
    if (!str_to_u64(http_request_param(r, "port"), 1, 65535, &port)) {
        err_set(e, ERR_INVALID, "\"%.16s\" is no port: expected 1 to 65535", http_request_param(r, "port"));
        return 0;
    }
    return (uint16_t)port;
}

void api_port_proxy(struct http_request *r, void *arg)
{
    static const struct http_body_events events = {.on_data = on_body, .on_end = on_body_end};
    struct api *api = arg;
    struct err e = {0};
    struct guest *g = NULL;
    uint16_t port = port_of(r, &e);
    if (!port || !(g = sandbox_guest(api->control, project_of(r), http_request_param(r, "sandbox_id"), &e))) {
        http_reply_error(r, &e);
        return;
    }
    struct proxy *p = NEW(struct proxy);
    outflow_init(&p->flow, r);
    buf_init(&p->head, PORT_HEAD_MAX);
    buf_init(&p->up, UPLOAD_HELD_MAX);
    p->to_head = str_eq(http_request_method(r), "HEAD");
    p->upgrade = http_request_is_upgrade(r, NULL);
    if (!write_head(p, r, port, &p->up)) {
        err_set(&e, ERR_TOO_LARGE, "the head of the request is too large to be passed on");
        fail(p, &e);
        return;
    }
    http_request_on_abort(r, on_abort, p);
    p->flow.call = guest_connect(g, port, &connect_callbacks, p);
    push_up(p);
    http_request_read_body(r, &events, p);
}

/* ---- /v1/sandboxes/{id}/tcp/{port} ---- */

struct tcp {
    struct http_request *request; /* until the port took the connection */
    struct guest_call *call;
    struct port_tunnel tunnel;
};

static void tcp_free(void *owner)
{
    struct tcp *t = owner;
    port_tunnel_done(&t->tunnel);
    free(t);
}

static void on_tcp_abort(struct http_request *r, enum http_abort why, void *arg)
{
    (void)r, (void)why;
    struct tcp *t = arg;
    guest_call_drop(t->call);
    tcp_free(t);
}

static void on_tcp_open(void *arg)
{
    struct tcp *t = arg;
    struct http_request *r = t->request;
    t->request = NULL;
    http_request_on_abort(r, NULL, NULL);
    port_tunnel_accept(&t->tunnel, r, "tcp", t->call, tcp_free, t);
}

static void on_tcp_data(void *arg, const uint8_t *data, size_t len)
{
    struct tcp *t = arg;
    port_tunnel_data(&t->tunnel, data, len);
}

static void on_tcp_read_end(void *arg)
{
    struct tcp *t = arg;
    port_tunnel_read_end(&t->tunnel);
}

static void on_tcp_drain(void *arg)
{
    struct tcp *t = arg;
    port_tunnel_drain(&t->tunnel);
}

static void on_tcp_end(void *arg, const struct err *e)
{
    struct tcp *t = arg;
    struct err error = {0};
    if (!t->request) {
        port_tunnel_ended(&t->tunnel, e);
        return;
    }
    struct http_request *r = t->request;
    if (e)
        error = *e;
    else
        err_set(&error, ERR_UNAVAILABLE, "the port closed the connection");
    tcp_free(t);
    http_reply_error(r, &error);
}

void api_port_tunnel(struct http_request *r, void *arg)
{
    static const struct guest_connect_callbacks callbacks = {.on_open = on_tcp_open,
                                                             .on_data = on_tcp_data,
                                                             .on_read_end = on_tcp_read_end,
                                                             .on_drain = on_tcp_drain,
                                                             .done = on_tcp_end};
    struct api *api = arg;
    struct err e = {0};
    struct guest *g = NULL;
    uint16_t port = port_of(r, &e);
    if (port && !http_request_is_upgrade(r, "tcp")) {
        err_set(&e, ERR_INVALID, "this call needs the headers \"Connection: Upgrade\" and \"Upgrade: tcp\"");
        http_reply_header(r, "Upgrade", "tcp");
        http_reply_error_status(r, 426, &e);
        return;
    }
    if (!port || !(g = sandbox_guest(api->control, project_of(r), http_request_param(r, "sandbox_id"), &e))) {
        http_reply_error(r, &e);
        return;
    }
    struct tcp *t = NEW(struct tcp);
    t->request = r;
    http_request_on_abort(r, on_tcp_abort, t);
    t->call = guest_connect(g, port, &callbacks, t);
}

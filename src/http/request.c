/* The request object: its life and what can be asked of it (see http_request.h). */
#include "http/http_internal.h"

static void request_run(struct due *d);
static void request_tell_abort(struct http_request *r);

struct http_request *request_new(struct conn *c, const char *uri)
{
    struct http_request *r = NEW(struct http_request);
    r->refs = 1;
    r->server = c->server;
    r->conn = c;
    r->start_ns = clock_mono_ns();
    r->due.run = request_run;
    r->content_length = 0;
    r->target = xstrdup(uri);
    r->path = r->target;
    char *query = strchr(r->target, '?');
    if (query) {
        *query = '\0';
        r->raw_query = query + 1;
    }
    memcpy(r->remote, c->remote, sizeof(r->remote));
    c->server->refs++;
    c->server->stats.requests_running++;
    return r;
}

static void request_free(struct http_request *r)
{
    if (r->data_destroy)
        r->data_destroy(r->data);
    if (r->path != r->target && r->path)
        free(r->path);
    free(r->target);
    http_match_done(&r->match);
    http_query_done(&r->query);
    buf_done(&r->body);
    buf_done(&r->out);
    json_decref(r->json);
    free(r->content_type);
    free(r->data_out);
    for (size_t i = 0; i < r->header_count; i++) {
        free(r->headers[i].name);
        free(r->headers[i].value);
    }
    server_unref(r->server);
    free(r);
}

struct http_request *http_request_ref(struct http_request *r)
{
    r->refs++;
    return r;
}

void http_request_unref(struct http_request *r)
{
    if (r && --r->refs == 0)
        request_free(r);
}

void request_due(struct http_request *r)
{
    if (r->due.queued)
        return;
    http_request_ref(r);
    server_due(r->server, &r->due);
}

static void request_run(struct due *d)
{
    struct http_request *r = container_of(d, struct http_request, due);
    if (r->proceed_due) {
        r->proceed_due = false;
        dispatch_proceed(r);
    }
    if (r->abort_due) {
        r->abort_due = false;
        request_tell_abort(r);
    }
    if (r->end_due) {
        r->end_due = false;
        if (!r->answered && !r->gone && r->body_events.on_end)
            r->body_events.on_end(r, r->body_arg);
    }
    if (r->drain_due) {
        r->drain_due = false;
        if (!r->answered && !r->gone && r->on_drain)
            r->on_drain(r, r->drain_arg);
    }
    http_request_unref(r);
}

void request_release(struct http_request *r)
{
    if (!r->owned)
        return;
    r->owned = false;
    r->on_abort = NULL;
    if (r->on_over) {
        void (*on_over)(struct http_request * request, void *arg) = r->on_over;
        r->on_over = NULL;
        on_over(r, r->over_arg);
    }
    http_request_unref(r);
}

static void request_tell_abort(struct http_request *r)
{
    if (!r->owned || !r->on_abort)
        return;
    void (*on_abort)(struct http_request * request, enum http_abort reason, void *arg) = r->on_abort;
    r->on_abort = NULL;
    http_request_ref(r);
    on_abort(r, r->why, r->abort_arg);
    request_release(r);
    http_request_unref(r);
}

/* The client is gone or given up. A handler without on_abort keeps the request until it answers. */
void request_abort(struct http_request *r, enum http_abort why)
{
    if (r->gone)
        return;
    r->gone = true;
    r->why = why;
    request_tell_abort(r);
}

static void request_log(struct http_request *r, bool aborted)
{
    struct http_server *s = r->server;
    struct http_log_entry entry = {.request_id = r->id,
                                   .method = r->method[0] ? r->method : "-",
                                   .path = r->path,
                                   .remote = r->remote,
                                   .status = r->status,
                                   .bytes_out = r->bytes_out,
                                   .bytes_in = r->bytes_in,
                                   .duration_us = (clock_mono_ns() - r->start_ns) / 1000,
                                   .aborted = aborted};
    s->stats.requests_total++;
    s->stats.by_class[r->status >= 100 && r->status < 600 ? r->status / 100 : 0]++;
    s->stats.aborted += aborted;
    s->stats.bytes_in += r->bytes_in;
    s->stats.bytes_out += r->bytes_out;
    if (s->options.on_log)
        s->options.on_log(s->options.hook_arg, &entry);
}

void request_finish(struct http_request *r, enum MHD_RequestTerminationCode code)
{
    struct conn *c = r->conn;
    bool whole = code == MHD_REQUEST_TERMINATED_COMPLETED_OK || code == MHD_REQUEST_TERMINATED_WITH_ERROR;
    bool aborted;
    if (r->stage == STAGE_NEW) { /* refused by libmicrohttpd itself, or ended before its headers were complete */
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_HTTP_STATUS);
        r->status = info ? (int)info->http_status : r->status;
        whole = whole && info;
        if (!r->id[0])
            id_new(ID_REQUEST, r->id);
    } else if (r->raw || r->raw_stream) {
        whole = r->raw && c->raw_out.len == 0;
    } else if (r->tunnel) {
        whole = true;
    } else {
        whole = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && r->stage == STAGE_REPLYING && !r->broken;
        if (whole && !r->streaming)
            r->bytes_out = r->no_body ? 0 : r->data_len;
    }
    aborted = r->gone || !whole;
    r->stage = STAGE_DONE;
    if (r->tunnel)
        tunnel_lost(r->tunnel, "the connection was lost");
    request_abort(r, HTTP_ABORT_CLIENT); /* reaches a handler only when it has not finished its answer */
    r->server->stats.requests_running--;
    request_log(r, aborted);
    r->conn = NULL;
    c->request = NULL;
    conn_deadline(c, DEADLINE_IDLE);
    if (c->server->stopping || c->half_closed)
        conn_cut(c);
    http_request_unref(r);
}

/* ---- accessors ---- */

const char *http_request_id(const struct http_request *r)
{
    return r->id;
}

const char *http_request_method(const struct http_request *r)
{
    return r->method;
}

const char *http_request_path(const struct http_request *r)
{
    return r->path;
}

const char *http_request_raw_query(const struct http_request *r)
{
    return r->raw_query;
}

const char *http_request_remote(const struct http_request *r)
{
    return r->remote;
}

const char *http_request_header(const struct http_request *r, const char *name)
{
    return r->conn ? MHD_lookup_connection_value(r->conn->mhd, MHD_HEADER_KIND, name) : NULL;
}

struct each_header {
    void (*each)(void *arg, const char *name, const char *value);
    void *arg;
};

static enum MHD_Result each_header(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct each_header *it = cls;
    (void)kind;
    it->each(it->arg, name, value ? value : "");
    return MHD_YES;
}

void http_request_headers(const struct http_request *r, void (*each)(void *arg, const char *name, const char *value),
                          void *arg)
{
    struct each_header it = {.each = each, .arg = arg};
    if (r->conn)
        MHD_get_connection_values(r->conn->mhd, MHD_HEADER_KIND, each_header, &it);
}

const struct http_route *http_request_route(const struct http_request *r)
{
    return r->match.route;
}

const char *http_request_param(const struct http_request *r, const char *name)
{
    return http_match_param(&r->match, name);
}

const char *http_request_tail_raw(const struct http_request *r)
{
    return r->match.tail_raw;
}

const struct http_query *http_request_query(const struct http_request *r)
{
    return &r->query;
}

json_t *http_request_json(const struct http_request *r)
{
    return r->json;
}

const void *http_request_json_text(const struct http_request *r, size_t *ret_len)
{
    *ret_len = r->body.len;
    return r->body.len ? buf_data(&r->body) : (const void *)"";
}

int64_t http_request_content_length(const struct http_request *r)
{
    return r->content_length;
}

/* Is `token` one of the comma-separated words of `list`? */
static bool list_has(const char *list, const char *token)
{
    size_t len = strlen(token);
    while (*list) {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, ", \t");
        if (n == len && strncasecmp(list, token, n) == 0)
            return true;
        list += n;
    }
    return false;
}

bool http_request_is_upgrade(const struct http_request *r, const char *protocol)
{
    const char *connection = http_request_header(r, "Connection"), *upgrade = http_request_header(r, "Upgrade");
    return connection && upgrade && list_has(connection, "upgrade") && (!protocol || list_has(upgrade, protocol));
}

uv_loop_t *http_request_loop(const struct http_request *r)
{
    return r->server->loop;
}

struct http_server *http_request_server(const struct http_request *r)
{
    return r->server;
}

void http_request_set_data(struct http_request *r, void *data, void (*destroy)(void *data))
{
    if (r->data_destroy)
        r->data_destroy(r->data);
    r->data = data;
    r->data_destroy = destroy;
}

void *http_request_data(const struct http_request *r)
{
    return r->data;
}

void http_request_on_abort(struct http_request *r,
                           void (*on_abort)(struct http_request *r, enum http_abort why, void *arg), void *arg)
{
    r->on_abort = on_abort;
    r->abort_arg = arg;
    if (r->gone && r->owned && on_abort) { /* it has happened already */
        r->abort_due = true;
        request_due(r);
    }
}

bool http_request_over(const struct http_request *r)
{
    return r->answered || r->gone;
}

void http_request_proceed(struct http_request *r)
{
    if (!r->waiting)
        return;
    r->waiting = false;
    if (r->gone) {
        request_release(r);
        return;
    }
    r->proceed_due = true;
    request_due(r);
}

/* ---- the body ---- */

void http_request_read_body(struct http_request *r, const struct http_body_events *events, void *arg)
{
    if (r->reading || r->answered || r->gone)
        return;
    r->reading = true;
    r->discard = false;
    r->body_events = *events;
    r->body_arg = arg;
    if (!r->has_body || r->body_done) {
        r->end_due = true;
        request_due(r);
    } else {
        r->go_body = true;
        conn_resume(r->conn);
    }
}

void http_request_pause_body(struct http_request *r)
{
    r->paused = true;
}

void http_request_resume_body(struct http_request *r)
{
    if (!r->paused)
        return;
    r->paused = false;
    if (r->conn && r->stage == STAGE_BODY && r->conn->suspended) {
        conn_resume(r->conn);
        conn_deadline(r->conn, DEADLINE_BODY);
    }
}

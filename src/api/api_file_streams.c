/* Whole files and archives, streamed: GET and PUT of /files and /files/tar. */
#include "api/byte_range.h"
#include "api/fields.h"
#include "api/flow.h"
#include "api/render.h"
#include "control/sandbox.h"

#include <time.h>

/* ---- down ---- */

struct download {
    struct outflow flow;
    struct api *api;
    char sandbox_id[ID_SIZE];
    char *path, *user;
    struct byte_range range;
    bool begun;
    uint64_t left; /* of the announced length; a file can grow while it is read */
};

static void download_free(struct download *d)
{
    outflow_done(&d->flow);
    free(d->path);
    free(d->user);
    free(d);
}

static void download_refuse(struct download *d, const struct err *e)
{
    struct http_request *r = d->flow.request;
    download_free(d);
    http_reply_error(r, e);
}

static void on_abort(struct http_request *r, enum http_abort why, void *arg)
{
    (void)r, (void)why;
    download_free(arg);
}

static void on_drain(struct http_request *r, void *arg)
{
    (void)r;
    struct download *d = arg;
    if (outflow_drain(&d->flow))
        download_free(d);
}

/* "Sat, 31 Jan 2026 12:00:00 GMT" */
static void add_last_modified(struct http_request *r, int64_t mtime_ms)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t seconds = (time_t)(mtime_ms / 1000);
    struct tm t;
    char text[64];
    if (!gmtime_r(&seconds, &t) || t.tm_year < 0 || t.tm_year > 8099)
        return;
    snprintf(text, sizeof(text), "%s, %02d %s %04d %02d:%02d:%02d GMT", days[t.tm_wday], t.tm_mday, months[t.tm_mon],
             t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
    http_reply_header(r, "Last-Modified", text);
}

static void on_info(void *arg, const struct guest_file_info *info)
{
    struct download *d = arg;
    struct http_request *r = d->flow.request;
    char text[80];
    int64_t length = -1;
    int status = 200;
    /* A size of 0 may be a file of /proc that has content all the same. */
    if (d->range.given && info->size > 0) {
        struct err e = {0};
        if (d->range.first >= info->size) {
            err_set(&e, ERR_RANGE, "the range begins at byte %llu of a file of %llu",
                    (unsigned long long)d->range.first, (unsigned long long)info->size);
            snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)info->size);
            http_reply_header(r, "Content-Range", text);
            download_refuse(d, &e);
            return;
        }
        uint64_t left = info->size - d->range.first, n = MIN(left, d->range.length);
        status = 206;
        length = (int64_t)n;
        snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)d->range.first,
                 (unsigned long long)(d->range.first + n - 1), (unsigned long long)info->size);
        http_reply_header(r, "Content-Range", text);
    } else if (info->size > 0 && info->size <= INT64_MAX)
        length = (int64_t)info->size;
    http_reply_header(r, "Accept-Ranges", "bytes");
    add_last_modified(r, info->mtime_ms);
    snprintf(text, sizeof(text), "%04o", info->mode & 07777);
    http_reply_header(r, "Space-Mode", text);
    d->begun = true;
    d->left = length < 0 ? UINT64_MAX : (uint64_t)length;
    http_stream_begin(r, status, "application/octet-stream", length, on_drain, d);
    if (str_eq(http_request_method(r), "HEAD")) {
        download_free(d);
        http_stream_end(r);
    }
}

static void on_data(void *arg, const uint8_t *data, size_t len)
{
    struct download *d = arg;
    if (!d->begun) {
        /* An archive: there is no size to wait for. */
        d->begun = true;
        http_stream_begin(d->flow.request, 200, "application/x-tar", -1, on_drain, d);
    }
    size_t wanted = (size_t)MIN(len, d->left);
    d->left -= wanted;
    outflow_put(&d->flow, data, wanted);
    if (wanted < len && d->flow.call)
        guest_call_consume(d->flow.call, len - wanted);
}

static void on_done(void *arg, uint64_t bytes, const struct err *e)
{
    (void)bytes;
    struct download *d = arg;
    struct http_request *r = d->flow.request;
    d->flow.call = NULL;
    if (e && !d->begun)
        download_refuse(d, e);
    else if (e) {
        download_free(d);
        http_stream_abort(r);
    } else {
        if (!d->begun)
            http_stream_begin(r, 200, "application/octet-stream", 0, on_drain, d);
        if (outflow_finish(&d->flow))
            download_free(d);
    }
}

static const struct guest_file_get_callbacks get_callbacks = {.on_info = on_info, .on_data = on_data, .done = on_done};

static void download_begin(struct download *d)
{
    struct err e = {0};
    struct guest *g = sandbox_guest(d->api->control, NULL, d->sandbox_id, &e);
    if (!g)
        download_refuse(d, &e);
    else
        d->flow.call = guest_file_get(g, d->path, d->user, d->range.first, d->range.length, &get_callbacks, d);
}

/* The last N bytes: where they begin is known by the size. */
static void on_stat(void *arg, const struct guest_entry *entry, const struct err *e)
{
    struct download *d = arg;
    d->flow.call = NULL;
    if (e) {
        download_refuse(d, e);
        return;
    }
    d->range.suffix = false;
    d->range.first = entry->size > d->range.length ? entry->size - d->range.length : 0;
    download_begin(d);
}

static struct download *download_new(struct http_request *r, struct api *api)
{
    const char *path, *user;
    struct err e = {0};
    if (path_of(r, (const char *[]){"path", "user", NULL}, &path, &user, &e) < 0) {
        http_reply_error(r, &e);
        return NULL;
    }
    struct download *d = NEW(struct download);
    outflow_init(&d->flow, r);
    d->api = api;
    d->path = xstrdup(path);
    d->user = user ? xstrdup(user) : NULL;
    d->range.length = UINT64_MAX;
    d->left = UINT64_MAX;
    snprintf(d->sandbox_id, ID_SIZE, "%s", http_request_param(r, "sandbox_id"));
    return d;
}

void api_file_get(struct http_request *r, void *arg)
{
    struct api *api = arg;
    struct err e = {0};
    struct guest *g = sandbox_guest(api->control, project_of(r), http_request_param(r, "sandbox_id"), &e);
    if (!g) {
        http_reply_error(r, &e);
        return;
    }
    struct download *d = download_new(r, api);
    if (!d)
        return;
    byte_range_parse(http_request_header(r, "Range"), &d->range);
    http_request_on_abort(r, on_abort, d);
    if (d->range.suffix)
        d->flow.call = guest_stat(g, d->path, true, d->user, on_stat, d);
    else
        download_begin(d);
}

void api_tar_get(struct http_request *r, void *arg)
{
    struct api *api = arg;
    struct err e = {0};
    struct guest *g = sandbox_guest(api->control, project_of(r), http_request_param(r, "sandbox_id"), &e);
    if (!g) {
        http_reply_error(r, &e);
        return;
    }
    struct download *d = download_new(r, api);
    if (!d)
        return;
    http_request_on_abort(r, on_abort, d);
    d->flow.call = guest_tar_get(g, d->path, d->user, &get_callbacks, d);
}

/* ---- up ---- */

struct upload {
    struct http_request *request;
    struct guest_call *call;
    struct api *api;
    char sandbox_id[ID_SIZE];
    char *path, *user;
    bool tar;
};

static void upload_free(struct upload *u)
{
    if (u->call)
        guest_call_drop(u->call);
    free(u->path);
    free(u->user);
    free(u);
}

static void on_upload_abort(struct http_request *r, enum http_abort why, void *arg)
{
    (void)r, (void)why;
    upload_free(arg); /* the guest drops the part that it has */
}

static void on_upload_drain(void *arg)
{
    struct upload *u = arg;
    http_request_resume_body(u->request);
}

static size_t on_body(struct http_request *r, const void *data, size_t len, void *arg)
{
    (void)r;
    struct upload *u = arg;
    return guest_call_write(u->call, data, len);
}

static void on_body_end(struct http_request *r, void *arg)
{
    (void)r;
    struct upload *u = arg;
    guest_call_write_end(u->call);
}

static void on_uploaded(void *arg, uint64_t count, const struct err *e)
{
    struct upload *u = arg;
    struct http_request *r = u->request;
    u->call = NULL;
    http_request_on_abort(r, NULL, NULL);
    if (e)
        http_reply_error(r, e);
    else if (u->tar)
        http_reply_empty(r, 204);
    else
        http_reply_json(r, 200,
                        json_pack("{s:o, s:I}", "path", render_text(u->path, strlen(u->path)), "size_bytes",
                                  (json_int_t)count));
    upload_free(u);
}

static const struct guest_put_callbacks put_callbacks = {.on_drain = on_upload_drain, .done = on_uploaded};
static const struct http_body_events body_events = {.on_data = on_body, .on_end = on_body_end};

/* The folder to unpack into is there, or cannot be made. */
static void on_folder(void *arg, const struct err *e)
{
    struct upload *u = arg;
    struct err error = {0};
    struct guest *g = NULL;
    u->call = NULL;
    if (e)
        error = *e;
    else
        g = sandbox_guest(u->api->control, NULL, u->sandbox_id, &error);
    if (!g) {
        on_uploaded(u, 0, &error);
        return;
    }
    u->call = guest_tar_put(g, u->path, u->user, &put_callbacks, u);
    http_request_read_body(u->request, &body_events, u);
}

static void upload(struct http_request *r, struct api *api, bool tar)
{
    const struct http_query *q = http_request_query(r);
    const char *path, *user, *mode = NULL;
    bool make_parents = true;
    struct err e = {0};
    struct guest *g = NULL;
    int result = tar ? path_of(r, (const char *[]){"path", "user", NULL}, &path, &user, &e)
                     : path_of(r, (const char *[]){"path", "user", "mode", "make_parents", NULL}, &path, &user, &e);
    if (result >= 0)
        result = http_query_get(q, "mode", &mode, &e);
    if (result >= 0)
        result = http_query_bool(q, "make_parents", &make_parents, &e);
    if (result >= 0 && mode && !valid_file_mode(mode))
        result = err_set(&e, ERR_INVALID, "query parameter \"mode\": expected " EXPECT_MODE);
    if (result < 0 || !(g = sandbox_guest(api->control, project_of(r), http_request_param(r, "sandbox_id"), &e))) {
        http_reply_error(r, &e);
        return;
    }
    struct upload *u = NEW(struct upload);
    *u = (struct upload){
        .request = r, .api = api, .path = xstrdup(path), .user = user ? xstrdup(user) : NULL, .tar = tar};
    snprintf(u->sandbox_id, ID_SIZE, "%s", http_request_param(r, "sandbox_id"));
    struct guest_file_put put = {
        .path = path, .user = user, .mode = mode ? (int)strtol(mode, NULL, 8) : 0644, .make_parents = make_parents};
    http_request_on_abort(r, on_upload_abort, u);
    if (tar) {
        u->call = guest_mkdir(g, path, true, -1, user, on_folder, u);
        return;
    }
    u->call = guest_file_put(g, &put, &put_callbacks, u);
    http_request_read_body(r, &body_events, u);
}

void api_file_put(struct http_request *r, void *arg)
{
    upload(r, arg, false);
}

void api_tar_put(struct http_request *r, void *arg)
{
    upload(r, arg, true);
}

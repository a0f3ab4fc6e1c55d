/* Calls and streams over libcurl (see api.h). */
#include "cli/api.h"
#include "cli/api_internal.h"

#include <stdarg.h>

#include "base/str.h"
#include "cli/out.h"

#define BODY_MAX (64 * MIB)
#define PROBLEM_MAX (64 * KIB)
#define LIST_MAX 100000
#define CONNECT_TIMEOUT_MS 10000L

static void cleanup_json(json_t **j)
{
    json_decref(*j);
}

int api_open(const char *url, const char *key, struct api **ret_api, struct err *e)
{
    bool tls = str_starts(url, "https://"), local = str_starts(url, "unix:/");
    if (!tls && !local && !str_starts(url, "http://"))
        return err_set(e, ERR_INVALID, "the URL \"%s\" begins with none of http://, https://, unix:/", url);
    if (key && strcspn(key, "\r\n") != strlen(key))
        return err_set(e, ERR_INVALID, "the API key has more than one line");
    /* Setting up TLS costs milliseconds: left out where nothing will use it. */
    if (curl_global_init(tls ? CURL_GLOBAL_SSL : CURL_GLOBAL_NOTHING) != CURLE_OK)
        return err_set(e, ERR_SYSTEM, "set up the HTTP client");
    struct api *api = NEW(struct api);
    api->socket = local ? xstrdup(url + strlen("unix:")) : NULL;
    api->url = xstrdup(local ? "http://localhost" : url);
    for (size_t n = strlen(api->url); n > 0 && api->url[n - 1] == '/'; n--)
        api->url[n - 1] = '\0';
    api->auth = key ? xasprintf("Authorization: Bearer %s", key) : NULL;
    api->multi = curl_multi_init();
    if (!api->multi)
        abort();
    *ret_api = api;
    return 0;
}

void api_close(struct api *api)
{
    if (!api)
        return;
    curl_multi_cleanup(api->multi);
    if (api->auth)
        wipe(api->auth, strlen(api->auth));
    free(api->auth);
    free(api->url);
    free(api->socket);
    free(api);
}

const char *api_url(const struct api *api)
{
    return api->url;
}

int api_curl_failed(const struct api *api, CURLcode code, const char *text, struct err *e)
{
    const char *why = text && *text ? text : curl_easy_strerror(code);
    switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
        return err_set(e, ERR_UNAVAILABLE, "no server at %s (%s); is it running? \"space serve\" starts one",
                       api->socket ? api->socket : api->url, why);
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(e, ERR_TIMEOUT, "no answer from %s in time (%s)", api->url, why);
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_WRITE_ERROR:
        return err_set(e, ERR_CANCELLED, "given up");
    default:
        return err_set(e, ERR_UNAVAILABLE, "talk to %s: %s", api->url, why);
    }
}

void api_set_common(const struct api *api, CURL *easy, const char *url)
{
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "space/" SPACE_VERSION);
    if (api->socket)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, api->socket);
    const char *ca = getenv("SPACE_CA_FILE");
    if (ca && *ca && str_starts(api->url, "https://"))
        curl_easy_setopt(easy, CURLOPT_CAINFO, ca);
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    size_t len = size * count;
    if (!t->answered) {
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->status);
        t->answered = true;
    }
    if (t->status / 100 == 2 && t->write)
        return t->write(t->arg, data, len) == 0 ? len : 0;
    if (t->status / 100 != 2)
        t->body.max = PROBLEM_MAX;
    return buf_put(&t->body, data, len) ? len : 0;
}

static size_t on_read(char *data, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    ssize_t n = t->read(t->arg, data, size * count);
    return n < 0 ? CURL_READFUNC_ABORT : (size_t)n;
}

static void add_header(struct transfer *t, const char *line)
{
    struct curl_slist *list = curl_slist_append(t->header_list, line);
    if (!list)
        abort();
    t->header_list = list;
}

static void set_body(struct transfer *t)
{
    if (t->json) {
        t->sent = json_dumps(t->json, JSON_COMPACT);
        t->data = t->sent;
        t->data_len = strlen(t->sent);
        t->content_type = "application/json";
    }
    if (t->read) {
        curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(t->easy, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(t->easy, CURLOPT_READDATA, t);
        curl_easy_setopt(t->easy, CURLOPT_UPLOAD_BUFFERSIZE, 512L * 1024);
        if (t->read_len >= 0)
            curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)t->read_len);
    } else if (t->data || (t->method && (str_eq(t->method, "POST") || str_eq(t->method, "PUT")))) {
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->data_len);
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->data ? t->data : "");
    }
    if (t->data || t->read) {
        _cleanup_free_ char *type =
            xasprintf("Content-Type: %s", t->content_type ? t->content_type : "application/octet-stream");
        add_header(t, type);
        add_header(t, "Expect:");
    } else {
        add_header(t, "Content-Type:");
    }
}

int api_start(struct api *api, struct transfer *t, struct err *e)
{
    t->api = api;
    t->easy = curl_easy_init();
    if (!t->easy)
        return err_set(e, ERR_SYSTEM, "set up a call");
    buf_init(&t->body, t->body_max ? t->body_max : BODY_MAX);
    t->url = xasprintf("%s%s", api->url, t->path);
    api_set_common(api, t->easy, t->url);
    curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->curl_error);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_BUFFERSIZE, 256L * 1024);
    if (t->timeout_ms)
        curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)t->timeout_ms);
    set_body(t);
    if (t->method)
        curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, t->method);
    if (api->auth)
        add_header(t, api->auth);
    for (size_t i = 0; i < ARRAY_LEN(t->headers) && t->headers[i]; i++)
        add_header(t, t->headers[i]);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->header_list);
    if (curl_multi_add_handle(api->multi, t->easy) != CURLM_OK)
        return err_set(e, ERR_SYSTEM, "start a call");
    return 0;
}

static int collect(struct api *api)
{
    int left, ended = 0;
    for (CURLMsg *m; (m = curl_multi_info_read(api->multi, &left));) {
        char *arg = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &arg);
        struct transfer *t = (struct transfer *)(void *)arg;
        curl_off_t retry = 0;
        t->done = true;
        t->code = m->data.result;
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->status);
        curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &retry);
        t->retry_after_s = (uint64_t)retry;
        ended++;
    }
    return ended;
}

static int multi_failed(CURLMcode r, struct err *e)
{
    return err_set(e, ERR_SYSTEM, "wait for the server: %s", curl_multi_strerror(r));
}

int api_work(struct api *api, struct err *e)
{
    int running;
    CURLMcode r = curl_multi_perform(api->multi, &running);
    return r == CURLM_OK ? collect(api) : multi_failed(r, e);
}

int api_wait(struct api *api, struct curl_waitfd *fds, unsigned count, int timeout_ms, struct err *e)
{
    CURLMcode r = curl_multi_poll(api->multi, fds, count, timeout_ms, NULL);
    return r == CURLM_OK ? 0 : multi_failed(r, e);
}

int api_problem(long status, const void *body, size_t len, struct err *e)
{
    _cleanup_(cleanup_json) json_t *problem = json_loadb(body, len, 0, NULL);
    const char *name = json_text(problem, "code"), *detail = json_text(problem, "detail");
    if (name && detail) {
        int code = err_code_by_name(name);
        err_set(e, code, "%s", detail);
        const json_t *errors = json_at(problem, "errors");
        if (e && json_array_size(errors) > 0) {
            const json_t *first = json_array_get(errors, 0);
            const char *field = json_text(first, "field"), *what = json_text(first, "detail");
            if (field && what && !strstr(detail, what))
                err_set(e, code, "%s: %s: %s", detail, field, what);
        }
        const char *request = json_text(problem, "request_id");
        if (e && request && status >= 500) {
            size_t used = strlen(e->text);
            snprintf(e->text + used, sizeof(e->text) - used, " (request %s)", request);
        }
        return code;
    }
    int code = status == 401   ? ERR_UNAUTHENTICATED
               : status == 403 ? ERR_FORBIDDEN
               : status == 404 ? ERR_NOT_FOUND
               : status == 429 ? ERR_LIMIT
               : status == 503 ? ERR_UNAVAILABLE
               : status == 504 ? ERR_TIMEOUT
               : status < 500  ? ERR_INVALID
                               : ERR_INTERNAL;
    return err_set(e, code, "the server answered %ld without saying why", status);
}

int api_finish(struct transfer *t, struct err *e)
{
    int r = 0;
    if (!t->easy)
        return err_set(e, ERR_CANCELLED, "given up");
    if (t->done && t->code != CURLE_OK)
        r = api_curl_failed(t->api, t->code, t->curl_error, e);
    else if (t->done && t->status / 100 != 2)
        r = api_problem(t->status, t->body.len ? (const char *)buf_data(&t->body) : "", t->body.len, e);
    else if (!t->done)
        r = err_set(e, ERR_CANCELLED, "given up");
    curl_multi_remove_handle(t->api->multi, t->easy);
    curl_easy_cleanup(t->easy);
    t->easy = NULL;
    curl_slist_free_all(t->header_list);
    t->header_list = NULL;
    free(steal(t->url));
    free(steal(t->sent));
    return r;
}

int api_run(struct api *api, struct transfer *t, struct err *e)
{
    int r = api_start(api, t, e);
    while (r >= 0 && !t->done) {
        r = api_work(api, e);
        if (r == 0)
            r = api_wait(api, NULL, 0, 1000, e);
    }
    return r;
}

int api_call_with(struct api *api, const char *method, const char *path, const json_t *body, const char *header,
                  json_t **ret_json, long *ret_status, struct err *e)
{
    struct transfer t = {.method = method, .path = path, .json = body, .headers = {header}};
    int r = api_run(api, &t, e);
    int finished = api_finish(&t, r < 0 ? NULL : e);
    if (r >= 0)
        r = finished;
    if (r >= 0 && ret_json) {
        *ret_json = NULL;
        json_error_t error;
        if (t.body.len > 0) {
            *ret_json = json_loadb((const char *)buf_data(&t.body), t.body.len, 0, &error);
            if (!*ret_json)
                r = err_set(e, ERR_PROTOCOL, "the answer of %s to %s %s is no JSON: %s", api->url, method, path,
                            error.text);
        }
    }
    if (ret_status)
        *ret_status = t.status;
    buf_done(&t.body);
    return r;
}

int api_call(struct api *api, const char *method, const char *path, const json_t *body, json_t **ret_json,
             long *ret_status, struct err *e)
{
    return api_call_with(api, method, path, body, NULL, ret_json, ret_status, e);
}

int api_list(struct api *api, const char *path, size_t max, json_t **ret_items, struct err *e)
{
    _cleanup_(cleanup_json) json_t *items = json_array();
    _cleanup_free_ char *cursor = NULL;
    if (max == 0)
        max = LIST_MAX;
    do {
        size_t left = max - json_array_size(items);
        char limit[24];
        snprintf(limit, sizeof(limit), "%zu", MIN(left, (size_t)1000));
        _cleanup_free_ char *page_path = api_path(path, "limit", limit, "cursor", cursor, NULL);
        _cleanup_(cleanup_json) json_t *page = NULL;
        int r = api_call(api, "GET", page_path, NULL, &page, NULL, e);
        if (r < 0)
            return r;
        if (!json_is_array(json_object_get(page, "items")))
            return err_set(e, ERR_PROTOCOL, "the answer to GET %s is no list", path);
        size_t before = json_array_size(items);
        json_array_extend(items, json_object_get(page, "items"));
        const char *next = json_text(page, "next_cursor");
        free(cursor);
        /* A server that pages without end is stopped by max, one that gives empty pages here. */
        cursor = next && json_array_size(items) > before ? xstrdup(next) : NULL;
    } while (cursor && json_array_size(items) < max);
    *ret_items = steal(items);
    return 0;
}

char *api_path(const char *base, ...)
{
    _cleanup_buf_ struct buf b = BUF_MAX(0);
    buf_put_str(&b, base);
    char next = strchr(base, '?') ? '&' : '?';
    va_list args;
    va_start(args, base);
    for (const char *name; (name = va_arg(args, const char *));) {
        const char *value = va_arg(args, const char *);
        if (!value)
            continue;
        buf_put_byte(&b, (uint8_t)next);
        buf_put_str(&b, name);
        buf_put_byte(&b, '=');
        percent_encode(&b, value, false);
        next = '&';
    }
    va_end(args);
    return buf_steal_str(&b);
}

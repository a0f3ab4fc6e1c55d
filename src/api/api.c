/* The server of the API: options from the configuration, access log, host names of ports, loop lag. */
#include "api/api.h"

#include "api/api_internal.h"
#include "base/log.h"

#define LAG_MS 1000

static void on_log(void *arg, const struct http_log_entry *entry)
{
    struct api *api = arg;
    /* A stream lasts as long as its reader likes: its time says nothing about the server. */
    if (entry->status && entry->duration_us < 60000000)
        control_histogram_add(&api->request_seconds, (double)entry->duration_us / 1e6);
    log_at(str_eq(entry->path, "/healthz") || str_eq(entry->path, "/readyz") ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
           "request", F_STR("request_id", entry->request_id), F_STR("method", entry->method),
           F_STR("path", entry->path), F_STR("remote", entry->remote), F_INT("status", entry->status),
           F_INT("bytes_in", entry->bytes_in), F_INT("bytes_out", entry->bytes_out),
           F_INT("us", entry->duration_us), F_STR("aborted", entry->aborted ? "yes" : NULL));
}

static void on_error(void *arg, const char *request_id, const struct err *error)
{
    (void)arg;
    log_error("request failed by the host's fault", F_STR("request_id", request_id),
              F_STR("code", err_info(error->code)->name), F_STR("error", error->text));
}

static bool on_host(void *arg, const char *host, const char *path, struct buf *ret_path)
{
    struct api *api = arg;
    uint16_t port;
    char id[ID_SIZE];
    if (!api->config->domain[0] || !http_host_port(host, api->config->domain, &port, id))
        return false;
    return buf_printf(ret_path, "/v1/sandboxes/%s/ports/%u%s", id, port, path);
}

static void on_lag_timer(uv_timer_t *timer)
{
    struct api *api = timer->data;
    uint64_t now = uv_hrtime();
    double late = now > api->lag_due_ns ? (double)(now - api->lag_due_ns) / 1e9 : 0;
    control_histogram_add(&api->lag, late);
    if (late > api->lag_max_seconds)
        api->lag_max_seconds = late;
    api->lag_due_ns = now + LAG_MS * 1000000ull;
    uv_timer_start(timer, on_lag_timer, LAG_MS, 0);
}

int api_new(struct control *control, const struct config *config, const char *version, struct api **ret_api,
            struct err *e)
{
    struct api *api = NEW(struct api);
    *api = (struct api){.control = control,
                        .store = control_store(control),
                        .config = config,
                        .version = xstrdup(version),
                        .started_at_ms = clock_wall_ms()};
    struct http_options options = {
        .routes = api_routes,
        .route_count = api_route_count,
        .handler_arg = api,
        .header_max = config->http_max_header_bytes,
        .json_max = config->http_max_body_bytes,
        .connections_max = config->http_max_connections,
        .connections_per_address = config->http_max_connections,
        .idle_ms = config->http_idle_timeout_ms,
        .header_ms = config->http_header_timeout_ms,
        .body_stall_ms = config->http_slow_timeout_ms,
        .write_stall_ms = config->http_slow_timeout_ms,
        .authorize = caller_authorize,
        .on_host = on_host,
        .on_log = on_log,
        .on_error = on_error,
        .hook_arg = api,
    };
    int result = http_server_new(control_loop(control), &options, &api->server, e);
    if (result < 0) {
        free(api->version);
        free(api);
        return result;
    }
    api->lag_timer = NEW(uv_timer_t);
    uv_timer_init(control_loop(control), api->lag_timer);
    api->lag_timer->data = api;
    api->lag_due_ns = uv_hrtime() + LAG_MS * 1000000ull;
    uv_timer_start(api->lag_timer, on_lag_timer, LAG_MS, 0);
    *ret_api = api;
    return 0;
}

struct http_server *api_server(struct api *api)
{
    return api->server;
}

void api_set_reason(struct api *api, const char *accelerator_reason)
{
    free(api->accelerator_reason);
    api->accelerator_reason = xstrdup(accelerator_reason);
}

static void on_closed(uv_handle_t *handle)
{
    struct api *api = handle->data;
    void (*done)(void *arg) = api->on_freed;
    void *arg = api->on_freed_arg;
    free(handle);
    free(api->accelerator_reason);
    free(api->version);
    free(api);
    done(arg);
}

void api_free(struct api *api, void (*done)(void *arg), void *arg)
{
    api->on_freed = done;
    api->on_freed_arg = arg;
    uv_close((uv_handle_t *)api->lag_timer, on_closed);
}

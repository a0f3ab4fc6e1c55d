/* What the files of this folder share. */
#ifndef SPACE_API_API_INTERNAL_H
#define SPACE_API_API_INTERNAL_H

#include "api/api.h"
#include "api/caller.h"
#include "api/reply.h"
#include "base/clock.h"
#include "base/str.h"
#include "config/config.h"
#include "store/store.h"

#define WAIT_MAX_MS 60000

struct api {
    struct control *control;
    struct store *store;
    const struct config *config;
    struct http_server *server;
    char *version;
    char *accelerator_reason;
    int64_t started_at_ms;
    /* how late the loop runs a timer, measured once a second */
    uv_timer_t *lag_timer;
    uint64_t lag_due_ns;
    struct control_histogram lag;
    double lag_max_seconds;
    struct control_histogram request_seconds; /* of answers that are not streams */
    void (*on_freed)(void *arg);
    void *on_freed_arg;
};

/* The handler of a route: `arg` is the api. */
#define HANDLER(name) void name(struct http_request *r, void *arg)

HANDLER(api_sandbox_create);
HANDLER(api_sandbox_list);
HANDLER(api_sandbox_get);
HANDLER(api_sandbox_update);
HANDLER(api_sandbox_delete);
HANDLER(api_sandbox_pause);
HANDLER(api_sandbox_resume);
HANDLER(api_sandbox_metrics);
HANDLER(api_sandbox_console);
HANDLER(api_operation_list);
HANDLER(api_operation_get);
HANDLER(api_exec_create);
HANDLER(api_exec_list);
HANDLER(api_exec_get);
HANDLER(api_exec_delete);
HANDLER(api_exec_attach);
HANDLER(api_exec_result);
HANDLER(api_exec_output);
HANDLER(api_exec_stdin);
HANDLER(api_exec_signal);
HANDLER(api_exec_resize);
HANDLER(api_exec_ws);
HANDLER(api_run);
HANDLER(api_file_get);
HANDLER(api_file_put);
HANDLER(api_file_remove);
HANDLER(api_file_stat);
HANDLER(api_file_list);
HANDLER(api_file_mkdir);
HANDLER(api_file_move);
HANDLER(api_file_attributes);
HANDLER(api_file_watch);
HANDLER(api_tar_get);
HANDLER(api_tar_put);
HANDLER(api_port_proxy);
HANDLER(api_port_tunnel);
HANDLER(api_template_list);
HANDLER(api_template_import);
HANDLER(api_template_get);
HANDLER(api_template_delete);
HANDLER(api_template_log);
HANDLER(api_template_tag_set);
HANDLER(api_template_tag_delete);
HANDLER(api_key_create);
HANDLER(api_key_list);
HANDLER(api_key_get);
HANDLER(api_key_revoke);
HANDLER(api_project_create);
HANDLER(api_project_list);
HANDLER(api_project_get);
HANDLER(api_node_get);
HANDLER(api_health);
HANDLER(api_ready);
HANDLER(api_metrics);
HANDLER(api_openapi);
HANDLER(api_docs);
HANDLER(api_problem);

extern const struct http_route api_routes[];
extern const size_t api_route_count;

#endif

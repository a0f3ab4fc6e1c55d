/* Every route of api/openapi.yaml: method, pattern, handler, body, and the scope that it needs. */
#include "api/api_internal.h"

#define READ STORE_SCOPE_SANDBOXES_READ
#define WRITE STORE_SCOPE_SANDBOXES_WRITE
#define EXECS STORE_SCOPE_EXECS
#define ATTACHED (STORE_SCOPE_EXECS | API_TOKEN)
#define FILES STORE_SCOPE_FILES
#define PORTS (STORE_SCOPE_PORTS | API_SPACE_KEY)
#define TEMPLATES STORE_SCOPE_TEMPLATES_WRITE
#define KEYS STORE_SCOPE_KEYS
#define ADMIN STORE_SCOPE_ADMIN

#define NONE HTTP_BODY_NONE
#define JSON HTTP_BODY_JSON
#define JSON_OPTIONAL HTTP_BODY_JSON_OPTIONAL
#define STREAM HTTP_BODY_STREAM

#define S "/v1/sandboxes/{sandbox_id}"
#define X S "/execs/{exec_id}"
#define F S "/files"
#define T "/v1/templates/{template}"

#define RUN_BODY_MAX (24 * MIB)

const struct http_route api_routes[] = {
    {"POST", "/v1/sandboxes", api_sandbox_create, JSON_OPTIONAL, 0, WRITE},
    {"GET", "/v1/sandboxes", api_sandbox_list, NONE, 0, READ},
    {"GET", S, api_sandbox_get, NONE, 0, READ},
    {"PATCH", S, api_sandbox_update, JSON, 0, WRITE},
    {"DELETE", S, api_sandbox_delete, NONE, 0, WRITE},
    {"POST", S "/pause", api_sandbox_pause, NONE, 0, WRITE},
    {"POST", S "/resume", api_sandbox_resume, NONE, 0, WRITE},
    {"GET", S "/metrics", api_sandbox_metrics, NONE, 0, READ},
    {"GET", S "/console", api_sandbox_console, NONE, 0, READ},

    {"GET", "/v1/operations", api_operation_list, NONE, 0, READ},
    {"GET", "/v1/operations/{operation_id}", api_operation_get, NONE, 0, READ},

    {"POST", S "/execs", api_exec_create, JSON, 0, EXECS},
    {"GET", S "/execs", api_exec_list, NONE, 0, EXECS},
    {"GET", X, api_exec_get, NONE, 0, EXECS},
    {"DELETE", X, api_exec_delete, NONE, 0, EXECS},
    {"POST", X "/attach", api_exec_attach, NONE, 0, ATTACHED},
    {"GET", X "/output", api_exec_output, NONE, 0, ATTACHED},
    {"POST", X "/stdin", api_exec_stdin, STREAM, 0, ATTACHED},
    {"POST", X "/signal", api_exec_signal, JSON, 0, ATTACHED},
    {"POST", X "/resize", api_exec_resize, JSON, 0, ATTACHED},
    {"GET", X "/result", api_exec_result, NONE, 0, ATTACHED},
    {"GET", X "/ws", api_exec_ws, NONE, 0, ATTACHED},
    {"POST", S "/run", api_run, JSON, RUN_BODY_MAX, EXECS},

    {"GET", F, api_file_get, NONE, 0, FILES},
    {"PUT", F, api_file_put, STREAM, 0, FILES},
    {"DELETE", F, api_file_remove, NONE, 0, FILES},
    {"GET", F "/stat", api_file_stat, NONE, 0, FILES},
    {"GET", F "/list", api_file_list, NONE, 0, FILES},
    {"POST", F "/mkdir", api_file_mkdir, JSON, 0, FILES},
    {"POST", F "/move", api_file_move, JSON, 0, FILES},
    {"POST", F "/attributes", api_file_attributes, JSON, 0, FILES},
    {"GET", F "/watch", api_file_watch, NONE, 0, FILES},
    {"GET", F "/tar", api_tar_get, NONE, 0, FILES},
    {"PUT", F "/tar", api_tar_put, STREAM, 0, FILES},

    {"*", S "/ports/{port}/{path...}", api_port_proxy, STREAM, 0, PORTS},
    {"GET", S "/tcp/{port}", api_port_tunnel, NONE, 0, STORE_SCOPE_PORTS},

    {"GET", "/v1/templates", api_template_list, NONE, 0, API_ANY},
    {"POST", "/v1/templates", api_template_import, JSON, 0, TEMPLATES},
    {"GET", T, api_template_get, NONE, 0, API_ANY},
    {"DELETE", T, api_template_delete, NONE, 0, TEMPLATES},
    {"GET", T "/log", api_template_log, NONE, 0, TEMPLATES},
    {"PUT", T "/tags/{tag}", api_template_tag_set, NONE, 0, TEMPLATES},
    {"DELETE", T "/tags/{tag}", api_template_tag_delete, NONE, 0, TEMPLATES},

    {"POST", "/v1/keys", api_key_create, JSON, 0, KEYS},
    {"GET", "/v1/keys", api_key_list, NONE, 0, KEYS},
    {"GET", "/v1/keys/{key_id}", api_key_get, NONE, 0, KEYS},
    {"DELETE", "/v1/keys/{key_id}", api_key_revoke, NONE, 0, KEYS},
    {"POST", "/v1/projects", api_project_create, JSON, 0, ADMIN},
    {"GET", "/v1/projects", api_project_list, NONE, 0, ADMIN},
    {"GET", "/v1/projects/{project_id}", api_project_get, NONE, 0, ADMIN},

    {"GET", "/v1/node", api_node_get, NONE, 0, API_ANY},
    {"GET", "/healthz", api_health, NONE, 0, API_PUBLIC},
    {"GET", "/readyz", api_ready, NONE, 0, API_PUBLIC},
    {"GET", "/metrics", api_metrics, NONE, 0, ADMIN},
    {"GET", "/openapi.json", api_openapi, NONE, 0, API_PUBLIC},
    {"GET", "/docs", api_docs, NONE, 0, API_PUBLIC},
    {"GET", "/problems/{code}", api_problem, NONE, 0, API_PUBLIC},
};
const size_t api_route_count = ARRAY_LEN(api_routes);

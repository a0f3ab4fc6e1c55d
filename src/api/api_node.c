/* /v1/node, /healthz, /readyz, /openapi.json, /docs, /problems/{code}. */
#include "api/render.h"
#include "api_blobs.h"
#include "control/lifecycle.h"
#include "jail/feature.h"

#define POOLS_MAX 256

/* Names and words of what machines here lack. */
static json_t *missing_with_reasons(uint32_t missing, bool root)
{
    json_t *list = json_array();
    for (unsigned bit = 0; bit < 32; bit++) {
        uint32_t feature = 1u << bit;
        const char *name = missing & feature ? jail_feature_name(feature) : NULL, *title = jail_feature_title(feature);
        if (!name)
            continue;
        _cleanup_free_ char *reason =
            xasprintf("%s: %s", title ? title : name,
                      !root && (feature & JAIL_FEATURES_NEED_ROOT) ? "needs the platform to be started by root"
                                                                   : "this host does not give it");
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "reason", reason));
    }
    return list;
}

static json_t *render_pool(const struct node_pool *p, const char *kind, uint32_t target, uint32_t ready,
                           uint32_t starting)
{
    return json_pack("{s:s, s:{s:i, s:i, s:i}, s:s, s:i, s:i, s:i}", "template", p->template_digest, "shape", "vcpus",
                     (int)p->shape.vcpus, "memory_mib", (int)p->shape.mem_mib, "disk_mib", (int)p->shape.disk_mib,
                     "kind", kind, "target", (int)target, "ready", (int)ready, "starting", (int)starting);
}

static json_t *render_pools(struct node *node)
{
    struct node_pool *pools = xcalloc(POOLS_MAX, sizeof(*pools));
    size_t count = node_pools_get(node, pools, POOLS_MAX);
    json_t *list = json_array();
    for (size_t i = 0; i < MIN(count, (size_t)POOLS_MAX); i++) {
        const struct node_pool *p = &pools[i];
        json_array_append_new(list, render_pool(p, "hot", p->hot_target, p->hot, p->hot_starting));
        json_array_append_new(list, render_pool(p, "blank", p->blank_target, p->blank, p->blank_starting));
    }
    free(pools);
    return list;
}

void api_node_get(struct http_request *r, void *arg)
{
    struct api *api = arg;
    struct node_stats n;
    struct control_stats c;
    const struct config *config = api->config;
    node_stats_get(control_node(api->control), &n);
    control_stats_get(api->control, &c);
    json_t *by_state = json_object();
    for (int s = 0; s < LIFE_STATES; s++)
        json_object_set_new(by_state, life_state_name((enum life_state)s), json_integer(c.sandboxes[s]));
    http_reply_json(
        r, 200,
        json_pack("{s:s, s:o, s:s, s:s, s:s, s:{s:s, s:o}, s:b, s:b, s:s?, s:{s:i, s:i, s:I, s:I}, s:o, s:o}",
                  "version", api->version, "started_at", render_time(api->started_at_ms), "accelerator",
                  n.accelerator == ACCELERATOR_KVM ? "kvm" : "tcg", "accelerator_reason",
                  api->accelerator_reason ? api->accelerator_reason : "", "qemu_version",
                  n.qemu_version ? n.qemu_version : "", "isolation", "jail", n.jail_missing ? "reduced" : "full",
                  "missing", missing_with_reasons(n.jail_missing, n.root), "require_jail", (int)config->require_jail,
                  "require_hardware_isolation", (int)config->require_hardware_isolation, "domain",
                  config->domain[0] ? config->domain : NULL, "capacity", "machines_max", (int)n.slots, "machines_used",
                  (int)n.slots_used, "memory_mib_max", (json_int_t)(n.pool_memory_max_bytes / MIB), "memory_mib_used",
                  (json_int_t)(n.pool_memory_bytes / MIB), "sandboxes", by_state, "pools",
                  render_pools(control_node(api->control))));
}

void api_health(struct http_request *r, void *arg)
{
    (void)arg;
    http_reply_data(r, 200, "text/plain", "ok\n", 3);
}

void api_ready(struct http_request *r, void *arg)
{
    struct api *api = arg;
    struct node_stats n;
    struct err e = {0};
    node_stats_get(control_node(api->control), &n);
    int result = 0;
    if (!control_ready(api->control))
        result = err_set(&e, ERR_UNAVAILABLE, "the machines of an earlier run are being dealt with");
    else if (!n.ready)
        result = err_set(&e, ERR_UNAVAILABLE, "the privileged helper is not there");
    else
        result = store_ping(api->store, &e);
    if (result < 0) {
        e.code = ERR_UNAVAILABLE;
        http_reply_error(r, &e);
    } else
        http_reply_data(r, 200, "text/plain", "ok\n", 3);
}

void api_openapi(struct http_request *r, void *arg)
{
    (void)arg;
    http_reply_data(r, 200, "application/json", api_openapi_json, api_openapi_json_len);
}

void api_docs(struct http_request *r, void *arg)
{
    (void)arg;
    http_reply_header(r, "Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    http_reply_header(r, "X-Content-Type-Options", "nosniff");
    http_reply_data(r, 200, "text/html; charset=utf-8", api_docs_html, api_docs_html_len);
}

void api_problem(struct http_request *r, void *arg)
{
    (void)arg;
    const char *code = http_request_param(r, "code");
    struct err e = {0};
    char location[96];
    if (!str_eq(err_info(err_code_by_name(code))->name, code)) {
        err_set(&e, ERR_NOT_FOUND, "there is no problem \"%.64s\"", code);
        http_reply_error(r, &e);
        return;
    }
    snprintf(location, sizeof(location), "/docs#problem-%s", code);
    http_reply_header(r, "Location", location);
    http_reply_empty(r, 302);
}

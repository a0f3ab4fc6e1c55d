/* Rows of the store as JSON. */
#include "api/render.h"

#include "control/sandbox.h"
#include "control/template.h"
#include "jail/feature.h"
#include "wire/agent_protocol.h"

json_t *render_time(int64_t ms)
{
    char text[RFC3339_SIZE];
    if (!ms)
        return json_null();
    clock_format_ms(ms, text);
    return json_string(text);
}

/* The length of the valid UTF-8 character at the start of `p`, 0 when there is none. */
static size_t character_len(const uint8_t *p, size_t len)
{
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
    return n && n <= len && utf8_valid(p, n) ? n : 0;
}

json_t *render_text(const void *data, size_t len)
{
    if (utf8_valid(data, len))
        return json_stringn(data, len);
    _cleanup_buf_ struct buf b = BUF_MAX(len * 3 + 1);
    const uint8_t *p = data;
    while (len) {
        size_t n = character_len(p, len);
        if (n)
            buf_put(&b, p, n);
        else
            buf_put_str(&b, "\xef\xbf\xbd");
        n = n ? n : 1;
        p += n;
        len -= n;
    }
    return json_stringn((const char *)buf_data(&b), b.len);
}

json_t *render_missing(uint64_t jail_missing)
{
    json_t *list = json_array();
    for (unsigned bit = 0; bit < 32; bit++)
        if (jail_missing & (1ull << bit)) {
            const char *name = jail_feature_name(1u << bit);
            json_array_append_new(list, json_string(name ? name : "unknown"));
        }
    return list;
}

static json_t *object_or_empty(const char *json)
{
    json_t *value = json ? json_loads(json, 0, NULL) : NULL;
    return value ? value : json_object();
}

json_t *render_shape(uint32_t vcpus, uint32_t memory_mib, uint32_t disk_mib)
{
    return json_pack("{s:i, s:i, s:i}", "vcpus", (int)vcpus, "memory_mib", (int)memory_mib, "disk_mib",
                     (int)disk_mib);
}

static const char *accelerator_name(enum store_accelerator a)
{
    return a == STORE_ACCELERATOR_KVM ? "kvm" : "tcg";
}

json_t *render_sandbox(struct api *api, const struct store_sandbox *sb)
{
    static const char *const pools[] = {[CLAIM_COLD] = "none", [CLAIM_BLANK] = "blank", [CLAIM_HOT] = "hot"};
    enum claim_source source;
    bool known = sandbox_claim_source(api->control, sb->id, &source);
    return json_pack(
        "{s:s, s:s, s:s?, s:s, s:s?, s:{s:s, s:s?}, s:o, s:s, s:{s:s, s:o}, s:s?, s:o, s:I, s:o, s:o, s:o, s:o}", "id",
        sb->id, "project_id", sb->project_id, "name", sb->name, "state", store_sandbox_state_name(sb->state), "reason",
        sb->reason, "template", "digest", sb->template_digest, "tag", sb->template_tag, "shape",
        render_shape(sb->vcpus, sb->memory_mib, sb->disk_mib), "accelerator", accelerator_name(sb->accelerator),
        "isolation", "jail", sb->jail_missing ? "reduced" : "full", "missing", render_missing(sb->jail_missing), "pool",
        known ? pools[source] : NULL, "metadata", object_or_empty(sb->metadata_json), "timeout_ms",
        (json_int_t)sb->timeout_ms, "created_at", render_time(sb->created_at_ms), "ready_at",
        render_time(sb->ready_at_ms), "expires_at",
        render_time(sb->expires_at_ms ? sb->expires_at_ms : sb->created_at_ms + (int64_t)sb->timeout_ms), "ended_at",
        render_time(sb->ended_at_ms));
}

json_t *render_operation(const struct store_operation *op)
{
    json_t *error = json_null();
    if (op->state == STORE_OPERATION_FAILED) {
        struct err e = {0};
        err_set(&e, op->error_code ? op->error_code : ERR_INTERNAL, "%s", op->error_text ? op->error_text : "");
        error = problem_json(&e, 0, op->request_id ? op->request_id : op->id);
    }
    /* The target of an import is known when its digest is. */
    bool known = !str_eq(op->target_type, "template") || template_digest_valid(op->target_id);
    return json_pack("{s:s, s:s, s:s, s:{s:I, s:I, s:s}, s:o, s:{s:s, s:s?}, s:o, s:o, s:o}", "id", op->id, "kind",
                     op->kind, "state", store_operation_state_name(op->state), "progress", "done",
                     (json_int_t)op->progress_done, "total", (json_int_t)op->progress_total, "step",
                     op->progress_step ? op->progress_step : "", "error", error, "target", "type", op->target_type,
                     "id", known ? op->target_id : NULL, "created_at", render_time(op->created_at_ms), "started_at",
                     render_time(op->started_at_ms), "ended_at", render_time(op->ended_at_ms));
}

/* ---- execs ---- */

static json_t *member_or_null(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return value ? json_incref(value) : json_null();
}

static json_t *exit_code_of(const struct store_exec *x)
{
    return x->state == STORE_EXEC_EXITED && !x->exit.exit_signal ? json_integer(x->exit.exit_code) : json_null();
}

static json_t *signal_of(const struct store_exec *x)
{
    const char *name = x->state == STORE_EXEC_EXITED && x->exit.exit_signal ? signal_name(x->exit.exit_signal) : NULL;
    return name ? json_string(name) : json_null();
}

json_t *render_exec(const struct store_exec *x)
{
    json_t *spec = object_or_empty(x->spec_json);
    json_t *user = json_object_get(spec, "user"), *buffer = json_object_get(spec, "buffer_bytes");
    json_t *terminal = json_object_get(spec, "terminal");
    bool has_stdin = json_is_true(json_object_get(spec, "stdin")) || json_is_object(terminal);
    json_t *out = json_pack(
        "{s:s, s:s, s:s, s:s?, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", x->id,
        "sandbox_id", x->sandbox_id, "state", store_exec_state_name(x->state), "reason", x->reason, "command",
        member_or_null(spec, "command"), "shell", member_or_null(spec, "shell"), "user",
        user ? json_incref(user) : json_string("root"), "cwd", member_or_null(spec, "cwd"), "stdin", (int)has_stdin,
        "terminal", member_or_null(spec, "terminal"), "buffer_bytes",
        buffer ? json_incref(buffer) : json_integer(AGENT_BUFFER_DEFAULT), "timeout_ms",
        member_or_null(spec, "timeout_ms"), "pid", x->guest_pid ? json_integer(x->guest_pid) : json_null(), "exit_code",
        exit_code_of(x), "signal", signal_of(x), "created_at", render_time(x->created_at_ms), "started_at",
        render_time(x->started_at_ms), "ended_at", render_time(x->ended_at_ms));
    json_decref(spec);
    return out;
}

json_t *render_exec_result(const struct store_exec *x)
{
    bool exited = x->state == STORE_EXEC_EXITED;
    const struct store_exec_exit *g = &x->exit;
    json_t *duration = exited ? json_integer(x->ended_at_ms - x->started_at_ms) : json_null();
    return json_pack("{s:s, s:s, s:s?, s:o, s:o, s:b, s:b, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "exec_id", x->id,
                     "state", store_exec_state_name(x->state), "reason", x->reason, "exit_code", exit_code_of(x),
                     "signal", signal_of(x), "timed_out", (int)(exited && g->timed_out), "oom_killed",
                     (int)(exited && g->oom), "started_at", render_time(x->started_at_ms), "ended_at",
                     render_time(x->ended_at_ms), "duration_ms", duration, "output_bytes", (json_int_t)g->output_bytes,
                     "dropped_bytes", (json_int_t)g->dropped_bytes, "cpu_user_us",
                     exited ? json_integer((json_int_t)g->cpu_user_us) : json_null(), "cpu_system_us",
                     exited ? json_integer((json_int_t)g->cpu_system_us) : json_null(), "max_rss_bytes",
                     exited ? json_integer((json_int_t)g->max_rss_bytes) : json_null());
}

/* ---- keys, projects ---- */

json_t *render_key(const struct store_api_key *k)
{
    json_t *scopes = json_array();
    for (unsigned bit = 0; bit < 32; bit++)
        if (k->scopes & (1u << bit))
            json_array_append_new(scopes, json_string(store_scope_name(1u << bit)));
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "id", k->id, "project_id", k->project_id, "name",
                     k->name, "prefix", k->prefix, "scopes", scopes, "created_at", render_time(k->created_at_ms), "expires_at",
                     render_time(k->expires_at_ms), "last_used_at", render_time(k->last_used_at_ms), "revoked_at",
                     render_time(k->revoked_at_ms));
}

json_t *render_project(const struct store_project *p)
{
    return json_pack("{s:s, s:s, s:o}", "id", p->id, "name", p->name, "created_at", render_time(p->created_at_ms));
}

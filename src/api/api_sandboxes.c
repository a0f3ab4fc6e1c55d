/* /v1/sandboxes: create, list, get, change. Pause, resume and delete: api_changes.c. */
#include "api/changes.h"
#include "api/fields.h"
#include "api/idempotency.h"
#include "api/render.h"
#include "api/wait.h"
#include "control/sandbox.h"
#include "guest/guest.h"

#include <sys/stat.h>

#define TIMEOUT_MIN_MS 1000
#define TIMEOUT_MAX_MS CONFIG_TIMEOUT_MAX_MS

/* ---- create ---- */

struct create_body {
    const char *template, *name, *timeout;
    const json_t *shape, *env, *metadata;
    int64_t timeout_ms;
};

static const struct field create_fields[] = {
    {"template", FIELD_STRING, offsetof(struct create_body, template), .valid = valid_tag_or_digest,
     .expect = "the tag or digest of a template"},
    {"name", FIELD_STRING, offsetof(struct create_body, name), .valid = valid_name, .expect = EXPECT_NAME},
    {"shape", FIELD_OBJECT, offsetof(struct create_body, shape)},
    {"env", FIELD_MAP, offsetof(struct create_body, env), .max = 128, .valid = valid_env_name, .value_max = 32768},
    {"metadata", FIELD_MAP, offsetof(struct create_body, metadata), .max = 32, .valid = valid_metadata_name,
     .value_max = 512},
    {"timeout", FIELD_STRING, offsetof(struct create_body, timeout), .valid = valid_duration, .expect = EXPECT_DURATION},
    {"timeout_ms", FIELD_INTEGER, offsetof(struct create_body, timeout_ms), .min = TIMEOUT_MIN_MS,
     .max = TIMEOUT_MAX_MS},
};

struct shape_body {
    int64_t vcpus, memory_mib, disk_mib;
};

static const struct field shape_fields[] = {
    {"vcpus", FIELD_INTEGER, offsetof(struct shape_body, vcpus), .min = 1, .max = 8},
    {"memory_mib", FIELD_INTEGER, offsetof(struct shape_body, memory_mib), .min = 128, .max = 8192},
    {"disk_mib", FIELD_INTEGER, offsetof(struct shape_body, disk_mib), .min = 256, .max = 65536},
};

/* `timeout` and `timeout_ms` are two forms of one thing. */
static uint64_t timeout_of(const char *text, int64_t ms, struct faults *f)
{
    uint64_t value = (uint64_t)ms;
    if (text && ms)
        faults_add(f, "/timeout", "only one of timeout and timeout_ms");
    else if (text && str_to_ms(text, &value) && (value < TIMEOUT_MIN_MS || value > TIMEOUT_MAX_MS))
        faults_add(f, "/timeout", "expected a duration from 1s to 24h");
    return value;
}

static json_t *sandbox_and_operation(struct api *api, const char *project_id, const char *sandbox_id, const char *op_id,
                                     struct store_operation **ret_op, struct err *e)
{
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    _cleanup_store_operation_ struct store_operation *op = NULL;
    if (store_operation_get(api->store, project_id, op_id, &op, e) < 0 ||
        store_sandbox_get(api->store, project_id, sandbox_id, &sb, e) < 0)
        return NULL;
    json_t *body = json_pack("{s:o, s:o}", "operation", render_operation(op), "sandbox", render_sandbox(api, sb));
    if (ret_op)
        *ret_op = steal(op);
    return body;
}

void api_sandbox_create(struct http_request *r, void *arg)
{
    struct api *api = arg;
    const json_t *json = http_request_json(r);
    _cleanup_faults_ struct faults f = {0};
    struct create_body body = {0};
    struct shape_body shape = {0};
    struct err e = {0};
    uint64_t wait_ms = 0;
    if (json)
        fields_parse(json, "", create_fields, ARRAY_LEN(create_fields), &body, &f);
    if (body.shape)
        fields_parse(body.shape, "/shape", shape_fields, ARRAY_LEN(shape_fields), &shape, &f);
    uint64_t timeout_ms = timeout_of(body.timeout, body.timeout_ms, &f);
    if (faults_reply(r, &f))
        return;
    if (http_query_only(http_request_query(r), (const char *[]){"wait", NULL}, &e) < 0 ||
        wait_wanted(r, &wait_ms, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    _cleanup_free_ char *env = body.env ? json_dumps(body.env, JSON_COMPACT) : NULL;
    _cleanup_free_ char *metadata = body.metadata ? json_dumps(body.metadata, JSON_COMPACT) : NULL;
    struct sandbox_spec spec = {
        .project_id = project_of(r),
        .name = body.name,
        .template_ref = body.template,
        .shape = {(uint32_t)shape.vcpus, (uint32_t)shape.memory_mib, (uint32_t)shape.disk_mib},
        .env_json = env,
        .metadata_json = metadata,
        .timeout_ms = timeout_ms,
        .request_id = http_request_id(r),
    };
    /* The sandbox, its operation and the answer are one commit: after a crash there are all of them or none. */
    char sandbox_id[ID_SIZE], op_id[ID_SIZE], location[64];
    _cleanup_idempotency_ struct idempotency idem = {0};
    json_t *answer = NULL;
    _cleanup_store_tx_ struct store_tx tx = {0};
    int result = store_begin(api->store, &tx, &e);
    if (result >= 0)
        result = idempotency_begin(r, api, &idem, &e);
    if (result > 0) {
        store_rollback(&tx);
        change_replay(r, api, &idem, CHANGE_CREATE, wait_ms);
        return;
    }
    if (result >= 0)
        result = sandbox_create(api->control, &spec, sandbox_id, op_id, &e);
    if (result >= 0) {
        snprintf(location, sizeof(location), "/v1/operations/%s", op_id);
        answer = sandbox_and_operation(api, spec.project_id, sandbox_id, op_id, NULL, &e);
        result = answer ? idempotency_keep(api, &idem, 202, location, answer, op_id, &e) : e.code;
    }
    if (result >= 0)
        result = store_commit(&tx, &e);
    if (result < 0) {
        store_rollback(&tx);
        json_decref(answer);
        http_reply_error(r, &e);
        return;
    }
    if (!wait_ms) {
        http_reply_header(r, "Location", location);
        http_reply_json(r, 202, answer);
    } else {
        json_decref(answer);
        change_wait(r, api, CHANGE_CREATE, op_id, sandbox_id, wait_ms);
    }
    sandbox_begin(api->control, sandbox_id);
}

/* ---- get and list ---- */

void api_sandbox_get(struct http_request *r, void *arg)
{
    struct api *api = arg;
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    struct err e = {0};
    if (store_sandbox_get(api->store, project_of(r), http_request_param(r, "sandbox_id"), &sb, &e) < 0)
        http_reply_error(r, &e);
    else
        http_reply_json(r, 200, render_sandbox(api, sb));
}

static const char *state_name(unsigned i)
{
    return store_sandbox_state_name((enum store_sandbox_state)i);
}

void api_sandbox_list(struct http_request *r, void *arg)
{
    struct api *api = arg;
    const struct http_query *q = http_request_query(r);
    struct store_page page;
    struct store_sandbox_filter filter = {.state_mask = STORE_SANDBOX_ANY & ~STORE_MASK(STORE_SANDBOX_DELETED)};
    _cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
    struct err e = {0};
    int result = http_query_only(q, (const char *[]){LIST_PARAMETERS, "state", "name", "metadata.", NULL}, &e);
    if (result >= 0)
        result = page_of(r, &page, &e);
    if (result >= 0)
        result = query_mask(r, "state", state_name, STORE_SANDBOX_STATES, &filter.state_mask, &e);
    if (result >= 0)
        result = http_query_get(q, "name", &filter.name, &e);
    for (size_t i = 0; result >= 0 && i < q->count; i++) {
        if (!str_starts(q->pairs[i].name, "metadata."))
            continue;
        if (filter.metadata_count == STORE_SANDBOX_FILTERS_MAX)
            result = err_set(&e, ERR_INVALID, "at most %d query parameters \"metadata.…\"", STORE_SANDBOX_FILTERS_MAX);
        else {
            filter.metadata[filter.metadata_count].key = q->pairs[i].name + strlen("metadata.");
            filter.metadata[filter.metadata_count++].value = q->pairs[i].value;
        }
    }
    if (result >= 0)
        result = store_sandbox_list(api->store, project_of(r), &filter, &page, &list, &e);
    if (result < 0) {
        http_reply_error(r, &e);
        return;
    }
    json_t *items = json_array();
    for (size_t i = 0; i < list.count; i++)
        json_array_append_new(items, render_sandbox(api, list.items[i]));
    reply_list(r, items, list.next_cursor);
}

/* ---- change ---- */

struct update_body {
    const json_t *name, *metadata;
    const char *timeout;
    int64_t timeout_ms;
};

static const struct field update_fields[] = {
    {"name", FIELD_ANY, offsetof(struct update_body, name)},
    {"metadata", FIELD_MAP_OR_NULLS, offsetof(struct update_body, metadata), .max = 32, .valid = valid_metadata_name,
     .value_max = 512},
    {"timeout", FIELD_STRING, offsetof(struct update_body, timeout), .valid = valid_duration, .expect = EXPECT_DURATION},
    {"timeout_ms", FIELD_INTEGER, offsetof(struct update_body, timeout_ms), .min = TIMEOUT_MIN_MS,
     .max = TIMEOUT_MAX_MS},
};

/* The metadata after a merge: members that are null go. NULL when there are too many after it. */
static char *merge_metadata(const char *old_json, const json_t *changes)
{
    json_t *all = old_json ? json_loads(old_json, 0, NULL) : NULL;
    const char *key;
    json_t *value;
    if (!all)
        all = json_object();
    json_object_foreach((json_t *)changes, key, value)
        if (json_is_null(value))
            json_object_del(all, key);
        else
            json_object_set(all, key, value);
    char *text = json_object_size(all) <= 32 ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return text;
}

void api_sandbox_update(struct http_request *r, void *arg)
{
    struct api *api = arg;
    const json_t *json = http_request_json(r);
    const char *id = http_request_param(r, "sandbox_id");
    _cleanup_faults_ struct faults f = {0};
    struct update_body body = {0};
    struct err e = {0};
    fields_parse(json, "", update_fields, ARRAY_LEN(update_fields), &body, &f);
    if (json_object_size(json) == 0)
        faults_add(&f, "", "expected at least one member");
    const char *name = NULL;
    if (json_is_null(body.name))
        name = "";
    else if (json_is_string(body.name) && valid_name(json_string_value(body.name)))
        name = json_string_value(body.name);
    else if (body.name)
        faults_add(&f, "/name", "expected " EXPECT_NAME ", or null");
    uint64_t timeout_ms = timeout_of(body.timeout, body.timeout_ms, &f);
    if (faults_reply(r, &f))
        return;
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    _cleanup_free_ char *metadata = NULL;
    int result = store_sandbox_get(api->store, project_of(r), id, &sb, &e);
    if (result >= 0 && body.metadata && !(metadata = merge_metadata(sb->metadata_json, body.metadata)))
        result = err_set(&e, ERR_TOO_LARGE, "metadata of more than 32 members");
    if (result >= 0 && STORE_MASK(sb->state) & STORE_SANDBOX_ENDED)
        result = err_set(&e, ERR_GONE, "sandbox %s is %s", id, store_sandbox_state_name(sb->state));
    if (result >= 0)
        result = sandbox_change(api->control, project_of(r), id, timeout_ms, metadata, name, &e);
    if (result < 0)
        http_reply_error(r, &e);
    else
        api_sandbox_get(r, arg);
}

/* ---- console ---- */

struct console {
    struct http_request *request;
    uint64_t tail;
};

static void on_console(void *arg, const void *data, size_t len, const struct err *e)
{
    struct console *c = arg;
    if (e)
        http_reply_error(c->request, e);
    else {
        size_t skip = len > c->tail ? len - (size_t)c->tail : 0;
        http_reply_data(c->request, 200, "text/plain", (const char *)data + skip, len - skip);
    }
    http_request_unref(c->request);
    free(c);
}

void api_sandbox_console(struct http_request *r, void *arg)
{
    struct api *api = arg;
    char machine[ID_SIZE];
    uint64_t tail = 65536;
    struct err e = {0};
    if (http_query_only(http_request_query(r), (const char *[]){"tail_bytes", NULL}, &e) < 0 ||
        http_query_u64(http_request_query(r), "tail_bytes", 1, MIB, &tail, &e) < 0 ||
        sandbox_machine(api->control, project_of(r), http_request_param(r, "sandbox_id"), machine, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    struct console *c = NEW(struct console);
    *c = (struct console){.request = http_request_ref(r), .tail = tail};
    node_console(control_node(api->control), machine, on_console, c);
}

/* ---- metrics of one ---- */

struct figures {
    struct http_request *request;
    struct api *api;
    char sandbox_id[ID_SIZE];
    char machine_id[ID_SIZE];
};

/* Resident memory and processor time of the machine's process; null where /proc does not say. */
static void host_figures(const struct figures *f, json_t **ret_memory, json_t **ret_cpu, json_t **ret_disk)
{
    const struct node_machine *m = node_machine_find(control_node(f->api->control), f->machine_id);
    char path[64];
    unsigned long long resident, user, system;
    struct stat st;
    *ret_memory = json_null();
    *ret_cpu = json_null();
    *ret_disk = json_null();
    if (m && m->pid > 0) {
        snprintf(path, sizeof(path), "/proc/%d/statm", m->pid);
        _cleanup_fclose_ FILE *statm = fopen(path, "re");
        if (statm && fscanf(statm, "%*u %llu", &resident) == 1)
            *ret_memory = json_integer((json_int_t)(resident * (unsigned long long)sysconf(_SC_PAGESIZE)));
        snprintf(path, sizeof(path), "/proc/%d/stat", m->pid);
        _cleanup_fclose_ FILE *stat_file = fopen(path, "re");
        char line[1024];
        char *after = stat_file && fgets(line, sizeof(line), stat_file) ? strrchr(line, ')') : NULL;
        if (after && sscanf(after, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) == 2)
            *ret_cpu = json_integer(
                (json_int_t)((user + system) * 1000000ull / (unsigned long long)sysconf(_SC_CLK_TCK)));
    }
    _cleanup_free_ char *overlay =
        xasprintf("%s/sandboxes/%s/overlay.qcow2", f->api->config->state_dir, f->sandbox_id);
    if (stat(overlay, &st) == 0)
        *ret_disk = json_integer((json_int_t)st.st_blocks * 512);
}

/* Two questions to the agent: its uptime, then its figures. */
struct figures_answer {
    struct figures figures;
    uint64_t uptime_ms;
};

static void on_metrics(void *arg, const struct guest_metrics *m, const struct err *e)
{
    struct figures_answer *a = arg;
    struct figures *f = &a->figures;
    if (e)
        http_reply_error(f->request, e);
    else {
        json_t *memory, *cpu, *disk;
        host_figures(f, &memory, &cpu, &disk);
        uint64_t busy = m->cpu_total_us > m->cpu_idle_us ? m->cpu_total_us - m->cpu_idle_us : 0;
        http_reply_json(
            f->request, 200,
            json_pack("{s:s, s:o, s:I, s:{s:I, s:I, s:I, s:f}, s:{s:I, s:I, s:I}, s:{s:I, s:I}, s:I, s:I, s:{s:o, s:o, s:o}}",
                      "sandbox_id", f->sandbox_id, "at", render_time(clock_wall_ms()), "uptime_ms",
                      (json_int_t)a->uptime_ms, "cpu", "vcpus", (json_int_t)m->cpus, "busy_us", (json_int_t)busy,
                      "idle_us", (json_int_t)m->cpu_idle_us, "load1", (double)m->load_1_milli / 1000, "memory",
                      "total_bytes", (json_int_t)m->memory_total, "used_bytes", (json_int_t)m->memory_used,
                      "available_bytes", (json_int_t)m->memory_available, "disk", "total_bytes",
                      (json_int_t)m->disk_total, "used_bytes", (json_int_t)m->disk_used, "processes",
                      (json_int_t)m->processes, "execs_running", (json_int_t)m->execs_running, "host", "memory_bytes",
                      memory, "cpu_us", cpu, "disk_bytes", disk));
    }
    http_request_unref(f->request);
    free(a);
}

static void on_hello(void *arg, const struct guest_hello *hello, const struct err *e)
{
    struct figures_answer *a = arg;
    struct err error = {0};
    struct guest *g = NULL;
    if (e)
        error = *e;
    else {
        a->uptime_ms = hello->uptime_ms;
        g = sandbox_guest(a->figures.api->control, NULL, a->figures.sandbox_id, &error);
    }
    if (g)
        guest_metrics(g, on_metrics, a);
    else
        on_metrics(a, NULL, &error);
}

void api_sandbox_metrics(struct http_request *r, void *arg)
{
    struct api *api = arg;
    const char *id = http_request_param(r, "sandbox_id");
    struct err e = {0};
    struct guest *g = sandbox_guest(api->control, project_of(r), id, &e);
    if (!g) {
        http_reply_error(r, &e);
        return;
    }
    struct figures_answer *a = NEW(struct figures_answer);
    a->figures.request = http_request_ref(r);
    a->figures.api = api;
    snprintf(a->figures.sandbox_id, ID_SIZE, "%s", id);
    sandbox_machine(api->control, NULL, id, a->figures.machine_id, NULL);
    guest_hello(g, on_hello, a);
}

/* What the API asks of sandboxes: create, pause, resume, delete, change, reach the guest. */
#include "control/sandbox.h"

#include "base/clock.h"
#include "base/str.h"
#include "config/config.h"
#include "control/operation.h"
#include "control/sandbox_internal.h"
#include "store/sandbox.h"
#include "store/template.h"

#include <jansson.h>

#define TIMEOUT_MIN_MS 1000

void env_list_init(struct env_list *ret_list, const char *json)
{
    *ret_list = (struct env_list){0};
    json_t *object = json ? json_loads(json, 0, NULL) : NULL;
    size_t size = object ? json_object_size(object) : 0;
    ret_list->items = xcalloc(size + 1, sizeof(char *));
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
        if (json_is_string(value))
            ret_list->items[ret_list->count++] = xasprintf("%s=%s", key, json_string_value(value));
    json_decref(object);
}

void env_list_done(struct env_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct env_list){0};
}

static int check_timeout(const struct config *config, uint64_t timeout_ms, struct err *e)
{
    if (timeout_ms < TIMEOUT_MIN_MS || timeout_ms > config->max_timeout_ms)
        return err_set(e, ERR_INVALID, "timeout of %llu ms: it must be from %d ms to %llu ms",
                       (unsigned long long)timeout_ms, TIMEOUT_MIN_MS, (unsigned long long)config->max_timeout_ms);
    return 0;
}

/* What was not asked for comes from the configuration; the disk is never smaller than the template's. */
static int complete_shape(struct control *c, const char *digest, struct shape *s, struct err *e)
{
    const struct config *config = c->config;
    uint32_t least_disk = node_template_disk_mib(c->node, digest);
    if (!s->vcpus)
        s->vcpus = config->default_vcpus;
    if (!s->mem_mib)
        s->mem_mib = config->default_memory_mib;
    if (!s->disk_mib)
        s->disk_mib = MAX(config->default_disk_mib, least_disk);
    int r = shape_check(s, e);
    if (r < 0)
        return r;
    if (s->vcpus > config->max_vcpus)
        return err_set(e, ERR_INVALID, "shape of %u vCPUs: this host allows at most %u", s->vcpus, config->max_vcpus);
    if (s->mem_mib > config->max_memory_mib)
        return err_set(e, ERR_INVALID, "shape with %u MiB of memory: this host allows at most %u", s->mem_mib,
                       config->max_memory_mib);
    if (s->disk_mib > config->max_disk_mib)
        return err_set(e, ERR_INVALID, "shape with a disk of %u MiB: this host allows at most %u", s->disk_mib,
                       config->max_disk_mib);
    if (s->disk_mib < least_disk)
        return err_set(e, ERR_INVALID, "shape with a disk of %u MiB: the template's file system needs %u", s->disk_mib,
                       least_disk);
    return 0;
}

static int check_quota(struct control *c, const char *project_id, struct err *e)
{
    uint64_t in_project, in_all;
    int r = store_sandbox_count_live(c->store, project_id, &in_project, e);
    if (r < 0 || (r = store_sandbox_count_live(c->store, NULL, &in_all, e)) < 0)
        return r;
    if (in_project >= c->config->max_sandboxes_per_project)
        return err_set(e, ERR_LIMIT, "the project has %llu sandboxes, which is as many as it may have",
                       (unsigned long long)in_project);
    if (in_all >= c->config->max_sandboxes)
        return err_set(e, ERR_LIMIT, "this host has %llu sandboxes, which is as many as it may have",
                       (unsigned long long)in_all);
    return 0;
}

int sandbox_create(struct control *c, const struct sandbox_spec *spec, char ret_sandbox[ID_SIZE], char ret_op[ID_SIZE],
                   struct err *e)
{
    if (c->ending)
        return err_set(e, ERR_UNAVAILABLE, "the platform is stopping");
    if (!c->ready)
        return err_set(e, ERR_UNAVAILABLE, "the platform is starting");
    const char *ref = spec->template_ref ? spec->template_ref : "base";
    uint64_t timeout_ms = spec->timeout_ms ? spec->timeout_ms : c->config->default_timeout_ms;
    _cleanup_store_template_ struct store_template *template = NULL;
    int r = check_timeout(c->config, timeout_ms, e);
    if (r < 0 || (r = store_env_check(spec->env_json, e)) < 0 ||
        (r = store_metadata_check(spec->metadata_json, e)) < 0 ||
        (r = store_template_resolve(c->store, spec->project_id, ref, &template, e)) < 0)
        return r;
    struct shape shape = spec->shape;
    if ((r = complete_shape(c, template->digest, &shape, e)) < 0 || (r = check_quota(c, spec->project_id, e)) < 0)
        return r;

    struct node_stats stats;
    node_stats_get(c->node, &stats);
    int64_t now = clock_wall_ms();
    struct store_sandbox sb = {
        .name = (char *)spec->name,
        .state = STORE_SANDBOX_CREATING,
        .template_digest = template->digest,
        .template_tag = str_eq(ref, template->digest) ? NULL : (char *)ref,
        .vcpus = shape.vcpus,
        .memory_mib = shape.mem_mib,
        .disk_mib = shape.disk_mib,
        .accelerator = (enum store_accelerator)stats.accelerator,
        .jail_missing = stats.jail_missing,
        .env_json = (char *)spec->env_json,
        .metadata_json = (char *)spec->metadata_json,
        .timeout_ms = timeout_ms,
        .created_at_ms = now,
        .expires_at_ms = now + (int64_t)timeout_ms,
        .slot = -1,
    };
    id_new(ID_SANDBOX, sb.id);
    snprintf(sb.project_id, sizeof(sb.project_id), "%s", spec->project_id);
    char op[ID_SIZE];
    _cleanup_store_tx_ struct store_tx tx = {0};
    if ((r = store_begin(c->store, &tx, e)) < 0 || (r = store_sandbox_insert(c->store, &sb, e)) < 0 ||
        (r = operation_open(c, spec->project_id, "sandbox.create", "sandbox", sb.id, spec->request_id, op, e)) < 0 ||
        (r = store_commit(&tx, e)) < 0)
        return r;
    memcpy(ret_sandbox, sb.id, ID_SIZE);
    memcpy(ret_op, op, ID_SIZE);
    return 0;
}

void sandbox_begin(struct control *c, const char *id)
{
    struct live *l = live_load(c, id, NULL);
    if (!l)
        return;
    l->asked_mono_ns = clock_mono_ns();
    deadline_add(c, l->expires_at_ms);
    live_event(c, id, LIFE_GONE, 0, NULL);
}

/* The newest delete of a sandbox that is deleted. */
static int old_delete(struct control *c, const char *id, char ret_op[ID_SIZE], struct err *e)
{
    _cleanup_store_operation_list_ struct store_operation_list ops = {0};
    struct store_operation_filter filter = {.target_id = id};
    int r = store_operation_list(c->store, NULL, &filter, NULL, &ops, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ops.count; i++)
        if (str_eq(ops.items[i]->kind, "sandbox.delete")) {
            memcpy(ret_op, ops.items[i]->id, ID_SIZE);
            return 0;
        }
    return err_set(e, ERR_GONE, "sandbox %s is deleted", id);
}

int sandbox_request(struct control *c, const char *project_id, const char *id, enum life_event request,
                    const char *request_id, char ret_op[ID_SIZE], struct err *e)
{
    if (!c->ready)
        return err_set(e, ERR_UNAVAILABLE, "the platform is starting");
    struct live *l = live_find_in(c, project_id, id);
    if (l)
        return live_request(l, request, request_id, ret_op, e);
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    int r = store_sandbox_get(c->store, project_id, id, &sb, e);
    if (r < 0)
        return r;
    if (request != LIFE_DELETE)
        return err_set(e, ERR_GONE, "cannot %s sandbox %s: it is %s", life_event_name(request), id,
                       store_sandbox_state_name(sb->state));
    if (sb->state == STORE_SANDBOX_DELETED)
        return old_delete(c, id, ret_op, e);
    if (!(l = live_load(c, id, e)))
        return ERR_NOT_FOUND;
    r = live_request(l, request, request_id, ret_op, e);
    if (r < 0 && (l = live_find(c, id)) && l->state == LIFE_FAILED)
        live_free(l);
    return r;
}

int sandbox_change(struct control *c, const char *project_id, const char *id, uint64_t timeout_ms,
                   const char *metadata_json, const char *name, struct err *e)
{
    int64_t now = clock_wall_ms();
    struct store_sandbox_change change = {.metadata_json = metadata_json, .name = name};
    int r;
    if (timeout_ms) {
        if ((r = check_timeout(c->config, timeout_ms, e)) < 0)
            return r;
        change.set_timeout = true;
        change.timeout_ms = timeout_ms;
        change.expires_at_ms = now + (int64_t)timeout_ms;
    }
    struct live *l = live_find_in(c, project_id, id);
    if (l && l->state == LIFE_DELETING)
        return err_set(e, ERR_STATE, "cannot change sandbox %s: it is deleting", id);
    if ((r = store_sandbox_update(c->store, project_id, id, &change, now, e)) < 0)
        return r;
    if (timeout_ms && l) {
        l->expires_at_ms = change.expires_at_ms;
        deadline_look(c);
    }
    return 0;
}

/* Why there is no live sandbox with this id. */
static int explain_missing(struct control *c, const char *project_id, const char *id, struct err *e)
{
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    int r = store_sandbox_get(c->store, project_id, id, &sb, e);
    if (r < 0)
        return r;
    if (sb->reason)
        return err_set(e, ERR_GONE, "sandbox %s is %s: %s", id, store_sandbox_state_name(sb->state), sb->reason);
    return err_set(e, ERR_GONE, "sandbox %s is %s", id, store_sandbox_state_name(sb->state));
}

int sandbox_require_running(struct control *c, const char *project_id, const char *id, struct err *e)
{
    struct live *l = live_find_in(c, project_id, id);
    if (!l || l->state == LIFE_FAILED || l->state == LIFE_DELETED)
        return explain_missing(c, project_id, id, e);
    if (!c->ready)
        return err_set(e, ERR_UNAVAILABLE, "the platform is starting");
    if (l->state == LIFE_DELETING)
        return err_set(e, ERR_GONE, "sandbox %s is being deleted", id);
    if (l->state != LIFE_RUNNING)
        return err_set(e, ERR_STATE, "sandbox %s is %s, not running", id, life_state_name(l->state));
    return 0;
}

struct guest *sandbox_guest(struct control *c, const char *project_id, const char *id, struct err *e)
{
    if (sandbox_require_running(c, project_id, id, e) < 0)
        return NULL;
    return node_guest(c->node, live_find(c, id)->machine_id, e);
}

int sandbox_machine(struct control *c, const char *project_id, const char *id, char ret_machine[ID_SIZE],
                    struct err *e)
{
    struct live *l = live_find_in(c, project_id, id);
    if (!l || l->state == LIFE_FAILED)
        return explain_missing(c, project_id, id, e);
    if (!l->machine_id[0])
        return err_set(e, ERR_STATE, "sandbox %s is %s and has no machine", id, life_state_name(l->state));
    memcpy(ret_machine, l->machine_id, ID_SIZE);
    return 0;
}

void sandbox_console(struct control *c, const char *project_id, const char *id, node_console_cb cb, void *arg)
{
    struct live *l = live_find_in(c, project_id, id);
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    struct err e = {0};
    char machine[ID_SIZE];
    if (l && l->state != LIFE_FAILED) {
        if (sandbox_machine(c, project_id, id, machine, &e) < 0)
            cb(arg, NULL, 0, &e);
        else
            node_console(c->node, machine, cb, arg);
        return;
    }
    const struct buf *kept = NULL;
    if (store_sandbox_get(c->store, project_id, id, &sb, &e) >= 0) {
        kept = sb->state == STORE_SANDBOX_FAILED ? node_console_kept(c->node, id) : NULL;
        if (!kept && sb->state == STORE_SANDBOX_FAILED)
            err_set(&e, ERR_GONE, "nothing is kept of the console of sandbox %s: its machine's process was ended from "
                                  "outside, the platform was restarted since, or others failed after it", id);
        else if (!kept)
            err_set(&e, ERR_GONE, "sandbox %s is %s", id, store_sandbox_state_name(sb->state));
    }
    if (kept)
        cb(arg, buf_data(kept), kept->len, NULL);
    else
        cb(arg, NULL, 0, &e);
}

bool sandbox_claim_source(struct control *c, const char *id, enum claim_source *ret_source)
{
    struct live *l = live_find(c, id);
    if (!l || !l->source_known)
        return false;
    *ret_source = l->source;
    return true;
}

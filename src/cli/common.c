/* What several commands do with the API (see common.h). */
#include "cli/common.h"

#include <signal.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/out.h"

/* Long enough for a create without pools; what takes longer shows progress. */
#define CREATE_WAIT "Prefer: wait=2"
#define CHANGE_WAIT "Prefer: wait=5"
#define DIGEST_LEN 64
#define DIGEST_PREFIX_MIN 6

int sandbox_resolve(struct api *api, const char *text, char ret_id[ID_SIZE], struct err *e)
{
    if (id_valid(ID_SANDBOX, text)) {
        memcpy(ret_id, text, ID_SIZE);
        return 0;
    }
    if (!*text || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(text) || strlen(text) > 63)
        return err_set(e, ERR_INVALID, "\"%s\" is neither the id nor the name of a sandbox", text);
    _cleanup_free_ char *path = api_path("/v1/sandboxes", "name", text, NULL);
    _cleanup_json_ json_t *items = NULL;
    int r = api_list(api, path, 2, &items, e);
    if (r < 0)
        return r;
    const char *id = json_text(json_array_get(items, 0), "id");
    if (json_array_size(items) > 1)
        return err_set(e, ERR_CONFLICT, "several sandboxes are called \"%s\"; use the id of one", text);
    if (!id || !id_valid(ID_SANDBOX, id))
        return err_set(e, ERR_NOT_FOUND, "no sandbox is called \"%s\"", text);
    memcpy(ret_id, id, ID_SIZE);
    return 0;
}

int template_resolve(struct api *api, const char *text, bool digest_needed, char **ret_ref, struct err *e)
{
    size_t len = strlen(text);
    bool hex = strspn(text, "0123456789abcdef") == len;
    if (!*text || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789._-") != len || len > DIGEST_LEN)
        return err_set(e, ERR_INVALID, "\"%s\" is neither a tag nor a digest", text);
    if ((hex && len == DIGEST_LEN) || (!digest_needed && !(hex && len >= DIGEST_PREFIX_MIN))) {
        *ret_ref = xstrdup(text);
        return 0;
    }
    _cleanup_json_ json_t *items = NULL;
    int r = api_list(api, "/v1/templates", 0, &items, e);
    if (r < 0)
        return r;
    const char *by_tag = NULL, *by_prefix = NULL;
    size_t i, k, found = 0;
    json_t *item, *tag;
    json_array_foreach(items, i, item)
    {
        const char *digest = json_text(item, "digest");
        if (digest && hex && len >= DIGEST_PREFIX_MIN && str_starts(digest, text)) {
            by_prefix = digest;
            found++;
        }
        json_array_foreach(json_object_get(item, "tags"), k, tag)
        {
            if (digest && json_is_string(tag) && str_eq(json_string_value(tag), text))
                by_tag = digest;
        }
    }
    if (!by_tag && found > 1)
        return err_set(e, ERR_CONFLICT, "several templates begin with \"%s\"", text);
    if (!by_tag && !by_prefix)
        return err_set(e, ERR_NOT_FOUND, "no template \"%s\"", text);
    *ret_ref = xstrdup(by_tag ? by_tag : by_prefix);
    return 0;
}

static bool interrupted(void)
{
    sigset_t set;
    return sigpending(&set) == 0 && (sigismember(&set, SIGINT) == 1 || sigismember(&set, SIGTERM) == 1);
}

static int operation_error(const json_t *operation, struct err *e)
{
    _cleanup_free_ char *problem = json_dumps(json_object_get(operation, "error"), JSON_COMPACT);
    return api_problem(500, problem ? problem : "", problem ? strlen(problem) : 0, e);
}

int operation_wait(struct cli *cli, struct api *api, const char *id, const char *text, uint64_t timeout_ms,
                   json_t **ret_operation, struct err *e)
{
    uint64_t started_ms = clock_mono_ms();
    struct progress progress;
    progress_init(&progress, cli);
    /* Short waits where someone watches the steps go by, long ones where nobody does. */
    _cleanup_free_ char *path = xasprintf("/v1/operations/%s?wait=%s", id, progress.on ? "1s" : "10s");
    progress_draw(&progress, text, 0, 0);
    for (;;) {
        _cleanup_json_ json_t *operation = NULL;
        int r = api_call(api, "GET", path, NULL, &operation, NULL, e);
        const char *state = json_text(operation, "state");
        if (r >= 0 && !state)
            r = err_set(e, ERR_PROTOCOL, "the server's answer has no state of operation %s", id);
        if (r < 0 || str_eq(state, "succeeded") || str_eq(state, "failed")) {
            progress_clear(&progress);
            if (r >= 0 && str_eq(state, "failed"))
                r = operation_error(operation, e);
            if (ret_operation && operation)
                *ret_operation = steal(operation);
            return r;
        }
        const char *what = json_text(operation, "progress.step");
        int64_t done = json_number(operation, "progress.done"), total = json_number(operation, "progress.total");
        progress_draw(&progress, what && *what ? what : text, (uint64_t)MAX(done, 0), (uint64_t)MAX(total, 0));
        if (interrupted())
            r = err_set(e, ERR_CANCELLED, "interrupted while waiting for operation %s", id);
        else if (timeout_ms && clock_mono_ms() - started_ms >= timeout_ms)
            r = err_set(e, ERR_TIMEOUT, "operation %s has not ended in time", id);
        if (r < 0) {
            progress_clear(&progress);
            return r;
        }
    }
}

/* The operation in `answer` is followed, and the sandbox in it replaced by its form at the end. */
static int finish_change(struct cli *cli, struct api *api, json_t *answer, const char *sandbox, const char *text,
                         struct err *e)
{
    const char *operation = json_text(answer, "operation.id");
    if (!operation || !id_valid(ID_OPERATION, operation))
        return err_set(e, ERR_PROTOCOL, "the server's answer has no operation");
    json_t *last = NULL, *now = NULL;
    int r = operation_wait(cli, api, operation, text, 0, &last, e);
    if (last)
        json_object_set_new(answer, "operation", last);
    if (r < 0)
        return r;
    _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s", sandbox);
    r = api_call(api, "GET", path, NULL, &now, NULL, e);
    if (r >= 0)
        json_object_set_new(answer, "sandbox", now);
    return r;
}

int sandbox_create(struct cli *cli, struct api *api, const json_t *request, bool wait, char ret_id[ID_SIZE],
                   json_t **ret_answer, struct err *e)
{
    _cleanup_json_ json_t *answer = NULL;
    long status = 0;
    ret_id[0] = '\0';
    int r = api_call_with(api, "POST", "/v1/sandboxes", request, wait ? CREATE_WAIT : NULL, &answer, &status, e);
    if (r < 0)
        return r;
    const char *id = json_text(answer, "sandbox.id");
    if (!id || !id_valid(ID_SANDBOX, id))
        return err_set(e, ERR_PROTOCOL, "the server's answer has no sandbox id");
    memcpy(ret_id, id, ID_SIZE);
    if (wait && status != 201)
        r = finish_change(cli, api, answer, ret_id, "creating the sandbox", e);
    if (r >= 0)
        *ret_answer = steal(answer);
    return r;
}

int sandbox_change(struct cli *cli, struct api *api, const char *method, const char *id, const char *verb, bool wait,
                   json_t **ret_answer, struct err *e)
{
    _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s%s%s", id, *verb ? "/" : "", verb);
    _cleanup_json_ json_t *answer = NULL;
    long status = 0;
    int r = api_call_with(api, method, path, NULL, wait ? CHANGE_WAIT : NULL, &answer, &status, e);
    if (r >= 0 && wait && status == 202)
        r = finish_change(cli, api, answer, id, *verb ? verb : "deleting", e);
    if (r >= 0 && ret_answer)
        *ret_answer = steal(answer);
    return r;
}

int create_request(const struct create_options *o, json_t **ret_request, struct err *e)
{
    json_t *env = NULL, *metadata = NULL, *shape = json_object(), *request = json_object();
    int r = cli_pairs(&o->env, "env", true, &env, e);
    if (r >= 0)
        r = cli_pairs(&o->metadata, "metadata", false, &metadata, e);
    if (o->template)
        json_object_set_new(request, "template", json_string(o->template));
    if (o->name)
        json_object_set_new(request, "name", json_string(o->name));
    if (o->vcpus)
        json_object_set_new(shape, "vcpus", json_integer((json_int_t)o->vcpus));
    if (o->memory)
        json_object_set_new(shape, "memory_mib", json_integer((json_int_t)(o->memory / MIB)));
    if (o->disk)
        json_object_set_new(shape, "disk_mib", json_integer((json_int_t)(o->disk / MIB)));
    if (json_object_size(shape) > 0)
        json_object_set(request, "shape", shape);
    if (json_object_size(env) > 0)
        json_object_set(request, "env", env);
    if (json_object_size(metadata) > 0)
        json_object_set(request, "metadata", metadata);
    if (o->timeout_ms)
        json_object_set_new(request, "timeout_ms", json_integer((json_int_t)o->timeout_ms));
    json_decref(env);
    json_decref(metadata);
    json_decref(shape);
    if (r < 0)
        json_decref(request);
    else
        *ret_request = request;
    return r;
}

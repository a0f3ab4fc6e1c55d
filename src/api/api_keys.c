/* /v1/keys and /v1/projects. */
#include "api/fields.h"
#include "api/render.h"

struct key_body {
    const char *name, *expires_at, *project;
    const json_t *scopes;
};

static bool valid_key_name(const char *s)
{
    for (; *s; s++)
        if (*s < ' ' || *s > '~')
            return false;
    return true;
}

static bool valid_scope(const char *s)
{
    return store_scope_by_name(s) != 0;
}

static bool valid_time(const char *s)
{
    int64_t ms;
    return clock_parse_ms(s, &ms);
}

static bool valid_project(const char *s)
{
    return id_valid(ID_PROJECT, s);
}

static const struct field key_fields[] = {
    {"name", FIELD_STRING, offsetof(struct key_body, name), FIELD_REQUIRED, 1, 64, valid_key_name,
     "1 to 64 printable ASCII characters"},
    {"scopes", FIELD_STRINGS, offsetof(struct key_body, scopes), FIELD_REQUIRED, 1, 16, valid_scope,
     "an array of scopes: sandboxes:read, sandboxes:write, execs, files, ports, templates:write, keys, admin"},
    {"expires_at", FIELD_STRING, offsetof(struct key_body, expires_at), FIELD_NULLABLE, .valid = valid_time,
     .expect = "a time such as \"2027-01-01T00:00:00.000Z\", or null"},
    {"project", FIELD_STRING, offsetof(struct key_body, project), .valid = valid_project,
     .expect = "the id of a project"},
};

/* The scopes that the list names; a fault when one is named twice. */
static uint32_t scopes_of(const json_t *list, struct faults *f)
{
    uint32_t scopes = 0;
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        uint32_t scope = store_scope_by_name(json_string_value(item));
        if (scopes & scope)
            faults_add(f, "/scopes", "\"%s\" is there twice", json_string_value(item));
        scopes |= scope;
    }
    return scopes;
}

void api_key_create(struct http_request *r, void *arg)
{
    struct api *api = arg;
    const struct caller *caller = caller_of(r);
    _cleanup_faults_ struct faults f = {0};
    _cleanup_store_api_key_ struct store_api_key *key = NULL;
    struct key_body body = {0};
    struct err e = {0};
    char secret[STORE_SECRET_SIZE], location[64];
    int64_t now = clock_wall_ms(), expires = 0;
    fields_parse(http_request_json(r), "", key_fields, ARRAY_LEN(key_fields), &body, &f);
    uint32_t scopes = body.scopes ? scopes_of(body.scopes, &f) : 0;
    if (body.expires_at && clock_parse_ms(body.expires_at, &expires) && expires <= now)
        faults_add(&f, "/expires_at", "expected a time to come");
    if (faults_reply(r, &f))
        return;
    int result = 0;
    bool admin = caller_may(caller, STORE_SCOPE_ADMIN);
    if (scopes & ~caller->scopes && !admin)
        result = err_set(&e, ERR_FORBIDDEN, "the key lacks a scope that it would give on");
    else if (body.project && !str_eq(body.project, caller->project_id) && !admin)
        result = err_set(&e, ERR_FORBIDDEN, "a key of another project needs the scope admin");
    if (result >= 0)
        result = store_api_key_make(api->store, body.project ? body.project : caller->project_id, body.name, scopes,
                                    expires, now, secret, &key, &e);
    if (result < 0) {
        http_reply_error(r, &e);
        return;
    }
    snprintf(location, sizeof(location), "/v1/keys/%s", key->id);
    http_reply_header(r, "Location", location);
    http_reply_json(r, 201, json_pack("{s:o, s:s}", "key", render_key(key), "secret", secret));
    wipe(secret, sizeof(secret));
}

void api_key_get(struct http_request *r, void *arg)
{
    struct api *api = arg;
    _cleanup_store_api_key_ struct store_api_key *key = NULL;
    struct err e = {0};
    if (store_api_key_get(api->store, project_of(r), http_request_param(r, "key_id"), &key, &e) < 0)
        http_reply_error(r, &e);
    else
        http_reply_json(r, 200, render_key(key));
}

void api_key_list(struct http_request *r, void *arg)
{
    struct api *api = arg;
    struct store_page page;
    _cleanup_store_api_key_list_ struct store_api_key_list list = {0};
    bool all = false;
    struct err e = {0};
    int64_t now = clock_wall_ms();
    if (http_query_only(http_request_query(r), (const char *[]){LIST_PARAMETERS, "all", NULL}, &e) < 0 ||
        page_of(r, &page, &e) < 0 || http_query_bool(http_request_query(r), "all", &all, &e) < 0 ||
        store_api_key_list(api->store, project_of(r), &page, &list, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    json_t *items = json_array();
    for (size_t i = 0; i < list.count; i++) {
        const struct store_api_key *k = list.items[i];
        if (all || (!k->revoked_at_ms && (!k->expires_at_ms || k->expires_at_ms > now)))
            json_array_append_new(items, render_key(k));
    }
    reply_list(r, items, list.next_cursor);
}

void api_key_revoke(struct http_request *r, void *arg)
{
    struct api *api = arg;
    struct err e = {0};
    if (store_api_key_revoke(api->store, project_of(r), http_request_param(r, "key_id"), clock_wall_ms(), &e) < 0)
        http_reply_error(r, &e);
    else
        http_reply_empty(r, 204);
}

/* ---- projects ---- */

void api_project_create(struct http_request *r, void *arg)
{
    static const struct field fields[] = {
        {"name", FIELD_STRING, 0, FIELD_REQUIRED, .valid = valid_name, .expect = EXPECT_NAME}};
    struct api *api = arg;
    _cleanup_faults_ struct faults f = {0};
    _cleanup_store_project_ struct store_project *project = NULL;
    const char *name = NULL;
    struct err e = {0};
    char location[64];
    fields_parse(http_request_json(r), "", fields, ARRAY_LEN(fields), &name, &f);
    if (faults_reply(r, &f))
        return;
    if (store_project_make(api->store, name, clock_wall_ms(), &project, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    snprintf(location, sizeof(location), "/v1/projects/%s", project->id);
    http_reply_header(r, "Location", location);
    http_reply_json(r, 201, render_project(project));
}

void api_project_get(struct http_request *r, void *arg)
{
    struct api *api = arg;
    _cleanup_store_project_ struct store_project *project = NULL;
    struct err e = {0};
    if (store_project_get(api->store, http_request_param(r, "project_id"), &project, &e) < 0)
        http_reply_error(r, &e);
    else
        http_reply_json(r, 200, render_project(project));
}

void api_project_list(struct http_request *r, void *arg)
{
    struct api *api = arg;
    struct store_page page;
    _cleanup_store_project_list_ struct store_project_list list = {0};
    struct err e = {0};
    if (http_query_only(http_request_query(r), (const char *[]){LIST_PARAMETERS, NULL}, &e) < 0 ||
        page_of(r, &page, &e) < 0 || store_project_list(api->store, &page, &list, &e) < 0) {
        http_reply_error(r, &e);
        return;
    }
    json_t *items = json_array();
    for (size_t i = 0; i < list.count; i++)
        json_array_append_new(items, render_project(list.items[i]));
    reply_list(r, items, list.next_cursor);
}

/* Keys and attach tokens of requests. */
#include "api/caller.h"

#include "api/api_internal.h"
#include "store/exec.h"

#include <strings.h>

bool caller_may(const struct caller *c, uint32_t scope)
{
    if (scope == STORE_SCOPE_SANDBOXES_READ)
        scope |= STORE_SCOPE_SANDBOXES_WRITE; /* writing includes reading */
    return (c->scopes & (scope | STORE_SCOPE_ADMIN)) != 0;
}

const struct caller *caller_of(const struct http_request *r)
{
    return http_request_data(r);
}

static void destroy(void *data)
{
    free(data);
}

/* The secret that the request carries, or NULL. */
static const char *secret_of(struct http_request *r, unsigned flags)
{
    const char *header = http_request_header(r, "Authorization"), *space_key = NULL, *token = NULL;
    if (flags & API_SPACE_KEY)
        space_key = http_request_header(r, "Space-Key");
    if (space_key)
        return space_key;
    if ((flags & API_TOKEN) && !header && http_query_get(http_request_query(r), "token", &token, NULL) > 0)
        return token;
    if (!header || strncasecmp(header, "Bearer ", 7) != 0)
        return NULL;
    header += 7;
    return header + strspn(header, " ");
}

static int by_token(struct api *api, struct http_request *r, const char *token, struct caller *c, struct err *e)
{
    const char *sandbox = http_request_param(r, "sandbox_id"), *exec = http_request_param(r, "exec_id");
    _cleanup_store_exec_ struct store_exec *x = NULL;
    if (!sandbox || !exec)
        return err_set(e, ERR_UNAUTHENTICATED, "an attach token is good for its exec alone");
    int result = store_exec_verify_token(api->store, sandbox, exec, token, clock_wall_ms(), &x, e);
    if (result < 0)
        return result;
    memcpy(c->project_id, x->project_id, ID_SIZE);
    c->scopes = STORE_SCOPE_EXECS;
    return 0;
}

int caller_authorize(struct http_request *r, void *arg, struct err *e)
{
    struct api *api = arg;
    unsigned flags = http_request_route(r)->flags;
    if (flags & API_PUBLIC)
        return 0;
    struct caller found = {0};
    struct store_caller key;
    const char *secret = secret_of(r, flags);
    if (!secret)
        return err_set(e, ERR_UNAUTHENTICATED, "this call needs \"Authorization: Bearer sk_space_…\"");
    int result;
    if ((flags & API_TOKEN) && str_starts(secret, STORE_TOKEN_PREFIX)) {
        if ((result = by_token(api, r, secret, &found, e)) < 0)
            return result;
    } else {
        if ((result = store_api_key_verify(api->store, secret, clock_wall_ms(), &key, e)) < 0)
            return result;
        memcpy(found.key_id, key.key_id, ID_SIZE);
        memcpy(found.project_id, key.project_id, ID_SIZE);
        found.scopes = key.scopes;
    }
    uint32_t scope = flags & STORE_SCOPE_ALL;
    if (!(flags & API_ANY) && !caller_may(&found, scope))
        return err_set(e, ERR_FORBIDDEN, "the key lacks the scope %s", store_scope_name(scope));
    struct caller *c = NEW(struct caller);
    *c = found;
    http_request_set_data(r, c, destroy);
    return 0;
}

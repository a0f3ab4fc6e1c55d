/* Kept answers. */
#include "api/idempotency.h"

void idempotency_done(struct idempotency *i)
{
    store_idempotency_answer_done(&i->kept);
}

static bool key_valid(const char *key)
{
    size_t len = strlen(key);
    for (size_t i = 0; i < len; i++)
        if (key[i] < '!' || key[i] > '~')
            return false;
    return len >= 1 && len <= 128;
}

int idempotency_begin(struct http_request *r, struct api *api, struct idempotency *ret, struct err *e)
{
    *ret = (struct idempotency){.key = http_request_header(r, "Idempotency-Key")};
    if (!ret->key)
        return 0;
    if (!key_valid(ret->key))
        return err_set(e, ERR_INVALID, "header \"Idempotency-Key\": expected 1 to 128 visible ASCII characters");
    memcpy(ret->project_id, project_of(r), ID_SIZE);
    size_t len = 0;
    const void *body = http_request_json_text(r, &len);
    uint8_t hash[STORE_HASH_LEN];
    store_request_hash(http_request_method(r), http_request_path(r), body ? body : "", body ? len : 0, hash);
    int result = store_idempotency_begin(api->store, ret->project_id, ret->key, hash, api->config->idempotency_ttl_ms,
                                         clock_wall_ms(), &ret->kept, e);
    if (result < 0)
        return result;
    if (result == STORE_IDEMPOTENCY_RUNNING) {
        http_reply_header(r, "Retry-After", "1");
        return err_set(e, ERR_CONFLICT, "the first call with this Idempotency-Key is still being worked on");
    }
    if (result == STORE_IDEMPOTENCY_REPLAY) {
        http_reply_header(r, "Idempotency-Replayed", "true");
        return 1;
    }
    return 0;
}

int idempotency_keep(struct api *api, const struct idempotency *i, int status, const char *location, json_t *body,
                     const char *target_id, struct err *e)
{
    if (!i->key)
        return 0;
    char *text = json_dumps(body, JSON_COMPACT);
    struct store_idempotency_answer answer = {
        .status = status,
        .location = (char *)location,
        .body = text,
        .body_len = strlen(text),
        .target_id = (char *)target_id,
        .created_at_ms = clock_wall_ms(),
    };
    int result = store_idempotency_finish(api->store, i->project_id, i->key, &answer, e);
    free(text);
    return result;
}

void idempotency_forget(struct api *api, const struct idempotency *i)
{
    if (i->key)
        store_idempotency_forget(api->store, i->project_id, i->key, NULL);
}

void idempotency_replay(struct http_request *r, const struct idempotency *i)
{
    if (i->kept.location)
        http_reply_header(r, "Location", i->kept.location);
    http_reply_data(r, i->kept.status, "application/json", i->kept.body, i->kept.body_len);
}

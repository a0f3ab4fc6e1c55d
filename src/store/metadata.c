/* Metadata and environment of a sandbox: JSON objects of strings, with bounds; metadata also as rows for filters. */
#include "store/internal.h"
#include "store/metadata.h"
#include "store/sandbox.h"

#include "base/str.h"

struct pair_limits {
    const char *what;
    size_t json_max, pairs_max, key_max, value_max;
};
static const struct pair_limits metadata_limits = {"metadata", STORE_METADATA_JSON_MAX, STORE_METADATA_PAIRS_MAX,
                                                   STORE_METADATA_KEY_MAX, STORE_METADATA_VALUE_MAX};
static const struct pair_limits env_limits = {"env", STORE_ENV_JSON_MAX, STORE_ENV_PAIRS_MAX, STORE_ENV_KEY_MAX,
                                              STORE_ENV_JSON_MAX};

static int parse(const struct pair_limits *limits, const char *json, json_t **ret_object, struct err *e)
{
    json_error_t problem;
    if (!json)
        json = "{}";
    size_t len = strnlen(json, limits->json_max + 1);
    if (len > limits->json_max)
        return err_set(e, ERR_TOO_LARGE, "%s: larger than %zu bytes", limits->what, limits->json_max);
    _cleanup_(json_decref_cleanup) json_t *object = json_loadb(json, len, JSON_REJECT_DUPLICATES, &problem);
    if (!object || !json_is_object(object))
        return err_set(e, ERR_INVALID, "%s: not a JSON object%s%s", limits->what, object ? "" : ": ",
                       object ? "" : problem.text);
    if (json_object_size(object) > limits->pairs_max)
        return err_set(e, ERR_TOO_LARGE, "%s: more than %zu entries", limits->what, limits->pairs_max);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        int r = check_text(limits->what, key, 1, limits->key_max, e);
        if (r < 0)
            return r;
        if (!json_is_string(value))
            return err_set(e, ERR_INVALID, "%s: the value of \"%.64s\" is not a string", limits->what, key);
        if (json_string_length(value) > limits->value_max)
            return err_set(e, ERR_TOO_LARGE, "%s: the value of \"%.64s\" is longer than %zu bytes", limits->what, key,
                           limits->value_max);
    }
    *ret_object = steal(object);
    return 0;
}

int metadata_parse(const char *json, json_t **ret_object, struct err *e)
{
    return parse(&metadata_limits, json, ret_object, e);
}

int store_metadata_check(const char *json, struct err *e)
{
    _cleanup_(json_decref_cleanup) json_t *object = NULL;
    return parse(&metadata_limits, json, &object, e);
}

int store_env_check(const char *json, struct err *e)
{
    _cleanup_(json_decref_cleanup) json_t *object = NULL;
    int r = parse(&env_limits, json, &object, e);
    const char *key;
    json_t *value;
    if (r < 0)
        return r;
    json_object_foreach(object, key, value)
        if (strchr(key, '='))
            return err_set(e, ERR_INVALID, "env: the name \"%.64s\" has a '='", key);
    return 0;
}

int metadata_write(struct store *s, const char *sandbox_id, json_t *object, struct err *e)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        int r = statement_run(s, "INSERT INTO sandbox_metadata (sandbox_id, key, value) VALUES (?, ?, ?)",
                              BINDS(B_TEXT(sandbox_id), B_TEXT(key), B_TEXT(json_string_value(value))), e);
        if (r < 0)
            return r;
    }
    return 0;
}

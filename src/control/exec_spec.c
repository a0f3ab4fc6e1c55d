/* JSON to struct guest_exec_spec. */
#include "control/exec_spec.h"

static uint64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
}

int exec_spec_init(struct exec_spec *ret_spec, const char *spec_json, struct err *e)
{
    json_t *json = spec_json ? json_loads(spec_json, 0, NULL) : NULL;
    if (!json)
        return err_set(e, ERR_INTERNAL, "the request of an exec cannot be read");
    *ret_spec = (struct exec_spec){.json = json};
    const json_t *command = json_object_get(json, "command"), *env = json_object_get(json, "env"),
                 *terminal = json_object_get(json, "terminal");
    if (json_is_array(command)) {
        ret_spec->argv = xcalloc(json_array_size(command) + 1, sizeof(char *));
        for (size_t i = 0; i < json_array_size(command); i++)
            ret_spec->argv[i] = json_string_value(json_array_get(command, i));
    }
    if (json_is_object(env)) {
        const char *key;
        json_t *value;
        ret_spec->env = xcalloc(json_object_size(env) + 1, sizeof(char *));
        json_object_foreach((json_t *)env, key, value)
            ret_spec->env[ret_spec->env_count++] = xasprintf("%s=%s", key, json_string_value(value));
    }
    const char *user = json_string_value(json_object_get(json, "user"));
    ret_spec->guest = (struct guest_exec_spec){
        .argv = ret_spec->argv,
        .shell = json_string_value(json_object_get(json, "shell")),
        .user = user ? user : "root",
        .cwd = json_string_value(json_object_get(json, "cwd")),
        .env = (const char *const *)ret_spec->env,
        .terminal = json_is_object(terminal),
        .rows = (uint16_t)number(terminal, "rows"),
        .cols = (uint16_t)number(terminal, "cols"),
        .stdin_open = json_is_true(json_object_get(json, "stdin")) || json_is_object(terminal),
        .buffer_bytes = number(json, "buffer_bytes"),
        .timeout_ms = number(json, "timeout_ms"),
    };
    return 0;
}

void exec_spec_done(struct exec_spec *s)
{
    for (size_t i = 0; i < s->env_count; i++)
        free(s->env[i]);
    free(s->env);
    free(s->argv);
    json_decref(s->json);
    *s = (struct exec_spec){0};
}

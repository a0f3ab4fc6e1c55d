/* Bodies of execs and runs. */
#include "api/exec_body.h"

#include "api/render.h"
#include "wire/agent_protocol.h"

#define COMMAND_BYTES_MAX (256 * 1024)
#define ENV_BYTES_MAX (64 * 1024)
#define RUN_TIMEOUT_DEFAULT_MS 60000
#define RUN_OUTPUT_DEFAULT 1048576

#define AT(member) offsetof(struct exec_body, member)

#define COMMON_FIELDS                                                                                                  \
    {"command", FIELD_STRINGS, AT(command), .min = 1, .max = 1024, .value_max = 131072,                                \
     .expect = "an array of 1 to 1024 strings of at most 131072 bytes"},                                               \
    {"shell", FIELD_STRING, AT(shell), .min = 1, .max = 131072},                                                       \
    {"user", FIELD_STRING, AT(user), .valid = valid_guest_user, .expect = EXPECT_USER},                                \
    {"cwd", FIELD_STRING, AT(cwd), .valid = valid_guest_path, .expect = EXPECT_PATH},                                  \
    {"env", FIELD_MAP, AT(env), .max = 128, .valid = valid_env_name, .value_max = 32768}

static const struct field exec_fields[] = {
    COMMON_FIELDS,
    {"stdin", FIELD_BOOL, AT(stdin_open)},
    {"terminal", FIELD_OBJECT, AT(terminal), FIELD_NULLABLE, .expect = "an object with rows and cols, or null"},
    {"buffer_bytes", FIELD_INTEGER, AT(buffer_bytes), .min = AGENT_BUFFER_MIN, .max = AGENT_BUFFER_MAX},
    {"timeout_ms", FIELD_INTEGER, AT(timeout_ms), FIELD_NULLABLE, 1, 86400000},
};

static const struct field run_fields[] = {
    COMMON_FIELDS,
    {"stdin_data", FIELD_STRING, AT(stdin_data)},
    {"encoding", FIELD_STRING, AT(encoding)},
    {"max_output_bytes", FIELD_INTEGER, AT(max_output_bytes), .min = 0, .max = 16777216},
    {"timeout_ms", FIELD_INTEGER, AT(timeout_ms), .min = 1, .max = 3600000},
};

static void check_common(const struct exec_body *b, struct faults *f)
{
    size_t total = 0, i;
    json_t *value;
    const char *key;
    if (!b->command == !b->shell)
        faults_add(f, "", "exactly one of command and shell is needed");
    if (b->command) {
        json_array_foreach(b->command, i, value)
            total += json_string_length(value) + 1;
        if (total > COMMAND_BYTES_MAX)
            faults_add(f, "/command", "expected at most %d bytes together", COMMAND_BYTES_MAX);
        if (json_string_length(json_array_get(b->command, 0)) == 0)
            faults_add(f, "/command/0", "expected a program");
    }
    if (b->env) {
        total = 0;
        json_object_foreach((json_t *)b->env, key, value)
            total += strlen(key) + json_string_length(value) + 2;
        if (total > ENV_BYTES_MAX)
            faults_add(f, "/env", "expected at most %d bytes together", ENV_BYTES_MAX);
    }
}

void exec_body_parse(const json_t *json, struct exec_body *ret_body, struct faults *f)
{
    struct terminal_body terminal;
    *ret_body = (struct exec_body){0};
    fields_parse(json, "", exec_fields, ARRAY_LEN(exec_fields), ret_body, f);
    if (ret_body->terminal)
        terminal_body_parse(ret_body->terminal, "/terminal", &terminal, f);
    check_common(ret_body, f);
}

void run_body_parse(const json_t *json, struct exec_body *ret_body, struct faults *f)
{
    *ret_body = (struct exec_body){
        .encoding = "utf-8", .max_output_bytes = RUN_OUTPUT_DEFAULT, .timeout_ms = RUN_TIMEOUT_DEFAULT_MS};
    fields_parse(json, "", run_fields, ARRAY_LEN(run_fields), ret_body, f);
    if (!str_eq(ret_body->encoding, "utf-8") && !str_eq(ret_body->encoding, "base64"))
        faults_add(f, "/encoding", "expected \"utf-8\" or \"base64\"");
    check_common(ret_body, f);
}

char *exec_body_spec(const struct exec_body *b, uint64_t buffer_default)
{
    json_t *spec = json_object();
    if (b->command)
        json_object_set(spec, "command", (json_t *)b->command);
    if (b->shell)
        json_object_set_new(spec, "shell", json_string(b->shell));
    if (b->user)
        json_object_set_new(spec, "user", json_string(b->user));
    if (b->cwd)
        json_object_set_new(spec, "cwd", json_string(b->cwd));
    if (b->env)
        json_object_set(spec, "env", (json_t *)b->env);
    if (b->stdin_open || b->stdin_data)
        json_object_set_new(spec, "stdin", json_true());
    if (b->terminal)
        json_object_set(spec, "terminal", (json_t *)b->terminal);
    json_object_set_new(spec, "buffer_bytes",
                        json_integer(b->buffer_bytes ? b->buffer_bytes : (json_int_t)buffer_default));
    if (b->timeout_ms)
        json_object_set_new(spec, "timeout_ms", json_integer(b->timeout_ms));
    char *text = json_dumps(spec, JSON_COMPACT);
    json_decref(spec);
    return text;
}

void terminal_body_parse(const json_t *json, const char *at, struct terminal_body *ret_body, struct faults *f)
{
    static const struct field fields[] = {
        {"rows", FIELD_INTEGER, offsetof(struct terminal_body, rows), FIELD_REQUIRED, 1, 1000},
        {"cols", FIELD_INTEGER, offsetof(struct terminal_body, cols), FIELD_REQUIRED, 1, 1000},
    };
    *ret_body = (struct terminal_body){0};
    fields_parse(json, at, fields, ARRAY_LEN(fields), ret_body, f);
}

int signal_body_parse(const json_t *value, const char *at, struct faults *f)
{
    int number = 0;
    if (json_is_string(value))
        number = signal_number(json_string_value(value));
    else if (json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= 64)
        number = (int)json_integer_value(value);
    if (!number)
        faults_add(f, at, "expected a signal: a name without SIG, or a number from 1 to 64");
    return number;
}

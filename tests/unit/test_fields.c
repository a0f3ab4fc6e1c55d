/* JSON bodies by tables (src/api/fields.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "api/exec_body.h"
#include "api/fields.h"
#include "base/str.h"

struct body {
    const char *name;
    int64_t count;
    bool flag;
    const json_t *list, *map, *object;
};

static const struct field fields[] = {
    {"name", FIELD_STRING, offsetof(struct body, name), FIELD_REQUIRED, .valid = valid_name, .expect = "a name"},
    {"count", FIELD_INTEGER, offsetof(struct body, count), FIELD_NULLABLE, 1, 8},
    {"flag", FIELD_BOOL, offsetof(struct body, flag)},
    {"list", FIELD_STRINGS, offsetof(struct body, list), .min = 1, .max = 2},
    {"map", FIELD_MAP, offsetof(struct body, map), .max = 2, .valid = valid_env_name, .value_max = 4},
    {"object", FIELD_OBJECT, offsetof(struct body, object)},
};

/* The faults of a body as "pointer: detail" lines; freed by the caller. */
static char *faults_of(const char *text, struct body *ret_body)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    struct faults f = {0};
    *ret_body = (struct body){.count = 5};
    fields_parse(json, "", fields, ARRAY_LEN(fields), ret_body, &f);
    struct buf out;
    buf_init(&out, 4096);
    size_t i;
    json_t *item;
    json_array_foreach(f.list, i, item)
        buf_printf(&out, "%s: %s\n", json_string_value(json_object_get(item, "field")),
                   json_string_value(json_object_get(item, "detail")));
    if (f.list)
        assert_int_equal(f.first.code, ERR_INVALID);
    faults_done(&f);
    /* Values are borrowed from the document: only whether they were there is looked at afterwards. */
    json_decref(json);
    char *result = buf_steal_str(&out);
    buf_done(&out);
    return result;
}

static void values_go_where_the_table_says(void **state)
{
    (void)state;
    struct body b;
    _cleanup_free_ char *none = faults_of("{\"name\":\"a-1\",\"count\":8,\"flag\":true,\"list\":[\"x\"],\"map\":{\"A\":\"b\"},"
                                          "\"object\":{}}", &b);
    assert_string_equal(none, "");
    assert_int_equal(b.count, 8);
    assert_true(b.flag && b.name && b.list && b.map && b.object);
    _cleanup_free_ char *defaults = faults_of("{\"name\":\"a\",\"count\":null}", &b);
    assert_string_equal(defaults, "");
    assert_int_equal(b.count, 5);
}

static void every_fault_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *faults;
    } cases[] = {
        {"{}", "/name: is required\n"},
        {"{\"name\":\"A\"}", "/name: expected a name\n"},
        {"{\"name\":7}", "/name: expected a name\n"},
        {"{\"name\":\"a\",\"nmae\":1}", "/nmae: there is no such member here\n"},
        {"{\"name\":\"a\",\"count\":9}", "/count: expected an integer from 1 to 8\n"},
        {"{\"name\":\"a\",\"count\":1.5}", "/count: expected an integer from 1 to 8\n"},
        {"{\"name\":\"a\",\"count\":\"1\"}", "/count: expected an integer from 1 to 8\n"},
        {"{\"name\":\"a\",\"flag\":0}", "/flag: expected true or false\n"},
        {"{\"name\":\"a\",\"list\":[]}", "/list: expected an array of 1 to 2 strings\n"},
        {"{\"name\":\"a\",\"list\":[1]}", "/list: expected an array of 1 to 2 strings\n"},
        {"{\"name\":\"a\",\"map\":{\"A B\":\"c\"}}", "/map: \"A B\" is no valid name here\n"},
        {"{\"name\":\"a\",\"map\":{\"A\":\"12345\"}}", "/map: \"A\": expected a string of at most 4 bytes\n"},
        {"{\"name\":\"a\",\"map\":{\"A\":null}}", "/map: \"A\": expected a string of at most 4 bytes\n"},
        {"{\"name\":\"a\",\"map\":{\"A\":\"1\",\"B\":\"2\",\"C\":\"3\"}}", "/map: expected an object of at most 2 strings\n"},
        {"{\"name\":\"a\",\"object\":[]}", "/object: expected an object\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct body b;
        _cleanup_free_ char *faults = faults_of(cases[i].text, &b);
        assert_string_equal(faults, cases[i].faults);
    }
}

static void a_zero_byte_in_a_string_is_a_fault(void **state)
{
    (void)state;
    json_t *json = json_loads("{\"name\":\"a\\u0000b\"}", JSON_ALLOW_NUL, NULL);
    struct faults f = {0};
    struct body b = {0};
    fields_parse(json, "", fields, ARRAY_LEN(fields), &b, &f);
    assert_non_null(f.list);
    assert_null(b.name);
    faults_done(&f);
    json_decref(json);
}

static void many_faults_are_bounded(void **state)
{
    (void)state;
    json_t *json = json_object();
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "m%d", i);
        json_object_set_new(json, name, json_true());
    }
    struct faults f = {0};
    struct body b = {0};
    fields_parse(json, "", fields, ARRAY_LEN(fields), &b, &f);
    assert_true(json_array_size(f.list) <= 16);
    faults_done(&f);
    json_decref(json);
}

static void checks(void **state)
{
    (void)state;
    assert_true(valid_name("a") && valid_name("a-b2") && !valid_name("") && !valid_name("-a") && !valid_name("a-") &&
                !valid_name("A") && !valid_name("a_b"));
    assert_true(valid_env_name("_A9") && !valid_env_name("9A") && !valid_env_name("A=B") && !valid_env_name(""));
    assert_true(valid_guest_user("root") && valid_guest_user("1000") && !valid_guest_user("../x") && !valid_guest_user(""));
    assert_true(valid_guest_path("/") && !valid_guest_path("a") && !valid_guest_path(""));
    assert_true(valid_file_mode("644") && valid_file_mode("0755") && !valid_file_mode("8") && !valid_file_mode("07777"));
    assert_true(valid_duration("30s") && valid_duration("5") && !valid_duration("soon"));
}

static void an_exec_becomes_its_stored_form(void **state)
{
    (void)state;
    json_t *json = json_loads("{\"command\":[\"a\",\"b\"],\"env\":{\"A\":\"b\"},\"stdin\":true,\"timeout_ms\":null}", 0, NULL);
    struct exec_body body;
    struct faults f = {0};
    exec_body_parse(json, &body, &f);
    assert_null(f.list);
    _cleanup_free_ char *spec = exec_body_spec(&body, 65536);
    assert_string_equal(spec, "{\"command\":[\"a\",\"b\"],\"env\":{\"A\":\"b\"},\"stdin\":true,\"buffer_bytes\":65536}");
    json_decref(json);
    static const char *const bad[] = {"{}", "{\"command\":[\"a\"],\"shell\":\"b\"}", "{\"command\":[\"\"]}",
                                      "{\"shell\":\"a\",\"terminal\":{\"rows\":1}}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        json = json_loads(bad[i], 0, NULL);
        exec_body_parse(json, &body, &f);
        assert_non_null(f.list);
        faults_done(&f);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_go_where_the_table_says),
        cmocka_unit_test(every_fault_is_named),
        cmocka_unit_test(a_zero_byte_in_a_string_is_a_fault),
        cmocka_unit_test(many_faults_are_bounded),
        cmocka_unit_test(checks),
        cmocka_unit_test(an_exec_becomes_its_stored_form),
    };
    return cmocka_run_group_tests_name("fields", tests, NULL, NULL);
}

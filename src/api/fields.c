/* The tables of fields.h at work. */
#include "api/fields.h"

#include "api/reply.h"
#include "base/str.h"

#include <stdarg.h>

#define FAULTS_MAX 16

void faults_done(struct faults *f)
{
    json_decref(f->list);
    f->list = NULL;
}

void faults_add(struct faults *f, const char *pointer, const char *format, ...)
{
    char detail[400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(detail, sizeof(detail), format, ap);
    va_end(ap);
    if (!f->list) {
        f->list = json_array();
        err_set(&f->first, ERR_INVALID, "\"%s\": %s", pointer, detail);
    }
    /* A name that the client sent can be cut in the middle of a character: such a fault has no entry of its own. */
    if (json_array_size(f->list) < FAULTS_MAX)
        json_array_append_new(f->list, json_pack("{s:s, s:s}", "field", pointer, "detail", detail));
}

bool faults_reply(struct http_request *r, struct faults *f)
{
    if (!f->list)
        return false;
    reply_problem(r, &f->first, json_pack("{s:O}", "errors", f->list));
    return true;
}

/* "expected an integer from 1 to 8" */
static void add_expected(struct faults *f, const char *pointer, const struct field *field)
{
    const char *what = field->expect;
    if (what) {
        faults_add(f, pointer, "expected %s", what);
        return;
    }
    switch (field->kind) {
    case FIELD_STRING:
        if (field->max)
            faults_add(f, pointer, "expected a string of %lld to %lld bytes", (long long)field->min,
                       (long long)field->max);
        else
            faults_add(f, pointer, "expected a string");
        break;
    case FIELD_INTEGER:
        faults_add(f, pointer, "expected an integer from %lld to %lld", (long long)field->min, (long long)field->max);
        break;
    case FIELD_BOOL:
        faults_add(f, pointer, "expected true or false");
        break;
    case FIELD_STRINGS:
        faults_add(f, pointer, "expected an array of %lld to %lld strings", (long long)field->min,
                   (long long)field->max);
        break;
    case FIELD_MAP:
    case FIELD_MAP_OR_NULLS:
        faults_add(f, pointer, "expected an object of at most %lld strings", (long long)field->max);
        break;
    default:
        faults_add(f, pointer, "expected an object");
    }
}

static bool has_nul(const json_t *string)
{
    return strlen(json_string_value(string)) != json_string_length(string);
}

static bool string_fits(const json_t *value, const struct field *field)
{
    if (!json_is_string(value) || has_nul(value))
        return false;
    int64_t len = (int64_t)json_string_length(value);
    return len >= field->min && (!field->max || len <= field->max) &&
           (!field->valid || field->valid(json_string_value(value)));
}

static bool strings_fit(const json_t *value, const struct field *field)
{
    size_t i;
    json_t *item;
    if (!json_is_array(value) || (int64_t)json_array_size(value) < field->min ||
        (field->max && (int64_t)json_array_size(value) > field->max))
        return false;
    json_array_foreach(value, i, item)
        if (!json_is_string(item) || has_nul(item) || (field->valid && !field->valid(json_string_value(item))) ||
            (field->value_max && (int64_t)json_string_length(item) > field->value_max))
            return false;
    return true;
}

static bool map_fits(const json_t *value, const struct field *field, const char *at, struct faults *f)
{
    const char *name;
    json_t *item;
    if (!json_is_object(value) || (field->max && (int64_t)json_object_size(value) > field->max))
        return false;
    json_object_foreach((json_t *)value, name, item) {
        bool is_null = field->kind == FIELD_MAP_OR_NULLS && json_is_null(item);
        if (field->valid && !field->valid(name)) {
            faults_add(f, at, "\"%.64s\" is no valid name here", name);
            return true;
        }
        if (!is_null && (!json_is_string(item) || has_nul(item) ||
                         (field->value_max && (int64_t)json_string_length(item) > field->value_max))) {
            faults_add(f, at, "\"%.64s\": expected a string of at most %lld bytes", name,
                       (long long)field->value_max);
            return true;
        }
    }
    return true;
}

/* Check one member and put its value where it belongs. */
static void parse_field(const json_t *value, const char *pointer, const struct field *field, void *out,
                        struct faults *f)
{
    void *place = (char *)out + field->offset;
    bool good = true;
    if (json_is_null(value) && (field->flags & FIELD_NULLABLE) && field->kind != FIELD_ANY)
        return;
    switch (field->kind) {
    case FIELD_STRING:
        if ((good = string_fits(value, field)))
            *(const char **)place = json_string_value(value);
        break;
    case FIELD_INTEGER:
        good = json_is_integer(value) && json_integer_value(value) >= field->min &&
               json_integer_value(value) <= field->max;
        if (good)
            *(int64_t *)place = json_integer_value(value);
        break;
    case FIELD_BOOL:
        if ((good = json_is_boolean(value)))
            *(bool *)place = json_is_true(value);
        break;
    case FIELD_STRINGS:
        if ((good = strings_fit(value, field)))
            *(const json_t **)place = value;
        break;
    case FIELD_MAP:
    case FIELD_MAP_OR_NULLS:
        if ((good = map_fits(value, field, pointer, f)))
            *(const json_t **)place = value;
        break;
    case FIELD_OBJECT:
        if ((good = json_is_object(value)))
            *(const json_t **)place = value;
        break;
    case FIELD_ANY:
        *(const json_t **)place = value;
    }
    if (!good)
        add_expected(f, pointer, field);
}

void fields_parse(const json_t *object, const char *at, const struct field *fields, size_t count, void *out,
                  struct faults *f)
{
    const char *name;
    json_t *value;
    char pointer[200];
    json_object_foreach((json_t *)object, name, value) {
        size_t i = 0;
        while (i < count && !str_eq(name, fields[i].name))
            i++;
        snprintf(pointer, sizeof(pointer), "%s/%.64s", at, name);
        if (i == count)
            faults_add(f, pointer, "there is no such member here");
        else
            parse_field(value, pointer, &fields[i], out, f);
    }
    for (size_t i = 0; i < count; i++)
        if ((fields[i].flags & FIELD_REQUIRED) && !json_object_get(object, fields[i].name)) {
            snprintf(pointer, sizeof(pointer), "%s/%s", at, fields[i].name);
            faults_add(f, pointer, "is required");
        }
}

/* ---- checks ---- */

static bool all_of(const char *s, size_t min, size_t max, bool (*first)(char c), bool (*rest)(char c))
{
    size_t len = strlen(s);
    if (len < min || len > max || (len && !first(s[0])))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!rest(s[i]))
            return false;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_lower_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || is_digit(c);
}

static bool is_label(char c)
{
    return is_lower_or_digit(c) || c == '-';
}

static bool is_tag(char c)
{
    return is_label(c) || c == '.' || c == '_';
}

static bool is_word_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_word(char c)
{
    return is_word_start(c) || is_digit(c);
}

static bool is_word_dot_dash(char c)
{
    return is_word(c) || c == '.' || c == '-';
}

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

bool valid_name(const char *s)
{
    return all_of(s, 1, 63, is_lower_or_digit, is_label) && s[strlen(s) - 1] != '-';
}

bool valid_tag_or_digest(const char *s)
{
    return all_of(s, 1, 64, is_lower_or_digit, is_tag);
}

bool valid_env_name(const char *s)
{
    return all_of(s, 1, 128, is_word_start, is_word);
}

bool valid_metadata_name(const char *s)
{
    return all_of(s, 1, 64, is_word_dot_dash, is_word_dot_dash);
}

bool valid_guest_user(const char *s)
{
    return all_of(s, 1, 32, is_word, is_word_dot_dash);
}

bool valid_guest_path(const char *s)
{
    return s[0] == '/' && strlen(s) <= 4095;
}

bool valid_file_mode(const char *s)
{
    return all_of(s, 3, 4, is_octal, is_octal);
}

bool valid_duration(const char *s)
{
    uint64_t ms;
    return str_to_ms(s, &ms);
}

int path_of(struct http_request *r, const char *const *names, const char **ret_path, const char **ret_user,
            struct err *e)
{
    const struct http_query *q = http_request_query(r);
    int result = http_query_only(q, names, e);
    *ret_path = NULL;
    *ret_user = NULL;
    if (result < 0 || (result = http_query_get(q, "path", ret_path, e)) < 0 ||
        (result = http_query_get(q, "user", ret_user, e)) < 0)
        return result;
    if (!*ret_path || !valid_guest_path(*ret_path))
        return err_set(e, ERR_INVALID, "query parameter \"path\": expected " EXPECT_PATH);
    if (*ret_user && !valid_guest_user(*ret_user))
        return err_set(e, ERR_INVALID, "query parameter \"user\": expected " EXPECT_USER);
    return 0;
}

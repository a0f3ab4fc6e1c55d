/* Setting keys: from a file's text, the environment, and one by one (see config.h). */
#include "config/config.h"

#include "base/file.h"
#include "base/str.h"
#include "config/table.h"

void config_init(struct config *ret_config)
{
    memset(ret_config, 0, sizeof(*ret_config));
    for (size_t i = 0; i < config_table_len; i++) {
        const struct config_key *key = &config_table[i];
        _cleanup_free_ char *owned = NULL;
        if (config_key_is_heading(key))
            continue;
        const char *standard = config_standard(key, &owned);
        if (!config_field_set(ret_config, key, standard)) {
            fprintf(stderr, "the default of %s is not valid: %s\n", key->name, standard);
            abort();
        }
    }
}

void config_done(struct config *c)
{
    for (size_t i = 0; i < config_table_len; i++)
        if (!config_key_is_heading(&config_table[i]))
            config_field_free(c, &config_table[i]);
}

/* Number of single changes from a to b (Levenshtein), for names of at most 63 bytes; else large. */
static unsigned distance(const char *a, size_t a_len, const char *b)
{
    unsigned row[64], previous, above;
    size_t b_len = strlen(b);
    if (a_len > 63 || b_len > 63)
        return 1000;
    for (size_t j = 0; j <= b_len; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= a_len; i++) {
        previous = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            above = row[j];
            unsigned change = previous + (a[i - 1] != b[j - 1]);
            row[j] = MIN(MIN(row[j], row[j - 1]) + 1, change);
            previous = above;
        }
    }
    return row[b_len];
}

static int unknown_key(const char *where, const char *name, size_t len, struct err *e)
{
    _cleanup_buf_ struct buf shown = BUF_MAX(512);
    const struct config_key *nearest = NULL;
    unsigned best = 1000;
    for (size_t i = 0; i < config_table_len; i++) {
        unsigned d = config_key_is_heading(&config_table[i]) ? 1000 : distance(name, len, config_table[i].name);
        if (d < best) {
            best = d;
            nearest = &config_table[i];
        }
    }
    text_escape(&shown, name, MIN(len, (size_t)64));
    bool near = nearest && best <= 1 + len / 4;
    return err_set(e, ERR_INVALID, "%s: there is no key \"%s\"%s%s%s", where, buf_cstr(&shown),
                   near ? ", did you mean \"" : "", near ? nearest->name : "", near ? "\"?" : "");
}

static int set_found(struct config *c, const char *where, const struct config_key *key, const char *value,
                     struct err *e)
{
    _cleanup_buf_ struct buf shown = BUF_MAX(512), expected = BUF_MAX(512);
    if (config_field_set(c, key, value))
        return 0;
    text_escape(&shown, value, strnlen(value, 64));
    config_describe_type(key, &expected);
    return err_set(e, ERR_INVALID, "%s: %s: \"%s\" is not %s", where, key->name, buf_cstr(&shown), buf_cstr(&expected));
}

int config_set(struct config *c, const char *where, const char *name, const char *value, struct err *e)
{
    const struct config_key *key = config_find(name, strlen(name), false);
    if (!key)
        return unknown_key(where, name, strlen(name), e);
    return set_found(c, where, key, value, e);
}

int config_set_pair(struct config *c, const char *where, const char *pair, struct err *e)
{
    const char *equals = strchr(pair, '=');
    if (!equals)
        return err_set(e, ERR_INVALID, "%s: \"%.64s\" is not key=value", where, pair);
    const struct config_key *key = config_find(pair, (size_t)(equals - pair), false);
    if (!key)
        return unknown_key(where, pair, (size_t)(equals - pair), e);
    return set_found(c, where, key, equals + 1, e);
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The value that `p` (up to `end`) holds, without quotes, comment and the space around; NULL with a reason. */
static char *take_value(const char *p, const char *end, const char **ret_problem)
{
    _cleanup_buf_ struct buf out = BUF_MAX(CONFIG_VALUE_MAX + 1);
    *ret_problem = "the value is too long";
    if (p < end && *p == '"') {
        for (p++; p < end && *p != '"'; p++) {
            if (*p == '\\' && p + 1 < end && (p[1] == '"' || p[1] == '\\'))
                p++;
            if (!buf_put_byte(&out, (uint8_t)*p))
                return NULL;
        }
        *ret_problem = "the closing '\"' is missing";
        if (p == end)
            return NULL;
        for (p++; p < end && blank(*p); p++)
            ;
        *ret_problem = "there is text after the closing '\"'";
        if (p < end && *p != '#')
            return NULL;
    } else {
        const char *stop = p;
        while (stop < end && !(*stop == '#' && (stop == p || blank(stop[-1]))))
            stop++;
        while (stop > p && blank(stop[-1]))
            stop--;
        if (!buf_put(&out, p, (size_t)(stop - p)))
            return NULL;
    }
    return buf_steal_str(&out);
}

/* One line without its end; *ret_key is NULL for a line that sets nothing. */
static int parse_line(struct config *c, const char *where, const char *p, const char *end,
                      const struct config_key **ret_key, struct err *e)
{
    const char *problem = NULL;
    *ret_key = NULL;
    while (p < end && blank(*p))
        p++;
    if (p == end || *p == '#')
        return 0;
    const char *name = p;
    while (p < end && ((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '_'))
        p++;
    size_t name_len = (size_t)(p - name);
    while (p < end && blank(*p))
        p++;
    if (name_len == 0 || p == end || *p != '=')
        return err_set(e, ERR_INVALID, "%s: expected a line \"key = value\"", where);
    for (p++; p < end && blank(*p); p++)
        ;
    const struct config_key *key = config_find(name, name_len, false);
    if (!key)
        return unknown_key(where, name, name_len, e);
    _cleanup_free_ char *value = take_value(p, end, &problem);
    if (!value)
        return err_set(e, ERR_INVALID, "%s: %s: %s", where, key->name, problem);
    *ret_key = key;
    return set_found(c, where, key, value, e);
}

int config_parse(struct config *c, const char *path, const char *text, size_t len, struct err *e)
{
    unsigned seen[128] = {0}; /* line of each key */
    _Static_assert(ARRAY_LEN(seen) >= 100, "one for each key");
    const char *p = text, *end = text + len;
    if (len > CONFIG_FILE_MAX)
        return err_set(e, ERR_TOO_LARGE, "%s: larger than %llu bytes", path, CONFIG_FILE_MAX);
    if (memchr(text, '\0', len))
        return err_set(e, ERR_INVALID, "%s: has a NUL byte", path);
    for (unsigned line = 1; p < end; line++) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const char *line_end = newline ? newline : end;
        const struct config_key *key = NULL;
        char where[320];
        snprintf(where, sizeof(where), "%.300s:%u", path, line);
        int r = parse_line(c, where, p, line_end, &key, e);
        if (r < 0)
            return r;
        if (key) {
            unsigned *first = &seen[(size_t)(key - config_table) % ARRAY_LEN(seen)];
            if (*first)
                return err_set(e, ERR_INVALID, "%s: %s was set in line %u already", where, key->name, *first);
            *first = line;
        }
        p = newline ? newline + 1 : end;
    }
    return 0;
}

int config_read_file(struct config *c, const char *path, struct err *e)
{
    _cleanup_buf_ struct buf text = BUF_MAX(CONFIG_FILE_MAX);
    int r = file_read(path, CONFIG_FILE_MAX, &text, e);
    if (r < 0)
        return r;
    return config_parse(c, path, buf_cstr(&text), text.len, e);
}

int config_read_environment(struct config *c, char *const *environment, struct err *e)
{
    static const char prefix[] = "SPACE_";
    static const char *const others[] = {"API_KEY=", "URL=", "CONFIG=", "TEST_"};
    for (; *environment; environment++) {
        char name[64], where[80];
        if (!str_starts(*environment, prefix))
            continue;
        const char *rest = *environment + strlen(prefix), *equals = strchr(rest, '=');
        bool ours = equals != NULL;
        for (size_t i = 0; i < ARRAY_LEN(others) && ours; i++)
            ours = !str_starts(rest, others[i]);
        if (!ours)
            continue;
        size_t len = MIN((size_t)(equals - rest), sizeof(name) - 1);
        for (size_t i = 0; i < len; i++)
            name[i] = rest[i] >= 'A' && rest[i] <= 'Z' ? (char)(rest[i] - 'A' + 'a') : rest[i];
        name[len] = '\0';
        snprintf(where, sizeof(where), "environment SPACE_%.*s", (int)len, rest);
        int r = config_set(c, where, name, equals + 1, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Values of configuration keys: text to field, field to text, and the words for what a type expects (see table.h). */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/str.h"
#include "config/table.h"

static void *field(const struct config *c, const struct config_key *key)
{
    return (char *)(uintptr_t)c + key->offset;
}

int config_parse_address(const char *text, struct sockaddr_storage *ret_address, socklen_t *ret_len, struct err *e)
{
    char host[64];
    uint64_t port;
    const char *colon = strrchr(text, ':');
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    size_t len = colon ? (size_t)(colon - text) : 0;
    bool bracket = text[0] == '[';
    if (!colon || len == 0 || len >= sizeof(host) || !str_to_u64(colon + 1, 0, 65535, &port) ||
        (bracket && text[len - 1] != ']'))
        goto wrong;
    snprintf(host, sizeof(host), "%.*s", (int)(bracket ? len - 2 : len), text + bracket);
    if (str_eq(host, "localhost"))
        snprintf(host, sizeof(host), "127.0.0.1");
    memset(ret_address, 0, sizeof(*ret_address));
    if (bracket && inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        v6.sin6_port = htons((uint16_t)port);
        memcpy(ret_address, &v6, sizeof(v6));
        *ret_len = sizeof(v6);
        return 0;
    }
    if (!bracket && inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        v4.sin_port = htons((uint16_t)port);
        memcpy(ret_address, &v4, sizeof(v4));
        *ret_len = sizeof(v4);
        return 0;
    }
wrong:
    return err_set(e, ERR_INVALID, "\"%.64s\" is not an address such as 127.0.0.1:7777 or [::1]:7777", text);
}

static bool domain_valid(const char *s)
{
    size_t label = 0, total = strlen(s);
    if (total == 0 || total > 200)
        return false;
    for (; *s; s++) {
        bool alnum = (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9');
        if (*s == '.' ? label == 0 || s[-1] == '-' || s[1] == '\0' : !alnum && (*s != '-' || label == 0))
            return false;
        label = *s == '.' ? 0 : label + 1;
        if (label > 63)
            return false;
    }
    return s[-1] != '-';
}

static bool text_plain(const char *s)
{
    size_t len = strlen(s);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return false;
    return len <= CONFIG_VALUE_MAX && utf8_valid(s, len);
}

static void list_free(struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct config_list){0};
}

static bool list_parse(const char *value, struct config_list *ret_list)
{
    static const char word_chars[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    struct config_list list = {0};
    const char *p = value + strspn(value, " \t");
    while (*p) {
        size_t len = strspn(p, word_chars);
        const char *after = p + len + strspn(p + len, " \t");
        if (len == 0 || len > 64 || list.count == CONFIG_LIST_MAX || (*after && *after != ','))
            goto wrong;
        list.items = xrealloc(list.items, (list.count + 1) * sizeof(char *));
        list.items[list.count++] = xstrndup(p, len);
        if (*after == ',') {
            after++;
            after += strspn(after, " \t");
            if (!*after)
                goto wrong;
        }
        p = after;
    }
    *ret_list = list;
    return true;
wrong:
    list_free(&list);
    return false;
}

void config_field_free(struct config *c, const struct config_key *key)
{
    switch (key->type) {
    case CONFIG_STRING:
    case CONFIG_PATH:
    case CONFIG_ADDRESS:
    case CONFIG_DOMAIN:
        free(*(char **)field(c, key));
        *(char **)field(c, key) = NULL;
        break;
    case CONFIG_LIST:
        list_free(field(c, key));
        break;
    default:
        break;
    }
}

static bool set_text(struct config *c, const struct config_key *key, const char *value)
{
    struct sockaddr_storage address;
    socklen_t len;
    if (!text_plain(value) || (key->type == CONFIG_PATH && *value && *value != '/') ||
        (key->type == CONFIG_PATH && !*value && (!key->standard || *key->standard)) ||
        (key->type == CONFIG_ADDRESS && *value && config_parse_address(value, &address, &len, NULL) < 0) ||
        (key->type == CONFIG_DOMAIN && !domain_valid(value)))
        return false;
    char **to = field(c, key);
    char *copy = xstrdup(value);
    free(*to);
    *to = copy;
    return true;
}

bool config_field_set(struct config *c, const struct config_key *key, const char *value)
{
    uint64_t number;
    struct config_list list;
    switch (key->type) {
    case CONFIG_STRING:
    case CONFIG_PATH:
    case CONFIG_ADDRESS:
    case CONFIG_DOMAIN:
        return set_text(c, key, value);
    case CONFIG_BOOL:
        return str_to_bool(value, field(c, key));
    case CONFIG_NUMBER:
        if (!str_to_u64(value, key->min, key->max, &number))
            return false;
        *(uint32_t *)field(c, key) = (uint32_t)number;
        return true;
    case CONFIG_SIZE:
    case CONFIG_DURATION:
        if (!(key->type == CONFIG_SIZE ? str_to_bytes(value, &number) : str_to_ms(value, &number)) ||
            number < key->min || number > key->max)
            return false;
        *(uint64_t *)field(c, key) = number;
        return true;
    case CONFIG_CHOICE:
        for (unsigned i = 0; key->choices[i]; i++) {
            if (str_eq(key->choices[i], value)) {
                *(unsigned *)field(c, key) = i;
                return true;
            }
        }
        return false;
    case CONFIG_LIST:
        if (!list_parse(value, &list))
            return false;
        list_free(field(c, key));
        *(struct config_list *)field(c, key) = list;
        return true;
    }
    return false;
}

static void format_unit(struct buf *out, uint64_t value, const uint64_t *factors, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (value >= factors[i] && value % factors[i] == 0) {
            buf_printf(out, "%llu%s", (unsigned long long)(value / factors[i]), names[i]);
            return;
        }
    }
    buf_put_str(out, "0");
}

static void format_duration(struct buf *out, uint64_t ms)
{
    static const uint64_t factors[] = {86400000, 3600000, 60000, 1000, 1};
    static const char *const names[] = {"d", "h", "m", "s", "ms"};
    format_unit(out, ms, factors, names, ARRAY_LEN(factors));
}

static void format_size(struct buf *out, uint64_t bytes)
{
    static const uint64_t factors[] = {GIB, MIB, KIB, 1};
    static const char *const names[] = {"GiB", "MiB", "KiB", ""};
    format_unit(out, bytes, factors, names, ARRAY_LEN(factors));
}

/* Quoted where a file would read it otherwise. */
static void format_text(struct buf *out, const char *s)
{
    size_t len = strlen(s);
    bool quote = s[0] == '"' || s[0] == ' ' || (len && s[len - 1] == ' ') || strchr(s, '#');
    if (!quote) {
        buf_put_str(out, s);
        return;
    }
    buf_put_byte(out, '"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            buf_put_byte(out, '\\');
        buf_put_byte(out, (uint8_t)*s);
    }
    buf_put_byte(out, '"');
}

void config_field_format(const struct config *c, const struct config_key *key, struct buf *out)
{
    const struct config_list *list;
    switch (key->type) {
    case CONFIG_STRING:
    case CONFIG_PATH:
    case CONFIG_ADDRESS:
    case CONFIG_DOMAIN:
        format_text(out, *(char **)field(c, key));
        break;
    case CONFIG_BOOL:
        buf_put_str(out, *(bool *)field(c, key) ? "true" : "false");
        break;
    case CONFIG_NUMBER:
        buf_printf(out, "%u", *(uint32_t *)field(c, key));
        break;
    case CONFIG_SIZE:
        format_size(out, *(uint64_t *)field(c, key));
        break;
    case CONFIG_DURATION:
        format_duration(out, *(uint64_t *)field(c, key));
        break;
    case CONFIG_CHOICE:
        buf_put_str(out, key->choices[*(unsigned *)field(c, key)]);
        break;
    case CONFIG_LIST:
        list = field(c, key);
        for (size_t i = 0; i < list->count; i++)
            buf_printf(out, "%s%s", i ? ", " : "", list->items[i]);
        break;
    }
}

void config_describe_type(const struct config_key *key, struct buf *out)
{
    switch (key->type) {
    case CONFIG_STRING:
        buf_put_str(out, "text");
        break;
    case CONFIG_PATH:
        buf_put_str(out, "an absolute path");
        break;
    case CONFIG_ADDRESS:
        buf_put_str(out, "an address such as 127.0.0.1:7777 or [::1]:7777");
        break;
    case CONFIG_DOMAIN:
        buf_put_str(out, "a domain name in lower case");
        break;
    case CONFIG_BOOL:
        buf_put_str(out, "true or false");
        break;
    case CONFIG_NUMBER:
        buf_printf(out, "a whole number from %llu to %llu", (unsigned long long)key->min, (unsigned long long)key->max);
        break;
    case CONFIG_SIZE:
        buf_put_str(out, "a size from ");
        format_size(out, key->min);
        buf_put_str(out, " to ");
        format_size(out, key->max);
        buf_put_str(out, " such as 64KiB or 4MiB");
        break;
    case CONFIG_DURATION:
        buf_put_str(out, "a duration from ");
        format_duration(out, key->min);
        buf_put_str(out, " to ");
        format_duration(out, key->max);
        buf_put_str(out, " such as 250ms, 30s, 5m, 2h or 1d");
        break;
    case CONFIG_CHOICE:
        buf_put_str(out, "one of ");
        for (size_t i = 0; key->choices[i]; i++)
            buf_printf(out, "%s%s", i ? ", " : "", key->choices[i]);
        break;
    case CONFIG_LIST:
        buf_put_str(out, "names of a-z, 0-9, '_' and '-' with commas between");
        break;
    }
}

/* Strings (see str.h). */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

/* Digits from *s on; stops at the first other character. False when there is none or the value overflows. */
static bool digits_take(const char **s, uint64_t *ret_value)
{
    uint64_t v = 0;
    const char *p = *s;
    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return false;
    *s = p;
    *ret_value = v;
    return true;
}

bool str_to_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret_value)
{
    uint64_t v;
    if (!digits_take(&s, &v) || *s || v < min || v > max)
        return false;
    *ret_value = v;
    return true;
}

bool str_to_i64(const char *s, int64_t min, int64_t max, int64_t *ret_value)
{
    bool negative = *s == '-';
    uint64_t v;
    s += negative;
    if (!digits_take(&s, &v) || *s || v > (uint64_t)INT64_MAX)
        return false;
    int64_t value = negative ? -(int64_t)v : (int64_t)v;
    if (value < min || value > max)
        return false;
    *ret_value = value;
    return true;
}

struct unit {
    const char *name;
    uint64_t factor;
};

static bool number_with_unit(const char *s, const struct unit *units, size_t count, uint64_t *ret_value)
{
    uint64_t v;
    if (!digits_take(&s, &v))
        return false;
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(s, units[i].name) == 0)
            return !__builtin_mul_overflow(v, units[i].factor, ret_value);
    return false;
}

bool str_to_bytes(const char *s, uint64_t *ret_bytes)
{
    static const struct unit units[] = {{"", 1},     {"B", 1},     {"K", KIB},   {"KiB", KIB},        {"M", MIB},
                                        {"MiB", MIB}, {"G", GIB}, {"GiB", GIB}, {"T", 1024ULL * GIB}, {"TiB", 1024ULL * GIB}};
    return number_with_unit(s, units, ARRAY_LEN(units), ret_bytes);
}

bool str_to_ms(const char *s, uint64_t *ret_ms)
{
    static const struct unit units[] = {{"", 1000},   {"ms", 1},       {"s", 1000},
                                        {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    return number_with_unit(s, units, ARRAY_LEN(units), ret_ms);
}

bool str_to_bool(const char *s, bool *ret_value)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (strcasecmp(s, yes[i]) == 0 || strcasecmp(s, no[i]) == 0) {
            *ret_value = strcasecmp(s, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

void hex_encode(const void *data, size_t len, char *ret_text)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++) {
        ret_text[2 * i] = digits[p[i] >> 4];
        ret_text[2 * i + 1] = digits[p[i] & 15];
    }
    ret_text[2 * len] = '\0';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool hex_decode(const char *text, size_t text_len, uint8_t *ret_data)
{
    if (text_len % 2)
        return false;
    for (size_t i = 0; i < text_len / 2; i++) {
        int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret_data[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static const char base64_alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_encode(const void *data, size_t len, char *ret_text)
{
    const uint8_t *p = data;
    char *out = ret_text;
    size_t i = 0;
    for (; i + 3 <= len; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (uint32_t)p[i + 1] << 8 | p[i + 2];
        *out++ = base64_alphabet[v >> 18];
        *out++ = base64_alphabet[v >> 12 & 63];
        *out++ = base64_alphabet[v >> 6 & 63];
        *out++ = base64_alphabet[v & 63];
    }
    if (i < len) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < len ? (uint32_t)p[i + 1] << 8 : 0);
        *out++ = base64_alphabet[v >> 18];
        *out++ = base64_alphabet[v >> 12 & 63];
        *out++ = i + 1 < len ? base64_alphabet[v >> 6 & 63] : '=';
        *out++ = '=';
    }
    *out = '\0';
    return (size_t)(out - ret_text);
}

static int base64_value(char c)
{
    const char *at = c ? strchr(base64_alphabet, c) : NULL;
    return at ? (int)(at - base64_alphabet) : -1;
}

ssize_t base64_decode(const char *text, size_t text_len, uint8_t *ret_data)
{
    size_t out = 0;
    if (text_len % 4)
        return -1;
    for (size_t i = 0; i < text_len; i += 4) {
        bool last = i + 4 == text_len;
        int pad = last ? (text[i + 3] == '=') + (text[i + 3] == '=' && text[i + 2] == '=') : 0;
        uint32_t v = 0;
        for (int k = 0; k < 4; k++) {
            int digit = k >= 4 - pad ? 0 : base64_value(text[i + (size_t)k]);
            if (digit < 0)
                return -1;
            v = v << 6 | (uint32_t)digit;
        }
        if ((pad == 1 && (v & 0xff)) || (pad == 2 && (v & 0xffff)))
            return -1;
        ret_data[out++] = (uint8_t)(v >> 16);
        if (pad < 2)
            ret_data[out++] = (uint8_t)(v >> 8);
        if (pad < 1)
            ret_data[out++] = (uint8_t)v;
    }
    return (ssize_t)out;
}

void percent_encode(struct buf *out, const char *s, bool keep_slash)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (isalnum(c) || strchr("-._~", c) || (keep_slash && c == '/'))
            buf_put_byte(out, c);
        else
            buf_printf(out, "%%%02X", c);
    }
}

bool percent_decode(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (*s != '%') {
            *to++ = *s;
            continue;
        }
        uint8_t byte;
        if (!s[1] || !s[2] || !hex_decode(s + 1, 2, &byte) || byte == 0)
            return false;
        *to++ = (char)byte;
        s += 2;
    }
    *to = '\0';
    return true;
}

/* Length of the UTF-8 sequence at p (1–4) and its code point; 0 when it is none (RFC 3629). */
static size_t utf8_take(const uint8_t *p, size_t len, uint32_t *ret_code)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
    if (n == 0 || n > len)
        return 0;
    uint32_t v = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (p[i] & 0x3f);
    }
    if (v < smallest[n] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
        return 0;
    *ret_code = v;
    return n;
}

bool utf8_valid(const void *data, size_t len)
{
    const uint8_t *p = data;
    uint32_t code;
    for (size_t i = 0, n; i < len; i += n)
        if ((n = utf8_take(p + i, len - i, &code)) == 0)
            return false;
    return true;
}

static bool code_point_is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f || c == 0x61c ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

void text_escape(struct buf *out, const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len;) {
        uint32_t code;
        size_t n = utf8_take(p + i, len - i, &code);
        if (n == 0) {
            buf_printf(out, "\\x%02x", p[i]);
            n = 1;
        } else if (code == '\n') {
            buf_put_str(out, "\\n");
        } else if (code == '\t') {
            buf_put_str(out, "\\t");
        } else if (code_point_is_control(code)) {
            buf_printf(out, code < 0x100 ? "\\x%02x" : "\\u{%04x}", code);
        } else {
            buf_put(out, p + i, n);
        }
        i += n;
    }
}

/* Strings: strict numbers, hex, base64, sizes, percent encoding. Nothing here accepts trailing rubbish. */
#ifndef SPACE_BASE_STR_H
#define SPACE_BASE_STR_H

#include "base/buf.h"
#include "base/err.h"

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
static inline bool str_eq(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Decimal digits alone, min ≤ value ≤ max; false and *ret_value untouched otherwise. */
bool str_to_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret_value);
bool str_to_i64(const char *s, int64_t min, int64_t max, int64_t *ret_value);
/* "512", "4K", "64MiB", "2G" (powers of 1024) → bytes. */
bool str_to_bytes(const char *s, uint64_t *ret_bytes);
/* "250ms", "30s", "5m", "2h", "1d"; without a unit seconds → milliseconds. */
bool str_to_ms(const char *s, uint64_t *ret_ms);
bool str_to_bool(const char *s, bool *ret_value); /* true/false, yes/no, on/off, 1/0 */

void hex_encode(const void *data, size_t len, char *ret_text /* 2 * len + 1 */);
bool hex_decode(const char *text, size_t text_len, uint8_t *ret_data); /* text_len / 2 bytes; lower and upper case */

/* RFC 4648 section 4 with padding; ret_text needs base64_encoded_len(len) + 1 bytes. Returns the length. */
static inline size_t base64_encoded_len(size_t len)
{
    return (len + 2) / 3 * 4;
}
size_t base64_encode(const void *data, size_t len, char *ret_text);
/* Strict; ret_data needs text_len / 4 * 3 bytes. Returns the length or -1. */
ssize_t base64_decode(const char *text, size_t text_len, uint8_t *ret_data);

/* Append `s` with everything but RFC 3986 unreserved characters (and '/' when keep_slash) as %XX. */
void percent_encode(struct buf *out, const char *s, bool keep_slash);
/* Decode in place; false for a broken escape or an encoded NUL. '+' stays '+'. */
bool percent_decode(char *s);

bool utf8_valid(const void *data, size_t len);

/* Append `data` so that it is safe on a terminal and in a log: control characters, DEL, C1, bidi controls and bytes
 * that are no UTF-8 become \xNN or \u{NNNN}; newline and tab become \n and \t. */
void text_escape(struct buf *out, const void *data, size_t len);

#endif

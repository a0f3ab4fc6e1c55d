/* Strict parsing of what people and peers type: numbers, sizes, times, hex, base64, percent escapes, UTF-8. */
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 4096)
        return 0;
    char *text = malloc(size + 1);
    uint8_t *bytes = malloc(size + 3);
    if (!text || !bytes)
        abort();
    memcpy(text, data, size);
    text[size] = 0;

    uint64_t u;
    int64_t i;
    bool b;
    (void)str_to_u64(text, 0, UINT64_MAX, &u);
    (void)str_to_i64(text, INT64_MIN, INT64_MAX, &i);
    (void)str_to_bytes(text, &u);
    (void)str_to_ms(text, &u);
    (void)str_to_bool(text, &b);
    (void)id_valid(ID_SANDBOX, text);
    if (clock_parse_ms(text, &i)) {
        char again[RFC3339_SIZE];
        clock_format_ms(i, again);
        int64_t same;
        assert(clock_parse_ms(again, &same) && same == i);
    }
    (void)hex_decode(text, size, bytes);
    ssize_t n = base64_decode(text, size, bytes);
    if (n >= 0) {
        char *encoded = malloc(base64_encoded_len((size_t)n) + 1);
        if (!encoded)
            abort();
        assert(base64_encode(bytes, (size_t)n, encoded) == size && memcmp(encoded, text, size) == 0);
        free(encoded);
    }
    _cleanup_buf_ struct buf out = BUF_MAX(64 * 1024);
    text_escape(&out, data, size);
    assert(utf8_valid(buf_data(&out), out.len) && !memchr(out.len ? buf_data(&out) : (uint8_t *)" ", 0x1b, out.len));

    if (!memchr(text, 0, size)) {
        _cleanup_buf_ struct buf escaped = BUF_MAX(64 * 1024);
        percent_encode(&escaped, text, false);
        char *copy = buf_steal_str(&escaped);
        if (copy) {
            assert(percent_decode(copy) && strcmp(copy, text) == 0);
            free(copy);
        }
    }
    (void)percent_decode(text);
    free(text);
    free(bytes);
    return 0;
}

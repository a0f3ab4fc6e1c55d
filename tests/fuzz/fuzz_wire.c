/* The binary messages of the agent's port: any bytes are read without harm, and what was read and written again reads the
 * same. */
#include "fuzz.h"
#include "wire/wire.h"

static void walk(struct wire_reader r, int depth)
{
    struct wire_field f;
    while (wire_next(&r, &f)) {
        uint64_t u;
        int64_t i;
        bool b;
        char text[64];
        if (wire_field_u64(&f, &u))
            assert(f.len == 8);
        (void)wire_field_i64(&f, &i);
        (void)wire_field_bool(&f, &b);
        if (wire_field_text(&f, text, sizeof text))
            assert(strlen(text) == f.len);
        char *copy = NULL;
        if (wire_field_text_dup(&f, 4096, &copy))
            free(copy);
        if (depth < 8) {
            struct wire_reader inner;
            wire_field_nested(&f, &inner);
            walk(inner, depth + 1);
        }
    }
    assert(wire_done(&r) || r.broken);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_reader r;
    wire_reader_init(&r, data, size);
    walk(r, 0);

    _cleanup_buf_ struct buf again = BUF_MAX(2 * WIRE_MESSAGE_MAX);
    struct wire_field f;
    while (wire_next(&r, &f))
        wire_put_bytes(&again, f.tag, f.data, f.len);
    if (wire_done(&r))
        assert(again.len == size && (size == 0 || memcmp(buf_data(&again), data, size) == 0));

    struct wire_record record;
    if (size >= WIRE_RECORD_HEADER && wire_record_decode(data, &record)) {
        uint8_t raw[WIRE_RECORD_HEADER];
        wire_record_encode(&record, raw);
        assert(memcmp(raw, data, sizeof raw) == 0);
    }
    return 0;
}

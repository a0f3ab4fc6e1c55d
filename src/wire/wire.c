/* Fields and records (see wire.h). Touches no file and no clock. */
#include "wire/wire.h"

void wire_reader_init(struct wire_reader *r, const void *data, size_t len)
{
    *r = (struct wire_reader){.at = data, .left = len, .broken = len > WIRE_MESSAGE_MAX};
}

bool wire_next(struct wire_reader *r, struct wire_field *ret_field)
{
    if (r->broken || r->left == 0)
        return false;
    if (r->left < WIRE_FIELD_HEADER) {
        r->broken = true;
        return false;
    }
    uint16_t tag = get_u16(r->at);
    uint32_t len = get_u32(r->at + 2);
    if (tag == 0 || len > r->left - WIRE_FIELD_HEADER) {
        r->broken = true;
        return false;
    }
    *ret_field = (struct wire_field){.tag = tag, .len = len, .data = r->at + WIRE_FIELD_HEADER};
    r->at += WIRE_FIELD_HEADER + len;
    r->left -= WIRE_FIELD_HEADER + len;
    return true;
}

bool wire_done(const struct wire_reader *r)
{
    return !r->broken && r->left == 0;
}

bool wire_field_u64(const struct wire_field *f, uint64_t *ret_value)
{
    if (f->len != 8)
        return false;
    *ret_value = get_u64(f->data);
    return true;
}

bool wire_field_i64(const struct wire_field *f, int64_t *ret_value)
{
    if (f->len != 8)
        return false;
    *ret_value = (int64_t)get_u64(f->data);
    return true;
}

bool wire_field_bool(const struct wire_field *f, bool *ret_value)
{
    uint64_t v;
    if (!wire_field_u64(f, &v) || v > 1)
        return false;
    *ret_value = v == 1;
    return true;
}

bool wire_field_text(const struct wire_field *f, char *ret_text, size_t size)
{
    if (f->len >= size || memchr(f->data, '\0', f->len))
        return false;
    memcpy(ret_text, f->data, f->len);
    ret_text[f->len] = '\0';
    return true;
}

bool wire_field_text_dup(const struct wire_field *f, size_t max, char **ret_text)
{
    if (f->len > max || memchr(f->data, '\0', f->len))
        return false;
    char *text = xmalloc((size_t)f->len + 1);
    memcpy(text, f->data, f->len);
    text[f->len] = '\0';
    *ret_text = text;
    return true;
}

void wire_field_nested(const struct wire_field *f, struct wire_reader *ret_reader)
{
    wire_reader_init(ret_reader, f->data, f->len);
}

void wire_put_bytes(struct buf *b, uint16_t tag, const void *data, size_t len)
{
    if (len > WIRE_MESSAGE_MAX) {
        b->overflow = true;
        return;
    }
    uint8_t *at = buf_reserve(b, WIRE_FIELD_HEADER + len);
    if (!at)
        return;
    at[0] = (uint8_t)(tag >> 8);
    at[1] = (uint8_t)tag;
    for (int i = 0; i < 4; i++)
        at[2 + i] = (uint8_t)(len >> (24 - 8 * i));
    if (len)
        memcpy(at + WIRE_FIELD_HEADER, data, len);
    buf_commit(b, WIRE_FIELD_HEADER + len);
}

void wire_put_text(struct buf *b, uint16_t tag, const char *text)
{
    if (text)
        wire_put_bytes(b, tag, text, strlen(text));
}

void wire_put_u64(struct buf *b, uint16_t tag, uint64_t value)
{
    uint8_t raw[8];
    for (int i = 0; i < 8; i++)
        raw[i] = (uint8_t)(value >> (56 - 8 * i));
    wire_put_bytes(b, tag, raw, sizeof(raw));
}

void wire_put_i64(struct buf *b, uint16_t tag, int64_t value)
{
    wire_put_u64(b, tag, (uint64_t)value);
}

size_t wire_begin(struct buf *b, uint16_t tag)
{
    size_t mark = b->len;
    wire_put_bytes(b, tag, NULL, 0);
    return mark;
}

void wire_end(struct buf *b, size_t mark)
{
    if (b->overflow) /* the header itself may be missing; the whole message is refused by its sender */
        return;
    size_t len = b->len - mark - WIRE_FIELD_HEADER;
    uint8_t *at = buf_data(b) + mark;
    for (int i = 0; i < 4; i++)
        at[2 + i] = (uint8_t)(len >> (24 - 8 * i));
}

void wire_record_encode(const struct wire_record *record, uint8_t ret_raw[WIRE_RECORD_HEADER])
{
    memset(ret_raw, 0, 4);
    ret_raw[0] = record->type;
    for (int i = 0; i < 4; i++)
        ret_raw[4 + i] = (uint8_t)(record->len >> (24 - 8 * i));
    for (int i = 0; i < 8; i++)
        ret_raw[8 + i] = (uint8_t)(record->offset >> (56 - 8 * i));
}

bool wire_record_decode(const uint8_t raw[WIRE_RECORD_HEADER], struct wire_record *ret_record)
{
    if (raw[1] || raw[2] || raw[3])
        return false;
    *ret_record = (struct wire_record){.type = raw[0], .len = get_u32(raw + 4), .offset = get_u64(raw + 8)};
    return true;
}

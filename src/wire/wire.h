/* The binary messages between host and guest: a sequence of fields, each `u16 tag, u32 length, value`, all numbers in
 * network byte order. A number field has 8 bytes; a text field has no NUL; a nested message is a field whose value is
 * again such a sequence. The reader works on the caller's memory, allocates nothing, and after the first broken field
 * says so for good: a message is accepted whole or not at all.
 *
 * Streams of records (output of an exec, events of a watch) carry a 16-byte header before each payload. */
#ifndef SPACE_WIRE_WIRE_H
#define SPACE_WIRE_WIRE_H

#include "base/buf.h"

#define WIRE_FIELD_HEADER 6
#define WIRE_MESSAGE_MAX (1024u * 1024u) /* a message longer than this is refused before it is looked at */

struct wire_reader {
    const uint8_t *at;
    size_t left;
    bool broken;
};

struct wire_field {
    uint16_t tag;
    uint32_t len;
    const uint8_t *data; /* points into the reader's memory */
};

/* Read `len` bytes at `data`, which must outlive the reader. */
void wire_reader_init(struct wire_reader *r, const void *data, size_t len);
/* The next field; false at the end and at the first broken field (then `r->broken`). */
bool wire_next(struct wire_reader *r, struct wire_field *ret_field);
/* True when everything was read and nothing was broken: to be asked after the loop over wire_next. */
bool wire_done(const struct wire_reader *r);

/* Values; false (and nothing written) when the field has another form. */
bool wire_field_u64(const struct wire_field *f, uint64_t *ret_value);
bool wire_field_i64(const struct wire_field *f, int64_t *ret_value);
bool wire_field_bool(const struct wire_field *f, bool *ret_value); /* 0 or 1 */
/* A copy with a terminator in `ret_text`; false when it has a NUL or does not fit in `size`. */
bool wire_field_text(const struct wire_field *f, char *ret_text, size_t size);
/* The same on the heap, at most `max` bytes of text. The caller frees. */
bool wire_field_text_dup(const struct wire_field *f, size_t max, char **ret_text);
void wire_field_nested(const struct wire_field *f, struct wire_reader *ret_reader);

/* Append a field. A maximum passed shows in `b->overflow`, as with every append to a buffer. */
void wire_put_bytes(struct buf *b, uint16_t tag, const void *data, size_t len);
void wire_put_text(struct buf *b, uint16_t tag, const char *text); /* NULL leaves the field out */
void wire_put_u64(struct buf *b, uint16_t tag, uint64_t value);
void wire_put_i64(struct buf *b, uint16_t tag, int64_t value);
/* A nested message: the fields put between begin and end are its content. `begin` returns the mark for `end`. */
size_t wire_begin(struct buf *b, uint16_t tag);
void wire_end(struct buf *b, size_t mark);

/* The header of a record: `u8 type, 3 zero bytes, u32 length, u64 offset`. */
#define WIRE_RECORD_HEADER 16

struct wire_record {
    uint8_t type;
    uint32_t len; /* of the payload that follows */
    uint64_t offset;
};

void wire_record_encode(const struct wire_record *record, uint8_t ret_raw[WIRE_RECORD_HEADER]);
/* False when the zero bytes are not zero. The caller checks `len` against its own maximum. */
bool wire_record_decode(const uint8_t raw[WIRE_RECORD_HEADER], struct wire_record *ret_record);

#endif

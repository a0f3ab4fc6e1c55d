/* Cuts a stream of records (16-byte header, payload) into headers, pieces of large payloads and whole small ones.
 * Without I/O; the caller judges what a record may say. */
#ifndef SPACE_GUEST_RECORD_H
#define SPACE_GUEST_RECORD_H

#include "base/err.h"
#include "wire/wire.h"

#define RECORD_SMALL_MAX (16u * 1024) /* of a payload that is given as a whole */

enum record_step {
    RECORD_MORE,   /* everything was taken; nothing to act on */
    RECORD_PIECE,  /* some payload of an output record: piece, piece_len, piece_offset */
    RECORD_WHOLE,  /* a record with its whole payload: record, payload */
    RECORD_BROKEN, /* out of protocol; final */
};

struct record_reader {
    uint8_t head[WIRE_RECORD_HEADER];
    unsigned head_len;
    struct wire_record record;
    uint32_t payload_left;
    struct buf payload;
    bool in_record, broken;

    const uint8_t *piece;
    size_t piece_len;
    uint64_t piece_offset;
    bool piece_first; /* the record begins with it */
};

void record_reader_init(struct record_reader *r);
void record_reader_done(struct record_reader *r);
/* Take from *data, *len up to the next step. `ret_taken` bytes were not given as a piece. */
enum record_step record_next(struct record_reader *r, const uint8_t **data, size_t *len, size_t *ret_taken);
/* Not inside a record: the stream may end here. */
bool record_reader_idle(const struct record_reader *r);

#endif

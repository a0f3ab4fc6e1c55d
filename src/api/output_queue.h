/* Pieces of an exec's output that the client could not take yet: stdout and stderr in their order, with offsets. What is
 * held is bounded by the window of the guest's stream. */
#ifndef SPACE_API_OUTPUT_QUEUE_H
#define SPACE_API_OUTPUT_QUEUE_H

#include "base/buf.h"
#include "guest/guest.h"

#include <sys/queue.h>

struct output_piece {
    enum guest_output stream; /* 0: a gap of `gap` bytes */
    uint64_t offset;          /* of what is left of it */
    uint64_t gap;
    size_t start, len;
    STAILQ_ENTRY(output_piece) link;
    uint8_t data[];
};

struct output_queue {
    STAILQ_HEAD(, output_piece) pieces;
};

void output_queue_init(struct output_queue *q);
void output_queue_done(struct output_queue *q);
void output_queue_data(struct output_queue *q, enum guest_output stream, uint64_t offset, const uint8_t *data,
                       size_t len);
void output_queue_gap(struct output_queue *q, uint64_t offset, uint64_t count);
struct output_piece *output_queue_first(struct output_queue *q);
/* `len` bytes of the first piece were passed on (of a gap: all of it). */
void output_queue_take(struct output_queue *q, size_t len);

#endif

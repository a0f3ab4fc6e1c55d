/* Bytes on their way to the socket: a bounded queue of pieces that refer to blocks. Frame headers and control frames
 * are copied into blocks of the queue's own; the payload of DATA stays in the block that the stream's owner filled, and
 * goes to the socket from there. A block lives as long as someone holds a reference. */
#ifndef SPACE_CHANNEL_OUTQ_H
#define SPACE_CHANNEL_OUTQ_H

#include <sys/queue.h>
#include <sys/uio.h>

#include "base/defs.h"

struct block {
    unsigned refs;
    uint32_t capacity;
    uint32_t start, end; /* the part that a stream has filled and not yet handed on */
    TAILQ_ENTRY(block) link;
    uint8_t data[];
};
TAILQ_HEAD(block_list, block);

struct block *block_new(size_t capacity); /* one reference, the caller's */
void block_unref(struct block *b);

#define OUTQ_PIECES 128
#define OUTQ_BYTES (256u * 1024) /* no more is taken from the session when so much waits for the socket */

struct outq {
    struct {
        struct block *block;
        uint32_t at, len;
    } pieces[OUTQ_PIECES]; /* a ring */
    unsigned first, count;
    size_t bytes;
    struct block *tail; /* has room for small bytes; NULL: none */
};

void outq_done(struct outq *q);
bool outq_full(const struct outq *q); /* no room for another frame */
/* Append a copy. At most one piece. */
void outq_copy(struct outq *q, const void *data, size_t len);
/* Append a reference to bytes of `b`. At most one piece. */
void outq_refer(struct outq *q, struct block *b, uint32_t at, uint32_t len);
/* The bytes at the front, at most `max` pieces; returns the number of pieces. */
int outq_peek(const struct outq *q, struct iovec *ret_iov, int max);
void outq_consume(struct outq *q, size_t len); /* written */

#endif

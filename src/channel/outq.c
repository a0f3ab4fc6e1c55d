/* The queue towards the socket (see outq.h). */
#include "channel/outq.h"

#define SMALL_BLOCK 4096

struct block *block_new(size_t capacity)
{
    struct block *b = xmalloc(sizeof(*b) + capacity);
    *b = (struct block){.refs = 1, .capacity = (uint32_t)capacity};
    return b;
}

void block_unref(struct block *b)
{
    if (b && --b->refs == 0)
        free(b);
}

void outq_done(struct outq *q)
{
    while (q->count > 0) {
        block_unref(q->pieces[q->first].block);
        q->first = (q->first + 1) % OUTQ_PIECES;
        q->count--;
    }
    block_unref(q->tail);
    *q = (struct outq){0};
}

bool outq_full(const struct outq *q)
{
    /* Two pieces for a DATA frame, one to spare for a control frame that comes with it. */
    return q->bytes >= OUTQ_BYTES || q->count + 3 > OUTQ_PIECES;
}

void outq_refer(struct outq *q, struct block *b, uint32_t at, uint32_t len)
{
    if (len == 0)
        return;
    q->bytes += len;
    if (q->count > 0) {
        unsigned last = (q->first + q->count - 1) % OUTQ_PIECES;
        if (q->pieces[last].block == b && q->pieces[last].at + q->pieces[last].len == at) {
            q->pieces[last].len += len;
            return;
        }
    }
    unsigned slot = (q->first + q->count) % OUTQ_PIECES;
    q->pieces[slot].block = b;
    q->pieces[slot].at = at;
    q->pieces[slot].len = len;
    q->count++;
    b->refs++;
}

void outq_copy(struct outq *q, const void *data, size_t len)
{
    if (q->tail && q->tail->capacity - q->tail->end < len) {
        block_unref(q->tail);
        q->tail = NULL;
    }
    if (!q->tail)
        q->tail = block_new(MAX(len, (size_t)SMALL_BLOCK));
    memcpy(q->tail->data + q->tail->end, data, len);
    outq_refer(q, q->tail, q->tail->end, (uint32_t)len);
    q->tail->end += (uint32_t)len;
}

int outq_peek(const struct outq *q, struct iovec *ret_iov, int max)
{
    int n = 0;
    for (unsigned i = 0; i < q->count && n < max; i++, n++) {
        unsigned slot = (q->first + i) % OUTQ_PIECES;
        ret_iov[n].iov_base = q->pieces[slot].block->data + q->pieces[slot].at;
        ret_iov[n].iov_len = q->pieces[slot].len;
    }
    return n;
}

void outq_consume(struct outq *q, size_t len)
{
    q->bytes -= len;
    while (len > 0) {
        uint32_t take = (uint32_t)MIN(len, (size_t)q->pieces[q->first].len);
        q->pieces[q->first].at += take;
        q->pieces[q->first].len -= take;
        len -= take;
        if (q->pieces[q->first].len == 0) {
            block_unref(q->pieces[q->first].block);
            q->first = (q->first + 1) % OUTQ_PIECES;
            q->count--;
        }
    }
    if (q->count == 0 && q->tail) { /* an idle channel keeps no block */
        block_unref(q->tail);
        q->tail = NULL;
    }
}

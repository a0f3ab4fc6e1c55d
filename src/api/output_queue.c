/* Pieces of output that wait for the client. */
#include "api/output_queue.h"

void output_queue_init(struct output_queue *q)
{
    STAILQ_INIT(&q->pieces);
}

static void drop_first(struct output_queue *q)
{
    struct output_piece *p = STAILQ_FIRST(&q->pieces);
    STAILQ_REMOVE_HEAD(&q->pieces, link);
    free(p);
}

void output_queue_done(struct output_queue *q)
{
    while (!STAILQ_EMPTY(&q->pieces))
        drop_first(q);
}

void output_queue_data(struct output_queue *q, enum guest_output stream, uint64_t offset, const uint8_t *data,
                       size_t len)
{
    struct output_piece *p = xmalloc(sizeof(*p) + len);
    *p = (struct output_piece){.stream = stream, .offset = offset, .len = len};
    memcpy(p->data, data, len);
    STAILQ_INSERT_TAIL(&q->pieces, p, link);
}

void output_queue_gap(struct output_queue *q, uint64_t offset, uint64_t count)
{
    struct output_piece *p = NEW(struct output_piece);
    *p = (struct output_piece){.offset = offset, .gap = count};
    STAILQ_INSERT_TAIL(&q->pieces, p, link);
}

struct output_piece *output_queue_first(struct output_queue *q)
{
    return STAILQ_FIRST(&q->pieces);
}

void output_queue_take(struct output_queue *q, size_t len)
{
    struct output_piece *p = STAILQ_FIRST(&q->pieces);
    p->start += len;
    p->offset += len;
    p->len -= len;
    if (!p->len)
        drop_first(q);
}

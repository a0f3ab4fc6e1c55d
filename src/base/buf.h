/* A byte buffer that grows up to a maximum set where it is made. Bytes are taken from the front without moving the
 * rest each time. Never read past `len`; the content is not NUL-terminated unless buf_cstr is called. */
#ifndef SPACE_BASE_BUF_H
#define SPACE_BASE_BUF_H

#include "base/defs.h"

struct buf {
    uint8_t *mem;
    size_t start;    /* first byte in use */
    size_t len;      /* bytes in use */
    size_t capacity; /* bytes allocated */
    size_t max;      /* more than this is refused; 0 stands for SIZE_MAX */
    bool overflow;   /* an append was refused; stays set until buf_reset */
};

#define BUF_MAX(n) ((struct buf){.max = (n)})

void buf_init(struct buf *b, size_t max_bytes);
void buf_done(struct buf *b); /* frees; the buffer can be used again with the same maximum */
void buf_reset(struct buf *b);

/* The first byte in use; never NULL, so that an empty buffer can go to memcpy, memmem and the like. */
static inline uint8_t *buf_data(const struct buf *b)
{
    static uint8_t nothing[1];
    return b->mem ? b->mem + b->start : nothing;
}

/* Append; false (and overflow set, nothing appended) when the maximum would be passed. */
bool buf_put(struct buf *b, const void *data, size_t len);
bool buf_put_str(struct buf *b, const char *s);
bool buf_put_byte(struct buf *b, uint8_t byte);
bool buf_printf(struct buf *b, const char *format, ...) ATTR_PRINTF(2, 3);
bool buf_put_u16(struct buf *b, uint16_t v); /* integers in network byte order */
bool buf_put_u32(struct buf *b, uint32_t v);
bool buf_put_u64(struct buf *b, uint64_t v);

/* Room for at least `len` bytes at the end, or NULL at the maximum; then buf_commit what was written. */
uint8_t *buf_reserve(struct buf *b, size_t len);
void buf_commit(struct buf *b, size_t len);

void buf_consume(struct buf *b, size_t len); /* drop from the front; len ≤ b->len */
const char *buf_cstr(struct buf *b);         /* the content as a C string, valid until the next change */
char *buf_steal_str(struct buf *b);          /* the content as a string of the caller's; the buffer is empty after */

#define _cleanup_buf_ _cleanup_(buf_done)

static inline uint16_t get_u16(const uint8_t *p)
{
    return (uint16_t)((unsigned)p[0] << 8 | p[1]);
}
static inline uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t get_u64(const uint8_t *p)
{
    return (uint64_t)get_u32(p) << 32 | get_u32(p + 4);
}

#endif

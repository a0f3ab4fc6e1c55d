/* The bounded byte buffer (see buf.h). */
#include "base/buf.h"

#include <stdarg.h>

void buf_init(struct buf *b, size_t max_bytes)
{
    *b = (struct buf){.max = max_bytes};
}

void buf_done(struct buf *b)
{
    free(b->mem);
    *b = (struct buf){.max = b->max};
}

void buf_reset(struct buf *b)
{
    b->start = b->len = 0;
    b->overflow = false;
}

uint8_t *buf_reserve(struct buf *b, size_t len)
{
    size_t max = b->max ? b->max : SIZE_MAX / 4;
    if (len > max || b->len > max - len) {
        b->overflow = true;
        return NULL;
    }
    if (!b->mem || b->start + b->len + len > b->capacity) {
        if (b->start > 0 && b->len + len <= b->capacity && b->start >= b->len) {
            memcpy(b->mem, b->mem + b->start, b->len);
        } else {
            size_t capacity = b->capacity ? b->capacity : 256;
            while (capacity < b->len + len)
                capacity *= 2;
            uint8_t *mem = xmalloc(capacity);
            if (b->len)
                memcpy(mem, b->mem + b->start, b->len);
            free(b->mem);
            b->mem = mem;
            b->capacity = capacity;
        }
        b->start = 0;
    }
    return b->mem + b->start + b->len;
}

void buf_commit(struct buf *b, size_t len)
{
    b->len += len;
}

bool buf_put(struct buf *b, const void *data, size_t len)
{
    uint8_t *to = buf_reserve(b, len);
    if (!to)
        return false;
    if (len)
        memcpy(to, data, len);
    b->len += len;
    return true;
}

bool buf_put_str(struct buf *b, const char *s)
{
    return buf_put(b, s, strlen(s));
}

bool buf_put_byte(struct buf *b, uint8_t byte)
{
    return buf_put(b, &byte, 1);
}

bool buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int need = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (need < 0)
        return false;
    uint8_t *to = buf_reserve(b, (size_t)need + 1);
    if (!to)
        return false;
    va_start(args, format);
    vsnprintf((char *)to, (size_t)need + 1, format, args);
    va_end(args);
    b->len += (size_t)need;
    return true;
}

bool buf_put_u16(struct buf *b, uint16_t v)
{
    uint8_t raw[2] = {(uint8_t)(v >> 8), (uint8_t)v};
    return buf_put(b, raw, sizeof(raw));
}

bool buf_put_u32(struct buf *b, uint32_t v)
{
    uint8_t raw[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
    return buf_put(b, raw, sizeof(raw));
}

bool buf_put_u64(struct buf *b, uint64_t v)
{
    return buf_put_u32(b, (uint32_t)(v >> 32)) && buf_put_u32(b, (uint32_t)v);
}

void buf_consume(struct buf *b, size_t len)
{
    if (len > b->len)
        len = b->len;
    b->start += len;
    b->len -= len;
    if (b->len == 0)
        b->start = 0;
}

const char *buf_cstr(struct buf *b)
{
    size_t max = b->max;
    b->max = 0; /* the terminator is not content */
    uint8_t *end = buf_reserve(b, 1);
    b->max = max;
    *end = '\0';
    return (const char *)buf_data(b);
}

char *buf_steal_str(struct buf *b)
{
    char *s = xstrndup(buf_cstr(b), b->len);
    buf_done(b);
    return s;
}

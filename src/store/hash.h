/* SHA-256. Apart from the rest because OpenSSL's headers and base/err.h claim the same names. */
#ifndef SPACE_STORE_HASH_H
#define SPACE_STORE_HASH_H

#include "base/defs.h"

#define SHA256_LEN 32

struct span {
    const void *data;
    size_t len;
};

/* Over all spans, one after the other. */
void sha256_spans(const struct span *spans, size_t count, uint8_t ret_hash[SHA256_LEN]);

static inline void sha256(const void *data, size_t len, uint8_t ret_hash[SHA256_LEN])
{
    sha256_spans(&(struct span){data, len}, 1, ret_hash);
}

#endif

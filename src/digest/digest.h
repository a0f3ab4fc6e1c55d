/* SHA-256 (FIPS 180-4), by OpenSSL. A header of its own because OpenSSL's names collide with those of base/err.h. */
#ifndef SPACE_DIGEST_DIGEST_H
#define SPACE_DIGEST_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_LEN 32
#define SHA256_HEX_SIZE 65 /* hex digits and NUL */

struct sha256;

struct sha256 *sha256_new(void);
void sha256_add(struct sha256 *s, const void *data, size_t len);
/* Writes the digest and frees `s`. */
void sha256_end(struct sha256 *s, uint8_t ret_digest[SHA256_LEN]);

void sha256_of(const void *data, size_t len, uint8_t ret_digest[SHA256_LEN]);

#endif

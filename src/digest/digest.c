/* SHA-256 by OpenSSL (see digest.h). */
#include "digest/digest.h"

#include <openssl/evp.h>
#include <stdlib.h>

/* OpenSSL fails here only without memory or without a provider of SHA-256: no caller could go on. */
static void must(int ok)
{
    if (!ok)
        abort();
}

struct sha256 *sha256_new(void)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    must(context != NULL);
    must(EVP_DigestInit_ex(context, EVP_sha256(), NULL));
    return (struct sha256 *)context;
}

void sha256_add(struct sha256 *s, const void *data, size_t len)
{
    must(EVP_DigestUpdate((EVP_MD_CTX *)s, data, len));
}

void sha256_end(struct sha256 *s, uint8_t ret_digest[SHA256_LEN])
{
    unsigned len = 0;
    must(EVP_DigestFinal_ex((EVP_MD_CTX *)s, ret_digest, &len));
    EVP_MD_CTX_free((EVP_MD_CTX *)s);
}

void sha256_of(const void *data, size_t len, uint8_t ret_digest[SHA256_LEN])
{
    struct sha256 *s = sha256_new();
    sha256_add(s, data, len);
    sha256_end(s, ret_digest);
}

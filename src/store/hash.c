/* SHA-256 by OpenSSL (see hash.h). */
#include "store/hash.h"

#include <openssl/evp.h>

void sha256_spans(const struct span *spans, size_t count, uint8_t ret_hash[SHA256_LEN])
{
    static EVP_MD *algorithm; /* looked up once: the look-up costs more than the hash of a key */
    if (!algorithm)
        algorithm = EVP_MD_fetch(NULL, "SHA256", NULL);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool ok = algorithm && context && EVP_DigestInit_ex(context, algorithm, NULL) == 1;
    for (size_t i = 0; ok && i < count; i++)
        ok = EVP_DigestUpdate(context, spans[i].data, spans[i].len) == 1;
    if (!ok || EVP_DigestFinal_ex(context, ret_hash, NULL) != 1)
        abort(); /* only without memory, or with an OpenSSL that has no SHA-256 */
    EVP_MD_CTX_free(context);
}

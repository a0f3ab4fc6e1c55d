/* Identifiers and random bytes (see id.h). */
#include "base/id.h"

#include <errno.h>
#include <sys/random.h>

void random_bytes(void *ret_data, size_t len)
{
    uint8_t *p = ret_data;
    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            abort();
        p += n;
        len -= (size_t)n;
    }
}

static const char id_alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

void id_new(enum id_kind kind, char ret_id[ID_SIZE])
{
    uint8_t raw[ID_LEN - 1];
    random_bytes(raw, sizeof(raw));
    ret_id[0] = (char)kind;
    for (size_t i = 0; i < sizeof(raw); i++)
        ret_id[i + 1] = id_alphabet[raw[i] & 31];
    ret_id[ID_LEN] = '\0';
}

bool id_valid(enum id_kind kind, const char *id)
{
    if (strnlen(id, ID_SIZE) != ID_LEN || id[0] != (char)kind)
        return false;
    for (size_t i = 1; i < ID_LEN; i++)
        if (!strchr(id_alphabet, id[i]))
            return false;
    return true;
}

bool equal_constant_time(const void *a, const void *b, size_t len)
{
    const volatile uint8_t *p = a, *q = b;
    uint8_t difference = 0;
    for (size_t i = 0; i < len; i++)
        difference |= p[i] ^ q[i];
    return difference == 0;
}

void wipe(void *p, size_t len)
{
    explicit_bzero(p, len);
}

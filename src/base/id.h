/* Identifiers and random bytes. An id is one lower-case letter for the kind and 20 characters of [a-z2-7] (100 random
 * bits), so that it is a DNS label and says what it names. */
#ifndef SPACE_BASE_ID_H
#define SPACE_BASE_ID_H

#include "base/defs.h"

#define ID_LEN 21
#define ID_SIZE (ID_LEN + 1)

enum id_kind {
    ID_SANDBOX = 's',
    ID_OPERATION = 'o',
    ID_EXEC = 'x',
    ID_KEY = 'k',
    ID_PROJECT = 'p',
    ID_MACHINE = 'm',
    ID_REQUEST = 'r',
};

void random_bytes(void *ret_data, size_t len); /* from the kernel's generator; cannot fail */
void id_new(enum id_kind kind, char ret_id[ID_SIZE]);
bool id_valid(enum id_kind kind, const char *id);

/* Compare without the time telling where they differ. */
bool equal_constant_time(const void *a, const void *b, size_t len);

/* Overwrite so that the compiler cannot leave it out. */
void wipe(void *p, size_t len);

#endif

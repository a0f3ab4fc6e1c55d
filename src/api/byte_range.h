/* The Range header (RFC 9110, section 14.2), one range of bytes. */
#ifndef SPACE_API_BYTE_RANGE_H
#define SPACE_API_BYTE_RANGE_H

#include "base/err.h"

struct byte_range {
    bool given;
    bool suffix;     /* the last `length` bytes */
    uint64_t first;
    uint64_t length; /* UINT64_MAX: to the end */
};

/* NULL, other units, several ranges and what is malformed are as if there were no header. */
void byte_range_parse(const char *header, struct byte_range *ret_range);

#endif

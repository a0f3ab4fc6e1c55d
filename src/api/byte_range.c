/* The Range header. */
#include "api/byte_range.h"

#include "base/str.h"

#include <strings.h>

static bool number(const char *p, size_t len, uint64_t *ret_value)
{
    char digits[20];
    if (len == 0 || len >= sizeof(digits))
        return false;
    memcpy(digits, p, len);
    digits[len] = '\0';
    return str_to_u64(digits, 0, INT64_MAX, ret_value);
}

void byte_range_parse(const char *header, struct byte_range *ret_range)
{
    *ret_range = (struct byte_range){.length = UINT64_MAX};
    if (!header || strncasecmp(header, "bytes=", 6) != 0)
        return;
    const char *spec = header + 6 + strspn(header + 6, " "), *dash = strchr(spec, '-');
    size_t end = dash ? strlen(dash + 1) : 0;
    uint64_t first, last;
    if (!dash || strchr(spec, ','))
        return;
    while (end && dash[end] == ' ')
        end--;
    if (dash == spec) {
        if (!number(dash + 1, end, &last) || last == 0)
            return;
        *ret_range = (struct byte_range){.given = true, .suffix = true, .length = last};
        return;
    }
    if (!number(spec, (size_t)(dash - spec), &first))
        return;
    if (end == 0)
        *ret_range = (struct byte_range){.given = true, .first = first, .length = UINT64_MAX};
    else if (number(dash + 1, end, &last) && last >= first)
        *ret_range = (struct byte_range){.given = true, .first = first, .length = last - first + 1};
}

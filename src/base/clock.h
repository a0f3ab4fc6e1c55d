/* Time. Wall-clock times are milliseconds since 1970 UTC (`_ms`), durations are measured with the monotonic clock. */
#ifndef SPACE_BASE_CLOCK_H
#define SPACE_BASE_CLOCK_H

#include "base/defs.h"

#define RFC3339_SIZE 32

int64_t clock_wall_ms(void);
uint64_t clock_mono_ms(void);
uint64_t clock_mono_ns(void);
/* "2026-01-31T12:00:00.123Z" */
void clock_format_ms(int64_t wall_ms, char ret_text[RFC3339_SIZE]);
/* RFC 3339 with "Z" or a numeric offset. */
bool clock_parse_ms(const char *text, int64_t *ret_wall_ms);

#endif

/* Time (see clock.h). */
#include "base/clock.h"

#include <time.h>

int64_t clock_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

uint64_t clock_mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

uint64_t clock_mono_ms(void)
{
    return clock_mono_ns() / 1000000;
}

void clock_format_ms(int64_t wall_ms, char ret_text[RFC3339_SIZE])
{
    int64_t ms = wall_ms % 1000;
    time_t seconds = (time_t)(wall_ms / 1000);
    if (ms < 0) {
        ms += 1000;
        seconds--;
    }
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || tm.tm_year > 8099 || tm.tm_year < -1900) {
        snprintf(ret_text, RFC3339_SIZE, "invalid");
        return;
    }
    size_t n = strftime(ret_text, RFC3339_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret_text + n, RFC3339_SIZE - n, ".%03dZ", (int)ms);
}

bool clock_parse_ms(const char *text, int64_t *ret_wall_ms)
{
    struct tm tm = {0};
    int ms = 0;
    const char *p = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!p)
        return false;
    if (*p == '.') {
        int scale = 100;
        for (p++; *p >= '0' && *p <= '9'; p++, scale /= 10)
            ms += (*p - '0') * scale;
    }
    int64_t offset = 0;
    if (*p == 'Z' || *p == 'z') {
        p++;
    } else if (*p == '+' || *p == '-') {
        int hours, minutes, used = 0;
        if (sscanf(p + 1, "%2d:%2d%n", &hours, &minutes, &used) != 2 || used != 5)
            return false;
        offset = (hours * 60 + minutes) * 60 * (*p == '-' ? -1 : 1);
        p += 6;
    } else {
        return false;
    }
    if (*p)
        return false;
    *ret_wall_ms = ((int64_t)timegm(&tm) - offset) * 1000 + ms;
    return true;
}

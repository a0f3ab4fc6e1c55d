/* Percentiles (see stats.h). */
#include "cli/stats.h"

void stats_add(struct stats *s, double value)
{
    if (s->len == s->capacity) {
        s->capacity = s->capacity ? s->capacity * 2 : 64;
        s->values = xrealloc(s->values, s->capacity * sizeof(*s->values));
    }
    s->values[s->len++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stats_at(struct stats *s, double fraction)
{
    if (s->len == 0)
        return 0;
    qsort(s->values, s->len, sizeof(*s->values), compare);
    size_t rank = (size_t)(fraction * (double)s->len + 0.999999);
    return s->values[MIN(MAX(rank, (size_t)1), s->len) - 1];
}

void stats_done(struct stats *s)
{
    free(s->values);
    *s = (struct stats){0};
}

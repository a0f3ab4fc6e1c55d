/* Percentiles of a few thousand measurements. */
#ifndef SPACE_CLI_STATS_H
#define SPACE_CLI_STATS_H

#include "base/defs.h"

struct stats {
    double *values;
    size_t len, capacity;
};

void stats_add(struct stats *s, double value);
/* Nearest rank, 0 < fraction ≤ 1; sorts. 0 without values. */
double stats_at(struct stats *s, double fraction);
void stats_done(struct stats *s);

#endif

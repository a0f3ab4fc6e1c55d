/* The query of a request's path: `name=value&…`, percent-encoded. */
#ifndef SPACE_AGENT_QUERY_H
#define SPACE_AGENT_QUERY_H

#include "agent/limits.h"
#include "base/err.h"

struct query {
    char *name[LIMIT_QUERY_PARAMS], *value[LIMIT_QUERY_PARAMS];
    size_t count;
};

/* Cut `text` (changed in place; NULL: no query). ERR_INVALID for a broken escape, a name twice, or too many. */
int query_parse(char *text, struct query *ret_query, struct err *e);
const char *query_get(const struct query *q, const char *name); /* NULL when absent */
/* Values with a default for absence; ERR_INVALID when present and not of the form or out of bounds. */
int query_u64(const struct query *q, const char *name, uint64_t fallback, uint64_t min, uint64_t max,
              uint64_t *ret_value, struct err *e);
int query_flag(const struct query *q, const char *name, bool fallback, bool *ret_value, struct err *e); /* 0 or 1 */
/* Permission bits in octal; UINT32_MAX when absent. */
int query_mode(const struct query *q, uint32_t *ret_mode, struct err *e);
/* An absolute path of at most AGENT_PATH_MAX bytes; must be there. */
int query_path(const struct query *q, const char *name, const char **ret_path, struct err *e);

#endif

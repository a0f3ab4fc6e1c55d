/* Structured log lines on standard error: `time level message key=value …` (logfmt) or one JSON object a line.
 * Values are escaped and cut at 1,024 bytes, so that one call is one well-formed line whatever it was given.
 * Programs log; libraries return errors instead. */
#ifndef SPACE_BASE_LOG_H
#define SPACE_BASE_LOG_H

#include "base/defs.h"

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

struct log_field {
    const char *key;
    const char *value; /* NULL leaves the field out */
    int64_t number;    /* used when is_number */
    bool is_number;
};

#define F_STR(k, v) ((struct log_field){.key = (k), .value = (v)})
#define F_INT(k, v) ((struct log_field){.key = (k), .number = (int64_t)(v), .is_number = true})

void log_setup(enum log_level least, bool json);
bool log_level_parse(const char *name, enum log_level *ret_level);
void log_write(enum log_level level, const char *message, const struct log_field *fields, size_t count);

#define log_at(level, message, ...)                                                                                    \
    log_write(level, message, (const struct log_field[]){__VA_ARGS__ __VA_OPT__(, )(struct log_field){0}},                \
              sizeof((const struct log_field[]){__VA_ARGS__ __VA_OPT__(, )(struct log_field){0}}) /                       \
                      sizeof(struct log_field) -                                                                       \
                  1)
#define log_debug(message, ...) log_at(LOG_LEVEL_DEBUG, message, __VA_ARGS__)
#define log_info(message, ...) log_at(LOG_LEVEL_INFO, message, __VA_ARGS__)
#define log_warn(message, ...) log_at(LOG_LEVEL_WARN, message, __VA_ARGS__)
#define log_error(message, ...) log_at(LOG_LEVEL_ERROR, message, __VA_ARGS__)

#endif

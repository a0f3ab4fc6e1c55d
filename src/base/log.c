/* Structured log lines (see log.h). */
#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"

#define VALUE_MAX 1024
#define LINE_MAX_BYTES (64 * KIB)

static enum log_level least_level = LOG_LEVEL_INFO;
static bool as_json;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_setup(enum log_level least, bool json)
{
    least_level = least;
    as_json = json;
}

bool log_level_parse(const char *name, enum log_level *ret_level)
{
    for (size_t i = 0; i < ARRAY_LEN(level_names); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

/* The value between quotes: text_escape, then quotes and (in JSON) backslashes made harmless. */
static void put_quoted(struct buf *line, const char *value)
{
    size_t len = strnlen(value, VALUE_MAX + 1);
    bool cut = len > VALUE_MAX;
    _cleanup_buf_ struct buf safe = BUF_MAX(8 * VALUE_MAX);
    text_escape(&safe, value, cut ? VALUE_MAX : len);
    if (cut)
        buf_put_str(&safe, "…[cut]");
    buf_put_byte(line, '"');
    for (size_t i = 0; i < safe.len; i++) {
        uint8_t c = buf_data(&safe)[i];
        if (c == '"' || c == '\\')
            buf_put_byte(line, '\\');
        buf_put_byte(line, c);
    }
    buf_put_byte(line, '"');
}

static void put_field(struct buf *line, const struct log_field *f)
{
    if (!f->is_number && !f->value)
        return;
    if (as_json)
        buf_printf(line, ",\"%s\":", f->key);
    else
        buf_printf(line, " %s=", f->key);
    if (f->is_number)
        buf_printf(line, "%lld", (long long)f->number);
    else
        put_quoted(line, f->value);
}

void log_write(enum log_level level, const char *message, const struct log_field *fields, size_t count)
{
    if (level < least_level)
        return;
    char now[RFC3339_SIZE];
    clock_format_ms(clock_wall_ms(), now);
    _cleanup_buf_ struct buf line = BUF_MAX(LINE_MAX_BYTES);
    if (as_json) {
        buf_printf(&line, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":", now, level_names[level]);
        put_quoted(&line, message);
    } else {
        buf_printf(&line, "%s %-5s ", now, level_names[level]);
        put_quoted(&line, message);
    }
    for (size_t i = 0; i < count; i++)
        put_field(&line, &fields[i]);
    buf_put_str(&line, as_json ? "}\n" : "\n");
    ssize_t n = write(STDERR_FILENO, buf_data(&line), line.len);
    (void)n; /* there is nowhere to report that the log is gone */
}

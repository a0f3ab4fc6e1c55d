/* Server-Sent Events (see sse.h). HTML Living Standard, section 9.2.6, without `retry`, which is left to the caller. */
#include "cli/sse.h"

void sse_init(struct sse *s, int (*on_event)(void *arg, const struct sse_event *event), void *arg)
{
    *s = (struct sse){.line = BUF_MAX(SSE_LINE_MAX), .data = BUF_MAX(SSE_DATA_MAX), .on_event = on_event, .arg = arg};
}

void sse_restart(struct sse *s)
{
    buf_reset(&s->line);
    buf_reset(&s->data);
    s->name[0] = '\0';
    s->has_data = false;
}

void sse_done(struct sse *s)
{
    buf_done(&s->line);
    buf_done(&s->data);
}

static int dispatch(struct sse *s)
{
    int r = 0;
    if (s->has_data) {
        struct sse_event event = {
            .name = s->name[0] ? s->name : "message", .id = s->id, .data = buf_cstr(&s->data), .len = s->data.len};
        r = s->on_event(s->arg, &event);
    }
    buf_reset(&s->data);
    s->name[0] = '\0';
    s->has_data = false;
    return r;
}

static void copy_text(char *to, size_t size, const char *from, size_t len)
{
    if (len >= size || memchr(from, '\0', len))
        return;
    memcpy(to, from, len);
    to[len] = '\0';
}

static int take_line(struct sse *s, const char *line, size_t len, struct err *e)
{
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (len == 0)
        return dispatch(s);
    const char *colon = memchr(line, ':', len);
    size_t name_len = colon ? (size_t)(colon - line) : len;
    const char *value = colon ? colon + 1 : line + len;
    if (value < line + len && *value == ' ')
        value++;
    size_t value_len = (size_t)(line + len - value);
    if (name_len == 4 && memcmp(line, "data", 4) == 0) {
        if ((s->has_data && !buf_put_byte(&s->data, '\n')) || !buf_put(&s->data, value, value_len))
            return err_set(e, ERR_PROTOCOL, "an event of the server is larger than %llu bytes", SSE_DATA_MAX);
        s->has_data = true;
    } else if (name_len == 5 && memcmp(line, "event", 5) == 0) {
        copy_text(s->name, sizeof(s->name), value, value_len);
    } else if (name_len == 2 && memcmp(line, "id", 2) == 0) {
        copy_text(s->id, sizeof(s->id), value, value_len);
    }
    return 0;
}

int sse_feed(struct sse *s, const void *data, size_t len, struct err *e)
{
    const char *p = data, *end = p + len;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((newline ? newline : end) - p);
        int r = 0;
        if (newline && s->line.len == 0) {
            r = take_line(s, p, n, e);
        } else {
            if (!buf_put(&s->line, p, n))
                return err_set(e, ERR_PROTOCOL, "a line of the server's event stream is too long");
            if (newline) {
                r = take_line(s, (const char *)buf_data(&s->line), s->line.len, e);
                buf_reset(&s->line);
            }
        }
        if (r != 0)
            return r;
        p += n + (newline != NULL);
    }
    return 0;
}

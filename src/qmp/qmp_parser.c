/* QMP without I/O (see qmp_parser.h). */
#include "qmp/qmp_parser.h"

#include "qmp/qmp.h"

void qmp_parser_init(struct qmp_parser *p, size_t line_max)
{
    *p = (struct qmp_parser){0};
    buf_init(&p->line, line_max);
}

void qmp_parser_done(struct qmp_parser *p)
{
    buf_done(&p->line);
}

static int message_read(json_t *root, struct qmp_message *m, struct err *e)
{
    *m = (struct qmp_message){.root = root};
    json_t *value;
    if (!json_is_object(root))
        return err_set(e, ERR_PROTOCOL, "qemu sent something that is no object");
    if (json_object_get(root, "QMP")) {
        m->kind = QMP_GREETING;
        return 0;
    }
    if ((value = json_object_get(root, "event"))) {
        if (!json_is_string(value))
            return err_set(e, ERR_PROTOCOL, "qemu sent an event without a name");
        m->kind = QMP_EVENT;
        m->name = json_string_value(value);
        m->body = json_object_get(root, "data");
        return 0;
    }
    json_t *id = json_object_get(root, "id");
    if (!json_is_integer(id) || json_integer_value(id) <= 0)
        return err_set(e, ERR_PROTOCOL, "qemu answered without a usable id");
    m->id = (uint64_t)json_integer_value(id);
    if ((value = json_object_get(root, "return"))) {
        m->kind = QMP_ANSWER;
        m->body = value;
        return 0;
    }
    if ((value = json_object_get(root, "error"))) {
        m->kind = QMP_ERROR;
        m->body = value;
        return 0;
    }
    return err_set(e, ERR_PROTOCOL, "qemu sent a message of no known kind");
}

/* One line; `*go_on` false when the taker wants no more. */
static int line_read(struct qmp_parser *p, const uint8_t *line, size_t len, uint64_t now_ms,
                     bool (*on_message)(void *, const struct qmp_message *), void *arg, bool *go_on, struct err *e)
{
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' '))
        len--;
    if (len == 0)
        return 0;
    json_t *root = json_loadb((const char *)line, len, JSON_REJECT_DUPLICATES, NULL);
    if (!root)
        return err_set(e, ERR_PROTOCOL, "qemu sent a line that is no JSON");
    struct qmp_message m;
    int r = message_read(root, &m, e);
    if (r == 0 && m.kind == QMP_EVENT) {
        if (now_ms - p->window_start_ms >= 1000) {
            p->window_start_ms = now_ms;
            p->events = 0;
        }
        if (++p->events > QMP_EVENTS_PER_SECOND)
            r = err_set(e, ERR_PROTOCOL, "qemu sent more than %d events in a second", QMP_EVENTS_PER_SECOND);
    }
    if (r == 0)
        *go_on = on_message(arg, &m);
    json_decref(root);
    return r;
}

int qmp_parser_feed(struct qmp_parser *p, const void *data, size_t len, uint64_t now_ms,
                    bool (*on_message)(void *, const struct qmp_message *), void *arg, struct err *e)
{
    const uint8_t *at = data, *end = at + len;
    bool go_on = true;
    while (at < end && go_on) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
        size_t part = (size_t)((newline ? newline : end) - at);
        if (!buf_put(&p->line, at, part))
            return err_set(e, ERR_PROTOCOL, "qemu sent a line of more than %zu bytes", p->line.max);
        if (!newline)
            return 0;
        struct buf whole = p->line; /* a callback may end the parser: work on a copy of its own */
        p->line = (struct buf){.max = whole.max};
        int r = line_read(p, buf_data(&whole), whole.len, now_ms, on_message, arg, &go_on, e);
        buf_reset(&whole);
        if (r < 0 || !go_on || p->line.mem)
            buf_done(&whole);
        else
            p->line = whole;
        if (r < 0)
            return r;
        at = newline + 1;
    }
    return 0;
}

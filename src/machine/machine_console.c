/* The guest's console: a ring inside QEMU, read over QMP, and what it says of how the guest ended. */
#include "base/str.h"
#include "machine/machine_internal.h"

struct console_read {
    struct machine *m;
    void (*done)(void *arg, const void *data, size_t len, const struct err *e);
    void *arg;
};

static void on_console(void *arg, json_t *answer, const struct err *e)
{
    _cleanup_free_ struct console_read *read = arg;
    struct machine *m = read->m;
    struct err bad = {0};
    if (e) {
        read->done(read->arg, NULL, 0, e);
        return;
    }
    const char *text = json_string_value(answer);
    size_t len = text ? strlen(text) : 0;
    _cleanup_free_ uint8_t *data = xmalloc(len + 4);
    ssize_t got = text ? base64_decode(text, len, data) : -1;
    if (got < 0) {
        err_set(&bad, ERR_PROTOCOL, "qemu gave a console that cannot be read");
        read->done(read->arg, NULL, 0, &bad);
        return;
    }
    /* Reading takes the bytes out of QEMU's ring: keep them here, at most as many as the ring holds. */
    if (m->console.len + (size_t)got > MACHINE_CONSOLE_MAX)
        buf_consume(&m->console, m->console.len + (size_t)got - MACHINE_CONSOLE_MAX);
    buf_put(&m->console, data, (size_t)got);
    m->console_read = true;
    read->done(read->arg, buf_data(&m->console), m->console.len, NULL);
}

void machine_console(struct machine *m, void (*done)(void *arg, const void *data, size_t len, const struct err *e),
                     void *arg)
{
    struct console_read *read = NEW(struct console_read);
    *read = (struct console_read){.m = m, .done = done, .arg = arg};
    if (!m->qmp) {
        struct err e = {0};
        err_set(&e, ERR_STATE, "the machine does not answer yet");
        on_console(read, NULL, &e);
        return;
    }
    qmp_command(m->qmp, "ringbuf-read",
                json_pack("{s:s, s:i, s:s}", "device", "console", "size", (int)MACHINE_CONSOLE_MAX, "format", "base64"),
                -1, 0, on_console, read);
}

const struct buf *machine_console_seen(const struct machine *m)
{
    return m->console_read ? &m->console : NULL;
}

/* The guest has ended itself (reset after a panic, or power off): QEMU stands paused so that the console's last words
 * can be read. */
static void on_last_words(void *arg, const void *data, size_t len, const struct err *e)
{
    struct machine *m = arg;
    char reason[300] = "the guest shut itself down";
    static const char mark[] = "Kernel panic - not syncing: ";
    const char *at = e || !len ? NULL : memmem(data, len, mark, sizeof(mark) - 1);
    if (m->freeing || m->state == MACHINE_ENDED)
        return;
    if (at) {
        at += sizeof(mark) - 1;
        size_t rest = (size_t)((const char *)data + len - at), n = 0;
        while (n < rest && n < 120 && at[n] != '\n' && at[n] != '\r')
            n++;
        _cleanup_buf_ struct buf safe = BUF_MAX(2000);
        text_escape(&safe, at, n);
        snprintf(reason, sizeof(reason), "the guest kernel panicked: %.200s", buf_cstr(&safe));
    } else if (strcmp(m->shutdown_reason, "guest-reset") == 0) {
        snprintf(reason, sizeof(reason), "the guest restarted itself");
    }
    machine_kill(m);
    machine_end(m, reason);
}

void machine_last_words(struct machine *m)
{
    machine_console(m, on_last_words, m);
}

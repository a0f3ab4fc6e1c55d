/* space console: what the guest's kernel wrote on its serial console. */
#include "base/file.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

struct console_args {
    uint64_t tail;
    bool raw;
};

/* Lines stay lines; whatever else could act on a terminal is escaped. */
static void print_escaped(const char *text, size_t len)
{
    _cleanup_buf_ struct buf out = BUF_MAX(0);
    while (len > 0) {
        const char *newline = memchr(text, '\n', len);
        size_t n = newline ? (size_t)(newline - text) : len, shown = n;
        while (shown > 0 && text[shown - 1] == '\r')
            shown--;
        text_escape(&out, text, shown);
        buf_put_byte(&out, '\n');
        n += newline != NULL;
        text += n;
        len -= n;
    }
    fwrite(buf_data(&out), 1, out.len, stdout);
}

static int run(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    const struct console_args *a = args;
    struct api *api;
    char id[ID_SIZE], tail[24];
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = sandbox_resolve(api, argv[0], id, e);
    if (r < 0)
        return r;
    snprintf(tail, sizeof(tail), "%ju", (uintmax_t)a->tail);
    _cleanup_free_ char *base = xasprintf("/v1/sandboxes/%s/console", id);
    _cleanup_free_ char *path = api_path(base, "tail_bytes", a->tail ? tail : NULL, NULL);
    struct transfer t = {.path = path};
    r = api_run(api, &t, e);
    int finished = api_finish(&t, r < 0 ? NULL : e);
    if (r >= 0)
        r = finished;
    if (r >= 0 && t.body.len > 0) {
        if (a->raw || !isatty(STDOUT_FILENO))
            fwrite(buf_data(&t.body), 1, t.body.len, stdout);
        else
            print_escaped((const char *)buf_data(&t.body), t.body.len);
    }
    buf_done(&t.body);
    return r;
}

static const struct opt options[] = {
    {.name = "tail",
     .arg = "SIZE",
     .kind = OPT_BYTES,
     .offset = offsetof(struct console_args, tail),
     .min = 1,
     .max = MIB,
     .help = "at most so much of the end (default: 64K)"},
    {.name = "raw",
     .kind = OPT_FLAG,
     .offset = offsetof(struct console_args, raw),
     .help = "do not escape what could act on this terminal"},
};

const struct command command_console = {
    .name = "console",
    .summary = "show the serial console of a sandbox",
    .synopsis = "SANDBOX",
    .text = "What the guest's kernel wrote, also of a sandbox that has failed. On a terminal control characters are\n"
            "escaped: the text is the guest's.",
    .examples = "space console demo",
    .options = options,
    .option_count = ARRAY_LEN(options),
    .args_size = sizeof(struct console_args),
    .min_args = 1,
    .max_args = 1,
    .complete = "sandbox",
    .run = run,
};

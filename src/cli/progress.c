/* The progress line (see out.h). */
#include "cli/out.h"

#include "base/clock.h"

#define PROGRESS_EVERY_MS 80
#define BAR_CELLS 20

void progress_init(struct progress *p, const struct cli *cli)
{
    *p = (struct progress){.on = cli->progress && !cli->json, .color = cli->color_err, .started_ms = clock_mono_ms()};
}

void progress_render(struct buf *out, const char *text, uint64_t done, uint64_t total, uint64_t elapsed_ms, bool bytes,
                     bool color)
{
    char a[24], b[24], time[24];
    if (total > 0) {
        done = MIN(done, total);
        unsigned full = (unsigned)((double)done / (double)total * BAR_CELLS);
        buf_put_str(out, color_on(COLOR_GOOD, color));
        for (unsigned i = 0; i < full; i++)
            buf_put_str(out, "━");
        buf_put_str(out, color_off(color));
        buf_put_str(out, color_on(COLOR_DIM, color));
        for (unsigned i = full; i < BAR_CELLS; i++)
            buf_put_str(out, "─");
        buf_put_str(out, color_off(color));
        if (bytes)
            buf_printf(out, " %s / %s ", format_bytes(done, a), format_bytes(total, b));
        else
            buf_printf(out, " %ju/%ju ", (uintmax_t)done, (uintmax_t)total);
    } else if (bytes) {
        buf_printf(out, "%s ", format_bytes(done, a));
    }
    if (bytes && elapsed_ms >= 500)
        buf_printf(out, "%s/s ", format_bytes((uint64_t)((double)done * 1000 / (double)elapsed_ms), a));
    _cleanup_free_ char *safe = escaped(text);
    buf_printf(out, "%s  %s%s%s", safe, color_on(COLOR_DIM, color), format_duration((int64_t)elapsed_ms, time),
               color_off(color));
}

static void draw(struct progress *p, const char *text, uint64_t done, uint64_t total, bool bytes)
{
    uint64_t at = clock_mono_ms();
    if (!p->on || (p->drawn && at - p->drawn_ms < PROGRESS_EVERY_MS))
        return;
    _cleanup_buf_ struct buf line = BUF_MAX(0);
    progress_render(&line, text, done, total, at - p->started_ms, bytes, p->color);
    fprintf(stderr, "\r\033[K%s", buf_cstr(&line));
    fflush(stderr);
    p->drawn = true;
    p->drawn_ms = at;
}

void progress_draw(struct progress *p, const char *text, uint64_t done, uint64_t total)
{
    draw(p, text, done, total, false);
}

void progress_draw_bytes(struct progress *p, const char *text, uint64_t done, uint64_t total)
{
    draw(p, text, done, total, true);
}

void progress_clear(struct progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}

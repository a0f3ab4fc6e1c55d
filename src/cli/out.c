/* Tables, times, sizes, JSON (see out.h). */
#include "cli/out.h"

#include <stdarg.h>

#include "base/clock.h"
#include "base/str.h"

const char *color_on(enum color c, bool enabled)
{
    static const char *const codes[] = {
        [COLOR_NONE] = "",         [COLOR_GOOD] = "\033[32m", [COLOR_BAD] = "\033[31m",
        [COLOR_WARN] = "\033[33m", [COLOR_DIM] = "\033[2m",   [COLOR_BOLD] = "\033[1m",
    };
    return enabled ? codes[c] : "";
}

const char *color_off(bool enabled)
{
    return enabled ? "\033[0m" : "";
}

char *escaped(const char *text)
{
    _cleanup_buf_ struct buf b = BUF_MAX(0);
    text_escape(&b, text, strlen(text));
    return buf_steal_str(&b);
}

/* Columns that `s` takes: code points, as everything that would not be one column is escaped or rare. */
static size_t text_width(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

void table_init(struct table *t, const char *const *titles, size_t columns)
{
    *t = (struct table){.titles = titles, .columns = MIN(columns, (size_t)TABLE_COLUMNS_MAX)};
}

void table_row(struct table *t, const char *const *cells, int colored, enum color color)
{
    if (t->rows == t->capacity) {
        t->capacity = t->capacity ? t->capacity * 2 : 32;
        t->cells = xrealloc(t->cells, t->capacity * t->columns * sizeof(*t->cells));
        t->colors = xrealloc(t->colors, t->capacity * t->columns * sizeof(*t->colors));
    }
    for (size_t i = 0; i < t->columns; i++) {
        t->cells[t->rows * t->columns + i] = escaped(cells[i] && *cells[i] ? cells[i] : "-");
        t->colors[t->rows * t->columns + i] = (int)i == colored ? color : COLOR_NONE;
    }
    t->rows++;
}

static void put_cell(struct buf *out, const char *text, size_t width, bool right, bool last)
{
    size_t used = text_width(text), pad = width > used ? width - used : 0;
    if (right)
        buf_printf(out, "%*s", (int)pad, "");
    buf_put_str(out, text);
    if (!right && !last)
        buf_printf(out, "%*s", (int)pad, "");
}

void table_render(const struct table *t, bool color, struct buf *out)
{
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    for (size_t c = 0; c < t->columns; c++) {
        widths[c] = text_width(t->titles[c]) - (t->titles[c][0] == '>');
        for (size_t r = 0; r < t->rows; r++)
            widths[c] = MAX(widths[c], text_width(t->cells[r * t->columns + c]));
    }
    buf_put_str(out, color_on(COLOR_DIM, color));
    for (size_t c = 0; c < t->columns; c++) {
        bool right = t->titles[c][0] == '>';
        put_cell(out, t->titles[c] + right, widths[c], right, c + 1 == t->columns);
        buf_put_str(out, c + 1 == t->columns ? "" : "  ");
    }
    buf_put_str(out, color_off(color));
    buf_put_byte(out, '\n');
    for (size_t r = 0; r < t->rows; r++) {
        for (size_t c = 0; c < t->columns; c++) {
            enum color own = t->colors[r * t->columns + c];
            buf_put_str(out, color_on(own, color));
            put_cell(out, t->cells[r * t->columns + c], widths[c], t->titles[c][0] == '>', c + 1 == t->columns);
            if (own != COLOR_NONE)
                buf_put_str(out, color_off(color));
            buf_put_str(out, c + 1 == t->columns ? "" : "  ");
        }
        buf_put_byte(out, '\n');
    }
}

void table_print(const struct table *t, const struct cli *cli)
{
    _cleanup_buf_ struct buf out = BUF_MAX(0);
    table_render(t, cli->color_out, &out);
    fwrite(buf_data(&out), 1, out.len, stdout);
}

void table_done(struct table *t)
{
    for (size_t i = 0; i < t->rows * t->columns; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t->colors);
    *t = (struct table){0};
}

char *format_bytes(uint64_t bytes, char ret[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t u = 0;
    while (v >= 1024 && u + 1 < ARRAY_LEN(units)) {
        v /= 1024;
        u++;
    }
    if (u == 0 || v >= 100)
        snprintf(ret, 24, "%.0f %s", v, units[u]);
    else
        snprintf(ret, 24, "%.1f %s", v, units[u]);
    return ret;
}

char *format_duration(int64_t ms, char ret[24])
{
    long long s = (long long)ms / 1000;
    if (ms < 0)
        snprintf(ret, 24, "-");
    else if (ms < 1000)
        snprintf(ret, 24, "%lld ms", (long long)ms);
    else if (ms < 10000)
        snprintf(ret, 24, "%.1f s", (double)ms / 1000);
    else if (s < 60)
        snprintf(ret, 24, "%llds", s);
    else if (s < 3600)
        snprintf(ret, 24, "%lldm %llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(ret, 24, "%lldh %lldm", s / 3600, s % 3600 / 60);
    else
        snprintf(ret, 24, "%lldd %lldh", s / 86400, s % 86400 / 3600);
    return ret;
}

char *format_since(const char *rfc3339, int64_t now_ms, char ret[24])
{
    int64_t at;
    if (!rfc3339 || !clock_parse_ms(rfc3339, &at)) {
        snprintf(ret, 24, "-");
        return ret;
    }
    long long s = (long long)((now_ms - at) / 1000), a = s < 0 ? -s : s;
    const char *before = s < 0 ? "in " : "", *after = s < 0 ? "" : " ago";
    if (a < 60)
        snprintf(ret, 24, "%s%llds%s", before, a, after);
    else if (a < 3600)
        snprintf(ret, 24, "%s%lldm%s", before, a / 60, after);
    else if (a < 86400)
        snprintf(ret, 24, "%s%lldh%s", before, a / 3600, after);
    else
        snprintf(ret, 24, "%s%lldd%s", before, a / 86400, after);
    return ret;
}

void print_json(const json_t *value)
{
    /* Escapes of JSON cover what could act on a terminal, once nothing beyond ASCII is left. */
    size_t ascii = isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0;
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | ascii);
    putchar('\n');
}

void print_pairs(const struct cli *cli, const char *const (*pairs)[2], size_t count)
{
    size_t width = 0;
    for (size_t i = 0; i < count; i++)
        if (pairs[i][1])
            width = MAX(width, strlen(pairs[i][0]));
    for (size_t i = 0; i < count; i++) {
        if (!pairs[i][1])
            continue;
        _cleanup_free_ char *value = escaped(pairs[i][1]);
        printf("%s%-*s%s  %s\n", color_on(COLOR_DIM, cli->color_out), (int)width, pairs[i][0],
               color_off(cli->color_out), value);
    }
}

void say(const struct cli *cli, const char *format, ...)
{
    if (cli->quiet)
        return;
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

void report_error(const struct cli *cli, const struct err *e)
{
    if (cli->json) {
        _cleanup_free_ char *detail = utf8_valid(e->text, strlen(e->text)) ? xstrdup(e->text) : escaped(e->text);
        json_t *o = json_pack("{s:{s:s, s:s}}", "error", "code", err_info(e->code)->name, "detail", detail);
        json_dumpf(o, stderr, JSON_COMPACT);
        fputc('\n', stderr);
        json_decref(o);
        return;
    }
    _cleanup_free_ char *text = escaped(e->text);
    fprintf(stderr, "%sspace:%s %s\n", color_on(COLOR_BAD, cli->color_err), color_off(cli->color_err), text);
}

const json_t *json_at(const json_t *value, const char *path)
{
    while (value && *path) {
        char name[64];
        size_t n = strcspn(path, ".");
        if (n >= sizeof(name))
            return NULL;
        memcpy(name, path, n);
        name[n] = '\0';
        value = json_object_get(value, name);
        path += n + (path[n] == '.');
    }
    return value;
}

const char *json_text(const json_t *value, const char *path)
{
    return json_string_value(json_at(value, path));
}

int64_t json_number(const json_t *value, const char *path)
{
    const json_t *v = json_at(value, path);
    return json_is_number(v) ? (int64_t)json_number_value(v) : 0;
}

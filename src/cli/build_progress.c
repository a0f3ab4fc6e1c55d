/* Lines of a build script (see build_progress.h). */
#include "cli/build_progress.h"

#include "base/str.h"

/* The next word of *line into `to`; false when there is none or it does not fit. */
static bool word(const char **line, char *to, size_t size)
{
    const char *p = *line + strspn(*line, " ");
    size_t n = strcspn(p, " ");
    if (n == 0 || n >= size)
        return false;
    memcpy(to, p, n);
    to[n] = '\0';
    *line = p + n;
    return true;
}

bool build_line_parse(const char *line, struct build_line *ret_line)
{
    struct build_line l = {0};
    char done[24], total[24];
    if (str_starts(line, "@result ")) {
        line += strlen("@result");
        l.is_result = true;
        if (!word(&line, l.text, 128) || *line || strchr(l.text, '/') || l.text[0] == '.')
            return false;
        *ret_line = l;
        return true;
    }
    if (!str_starts(line, "@progress "))
        return false;
    line += strlen("@progress");
    if (!word(&line, l.step, sizeof(l.step)) || !word(&line, done, sizeof(done)) ||
        !word(&line, total, sizeof(total)) || !str_to_u64(done, 0, UINT64_MAX, &l.done) ||
        !str_to_u64(total, 0, UINT64_MAX, &l.total))
        return false;
    snprintf(l.text, sizeof(l.text), "%s", line + strspn(line, " "));
    *ret_line = l;
    return true;
}

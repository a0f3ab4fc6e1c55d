/* Allocation that does not fail (see defs.h). */
#include "base/defs.h"

#include <stdarg.h>

static void out_of_memory(void)
{
    static const char text[] = "out of memory\n";
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
        _exit(71);
    _exit(71);
}

void *xmalloc(size_t size)
{
    void *p = malloc(size ? size : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *xcalloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size ? size : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *xrealloc(void *p, size_t size)
{
    void *q = realloc(p, size ? size : 1);
    if (!q)
        out_of_memory();
    return q;
}

char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = xmalloc(len + 1);
    memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

char *xasprintf(const char *format, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        out_of_memory();
    va_end(args);
    return text;
}

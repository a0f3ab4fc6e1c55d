/* Small things that every file uses: attributes, cleanup, handing on ownership.
 *
 * A variable with a cleanup attribute is initialised where it is declared; `steal` hands its value on and leaves the
 * "nothing" value behind, so that the cleanup finds nothing to do. */
#ifndef SPACE_BASE_DEFS_H
#define SPACE_BASE_DEFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h> /* MIN, MAX */
#include <unistd.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define KIB 1024ULL
#define MIB (1024ULL * KIB)
#define GIB (1024ULL * MIB)

#define ATTR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ATTR_UNUSED __attribute__((unused))
#define ATTR_WARN_UNUSED __attribute__((warn_unused_result))
#define _cleanup_(f) __attribute__((cleanup(f)))

static inline void cleanup_free(void *p)
{
    free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void cleanup_fclose(FILE **f)
{
    if (*f)
        fclose(*f);
}

#define _cleanup_free_ _cleanup_(cleanup_free)
#define _cleanup_close_ _cleanup_(cleanup_close)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose)

static inline int steal_fd(int *fd)
{
    int value = *fd;
    *fd = -1;
    return value;
}

#define steal(p)                                                                                                       \
    ({                                                                                                                 \
        __typeof__(p) steal_value_ = (p);                                                                              \
        (p) = NULL;                                                                                                    \
        steal_value_;                                                                                                  \
    })

/* The struct of type `type` whose member `member` lies at `ptr`. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

/* Memory that cannot be had ends the program with a message: no caller could go on, and a restart loses nothing. */
void *xmalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *p, size_t size) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));
char *xstrndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));
char *xasprintf(const char *format, ...) ATTR_PRINTF(1, 2) __attribute__((malloc, returns_nonnull));
#define NEW(type) ((type *)xcalloc(1, sizeof(type)))

#endif

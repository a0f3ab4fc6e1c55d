/* Linked into every unit test program: TEST_FILTER=pattern runs only the cases whose names match ("*" stands for anything). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void filter_from_environment(void)
{
    const char *pattern = getenv("TEST_FILTER");
    if (pattern && *pattern)
        cmocka_set_test_filter(pattern);
}

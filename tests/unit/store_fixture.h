/* A store in a folder of its own, for the tests of src/store. */
#ifndef SPACE_TESTS_STORE_FIXTURE_H
#define SPACE_TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "store/project.h"
#include "store/sandbox.h"

#define NOW 1750000000000

struct fixture {
    char folder[64];
    char path[80];
    struct store *store;
    char project[ID_SIZE]; /* "one" */
    char other[ID_SIZE];   /* "two" */
};

/* cmocka's setup and teardown. */
int fixture_setup(void **state);
int fixture_teardown(void **state);
void fixture_reopen(struct fixture *f);

/* A sandbox of `project` made at `at_ms`; its id is written. */
void fixture_sandbox(struct fixture *f, const char *project, int64_t at_ms, const char *metadata, char ret_id[ID_SIZE]);

/* Succeeds and gives what the call returned, or fails the test with the error's text. */
#define ok(call)                                                                                                       \
    ({                                                                                                                 \
        struct err ok_e_ = {0}, *e = &ok_e_;                                                                           \
        int ok_r_ = (call);                                                                                            \
        if (ok_r_ < 0)                                                                                                 \
            fail_msg("%s: %d %s", #call, ok_r_, ok_e_.text);                                                           \
        ok_r_;                                                                                                         \
    })

/* Fails with `code`, and with a text. */
#define refused(expected, call)                                                                                        \
    do {                                                                                                               \
        struct err ok_e_ = {0}, *e = &ok_e_;                                                                           \
        int ok_r_ = (call);                                                                                            \
        if (ok_r_ != (expected) || ok_e_.code != (expected) || !ok_e_.text[0])                                         \
            fail_msg("%s: %d (%d %s), not %s", #call, ok_r_, ok_e_.code, ok_e_.text, #expected);                       \
    } while (0)

#endif

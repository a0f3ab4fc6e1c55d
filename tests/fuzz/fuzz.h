/* What libFuzzer (or replay_main.c) calls with one input. A target finds a defect by crashing: a sanitizer's report, an
 * assert, a limit of memory or time. */
#ifndef SPACE_TESTS_FUZZ_FUZZ_H
#define SPACE_TESTS_FUZZ_FUZZ_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif

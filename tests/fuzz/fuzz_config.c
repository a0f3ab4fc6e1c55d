/* A configuration file. What was read must be written by config_dump so that it reads back the same. */
#include "base/str.h"
#include "config/config.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_config_ struct config c, again;
    _cleanup_buf_ struct buf first = {0}, second = {0};
    struct err e = {0};
    if (size > 65536)
        return 0;
    config_init(&c);
    config_init(&again);
    int r = config_parse(&c, "fuzz", (const char *)data, size, &e);
    assert(r < 0 ? r == e.code && e.text[0] && utf8_valid(e.text, strlen(e.text)) : !e.text[0]);
    (void)config_check(&c, NULL);
    config_dump(&c, false, &first);
    assert(config_parse(&again, "dump", (const char *)buf_data(&first), first.len, &e) == 0);
    config_dump(&again, false, &second);
    assert(first.len == second.len && memcmp(buf_data(&first), buf_data(&second), first.len) == 0);
    return 0;
}

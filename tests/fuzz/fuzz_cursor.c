/* Cursors, metadata and environment as clients send them to lists and creates. */
#include "fuzz.h"
#include "store/sandbox.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char id[ID_SIZE], again[STORE_CURSOR_SIZE];
    int64_t at;
    if (size > 70000)
        return 0;
    _cleanup_free_ char *text = xmalloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    if (store_cursor_decode(text, &at, id, NULL) == 0) { /* one text for each place, and none other */
        store_cursor_encode(at, id, again);
        assert(strcmp(again, text) == 0);
    }
    (void)store_metadata_check(text, NULL);
    (void)store_env_check(text, NULL);
    return 0;
}

/* Search for the echo of the prelude (see resync.h): Knuth, Morris and Pratt, so that no byte is looked at twice
 * whatever the guest sends. */
#include "channel/resync.h"

void resync_begin(struct resync *r, const uint8_t nonce[AGENT_NONCE_SIZE])
{
    memcpy(r->prelude, AGENT_PRELUDE_MAGIC, AGENT_MAGIC_SIZE);
    memcpy(r->prelude + AGENT_MAGIC_SIZE, nonce, AGENT_NONCE_SIZE);
    r->fallback[0] = 0;
    for (size_t i = 1, k = 0; i < AGENT_PRELUDE_SIZE; i++) {
        while (k > 0 && r->prelude[i] != r->prelude[k])
            k = r->fallback[k - 1];
        if (r->prelude[i] == r->prelude[k])
            k++;
        r->fallback[i] = (uint8_t)k;
    }
    r->matched = 0;
    r->done = false;
}

size_t resync_input(struct resync *r, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        while (r->matched > 0 && data[i] != r->prelude[r->matched])
            r->matched = r->fallback[r->matched - 1];
        if (data[i] == r->prelude[r->matched])
            r->matched++;
        if (r->matched == AGENT_PRELUDE_SIZE) {
            r->done = true;
            return i + 1;
        }
        r->discarded++;
    }
    return len;
}

/* The start of a session: which 32 bytes to write, and finding their echo among whatever the guest sends first. */
#ifndef SPACE_CHANNEL_RESYNC_H
#define SPACE_CHANNEL_RESYNC_H

#include "base/defs.h"
#include "wire/agent_protocol.h"

struct resync {
    uint8_t prelude[AGENT_PRELUDE_SIZE];
    uint8_t fallback[AGENT_PRELUDE_SIZE]; /* after a mismatch at i: how much of the prelude still matches */
    size_t matched;
    size_t discarded; /* bytes that were not the echo */
    bool done;
};

/* Look for the echo of a prelude with this nonce; a prelude written before no longer counts. */
void resync_begin(struct resync *r, const uint8_t nonce[AGENT_NONCE_SIZE]);

/* Take bytes up to the end of the echo; returns how many were taken (all of them, unless `done` was reached). */
size_t resync_input(struct resync *r, const uint8_t *data, size_t len);

#endif

/* The output of one exec: the newest bytes of stdout and stderr in the order in which they arrived, each with its kind,
 * found by offset. Memory grows with the content up to a maximum and to what the budget that all logs share allows;
 * then the oldest bytes are dropped, or, where a reader still needs them, nothing more is taken. */
#ifndef SPACE_AGENT_OUTPUT_LOG_H
#define SPACE_AGENT_OUTPUT_LOG_H

#include "agent/limits.h"
#include "base/defs.h"

struct output_budget {
    size_t used, max;
    /* Asked when `need` bytes are not left: gives memory back if it can. May be NULL. */
    void (*make_room)(void *arg, size_t need);
    void *arg;
};

struct output_log {
    struct output_budget *budget;
    uint8_t *mem; /* a ring: offset o lies at o % capacity */
    size_t capacity, max;
    uint64_t start, end; /* offsets that are kept: start ≤ o < end; below start all was dropped */
    uint64_t *runs;      /* ring of (offset << 2 | kind), each until the next one's offset */
    size_t run_first, run_count, run_capacity;
};

void output_log_init(struct output_log *log, struct output_budget *budget, size_t max);
void output_log_done(struct output_log *log);

/* Where to write what comes next; bytes from `keep_from` on are not dropped for it (UINT64_MAX: all may be). NULL when
 * nothing can be taken. Then output_log_commit what was written; kind: AGENT_RECORD_STDOUT or AGENT_RECORD_STDERR. */
uint8_t *output_log_reserve(struct output_log *log, uint64_t keep_from, size_t *ret_len);
void output_log_commit(struct output_log *log, uint8_t kind, size_t len);

/* How many bytes of one kind begin at `offset` (start ≤ offset < end), and which. */
size_t output_log_run(const struct output_log *log, uint64_t offset, uint8_t *ret_kind);
void output_log_copy(const struct output_log *log, uint64_t offset, uint8_t *to, size_t len);

#endif

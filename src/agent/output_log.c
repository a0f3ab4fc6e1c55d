/* The ring of output (see output_log.h). */
#include "agent/output_log.h"

#include <sys/mman.h>

#define FIRST_CAPACITY 4096
#define GROWTH 8
#define FIRST_RUNS 8
#define MAPPED_FROM (64 * 1024) /* larger rings are mappings: pages come as they are touched and go at once */

static uint8_t *ring_new(size_t capacity)
{
    if (capacity < MAPPED_FROM)
        return malloc(capacity);
    void *mem = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mem == MAP_FAILED ? NULL : mem;
}

static void ring_free(uint8_t *mem, size_t capacity)
{
    if (mem && capacity >= MAPPED_FROM)
        munmap(mem, capacity);
    else
        free(mem);
}

void output_log_init(struct output_log *log, struct output_budget *budget, size_t max)
{
    *log = (struct output_log){.budget = budget, .max = max};
}

void output_log_done(struct output_log *log)
{
    log->budget->used -= log->capacity;
    ring_free(log->mem, log->capacity);
    free(log->runs);
    *log = (struct output_log){.budget = log->budget, .max = log->max, .start = log->end, .end = log->end};
}

/* At full size one read's worth more than the maximum, so that room for a read never costs what must be kept. */
static size_t full_capacity(const struct output_log *log)
{
    return log->max + LIMIT_READ_CHUNK;
}

static bool grow(struct output_log *log)
{
    size_t capacity = log->capacity ? log->capacity * GROWTH : FIRST_CAPACITY;
    capacity = MIN(capacity, full_capacity(log));
    size_t need = capacity - log->capacity;
    struct output_budget *budget = log->budget;
    if (budget->used + need > budget->max && budget->make_room)
        budget->make_room(budget->arg, need);
    if (budget->used + need > budget->max && log->capacity > 0) /* the first few bytes are always granted */
        return false;
    uint8_t *mem = ring_new(capacity);
    if (!mem)
        return false;
    for (uint64_t o = log->start; o < log->end;) {
        size_t from = (size_t)(o % log->capacity), to = (size_t)(o % capacity);
        size_t n = MIN(MIN(log->capacity - from, capacity - to), (size_t)(log->end - o));
        memcpy(mem + to, log->mem + from, n);
        o += n;
    }
    ring_free(log->mem, log->capacity);
    log->mem = mem;
    log->capacity = capacity;
    budget->used += need;
    return true;
}

static uint64_t run_at(const struct output_log *log, size_t i)
{
    return log->runs[(log->run_first + i) % log->run_capacity];
}

/* Forget everything below `offset`. */
static void drop_below(struct output_log *log, uint64_t offset)
{
    log->start = offset;
    while (log->run_count > 1 && run_at(log, 1) >> 2 <= offset) {
        log->run_first = (log->run_first + 1) % log->run_capacity;
        log->run_count--;
    }
}

uint8_t *output_log_reserve(struct output_log *log, uint64_t keep_from, size_t *ret_len)
{
    if (log->run_count == LIMIT_OUTPUT_RUNS) {
        uint64_t next = run_at(log, LIMIT_OUTPUT_RUNS / 8) >> 2;
        if (next > keep_from)
            return NULL;
        drop_below(log, next);
    }
    size_t used = (size_t)(log->end - log->start), want = MIN((size_t)LIMIT_READ_CHUNK, log->capacity / 4);
    if (log->capacity - used <= want && log->capacity < full_capacity(log) && grow(log))
        want = MIN((size_t)LIMIT_READ_CHUNK, log->capacity / 4);
    if (log->capacity == 0)
        return NULL;
    if (log->capacity - used < want) {
        uint64_t limit = MIN(keep_from, log->end), to = log->start + (want - (log->capacity - used));
        drop_below(log, MIN(to, MAX(limit, log->start)));
        used = (size_t)(log->end - log->start);
    }
    size_t at = (size_t)(log->end % log->capacity);
    *ret_len = MIN(log->capacity - used, log->capacity - at);
    return *ret_len > 0 ? log->mem + at : NULL;
}

void output_log_commit(struct output_log *log, uint8_t kind, size_t len)
{
    if (len == 0)
        return;
    if (log->run_count == 0 || (run_at(log, log->run_count - 1) & 3) != kind) {
        if (log->run_count == log->run_capacity) {
            size_t capacity = log->run_capacity ? log->run_capacity * 2 : FIRST_RUNS;
            uint64_t *runs = xmalloc(capacity * sizeof(*runs));
            for (size_t i = 0; i < log->run_count; i++)
                runs[i] = run_at(log, i);
            free(log->runs);
            log->runs = runs;
            log->run_first = 0;
            log->run_capacity = capacity;
        }
        log->runs[(log->run_first + log->run_count++) % log->run_capacity] = log->end << 2 | kind;
    }
    log->end += len;
}

size_t output_log_run(const struct output_log *log, uint64_t offset, uint8_t *ret_kind)
{
    size_t low = 0, high = log->run_count; /* the last run that begins at or below offset is in [low, high) */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (run_at(log, middle) >> 2 <= offset)
            low = middle;
        else
            high = middle;
    }
    *ret_kind = (uint8_t)(run_at(log, low) & 3);
    uint64_t until = low + 1 < log->run_count ? run_at(log, low + 1) >> 2 : log->end;
    return (size_t)(until - offset);
}

void output_log_copy(const struct output_log *log, uint64_t offset, uint8_t *to, size_t len)
{
    size_t at = (size_t)(offset % log->capacity), first = MIN(len, log->capacity - at);
    memcpy(to, log->mem + at, first);
    memcpy(to + first, log->mem, len - first);
}

/* What the agent answers: every decoder takes any bytes, and what it accepts is inside the bounds that callers rely on.
 * The first byte chooses the decoder. */
#include "base/str.h"
#include "fuzz.h"
#include "guest/decode.h"
#include "guest/record.h"

static void exit_check(const struct guest_exit *x)
{
    assert(x->signalled ? x->signal >= 1 && x->signal <= 64 : x->code >= 0 && x->code <= 255);
    assert(x->started_ms >= 0 && x->started_ms <= DECODE_TIME_MAX_MS);
    assert(x->ended_ms >= 0 && x->ended_ms <= DECODE_TIME_MAX_MS);
    assert(x->total_bytes <= INT64_MAX && x->dropped_bytes <= INT64_MAX);
}

static void entry_check(const struct guest_entry *entry)
{
    assert(entry->name && *entry->name && strlen(entry->name) <= 255);
    assert(entry->type >= AGENT_FILE_REGULAR && entry->type <= AGENT_FILE_BLOCK);
    assert(entry->mode <= 07777);
    assert(!entry->owner || utf8_valid(entry->owner, strlen(entry->owner)));
    assert(!entry->target || strlen(entry->target) <= AGENT_PATH_MAX);
}

static void records(const uint8_t *data, size_t size)
{
    struct record_reader r;
    record_reader_init(&r);
    size_t given = 0, pieces = 0, whole = size;
    while (size > 0) {
        size_t taken;
        size_t part = MIN(size, (size_t)7), left = part;
        const uint8_t *p = data;
        enum record_step step = record_next(&r, &p, &left, &taken);
        given += taken;
        if (step == RECORD_PIECE) {
            assert(r.piece_len <= part);
            pieces += r.piece_len;
        }
        if (step == RECORD_BROKEN)
            break;
        assert(r.payload.len <= RECORD_SMALL_MAX);
        data += part - left;
        size -= part - left;
        assert(given + pieces + size == whole);
    }
    record_reader_done(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t which = *data++;
    size--;
    struct err e;
    _cleanup_free_ char *arena = NULL;
    switch (which % 11) {
    case 0: {
        struct guest_hello hello;
        if (decode_hello(data, size, &hello, &e) == 0)
            assert(strlen(hello.version) < sizeof(hello.version));
        break;
    }
    case 1: {
        struct guest_confirm confirm;
        (void)decode_confirm(data, size, "s123", &confirm, &e);
        break;
    }
    case 2: {
        struct guest_metrics metrics;
        if (decode_metrics(data, size, &metrics, &e) == 0)
            assert(metrics.memory_total <= INT64_MAX);
        break;
    }
    case 3: {
        uint64_t mean;
        _cleanup_free_ uint64_t *each = NULL;
        size_t count;
        if (decode_bench_spawn(data, size, &mean, &each, &count, &e) == 0)
            assert(count <= AGENT_BENCH_SPAWN_MAX);
        break;
    }
    case 4: {
        struct guest_exec_started started;
        if (decode_exec_started(data, size, &started, &e) == 0)
            assert(started.pid <= INT32_MAX);
        break;
    }
    case 5: {
        struct guest_exit x;
        if (decode_exit(data, size, &x, &e) == 0)
            exit_check(&x);
        break;
    }
    case 6: {
        _cleanup_free_ struct guest_exec_state *states = NULL;
        size_t count;
        if (decode_exec_list(data, size, &states, &count, &e) == 0) {
            assert(count <= AGENT_EXECS_MAX);
            for (size_t i = 0; i < count; i++) {
                assert(states[i].oldest <= states[i].end);
                if (!states[i].running)
                    exit_check(&states[i].exit);
            }
        }
        break;
    }
    case 7: {
        _cleanup_free_ struct guest_entry *entries = NULL;
        size_t count;
        bool more;
        if (decode_dir(data, size, NULL, 10, &entries, &count, &more, &arena, &e) == 0) {
            assert(count <= 10);
            for (size_t i = 0; i < count; i++) {
                entry_check(&entries[i]);
                assert(!strchr(entries[i].name, '/'));
                assert(i == 0 || strcmp(entries[i - 1].name, entries[i].name) < 0);
            }
        }
        break;
    }
    case 8: {
        struct guest_entry entry;
        if (decode_stat(data, size, &entry, &arena, &e) == 0)
            entry_check(&entry);
        break;
    }
    case 9: {
        struct guest_watch_event event;
        if (decode_watch(data, size, &event, &arena, &e) == 0)
            assert(event.path && (event.type == AGENT_WATCH_MOVE) == (event.to != NULL));
        break;
    }
    default:
        records(data, size);
        break;
    }
    return 0;
}

/* The archive parser: any bytes, in pieces of any size, without harm; what it calls is in order. */
#include "agent/tar_format.h"
#include "fuzz.h"

static struct {
    bool inside;
    uint64_t left;
} seen;

static int on_entry(void *arg, const struct tar_entry *entry, struct err *e)
{
    (void)arg, (void)e;
    assert(!seen.inside);
    assert(strlen(entry->path) > 0 && strlen(entry->path) <= AGENT_PATH_MAX && strlen(entry->link) <= AGENT_PATH_MAX);
    assert(entry->mode <= 07777);
    seen.inside = true;
    seen.left = entry->type == TAR_HARDLINK ? 0 : entry->size;
    return 0;
}

static int on_data(void *arg, const uint8_t *data, size_t len, struct err *e)
{
    (void)arg, (void)e, (void)data;
    assert(seen.inside && len > 0 && len <= seen.left);
    seen.left -= len;
    return 0;
}

static int on_end(void *arg, struct err *e)
{
    (void)arg, (void)e;
    assert(seen.inside && seen.left == 0);
    seen.inside = false;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tar_parser p;
    struct err e;
    size_t piece = size > 0 ? (size_t)data[0] * 3 + 1 : 1;
    int r = 0;
    memset(&seen, 0, sizeof(seen));
    tar_parser_init(&p);
    p.entry = on_entry;
    p.data = on_data;
    p.end = on_end;
    for (size_t at = 1; at < size && r == 0; at += piece)
        r = tar_parser_feed(&p, data + at, MIN(piece, size - at), &e);
    if (r == 0)
        r = tar_parser_finish(&p, &e);
    tar_parser_done(&p);
    return 0;
}

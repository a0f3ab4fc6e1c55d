/* What a captured QEMU could say on its QMP socket: the first byte chooses where the stream is cut. */
#include "fuzz.h"
#include "qmp/qmp_parser.h"

static bool take(void *arg, const struct qmp_message *m)
{
    unsigned *left = arg;
    assert(m->root);
    return (*left)-- > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t piece = (size_t)data[0] + 1;
    struct qmp_parser p;
    struct err e;
    unsigned left = 1000;
    qmp_parser_init(&p, 4096);
    for (size_t at = 1; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (qmp_parser_feed(&p, data + at, n, at, take, &left, &e) < 0)
            break;
    }
    qmp_parser_done(&p);
    return 0;
}

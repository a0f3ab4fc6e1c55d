/* Answers of programs in sandboxes, as the proxy reads them: a head, then a chunked body in pieces. */
#include "api/byte_range.h"
#include "api/port_head.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > PORT_HEAD_MAX)
        return 0;
    size_t cut = data[0];
    data++;
    size--;
    size_t head_len = port_head_len(data, size);
    struct port_response r;
    if (head_len && port_response_parse(data, head_len, cut & 1, &r, NULL) == 0) {
        if (r.status < 100 || r.status > 599 || r.header_count > PORT_HEADERS_MAX)
            abort();
        for (size_t i = 0; i < r.header_count; i++) {
            (void)port_hop_by_hop(r.headers[i].name, r.headers[i].value);
            /* What is passed on cannot break out of its line. */
            if (strpbrk(r.headers[i].name, "\r\n:") || strpbrk(r.headers[i].value, "\r\n"))
                abort();
            struct byte_range range;
            byte_range_parse(r.headers[i].value, &range);
        }
        port_response_done(&r);
    }
    /* The pieces are the same wherever the bytes are cut. */
    uint64_t total[2] = {0, 0};
    bool failed[2] = {false, false};
    for (int way = 0; way < 2; way++) {
        struct port_chunks c = {0};
        const uint8_t *at = data + head_len;
        size_t left = size - head_len, step = way ? cut % 16 + 1 : left;
        while (left && !failed[way] && !c.end) {
            size_t len = step < left ? step : left, before = len;
            const uint8_t *piece;
            ssize_t n;
            while ((n = port_chunks_next(&c, &at, &len, &piece, NULL)) > 0)
                total[way] += (uint64_t)n;
            failed[way] = n < 0;
            left -= before - len;
            if (before == len)
                break;
        }
    }
    if (failed[0] != failed[1] || total[0] != total[1])
        abort();
    return 0;
}

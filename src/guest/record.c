/* Records (see record.h). */
#include "guest/record.h"

#include "wire/agent_protocol.h"

void record_reader_init(struct record_reader *r)
{
    *r = (struct record_reader){.payload = BUF_MAX(RECORD_SMALL_MAX)};
}

void record_reader_done(struct record_reader *r)
{
    buf_done(&r->payload);
}

bool record_reader_idle(const struct record_reader *r)
{
    return !r->broken && !r->in_record && r->head_len == 0;
}

static bool record_is_output(const struct wire_record *record)
{
    return record->type == AGENT_RECORD_STDOUT || record->type == AGENT_RECORD_STDERR;
}

/* A header is complete: begin the record, or say that it cannot be one. */
static bool record_begin(struct record_reader *r)
{
    r->head_len = 0;
    if (!wire_record_decode(r->head, &r->record))
        return false;
    uint32_t max = record_is_output(&r->record) ? AGENT_RECORD_MAX : RECORD_SMALL_MAX;
    /* Offsets stay far from where adding a length could wrap. */
    if (r->record.len > max || r->record.offset > (uint64_t)INT64_MAX / 2)
        return false;
    r->in_record = true;
    r->payload_left = r->record.len;
    r->piece_offset = r->record.offset;
    r->piece_first = true;
    buf_reset(&r->payload);
    return true;
}

enum record_step record_next(struct record_reader *r, const uint8_t **data, size_t *len, size_t *ret_taken)
{
    *ret_taken = 0;
    while (!r->broken) {
        if (!r->in_record) {
            size_t n = MIN(*len, sizeof(r->head) - r->head_len);
            if (n > 0)
                memcpy(r->head + r->head_len, *data, n);
            r->head_len += (unsigned)n;
            *data += n;
            *len -= n;
            *ret_taken += n;
            if (r->head_len < sizeof(r->head))
                return RECORD_MORE;
            if (!record_begin(r)) {
                r->broken = true;
                break;
            }
        }
        size_t n = MIN(*len, (size_t)r->payload_left);
        bool output = record_is_output(&r->record);
        if (n == 0 && r->payload_left > 0)
            return RECORD_MORE;
        if (!output && n > 0) {
            buf_put(&r->payload, *data, n);
            *ret_taken += n;
        }
        r->piece = *data;
        r->piece_len = n;
        r->payload_left -= (uint32_t)n;
        r->in_record = r->payload_left > 0;
        *data += n;
        *len -= n;
        if (output)
            return RECORD_PIECE;
        if (!r->in_record)
            return RECORD_WHOLE;
    }
    return RECORD_BROKEN;
}

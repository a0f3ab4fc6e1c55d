/* Readers of an exec's output: the log cut into records (see exec.h, and wire/agent_protocol.h for the records). */
#include "agent/exec.h"
#include "agent/exec_internal.h"

static void head_set(struct exec_reader *reader, uint8_t type, uint32_t len, uint64_t offset)
{
    wire_record_encode(&(struct wire_record){.type = type, .len = len, .offset = offset}, reader->head);
    reader->head_len = WIRE_RECORD_HEADER;
    reader->head_at = 0;
}

/* Begin the next record, if there is one: what was dropped, a run of output, the exit. */
static bool record_begin(struct exec_reader *reader, size_t max)
{
    const struct exec *x = reader->exec;
    const struct output_log *log = &x->log;
    if (reader->at < log->start) {
        uint64_t count = log->start - reader->at;
        head_set(reader, AGENT_RECORD_DROPPED, 8, reader->at);
        for (int i = 0; i < 8; i++)
            reader->head[reader->head_len++] = (uint8_t)(count >> (56 - 8 * i));
        reader->at = log->start;
        return true;
    }
    if (reader->at < MIN(log->end, reader->until)) {
        uint8_t kind;
        size_t len = output_log_run(log, reader->at, &kind);
        len = (size_t)MIN((uint64_t)len, reader->until - reader->at);
        len = MIN(len, max > 2 * WIRE_RECORD_HEADER ? max - WIRE_RECORD_HEADER : 4096); /* as a rule one frame */
        len = MIN(len, (size_t)AGENT_RECORD_MAX);
        head_set(reader, kind, (uint32_t)len, reader->at);
        reader->payload_left = len;
        return true;
    }
    if (exec_finished(x) && reader->at == log->end && !reader->exit_sent) {
        head_set(reader, AGENT_RECORD_EXIT, (uint32_t)x->exit_len, log->end);
        memcpy(reader->head + reader->head_len, x->exit, x->exit_len);
        reader->head_len += x->exit_len;
        reader->exit_sent = true;
        return true;
    }
    return false;
}

static size_t output_available(struct request *r, size_t max, bool *ret_end)
{
    struct exec_reader *reader = r->ctx;
    if (!reader->exec)
        return 0;
    size_t left = reader->head_len - reader->head_at + reader->payload_left;
    if (left == 0 && record_begin(reader, max))
        left = reader->head_len - reader->head_at + reader->payload_left;
    size_t n = MIN(left, max);
    bool last =
        reader->exit_sent || (reader->until != UINT64_MAX && reader->at + reader->payload_left >= reader->until);
    *ret_end = last && n == left;
    return n;
}

static bool output_emit(struct request *r, uint8_t *to, size_t len)
{
    struct exec_reader *reader = r->ctx;
    if (!reader->exec)
        return false;
    size_t head = MIN(len, reader->head_len - reader->head_at), payload = len - head;
    memcpy(to, reader->head + reader->head_at, head);
    reader->head_at += head;
    if (payload > 0) {
        output_log_copy(&reader->exec->log, reader->at, to + head, payload);
        reader->at += payload;
        reader->payload_left -= payload;
        exec_resume(reader->exec);
    }
    return true;
}

static void output_closed(struct request *r)
{
    struct exec_reader *reader = r->ctx;
    if (reader->exec) {
        LIST_REMOVE(reader, entry);
        reader->exec->reader_count--;
        exec_resume(reader->exec);
    }
    free(reader);
}

static const struct request_ops output_ops = {
    .available = output_available, .emit = output_emit, .closed = output_closed};

int exec_attach(struct exec *x, struct request *r, uint64_t from, bool follow, struct err *e)
{
    if (from > x->log.end)
        return err_set(e, ERR_RANGE, "the output of exec %s ends at %llu", x->id, (unsigned long long)x->log.end);
    if (x->reader_count >= LIMIT_READERS)
        return err_set(e, ERR_LIMIT, "%d readers are attached to exec %s", LIMIT_READERS, x->id);
    struct exec_reader *reader = NEW(struct exec_reader);
    *reader = (struct exec_reader){
        .request = r, .exec = x, .at = from, .until = follow || exec_finished(x) ? UINT64_MAX : x->log.end};
    LIST_INSERT_HEAD(&x->readers, reader, entry);
    x->reader_count++;
    r->ops = &output_ops;
    r->ctx = reader;
    request_stream(r, 200);
    return 0;
}

void exec_output_end(struct exec *x)
{
    struct exec_reader *reader;
    while ((reader = LIST_FIRST(&x->readers))) {
        LIST_REMOVE(reader, entry);
        reader->exec = NULL;
        request_reset(reader->request);
    }
    x->reader_count = 0;
}

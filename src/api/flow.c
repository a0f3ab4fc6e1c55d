/* From a guest call to an answer. */
#include "api/flow.h"

void outflow_init(struct outflow *o, struct http_request *r)
{
    *o = (struct outflow){.request = r};
    buf_init(&o->held, FLOW_HELD_MAX);
}

void outflow_done(struct outflow *o)
{
    if (o->call)
        guest_call_drop(o->call);
    o->call = NULL;
    buf_done(&o->held);
}

static void acknowledge(struct outflow *o, size_t len)
{
    if (o->call && len)
        guest_call_consume(o->call, len);
}

void outflow_put(struct outflow *o, const uint8_t *data, size_t len)
{
    size_t taken = o->held.len ? 0 : http_stream_write(o->request, data, len);
    /* The window of the call bounds what is held; a guest that broke it would have been cut off below. */
    if (taken < len)
        buf_put(&o->held, data + taken, len - taken);
    acknowledge(o, taken);
}

static bool end_if_empty(struct outflow *o)
{
    if (!o->finishing || o->held.len)
        return false;
    http_stream_end(o->request);
    return true;
}

bool outflow_drain(struct outflow *o)
{
    if (o->held.len) {
        size_t taken = http_stream_write(o->request, buf_data(&o->held), o->held.len);
        buf_consume(&o->held, taken);
        acknowledge(o, taken);
    }
    return end_if_empty(o);
}

bool outflow_finish(struct outflow *o)
{
    o->finishing = true;
    return end_if_empty(o);
}

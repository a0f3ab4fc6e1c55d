/* Requests that wait. */
#include "api/wait.h"

#include "control/waiter.h"

#include <strings.h>

static bool prefer_wait(const char *header, uint64_t *ret_s)
{
    /* "respond-async, wait=30": preferences parted by commas (RFC 7240, section 2). */
    while (header && *header) {
        header += strspn(header, " \t,");
        if (strncasecmp(header, "wait=", 5) == 0) {
            char digits[12] = "";
            size_t n = strspn(header + 5, "0123456789");
            if (n > 0 && n < sizeof(digits)) {
                memcpy(digits, header + 5, n);
                return str_to_u64(digits, 0, UINT64_MAX, ret_s);
            }
            return false;
        }
        header = strchr(header, ',');
    }
    return false;
}

int wait_wanted(struct http_request *r, uint64_t *ret_ms, struct err *e)
{
    uint64_t ms = 0, seconds;
    int result = http_query_ms(http_request_query(r), "wait", WAIT_MAX_MS, &ms, e);
    if (result < 0)
        return result;
    if (result == 0 && prefer_wait(http_request_header(r, "Prefer"), &seconds))
        ms = MIN(seconds, WAIT_MAX_MS / 1000ull) * 1000;
    *ret_ms = ms;
    return 0;
}

void wait_applied(struct http_request *r, uint64_t ms)
{
    char text[32];
    if (!ms)
        return;
    snprintf(text, sizeof(text), "wait=%llu", (unsigned long long)((ms + 999) / 1000));
    http_reply_header(r, "Preference-Applied", text);
}

struct waiting {
    struct http_request *request;
    struct api *api;
    struct waiter *waiter;
    void (*go_on)(struct http_request *r, struct api *api, void *data);
    void *data;
    void (*free_data)(void *data);
};

static void waiting_free(struct waiting *w)
{
    if (w->free_data)
        w->free_data(w->data);
    http_request_unref(w->request);
    free(w);
}

static void on_woken(void *arg, bool timed_out)
{
    (void)timed_out;
    struct waiting *w = arg;
    w->waiter = NULL;
    http_request_on_abort(w->request, NULL, NULL);
    w->go_on(w->request, w->api, w->data);
    waiting_free(w);
}

static void on_abort(struct http_request *r, enum http_abort why, void *arg)
{
    (void)r, (void)why;
    struct waiting *w = arg;
    waiter_cancel(w->waiter);
    waiting_free(w);
}

void wait_then(struct http_request *r, struct api *api, const char *id, uint64_t ms,
               void (*go_on)(struct http_request *r, struct api *api, void *data), void *data,
               void (*free_data)(void *data))
{
    struct waiting *w = NEW(struct waiting);
    *w = (struct waiting){
        .request = http_request_ref(r), .api = api, .go_on = go_on, .data = data, .free_data = free_data};
    if (!ms) {
        on_woken(w, false);
        return;
    }
    http_request_on_abort(r, on_abort, w);
    w->waiter = waiter_add(api->control, id, ms, on_woken, w);
}

/* GET …/files/watch: changes below a path as Server-Sent Events. A reader that is too slow is told that events were
 * lost instead of being waited for: the guest's watch cannot be held up. */
#include "api/fields.h"
#include "api/render.h"
#include "control/sandbox.h"
#include "guest/guest.h"
#include "http/sse.h"

struct watcher {
    struct http_request *request;
    struct sse *sse; /* NULL: not ready yet */
    struct guest_call *call;
    bool lossy;      /* an overflow event is owed */
    char *path;
};

static void watcher_free(struct watcher *w)
{
    if (w->call)
        guest_call_drop(w->call);
    free(w->path);
    free(w);
}

static void on_abort(struct http_request *r, enum http_abort why, void *arg)
{
    (void)r, (void)why;
    watcher_free(arg);
}

static void pay_overflow(struct watcher *w)
{
    static const char empty[] = "{}";
    if (w->lossy && sse_send(w->sse, NULL, "overflow", empty, sizeof(empty) - 1))
        w->lossy = false;
}

static void on_drain(struct sse *s, void *arg)
{
    (void)s;
    pay_overflow(arg);
}

static json_t *full_path(const struct watcher *w, const char *relative)
{
    if (!relative)
        return json_null();
    const char *slash = !relative[0] || str_ends(w->path, "/") ? "" : "/";
    _cleanup_free_ char *path = xasprintf("%s%s%s", w->path, slash, relative);
    return render_text(path, strlen(path));
}

static void on_event(void *arg, const struct guest_watch_event *event)
{
    static const char *const names[] = {
        [AGENT_WATCH_CREATE] = "create",   [AGENT_WATCH_MODIFY] = "modify",         [AGENT_WATCH_REMOVE] = "remove",
        [AGENT_WATCH_MOVE] = "move",       [AGENT_WATCH_ATTRIB] = "attributes",     [AGENT_WATCH_OVERFLOW] = "overflow",
        [AGENT_WATCH_READY] = "ready",
    };
    struct watcher *w = arg;
    if (!w->sse)
        w->sse = sse_begin(w->request, 0, on_drain, w);
    if (w->lossy)
        return;
    unsigned type = event->type;
    if (type >= ARRAY_LEN(names) || !names[type])
        return;
    bool bare = type == AGENT_WATCH_READY || type == AGENT_WATCH_OVERFLOW;
    json_t *json = bare ? json_object()
                        : json_pack("{s:o, s:o}", "path", full_path(w, event->path), "to", full_path(w, event->to));
    char *text = json_dumps(json, JSON_COMPACT);
    if (!sse_send(w->sse, NULL, names[type], text, strlen(text)))
        w->lossy = true;
    free(text);
    json_decref(json);
}

static void on_done(void *arg, const struct err *e)
{
    struct watcher *w = arg;
    struct http_request *r = w->request;
    struct sse *sse = w->sse;
    struct err error = {0};
    if (e)
        error = *e;
    w->call = NULL;
    watcher_free(w);
    if (!sse) {
        if (!error.code)
            err_set(&error, ERR_PROTOCOL, "the sandbox's agent ended the watch before it began");
        http_reply_error(r, &error);
    } else if (error.code)
        sse_abort(sse);
    else
        sse_end(sse);
}

void api_file_watch(struct http_request *r, void *arg)
{
    static const struct guest_watch_callbacks callbacks = {.on_event = on_event, .done = on_done};
    struct api *api = arg;
    const char *path = NULL, *user = NULL;
    bool recursive = false;
    struct err e = {0};
    struct guest *g = NULL;
    int result = path_of(r, (const char *[]){"path", "user", "recursive", NULL}, &path, &user, &e);
    if (result >= 0)
        result = http_query_bool(http_request_query(r), "recursive", &recursive, &e);
    if (result < 0 || !(g = sandbox_guest(api->control, project_of(r), http_request_param(r, "sandbox_id"), &e))) {
        http_reply_error(r, &e);
        return;
    }
    struct watcher *w = NEW(struct watcher);
    *w = (struct watcher){.request = r, .path = xstrdup(path)};
    http_request_on_abort(r, on_abort, w);
    w->call = guest_watch(g, path, recursive, user, &callbacks, w);
}

/* Calls about files (see guest.h). */
#include "base/str.h"
#include "guest/call.h"
#include "guest/decode.h"

/* An endpoint with its path and user. Paths that cannot be are left to the agent, but for their length. */
static struct buf target_file(const char *endpoint, const char *path, const char *user)
{
    struct buf target = BUF_MAX(TARGET_MAX);
    buf_put_str(&target, endpoint);
    if (strlen(path) > AGENT_PATH_MAX)
        target.overflow = true;
    else
        target_text(&target, AGENT_QUERY_PATH, path);
    target_text(&target, AGENT_QUERY_USER, user);
    return target;
}

/* --- get ---------------------------------------------------------------------------------------------------------- */

static bool octal_parse(const char *text, uint32_t *ret_value)
{
    size_t n = strspn(text, "01234567");
    if (n == 0 || n > 5 || text[n] != '\0')
        return false;
    *ret_value = (uint32_t)strtoul(text, NULL, 8);
    return *ret_value <= 07777;
}

static void file_begin(struct guest_call *call, const struct channel_header *headers, size_t count)
{
    struct guest_file_info info = {0};
    bool size = false, mtime = false, mode = false, good = true;
    for (size_t i = 0; i < count && good; i++) {
        const char *name = headers[i].name, *value = headers[i].value;
        if (strcmp(name, AGENT_HEADER_SIZE) == 0)
            good = !size && (size = str_to_u64(value, 0, INT64_MAX, &info.size));
        else if (strcmp(name, AGENT_HEADER_MTIME) == 0)
            good = !mtime && (mtime = str_to_i64(value, INT64_MIN, INT64_MAX, &info.mtime_ms));
        else if (strcmp(name, AGENT_HEADER_MODE) == 0)
            good = !mode && (mode = octal_parse(value, &info.mode));
    }
    if (!good || !size || !mtime || !mode) {
        call_break(call, ERR_PROTOCOL, "the agent did not describe the file that it sends");
        return;
    }
    info.mtime_ms = info.mtime_ms < 0 ? 0 : MIN(info.mtime_ms, (int64_t)DECODE_TIME_MAX_MS);
    if (call->cb.get.on_info)
        call->cb.get.on_info(call->arg, &info);
}

static void get_data(struct guest_call *call, const uint8_t *data, size_t len)
{
    if (len > call->expected - call->moved) {
        call_break(call, ERR_PROTOCOL, "the agent sent more of the file than was asked for");
        return;
    }
    call->moved += len;
    call->cb.get.on_data(call->arg, data, len);
}

static void get_finish(struct guest_call *call, const struct err *e)
{
    call->cb.get.done(call->arg, call->moved, e);
}

struct guest_call *guest_file_get(struct guest *g, const char *path, const char *user, uint64_t offset, uint64_t length,
                                  const struct guest_file_get_callbacks *callbacks, void *arg)
{
    static const struct call_kind kind = {.success = 200, .begin = file_begin, .data = get_data, .finish = get_finish};
    _cleanup_buf_ struct buf target = target_file(AGENT_PATH_FILE, path, user);
    struct guest_call *call = call_new(g, &kind, arg);
    call->cb.get = *callbacks;
    call->expected = length;
    if (offset > 0)
        target_number(&target, AGENT_QUERY_OFFSET, offset);
    if (length != UINT64_MAX)
        target_number(&target, AGENT_QUERY_LENGTH, length);
    return call_start(call,
                      &(struct channel_request){.method = "GET",
                                                .response_timeout_ms = g->timeouts.response,
                                                .idle_timeout_ms = g->timeouts.transfer},
                      &target);
}

struct guest_call *guest_tar_get(struct guest *g, const char *path, const char *user,
                                 const struct guest_file_get_callbacks *callbacks, void *arg)
{
    static const struct call_kind kind = {.success = 200, .data = get_data, .finish = get_finish};
    _cleanup_buf_ struct buf target = target_file(AGENT_PATH_TAR, path, user);
    struct guest_call *call = call_new(g, &kind, arg);
    call->cb.get = *callbacks;
    call->expected = UINT64_MAX;
    return call_start(call,
                      &(struct channel_request){.method = "GET",
                                                .response_timeout_ms = g->timeouts.response,
                                                .idle_timeout_ms = g->timeouts.transfer},
                      &target);
}

/* --- put ---------------------------------------------------------------------------------------------------------- */

static void put_drain(struct guest_call *call)
{
    if (call->cb.put.on_drain)
        call->cb.put.on_drain(call->arg);
}

static void put_finish(struct guest_call *call, const struct err *e)
{
    uint64_t count = 0;
    struct err mine;
    if (!e && decode_count(buf_data(&call->body), call->body.len, AGENT_TAG_FILE_SIZE, &count, &mine) < 0)
        e = &mine;
    if (!e && count != call->moved) {
        err_set(&mine, ERR_PROTOCOL, "the agent wrote another number of bytes than it was given");
        e = &mine;
    }
    call->cb.put.done(call->arg, e ? 0 : count, e);
}

static void tar_put_finish(struct guest_call *call, const struct err *e)
{
    uint64_t count = 0;
    struct err mine;
    if (!e && decode_count(buf_data(&call->body), call->body.len, AGENT_TAG_TAR_ENTRIES, &count, &mine) < 0)
        e = &mine;
    call->cb.put.done(call->arg, e ? 0 : count, e);
}

static struct guest_call *put_start(struct guest_call *call, struct buf *target)
{
    return call_start(
        call,
        &(struct channel_request){.method = "PUT", .streamed = true, .idle_timeout_ms = call->guest->timeouts.transfer},
        target);
}

struct guest_call *guest_file_put(struct guest *g, const struct guest_file_put *put,
                                  const struct guest_put_callbacks *callbacks, void *arg)
{
    static const struct call_kind kind = {.success = 200, .drain = put_drain, .finish = put_finish};
    _cleanup_buf_ struct buf target = target_file(AGENT_PATH_FILE, put->path, put->user);
    struct guest_call *call = call_new(g, &kind, arg);
    call->cb.put = *callbacks;
    target_octal(&target, AGENT_QUERY_MODE, put->mode);
    target_flag(&target, AGENT_QUERY_MAKE_PARENTS, put->make_parents);
    target_flag(&target, AGENT_QUERY_SYNC, put->sync);
    return put_start(call, &target);
}

struct guest_call *guest_tar_put(struct guest *g, const char *path, const char *user,
                                 const struct guest_put_callbacks *callbacks, void *arg)
{
    static const struct call_kind kind = {.success = 200, .drain = put_drain, .finish = tar_put_finish};
    _cleanup_buf_ struct buf target = target_file(AGENT_PATH_TAR, path, user);
    target_flag(&target, AGENT_QUERY_MAKE_PARENTS, true);
    struct guest_call *call = call_new(g, &kind, arg);
    call->cb.put = *callbacks;
    return put_start(call, &target);
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

/* The last part of a path: "b" of "/a/b", "/a/b/" and "/a/b/.", "/" when there is none. */
static char *last_part(const char *path)
{
    size_t end = strlen(path), from;
    for (;;) {
        while (end > 0 && path[end - 1] == '/')
            end--;
        for (from = end; from > 0 && path[from - 1] != '/';)
            from--;
        if (end - from != 1 || path[from] != '.')
            break;
        end = from;
    }
    return end > from ? xstrndup(path + from, end - from) : xstrdup("/");
}

static void stat_finish(struct guest_call *call, const struct err *e)
{
    struct guest_entry entry;
    _cleanup_free_ char *arena = NULL;
    struct err mine;
    if (!e && decode_stat(buf_data(&call->body), call->body.len, &entry, &arena, &mine) < 0)
        e = &mine;
    else if (!e)
        entry.name = call->name;
    call->done.stat(call->arg, e ? NULL : &entry, e);
}

struct guest_call *guest_stat(struct guest *g, const char *path, bool follow, const char *user, guest_stat_cb *done,
                              void *arg)
{
    static const struct call_kind kind = {.success = 200, .finish = stat_finish};
    _cleanup_buf_ struct buf target = target_file(AGENT_PATH_STAT, path, user);
    struct guest_call *call = call_new(g, &kind, arg);
    call->done.stat = done;
    call->name = last_part(path);
    target_number(&target, AGENT_QUERY_FOLLOW, follow);
    return call_start(call, &(struct channel_request){.method = "GET", .total_timeout_ms = g->timeouts.simple},
                      &target);
}

static void dir_finish(struct guest_call *call, const struct err *e)
{
    _cleanup_free_ struct guest_entry *entries = NULL;
    _cleanup_free_ char *arena = NULL;
    size_t count = 0;
    bool more = false;
    struct err mine;
    if (!e && decode_dir(buf_data(&call->body), call->body.len, call->after, call->limit, &entries, &count, &more,
                         &arena, &mine) < 0)
        e = &mine;
    call->done.dir(call->arg, entries, count, more, e);
}

struct guest_call *guest_dir(struct guest *g, const char *path, const char *after, uint32_t limit, const char *user,
                             guest_dir_cb *done, void *arg)
{
    static const struct call_kind kind = {.success = 200, .finish = dir_finish};
    _cleanup_buf_ struct buf target = target_file(AGENT_PATH_DIR, path, user);
    struct guest_call *call = call_new(g, &kind, arg);
    call->done.dir = done;
    call->limit = MAX(1u, MIN(limit, (uint32_t)AGENT_DIR_PAGE_MAX));
    call->after = after ? xstrdup(after) : NULL;
    target_text(&target, AGENT_QUERY_AFTER, after);
    target_number(&target, AGENT_QUERY_LIMIT, call->limit);
    return call_start(call, &(struct channel_request){.method = "GET", .total_timeout_ms = g->timeouts.response},
                      &target);
}

/* --- changing ----------------------------------------------------------------------------------------------------- */

struct guest_call *guest_mkdir(struct guest *g, const char *path, bool parents, int mode, const char *user,
                               guest_done_cb *done, void *arg)
{
    _cleanup_buf_ struct buf target = target_file(AGENT_PATH_MKDIR, path, user);
    target_flag(&target, AGENT_QUERY_PARENTS, parents);
    target_octal(&target, AGENT_QUERY_MODE, mode);
    return call_simple(g, "POST", &target, g->timeouts.simple, done, arg);
}

struct guest_call *guest_move(struct guest *g, const char *from, const char *to, bool replace, const char *user,
                              guest_done_cb *done, void *arg)
{
    _cleanup_buf_ struct buf target = BUF_MAX(TARGET_MAX);
    buf_put_str(&target, AGENT_PATH_MOVE);
    target_text(&target, AGENT_QUERY_FROM, from);
    target_text(&target, AGENT_QUERY_TO, to);
    target_flag(&target, AGENT_QUERY_REPLACE, replace);
    target_text(&target, AGENT_QUERY_USER, user);
    return call_simple(g, "POST", &target, g->timeouts.file_change, done, arg);
}

struct guest_call *guest_remove(struct guest *g, const char *path, bool recursive, const char *user,
                                guest_done_cb *done, void *arg)
{
    _cleanup_buf_ struct buf target = target_file(AGENT_PATH_FILE, path, user);
    target_flag(&target, AGENT_QUERY_RECURSIVE, recursive);
    return call_simple(g, "DELETE", &target, g->timeouts.file_change, done, arg);
}

struct guest_call *guest_attributes(struct guest *g, const char *path, const struct guest_attributes *attributes,
                                    const char *user, guest_done_cb *done, void *arg)
{
    _cleanup_buf_ struct buf target = target_file(AGENT_PATH_ATTR, path, user);
    target_octal(&target, AGENT_QUERY_MODE, attributes->mode);
    target_text(&target, AGENT_QUERY_OWNER, attributes->owner);
    target_text(&target, AGENT_QUERY_GROUP, attributes->group);
    return call_simple(g, "POST", &target, g->timeouts.simple, done, arg);
}

/* /v1/sandboxes/{id}/files: what answers with JSON or nothing. Streams of bytes: api_file_streams.c. */
#include "api/fields.h"
#include "api/render.h"
#include "control/sandbox.h"
#include "guest/guest.h"

/* One question to the guest whose answer ends the request. */
struct question {
    struct http_request *request;
    char *path;
};

static struct question *question_new(struct http_request *r, const char *path)
{
    struct question *q = NEW(struct question);
    *q = (struct question){.request = http_request_ref(r), .path = path ? xstrdup(path) : NULL};
    return q;
}

static void question_free(struct question *q)
{
    http_request_unref(q->request);
    free(q->path);
    free(q);
}

static void on_done(void *arg, const struct err *e)
{
    struct question *q = arg;
    if (e)
        http_reply_error(q->request, e);
    else
        http_reply_empty(q->request, 204);
    question_free(q);
}

static struct guest *guest_of(struct http_request *r, struct api *api, struct err *e)
{
    return sandbox_guest(api->control, project_of(r), http_request_param(r, "sandbox_id"), e);
}

/* ---- what a path is ---- */

static json_t *render_entry(const char *path, const struct guest_entry *entry)
{
    static const char *const types[] = {
        [AGENT_FILE_REGULAR] = "file", [AGENT_FILE_DIRECTORY] = "directory",     [AGENT_FILE_SYMLINK] = "symlink",
        [AGENT_FILE_FIFO] = "fifo",    [AGENT_FILE_SOCKET] = "socket",           [AGENT_FILE_CHARACTER] = "char_device",
        [AGENT_FILE_BLOCK] = "block_device"};
    unsigned type = entry->type;
    char mode[8];
    snprintf(mode, sizeof(mode), "%04o", entry->mode & 07777);
    json_t *modified = render_time(entry->mtime_ms);
    if (json_is_null(modified))
        modified = json_string("1970-01-01T00:00:00.000Z");
    return json_pack("{s:o, s:o, s:s, s:I, s:s, s:I, s:I, s:o, s:o}", "path", render_text(path, strlen(path)), "name",
                     render_text(entry->name, strlen(entry->name)), "type",
                     type < ARRAY_LEN(types) && types[type] ? types[type] : "file", "size_bytes",
                     (json_int_t)MIN(entry->size, (uint64_t)INT64_MAX), "mode", mode, "uid", (json_int_t)entry->uid,
                     "gid", (json_int_t)entry->gid, "modified_at", modified, "target",
                     entry->target ? render_text(entry->target, strlen(entry->target)) : json_null());
}

static void on_stat(void *arg, const struct guest_entry *entry, const struct err *e)
{
    struct question *q = arg;
    if (e)
        http_reply_error(q->request, e);
    else
        http_reply_json(q->request, 200, render_entry(q->path, entry));
    question_free(q);
}

void api_file_stat(struct http_request *r, void *arg)
{
    const char *path, *user;
    bool follow = true;
    struct err e = {0};
    struct guest *g = NULL;
    int result = path_of(r, (const char *[]){"path", "user", "follow", NULL}, &path, &user, &e);
    if (result >= 0)
        result = http_query_bool(http_request_query(r), "follow", &follow, &e);
    if (result < 0 || !(g = guest_of(r, arg, &e)))
        http_reply_error(r, &e);
    else
        guest_stat(g, path, follow, user, on_stat, question_new(r, path));
}

/* The cursor is the last name in hex: names are bytes. */
static void on_dir(void *arg, const struct guest_entry *entries, size_t count, bool more, const struct err *e)
{
    struct question *q = arg;
    if (e) {
        http_reply_error(q->request, e);
        question_free(q);
        return;
    }
    json_t *items = json_array();
    const char *slash = str_ends(q->path, "/") ? "" : "/";
    for (size_t i = 0; i < count; i++) {
        _cleanup_free_ char *path = xasprintf("%s%s%s", q->path, slash, entries[i].name);
        json_array_append_new(items, render_entry(path, &entries[i]));
    }
    _cleanup_free_ char *cursor = NULL;
    if (more && count) {
        const char *last = entries[count - 1].name;
        cursor = xmalloc(2 * strlen(last) + 1);
        hex_encode(last, strlen(last), cursor);
    }
    reply_list(q->request, items, cursor);
    question_free(q);
}

void api_file_list(struct http_request *r, void *arg)
{
    const char *path, *user;
    struct store_page page;
    char after[256] = "";
    struct err e = {0};
    struct guest *g = NULL;
    int result = path_of(r, (const char *[]){"path", "user", LIST_PARAMETERS, NULL}, &path, &user, &e);
    if (result >= 0)
        result = page_of(r, &page, &e);
    if (result >= 0 && page.cursor) {
        size_t len = strlen(page.cursor);
        if (len == 0 || len % 2 || len / 2 >= sizeof(after) || !hex_decode(page.cursor, len, (uint8_t *)after) ||
            strlen(after) != len / 2)
            result = err_set(&e, ERR_INVALID, "query parameter \"cursor\": it is none that was given out");
    }
    if (result < 0 || !(g = guest_of(r, arg, &e)))
        http_reply_error(r, &e);
    else
        guest_dir(g, path, after[0] ? after : NULL, page.limit, user, on_dir, question_new(r, path));
}

/* ---- changes ---- */

void api_file_remove(struct http_request *r, void *arg)
{
    const char *path, *user;
    bool recursive = false;
    struct err e = {0};
    struct guest *g = NULL;
    int result = path_of(r, (const char *[]){"path", "user", "recursive", NULL}, &path, &user, &e);
    if (result >= 0)
        result = http_query_bool(http_request_query(r), "recursive", &recursive, &e);
    if (result < 0 || !(g = guest_of(r, arg, &e)))
        http_reply_error(r, &e);
    else
        guest_remove(g, path, recursive, user, on_done, question_new(r, path));
}

struct change_body {
    const char *path, *from, *to, *mode, *owner, *group, *user;
    bool parents, replace;
};

#define AT(member) offsetof(struct change_body, member)
#define PATH_FIELD(name, flags)                                                                                        \
    {#name, FIELD_STRING, AT(name), flags, .valid = valid_guest_path, .expect = EXPECT_PATH}
#define USER_FIELD(name) {#name, FIELD_STRING, AT(name), .valid = valid_guest_user, .expect = EXPECT_USER}
#define MODE_FIELD {"mode", FIELD_STRING, AT(mode), .valid = valid_file_mode, .expect = EXPECT_MODE}

static int mode_of(const char *text)
{
    return text ? (int)strtol(text, NULL, 8) : -1;
}

/* Parse the body; NULL when the request was answered. */
static struct guest *parse_change(struct http_request *r, struct api *api, const struct field *fields, size_t count,
                                  struct change_body *body)
{
    _cleanup_faults_ struct faults f = {0};
    struct err e = {0};
    fields_parse(http_request_json(r), "", fields, count, body, &f);
    if (faults_reply(r, &f))
        return NULL;
    struct guest *g = guest_of(r, api, &e);
    if (!g)
        http_reply_error(r, &e);
    return g;
}

void api_file_mkdir(struct http_request *r, void *arg)
{
    static const struct field fields[] = {PATH_FIELD(path, FIELD_REQUIRED), {"parents", FIELD_BOOL, AT(parents)},
                                          MODE_FIELD, USER_FIELD(user)};
    struct change_body b = {.parents = true};
    struct guest *g = parse_change(r, arg, fields, ARRAY_LEN(fields), &b);
    if (g)
        guest_mkdir(g, b.path, b.parents, b.mode ? mode_of(b.mode) : 0755, b.user, on_done, question_new(r, NULL));
}

void api_file_move(struct http_request *r, void *arg)
{
    static const struct field fields[] = {PATH_FIELD(from, FIELD_REQUIRED), PATH_FIELD(to, FIELD_REQUIRED),
                                          {"replace", FIELD_BOOL, AT(replace)}, USER_FIELD(user)};
    struct change_body b = {.replace = true};
    struct guest *g = parse_change(r, arg, fields, ARRAY_LEN(fields), &b);
    if (g)
        guest_move(g, b.from, b.to, b.replace, b.user, on_done, question_new(r, NULL));
}

void api_file_attributes(struct http_request *r, void *arg)
{
    static const struct field fields[] = {PATH_FIELD(path, FIELD_REQUIRED), MODE_FIELD, USER_FIELD(owner),
                                          USER_FIELD(group), USER_FIELD(user)};
    struct change_body b = {0};
    struct guest *g = parse_change(r, arg, fields, ARRAY_LEN(fields), &b);
    if (!g)
        return;
    if (!b.mode && !b.owner && !b.group) {
        struct err e = {0};
        err_set(&e, ERR_INVALID, "at least one of mode, owner and group is needed");
        http_reply_error(r, &e);
        return;
    }
    struct guest_attributes attributes = {.mode = mode_of(b.mode), .owner = b.owner, .group = b.group};
    guest_attributes(g, b.path, &attributes, b.user, on_done, question_new(r, NULL));
}

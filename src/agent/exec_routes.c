/* What the host can ask about execs: reads the request, calls exec.h, answers. */
#include "agent/agent.h"
#include "agent/router.h"
#include "base/str.h"

/* Texts of one request for a new exec, all owned. */
struct exec_request {
    char *argv_slot[AGENT_ARGS_MAX + 2]; /* the first stays free (spawn.h), NULL-terminated */
    char *env[AGENT_ARGS_MAX + 1];
    size_t argc, envc;
    char *shell, *user, *cwd;
    struct exec_spec spec;
};

static void exec_request_free(struct exec_request **q)
{
    for (size_t i = 0; i < (*q)->argc; i++)
        free((*q)->argv_slot[1 + i]);
    for (size_t i = 0; i < (*q)->envc; i++)
        free((*q)->env[i]);
    free((*q)->shell);
    free((*q)->user);
    free((*q)->cwd);
    free(*q);
}

static bool text_once(const struct wire_field *f, size_t max, char **member)
{
    return !*member && wire_field_text_dup(f, max, member);
}

static bool number(const struct wire_field *f, uint64_t min, uint64_t max, uint64_t *ret_value)
{
    return wire_field_u64(f, ret_value) && *ret_value >= min && *ret_value <= max;
}

static bool field_take(struct exec_request *q, const struct wire_field *f)
{
    const char *text;
    uint64_t v;
    switch (f->tag) {
    case AGENT_TAG_EXEC_ARG:
        return q->argc < AGENT_ARGS_MAX && wire_field_text_dup(f, LIMIT_ARG_BYTES, &q->argv_slot[1 + q->argc]) &&
               ++q->argc;
    case AGENT_TAG_EXEC_ENV:
        if (q->envc == AGENT_ARGS_MAX || !wire_field_text_dup(f, LIMIT_ARG_BYTES, &q->env[q->envc]))
            return false;
        text = q->env[q->envc++];
        return strchr(text, '=') > text;
    case AGENT_TAG_EXEC_SHELL:
        return text_once(f, LIMIT_ARG_BYTES, &q->shell);
    case AGENT_TAG_EXEC_USER:
        return text_once(f, LIMIT_USER_NAME, &q->user);
    case AGENT_TAG_EXEC_CWD:
        return text_once(f, AGENT_PATH_MAX, &q->cwd) && q->cwd[0] == '/';
    case AGENT_TAG_EXEC_TTY:
        return wire_field_bool(f, &q->spec.tty);
    case AGENT_TAG_EXEC_STDIN:
        return wire_field_bool(f, &q->spec.want_stdin);
    case AGENT_TAG_EXEC_ROWS:
        return number(f, 1, UINT16_MAX, &v) && (q->spec.rows = (uint16_t)v);
    case AGENT_TAG_EXEC_COLS:
        return number(f, 1, UINT16_MAX, &v) && (q->spec.cols = (uint16_t)v);
    case AGENT_TAG_EXEC_BUFFER:
        return number(f, AGENT_BUFFER_MIN, AGENT_BUFFER_MAX, &v) && (q->spec.buffer_bytes = (size_t)v);
    case AGENT_TAG_EXEC_TIMEOUT_MS:
        return number(f, 0, INT32_MAX, &q->spec.timeout_ms);
    default:
        return true; /* of a newer host */
    }
}

static int exec_request_read(const struct buf *body, struct exec_request *q, struct err *e)
{
    struct wire_reader reader;
    struct wire_field f;
    wire_reader_init(&reader, buf_data(body), body->len);
    while (wire_next(&reader, &f))
        if (!field_take(q, &f))
            return err_set(e, ERR_INVALID, "the field %04x of the exec is not valid", f.tag);
    if (!wire_done(&reader))
        return err_set(e, ERR_INVALID, "the description of the exec is broken");
    if ((q->argc > 0) == (q->shell != NULL))
        return err_set(e, ERR_INVALID, "an exec has either arguments or a shell line");
    if (q->argc > 0 && q->argv_slot[1][0] == '\0')
        return err_set(e, ERR_INVALID, "the name of the program is empty");
    q->spec.argv = q->argc > 0 ? q->argv_slot + 1 : NULL;
    q->spec.env = q->env;
    q->spec.shell = q->shell;
    q->spec.user = q->user;
    q->spec.cwd = q->cwd;
    if (q->spec.buffer_bytes == 0)
        q->spec.buffer_bytes = AGENT_BUFFER_DEFAULT;
    return 0;
}

/* A reader may ask for the output of an exec whose own request is still coming in (its body goes after other headers):
 * it waits for that request's outcome. */
struct early_reader {
    char id[AGENT_EXEC_ID_MAX + 1];
    uint64_t from;
    bool follow;
};

static void early_closed(struct request *r)
{
    free(r->ctx);
}

static const struct request_ops early_ops = {.closed = early_closed};

static void exec_create(struct request *r);

static bool is_being_created(struct session *session, const char *id)
{
    const struct request *other;
    LIST_FOREACH(other, &session->requests, entry)
    if (other->collected == exec_create && !other->answered && str_eq(other->path + strlen(AGENT_PATH_EXECS "/"), id))
        return true;
    return false;
}

/* The request for the exec `id` was answered: x, or NULL when it did not come to be. */
static void early_readers_go(struct session *session, const char *id, struct exec *x)
{
    struct request *r, *next;
    struct err e;
    for (r = LIST_FIRST(&session->requests); r; r = next) {
        next = LIST_NEXT(r, entry);
        struct early_reader *early = r->ops == &early_ops ? r->ctx : NULL;
        if (!early || !str_eq(early->id, id))
            continue;
        r->ops = NULL;
        r->ctx = NULL;
        int error =
            x ? exec_attach(x, r, early->from, early->follow, &e) : err_set(&e, ERR_NOT_FOUND, "no exec %s", id);
        if (error < 0)
            request_fail(r, &e);
        free(early);
    }
}

static void exec_create(struct request *r)
{
    struct agent *agent = request_agent(r);
    const char *id = r->path + strlen(AGENT_PATH_EXECS "/"); /* the router has cut the path behind it */
    _cleanup_(exec_request_free) struct exec_request *q = NEW(struct exec_request);
    struct exec *x;
    struct err e;
    int error = exec_request_read(&r->body, q, &e);
    if (error == 0) {
        q->spec.base_env = agent->identity.env;
        error = exec_start(&agent->execs, id, &q->spec, &x, &e);
    }
    if (error < 0) {
        request_fail(r, &e);
        early_readers_go(r->session, id, exec_find(&agent->execs, id));
        return;
    }
    struct buf b = BUF_MAX(64);
    wire_put_u64(&b, AGENT_TAG_STARTED_PID, (uint64_t)x->pid);
    wire_put_i64(&b, AGENT_TAG_STARTED_AT_MS, x->started_ms);
    request_reply(r, 201, &b);
    early_readers_go(r->session, id, x);
}

static void exec_get(struct request *r, struct exec *x)
{
    struct buf b = BUF_MAX(1024);
    exec_state_put(x, &b);
    request_reply(r, 200, &b);
}

void execs_get(struct request *r, const struct query *q ATTR_UNUSED)
{
    struct buf b = BUF_MAX(WIRE_MESSAGE_MAX);
    const struct exec *x;
    TAILQ_FOREACH(x, &request_agent(r)->execs.all, entry)
    {
        size_t mark = wire_begin(&b, AGENT_TAG_EXEC_STATE);
        exec_state_put(x, &b);
        wire_end(&b, mark);
    }
    request_reply(r, 200, &b);
}

static int output_get(struct request *r, struct exec *x, const struct query *q, struct err *e)
{
    uint64_t from;
    bool follow;
    int error = query_u64(q, AGENT_QUERY_FROM, 0, 0, UINT64_MAX, &from, e);
    if (error == 0)
        error = query_flag(q, AGENT_QUERY_FOLLOW, true, &follow, e);
    if (error < 0)
        return error;
    if (x)
        return exec_attach(x, r, from, follow, e);
    struct early_reader *early = NEW(struct early_reader);
    const char *id = r->path + strlen(AGENT_PATH_EXECS "/"); /* the router has cut the path behind it */
    snprintf(early->id, sizeof(early->id), "%s", id);
    early->from = from;
    early->follow = follow;
    r->ops = &early_ops;
    r->ctx = early;
    return 0;
}

static int stdin_post(struct request *r, struct exec *x, const struct query *q, struct err *e)
{
    bool eof;
    int error = query_flag(q, AGENT_QUERY_EOF, false, &eof, e);
    return error < 0 ? error : exec_feed(x, r, eof, e);
}

static int signal_post(struct request *r, struct exec *x, const struct query *q, struct err *e)
{
    uint64_t sig;
    int error = query_u64(q, AGENT_QUERY_SIGNAL, 0, 1, 64, &sig, e);
    if (error == 0 && sig == 0)
        error = err_set(e, ERR_INVALID, "sig is needed");
    if (error == 0)
        error = exec_signal(x, (int)sig, e);
    if (error == 0)
        request_reply(r, 200, NULL);
    return error;
}

static int resize_post(struct request *r, struct exec *x, const struct query *q, struct err *e)
{
    uint64_t rows, cols = 0;
    int error = query_u64(q, AGENT_QUERY_ROWS, 0, 1, UINT16_MAX, &rows, e);
    if (error == 0)
        error = query_u64(q, AGENT_QUERY_COLS, 0, 1, UINT16_MAX, &cols, e);
    if (error == 0 && (rows == 0 || cols == 0))
        error = err_set(e, ERR_INVALID, "rows and cols are needed");
    if (error == 0)
        error = exec_resize(x, (uint16_t)rows, (uint16_t)cols, e);
    if (error == 0)
        request_reply(r, 200, NULL);
    return error;
}

void exec_route(struct request *r, const char *id, const char *sub, const struct query *q)
{
    static const struct {
        const char *method, *sub;
        int (*handle)(struct request *r, struct exec *x, const struct query *q, struct err *e);
    } subs[] = {{"GET", AGENT_SUB_OUTPUT, output_get},
                {"POST", AGENT_SUB_STDIN, stdin_post},
                {"POST", AGENT_SUB_SIGNAL, signal_post},
                {"POST", AGENT_SUB_RESIZE, resize_post}};
    struct exec *x = exec_find(&request_agent(r)->execs, id);
    struct err e;
    if (!*sub && str_eq(r->method, "POST")) {
        request_collect(r, exec_create);
        return;
    }
    bool early = !x && str_eq(sub, AGENT_SUB_OUTPUT) && str_eq(r->method, "GET") && is_being_created(r->session, id);
    if (!x && !early) {
        request_failf(r, ERR_NOT_FOUND, "no exec %s", id);
        return;
    }
    if (!*sub && str_eq(r->method, "GET")) {
        exec_get(r, x);
        return;
    }
    if (!*sub && str_eq(r->method, "DELETE")) {
        exec_delete(x);
        request_reply(r, 200, NULL);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(subs); i++) {
        if (str_eq(subs[i].method, r->method) && str_eq(subs[i].sub, sub)) {
            if (subs[i].handle(r, x, q, &e) < 0)
                request_fail(r, &e);
            return;
        }
    }
    request_failf(r, ERR_METHOD, "%.16s is not offered on %.64s of an exec", r->method, sub);
}

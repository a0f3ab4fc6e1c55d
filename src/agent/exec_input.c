/* Standard input of an exec: the bodies of its stdin requests, one after the other. A request's window is given back as
 * the process takes the bytes, so that a process that does not read holds no more than LIMIT_BODY_WINDOW of them. */
#include <errno.h>

#include "agent/exec.h"
#include "agent/exec_internal.h"

static void feeds_run(struct exec *x);

static void feed_answer(struct exec_feed *feed)
{
    struct buf b = BUF_MAX(64);
    wire_put_u64(&b, AGENT_TAG_STDIN_ACCEPTED, feed->accepted);
    request_reply(feed->request, 200, &b);
}

static void stdin_close(struct exec *x)
{
    if (x->stdin_fd < 0)
        return;
    loop_remove(&x->stdin_source);
    close(steal_fd(&x->stdin_fd));
}

/* Leave the exec; what is pending is thrown away. */
static void feed_detach(struct exec_feed *feed)
{
    TAILQ_REMOVE(&feed->exec->feeds, feed, entry);
    feed->exec = NULL;
    request_consume(feed->request, feed->pending.len);
    buf_done(&feed->pending);
}

static void stdin_ready(struct loop_source *source, uint32_t events ATTR_UNUSED)
{
    struct exec *x = container_of(source, struct exec, stdin_source);
    loop_remove(source);
    feeds_run(x);
}

/* How much was written; less than `len` when the process has to read first, or (then stdin is closed) never will. */
static size_t stdin_write(struct exec *x, const uint8_t *data, size_t len)
{
    size_t done = 0;
    while (done < len && x->stdin_fd >= 0) {
        ssize_t n = write(x->stdin_fd, data + done, len - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (errno == EAGAIN) {
            if (!x->stdin_source.loop)
                loop_add(x->execs->loop, &x->stdin_source, x->stdin_fd, EPOLLOUT, stdin_ready);
            break;
        } else if (errno != EINTR) {
            stdin_close(x);
        }
    }
    return done;
}

/* End of input: a pipe is closed; a terminal's line discipline turns the control character into the end. */
static bool stdin_eof(struct exec *x)
{
    static const uint8_t end_of_transmission = 4;
    if (x->tty)
        return stdin_write(x, &end_of_transmission, 1) == 1 || x->stdin_fd < 0;
    stdin_close(x);
    return true;
}

static void feeds_run(struct exec *x)
{
    struct exec_feed *feed;
    while ((feed = TAILQ_FIRST(&x->feeds))) {
        size_t n = stdin_write(x, buf_data(&feed->pending), feed->pending.len);
        buf_consume(&feed->pending, n);
        feed->accepted += n;
        request_consume(feed->request, n);
        if (x->stdin_fd >= 0) {
            if (feed->pending.len > 0 || !feed->ended)
                return;
            if (feed->eof && !stdin_eof(x))
                return;
        }
        bool ended = feed->ended;
        feed_detach(feed);
        if (ended)
            feed_answer(feed);
    }
}

static void feed_body(struct request *r, const uint8_t *data, size_t len)
{
    struct exec_feed *feed = r->ctx;
    struct exec *x = feed->exec;
    size_t n = 0;
    if (x && feed == TAILQ_FIRST(&x->feeds) && feed->pending.len == 0) {
        n = stdin_write(x, data, len);
        feed->accepted += n;
    }
    if (x && x->stdin_fd < 0)
        feed_detach(feed);
    if (!feed->exec) { /* nobody reads any more */
        request_consume(r, len);
        return;
    }
    request_consume(r, n);
    if (n < len && !buf_put(&feed->pending, data + n, len - n))
        request_reset(r); /* more than the window that was given */
}

static void feed_body_end(struct request *r)
{
    struct exec_feed *feed = r->ctx;
    feed->ended = true;
    if (feed->exec)
        feeds_run(feed->exec);
    else
        feed_answer(feed);
}

static void feed_closed(struct request *r)
{
    struct exec_feed *feed = r->ctx;
    struct exec *x = feed->exec;
    if (x) {
        bool first = feed == TAILQ_FIRST(&x->feeds);
        TAILQ_REMOVE(&x->feeds, feed, entry);
        if (first && !x->stdin_source.loop)
            feeds_run(x);
    }
    buf_done(&feed->pending);
    free(feed);
}

static const struct request_ops feed_ops = {.body = feed_body, .body_end = feed_body_end, .closed = feed_closed};

int exec_feed(struct exec *x, struct request *r, bool eof, struct err *e)
{
    if (x->stdin_fd < 0)
        return err_set(e, ERR_STATE, "standard input of exec %s is not open", x->id);
    struct exec_feed *feed = NEW(struct exec_feed);
    *feed = (struct exec_feed){.request = r, .exec = x, .eof = eof, .pending = BUF_MAX(2 * LIMIT_BODY_WINDOW)};
    TAILQ_INSERT_TAIL(&x->feeds, feed, entry);
    r->ops = &feed_ops;
    r->ctx = feed;
    return 0;
}

void exec_input_end(struct exec *x)
{
    struct exec_feed *feed;
    stdin_close(x);
    while ((feed = TAILQ_FIRST(&x->feeds))) {
        bool ended = feed->ended;
        feed_detach(feed);
        if (ended)
            feed_answer(feed);
    }
}

/* Following an exec over Server-Sent Events, with input and signals on the side (see exec.h).
 *
 * Theory of operation: three transfers at most run on one multi handle: `stream`, the events; `input`, one piece of
 * standard input at a time, begun only after the stream has been answered, for that is when the exec has started; and
 * `notice`, one signal at a time. The stream is begun again with the id of its last event whenever it ends without
 * `exit` and was not refused. Bytes are written out before the id moves on, so that nothing is lost or shown twice. */
#include "cli/exec.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/sse.h"

#define INPUT_MAX (256 * KIB)
#define RECONNECT_FIRST_MS 100
#define RECONNECT_LAST_MS 3000
#define RECONNECT_GIVE_UP_MS 60000
#define INTERRUPTS_TO_GIVE_UP 4

struct follow {
    const struct exec_follow *f;
    struct transfer stream, input, notice;
    bool stream_on, input_on, notice_on;
    bool input_over, pipe_closed;
    struct sse sse;
    json_t *result;
    uint8_t *decoded, *input_data;
    int signal_fd;
    char *input_path, *notice_path;
    char resume[96];
    int pending_signal, interrupts;
    uint64_t lost_at_ms, retry_at_ms, retry_wait_ms, ticked_ms;
    struct err error; /* of a callback */
};

static int write_out(struct follow *w, int fd, const void *data, size_t len)
{
    int r = fd_write_all(fd, data, len);
    if (r == -EPIPE) {
        w->pipe_closed = true;
        return ERR_CANCELLED;
    }
    return r < 0 ? err_errno(&w->error, ERR_SYSTEM, -r, "write the command's output") : 0;
}

static int write_json_line(struct follow *w, const struct sse_event *event)
{
    json_t *line = json_pack("{s:s, s:s}", "event", event->name, "id", event->id);
    json_t *data = json_loads(event->data, JSON_DECODE_ANY, NULL);
    json_object_set_new(line, "data", data ? data : json_stringn(event->data, event->len));
    char *text = json_dumps(line, JSON_COMPACT);
    int r = text ? write_out(w, STDOUT_FILENO, text, strlen(text)) : 0;
    if (r == 0)
        r = write_out(w, STDOUT_FILENO, "\n", 1);
    free(text);
    json_decref(line);
    return r;
}

static int on_event(void *arg, const struct sse_event *event)
{
    struct follow *w = arg;
    bool is_exit = str_eq(event->name, "exit"), error = str_eq(event->name, "stderr");
    if (is_exit) {
        w->result = json_loads(event->data, 0, NULL);
        if (!w->result)
            return err_set(&w->error, ERR_PROTOCOL, "the end of the command came in a form that is no JSON");
    }
    if (w->f->cli->json)
        return write_json_line(w, event);
    if (error || str_eq(event->name, "stdout")) {
        w->decoded = xrealloc(w->decoded, event->len / 4 * 3 + 1);
        ssize_t n = base64_decode(event->data, event->len, w->decoded);
        if (n < 0)
            return err_set(&w->error, ERR_PROTOCOL, "output came in a form that is not base64");
        return write_out(w, error ? STDERR_FILENO : STDOUT_FILENO, w->decoded, (size_t)n);
    }
    if (str_eq(event->name, "dropped")) {
        json_t *gap = json_loads(event->data, 0, NULL);
        say(w->f->cli, "space: %lld bytes of output are no longer kept", (long long)json_number(gap, "bytes"));
        json_decref(gap);
    }
    return 0;
}

static int on_data(void *arg, const void *data, size_t len)
{
    struct follow *w = arg;
    w->lost_at_ms = 0;
    w->retry_wait_ms = RECONNECT_FIRST_MS;
    return sse_feed(&w->sse, data, len, &w->error);
}

static int start_stream(struct follow *w, struct err *e)
{
    char from[24];
    snprintf(from, sizeof(from), "%ju", (uintmax_t)w->f->from);
    _cleanup_free_ char *base = xasprintf("/v1/sandboxes/%s/execs/%s/output", w->f->sandbox, w->f->exec);
    _cleanup_free_ char *path =
        api_path(base, "from", w->f->from ? from : NULL, "follow", w->f->no_wait ? "false" : NULL, NULL);
    sse_restart(&w->sse);
    w->stream = (struct transfer){.path = path, .write = on_data, .arg = w, .headers = {"Accept: text/event-stream"}};
    if (w->sse.id[0]) {
        snprintf(w->resume, sizeof(w->resume), "Last-Event-ID: %s", w->sse.id);
        w->stream.headers[1] = w->resume;
    }
    w->stream_on = true;
    int r = api_start(w->f->api, &w->stream, e);
    w->stream.path = NULL;
    return r;
}

static void stop(struct transfer *t, bool *on)
{
    if (*on) {
        api_finish(t, NULL);
        buf_done(&t->body);
    }
    *on = false;
}

/* The stream has ended. 0: go on (taken up again later); 1: all is said; negative: failed. */
static int stream_ended(struct follow *w, struct err *e)
{
    struct err why = {0};
    bool refused = w->stream.status >= 400 && w->stream.status != 429 && w->stream.status < 500;
    int r = api_finish(&w->stream, &why);
    buf_done(&w->stream.body);
    w->stream_on = false;
    if (w->result || w->pipe_closed)
        return 1;
    if (w->error.code) {
        *e = w->error;
        return w->error.code;
    }
    if (r >= 0 && w->f->no_wait)
        return 1;
    uint64_t at = clock_mono_ms();
    if (w->lost_at_ms == 0)
        w->lost_at_ms = at;
    if (refused || (r < 0 && w->stream.status >= 500 && w->stream.status != 503) ||
        at - w->lost_at_ms > RECONNECT_GIVE_UP_MS) {
        *e = why;
        if (!why.code)
            return err_set(e, ERR_UNAVAILABLE, "the server ended the output before the command ended");
        return why.code;
    }
    if (at == w->lost_at_ms)
        say(w->f->cli, "space: the connection is lost; taking it up again");
    w->retry_at_ms = at + w->retry_wait_ms;
    w->retry_wait_ms = MIN(w->retry_wait_ms * 2, (uint64_t)RECONNECT_LAST_MS);
    return 0;
}

static int read_input(struct follow *w, struct err *e)
{
    ssize_t n = read(STDIN_FILENO, w->input_data, INPUT_MAX);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    w->input_over = n <= 0;
    free(w->input_path);
    w->input_path =
        xasprintf("/v1/sandboxes/%s/execs/%s/stdin%s", w->f->sandbox, w->f->exec, n <= 0 ? "?eof=true" : "");
    w->input = (struct transfer){.method = "POST",
                                 .path = w->input_path,
                                 .data = n > 0 ? w->input_data : NULL,
                                 .data_len = n > 0 ? (size_t)n : 0};
    w->input_on = true;
    return api_start(w->f->api, &w->input, e);
}

static void input_ended(struct follow *w)
{
    struct err why = {0};
    int r = api_finish(&w->input, &why);
    buf_done(&w->input.body);
    w->input_on = false;
    if (r >= 0)
        return;
    /* A command that ends, or closes its input, while more is on its way is nothing to speak of. */
    w->input_over = true;
    if (r != ERR_STATE && r != ERR_GONE && r != ERR_NOT_FOUND) {
        _cleanup_free_ char *text = escaped(why.text);
        say(w->f->cli, "space: standard input is cut off: %s", text);
    }
}

static int send_signal(struct follow *w, int number, struct err *e)
{
    free(w->notice_path);
    w->notice_path = xasprintf("/v1/sandboxes/%s/execs/%s/signal", w->f->sandbox, w->f->exec);
    json_t *body = json_pack("{s:s}", "signal", signal_name(number));
    w->notice = (struct transfer){.method = "POST", .path = w->notice_path, .json = body, .timeout_ms = 10000};
    w->notice_on = true;
    int r = api_start(w->f->api, &w->notice, e);
    w->notice.json = NULL;
    json_decref(body);
    return r;
}

static int take_signals(struct follow *w, struct err *e)
{
    struct signalfd_siginfo info;
    while (read(w->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        w->pending_signal = (int)info.ssi_signo;
        if (info.ssi_signo == SIGINT && ++w->interrupts >= INTERRUPTS_TO_GIVE_UP)
            return err_set(e, ERR_CANCELLED, "interrupted %d times; the command may still run as exec %s",
                           w->interrupts, w->f->exec);
    }
    return 0;
}

/* The command's reader has gone: it gets the signal that it would get from a pipe of its own. */
static void close_pipe(struct follow *w)
{
    stop(&w->notice, &w->notice_on);
    if (send_signal(w, SIGPIPE, NULL) < 0)
        return;
    while (!w->notice.done && api_work(w->f->api, NULL) >= 0)
        if (!w->notice.done && api_wait(w->f->api, NULL, 0, 1000, NULL) < 0)
            break;
}

static int step(struct follow *w, struct err *e)
{
    uint64_t at = clock_mono_ms();
    int timeout = 1000, r = 0;
    if (!w->stream_on) {
        if (at >= w->retry_at_ms)
            r = start_stream(w, e);
        else
            timeout = (int)MIN(w->retry_at_ms - at, 1000);
    }
    if (r < 0)
        return r;
    /* What has just arrived decides what is waited for. */
    int ended = api_work(w->f->api, e);
    if (ended < 0)
        return ended;
    long status = 0;
    if (w->stream_on)
        curl_easy_getinfo(w->stream.easy, CURLINFO_RESPONSE_CODE, &status);
    struct curl_waitfd fds[2];
    unsigned count = 0;
    int input_at = -1;
    if (w->signal_fd >= 0)
        fds[count++] = (struct curl_waitfd){.fd = w->signal_fd, .events = CURL_WAIT_POLLIN};
    if (w->f->interactive && !w->input_over && !w->input_on && status == 200) {
        input_at = (int)count;
        fds[count++] = (struct curl_waitfd){.fd = STDIN_FILENO, .events = CURL_WAIT_POLLIN};
    }
    r = api_wait(w->f->api, fds, count, ended > 0 ? 0 : timeout, e);
    if (r == 0 && w->signal_fd >= 0)
        r = take_signals(w, e);
    if (r == 0 && w->input_on && w->input.done)
        input_ended(w);
    if (r == 0 && w->notice_on && w->notice.done)
        stop(&w->notice, &w->notice_on);
    if (r == 0 && w->pending_signal && !w->notice_on && status == 200) {
        r = send_signal(w, w->pending_signal, e);
        w->pending_signal = 0;
    }
    if (r == 0 && input_at >= 0 && fds[input_at].revents)
        r = read_input(w, e);
    if (r == 0 && w->f->tick && at - w->ticked_ms >= 1000) {
        w->ticked_ms = at;
        w->f->tick(w->f->tick_arg);
    }
    if (r == 0 && w->stream_on && w->stream.done)
        return stream_ended(w, e);
    return r;
}

static int block_signals(sigset_t *ret_before)
{
    sigset_t set;
    sigemptyset(&set);
    static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < ARRAY_LEN(forwarded); i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, ret_before);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int exec_follow(const struct exec_follow *f, json_t **ret_result, struct err *e)
{
    struct follow w = {.f = f, .signal_fd = -1, .retry_wait_ms = RECONNECT_FIRST_MS, .ticked_ms = clock_mono_ms()};
    sigset_t before;
    sse_init(&w.sse, on_event, &w);
    if (f->interactive)
        w.input_data = xmalloc(INPUT_MAX);
    if (f->forward_signals)
        w.signal_fd = block_signals(&before);
    int r = 0;
    while (r == 0)
        r = step(&w, e);
    if (w.pipe_closed)
        close_pipe(&w);
    stop(&w.stream, &w.stream_on);
    stop(&w.input, &w.input_on);
    stop(&w.notice, &w.notice_on);
    if (w.signal_fd >= 0) {
        close(w.signal_fd);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    sse_done(&w.sse);
    free(w.decoded);
    free(w.input_data);
    free(w.input_path);
    free(w.notice_path);
    if (r < 0) {
        json_decref(w.result);
        return r;
    }
    *ret_result = w.result;
    return w.pipe_closed ? EXEC_PIPE_CLOSED : 0;
}

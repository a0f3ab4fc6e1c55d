/* An exec on this terminal over a WebSocket (see exec.h): raw mode while it runs, the window's size passed on, and the
 * terminal put back whatever happens. Typing "~." at the start of a line leaves; the command goes on without us. */
#include "cli/exec.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/websocket.h"

#define QUEUED_MAX (256 * KIB)
#define SILENCE_MS 50000
#define RECONNECT_GIVE_UP_MS 60000

enum escape { AT_LINE_START, IN_LINE, AFTER_TILDE };

struct session {
    const struct exec_follow *f;
    struct websocket *ws;
    struct termios saved;
    bool raw, left, input_over;
    enum escape escape;
    int signal_fd;
    uint64_t offset;
    json_t *result;
    struct err error;
};

static void send_size(struct session *s)
{
    struct winsize size = {0};
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0)
        return;
    char text[80];
    int n = snprintf(text, sizeof(text), "{\"type\":\"resize\",\"rows\":%d,\"cols\":%d}", MIN((int)size.ws_row, 1000),
                     MIN((int)size.ws_col, 1000));
    websocket_send(s->ws, true, text, (size_t)n);
}

static void on_text(struct session *s, const void *data, size_t len)
{
    json_t *message = json_loadb(data, len, 0, NULL);
    const char *type = json_text(message, "type");
    if (type && str_eq(type, "start"))
        s->offset = (uint64_t)json_number(message, "offset");
    else if (type && str_eq(type, "dropped"))
        s->offset = (uint64_t)json_number(message, "to");
    else if (type && str_eq(type, "exit") && !s->result)
        s->result = json_incref(message);
    json_decref(message);
}

static int on_message(void *arg, bool is_text, const void *data, size_t len)
{
    struct session *s = arg;
    if (is_text) {
        on_text(s, data, len);
        return 0;
    }
    int r = fd_write_all(STDOUT_FILENO, data, len);
    if (r < 0)
        return err_errno(&s->error, ERR_SYSTEM, -r, "write to the terminal");
    s->offset += len;
    return 0;
}

/* Look for "~." in what was typed; true when it is there. */
static bool leave_typed(struct session *s, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (s->escape == AFTER_TILDE && data[i] == '.')
            return true;
        if (data[i] == '\r' || data[i] == '\n')
            s->escape = AT_LINE_START;
        else
            s->escape = s->escape == AT_LINE_START && data[i] == '~' ? AFTER_TILDE : IN_LINE;
    }
    return false;
}

static void read_input(struct session *s)
{
    char data[16384];
    ssize_t n = read(STDIN_FILENO, data, sizeof(data));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        s->input_over = true;
        static const char eof[] = "{\"type\":\"eof\"}";
        websocket_send(s->ws, true, eof, strlen(eof));
    } else if (s->raw && leave_typed(s, data, (size_t)n)) {
        s->left = true;
    } else {
        websocket_send(s->ws, false, data, (size_t)n);
    }
}

static void take_signals(struct session *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        char text[64];
        if (info.ssi_signo == SIGWINCH) {
            send_size(s);
            continue;
        }
        int n =
            snprintf(text, sizeof(text), "{\"type\":\"signal\",\"signal\":\"%s\"}", signal_name((int)info.ssi_signo));
        websocket_send(s->ws, true, text, (size_t)n);
    }
}

static void raw_mode(struct session *s, bool on)
{
    if (on && isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &s->saved) == 0) {
        struct termios raw = s->saved;
        cfmakeraw(&raw);
        s->raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    } else if (!on && s->raw) {
        tcsetattr(STDIN_FILENO, TCSADRAIN, &s->saved);
        s->raw = false;
    }
}

/* One connection's life. 0: it was lost; 1: the command has ended or the user has left; negative: failed. */
static int converse(struct session *s, struct err *e)
{
    uint64_t heard_ms = clock_mono_ms();
    send_size(s);
    for (;;) {
        bool read_more = !s->input_over && websocket_queued(s->ws) < QUEUED_MAX;
        struct pollfd fds[] = {
            {.fd = websocket_fd(s->ws), .events = (short)(POLLIN | (websocket_queued(s->ws) ? POLLOUT : 0))},
            {.fd = s->signal_fd, .events = POLLIN},
            {.fd = read_more ? STDIN_FILENO : -1, .events = POLLIN},
        };
        int n = poll(fds, ARRAY_LEN(fds), 1000);
        if (n < 0 && errno != EINTR)
            return err_errno(e, ERR_SYSTEM, errno, "wait for the terminal");
        if (fds[1].revents)
            take_signals(s);
        if (fds[2].revents)
            read_input(s);
        uint64_t at = clock_mono_ms();
        if (fds[0].revents)
            heard_ms = at;
        if (s->f->tick)
            s->f->tick(s->f->tick_arg);
        bool open = websocket_work(s->ws);
        if (s->error.code) {
            *e = s->error;
            return e->code;
        }
        if (s->result || s->left)
            return 1;
        if (!open || at - heard_ms > SILENCE_MS)
            return 0;
    }
}

static int connect_once(struct session *s, bool again, struct err *e)
{
    char from[24];
    snprintf(from, sizeof(from), "%ju", (uintmax_t)(again ? s->offset : s->f->from));
    _cleanup_free_ char *base = xasprintf("/v1/sandboxes/%s/execs/%s/ws", s->f->sandbox, s->f->exec);
    _cleanup_free_ char *path = api_path(base, "from", from, NULL);
    struct websocket_events events = {on_message, s};
    return websocket_open(s->f->api, path, &events, &s->ws, e);
}

static int reconnect(struct session *s, struct err *e)
{
    uint64_t lost_ms = clock_mono_ms();
    for (int wait = 100;; wait = MIN(wait * 2, 3000)) {
        int r = connect_once(s, true, e);
        if (r >= 0)
            return r;
        bool again = r == ERR_UNAVAILABLE || r == ERR_TIMEOUT || r == ERR_LIMIT;
        if (!again || clock_mono_ms() - lost_ms > RECONNECT_GIVE_UP_MS)
            return err_prefix(e, "the connection is lost");
        poll(NULL, 0, wait);
    }
}

int exec_terminal(const struct exec_follow *f, json_t **ret_result, struct err *e)
{
    struct session s = {.f = f, .signal_fd = -1, .offset = f->from};
    int r = connect_once(&s, false, e);
    if (r < 0)
        return r;
    sigset_t set, before;
    sigemptyset(&set);
    static const int forwarded[] = {SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < ARRAY_LEN(forwarded); i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    s.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    raw_mode(&s, true);
    do {
        r = converse(&s, e);
        websocket_close(s.ws);
        s.ws = NULL;
        if (r == 0)
            r = reconnect(&s, e);
    } while (r == 0);
    raw_mode(&s, false);
    close(s.signal_fd);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (r > 0 && s.left) {
        say(f->cli, "\r\nspace: left; the command goes on: space logs -f %s %s", f->sandbox, f->exec);
        s.result = json_pack("{s:s, s:i}", "state", "exited", "exit_code", 0);
    }
    if (r < 0) {
        json_decref(s.result);
        return r;
    }
    *ret_result = s.result;
    return 0;
}

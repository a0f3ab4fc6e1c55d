/* Making execs, and what their end means (see exec.h). */
#include "cli/exec.h"

#include <signal.h>
#include <sys/ioctl.h>

#include "base/str.h"
#include "cli/out.h"

static const struct {
    const char *name;
    int number;
} signals[] = {
    {"HUP", 1},   {"INT", 2},     {"QUIT", 3},  {"ILL", 4},    {"TRAP", 5},  {"ABRT", 6},  {"BUS", 7},   {"FPE", 8},
    {"KILL", 9},  {"USR1", 10},   {"SEGV", 11}, {"USR2", 12},  {"PIPE", 13}, {"ALRM", 14}, {"TERM", 15}, {"STKFLT", 16},
    {"CHLD", 17}, {"CONT", 18},   {"STOP", 19}, {"TSTP", 20},  {"TTIN", 21}, {"TTOU", 22}, {"URG", 23},  {"XCPU", 24},
    {"XFSZ", 25}, {"VTALRM", 26}, {"PROF", 27}, {"WINCH", 28}, {"IO", 29},   {"PWR", 30},  {"SYS", 31},
};

int signal_number(const char *name)
{
    if (str_starts(name, "SIG"))
        name += 3;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        if (str_eq(signals[i].name, name))
            return signals[i].number;
    return 0;
}

const char *signal_name(int number)
{
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        if (signals[i].number == number)
            return signals[i].name;
    return "?";
}

static void add_terminal(json_t *request, json_t *env)
{
    struct winsize size = {0};
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    json_object_set_new(
        request, "terminal",
        json_pack("{s:i, s:i}", "rows", MIN((int)size.ws_row, 1000), "cols", MIN((int)size.ws_col, 1000)));
    const char *term = getenv("TERM");
    if (!json_object_get(env, "TERM") && term && *term && utf8_valid(term, strlen(term)))
        json_object_set_new(env, "TERM", json_string(term));
}

int exec_request(const struct exec_options *o, int argc, char **argv, json_t **ret_request, struct err *e)
{
    if (o->shell && argc > 0)
        return err_set(e, ERR_INVALID, "--shell and a command cannot go together");
    if (!o->shell && argc == 0)
        return err_set(e, ERR_INVALID, "there is no command to run");
    if (o->detach && (o->interactive || o->terminal))
        return err_set(e, ERR_INVALID, "--detach cannot go with -i or -t");
    json_t *env = NULL;
    int r = cli_pairs(&o->env, "env", true, &env, e);
    if (r < 0)
        return r;
    json_t *request = json_object();
    if (o->shell) {
        json_object_set_new(request, "shell", json_string(o->shell));
    } else {
        json_t *command = json_array();
        for (int i = 0; i < argc && r == 0; i++)
            if (json_array_append_new(command, json_string(argv[i])) < 0)
                r = err_set(e, ERR_INVALID, "argument %d of the command is not UTF-8", i + 1);
        json_object_set_new(request, "command", command);
    }
    if (o->user)
        json_object_set_new(request, "user", json_string(o->user));
    if (o->cwd)
        json_object_set_new(request, "cwd", json_string(o->cwd));
    if (o->interactive || o->terminal)
        json_object_set_new(request, "stdin", json_true());
    if (o->terminal)
        add_terminal(request, env);
    if (o->timeout_ms)
        json_object_set_new(request, "timeout_ms", json_integer((json_int_t)o->timeout_ms));
    if (o->buffer_bytes)
        json_object_set_new(request, "buffer_bytes", json_integer((json_int_t)o->buffer_bytes));
    if (json_object_size(env) > 0)
        json_object_set(request, "env", env);
    json_decref(env);
    if (r < 0)
        json_decref(request);
    else
        *ret_request = request;
    return r;
}

int exec_create(struct api *api, const char *sandbox, const json_t *request, char ret_id[ID_SIZE], struct err *e)
{
    _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s/execs", sandbox);
    json_t *answer = NULL;
    int r = api_call(api, "POST", path, request, &answer, NULL, e);
    if (r < 0)
        return r;
    const char *id = json_text(answer, "exec.id");
    if (id && id_valid(ID_EXEC, id))
        memcpy(ret_id, id, ID_SIZE);
    else
        r = err_set(e, ERR_PROTOCOL, "the server's answer has no exec id");
    json_decref(answer);
    return r;
}

int exec_status(const struct cli *cli, const json_t *result)
{
    const char *state = json_text(result, "state"), *reason = json_text(result, "reason");
    const char *name = json_text(result, "signal");
    _cleanup_free_ char *why = escaped(reason ? reason : "no reason given");
    if (state && str_eq(state, "failed")) {
        fprintf(stderr, "space: the command could not be started: %s\n", why);
        return reason && (strstr(reason, "not found") || strstr(reason, "No such file")) ? EXIT_NOT_FOUND
                                                                                         : EXIT_NOT_STARTED;
    }
    if (state && str_eq(state, "lost")) {
        fprintf(stderr, "space: the command was lost with its sandbox: %s\n", why);
        return EXIT_OWN;
    }
    if (json_is_true(json_at(result, "oom_killed")))
        say(cli, "space: the sandbox ran out of memory and the command was killed");
    if (json_is_true(json_at(result, "timed_out"))) {
        say(cli, "space: the command was ended by its timeout");
        return EXIT_TIMED_OUT;
    }
    if (name)
        return EXIT_SIGNAL + signal_number(name);
    const json_t *code = json_at(result, "exit_code");
    return json_is_integer(code) ? (int)(json_integer_value(code) & 0xff) : EXIT_OWN;
}

/* Whether the exec has failed for a reason of its own: it could not be started, which the server says to the call that
 * wanted to start it. Then *ret_result is how it ended. */
static bool could_not_start(const struct exec_follow *f, json_t **ret_result)
{
    _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s/execs/%s", f->sandbox, f->exec);
    json_t *exec = NULL;
    if (api_call(f->api, "GET", path, NULL, &exec, NULL, NULL) < 0)
        return false;
    const char *state = json_text(exec, "state");
    if (!state || !str_eq(state, "failed")) {
        json_decref(exec);
        return false;
    }
    *ret_result = exec;
    return true;
}

int exec_perform(struct exec_follow *f, const struct exec_options *o, const json_t *request, struct err *e)
{
    char id[ID_SIZE];
    json_t *result = NULL;
    int r = exec_create(f->api, f->sandbox, request, id, e);
    if (r < 0)
        return r;
    f->exec = id;
    f->interactive = o->interactive;
    f->forward_signals = true;
    r = o->terminal ? exec_terminal(f, &result, e) : exec_follow(f, &result, e);
    if (r < 0 && r != ERR_CANCELLED && r != ERR_UNAVAILABLE && could_not_start(f, &result))
        r = 0;
    if (r == EXEC_PIPE_CLOSED)
        r = EXIT_SIGNAL + SIGPIPE;
    else if (r == 0)
        r = exec_status(f->cli, result);
    json_decref(result);
    return r;
}

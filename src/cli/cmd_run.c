/* space run, space exec, space shell: commands in sandboxes, with their output, input, signals and exit code. */
#include <signal.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/exec.h"
#include "cli/out.h"

/* A sandbox of run's own lives for LEASE_MS and is given more every third of it: it ends soon after a `space` that was
 * killed, and not before its command. */
#define LEASE_MS (5 * 60 * 1000)

struct run_args {
    struct create_options create;
    struct exec_options exec;
    bool keep;
    uint64_t lifetime_ms;
};

struct lease {
    struct api *api;
    const char *sandbox;
    uint64_t renewed_ms;
    struct transfer renewal;
    json_t *body;
    char *path;
    bool on;
};

static void lease_tick(void *arg)
{
    struct lease *l = arg;
    if (l->on)
        api_work(l->api, NULL);
    if (l->on && l->renewal.done) {
        api_finish(&l->renewal, NULL);
        buf_done(&l->renewal.body);
        l->on = false;
    }
    if (l->on || clock_mono_ms() - l->renewed_ms < LEASE_MS / 3)
        return;
    l->renewed_ms = clock_mono_ms();
    l->renewal = (struct transfer){.method = "PATCH", .path = l->path, .json = l->body, .timeout_ms = 30000};
    l->on = api_start(l->api, &l->renewal, NULL) >= 0;
}

static void lease_done(struct lease *l)
{
    if (l->on) {
        api_finish(&l->renewal, NULL);
        buf_done(&l->renewal.body);
    }
    json_decref(l->body);
    free(l->path);
}

static void block_ending_signals(sigset_t *ret_before)
{
    sigset_t set;
    sigemptyset(&set);
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        sigaddset(&set, signals[i]);
    sigprocmask(SIG_BLOCK, &set, ret_before);
}

/* A sandbox of its own for one command: created, used, deleted whatever happened in between. */
static int run_once(struct cli *cli, const struct create_options *create, const struct exec_options *options,
                    const json_t *exec, bool keep, bool renew, struct err *e)
{
    struct api *api;
    _cleanup_json_ json_t *request = NULL, *answer = NULL;
    char id[ID_SIZE] = "";
    sigset_t before;
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = create_request(create, &request, e);
    if (r < 0)
        return r;
    block_ending_signals(&before);
    r = sandbox_create(cli, api, request, true, id, &answer, e);
    struct lease lease = {.api = api, .sandbox = id, .renewed_ms = clock_mono_ms()};
    if (r >= 0) {
        lease.body = json_pack("{s:i}", "timeout_ms", LEASE_MS);
        lease.path = xasprintf("/v1/sandboxes/%s", id);
        if (keep)
            say(cli, "space: sandbox %s", id);
        struct exec_follow follow = {.cli = cli, .api = api, .sandbox = id};
        if (renew && !keep) {
            follow.tick = lease_tick;
            follow.tick_arg = &lease;
        }
        r = exec_perform(&follow, options, exec, e);
    }
    lease_done(&lease);
    struct err why = {0};
    if (id[0] && !keep && sandbox_change(cli, api, "DELETE", id, "", false, NULL, &why) < 0 && why.code != ERR_GONE) {
        _cleanup_free_ char *text = escaped(why.text);
        say(cli, "space: the sandbox %s is left: %s", id, text);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return r;
}

static int run_run(struct cli *cli, void *args, int argc, char **argv, struct err *e)
{
    struct run_args *a = args;
    cli->own_exit = true;
    _cleanup_json_ json_t *exec = NULL;
    int r = exec_request(&a->exec, argc, argv, &exec, e);
    if (r < 0)
        return r;
    a->create.timeout_ms = a->lifetime_ms ? a->lifetime_ms : LEASE_MS;
    return run_once(cli, &a->create, &a->exec, exec, a->keep, !a->lifetime_ms, e);
}

#define RUN(member, ...)                                                                                               \
    {                                                                                                                  \
        .offset = offsetof(struct run_args, member), __VA_ARGS__                                                       \
    }

static const struct opt run_options[] = {
    EXEC_OPTIONS(struct run_args, exec),
    RUN(exec.timeout_ms, .name = "timeout", .arg = "TIME", .kind = OPT_TIME, .min = 1, .max = 86400000,
        .help = "end the command after so long; exit code 124"),
    CREATE_OPTIONS(struct run_args, create),
    RUN(lifetime_ms, .name = "lifetime", .arg = "TIME", .kind = OPT_TIME, .min = 1000, .max = 86400000,
        .help = "the sandbox's deadline (default: with the command)"),
    RUN(keep, .name = "keep", .kind = OPT_FLAG, .help = "leave the sandbox running until its deadline"),
};

const struct command command_run = {
    .name = "run",
    .summary = "run one command in a sandbox of its own",
    .synopsis = "[--] COMMAND [ARG…]",
    .text = "Creates a sandbox, runs the command in it with its output as it comes, and deletes the sandbox. The exit\n"
            "code is the command's; 124 when --timeout ended it, 125 when space itself failed, 126 or 127 when the\n"
            "command could not be started, 128 + n when signal n ended it. Signals are passed on; four interrupts\n"
            "give up.",
    .examples = "space run -- python3 -c 'print(1)'\n"
                "echo 'print(6 * 7)' | space run -i -- python3 -\tpass standard input on\n"
                "space run --memory 1G --timeout 30s -s 'seq 9 | sort -r'\ta shell line, with limits\n"
                "space run -t -- bash\ta terminal",
    .options = run_options,
    .option_count = ARRAY_LEN(run_options),
    .args_size = sizeof(struct run_args),
    .max_args = -1,
    .words = OPTIONS_FIRST,
    .run = run_run,
};

struct exec_args {
    struct exec_options exec;
};

static int run_exec(struct cli *cli, void *args, int argc, char **argv, struct err *e)
{
    const struct exec_options *o = &((const struct exec_args *)args)->exec;
    struct api *api;
    char sandbox[ID_SIZE], id[ID_SIZE];
    _cleanup_json_ json_t *request = NULL;
    cli->own_exit = true;
    int r = exec_request(o, argc - 1, argv + 1, &request, e);
    if (r >= 0)
        r = cli_api(cli, &api, e);
    if (r >= 0)
        r = sandbox_resolve(api, argv[0], sandbox, e);
    if (r < 0)
        return r;
    struct exec_follow follow = {.cli = cli, .api = api, .sandbox = sandbox};
    if (!o->detach)
        return exec_perform(&follow, o, request, e);
    r = exec_create(api, sandbox, request, id, e);
    if (r < 0)
        return r;
    _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s/execs/%s/attach", sandbox, id);
    _cleanup_json_ json_t *exec = NULL;
    r = api_call(api, "POST", path, NULL, &exec, NULL, e);
    if (r < 0)
        return r;
    if (cli->json)
        print_json(exec);
    else
        puts(id);
    return 0;
}

#define EXEC(member, ...)                                                                                              \
    {                                                                                                                  \
        .offset = offsetof(struct exec_args, member), __VA_ARGS__                                                      \
    }

static const struct opt exec_options[] = {
    EXEC_OPTIONS(struct exec_args, exec),
    EXEC(exec.timeout_ms, .name = "timeout", .arg = "TIME", .kind = OPT_TIME, .min = 1, .max = 86400000,
         .help = "end the command after so long; exit code 124"),
    EXEC(exec.detach, .key = 'd', .name = "detach", .kind = OPT_FLAG,
         .help = "start it, print its id, and do not wait"),
};

const struct command command_exec = {
    .name = "exec",
    .summary = "run a command in a sandbox",
    .synopsis = "SANDBOX [--] COMMAND [ARG…]",
    .text =
        "Output comes as it is made, standard output and error apart. The exit code is the command's, with the same\n"
        "exceptions as for run. When the connection is lost the output is taken up again where it was; the command\n"
        "goes on meanwhile. Signals are passed on; four interrupts give up. With --json each line is one event, its\n"
        "data in base64.",
    .examples = "space exec demo -- ls -l /\n"
                "space exec -it demo -- bash\ta terminal\n"
                "space exec -u user -w /tmp -e LANG demo -- env\n"
                "tar c . | space exec -i demo -- tar x -C /srv\n"
                "space exec -d demo -- sleep 100\tstart it and come back later with space logs",
    .options = exec_options,
    .option_count = ARRAY_LEN(exec_options),
    .args_size = sizeof(struct exec_args),
    .min_args = 1,
    .max_args = -1,
    .words = 1,
    .complete = "sandbox",
    .run = run_exec,
};

struct shell_args {
    struct create_options create;
    const char *user, *cwd;
    struct opt_list env;
};

static int run_shell(struct cli *cli, void *args, int argc, char **argv, struct err *e)
{
    const struct shell_args *a = args;
    cli->own_exit = true;
    struct exec_options options = {.terminal = true,
                                   .user = a->user,
                                   .cwd = a->cwd,
                                   .env = a->env,
                                   .shell = "command -v bash >/dev/null && exec bash -l; exec sh -l"};
    _cleanup_json_ json_t *request = NULL;
    struct api *api;
    char sandbox[ID_SIZE];
    int r = exec_request(&options, 0, NULL, &request, e);
    if (r < 0)
        return r;
    if (argc == 0) {
        struct create_options create = a->create;
        create.timeout_ms = LEASE_MS;
        return run_once(cli, &create, &options, request, false, true, e);
    }
    r = cli_api(cli, &api, e);
    if (r >= 0)
        r = sandbox_resolve(api, argv[0], sandbox, e);
    if (r < 0)
        return r;
    struct exec_follow follow = {.cli = cli, .api = api, .sandbox = sandbox};
    return exec_perform(&follow, &options, request, e);
}

#define SHELL(member, ...)                                                                                             \
    {                                                                                                                  \
        .offset = offsetof(struct shell_args, member), __VA_ARGS__                                                     \
    }

static const struct opt shell_options[] = {
    SHELL(user, .key = 'u', .name = "user", .arg = "USER", .kind = OPT_TEXT, .help = "as this user (default: root)"),
    SHELL(cwd, .key = 'w', .name = "workdir", .arg = "DIR", .kind = OPT_TEXT, .help = "start in this folder"),
    SHELL(env, .key = 'e', .name = "env", .arg = "NAME[=VALUE]", .kind = OPT_LIST, .help = "set a variable"),
    CREATE_OPTIONS(struct shell_args, create),
};

const struct command command_shell = {
    .name = "shell",
    .summary = "open a terminal in a sandbox",
    .synopsis = "[SANDBOX]",
    .text =
        "Without a sandbox one is created, and deleted at the end. \"~.\" at the start of a line leaves the terminal;\n"
        "what runs in it goes on. The window's size is passed on, and a lost connection is taken up again.",
    .examples = "space shell demo\nspace shell\ta sandbox for this shell alone",
    .options = shell_options,
    .option_count = ARRAY_LEN(shell_options),
    .args_size = sizeof(struct shell_args),
    .max_args = 1,
    .complete = "sandbox",
    .run = run_shell,
};

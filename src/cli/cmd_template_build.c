/* space template build, space template import: make a template's parts on this host, and have the server take them in.
 *
 * The parts are made by a script beside this program, which tells how far it is by lines `@progress STEP DONE TOTAL
 * TEXT` and at its end `@result FOLDER`, the name of the finished folder in <state>/incoming/. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/build_progress.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

#define LINE_MAX_BYTES (64 * KIB)

struct build_args {
    const char *tag, *cache;
    uint64_t size;
    bool fresh;
};

struct build {
    struct cli *cli;
    struct progress progress;
    struct buf out, err; /* lines that are not complete */
    char step[64];
    uint64_t step_ms;
    char folder[256];
};

static volatile sig_atomic_t child_pid;

static void pass_on(int number)
{
    if (child_pid > 0)
        kill((pid_t)child_pid, number);
}

/* The script that builds `name`, beside this program: in the tree or installed. */
static char *script_path(const char *name)
{
    _cleanup_free_ char *folder = cli_program_folder();
    static const char *const places[] = {"../libexec/space/template", "../../../tools/template", "../../tools/template",
                                         "template"};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        _cleanup_free_ char *path = xasprintf("%s/%s/build-%s.sh", folder, places[i], name);
        if (access(path, X_OK) == 0)
            return steal(path);
    }
    return NULL;
}

static void step_done(struct build *b)
{
    char took[24];
    if (!b->step[0])
        return;
    progress_clear(&b->progress);
    _cleanup_free_ char *step = escaped(b->step);
    say(b->cli, "%s✓%s %-10s %s%s%s", color_on(COLOR_GOOD, b->cli->color_err), color_off(b->cli->color_err), step,
        color_on(COLOR_DIM, b->cli->color_err), format_duration((int64_t)(clock_mono_ms() - b->step_ms), took),
        color_off(b->cli->color_err));
}

static void take_out_line(struct build *b, const char *line)
{
    struct build_line parsed;
    if (!build_line_parse(line, &parsed))
        return;
    if (parsed.is_result) {
        snprintf(b->folder, sizeof(b->folder), "%s", parsed.text);
        return;
    }
    if (!str_eq(parsed.step, b->step)) {
        step_done(b);
        snprintf(b->step, sizeof(b->step), "%s", parsed.step);
        b->step_ms = clock_mono_ms();
        b->progress.started_ms = b->step_ms;
        if (!b->progress.on)
            say(b->cli, "space: %s: %s", parsed.step, parsed.text);
    }
    _cleanup_free_ char *text = xasprintf("%s: %s", parsed.step, parsed.text);
    progress_draw(&b->progress, text, parsed.done, parsed.total);
}

static void take_err_line(struct build *b, const char *line)
{
    _cleanup_free_ char *safe = escaped(line);
    progress_clear(&b->progress);
    fprintf(stderr, "%s\n", safe);
}

static void take_lines(struct build *b, struct buf *from, void (*take)(struct build *b, const char *line), bool all)
{
    for (;;) {
        const uint8_t *newline = from->len ? memchr(buf_data(from), '\n', from->len) : NULL;
        if (!newline && !(all && from->len > 0))
            return;
        size_t n = newline ? (size_t)(newline - buf_data(from)) : from->len;
        _cleanup_free_ char *line = xstrndup((const char *)buf_data(from), n);
        buf_consume(from, n + (newline != NULL));
        take(b, line);
    }
}

/* false at the end of the pipe. */
static bool take(struct build *b, int fd, struct buf *to, void (*line)(struct build *b, const char *line))
{
    char data[4096];
    ssize_t n = read(fd, data, sizeof(data));
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    if (n > 0 && !buf_put(to, data, (size_t)n))
        buf_reset(to);
    take_lines(b, to, line, n == 0);
    return n > 0;
}

static pid_t start(char **argv, int ret_pipes[2])
{
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        execv(argv[0], argv);
        fprintf(stderr, "run %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    ret_pipes[0] = out[0];
    ret_pipes[1] = err[0];
    return pid;
}

static int run_script(struct build *b, char **argv, struct err *e)
{
    int pipes[2], status = 0;
    pid_t pid = start(argv, pipes);
    if (pid < 0)
        return err_errno(e, ERR_SYSTEM, errno, "start %s", argv[0]);
    child_pid = pid;
    struct sigaction action = {.sa_handler = pass_on};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    bool out = true, err = true;
    while (out || err) {
        struct pollfd fds[] = {{.fd = out ? pipes[0] : -1, .events = POLLIN},
                               {.fd = err ? pipes[1] : -1, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            break;
        if (fds[0].revents)
            out = take(b, pipes[0], &b->out, take_out_line);
        if (fds[1].revents)
            err = take(b, pipes[1], &b->err, take_err_line);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    child_pid = 0;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    close(pipes[0]);
    close(pipes[1]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && b->folder[0]) {
        step_done(b);
        return 0;
    }
    progress_clear(&b->progress);
    if (WIFSIGNALED(status) || WEXITSTATUS(status) == 130)
        return err_set(e, ERR_CANCELLED, "the build was interrupted; nothing of it is left");
    if (WEXITSTATUS(status) == 3)
        return err_set(e, ERR_UNSUPPORTED, "the build needs something that is missing here");
    return err_set(e, ERR_SYSTEM, "the build failed");
}

static int import(struct cli *cli, struct api *api, const char *folder, const char *tag, struct err *e)
{
    _cleanup_json_ json_t *request = json_pack("{s:s, s:s*}", "incoming", folder, "tag", tag);
    _cleanup_json_ json_t *answer = NULL, *operation = NULL, *template = NULL;
    if (!request)
        return err_set(e, ERR_INVALID, "the name of the folder is not UTF-8");
    uint64_t started_ms = clock_mono_ms();
    int r = api_call(api, "POST", "/v1/templates", request, &answer, NULL, e);
    const char *id = json_text(answer, "operation.id");
    if (r >= 0 && (!id || !id_valid(ID_OPERATION, id)))
        r = err_set(e, ERR_PROTOCOL, "the server's answer has no operation");
    if (r < 0)
        return r;
    r = operation_wait(cli, api, id, "booting and freezing the machine", 0, &operation, e);
    if (r < 0)
        return r;
    char took[24];
    const char *digest = json_text(operation, "target.id");
    say(cli, "%s✓%s %-10s %s%s%s", color_on(COLOR_GOOD, cli->color_err), color_off(cli->color_err), "freeze",
        color_on(COLOR_DIM, cli->color_err), format_duration((int64_t)(clock_mono_ms() - started_ms), took),
        color_off(cli->color_err));
    if (!digest || strspn(digest, "0123456789abcdef") != 64 || digest[64])
        return err_set(e, ERR_PROTOCOL, "the operation names no template");
    if (!cli->json) {
        puts(digest);
        return 0;
    }
    _cleanup_free_ char *path = xasprintf("/v1/templates/%s", digest);
    r = api_call(api, "GET", path, NULL, &template, NULL, e);
    if (r >= 0)
        print_json(template);
    return r;
}

static int run_build(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    const struct build_args *a = args;
    struct api *api;
    size_t len = strlen(argv[0]);
    if (len == 0 || len > 48 || strspn(argv[0], "abcdefghijklmnopqrstuvwxyz0123456789-") != len)
        return err_set(e, ERR_INVALID, "\"%s\" is no name of a build", argv[0]);
    _cleanup_free_ char *script = script_path(argv[0]);
    if (!script)
        return err_set(e, ERR_NOT_FOUND, "there is no build \"%s\" (build-%s.sh) beside this program", argv[0],
                       argv[0]);
    /* Minutes of building are for nothing when nobody takes the result. */
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = api_call(api, "GET", "/v1/node", NULL, NULL, NULL, e);
    if (r < 0)
        return r;
    char size[24];
    snprintf(size, sizeof(size), "%ju", (uintmax_t)(a->size / MIB));
    const char *words[12] = {script, "--state", cli_state_folder(cli), "--name", argv[0]};
    size_t n = 5;
    if (a->size) {
        words[n++] = "--size-mib";
        words[n++] = size;
    }
    if (a->cache) {
        words[n++] = "--cache";
        words[n++] = a->cache;
    }
    if (a->fresh)
        words[n++] = "--fresh";
    struct build b = {.cli = cli, .out = BUF_MAX(LINE_MAX_BYTES), .err = BUF_MAX(LINE_MAX_BYTES)};
    progress_init(&b.progress, cli);
    r = run_script(&b, (char **)words, e);
    buf_done(&b.out);
    buf_done(&b.err);
    if (r < 0)
        return r;
    const char *tag = a->tag ? a->tag : argv[0];
    r = import(cli, api, b.folder, tag, e);
    if (r < 0) {
        _cleanup_free_ char *folder = escaped(b.folder);
        say(cli, "space: what was built is kept; try again with: space template import %s --tag %s", folder, tag);
    }
    return r;
}

static int run_import(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    const struct build_args *a = args;
    struct api *api;
    int r = cli_api(cli, &api, e);
    return r < 0 ? r : import(cli, api, argv[0], a->tag, e);
}

#define OPTION(member, ...)                                                                                            \
    {                                                                                                                  \
        .offset = offsetof(struct build_args, member), __VA_ARGS__                                                     \
    }
#define TAG OPTION(tag, .name = "tag", .arg = "TAG", .kind = OPT_TEXT, .help = "tag that moves to it")

static const struct opt build_options[] = {
    TAG,
    OPTION(fresh, .name = "fresh", .kind = OPT_FLAG,
           .help = "make the root file system anew, whatever is in the cache"),
    OPTION(size, .name = "size", .arg = "SIZE", .kind = OPT_BYTES, .min = 256 * MIB, .max = 64 * GIB,
           .help = "size of its root file system (default: 2G)"),
    OPTION(cache, .name = "cache", .arg = "DIR", .kind = OPT_TEXT,
           .help = "where downloads and the root file system are kept (default: in the state folder)"),
};
static const struct opt import_options[] = {TAG};

const struct command command_template_build = {
    .name = "template build",
    .summary = "build a template from Debian packages",
    .synopsis = "base",
    .text =
        "Makes kernel, root file system and initramfs on this host, which must be the server's, then has the server\n"
        "boot it once, warm it up and freeze it. Prints the digest. A build that fails leaves nothing behind. The tag\n"
        "is the build's name unless --tag says otherwise.",
    .examples = "space template build base\nspace template build base --fresh --tag base-next",
    .options = build_options,
    .option_count = ARRAY_LEN(build_options),
    .args_size = sizeof(struct build_args),
    .min_args = 1,
    .max_args = 1,
    .run = run_build,
};

const struct command command_template_import = {
    .name = "template import",
    .summary = "have the server take in a template that was built",
    .synopsis = "FOLDER",
    .text = "FOLDER is a name in the state folder's incoming/.",
    .options = import_options,
    .option_count = ARRAY_LEN(import_options),
    .args_size = sizeof(struct build_args),
    .min_args = 1,
    .max_args = 1,
    .run = run_import,
};

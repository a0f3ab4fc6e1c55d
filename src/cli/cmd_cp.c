/* space cp: files and folders between this machine and a sandbox. Folders go as tar streams through a pipe: one thread
 * packs or unpacks, this one talks to the server. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/str.h"
#include "cli/tar_stream.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

#define MAX_FILES 10000000

struct cp_args {
    const char *user;
    uint64_t max_size;
};

static void defaults(void *args)
{
    ((struct cp_args *)args)->max_size = 64 * GIB;
}

struct copy {
    struct cli *cli;
    struct api *api;
    const struct cp_args *args;
    char sandbox[ID_SIZE];
    struct progress progress;
    const char *what;
    uint64_t done, total;
    int fd;
    struct err error;
};

/* What runs in the other thread. */
struct helper {
    const char *folder; /* to pack, or NULL to unpack into the working folder */
    int fd;
    uint64_t max_bytes;
    struct tar_count count;
    int result;
    struct err error;
};

static void *help(void *arg)
{
    struct helper *h = arg;
    h->result = h->folder ? tar_pack(h->folder, h->fd, &h->count, &h->error)
                          : tar_unpack(h->fd, h->max_bytes, MAX_FILES, &h->count, &h->error);
    close(h->fd);
    return NULL;
}

/* "demo:/path" → sandbox and path; false for a local one. A local name with a colon needs a slash before it. */
static bool is_remote(const char *word, char **ret_sandbox, const char **ret_path)
{
    size_t n = strcspn(word, ":/");
    if (n == 0 || word[n] != ':')
        return false;
    *ret_sandbox = xstrndup(word, n);
    *ret_path = word + n + 1;
    return true;
}

static ssize_t on_read(void *arg, void *data, size_t len)
{
    struct copy *c = arg;
    ssize_t n;
    do {
        n = read(c->fd, data, len);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(&c->error, ERR_SYSTEM, errno, "read %s", c->what);
    c->done += (uint64_t)n;
    progress_draw_bytes(&c->progress, c->what, c->done, c->total);
    return n;
}

static int on_write(void *arg, const void *data, size_t len)
{
    struct copy *c = arg;
    int r = fd_write_all(c->fd, data, len);
    if (r < 0)
        return err_errno(&c->error, ERR_SYSTEM, -r, "write %s", c->what);
    c->done += len;
    progress_draw_bytes(&c->progress, c->what, c->done, c->total);
    return 0;
}

static char *remote_path(const struct copy *c, const char *kind, const char *path, const char *mode)
{
    _cleanup_free_ char *base = xasprintf("/v1/sandboxes/%s/files%s", c->sandbox, kind);
    return api_path(base, "path", path, "user", c->args->user, "mode", mode, NULL);
}

/* The last part of a path, inside ret_owned, which is the path without slashes at its end. */
static const char *last_part(const char *path, char **ret_owned)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    *ret_owned = xstrndup(path, len);
    const char *slash = strrchr(*ret_owned, '/');
    return slash && slash[1] ? slash + 1 : *ret_owned;
}

/* ret_type "" when there is nothing. */
static int remote_stat(const struct copy *c, const char *path, char ret_type[16], uint64_t *ret_size, struct err *e)
{
    _cleanup_free_ char *plain = NULL;
    last_part(path, &plain);
    _cleanup_free_ char *url = remote_path(c, "/stat", plain, NULL);
    _cleanup_json_ json_t *info = NULL;
    struct err why = {0};
    long status = 0;
    int r = api_call(c->api, "GET", url, NULL, &info, &status, &why);
    ret_type[0] = '\0';
    if (r == ERR_NOT_FOUND) {
        /* The file or the sandbox? */
        _cleanup_free_ char *sandbox = xasprintf("/v1/sandboxes/%s", c->sandbox);
        return api_call(c->api, "GET", sandbox, NULL, NULL, NULL, e);
    }
    if (r < 0) {
        *e = why;
        return r;
    }
    const char *type = json_text(info, "type");
    snprintf(ret_type, 16, "%s", type ? type : "");
    *ret_size = (uint64_t)MAX(json_number(info, "size_bytes"), 0);
    return 0;
}

/* Run a transfer whose bytes go through c->fd; a failure on this side goes before what the server says of it. */
static int move_bytes(struct copy *c, struct transfer *t, struct err *e)
{
    struct err why = {0};
    int r = api_run(c->api, t, &why), finished = api_finish(t, r < 0 ? NULL : &why);
    buf_done(&t->body);
    progress_clear(&c->progress);
    if (c->error.code) {
        *e = c->error;
        return c->error.code;
    }
    if (r < 0 || finished < 0)
        *e = why;
    return r < 0 ? r : finished;
}

static bool copies_content(const char *path)
{
    return str_eq(path, ".") || str_ends(path, "/.");
}

static int upload_file(struct copy *c, const char *from, const char *to, struct err *e)
{
    struct stat st = {0};
    bool is_stdin = str_eq(from, "-");
    _cleanup_close_ int opened = is_stdin ? -1 : open(from, O_RDONLY | O_CLOEXEC);
    if (!is_stdin && (opened < 0 || fstat(opened, &st) < 0))
        return err_errno(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYSTEM, errno, "open %s", from);
    char type[16], mode[8];
    uint64_t size;
    int r = remote_stat(c, to, type, &size, e);
    if (r < 0)
        return r;
    _cleanup_free_ char *owned = NULL, *longer = NULL;
    if (str_eq(type, "directory") || str_ends(to, "/")) {
        if (is_stdin)
            return err_set(e, ERR_INVALID, "%s is a folder; name the file to write", to);
        longer = xasprintf("%s/%s", to, last_part(from, &owned));
        to = longer;
    }
    snprintf(mode, sizeof(mode), "%04o", (unsigned)(st.st_mode & 0777));
    _cleanup_free_ char *url = remote_path(c, "", to, is_stdin ? NULL : mode);
    c->fd = is_stdin ? STDIN_FILENO : opened;
    c->what = from;
    c->total = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    struct transfer t = {.method = "PUT",
                         .path = url,
                         .read = on_read,
                         .arg = c,
                         .read_len = S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1};
    return move_bytes(c, &t, e);
}

static void say_skipped(const struct copy *c, const struct helper *h)
{
    if (h->count.skipped)
        say(c->cli, "space: %ju that are neither file, folder nor link were left out", (uintmax_t)h->count.skipped);
}

static int upload_folder(struct copy *c, const char *from, const char *to, struct err *e)
{
    char type[16];
    uint64_t size;
    int pipes[2], r = remote_stat(c, to, type, &size, e);
    if (r < 0)
        return r;
    if (type[0] && !str_eq(type, "directory"))
        return err_set(e, ERR_CONFLICT, "%s in the sandbox exists and is no folder", to);
    _cleanup_free_ char *owned = NULL, *longer = NULL;
    const char *name = last_part(from, &owned);
    if (type[0] && !copies_content(from)) {
        if (str_eq(name, "..") || str_eq(name, "/"))
            return err_set(e, ERR_INVALID, "%s has no name to copy it under; name the target", from);
        longer = xasprintf("%s/%s", to, name);
        to = longer;
    }
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make a pipe");
    struct helper helper = {.folder = from, .fd = pipes[1]};
    pthread_t thread;
    if (pthread_create(&thread, NULL, help, &helper) != 0)
        return err_set(e, ERR_SYSTEM, "start a thread");
    _cleanup_free_ char *url = remote_path(c, "/tar", to, NULL);
    c->fd = pipes[0];
    c->what = from;
    struct transfer t = {
        .method = "PUT", .path = url, .read = on_read, .read_len = -1, .arg = c, .content_type = "application/x-tar"};
    r = move_bytes(c, &t, e);
    close(pipes[0]);
    pthread_join(thread, NULL);
    if (helper.result < 0 && helper.error.code != ERR_CANCELLED) {
        *e = helper.error;
        return helper.result;
    }
    say_skipped(c, &helper);
    return r;
}

static int download_file(struct copy *c, const char *from, const char *to, uint64_t size, struct err *e)
{
    struct stat st;
    _cleanup_free_ char *owned = NULL, *longer = NULL, *temporary = NULL;
    _cleanup_free_ char *url = remote_path(c, "", from, NULL);
    bool is_stdout = str_eq(to, "-");
    if (!is_stdout && ((stat(to, &st) == 0 && S_ISDIR(st.st_mode)) || str_ends(to, "/"))) {
        longer = xasprintf("%s/%s", to, last_part(from, &owned));
        to = longer;
    }
    _cleanup_close_ int opened = -1;
    if (!is_stdout) {
        temporary = xasprintf("%s.space-XXXXXX", to);
        opened = mkostemp(temporary, O_CLOEXEC);
        if (opened < 0)
            return err_errno(e, ERR_SYSTEM, errno, "make a file beside %s", to);
    }
    c->fd = is_stdout ? STDOUT_FILENO : opened;
    c->what = from;
    c->total = size;
    struct transfer t = {.path = url, .write = on_write, .arg = c};
    struct curl_header *header = NULL;
    unsigned mode = 0644;
    int r = api_run(c->api, &t, e);
    if (r >= 0 && curl_easy_header(t.easy, "Space-Mode", 0, CURLH_HEADER, -1, &header) == CURLHE_OK)
        sscanf(header->value, "%4o", &mode);
    int finished = api_finish(&t, r < 0 ? NULL : e);
    buf_done(&t.body);
    progress_clear(&c->progress);
    if (r >= 0)
        r = finished;
    if (c->error.code) {
        *e = c->error;
        r = c->error.code;
    }
    mode_t mask = umask(0);
    umask(mask);
    if (!is_stdout && r >= 0 && (fchmod(opened, (mode & 0777) & ~mask) < 0 || rename(temporary, to) < 0))
        r = err_errno(e, ERR_SYSTEM, errno, "write %s", to);
    if (!is_stdout && r < 0)
        unlink(temporary);
    return r;
}

static int enter_target(const char *from, const char *to, struct err *e)
{
    struct stat st;
    _cleanup_free_ char *owned = NULL, *longer = NULL;
    const char *name = last_part(from, &owned);
    if (stat(to, &st) == 0) {
        if (!S_ISDIR(st.st_mode))
            return err_set(e, ERR_CONFLICT, "%s exists and is no folder", to);
        if (!copies_content(from)) {
            if (str_eq(name, "..") || str_eq(name, "/"))
                return err_set(e, ERR_INVALID, "%s has no name to copy it under; name the target", from);
            longer = xasprintf("%s/%s", to, name);
            to = longer;
        }
    }
    int r = dir_make(to, 0777, e);
    if (r >= 0 && chdir(to) < 0)
        r = err_errno(e, ERR_SYSTEM, errno, "enter %s", to);
    return r;
}

static int download_folder(struct copy *c, const char *from, const char *to, struct err *e)
{
    int pipes[2], r;
    if (str_eq(to, "-"))
        return err_set(e, ERR_INVALID, "%s is a folder and cannot go to standard output", from);
    r = enter_target(from, to, e);
    if (r < 0)
        return r;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make a pipe");
    struct helper helper = {.fd = pipes[0], .max_bytes = c->args->max_size};
    pthread_t thread;
    if (pthread_create(&thread, NULL, help, &helper) != 0)
        return err_set(e, ERR_SYSTEM, "start a thread");
    _cleanup_free_ char *url = remote_path(c, "/tar", from, NULL);
    c->fd = pipes[1];
    c->what = from;
    struct transfer t = {.path = url, .write = on_write, .arg = c};
    struct err why = {0};
    r = move_bytes(c, &t, &why);
    close(pipes[1]);
    pthread_join(thread, NULL);
    /* A pipe that broke says less than the end that broke it. */
    if (helper.result < 0 && (r >= 0 || c->error.code)) {
        *e = helper.error;
        return helper.result;
    }
    if (r < 0)
        *e = why;
    say_skipped(c, &helper);
    return r;
}

static int run(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    _cleanup_free_ char *from_sandbox = NULL, *to_sandbox = NULL;
    const char *from = argv[0], *to = argv[1], *path = NULL;
    struct copy c = {.cli = cli, .args = args, .fd = -1};
    bool from_remote = is_remote(argv[0], &from_sandbox, &from), to_remote = is_remote(argv[1], &to_sandbox, &to);
    if (from_remote == to_remote)
        return err_set(e, ERR_INVALID,
                       "one of the two must be in a sandbox (SANDBOX:/path) and the other on this machine");
    path = from_remote ? from : to;
    if (path[0] != '/')
        return err_set(e, ERR_INVALID, "the path in the sandbox must begin with '/': \"%s\"", path);
    int r = cli_api(cli, &c.api, e);
    if (r >= 0)
        r = sandbox_resolve(c.api, from_remote ? from_sandbox : to_sandbox, c.sandbox, e);
    if (r < 0)
        return r;
    progress_init(&c.progress, cli);
    if (to_remote) {
        struct stat st;
        bool folder = !str_eq(from, "-") && stat(from, &st) == 0 && S_ISDIR(st.st_mode);
        return folder ? upload_folder(&c, from, to, e) : upload_file(&c, from, to, e);
    }
    char type[16];
    uint64_t size = 0;
    r = remote_stat(&c, from, type, &size, e);
    if (r < 0)
        return r;
    if (!type[0])
        return err_set(e, ERR_NOT_FOUND, "there is no %s in the sandbox", from);
    return str_eq(type, "directory") ? download_folder(&c, from, to, e) : download_file(&c, from, to, size, e);
}

#define OPTION(member, ...)                                                                                            \
    {                                                                                                                  \
        .offset = offsetof(struct cp_args, member), __VA_ARGS__                                                        \
    }

static const struct opt options[] = {
    OPTION(user, .key = 'u', .name = "user", .arg = "USER", .kind = OPT_TEXT,
           .help = "as this user of the sandbox (default: root)"),
    OPTION(max_size, .name = "max-size", .arg = "SIZE", .kind = OPT_BYTES, .min = 1,
           .help = "take at most so much from a sandbox's folder (default: 64G)"),
};

const struct command command_cp = {
    .name = "cp",
    .summary = "copy files and folders into and out of a sandbox",
    .synopsis = "SOURCE TARGET",
    .text =
        "One of the two is SANDBOX:/path, the other a path here; \"-\" is standard input or output. A folder is "
        "copied\n"
        "with what is in it: into TARGET when that is a folder, else as TARGET; SOURCE/. copies its content alone.\n"
        "Files appear complete or not at all. What comes out of a sandbox is not trusted: nothing is written outside\n"
        "of TARGET, and devices, pipes and set-user-id bits are left out.",
    .examples = "space cp ./project demo:/home/user/\nspace cp demo:/var/log/. ./logs\n"
                "space cp demo:/etc/os-release -\necho hello | space cp - demo:/tmp/greeting",
    .options = options,
    .option_count = ARRAY_LEN(options),
    .args_size = sizeof(struct cp_args),
    .defaults = defaults,
    .min_args = 2,
    .max_args = 2,
    .complete = "file",
    .run = run,
};

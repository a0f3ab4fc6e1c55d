/* space serve: become the server, spaced, with the options given. */
#include <errno.h>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"

static int run(struct cli *cli, void *args ATTR_UNUSED, int argc, char **argv, struct err *e)
{
    static const char *const places[] = {"spaced", "../bin/spaced", "../libexec/space/spaced"};
    _cleanup_free_ char *folder = cli_program_folder();
    const char **words = xcalloc((size_t)argc + 4, sizeof(*words));
    size_t n = 1;
    if (cli->state) {
        words[n++] = "--state-dir";
        words[n++] = cli->state;
    }
    for (int i = 0; i < argc; i++)
        words[n++] = argv[i];
    /* For the client; the server refuses variables SPACE_… that it does not know. */
    unsetenv("SPACE_CA_FILE");
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", folder, places[i]);
        words[0] = path;
        if (access(path, X_OK) == 0)
            execv(path, (char **)words);
    }
    words[0] = "spaced";
    execvp("spaced", (char **)words);
    int r = err_errno(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYSTEM, errno, "start spaced");
    free(words);
    return r;
}

const struct command command_serve = {
    .name = "serve",
    .summary = "start the server, spaced, in the foreground",
    .synopsis = "[SPACED OPTIONS…]",
    .text = "All arguments go to spaced as they are; \"space serve --config-reference\" lists what it\n"
            "takes. It ends with Ctrl-C.",
    .examples = "space serve --listen 127.0.0.1:7777\nspace serve --config /etc/space/config",
    .raw_arguments = true,
    .max_args = -1,
    .run = run,
};

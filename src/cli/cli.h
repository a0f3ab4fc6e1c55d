/* The program `space`: what every command shares. A command is a `struct command` in its own file, listed in
 * commands.c; main.c finds it, parses its options and calls it. */
#ifndef SPACE_CLI_CLI_H
#define SPACE_CLI_CLI_H

#include <jansson.h>

#include "base/err.h"
#include "cli/opt.h"

#define SPACE_URL_DEFAULT "http://127.0.0.1:7777"

/* Exit codes beyond those of the error table (err.c). They follow what shells, timeout(1) and env(1) do. */
enum {
    EXIT_TIMED_OUT = 124, /* run, exec: the command was ended by --timeout */
    EXIT_OWN = 125,       /* run, exec, shell, logs: space itself failed, not the command */
    EXIT_NOT_STARTED = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128, /* plus the number of the signal that ended the command */
};

#define OPTIONS_FIRST (-1)

struct api;

struct cli {
    const char *url; /* as given; NULL until cli_api has found it */
    const char *key;
    const char *key_file;
    const char *state; /* the state folder, as given */
    bool json, quiet, help, version;
    bool color_out, color_err; /* standard output, standard error take colours */
    bool progress;             /* standard error is a terminal and --quiet was not given */
    bool own_exit;             /* failures exit with EXIT_OWN in place of the code's own */
    char *url_found, *key_found, *state_found;
    struct api *api;
};

struct command {
    const char *name;     /* "exec", "template build" */
    const char *summary;  /* one line, lower case */
    const char *synopsis; /* what follows the name and options: "SANDBOX [--] COMMAND [ARG…]" */
    const char *text;     /* paragraphs for --help and the man page, or NULL */
    const char *examples; /* lines "command\tcomment", or NULL */
    const struct opt *options;
    size_t option_count;
    size_t args_size; /* of the struct that options fill, zeroed before */
    void (*defaults)(void *args);
    int min_args, max_args; /* max_args -1: any number */
    int words;              /* how many arguments may stand before its options end by themselves; 0 for any number, */
                            /* OPTIONS_FIRST for none (what follows is a command with options of its own) */
    bool raw_arguments;     /* nothing is parsed but --help as the only argument */
    const char *complete;   /* what its first argument is, for completion: sandbox, file, template, op, key or NULL */
    /* ≥ 0: exit status; negative: error code, its text in `e`. */
    int (*run)(struct cli *cli, void *args, int argc, char **argv, struct err *e);
};

extern const struct command *const commands[];
extern const size_t command_count;
extern const struct opt global_options[];
extern const size_t global_option_count;

/* The state folder: --state-dir, SPACE_STATE_DIR, /var/lib/space for root, else $XDG_DATA_HOME/space. */
const char *cli_state_folder(struct cli *cli);

/* The connection to the server: URL and key from the options, the environment, or the state folder. */
int cli_api(struct cli *cli, struct api **ret_api, struct err *e);

/* The folder of this very program, for the helpers that lie beside it; the caller frees. */
char *cli_program_folder(void);

/* "NAME=VALUE" options as a JSON object; ERR_INVALID names the option. "NAME" alone takes the value of this
 * program's environment when `from_environment`. */
int cli_pairs(const struct opt_list *list, const char *option, bool from_environment, json_t **ret_object,
              struct err *e);

#endif

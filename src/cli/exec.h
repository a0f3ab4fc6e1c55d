/* Execs as the commands run, exec, shell and logs use them: make one, follow its output, pass on input and signals, and
 * turn its end into an exit code. */
#ifndef SPACE_CLI_EXEC_H
#define SPACE_CLI_EXEC_H

#include <jansson.h>

#include "base/id.h"
#include "cli/api.h"
#include "cli/cli.h"

/* What run, exec and shell have in common; filled by the options below. */
struct exec_options {
    bool interactive, terminal, detach;
    const char *user, *cwd, *shell;
    struct opt_list env;
    uint64_t timeout_ms, buffer_bytes;
};

#define EXEC_OPTIONS(type, member)                                                                                     \
    {.key = 'i',                                                                                                       \
     .name = "interactive",                                                                                            \
     .kind = OPT_FLAG,                                                                                                 \
     .offset = offsetof(type, member.interactive),                                                                     \
     .help = "pass standard input on"},                                                                                \
        {.key = 't',                                                                                                   \
         .name = "tty",                                                                                                \
         .kind = OPT_FLAG,                                                                                             \
         .offset = offsetof(type, member.terminal),                                                                    \
         .help = "run it on a terminal; implies -i"},                                                                  \
        {.key = 'e',                                                                                                   \
         .name = "env",                                                                                                \
         .arg = "NAME[=VALUE]",                                                                                        \
         .kind = OPT_LIST,                                                                                             \
         .offset = offsetof(type, member.env),                                                                         \
         .help = "set a variable, or pass on that of this environment"},                                               \
        {.key = 'u',                                                                                                   \
         .name = "user",                                                                                               \
         .arg = "USER",                                                                                                \
         .kind = OPT_TEXT,                                                                                             \
         .offset = offsetof(type, member.user),                                                                        \
         .help = "run as this user of the sandbox (default: root)"},                                                   \
        {.key = 'w',                                                                                                   \
         .name = "workdir",                                                                                            \
         .arg = "DIR",                                                                                                 \
         .kind = OPT_TEXT,                                                                                             \
         .offset = offsetof(type, member.cwd),                                                                         \
         .help = "start in this folder (default: the user's home)"},                                                   \
        {.key = 's',                                                                                                   \
         .name = "shell",                                                                                              \
         .arg = "LINE",                                                                                                \
         .kind = OPT_TEXT,                                                                                             \
         .offset = offsetof(type, member.shell),                                                                       \
         .help = "run a shell line in place of COMMAND"},                                                              \
    {                                                                                                                  \
        .name = "buffer", .arg = "SIZE", .kind = OPT_BYTES, .offset = offsetof(type, member.buffer_bytes),             \
        .min = 64 * KIB, .max = 64 * MIB, .help = "how much output to keep (default: 4M)"                              \
    }

/* The request for POST …/execs; the caller decrefs. ERR_INVALID for what cannot go together. */
int exec_request(const struct exec_options *o, int argc, char **argv, json_t **ret_request, struct err *e);

/* Make the exec (reserved, not started). */
int exec_create(struct api *api, const char *sandbox, const json_t *request, char ret_id[ID_SIZE], struct err *e);

struct exec_follow {
    struct cli *cli;
    struct api *api;
    const char *sandbox, *exec;
    bool interactive;        /* pass standard input on */
    bool forward_signals;    /* pass SIGINT, SIGTERM … on in place of ending */
    bool no_wait;            /* end at what there is, for logs without -f */
    uint64_t from;           /* first byte of the output to show */
    void (*tick)(void *arg); /* called about once a second, or NULL */
    void *tick_arg;
};

/* Start it (if nobody has), and follow it to its end: output to standard output and error as it comes; a lost
 * connection is taken up again where it was. *ret_result is its ExecResult (NULL with no_wait), or NULL with the return
 * value EXEC_PIPE_CLOSED when the reader of our standard output has gone. */
#define EXEC_PIPE_CLOSED 1
int exec_follow(const struct exec_follow *f, json_t **ret_result, struct err *e);

/* The same for an exec with a terminal: raw mode, size, over a WebSocket. */
int exec_terminal(const struct exec_follow *f, json_t **ret_result, struct err *e);

/* Exit code of a command that ended like this; says on standard error what no code can (lost, not started). */
int exec_status(const struct cli *cli, const json_t *result);

/* Create, follow (with or without a terminal), and the exit code; for run, exec and shell. */
int exec_perform(struct exec_follow *f, const struct exec_options *o, const json_t *request, struct err *e);

/* Number of a signal's name without SIG, 0 if there is none; and back ("?"). */
int signal_number(const char *name);
const char *signal_name(int number);

#endif

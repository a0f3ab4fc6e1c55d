/* The program `space`: finds the command, parses its options, calls it, and turns its result into an exit code. */
#include <errno.h>
#include <signal.h>

#include "base/id.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/help.h"
#include "cli/out.h"

static const struct command *find_command(int argc, char **argv, int *ret_words)
{
    if (argc >= 2) {
        _cleanup_free_ char *two = xasprintf("%s %s", argv[0], argv[1]);
        for (size_t i = 0; i < command_count; i++)
            if (str_eq(commands[i]->name, two)) {
                *ret_words = 2;
                return commands[i];
            }
    }
    for (size_t i = 0; argc >= 1 && i < command_count; i++)
        if (str_eq(commands[i]->name, argv[0])) {
            *ret_words = 1;
            return commands[i];
        }
    return NULL;
}

static bool is_group(const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i < command_count; i++)
        if (strncmp(commands[i]->name, word, len) == 0 && commands[i]->name[len] == ' ')
            return true;
    return false;
}

static void print_help(const struct cli *cli, const struct command *c, const char *group)
{
    _cleanup_buf_ struct buf out = BUF_MAX(0);
    if (c)
        help_command(cli, c, &out);
    else if (group)
        help_group(cli, group, &out);
    else
        help_overview(cli, &out);
    fwrite(buf_data(&out), 1, out.len, stdout);
}

static void look_at_terminals(struct cli *cli)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool may = !(no_color && *no_color) && !(term && str_eq(term, "dumb"));
    cli->color_out = may && isatty(STDOUT_FILENO);
    cli->color_err = may && isatty(STDERR_FILENO);
    cli->progress = isatty(STDERR_FILENO) && !(term && str_eq(term, "dumb")) && !cli->quiet;
}

/* Whether two words alike; one step of Levenshtein's distance is enough for a hint. */
static bool nearly(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] && a[i] == b[i])
        i++;
    return str_eq(a + i + (a[i] != 0), b + i + (b[i] != 0)) || str_eq(a + i + (a[i] != 0), b + i) ||
           str_eq(a + i, b + i + (b[i] != 0)) || (a[i] && b[i] && a[i] == b[i + 1] && a[i + 1] == b[i]);
}

static int unknown(const char *word, struct err *e)
{
    for (size_t i = 0; i < command_count; i++)
        if (nearly(word, commands[i]->name))
            return err_set(e, ERR_INVALID, "no command \"%s\"; did you mean \"%s\"? \"space --help\" lists all", word,
                           commands[i]->name);
    return err_set(e, ERR_INVALID, "no command \"%s\"; \"space --help\" lists all", word);
}

static int usage_error(struct err *e, const struct command *c)
{
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof(e->text) - used, "; see \"space %s --help\"", c->name);
    return e->code;
}

static int call(struct cli *cli, const struct command *c, int argc, char **argv, struct err *e)
{
    _cleanup_free_ void *args = xcalloc(1, c->args_size + 1);
    if (c->defaults)
        c->defaults(args);
    if (!c->raw_arguments) {
        struct opt_table tables[] = {{c->options, c->option_count, args}, {global_options, global_option_count, cli}};
        int words = c->words == OPTIONS_FIRST ? 0 : c->words > 0 ? c->words : -1;
        int r = opt_parse(tables, ARRAY_LEN(tables), words, argv, &argc, e);
        if (r < 0)
            return usage_error(e, c);
        if (!cli->help && (argc < c->min_args || (c->max_args >= 0 && argc > c->max_args)))
            return err_set(e, ERR_INVALID, "%s; usage: space %s %s",
                           argc < c->min_args ? "an argument is missing" : "there are too many arguments", c->name,
                           c->synopsis);
    } else if (argc == 1 && (str_eq(argv[0], "--help") || str_eq(argv[0], "-h"))) {
        cli->help = true;
    }
    if (cli->help) {
        look_at_terminals(cli);
        print_help(cli, c, NULL);
        return 0;
    }
    look_at_terminals(cli);
    return c->run(cli, args, argc, argv, e);
}

static int dispatch(struct cli *cli, int argc, char **argv, struct err *e)
{
    /* Global options before the command; the command's own parser takes those after it. */
    int words_at = 0;
    while (words_at < argc && argv[words_at][0] == '-' && argv[words_at][1]) {
        bool takes_value = false;
        for (size_t i = 0; i < global_option_count; i++)
            if (global_options[i].kind != OPT_FLAG && str_starts(argv[words_at], "--") &&
                str_eq(argv[words_at] + 2, global_options[i].name))
                takes_value = true;
        words_at += takes_value ? 2 : 1;
    }
    words_at = MIN(words_at, argc);
    int before = words_at;
    struct opt_table table = {global_options, global_option_count, cli};
    int r = opt_parse(&table, 1, -1, argv, &before, e);
    if (r < 0)
        return r;
    argv += words_at;
    argc -= words_at;
    look_at_terminals(cli);
    if (cli->version) {
        printf("space %s\n", SPACE_VERSION);
        return 0;
    }
    int used = 0;
    const struct command *c = find_command(argc, argv, &used);
    if (c)
        return call(cli, c, argc - used, argv + used, e);
    if (argc == 0) {
        print_help(cli, NULL, NULL);
        return cli->help ? 0 : 2;
    }
    if (is_group(argv[0])) {
        if (argc > 1 && argv[1][0] != '-')
            return err_set(e, ERR_INVALID, "no command \"%s %s\"; \"space %s --help\" lists what there is", argv[0],
                           argv[1], argv[0]);
        print_help(cli, NULL, argv[0]);
        return argc > 1 || cli->help ? 0 : 2;
    }
    return unknown(argv[0], e);
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct err e = {0};
    signal(SIGPIPE, SIG_IGN);
    int r = dispatch(&cli, argc - 1, argv + 1, &e);
    if (fflush(stdout) != 0 && errno != EPIPE && r >= 0)
        r = err_errno(&e, ERR_SYSTEM, errno, "write to standard output");
    if (r < 0) {
        report_error(&cli, &e);
        r = cli.own_exit ? EXIT_OWN : err_info(r)->exit_code;
    }
    api_close(cli.api);
    if (cli.key_found)
        wipe(cli.key_found, strlen(cli.key_found));
    free(cli.key_found);
    free(cli.url_found);
    free(cli.state_found);
    return r;
}

/* Help texts, man pages and completion from the tables (see help.h). */
#include "cli/help.h"

#include <ctype.h>

#include "base/str.h"
#include "cli/out.h"

#define HELP_COLUMN 26

/* The overview's order and headings: each name is the first word of one or more commands. */
static const struct {
    const char *title;
    const char *names[14];
} groups[] = {
    {"Run code", {"run", "exec", "shell", "create"}},
    {"Sandboxes",
     {"ls", "inspect", "update", "pause", "resume", "kill", "ps", "logs", "console", "metrics", "cp", "port"}},
    {"Platform", {"template", "op", "key", "project", "node", "doctor", "bench", "serve"}},
    {"More", {"help", "completion"}},
};

static const char *const exit_codes[][2] = {
    {"0", "success"},
    {"1", "the server or the host failed"},
    {"2", "wrong use, or the server found the request not valid"},
    {"10", "no valid API key"},
    {"11", "not allowed"},
    {"12", "not found, or gone"},
    {"13", "conflict, or not possible in this state"},
    {"14", "a limit is reached, too large, or no space left"},
    {"15", "not supported here"},
    {"16", "the sandbox broke its protocol"},
    {"17", "no server, no capacity, or given up; a later try can succeed"},
    {"18", "no answer in time"},
    {"124", "run, exec: the command was ended by --timeout"},
    {"125", "run, exec, shell, logs: space itself failed, not the command"},
    {"126, 127", "run, exec: the command could not be started, was not found"},
    {"128 + n", "run, exec: signal n ended the command"},
};

static void put_option(struct buf *out, const struct opt *o)
{
    char left[80];
    int n = o->key ? snprintf(left, sizeof(left), "  -%c, --%s", o->key, o->name)
                   : snprintf(left, sizeof(left), "      --%s", o->name);
    if (o->arg)
        n += snprintf(left + n, sizeof(left) - (size_t)n, " %s", o->arg);
    if (n >= HELP_COLUMN)
        buf_printf(out, "%s\n%*s", left, HELP_COLUMN, "");
    else
        buf_printf(out, "%-*s", HELP_COLUMN, left);
    buf_printf(out, "%s%s\n", o->help, o->kind == OPT_LIST ? "; may be repeated" : "");
}

static void put_heading(const struct cli *cli, struct buf *out, const char *title)
{
    buf_printf(out, "\n%s%s%s\n", color_on(COLOR_BOLD, cli->color_out), title, color_off(cli->color_out));
}

static void put_global_options(const struct cli *cli, struct buf *out)
{
    put_heading(cli, out, "Options of every command");
    for (size_t i = 0; i < global_option_count; i++)
        put_option(out, &global_options[i]);
}

static const struct command *first_named(const char *name, bool *ret_group)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < command_count; i++)
        if (strncmp(commands[i]->name, name, len) == 0 && strchr(" ", commands[i]->name[len])) {
            *ret_group = commands[i]->name[len] == ' ';
            return commands[i];
        }
    return NULL;
}

static const char *group_summary(const char *name)
{
    static const char *const texts[][2] = {
        {"template", "build, list, tag and remove starting environments"},
        {"op", "look at and wait for operations"},
        {"key", "make, list and revoke API keys"},
        {"project", "make and list projects"},
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (str_eq(texts[i][0], name))
            return texts[i][1];
    return "";
}

void help_overview(const struct cli *cli, struct buf *out)
{
    buf_put_str(out, "space runs code in microVMs: sandboxes that start in milliseconds and are thrown away.\n"
                     "\nUsage: space COMMAND [OPTIONS] [ARGUMENTS]\n");
    for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
        put_heading(cli, out, groups[g].title);
        for (size_t i = 0; i < ARRAY_LEN(groups[g].names) && groups[g].names[i]; i++) {
            bool group = false;
            const struct command *c = first_named(groups[g].names[i], &group);
            if (c)
                buf_printf(out, "  %-12s %s\n", groups[g].names[i],
                           group ? group_summary(groups[g].names[i]) : c->summary);
        }
    }
    put_global_options(cli, out);
    put_heading(cli, out, "Examples");
    buf_put_str(out, "  space run -- python3 -c 'print(1)'      one command in a sandbox of its own\n"
                     "  space create --name demo                a sandbox that stays\n"
                     "  space exec demo -- ls -l /              a command in it\n"
                     "  space cp ./project demo:/home/user/     a folder into it\n"
                     "  space shell demo                        a terminal in it\n"
                     "\n\"space COMMAND --help\" says more about each.\n");
}

void help_group(const struct cli *cli, const char *group, struct buf *out)
{
    size_t len = strlen(group);
    buf_printf(out, "space %s: %s.\n\nUsage: space %s COMMAND [OPTIONS] [ARGUMENTS]\n", group, group_summary(group),
               group);
    put_heading(cli, out, "Commands");
    for (size_t i = 0; i < command_count; i++)
        if (strncmp(commands[i]->name, group, len) == 0 && commands[i]->name[len] == ' ')
            buf_printf(out, "  %-12s %s\n", commands[i]->name + len + 1, commands[i]->summary);
}

static void put_examples(struct buf *out, const char *examples)
{
    while (*examples) {
        size_t line = strcspn(examples, "\n"), command = strcspn(examples, "\t\n");
        buf_put_str(out, "  ");
        buf_put(out, examples, command);
        if (command < line)
            buf_printf(out, "\n      %.*s", (int)(line - command - 1), examples + command + 1);
        buf_put_byte(out, '\n');
        examples += line + (examples[line] == '\n');
    }
}

void help_command(const struct cli *cli, const struct command *c, struct buf *out)
{
    buf_printf(out, "Usage: space %s%s%s%s\n\n%c%s.\n", c->name, c->option_count ? " [OPTIONS]" : "",
               *c->synopsis ? " " : "", c->synopsis, toupper((unsigned char)c->summary[0]), c->summary + 1);
    if (c->text)
        buf_printf(out, "\n%s\n", c->text);
    if (c->option_count) {
        put_heading(cli, out, "Options");
        for (size_t i = 0; i < c->option_count; i++)
            put_option(out, &c->options[i]);
    }
    put_global_options(cli, out);
    if (c->examples) {
        put_heading(cli, out, "Examples");
        put_examples(out, c->examples);
    }
}

/* Text for roff: backslashes, hyphens, and dots and quotes at the start of a line. */
static void put_roff(struct buf *out, const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\''))
            buf_put_str(out, "\\&");
        if (*text == '\\')
            buf_put_str(out, "\\e");
        else if (*text == '-')
            buf_put_str(out, "\\-");
        else
            buf_put_byte(out, (uint8_t)*text);
        start = *text == '\n';
        if (start && text[1] == '\n')
            buf_put_str(out, ".PP");
    }
}

static void put_roff_option(struct buf *out, const struct opt *o)
{
    buf_put_str(out, ".TP\n\\fB");
    if (o->key)
        buf_printf(out, "\\-%c\\fR, \\fB", o->key);
    buf_put_str(out, "\\-\\-");
    put_roff(out, o->name);
    buf_put_str(out, "\\fR");
    if (o->arg)
        buf_printf(out, " \\fI%s\\fR", o->arg);
    buf_put_byte(out, '\n');
    put_roff(out, o->help);
    buf_put_str(out, o->kind == OPT_LIST ? "; may be repeated.\n" : ".\n");
}

static void put_roff_options(struct buf *out, const char *title, const struct opt *options, size_t count)
{
    buf_printf(out, ".SH %s\n", title);
    for (size_t i = 0; i < count; i++)
        put_roff_option(out, &options[i]);
}

static void man_overview(struct buf *out)
{
    buf_put_str(out,
                ".TH SPACE 1 \"\" \"space " SPACE_VERSION "\" \"space\"\n.SH NAME\nspace \\- run code in microVMs\n"
                ".SH SYNOPSIS\n\\fBspace\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n"
                "Sandboxes are microVMs with a kernel of their own. They start in milliseconds, run commands, hold "
                "files, and are thrown away.\n.SH COMMANDS\n");
    for (size_t i = 0; i < command_count; i++) {
        buf_put_str(out, ".TP\n\\fB");
        put_roff(out, commands[i]->name);
        buf_put_str(out, "\\fR ");
        put_roff(out, commands[i]->synopsis);
        buf_put_byte(out, '\n');
        put_roff(out, commands[i]->summary);
        buf_put_str(out, ".\n");
    }
    put_roff_options(out, "OPTIONS OF EVERY COMMAND", global_options, global_option_count);
    buf_put_str(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < ARRAY_LEN(exit_codes); i++) {
        buf_printf(out, ".TP\n\\fB%s\\fR\n", exit_codes[i][0]);
        put_roff(out, exit_codes[i][1]);
        buf_put_str(out, ".\n");
    }
    static const char *const environment[][2] = {
        {"SPACE_URL", "where the server is"},
        {"SPACE_API_KEY", "the API key"},
        {"SPACE_STATE_DIR", "the state folder of the platform, where URL and key are looked for"},
        {"SPACE_CA_FILE", "certificates to trust for https, in PEM"},
        {"NO_COLOR", "no colours, whatever its value"},
    };
    buf_put_str(out, ".SH ENVIRONMENT\n");
    for (size_t i = 0; i < ARRAY_LEN(environment); i++)
        buf_printf(out, ".TP\n\\fB%s\\fR\n%s.\n", environment[i][0], environment[i][1]);
    buf_put_str(out, ".SH FILES\n.TP\n\\fI/var/lib/space\\fR (root), \\fI$XDG_DATA_HOME/space\\fR\nThe state folder: "
                     "\\fIurl\\fR and \\fIadmin.key\\fR are in it.\n");
}

void help_man(const struct command *c, struct buf *out)
{
    if (!c) {
        man_overview(out);
        return;
    }
    _cleanup_free_ char *page = xasprintf("space-%s", c->name);
    for (char *p = page; *p; p++)
        if (*p == ' ')
            *p = '-';
    buf_put_str(out, ".TH ");
    for (const char *p = page; *p; p++)
        buf_put_byte(out, (uint8_t)toupper((unsigned char)*p));
    buf_put_str(out, " 1 \"\" \"space " SPACE_VERSION "\" \"space\"\n.SH NAME\n");
    put_roff(out, page);
    buf_put_str(out, " \\- ");
    put_roff(out, c->summary);
    buf_put_str(out, "\n.SH SYNOPSIS\n\\fBspace ");
    put_roff(out, c->name);
    buf_printf(out, "\\fR%s ", c->option_count ? " [\\fIOPTIONS\\fR]" : "");
    put_roff(out, c->synopsis);
    if (c->text) {
        buf_put_str(out, "\n.SH DESCRIPTION\n");
        put_roff(out, c->text);
    }
    buf_put_byte(out, '\n');
    if (c->option_count)
        put_roff_options(out, "OPTIONS", c->options, c->option_count);
    put_roff_options(out, "OPTIONS OF EVERY COMMAND", global_options, global_option_count);
    if (c->examples) {
        _cleanup_buf_ struct buf lines = BUF_MAX(0);
        put_examples(&lines, c->examples);
        buf_put_str(out, ".SH EXAMPLES\n.nf\n");
        put_roff(out, buf_cstr(&lines));
        buf_put_str(out, ".fi\n");
    }
    buf_put_str(out, ".SH SEE ALSO\n.BR space (1)\n");
}

static void put_words(struct buf *out, const struct opt *options, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        buf_printf(out, "--%s ", options[i].name);
        if (options[i].key)
            buf_printf(out, "-%c ", options[i].key);
    }
}

void help_bash_completion(struct buf *out)
{
    buf_put_str(
        out,
        "# bash completion for space; made by \"space completion bash\"\n"
        "_space_names() {\n"
        "    case $1 in\n"
        "    sandbox) space ls --quiet 2>/dev/null ;;\n"
        "    template) space template ls --quiet 2>/dev/null ;;\n"
        "    op) space op ls --quiet 2>/dev/null ;;\n"
        "    key) space key ls --quiet 2>/dev/null ;;\n"
        "    esac\n"
        "}\n"
        "_space() {\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=() word command options what\n"
        "    local i\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        word=${COMP_WORDS[i]}\n"
        "        [[ $word == -* ]] || words+=(\"$word\")\n"
        "    done\n"
        "    COMPREPLY=()\n"
        "    case $prev in\n"
        "    --state-dir) COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n"
        "    --key-file) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
        "    --template) COMPREPLY=($(compgen -W \"$(_space_names template)\" -- \"$cur\")); return ;;\n"
        "    esac\n"
        "    case \"${words[0]} ${words[1]}\" in\n");
    for (int two = 1; two >= 0; two--)
        for (size_t i = 0; i < command_count; i++) {
            const struct command *c = commands[i];
            if ((strchr(c->name, ' ') != NULL) != two)
                continue;
            buf_printf(out, "    \"%s\"%s) command='%s' what=%s options='", c->name, two ? "" : "\" \"*", c->name,
                       c->complete ? c->complete : "");
            put_words(out, c->options, c->option_count);
            put_words(out, global_options, global_option_count);
            buf_put_str(out, "' ;;\n");
        }
    buf_put_str(out, "    esac\n"
                     "    if [[ -z $command ]]; then\n"
                     "        case ${words[0]} in\n");
    const char *last = "";
    for (size_t i = 0; i < command_count; i++) {
        const char *space = strchr(commands[i]->name, ' ');
        if (!space)
            continue;
        size_t len = (size_t)(space - commands[i]->name);
        if (strncmp(last, commands[i]->name, len + 1) == 0) {
            buf_printf(out, " %s", space + 1);
        } else {
            buf_printf(out, "%s        %.*s) options='%s", *last ? "' ;;\n" : "", (int)len, commands[i]->name,
                       space + 1);
        }
        last = commands[i]->name;
    }
    buf_put_str(out, *last ? "' ;;\n        '') options='" : "        '') options='");
    for (size_t g = 0; g < ARRAY_LEN(groups); g++)
        for (size_t i = 0; i < ARRAY_LEN(groups[g].names) && groups[g].names[i]; i++)
            buf_printf(out, "%s ", groups[g].names[i]);
    put_words(out, global_options, global_option_count);
    buf_put_str(out, "' ;;\n"
                     "        esac\n"
                     "    elif [[ $cur != -* ]]; then\n"
                     "        case $what in\n"
                     "        file) COMPREPLY=($(compgen -f -- \"$cur\") $(compgen -W \"$(_space_names sandbox)\" -S : "
                     "-- \"$cur\")); compopt -o nospace; return ;;\n"
                     "        '') COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
                     "        *) options=$(_space_names \"$what\") ;;\n"
                     "        esac\n"
                     "    fi\n"
                     "    COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
                     "}\n"
                     "complete -F _space space\n");
}

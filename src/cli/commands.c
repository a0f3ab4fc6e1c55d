/* The list of commands, in the order of the help; commands with two words stand together. */
#include "cli/commands.h"

#include "base/file.h"
#include "base/str.h"
#include "cli/help.h"

const struct command *const commands[] = {
    &command_run,
    &command_exec,
    &command_shell,
    &command_create,
    &command_ls,
    &command_inspect,
    &command_update,
    &command_pause,
    &command_resume,
    &command_kill,
    &command_ps,
    &command_logs,
    &command_console,
    &command_metrics,
    &command_cp,
    &command_port,
    &command_template_build,
    &command_template_import,
    &command_template_ls,
    &command_template_inspect,
    &command_template_tag,
    &command_template_untag,
    &command_template_rm,
    &command_template_log,
    &command_op_ls,
    &command_op_get,
    &command_op_wait,
    &command_key_create,
    &command_key_ls,
    &command_key_revoke,
    &command_project_create,
    &command_project_ls,
    &command_node,
    &command_doctor,
    &command_bench,
    &command_serve,
    &command_help,
    &command_completion,
};
const size_t command_count = ARRAY_LEN(commands);

struct help_args {
    bool man;
    const char *man_folder;
};

static const struct command *command_named(int argc, char **argv)
{
    _cleanup_free_ char *name = argc > 1 ? xasprintf("%s %s", argv[0], argv[1]) : xstrdup(argv[0]);
    for (size_t i = 0; i < command_count; i++)
        if (str_eq(commands[i]->name, name))
            return commands[i];
    return NULL;
}

static int write_page(const char *folder, const struct command *c, struct err *e)
{
    _cleanup_buf_ struct buf out = BUF_MAX(0);
    _cleanup_free_ char *path = xasprintf("%s/space%s%s.1", folder, c ? "-" : "", c ? c->name : "");
    for (char *p = path + strlen(folder); *p; p++)
        if (*p == ' ')
            *p = '-';
    help_man(c, &out);
    return file_write_atomic(path, buf_data(&out), out.len, 0644, e);
}

static int write_pages(const char *folder, struct err *e)
{
    int r = dir_make(folder, 0755, e);
    if (r >= 0)
        r = write_page(folder, NULL, e);
    for (size_t i = 0; i < command_count && r >= 0; i++)
        r = write_page(folder, commands[i], e);
    return r;
}

static bool is_group(const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i < command_count; i++)
        if (strncmp(commands[i]->name, word, len) == 0 && commands[i]->name[len] == ' ')
            return true;
    return false;
}

static int run_help(struct cli *cli, void *args, int argc, char **argv, struct err *e)
{
    const struct help_args *a = args;
    _cleanup_buf_ struct buf out = BUF_MAX(0);
    const struct command *c = argc > 0 ? command_named(argc, argv) : NULL;
    if (a->man_folder)
        return write_pages(a->man_folder, e);
    if (argc > 0 && !c && (a->man || argc > 1 || !is_group(argv[0])))
        return err_set(e, ERR_INVALID, "no command \"%s%s%s\"", argv[0], argc > 1 ? " " : "", argc > 1 ? argv[1] : "");
    if (a->man)
        help_man(c, &out);
    else if (c)
        help_command(cli, c, &out);
    else if (argc > 0)
        help_group(cli, argv[0], &out);
    else
        help_overview(cli, &out);
    fwrite(buf_data(&out), 1, out.len, stdout);
    return 0;
}

static const struct opt help_options[] = {
    {.name = "man", .kind = OPT_FLAG, .offset = offsetof(struct help_args, man), .help = "as a man page in roff"},
    {.name = "man-folder",
     .arg = "DIR",
     .kind = OPT_TEXT,
     .offset = offsetof(struct help_args, man_folder),
     .help = "write all man pages into this folder"},
};

const struct command command_help = {
    .name = "help",
    .summary = "show the help of a command",
    .synopsis = "[COMMAND]",
    .examples = "space help exec\nspace help --man template build | man -l -",
    .options = help_options,
    .option_count = ARRAY_LEN(help_options),
    .args_size = sizeof(struct help_args),
    .max_args = 2,
    .run = run_help,
};

static int run_completion(struct cli *cli ATTR_UNUSED, void *args ATTR_UNUSED, int argc ATTR_UNUSED, char **argv,
                          struct err *e)
{
    if (!str_eq(argv[0], "bash"))
        return err_set(e, ERR_UNSUPPORTED, "there is no completion for \"%s\", only for bash", argv[0]);
    _cleanup_buf_ struct buf out = BUF_MAX(0);
    help_bash_completion(&out);
    fwrite(buf_data(&out), 1, out.len, stdout);
    return 0;
}

const struct command command_completion = {
    .name = "completion",
    .summary = "print shell completion",
    .synopsis = "bash",
    .examples = "source <(space completion bash)",
    .min_args = 1,
    .max_args = 1,
    .run = run_completion,
};

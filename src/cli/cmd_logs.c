/* space logs: the output of an exec that was made before. */
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/exec.h"
#include "cli/out.h"

struct logs_args {
    bool follow;
    uint64_t from;
};

static int run(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    const struct logs_args *a = args;
    struct api *api;
    char sandbox[ID_SIZE];
    cli->own_exit = true;
    if (!id_valid(ID_EXEC, argv[1]))
        return err_set(e, ERR_INVALID, "\"%s\" is not the id of an exec; \"space ps\" lists them", argv[1]);
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = sandbox_resolve(api, argv[0], sandbox, e);
    if (r < 0)
        return r;
    struct exec_follow follow = {
        .cli = cli, .api = api, .sandbox = sandbox, .exec = argv[1], .no_wait = !a->follow, .from = a->from};
    _cleanup_json_ json_t *result = NULL;
    r = exec_follow(&follow, &result, e);
    if (r < 0)
        return r;
    return result && a->follow ? exec_status(cli, result) : 0;
}

static const struct opt options[] = {
    {.key = 'f',
     .name = "follow",
     .kind = OPT_FLAG,
     .offset = offsetof(struct logs_args, follow),
     .help = "go on until the command ends, and exit with its code"},
    {.name = "from",
     .arg = "OFFSET",
     .kind = OPT_NUMBER,
     .offset = offsetof(struct logs_args, from),
     .help = "begin at this byte of the output"},
};

const struct command command_logs = {
    .name = "logs",
    .summary = "show the output of a command",
    .synopsis = "SANDBOX EXEC",
    .text = "Of a command that was started before, as far as it is kept. One that nobody has started is started.",
    .examples = "space logs -f demo $(space exec -d demo -- make)",
    .options = options,
    .option_count = ARRAY_LEN(options),
    .args_size = sizeof(struct logs_args),
    .min_args = 2,
    .max_args = 2,
    .complete = "sandbox",
    .run = run,
};

/* space ps: the execs of a sandbox. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

struct ps_args {
    const char *state;
};

static char *command_text(const json_t *exec)
{
    const char *shell = json_text(exec, "shell");
    _cleanup_buf_ struct buf b = BUF_MAX(4096);
    if (shell)
        buf_printf(&b, "%.60s", shell);
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(exec, "command"), i, item)
    {
        const char *word = json_string_value(item);
        if (word && b.len < 60)
            buf_printf(&b, "%s%.60s", i ? " " : "", word);
    }
    return buf_steal_str(&b);
}

static int run(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    static const char *const titles[] = {"ID", "STATE", ">EXIT", "USER", "CREATED", ">PID", "COMMAND"};
    const struct ps_args *a = args;
    struct api *api;
    char sandbox[ID_SIZE];
    _cleanup_json_ json_t *items = NULL;
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = sandbox_resolve(api, argv[0], sandbox, e);
    if (r < 0)
        return r;
    _cleanup_free_ char *base = xasprintf("/v1/sandboxes/%s/execs", sandbox);
    _cleanup_free_ char *path = api_path(base, "state", a->state, NULL);
    r = api_list(api, path, 0, &items, e);
    if (r < 0)
        return r;
    if (cli->json) {
        print_json(items);
        return 0;
    }
    _cleanup_table_ struct table table = {0};
    table_init(&table, titles, ARRAY_LEN(titles));
    size_t i;
    json_t *exec;
    json_array_foreach(items, i, exec)
    {
        char created[24], pid[24], code[24];
        const char *signal = json_text(exec, "signal");
        bool ended = json_is_integer(json_object_get(exec, "exit_code"));
        _cleanup_free_ char *command = command_text(exec);
        snprintf(pid, sizeof(pid), "%lld", (long long)json_number(exec, "pid"));
        snprintf(code, sizeof(code), "%lld", (long long)json_number(exec, "exit_code"));
        const char *cells[] = {json_text(exec, "id"),
                               json_text(exec, "state"),
                               ended ? code : signal,
                               json_text(exec, "user"),
                               format_since(json_text(exec, "created_at"), clock_wall_ms(), created),
                               json_number(exec, "pid") ? pid : NULL,
                               command};
        table_row(&table, cells, ended || signal ? 2 : -1,
                  ended && !json_number(exec, "exit_code") ? COLOR_GOOD : COLOR_BAD);
    }
    table_print(&table, cli);
    return 0;
}

static const struct opt options[] = {
    {.name = "filter-state",
     .arg = "STATE[,STATE…]",
     .kind = OPT_TEXT,
     .offset = offsetof(struct ps_args, state),
     .help = "those in these states"},
};

const struct command command_ps = {
    .name = "ps",
    .summary = "list the commands of a sandbox",
    .synopsis = "SANDBOX",
    .examples = "space ps demo --filter-state running",
    .options = options,
    .option_count = ARRAY_LEN(options),
    .args_size = sizeof(struct ps_args),
    .min_args = 1,
    .max_args = 1,
    .complete = "sandbox",
    .run = run,
};

/* space op: operations, the durable records of changes. */
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

struct op_args {
    const char *state, *sandbox;
    uint64_t timeout_ms;
};

static enum color color_of(const char *state)
{
    return !state                       ? COLOR_NONE
           : str_eq(state, "succeeded") ? COLOR_GOOD
           : str_eq(state, "failed")    ? COLOR_BAD
                                        : COLOR_WARN;
}

static int64_t took_ms(const json_t *operation)
{
    const char *from = json_text(operation, "created_at"), *to = json_text(operation, "ended_at");
    int64_t begin, end;
    if (!from || !to || !clock_parse_ms(from, &begin) || !clock_parse_ms(to, &end))
        return -1;
    return end - begin;
}

static int run_ls(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv ATTR_UNUSED, struct err *e)
{
    static const char *const titles[] = {"ID", "KIND", "STATE", "TARGET", "CREATED", ">TOOK", "STEP OR ERROR"};
    const struct op_args *a = args;
    struct api *api;
    char id[ID_SIZE];
    _cleanup_json_ json_t *items = NULL;
    int r = cli_api(cli, &api, e);
    if (r >= 0 && a->sandbox)
        r = sandbox_resolve(api, a->sandbox, id, e);
    if (r < 0)
        return r;
    _cleanup_free_ char *path = api_path("/v1/operations", "state", a->state, "sandbox", a->sandbox ? id : NULL, NULL);
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
    json_t *o;
    json_array_foreach(items, i, o)
    {
        char created[24], took[24];
        const char *oid = json_text(o, "id"), *state = json_text(o, "state"), *target = json_text(o, "target.id");
        const char *error = json_text(o, "error.detail");
        if (cli->quiet) {
            if (oid && id_valid(ID_OPERATION, oid))
                puts(oid);
            continue;
        }
        _cleanup_free_ char *target_short = target ? xstrndup(target, ID_LEN) : NULL;
        const char *cells[] = {oid,
                               json_text(o, "kind"),
                               state,
                               target_short,
                               format_since(json_text(o, "created_at"), clock_wall_ms(), created),
                               format_duration(took_ms(o), took),
                               error ? error : json_text(o, "progress.step")};
        table_row(&table, cells, 2, color_of(state));
    }
    if (!cli->quiet)
        table_print(&table, cli);
    return 0;
}

static void print_operation(const struct cli *cli, const json_t *o)
{
    char took[24], progress[64];
    int64_t ms = took_ms(o);
    snprintf(progress, sizeof(progress), "%lld of %lld", (long long)json_number(o, "progress.done"),
             (long long)json_number(o, "progress.total"));
    const char *const pairs[][2] = {
        {"id", json_text(o, "id")},
        {"kind", json_text(o, "kind")},
        {"state", json_text(o, "state")},
        {"step", json_text(o, "progress.step")},
        {"progress", json_number(o, "progress.total") ? progress : NULL},
        {"error", json_text(o, "error.detail")},
        {"target", json_text(o, "target.id")},
        {"created", json_text(o, "created_at")},
        {"ended", json_text(o, "ended_at")},
        {"took", ms >= 0 ? format_duration(ms, took) : NULL},
    };
    if (cli->json)
        print_json(o);
    else
        print_pairs(cli, pairs, ARRAY_LEN(pairs));
}

static int valid(const char *id, struct err *e)
{
    return id_valid(ID_OPERATION, id) ? 0 : err_set(e, ERR_INVALID, "\"%s\" is not the id of an operation", id);
}

static int run_get(struct cli *cli, void *args ATTR_UNUSED, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    struct api *api;
    _cleanup_json_ json_t *operation = NULL;
    int r = valid(argv[0], e);
    if (r >= 0)
        r = cli_api(cli, &api, e);
    if (r < 0)
        return r;
    _cleanup_free_ char *path = xasprintf("/v1/operations/%s", argv[0]);
    r = api_call(api, "GET", path, NULL, &operation, NULL, e);
    if (r >= 0)
        print_operation(cli, operation);
    return r;
}

static int run_wait(struct cli *cli, void *args, int argc, char **argv, struct err *e)
{
    const struct op_args *a = args;
    struct api *api;
    int r = cli_api(cli, &api, e);
    for (int i = 0; i < argc && r >= 0; i++) {
        _cleanup_json_ json_t *operation = NULL;
        r = valid(argv[i], e);
        if (r >= 0)
            r = operation_wait(cli, api, argv[i], "waiting", a->timeout_ms, &operation, e);
        if (operation && !cli->quiet)
            print_operation(cli, operation);
    }
    return r;
}

#define OPTION(member, ...)                                                                                            \
    {                                                                                                                  \
        .offset = offsetof(struct op_args, member), __VA_ARGS__                                                        \
    }

static const struct opt ls_options[] = {
    OPTION(state, .name = "filter-state", .arg = "STATE[,STATE…]", .kind = OPT_TEXT,
           .help = "pending, running, succeeded, failed"),
    OPTION(sandbox, .name = "sandbox", .arg = "SANDBOX", .kind = OPT_TEXT, .help = "those of this sandbox"),
};
static const struct opt wait_options[] = {
    OPTION(timeout_ms, .name = "timeout", .arg = "TIME", .kind = OPT_TIME, .min = 1,
           .help = "give up after so long; exit code 18"),
};

const struct command command_op_ls = {.name = "op ls",
                                      .summary = "list operations",
                                      .synopsis = "",
                                      .options = ls_options,
                                      .option_count = ARRAY_LEN(ls_options),
                                      .args_size = sizeof(struct op_args),
                                      .max_args = 0,
                                      .examples = "space op ls --sandbox demo",
                                      .run = run_ls};
const struct command command_op_get = {.name = "op get",
                                       .summary = "show an operation",
                                       .synopsis = "OPERATION",
                                       .min_args = 1,
                                       .max_args = 1,
                                       .complete = "op",
                                       .run = run_get};
const struct command command_op_wait = {
    .name = "op wait",
    .summary = "wait until operations have ended",
    .synopsis = "OPERATION…",
    .text = "Shows the step, how far it is and the time. When one has failed, that is this command's failure too.",
    .options = wait_options,
    .option_count = ARRAY_LEN(wait_options),
    .args_size = sizeof(struct op_args),
    .min_args = 1,
    .max_args = -1,
    .complete = "op",
    .run = run_wait};

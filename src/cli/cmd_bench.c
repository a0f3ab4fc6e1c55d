/* space bench: how long creating, running a command and deleting take, seen from here. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/exec.h"
#include "cli/out.h"
#include "cli/stats.h"

enum step { STEP_CREATE, STEP_EXEC_FIRST, STEP_EXEC, STEP_KILL, STEPS };

static const char *const names[STEPS] = {"create", "exec_first", "exec", "kill"};

struct bench_args {
    struct create_options create;
    uint64_t rounds, execs;
};

static void defaults(void *args)
{
    struct bench_args *a = args;
    a->rounds = 20;
    a->execs = 5;
}

static double since_ms(uint64_t started_ns)
{
    return (double)(clock_mono_ns() - started_ns) / 1e6;
}

/* Made, started and ended, as the API's one call does it; its output is not looked at. */
static int bench_exec(struct api *api, const char *sandbox, struct err *e)
{
    _cleanup_json_ json_t *request = json_pack("{s:[s]}", "command", "true"), *result = NULL;
    _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s/run", sandbox);
    int r = api_call(api, "POST", path, request, &result, NULL, e);
    if (r >= 0 && (!json_is_integer(json_object_get(result, "exit_code")) || json_number(result, "exit_code") != 0))
        r = err_set(e, ERR_PROTOCOL, "the command \"true\" did not end with 0");
    return r;
}

static int bench_round(struct cli *cli, struct api *api, const json_t *request, uint64_t execs, struct stats *stats,
                       struct err *e)
{
    char id[ID_SIZE];
    _cleanup_json_ json_t *answer = NULL;
    uint64_t at = clock_mono_ns();
    int r = sandbox_create(cli, api, request, true, id, &answer, e);
    if (r >= 0)
        stats_add(&stats[STEP_CREATE], since_ms(at));
    for (uint64_t i = 0; i < execs && r >= 0; i++) {
        at = clock_mono_ns();
        r = bench_exec(api, id, e);
        if (r >= 0)
            stats_add(&stats[i == 0 ? STEP_EXEC_FIRST : STEP_EXEC], since_ms(at));
    }
    if (!id[0])
        return r;
    struct err why = {0};
    at = clock_mono_ns();
    int killed = sandbox_change(cli, api, "DELETE", id, "", true, NULL, r < 0 ? &why : e);
    if (r >= 0 && killed >= 0)
        stats_add(&stats[STEP_KILL], since_ms(at));
    return r < 0 ? r : killed;
}

static void print_results(const struct cli *cli, struct stats *stats)
{
    static const char *const titles[] = {"WHAT", ">N", ">MIN", ">P50", ">P90", ">P99", ">MAX"};
    static const double at[] = {0.000001, 0.5, 0.9, 0.99, 1};
    _cleanup_table_ struct table table = {0};
    _cleanup_json_ json_t *list = json_array();
    table_init(&table, titles, ARRAY_LEN(titles));
    for (size_t i = 0; i < STEPS; i++) {
        if (stats[i].len == 0)
            continue;
        char n[24], values[ARRAY_LEN(at)][32];
        const char *cells[2 + ARRAY_LEN(at)] = {names[i], n};
        snprintf(n, sizeof(n), "%zu", stats[i].len);
        for (size_t k = 0; k < ARRAY_LEN(at); k++) {
            snprintf(values[k], sizeof(values[k]), "%.2f ms", stats_at(&stats[i], at[k]));
            cells[2 + k] = values[k];
        }
        table_row(&table, cells, -1, COLOR_NONE);
        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "name", names[i], "unit",
                                              "ms", "n", (int)stats[i].len, "min", stats_at(&stats[i], at[0]), "p50",
                                              stats_at(&stats[i], 0.5), "p90", stats_at(&stats[i], 0.9), "p99",
                                              stats_at(&stats[i], 0.99), "max", stats_at(&stats[i], 1)));
    }
    if (cli->json)
        print_json(list);
    else
        table_print(&table, cli);
}

static int run(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv ATTR_UNUSED, struct err *e)
{
    const struct bench_args *a = args;
    struct api *api;
    struct stats stats[STEPS] = {0};
    struct create_options create = a->create;
    _cleanup_json_ json_t *request = NULL;
    create.timeout_ms = 10 * 60 * 1000;
    int r = create_request(&create, &request, e);
    if (r >= 0)
        r = cli_api(cli, &api, e);
    if (r < 0)
        return r;
    struct progress progress;
    progress_init(&progress, cli);
    for (uint64_t i = 0; i < a->rounds && r >= 0; i++) {
        progress_draw(&progress, "create, exec, kill", i, a->rounds);
        r = bench_round(cli, api, request, a->execs, stats, e);
    }
    progress_clear(&progress);
    if (r >= 0)
        print_results(cli, stats);
    for (size_t i = 0; i < STEPS; i++)
        stats_done(&stats[i]);
    return r;
}

#define OPTION(member, ...)                                                                                            \
    {                                                                                                                  \
        .offset = offsetof(struct bench_args, member), __VA_ARGS__                                                     \
    }

static const struct opt options[] = {
    OPTION(rounds, .key = 'n', .name = "rounds", .arg = "N", .kind = OPT_NUMBER, .min = 1, .max = 10000,
           .help = "sandboxes, one after the other (default: 20)"),
    OPTION(execs, .name = "execs", .arg = "N", .kind = OPT_NUMBER, .max = 1000,
           .help = "commands in each (default: 5)"),
    CREATE_OPTIONS(struct bench_args, create),
};

const struct command command_bench = {
    .name = "bench",
    .summary = "measure creating, running commands and deleting",
    .synopsis = "",
    .text =
        "Times are those of whole calls, from here. exec_first is the first command of a sandbox, exec those after it.",
    .examples = "space bench -n 100\nspace bench --json --memory 1G",
    .options = options,
    .option_count = ARRAY_LEN(options),
    .args_size = sizeof(struct bench_args),
    .defaults = defaults,
    .max_args = 0,
    .run = run,
};

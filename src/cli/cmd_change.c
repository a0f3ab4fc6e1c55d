/* space kill, space pause, space resume: one change for each of several sandboxes. */
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

struct change_args {
    bool all, no_wait;
};

static int change_all(struct cli *cli, struct api *api, const char *method, const char *verb, bool wait, json_t *items,
                      struct err *e)
{
    int result = 0;
    _cleanup_json_ json_t *answers = json_array();
    for (size_t i = 0; i < json_array_size(items); i++) {
        struct err why = {0};
        char id[ID_SIZE];
        json_t *answer = NULL;
        int r = sandbox_resolve(api, json_string_value(json_array_get(items, i)), id, &why);
        if (r >= 0)
            r = sandbox_change(cli, api, method, id, verb, wait, &answer, &why);
        if (r >= 0) {
            json_array_append(answers, json_object_get(answer, wait ? "sandbox" : "operation"));
            if (!cli->json && !cli->quiet)
                puts(id);
        }
        json_decref(answer);
        /* One that has gone meanwhile is no failure of "all of them". */
        if (r == ERR_GONE && str_eq(method, "DELETE"))
            r = 0;
        if (r < 0 && result < 0)
            report_error(cli, e);
        if (r < 0) {
            *e = why;
            result = r;
        }
    }
    if (cli->json)
        print_json(answers);
    return result;
}

static int run(struct cli *cli, const struct change_args *a, const char *method, const char *verb, int argc,
               char **argv, struct err *e)
{
    struct api *api;
    _cleanup_json_ json_t *names = json_array(), *items = NULL;
    if (a->all == (argc > 0))
        return err_set(e, ERR_INVALID, a->all ? "--all and names cannot go together" : "name a sandbox, or give --all");
    int r = cli_api(cli, &api, e);
    if (r >= 0 && a->all)
        r = api_list(api, "/v1/sandboxes", 0, &items, e);
    if (r < 0)
        return r;
    for (int i = 0; i < argc; i++)
        json_array_append_new(names, json_string(argv[i]));
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *sandbox = json_array_get(items, i);
        const char *id = json_text(sandbox, "id"), *state = json_text(sandbox, "state");
        if (id && state && !str_eq(state, "failed") && !str_eq(state, "deleted"))
            json_array_append_new(names, json_string(id));
    }
    return change_all(cli, api, method, verb, !a->no_wait, names, e);
}

static int run_kill(struct cli *cli, void *args, int argc, char **argv, struct err *e)
{
    return run(cli, args, "DELETE", "", argc, argv, e);
}

static int run_pause(struct cli *cli, void *args, int argc, char **argv, struct err *e)
{
    return run(cli, args, "POST", "pause", argc, argv, e);
}

static int run_resume(struct cli *cli, void *args, int argc, char **argv, struct err *e)
{
    return run(cli, args, "POST", "resume", argc, argv, e);
}

static const struct opt options[] = {
    {.key = 'a',
     .name = "all",
     .kind = OPT_FLAG,
     .offset = offsetof(struct change_args, all),
     .help = "every sandbox of the project"},
    {.name = "no-wait",
     .kind = OPT_FLAG,
     .offset = offsetof(struct change_args, no_wait),
     .help = "do not wait until it is done"},
};

#define COMMAND(verb, text_, summary_, examples_)                                                                      \
    {                                                                                                                  \
        .name = #verb, .summary = summary_, .synopsis = "SANDBOX…", .text = text_, .examples = examples_,              \
        .options = options, .option_count = ARRAY_LEN(options), .args_size = sizeof(struct change_args),               \
        .max_args = -1, .complete = "sandbox", .run = run_##verb                                                       \
    }

const struct command command_kill =
    COMMAND(kill, "Ends the machine and removes its disk.", "delete sandboxes", "space kill demo\nspace kill --all");
const struct command command_pause =
    COMMAND(pause, "Its processors stand still; memory, files and deadline stay as they are.",
            "let sandboxes stand still", "space pause demo");
const struct command command_resume = COMMAND(resume, NULL, "let paused sandboxes go on", "space resume demo");

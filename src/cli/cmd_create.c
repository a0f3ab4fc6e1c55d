/* space create: a sandbox that stays until its deadline. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

struct create_args {
    struct create_options create;
    bool no_wait;
};

static int run(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv ATTR_UNUSED, struct err *e)
{
    const struct create_args *a = args;
    struct api *api;
    char id[ID_SIZE], took[24];
    _cleanup_json_ json_t *request = NULL, *answer = NULL;
    uint64_t started_ms = clock_mono_ms();
    int r = create_request(&a->create, &request, e);
    if (r >= 0)
        r = cli_api(cli, &api, e);
    if (r >= 0)
        r = sandbox_create(cli, api, request, !a->no_wait, id, &answer, e);
    if (r < 0)
        return r;
    if (cli->json) {
        print_json(json_object_get(answer, a->no_wait ? "operation" : "sandbox"));
        return 0;
    }
    puts(id);
    if (a->no_wait)
        say(cli, "space: being created; wait for it with: space op wait %s", json_text(answer, "operation.id"));
    else if (cli->progress)
        say(cli, "space: ready after %s", format_duration((int64_t)(clock_mono_ms() - started_ms), took));
    return 0;
}

#define OPTION(member, ...)                                                                                            \
    {                                                                                                                  \
        .offset = offsetof(struct create_args, member), __VA_ARGS__                                                    \
    }

static const struct opt options[] = {
    OPTION(create.name, .name = "name", .arg = "NAME", .kind = OPT_TEXT,
           .help = "a name to use in place of the id: a-z, 0-9 and '-'"),
    CREATE_OPTIONS(struct create_args, create),
    OPTION(create.env, .key = 'e', .name = "env", .arg = "NAME[=VALUE]", .kind = OPT_LIST,
           .help = "a variable for every command in it"),
    OPTION(create.timeout_ms, .name = "timeout", .arg = "TIME", .kind = OPT_TIME, .min = 1000, .max = 86400000,
           .help = "delete it after so long (default: 5m)"),
    OPTION(no_wait, .name = "no-wait", .kind = OPT_FLAG, .help = "do not wait until it runs"),
};

const struct command command_create = {
    .name = "create",
    .summary = "create a sandbox",
    .synopsis = "",
    .text = "Prints its id when commands can run in it. It is deleted at its deadline; \"space update\" moves that.",
    .examples = "space create --name demo --timeout 1h\n"
                "sb=$(space create -q --vcpus 2 --memory 1G --metadata job=17)\tfor scripts",
    .options = options,
    .option_count = ARRAY_LEN(options),
    .args_size = sizeof(struct create_args),
    .max_args = 0,
    .run = run,
};

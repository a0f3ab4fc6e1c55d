/* space update: deadline, name and labels of a sandbox. */
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

struct update_args {
    uint64_t timeout_ms;
    const char *name;
    struct opt_list metadata, remove;
};

static int run(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    const struct update_args *a = args;
    struct api *api;
    char id[ID_SIZE];
    _cleanup_json_ json_t *request = json_object(), *metadata = NULL, *sandbox = NULL;
    int r = cli_pairs(&a->metadata, "metadata", false, &metadata, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < a->remove.len; i++)
        json_object_set_new(metadata, a->remove.items[i], json_null());
    if (a->timeout_ms)
        json_object_set_new(request, "timeout_ms", json_integer((json_int_t)a->timeout_ms));
    if (a->name)
        json_object_set_new(request, "name", *a->name ? json_string(a->name) : json_null());
    if (json_object_size(metadata) > 0)
        json_object_set(request, "metadata", metadata);
    if (json_object_size(request) == 0)
        return err_set(e, ERR_INVALID, "nothing to change: give --timeout, --name, --metadata or --remove");
    r = cli_api(cli, &api, e);
    if (r >= 0)
        r = sandbox_resolve(api, argv[0], id, e);
    if (r < 0)
        return r;
    _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s", id);
    r = api_call(api, "PATCH", path, request, &sandbox, NULL, e);
    if (r < 0)
        return r;
    if (cli->json)
        print_json(sandbox);
    else if (a->timeout_ms) {
        const char *expires = json_text(sandbox, "expires_at");
        _cleanup_free_ char *text = escaped(expires ? expires : "?");
        say(cli, "space: %s expires at %s", id, text);
    }
    return 0;
}

#define OPTION(member, ...)                                                                                            \
    {                                                                                                                  \
        .offset = offsetof(struct update_args, member), __VA_ARGS__                                                    \
    }

static const struct opt options[] = {
    OPTION(timeout_ms, .name = "timeout", .arg = "TIME", .kind = OPT_TIME, .min = 1000, .max = 86400000,
           .help = "delete it so long from now"),
    OPTION(name, .name = "name", .arg = "NAME", .kind = OPT_TEXT, .help = "another name; an empty one takes it away"),
    OPTION(metadata, .name = "metadata", .arg = "KEY=VALUE", .kind = OPT_LIST, .help = "set a label"),
    OPTION(remove, .name = "remove", .arg = "KEY", .kind = OPT_LIST, .help = "remove a label"),
};

const struct command command_update = {
    .name = "update",
    .summary = "change deadline, name or labels of a sandbox",
    .synopsis = "SANDBOX",
    .examples = "space update demo --timeout 2h\nspace update demo --metadata step=3 --remove draft",
    .options = options,
    .option_count = ARRAY_LEN(options),
    .args_size = sizeof(struct update_args),
    .min_args = 1,
    .max_args = 1,
    .complete = "sandbox",
    .run = run,
};

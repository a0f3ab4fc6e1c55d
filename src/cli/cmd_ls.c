/* space ls: the sandboxes of the project. */
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

struct ls_args {
    const char *state, *name;
    struct opt_list metadata;
    bool all;
};

static enum color color_of(const char *state)
{
    if (!state)
        return COLOR_NONE;
    if (str_eq(state, "running"))
        return COLOR_GOOD;
    if (str_eq(state, "failed"))
        return COLOR_BAD;
    return str_eq(state, "deleted") ? COLOR_DIM : COLOR_WARN;
}

static void add_row(struct table *t, const json_t *sandbox, int64_t now_ms)
{
    char shape[64], created[24], expires[24], memory[24];
    snprintf(shape, sizeof(shape), "%lld × %s", (long long)json_number(sandbox, "shape.vcpus"),
             format_bytes((uint64_t)MAX(json_number(sandbox, "shape.memory_mib"), 0) * MIB, memory));
    const char *state = json_text(sandbox, "state"), *tag = json_text(sandbox, "template.tag");
    const char *digest = json_text(sandbox, "template.digest");
    _cleanup_free_ char *digest_short = digest ? xstrndup(digest, 12) : NULL;
    const char *ended = json_text(sandbox, "ended_at");
    const char *cells[] = {json_text(sandbox, "id"),
                           json_text(sandbox, "name"),
                           state,
                           tag ? tag : digest_short,
                           shape,
                           json_text(sandbox, "accelerator"),
                           format_since(json_text(sandbox, "created_at"), now_ms, created),
                           ended ? "-" : format_since(json_text(sandbox, "expires_at"), now_ms, expires),
                           json_text(sandbox, "reason")};
    table_row(t, cells, 2, color_of(state));
}

static char *list_path(const struct ls_args *a, struct err *e)
{
    const char *state = a->state ? a->state
                        : a->all ? "creating,running,pausing,paused,resuming,deleting,deleted,failed"
                                 : NULL;
    _cleanup_free_ char *path = api_path("/v1/sandboxes", "state", state, "name", a->name, NULL);
    for (size_t i = 0; i < a->metadata.len; i++) {
        const char *equals = strchr(a->metadata.items[i], '=');
        if (!equals || equals == a->metadata.items[i]) {
            err_set(e, ERR_INVALID, "--metadata: \"%s\" is not KEY=VALUE", a->metadata.items[i]);
            return NULL;
        }
        _cleanup_buf_ struct buf name = BUF_MAX(0);
        buf_put_str(&name, "metadata.");
        _cleanup_free_ char *key = xstrndup(a->metadata.items[i], (size_t)(equals - a->metadata.items[i]));
        percent_encode(&name, key, false);
        char *longer = api_path(path, buf_cstr(&name), equals + 1, NULL);
        free(path);
        path = longer;
    }
    return steal(path);
}

static int run(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv ATTR_UNUSED, struct err *e)
{
    static const char *const titles[] = {"ID",          "NAME",    "STATE",   "TEMPLATE", "SHAPE",
                                         "ACCELERATOR", "CREATED", "EXPIRES", "REASON"};
    struct api *api;
    _cleanup_json_ json_t *items = NULL;
    _cleanup_free_ char *path = list_path(args, e);
    int r = path ? cli_api(cli, &api, e) : e->code;
    if (r >= 0)
        r = api_list(api, path, 0, &items, e);
    if (r < 0)
        return r;
    size_t i;
    json_t *sandbox;
    if (cli->json) {
        print_json(items);
        return 0;
    }
    if (cli->quiet) {
        json_array_foreach(items, i, sandbox)
        {
            const char *id = json_text(sandbox, "id");
            if (id && id_valid(ID_SANDBOX, id))
                puts(id);
        }
        return 0;
    }
    _cleanup_table_ struct table table = {0};
    bool reasons = false;
    json_array_foreach(items, i, sandbox)
    {
        reasons = reasons || json_text(sandbox, "reason");
    }
    table_init(&table, titles, ARRAY_LEN(titles) - !reasons);
    json_array_foreach(items, i, sandbox)
    {
        add_row(&table, sandbox, clock_wall_ms());
    }
    table_print(&table, cli);
    return 0;
}

#define OPTION(member, ...)                                                                                            \
    {                                                                                                                  \
        .offset = offsetof(struct ls_args, member), __VA_ARGS__                                                        \
    }

static const struct opt options[] = {
    OPTION(all, .key = 'a', .name = "all", .kind = OPT_FLAG, .help = "with those that are deleted"),
    OPTION(state, .name = "filter-state", .arg = "STATE[,STATE…]", .kind = OPT_TEXT, .help = "those in these states"),
    OPTION(name, .name = "name", .arg = "NAME", .kind = OPT_TEXT, .help = "those with this name"),
    OPTION(metadata, .name = "metadata", .arg = "KEY=VALUE", .kind = OPT_LIST, .help = "those with this label"),
};

const struct command command_ls = {
    .name = "ls",
    .summary = "list sandboxes",
    .synopsis = "",
    .text = "Those that live and those that failed; deleted ones with --all. Both kinds that ended are kept for a day.\n"
            "With --quiet only their ids.",
    .examples = "space ls --metadata job=17\nspace ls -q --filter-state paused | xargs space kill\nspace ls --json | "
                "jq '.[].id'",
    .options = options,
    .option_count = ARRAY_LEN(options),
    .args_size = sizeof(struct ls_args),
    .max_args = 0,
    .run = run,
};

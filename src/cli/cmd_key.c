/* space key, space project: API keys and the projects that they belong to. */
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

struct key_args {
    struct opt_list scopes;
    uint64_t expires_ms;
    const char *project;
    bool all;
};

static char *joined(const json_t *array)
{
    _cleanup_buf_ struct buf b = BUF_MAX(0);
    size_t i;
    json_t *item;
    json_array_foreach(array, i, item)
    {
        if (json_is_string(item))
            buf_printf(&b, "%s%s", i ? " " : "", json_string_value(item));
    }
    return buf_steal_str(&b);
}

static void add_scopes(json_t *to, const struct opt_list *scopes)
{
    for (size_t i = 0; i < scopes->len; i++)
        for (const char *p = scopes->items[i]; *p;) {
            size_t n = strcspn(p, ",");
            if (n > 0)
                json_array_append_new(to, json_stringn(p, n));
            p += n + (p[n] == ',');
        }
}

static int run_create(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    static const char *const usual[] = {"sandboxes:read", "sandboxes:write", "execs", "files", "ports"};
    const struct key_args *a = args;
    struct api *api;
    _cleanup_json_ json_t *scopes = json_array(), *request = NULL, *answer = NULL;
    add_scopes(scopes, &a->scopes);
    for (size_t i = 0; a->scopes.len == 0 && i < ARRAY_LEN(usual); i++)
        json_array_append_new(scopes, json_string(usual[i]));
    request = json_pack("{s:s, s:O}", "name", argv[0], "scopes", scopes);
    if (!request)
        return err_set(e, ERR_INVALID, "the name is not UTF-8");
    if (a->expires_ms) {
        char at[RFC3339_SIZE];
        clock_format_ms(clock_wall_ms() + (int64_t)a->expires_ms, at);
        json_object_set_new(request, "expires_at", json_string(at));
    }
    if (a->project)
        json_object_set_new(request, "project", json_string(a->project));
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = api_call(api, "POST", "/v1/keys", request, &answer, NULL, e);
    if (r < 0)
        return r;
    const char *secret = json_text(answer, "secret"), *id = json_text(answer, "key.id");
    if (!secret || !id)
        return err_set(e, ERR_PROTOCOL, "the server's answer has no key");
    if (cli->json) {
        print_json(answer);
        return 0;
    }
    say(cli, "space: key %s; this is the only time that it is shown:", id);
    puts(secret);
    return 0;
}

static int run_ls(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv ATTR_UNUSED, struct err *e)
{
    static const char *const titles[] = {"ID",      "NAME",      "BEGINS WITH", "SCOPES",
                                         "CREATED", "LAST USED", "EXPIRES",     "REVOKED"};
    const struct key_args *a = args;
    struct api *api;
    _cleanup_json_ json_t *items = NULL;
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = api_list(api, a->all ? "/v1/keys?all=true" : "/v1/keys", 0, &items, e);
    if (r < 0)
        return r;
    if (cli->json) {
        print_json(items);
        return 0;
    }
    _cleanup_table_ struct table table = {0};
    table_init(&table, titles, ARRAY_LEN(titles));
    size_t i;
    json_t *k;
    json_array_foreach(items, i, k)
    {
        char created[24], used[24], expires[24], revoked[24];
        int64_t at = clock_wall_ms();
        const char *id = json_text(k, "id");
        if (cli->quiet) {
            if (id && id_valid(ID_KEY, id))
                puts(id);
            continue;
        }
        _cleanup_free_ char *scopes = joined(json_object_get(k, "scopes"));
        const char *cells[] = {id,
                               json_text(k, "name"),
                               json_text(k, "prefix"),
                               scopes,
                               format_since(json_text(k, "created_at"), at, created),
                               format_since(json_text(k, "last_used_at"), at, used),
                               format_since(json_text(k, "expires_at"), at, expires),
                               format_since(json_text(k, "revoked_at"), at, revoked)};
        table_row(&table, cells, -1, COLOR_NONE);
    }
    if (!cli->quiet)
        table_print(&table, cli);
    return 0;
}

static int run_revoke(struct cli *cli, void *args ATTR_UNUSED, int argc, char **argv, struct err *e)
{
    struct api *api;
    int r = cli_api(cli, &api, e);
    for (int i = 0; i < argc && r >= 0; i++) {
        if (!id_valid(ID_KEY, argv[i]))
            return err_set(e, ERR_INVALID, "\"%s\" is not the id of a key; \"space key ls\" lists them", argv[i]);
        _cleanup_free_ char *path = xasprintf("/v1/keys/%s", argv[i]);
        r = api_call(api, "DELETE", path, NULL, NULL, NULL, e);
        if (r >= 0 && !cli->json && !cli->quiet)
            puts(argv[i]);
    }
    return r;
}

static int run_project_create(struct cli *cli, void *args ATTR_UNUSED, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    struct api *api;
    _cleanup_json_ json_t *request = json_pack("{s:s}", "name", argv[0]), *project = NULL;
    if (!request)
        return err_set(e, ERR_INVALID, "the name is not UTF-8");
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = api_call(api, "POST", "/v1/projects", request, &project, NULL, e);
    if (r < 0)
        return r;
    const char *id = json_text(project, "id");
    if (cli->json)
        print_json(project);
    else if (id && id_valid(ID_PROJECT, id))
        puts(id);
    return 0;
}

static int run_project_ls(struct cli *cli, void *args ATTR_UNUSED, int argc ATTR_UNUSED, char **argv ATTR_UNUSED,
                          struct err *e)
{
    static const char *const titles[] = {"ID", "NAME", "CREATED"};
    struct api *api;
    _cleanup_json_ json_t *items = NULL;
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = api_list(api, "/v1/projects", 0, &items, e);
    if (r < 0)
        return r;
    if (cli->json) {
        print_json(items);
        return 0;
    }
    _cleanup_table_ struct table table = {0};
    table_init(&table, titles, ARRAY_LEN(titles));
    size_t i;
    json_t *p;
    json_array_foreach(items, i, p)
    {
        char created[24];
        const char *cells[] = {json_text(p, "id"), json_text(p, "name"),
                               format_since(json_text(p, "created_at"), clock_wall_ms(), created)};
        table_row(&table, cells, -1, COLOR_NONE);
    }
    table_print(&table, cli);
    return 0;
}

#define OPTION(member, ...)                                                                                            \
    {                                                                                                                  \
        .offset = offsetof(struct key_args, member), __VA_ARGS__                                                       \
    }

static const struct opt create_options[] = {
    OPTION(scopes, .name = "scope", .arg = "SCOPE[,SCOPE…]", .kind = OPT_LIST, .help = "what it may do"),
    OPTION(expires_ms, .name = "expires", .arg = "TIME", .kind = OPT_TIME, .min = 1000,
           .help = "no longer valid after so long (default: never)"),
    OPTION(project, .name = "project", .arg = "ID", .kind = OPT_TEXT, .help = "for this project; needs an admin key"),
};
static const struct opt ls_options[] = {
    OPTION(all, .key = 'a', .name = "all", .kind = OPT_FLAG, .help = "with those that are revoked or expired"),
};

const struct command command_key_create = {
    .name = "key create",
    .summary = "make an API key",
    .synopsis = "NAME",
    .text = "Prints the secret, once. Scopes: sandboxes:read, sandboxes:write, execs, files, ports, templates:write,\n"
            "keys, admin. Without --scope the first five.",
    .examples = "space key create ci --scope sandboxes:write,execs --expires 30d",
    .options = create_options,
    .option_count = ARRAY_LEN(create_options),
    .args_size = sizeof(struct key_args),
    .min_args = 1,
    .max_args = 1,
    .run = run_create};
const struct command command_key_ls = {.name = "key ls",
                                       .summary = "list API keys",
                                       .synopsis = "",
                                       .options = ls_options,
                                       .option_count = ARRAY_LEN(ls_options),
                                       .args_size = sizeof(struct key_args),
                                       .max_args = 0,
                                       .run = run_ls};
const struct command command_key_revoke = {.name = "key revoke",
                                           .summary = "make keys invalid from now on",
                                           .synopsis = "KEY…",
                                           .min_args = 1,
                                           .max_args = -1,
                                           .complete = "key",
                                           .run = run_revoke};
const struct command command_project_create = {.name = "project create",
                                               .summary = "make a project",
                                               .synopsis = "NAME",
                                               .min_args = 1,
                                               .max_args = 1,
                                               .run = run_project_create};
const struct command command_project_ls = {
    .name = "project ls", .summary = "list projects", .synopsis = "", .max_args = 0, .run = run_project_ls};

/* space template ls, inspect, tag, untag, rm, log: starting environments. */
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

struct template_args {
    bool full;
};

static char *tags_text(const json_t *template)
{
    _cleanup_buf_ struct buf b = BUF_MAX(0);
    size_t i;
    json_t *tag;
    json_array_foreach(json_object_get(template, "tags"), i, tag)
    {
        if (json_is_string(tag))
            buf_printf(&b, "%s%s", i ? " " : "", json_string_value(tag));
    }
    return buf_steal_str(&b);
}

static void print_names(const json_t *items)
{
    size_t i, k;
    json_t *item, *tag;
    json_array_foreach(items, i, item)
    {
        json_array_foreach(json_object_get(item, "tags"), k, tag)
        {
            _cleanup_free_ char *name = escaped(json_string_value(tag) ? json_string_value(tag) : "");
            puts(name);
        }
        if (json_array_size(json_object_get(item, "tags")) == 0 && json_text(item, "digest")) {
            _cleanup_free_ char *name = escaped(json_text(item, "digest"));
            puts(name);
        }
    }
}

static int run_ls(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv ATTR_UNUSED, struct err *e)
{
    static const char *const titles[] = {"DIGEST", "TAGS", "KERNEL", ">SIZE", ">SHAPES READY", "CREATED"};
    const struct template_args *a = args;
    struct api *api;
    _cleanup_json_ json_t *items = NULL;
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = api_list(api, "/v1/templates", 0, &items, e);
    if (r < 0)
        return r;
    if (cli->json)
        print_json(items);
    else if (cli->quiet)
        print_names(items);
    if (cli->json || cli->quiet)
        return 0;
    _cleanup_table_ struct table table = {0};
    table_init(&table, titles, ARRAY_LEN(titles));
    size_t i;
    json_t *t;
    json_array_foreach(items, i, t)
    {
        char size[24], created[24], shapes[24];
        const char *digest = json_text(t, "digest");
        _cleanup_free_ char *digest_short = digest ? xstrndup(digest, a->full ? 64 : 12) : NULL;
        _cleanup_free_ char *tags = tags_text(t);
        snprintf(shapes, sizeof(shapes), "%zu", json_array_size(json_object_get(t, "checkpoints")));
        const char *cells[] = {digest_short,
                               tags,
                               json_text(t, "kernel"),
                               format_bytes((uint64_t)MAX(json_number(t, "size_bytes"), 0), size),
                               shapes,
                               format_since(json_text(t, "created_at"), clock_wall_ms(), created)};
        table_row(&table, cells, -1, COLOR_NONE);
    }
    table_print(&table, cli);
    return 0;
}

/* How many there are: a list of hundreds is for --json. */
static char *packages_text(const json_t *template)
{
    size_t count = json_array_size(json_object_get(template, "packages"));
    return count ? xasprintf("%zu (--json lists them)", count) : NULL;
}

static void print_template(const struct cli *cli, const json_t *t)
{
    char size[24], shape[128], memory[24], disk[24];
    snprintf(shape, sizeof(shape), "%lld vCPU, %s memory, %s disk", (long long)json_number(t, "default_shape.vcpus"),
             format_bytes((uint64_t)MAX(json_number(t, "default_shape.memory_mib"), 0) * MIB, memory),
             format_bytes((uint64_t)MAX(json_number(t, "default_shape.disk_mib"), 0) * MIB, disk));
    _cleanup_free_ char *tags = tags_text(t), *packages = packages_text(t);
    const char *const pairs[][2] = {
        {"digest", json_text(t, "digest")},
        {"tags", *tags ? tags : NULL},
        {"architecture", json_text(t, "architecture")},
        {"kernel", json_text(t, "kernel")},
        {"agent", json_text(t, "agent_sha256")},
        {"packages", packages},
        {"default shape", shape},
        {"size", format_bytes((uint64_t)MAX(json_number(t, "size_bytes"), 0), size)},
        {"created", json_text(t, "created_at")},
    };
    print_pairs(cli, pairs, ARRAY_LEN(pairs));
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(t, "checkpoints"), i, c)
    {
        const char *accelerator = json_text(c, "accelerator"), *qemu = json_text(c, "qemu_version");
        _cleanup_free_ char *text =
            xasprintf("%lld vCPU, %lld MiB memory, %lld MiB disk, %s, QEMU %s",
                      (long long)json_number(c, "shape.vcpus"), (long long)json_number(c, "shape.memory_mib"),
                      (long long)json_number(c, "shape.disk_mib"), accelerator ? accelerator : "?", qemu ? qemu : "?");
        const char *const line[][2] = {{"ready      ", text}};
        print_pairs(cli, line, 1);
    }
}

/* METHOD /v1/templates/<ref><rest>, with what the user called it made into what the API takes. */
static int call(struct cli *cli, const char *method, const char *name, bool digest_needed, const char *rest,
                json_t **ret_json, struct err *e)
{
    struct api *api;
    _cleanup_free_ char *ref = NULL;
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = template_resolve(api, name, digest_needed, &ref, e);
    if (r < 0)
        return r;
    _cleanup_free_ char *path = xasprintf("/v1/templates/%s%s", ref, rest);
    return api_call(api, method, path, NULL, ret_json, NULL, e);
}

static int run_inspect(struct cli *cli, void *args ATTR_UNUSED, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    _cleanup_json_ json_t *template = NULL;
    int r = call(cli, "GET", argv[0], false, "", &template, e);
    if (r < 0)
        return r;
    if (cli->json)
        print_json(template);
    else
        print_template(cli, template);
    return 0;
}

static int tag_path(const char *tag, char **ret_rest, struct err *e)
{
    size_t len = strlen(tag);
    if (len == 0 || len > 63 || strspn(tag, "abcdefghijklmnopqrstuvwxyz0123456789._-") != len || strchr("._-", tag[0]))
        return err_set(e, ERR_INVALID, "\"%s\" is no tag: a-z, 0-9, and inside also '.', '_', '-'", tag);
    *ret_rest = xasprintf("/tags/%s", tag);
    return 0;
}

static int run_tag(struct cli *cli, void *args ATTR_UNUSED, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    _cleanup_json_ json_t *template = NULL;
    _cleanup_free_ char *rest = NULL;
    int r = tag_path(argv[1], &rest, e);
    if (r >= 0)
        r = call(cli, "PUT", argv[0], true, rest, &template, e);
    if (r >= 0 && cli->json)
        print_json(template);
    return r;
}

static int run_untag(struct cli *cli, void *args ATTR_UNUSED, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    _cleanup_free_ char *rest = NULL;
    int r = tag_path(argv[0], &rest, e);
    return r < 0 ? r : call(cli, "DELETE", argv[0], true, rest, NULL, e);
}

static int run_rm(struct cli *cli, void *args ATTR_UNUSED, int argc, char **argv, struct err *e)
{
    int r = 0;
    for (int i = 0; i < argc && r >= 0; i++) {
        r = call(cli, "DELETE", argv[i], true, "", NULL, e);
        if (r >= 0 && !cli->json && !cli->quiet)
            puts(argv[i]);
    }
    return r;
}

static int run_log(struct cli *cli, void *args ATTR_UNUSED, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    struct api *api;
    _cleanup_free_ char *ref = NULL;
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = template_resolve(api, argv[0], false, &ref, e);
    if (r < 0)
        return r;
    _cleanup_free_ char *path = xasprintf("/v1/templates/%s/log", ref);
    struct transfer t = {.path = path};
    r = api_run(api, &t, e);
    int finished = api_finish(&t, r < 0 ? NULL : e);
    if (r >= 0)
        r = finished;
    if (r >= 0 && t.body.len > 0)
        fwrite(buf_data(&t.body), 1, t.body.len, stdout);
    buf_done(&t.body);
    return r;
}

static const struct opt ls_options[] = {
    {.name = "full", .kind = OPT_FLAG, .offset = offsetof(struct template_args, full), .help = "whole digests"},
};

const struct command command_template_ls = {.name = "template ls",
                                            .summary = "list templates",
                                            .synopsis = "",
                                            .options = ls_options,
                                            .option_count = ARRAY_LEN(ls_options),
                                            .args_size = sizeof(struct template_args),
                                            .max_args = 0,
                                            .run = run_ls};
const struct command command_template_inspect = {.name = "template inspect",
                                                 .summary = "show all about a template",
                                                 .synopsis = "TEMPLATE",
                                                 .min_args = 1,
                                                 .max_args = 1,
                                                 .complete = "template",
                                                 .run = run_inspect};
const struct command command_template_tag = {.name = "template tag",
                                             .summary = "move a tag to a template",
                                             .synopsis = "TEMPLATE TAG",
                                             .min_args = 2,
                                             .max_args = 2,
                                             .complete = "template",
                                             .examples = "space template tag 9f86d081884c stable",
                                             .run = run_tag};
const struct command command_template_untag = {.name = "template untag",
                                               .summary = "remove a tag",
                                               .synopsis = "TAG",
                                               .min_args = 1,
                                               .max_args = 1,
                                               .complete = "template",
                                               .run = run_untag};
const struct command command_template_rm = {.name = "template rm",
                                            .summary = "remove templates with their tags",
                                            .synopsis = "TEMPLATE…",
                                            .text = "One that a sandbox uses is not removed.",
                                            .min_args = 1,
                                            .max_args = -1,
                                            .complete = "template",
                                            .run = run_rm};
const struct command command_template_log = {.name = "template log",
                                             .summary = "show the log of a template's build",
                                             .synopsis = "TEMPLATE",
                                             .min_args = 1,
                                             .max_args = 1,
                                             .complete = "template",
                                             .run = run_log};

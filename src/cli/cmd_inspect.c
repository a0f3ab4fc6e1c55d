/* space inspect: all about sandboxes. */
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

static char *words(const json_t *array)
{
    _cleanup_buf_ struct buf b = BUF_MAX(0);
    size_t i;
    json_t *item;
    json_array_foreach(array, i, item)
    {
        if (json_is_string(item))
            buf_printf(&b, "%s%s", b.len ? ", " : "", json_string_value(item));
    }
    return b.len ? buf_steal_str(&b) : NULL;
}

static char *pairs_text(const json_t *object)
{
    _cleanup_buf_ struct buf b = BUF_MAX(0);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_string(value))
            buf_printf(&b, "%s%s=%s", b.len ? ", " : "", key, json_string_value(value));
    }
    return b.len ? buf_steal_str(&b) : NULL;
}

static void print_one(const struct cli *cli, const json_t *s)
{
    char memory[24], disk[24], since[24], until[24], shape[128];
    int64_t at = clock_wall_ms();
    snprintf(shape, sizeof(shape), "%lld vCPU, %s memory, %s disk", (long long)json_number(s, "shape.vcpus"),
             format_bytes((uint64_t)MAX(json_number(s, "shape.memory_mib"), 0) * MIB, memory),
             format_bytes((uint64_t)MAX(json_number(s, "shape.disk_mib"), 0) * MIB, disk));
    const char *tag = json_text(s, "template.tag"), *digest = json_text(s, "template.digest");
    const char *created = json_text(s, "created_at"), *expires = json_text(s, "expires_at");
    _cleanup_free_ char *template = xasprintf("%s%s%s", tag ? tag : "", tag ? " " : "", digest ? digest : "");
    _cleanup_free_ char *missing = words(json_at(s, "isolation.missing"));
    const char *jail = json_text(s, "isolation.jail");
    _cleanup_free_ char *isolation =
        xasprintf("%s jail%s%s", jail ? jail : "unknown", missing ? ", missing: " : "", missing ? missing : "");
    _cleanup_free_ char *created_text = xasprintf("%s (%s)", created ? created : "-", format_since(created, at, since));
    _cleanup_free_ char *expires_text = xasprintf("%s (%s)", expires ? expires : "-", format_since(expires, at, until));
    _cleanup_free_ char *metadata = pairs_text(json_object_get(s, "metadata"));
    const char *const pairs[][2] = {
        {"id", json_text(s, "id")},
        {"name", json_text(s, "name")},
        {"state", json_text(s, "state")},
        {"reason", json_text(s, "reason")},
        {"template", template},
        {"shape", shape},
        {"accelerator", json_text(s, "accelerator")},
        {"isolation", isolation},
        {"pool", json_text(s, "pool")},
        {"metadata", metadata},
        {"created", created_text},
        {"ready", json_text(s, "ready_at")},
        {"expires", expires_text},
        {"ended", json_text(s, "ended_at")},
        {"project", json_text(s, "project_id")},
    };
    print_pairs(cli, pairs, ARRAY_LEN(pairs));
}

static int run(struct cli *cli, void *args ATTR_UNUSED, int argc, char **argv, struct err *e)
{
    struct api *api;
    _cleanup_json_ json_t *all = json_array();
    int r = cli_api(cli, &api, e);
    for (int i = 0; i < argc && r >= 0; i++) {
        char id[ID_SIZE];
        r = sandbox_resolve(api, argv[i], id, e);
        if (r < 0)
            return r;
        _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s", id);
        json_t *sandbox = NULL;
        r = api_call(api, "GET", path, NULL, &sandbox, NULL, e);
        if (r >= 0)
            json_array_append_new(all, sandbox);
    }
    if (r < 0)
        return r;
    if (cli->json)
        print_json(argc == 1 ? json_array_get(all, 0) : all);
    for (size_t i = 0; !cli->json && i < json_array_size(all); i++) {
        if (i > 0)
            putchar('\n');
        print_one(cli, json_array_get(all, i));
    }
    return 0;
}

const struct command command_inspect = {
    .name = "inspect",
    .summary = "show all about a sandbox",
    .synopsis = "SANDBOX…",
    .examples = "space inspect demo\nspace inspect --json demo | jq -r .expires_at",
    .min_args = 1,
    .max_args = -1,
    .complete = "sandbox",
    .run = run,
};

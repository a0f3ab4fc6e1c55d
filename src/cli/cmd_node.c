/* space node: what the server's host offers and how full it is. */
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

static void print_pools(const struct cli *cli, const json_t *node)
{
    static const char *const titles[] = {"POOL", "TEMPLATE", "SHAPE", ">READY", ">STARTING", ">TARGET"};
    _cleanup_table_ struct table table = {0};
    table_init(&table, titles, ARRAY_LEN(titles));
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(node, "pools"), i, p)
    {
        char shape[64], ready[24], starting[24], target[24];
        const char *digest = json_text(p, "template");
        _cleanup_free_ char *digest_short = digest ? xstrndup(digest, 12) : NULL;
        snprintf(shape, sizeof(shape), "%lld × %lld MiB", (long long)json_number(p, "shape.vcpus"),
                 (long long)json_number(p, "shape.memory_mib"));
        snprintf(ready, sizeof(ready), "%lld", (long long)json_number(p, "ready"));
        snprintf(starting, sizeof(starting), "%lld", (long long)json_number(p, "starting"));
        snprintf(target, sizeof(target), "%lld", (long long)json_number(p, "target"));
        const char *cells[] = {json_text(p, "kind"), digest_short, shape, ready, starting, target};
        table_row(&table, cells, -1, COLOR_NONE);
    }
    if (table.rows > 0) {
        putchar('\n');
        table_print(&table, cli);
    }
}

static int run(struct cli *cli, void *args ATTR_UNUSED, int argc ATTR_UNUSED, char **argv ATTR_UNUSED, struct err *e)
{
    struct api *api;
    _cleanup_json_ json_t *node = NULL;
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = api_call(api, "GET", "/v1/node", NULL, &node, NULL, e);
    if (r < 0)
        return r;
    if (cli->json) {
        print_json(node);
        return 0;
    }
    char machines[64], memory[64], since[24], used[24], max[24];
    snprintf(machines, sizeof(machines), "%lld of %lld", (long long)json_number(node, "capacity.machines_used"),
             (long long)json_number(node, "capacity.machines_max"));
    snprintf(memory, sizeof(memory), "%s of %s",
             format_bytes((uint64_t)MAX(json_number(node, "capacity.memory_mib_used"), 0) * MIB, used),
             format_bytes((uint64_t)MAX(json_number(node, "capacity.memory_mib_max"), 0) * MIB, max));
    const char *accelerator = json_text(node, "accelerator"), *why = json_text(node, "accelerator_reason");
    _cleanup_free_ char *accelerator_text =
        xasprintf("%s%s%s%s", accelerator ? accelerator : "?", why ? " (" : "", why ? why : "", why ? ")" : "");
    const char *const pairs[][2] = {
        {"version", json_text(node, "version")},
        {"started", format_since(json_text(node, "started_at"), clock_wall_ms(), since)},
        {"accelerator", accelerator_text},
        {"qemu", json_text(node, "qemu_version")},
        {"jail", json_text(node, "isolation.jail")},
        {"machines", machines},
        {"memory", memory},
        {"domain", json_text(node, "domain")},
    };
    print_pairs(cli, pairs, ARRAY_LEN(pairs));
    size_t i;
    json_t *m;
    json_array_foreach(json_at(node, "isolation.missing"), i, m)
    {
        const char *name = json_text(m, "name"), *reason = json_text(m, "reason");
        _cleanup_free_ char *text = xasprintf("%s: %s", name ? name : "?", reason ? reason : "?");
        const char *const line[][2] = {{"missing    ", text}};
        print_pairs(cli, line, 1);
    }
    print_pools(cli, node);
    return 0;
}

const struct command command_node = {
    .name = "node",
    .summary = "show the server's host: isolation, pools, capacity",
    .synopsis = "",
    .max_args = 0,
    .examples = "space node",
    .run = run,
};

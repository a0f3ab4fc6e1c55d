/* space metrics: what a sandbox uses. */
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/out.h"

static void put_use(char *to, size_t size, const json_t *m, const char *what)
{
    char used[24], total[24];
    _cleanup_free_ char *used_path = xasprintf("%s.used_bytes", what), *total_path = xasprintf("%s.total_bytes", what);
    snprintf(to, size, "%s of %s", format_bytes((uint64_t)MAX(json_number(m, used_path), 0), used),
             format_bytes((uint64_t)MAX(json_number(m, total_path), 0), total));
}

static int run(struct cli *cli, void *args ATTR_UNUSED, int argc ATTR_UNUSED, char **argv, struct err *e)
{
    struct api *api;
    char id[ID_SIZE];
    _cleanup_json_ json_t *m = NULL;
    int r = cli_api(cli, &api, e);
    if (r >= 0)
        r = sandbox_resolve(api, argv[0], id, e);
    if (r < 0)
        return r;
    _cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s/metrics", id);
    r = api_call(api, "GET", path, NULL, &m, NULL, e);
    if (r < 0)
        return r;
    if (cli->json) {
        print_json(m);
        return 0;
    }
    char cpu[96], memory[96], disk[96], uptime[24], busy[24], processes[96], host[96], cost[24], host_cpu[24];
    const json_t *load = json_at(m, "cpu.load1");
    snprintf(cpu, sizeof(cpu), "%lld vCPU, load %.2f, busy %s", (long long)json_number(m, "cpu.vcpus"),
             json_number_value(load), format_duration(json_number(m, "cpu.busy_us") / 1000, busy));
    put_use(memory, sizeof(memory), m, "memory");
    put_use(disk, sizeof(disk), m, "disk");
    snprintf(processes, sizeof(processes), "%lld, %lld of them commands", (long long)json_number(m, "processes"),
             (long long)json_number(m, "execs_running"));
    snprintf(host, sizeof(host), "%s memory, %s processor time",
             format_bytes((uint64_t)MAX(json_number(m, "host.memory_bytes"), 0), cost),
             format_duration(json_number(m, "host.cpu_us") / 1000, host_cpu));
    const char *const pairs[][2] = {
        {"up", format_duration(json_number(m, "uptime_ms"), uptime)},
        {"processors", cpu},
        {"memory", memory},
        {"disk", disk},
        {"processes", processes},
        {"on the host", json_is_null(json_at(m, "host.memory_bytes")) ? NULL : host},
    };
    print_pairs(cli, pairs, ARRAY_LEN(pairs));
    return 0;
}

const struct command command_metrics = {
    .name = "metrics",
    .summary = "show what a sandbox uses",
    .synopsis = "SANDBOX",
    .text = "As the guest reports it, which can lie, and what it costs the host.",
    .examples = "space metrics demo",
    .min_args = 1,
    .max_args = 1,
    .complete = "sandbox",
    .run = run,
};

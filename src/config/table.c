/* The table of configuration keys: the one place where a key is added (besides its field in struct config). */
#include "config/table.h"

#define HEADING(text) {.name = text}
#define TEXT(key, t, standard, help) {#key, t, offsetof(struct config, key), standard, 0, 0, NULL, help}
#define FLAG(key, standard, help) {#key, CONFIG_BOOL, offsetof(struct config, key), standard, 0, 0, NULL, help}
#define NUMBER(key, standard, min, max, help)                                                                          \
    {#key, CONFIG_NUMBER, offsetof(struct config, key), standard, min, max, NULL, help}
#define SIZE(key, field, standard, min, max, help)                                                                     \
    {#key, CONFIG_SIZE, offsetof(struct config, field), standard, min, max, NULL, help}
#define DURATION(key, standard, min, max, help)                                                                        \
    {#key, CONFIG_DURATION, offsetof(struct config, key##_ms), standard, min, max, NULL, help}
#define CHOICE(key, standard, list, help)                                                                              \
    {#key, CONFIG_CHOICE, offsetof(struct config, key), standard, 0, 0, list, help}

#define SECOND 1000ULL
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const accelerators[] = {"auto", "kvm", "tcg", NULL};
static const char *const durabilities[] = {"normal", "full", NULL};

const struct config_key config_table[] = {
    HEADING("Paths and addresses"),
    TEXT(state_dir, CONFIG_PATH, NULL,
         "Folder of everything that must outlive the daemon: store, templates, disks, sockets. Owned by the daemon's user, "
         "closed to others."),
    TEXT(listen, CONFIG_ADDRESS, "127.0.0.1:7777", "TCP address of the API. Port 0 takes any free port. Empty: none."),
    TEXT(listen_unix, CONFIG_PATH, "", "Unix socket of the API, beside or in place of `listen`. Empty: none."),
    TEXT(domain, CONFIG_DOMAIN, "sandbox.localhost",
         "Requests for the host `<port>-<sandbox id>.<domain>` go to that port of that sandbox."),
    TEXT(qemu_path, CONFIG_PATH, "", "The QEMU program. Empty: the newest of the usual places that can run a machine."),
    TEXT(qemu_data, CONFIG_PATH, "", "QEMU's folder of firmware. Empty: the one that belongs to `qemu_path`."),

    HEADING("Log and metrics"),
    CHOICE(log_level, "info", log_levels, "The least level that is written to the log."),
    FLAG(log_json, "false", "One JSON object a line in place of `key=value` lines."),
    FLAG(metrics_enabled, "true", "Serve `/metrics` in the Prometheus format."),

    HEADING("Isolation"),
    CHOICE(accelerator, "auto", accelerators,
           "How guest code is run. `auto`: KVM where the host has hardware virtualisation that works, else TCG (translation, "
           "slower)."),
    FLAG(require_hardware_isolation, "false", "Refuse to start, and refuse sandboxes, where only TCG is to be had."),
    FLAG(require_jail, "false", "Refuse to start where the jail lacks any feature, as it does without root."),
    TEXT(allow_missing_isolation, CONFIG_LIST, "",
         "Features of the jail that may be missing on this host, by the names that `space doctor` shows. What is missing and "
         "not listed refuses the start; what is listed is named in each sandbox's answer."),
    NUMBER(uid_base, "1879048192", CONFIG_UID_BASE_MIN, CONFIG_UID_BASE_MAX,
           "First of the user ids of the platform, when it was started by root: the daemon's own, then one for each machine "
           "slot."),
    NUMBER(slots, "1024", 1, 4096, "Most machines at one time, those of the pools included."),

    HEADING("Pools"),
    NUMBER(pool_blank, "2", 0, 256,
           "Machines kept started with nothing loaded, for each shape of a template in use. 0: none."),
    NUMBER(pool_hot, "2", 0, 256, "Machines kept restored and running, for each shape of a template in use. 0: none."),
    NUMBER(pool_memory_mib, "1024", 0, 1048576, "Memory that the machines of all pools together may take."),
    TEXT(pool_warm_command, CONFIG_STRING, "python3 -c pass",
         "Shell line that a machine for the hot pool runs once, so that the first exec finds its programs in memory and, "
         "under TCG, translated. Empty: none."),

    HEADING("Sandboxes"),
    NUMBER(max_sandboxes, "512", 1, 4096, "Most sandboxes at one time in all projects."),
    NUMBER(max_sandboxes_per_project, "256", 1, 4096, "Most sandboxes at one time in one project."),
    DURATION(default_timeout, "5m", SECOND, CONFIG_TIMEOUT_MAX_MS, "Life of a sandbox whose request names no timeout."),
    DURATION(max_timeout, "24h", SECOND, CONFIG_TIMEOUT_MAX_MS, "Longest life that a request may ask for."),
    NUMBER(default_vcpus, "1", 1, 8, "Processors of a sandbox whose request names no shape."),
    NUMBER(default_memory_mib, "256", 128, 8192, "Memory of a sandbox whose request names no shape."),
    NUMBER(default_disk_mib, "2048", 256, 65536, "Disk of a sandbox whose request names no shape."),
    NUMBER(max_vcpus, "8", 1, 8, "Most processors of one sandbox."),
    NUMBER(max_memory_mib, "8192", 128, 8192, "Most memory of one sandbox."),
    NUMBER(max_disk_mib, "65536", 256, 65536, "Largest disk of one sandbox."),

    HEADING("Machines"),
    NUMBER(memory_overhead_mib, "256", 64, 4096,
           "Memory that a machine's process may take beyond the guest's, before its cgroup ends it."),
    NUMBER(cpu_percent, "100", 0, 100, "Share of one core that each processor of a machine may take. 0: no limit."),
    NUMBER(pids_max, "64", 16, 1024, "Most threads of a machine's process."),
    NUMBER(tb_size_mib, "64", 16, CONFIG_TB_SIZE_MIB_MAX, "Buffer for translated code under TCG. Below 64 it is flushed again and again."),
    DURATION(start_timeout, "10s", 100, 10 * MINUTE, "Until QEMU's control socket must answer."),
    DURATION(boot_timeout, "3m", SECOND, HOUR, "Until a machine that boots must have its agent running."),
    DURATION(restore_timeout, "10s", 100, 10 * MINUTE, "Until a machine's state must have been loaded."),
    DURATION(agent_timeout, "10s", 100, 10 * MINUTE, "Until the agent must have answered a request that takes no time."),
    DURATION(heartbeat_interval, "10s", SECOND, HOUR, "How often the agent of a running sandbox is asked for a sign of life."),

    HEADING("Execs"),
    DURATION(attach_token_ttl, "60s", SECOND, DAY, "Life of the token that a new exec is attached with."),
    SIZE(exec_buffer, exec_buffer_bytes, "4MiB", 64 * KIB, 64 * MIB,
         "Output that is kept for each exec whose request names no size."),
    NUMBER(max_execs_per_sandbox, "1024", 1, 65536,
           "Most execs of one sandbox that are kept; the oldest that have ended go first."),

    HEADING("HTTP"),
    NUMBER(http_max_connections, "1024", 1, 65536, "Most connections at one time."),
    SIZE(http_max_body, http_max_body_bytes, "1MiB", KIB, GIB, "Largest body of a JSON request. Files are not bounded by it."),
    SIZE(http_max_header, http_max_header_bytes, "32KiB", 4 * KIB, MIB, "Largest header of a request."),
    DURATION(http_header_timeout, "10s", 100, 10 * MINUTE, "Until a request's header must have come whole."),
    DURATION(http_idle_timeout, "75s", SECOND, HOUR, "How long a connection may stay without a request."),
    DURATION(http_slow_timeout, "30s", SECOND, HOUR, "A client that takes or sends nothing for so long is dropped."),

    HEADING("Store"),
    CHOICE(store_durability, "normal", durabilities,
           "`normal`: nothing acknowledged is lost when the daemon dies, the last changes may be when the host loses power. "
           "`full`: nothing is, and each change waits for the disk."),
    DURATION(idempotency_ttl, "24h", MINUTE, 30 * DAY, "How long the answer to an `Idempotency-Key` is kept."),
    DURATION(deleted_retention, "24h", 0, 365 * DAY, "How long sandboxes that ended, and their execs, can be looked at."),
    DURATION(operation_retention, "7d", MINUTE, 365 * DAY, "How long operations that ended can be looked at."),
    DURATION(event_retention, "30d", MINUTE, 3650 * DAY, "How long events are kept."),
    NUMBER(event_max, "100000", 1000, 10000000, "Most events that are kept."),

    HEADING("Shutdown"),
    DURATION(shutdown_grace, "10s", 0, 10 * MINUTE,
             "How long requests under way may take to end after the daemon was told to stop. Sandboxes go on."),
};
const size_t config_table_len = ARRAY_LEN(config_table);

const struct config_key *config_find(const char *name, size_t len, bool dashes)
{
    for (size_t i = 0; i < config_table_len; i++) {
        const struct config_key *key = &config_table[i];
        size_t k = 0;
        if (config_key_is_heading(key))
            continue;
        while (k < len && key->name[k] && (key->name[k] == name[k] || (dashes && key->name[k] == '_' && name[k] == '-')))
            k++;
        if (k == len && key->name[k] == '\0')
            return key;
    }
    return NULL;
}

const char *config_standard(const struct config_key *key, char **ret_owned)
{
    *ret_owned = NULL;
    if (key->standard)
        return key->standard;
    if (geteuid() == 0)
        return "/var/lib/space";
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && data[0] == '/')
        return *ret_owned = xasprintf("%s/space", data);
    if (home && home[0] == '/')
        return *ret_owned = xasprintf("%s/.local/share/space", home);
    return *ret_owned = xasprintf("/tmp/space-%u", (unsigned)geteuid());
}

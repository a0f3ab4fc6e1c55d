/* The daemon's configuration: one table (table.c) gives each key its type, default, bounds and help text; files,
 * environment, command line, `config_dump` and the reference page all come from it.
 *
 * A file has lines `key = value`; `#` starts a comment at the start of a line or after white space; a value in double
 * quotes keeps its spaces and '#'. What is set later wins: defaults, file, environment (SPACE_<KEY>), command line. */
#ifndef SPACE_CONFIG_CONFIG_H
#define SPACE_CONFIG_CONFIG_H

#include <sys/socket.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"

#define CONFIG_FILE_MAX (256 * KIB)
#define CONFIG_VALUE_MAX 4096
#define CONFIG_LIST_MAX 32

/* Bounds that other layers hold as well: node.c compares them with those of the privileged half when it is compiled. */
#define CONFIG_UID_BASE_MIN 100000
#define CONFIG_UID_BASE_MAX 2147467261 /* above it lie 16,386 more ids below 2³¹ */
#define CONFIG_TB_SIZE_MIB_MAX 512
#define CONFIG_TIMEOUT_MAX_MS 86400000 /* of a sandbox, in the API too */

enum config_accelerator { CONFIG_ACCELERATOR_AUTO, CONFIG_ACCELERATOR_KVM, CONFIG_ACCELERATOR_TCG };
enum config_durability { CONFIG_DURABILITY_NORMAL, CONFIG_DURABILITY_FULL };

struct config_list {
    char **items;
    size_t count;
};

/* Durations are milliseconds, sizes bytes unless the name says otherwise. Strings are never NULL (may be empty). */
struct config {
    /* paths and addresses */
    char *state_dir; /* absolute; the default depends on who runs it */
    char *listen;    /* "127.0.0.1:7777", "[::1]:7777"; empty: none */
    char *listen_unix;
    char *domain;
    char *qemu_path; /* empty: search the usual places */
    char *qemu_data;

    /* log and metrics */
    enum log_level log_level;
    bool log_json;
    bool metrics_enabled;

    /* isolation */
    enum config_accelerator accelerator;
    bool require_hardware_isolation;
    bool require_jail;
    struct config_list allow_missing_isolation; /* names of jail features */
    uint32_t uid_base;
    uint32_t slots;

    /* pools */
    uint32_t pool_blank;
    uint32_t pool_hot;
    uint32_t pool_memory_mib;
    char *pool_warm_command; /* empty: none */

    /* sandboxes */
    uint32_t max_sandboxes;
    uint32_t max_sandboxes_per_project;
    uint64_t default_timeout_ms;
    uint64_t max_timeout_ms;
    uint32_t default_vcpus;
    uint32_t default_memory_mib;
    uint32_t default_disk_mib;
    uint32_t max_vcpus;
    uint32_t max_memory_mib;
    uint32_t max_disk_mib;

    /* machines */
    uint32_t memory_overhead_mib;
    uint32_t cpu_percent; /* of one core, for each vCPU; 0: no limit */
    uint32_t pids_max;
    uint32_t tb_size_mib;
    uint64_t start_timeout_ms;
    uint64_t boot_timeout_ms;
    uint64_t restore_timeout_ms;
    uint64_t agent_timeout_ms;
    uint64_t heartbeat_interval_ms;

    /* execs */
    uint64_t attach_token_ttl_ms;
    uint64_t exec_buffer_bytes;
    uint32_t max_execs_per_sandbox;

    /* HTTP */
    uint32_t http_max_connections;
    uint64_t http_max_body_bytes;
    uint64_t http_max_header_bytes;
    uint64_t http_header_timeout_ms;
    uint64_t http_idle_timeout_ms;
    uint64_t http_slow_timeout_ms;   /* a client that takes or sends nothing for so long is dropped */

    /* store */
    enum config_durability store_durability;
    uint64_t idempotency_ttl_ms;
    uint64_t deleted_retention_ms;
    uint64_t operation_retention_ms;
    uint64_t event_retention_ms;
    uint32_t event_max;

    uint64_t shutdown_grace_ms;
};

/* Every key at its default (as from config_done, `c` needs nothing before). `state_dir` is /var/lib/space for root, else $XDG_DATA_HOME/space or ~/.local/share/space. */
void config_init(struct config *ret_config);
void config_done(struct config *c);
#define _cleanup_config_ _cleanup_(config_done)

/* Set one key. `where` is what the error text starts with: "--set", "SPACE_LISTEN", "/etc/space/config:12". ERR_INVALID
 * names where, key, value and what is expected; an unknown key is answered with the nearest known one. */
int config_set(struct config *c, const char *where, const char *key, const char *value, struct err *e);
/* "key=value", as after --set. */
int config_set_pair(struct config *c, const char *where, const char *pair, struct err *e);

/* A whole file's text; `path` is for the errors. A key that appears twice is an error. */
int config_parse(struct config *c, const char *path, const char *text, size_t len, struct err *e);
/* ERR_NOT_FOUND when the file is missing; ERR_TOO_LARGE over CONFIG_FILE_MAX. */
int config_read_file(struct config *c, const char *path, struct err *e);

/* Each SPACE_<KEY> of `environment` (as environ). SPACE_ variables that are not of the daemon's configuration
 * (SPACE_API_KEY, SPACE_URL, SPACE_CONFIG, SPACE_TEST_…) are left alone; others that are no key are errors. */
int config_read_environment(struct config *c, char *const *environment, struct err *e);

/* `listen` as a socket address, port 0 for any; ERR_INVALID when it is none. */
int config_parse_address(const char *text, struct sockaddr_storage *ret_address, socklen_t *ret_len, struct err *e);

/* What only shows between keys: default_timeout ≤ max_timeout, default shape ≤ largest, pool sizes ≤ slots … */
int config_check(const struct config *c, struct err *e);

/* Command line of a daemon: takes --config FILE, --set key=value, --<key-with-dashes>[=| ]value out of argv in place
 * (argc shrinks), then reads file, environment and options in that order and checks. A key that is true or false needs
 * no value ("--log-json"). What is no key stays in argv. Without --config the file is that of SPACE_CONFIG, else
 * `default_path` (may be NULL), which may be missing. */
int config_load(struct config *c, int *argc, char **argv, char *const *environment, const char *default_path,
                struct err *e);

/* All keys with their values in the form of a file that reads back the same; `only_changed` leaves defaults out. */
void config_dump(const struct config *c, bool only_changed, struct buf *out);
/* docs/reference/configuration.md. */
void config_reference(struct buf *out);

#endif

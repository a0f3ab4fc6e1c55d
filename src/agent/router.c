/* The table of what the agent answers (see router.h). */
#include "agent/router.h"

#include "base/str.h"

static const struct route {
    const char *method, *path;
    void (*handle)(struct request *r, const struct query *q);
} routes[] = {
    {"GET", AGENT_PATH_HELLO, hello_get},
    {"POST", AGENT_PATH_IDENTITY, identity_post},
    {"GET", AGENT_PATH_EXECS, execs_get},
    {"GET", AGENT_PATH_FILE, file_get},
    {"PUT", AGENT_PATH_FILE, file_put},
    {"DELETE", AGENT_PATH_FILE, file_delete},
    {"GET", AGENT_PATH_STAT, stat_get},
    {"GET", AGENT_PATH_DIR, dir_get},
    {"POST", AGENT_PATH_MKDIR, mkdir_post},
    {"POST", AGENT_PATH_MOVE, move_post},
    {"POST", AGENT_PATH_ATTR, attr_post},
    {"GET", AGENT_PATH_TAR, tar_get},
    {"PUT", AGENT_PATH_TAR, tar_put},
    {"GET", AGENT_PATH_WATCH, watch_get},
    {"GET", AGENT_PATH_METRICS, metrics_get},
    {"POST", AGENT_PATH_SYNC, sync_post},
    {"POST", AGENT_PATH_FREEZE, freeze_post},
    {"POST", AGENT_PATH_THAW, thaw_post},
    {"POST", AGENT_PATH_BENCH_SPAWN, bench_spawn_post},
    {"GET", AGENT_PATH_BENCH_SOURCE, bench_source_get},
    {"PUT", AGENT_PATH_BENCH_SINK, bench_sink_put},
};

static bool exec_id_valid(const char *id)
{
    size_t len = strlen(id);
    return len > 0 && len <= AGENT_EXEC_ID_MAX &&
           strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == len;
}

static void route_exec(struct request *r, char *rest, const struct query *q)
{
    char *id = strsep(&rest, "/");
    if (!exec_id_valid(id))
        request_failf(r, ERR_INVALID, "an exec's id has 1 to %d letters, digits, _ and -", AGENT_EXEC_ID_MAX);
    else
        exec_route(r, id, rest ? rest : "", q);
}

void router_handle(void *arg ATTR_UNUSED, struct request *r)
{
    struct query q;
    struct err e;
    if (r->method && str_eq(r->method, "CONNECT")) {
        tcp_connect(r);
        return;
    }
    if (!r->method || !r->path) {
        request_failf(r, ERR_INVALID, "method and path are needed");
        return;
    }
    char *query = r->path, *path = strsep(&query, "?");
    if (query_parse(query, &q, &e) < 0) {
        request_fail(r, &e);
        return;
    }
    if (str_starts(path, AGENT_PATH_EXECS "/")) {
        route_exec(r, path + strlen(AGENT_PATH_EXECS "/"), &q);
        return;
    }
    bool known = false;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!str_eq(routes[i].path, path))
            continue;
        known = true;
        if (str_eq(routes[i].method, r->method)) {
            routes[i].handle(r, &q);
            return;
        }
    }
    if (known)
        request_failf(r, ERR_METHOD, "%.16s is not offered on %s", r->method, path);
    else
        request_failf(r, ERR_NOT_FOUND, "no path %.64s", path);
}

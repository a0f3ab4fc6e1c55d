/* /metrics: Prometheus text format 0.0.4. No label ever holds what a guest or a client said. */
#include "api/render.h"
#include "control/lifecycle.h"

#include <dirent.h>
#include <sys/resource.h>

#define METRICS_MAX (256 * KIB)

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(struct buf *b, const char *name, const char *help, double value)
{
    head(b, name, "gauge", help);
    buf_printf(b, "%s %.17g\n", name, value);
}

static void counter(struct buf *b, const char *name, const char *help, uint64_t value)
{
    head(b, name, "counter", help);
    buf_printf(b, "%s %llu\n", name, (unsigned long long)value);
}

static void histogram_rows(struct buf *b, const char *name, const char *label, const struct control_histogram *h)
{
    const char *comma = label[0] ? "," : "";
    uint64_t sum = 0;
    for (size_t i = 0; i < CONTROL_LATENCY_BUCKETS; i++) {
        sum += h->count[i];
        buf_printf(b, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, label, comma, control_latency_bounds[i],
                   (unsigned long long)sum);
    }
    buf_printf(b, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, label, comma, (unsigned long long)h->total);
    buf_printf(b, label[0] ? "%s_sum{%s} %.9g\n" : "%s_sum%s %.9g\n", name, label, h->sum_seconds);
    buf_printf(b, label[0] ? "%s_count{%s} %llu\n" : "%s_count%s %llu\n", name, label, (unsigned long long)h->total);
}

static void process(struct buf *b, struct api *api)
{
    unsigned long long pages = 0, fds = 0;
    struct rusage usage;
    struct rlimit limit;
    _cleanup_fclose_ FILE *statm = fopen("/proc/self/statm", "re");
    if (statm && fscanf(statm, "%*u %llu", &pages) != 1)
        pages = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir) {
        while (readdir(dir))
            fds++;
        closedir(dir);
        fds -= MIN(fds, 3ull); /* ".", "..", and the folder itself */
    }
    getrusage(RUSAGE_SELF, &usage);
    getrlimit(RLIMIT_NOFILE, &limit);
    gauge(b, "process_resident_memory_bytes", "Resident memory of the daemon.",
          (double)pages * (double)sysconf(_SC_PAGESIZE));
    gauge(b, "process_open_fds", "Open file descriptors of the daemon.", (double)fds);
    gauge(b, "process_max_fds", "Limit of open file descriptors.", (double)limit.rlim_cur);
    head(b, "process_cpu_seconds_total", "counter", "Processor time of the daemon.");
    buf_printf(b, "process_cpu_seconds_total %.6f\n",
               (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    gauge(b, "process_start_time_seconds", "When the daemon started, since 1970.", (double)api->started_at_ms / 1e3);
    head(b, "space_build_info", "gauge", "The version of the program.");
    buf_printf(b, "space_build_info{version=\"%s\"} 1\n", api->version);
    head(b, "space_loop_lag_seconds", "histogram", "How late the loop runs a timer, measured once a second.");
    histogram_rows(b, "space_loop_lag_seconds", "", &api->lag);
    gauge(b, "space_loop_lag_max_seconds", "The greatest lag since the start.", api->lag_max_seconds);
}

static void http(struct buf *b, struct api *api)
{
    struct http_stats s;
    http_server_stats(api->server, &s);
    head(b, "space_http_requests_total", "counter", "Requests that ended, by class of status.");
    for (int i = 1; i < 6; i++)
        buf_printf(b, "space_http_requests_total{class=\"%dxx\"} %llu\n", i, (unsigned long long)s.by_class[i]);
    buf_printf(b, "space_http_requests_total{class=\"none\"} %llu\n", (unsigned long long)s.by_class[0]);
    head(b, "space_http_request_seconds", "histogram", "Time from a request to its answer, streams left out.");
    histogram_rows(b, "space_http_request_seconds", "", &api->request_seconds);
    counter(b, "space_http_aborted_total", "Requests whose client went away.", s.aborted);
    counter(b, "space_http_received_bytes_total", "Bytes of request bodies.", s.bytes_in);
    counter(b, "space_http_sent_bytes_total", "Bytes of answers.", s.bytes_out);
    counter(b, "space_http_connections_total", "Connections taken.", s.connections_accepted);
    counter(b, "space_http_connections_refused_total", "Connections over a limit.", s.connections_refused);
    counter(b, "space_http_timeouts_total", "Slow clients given up.", s.timeouts);
    gauge(b, "space_http_connections", "Open connections.", (double)s.connections);
    gauge(b, "space_http_requests_running", "Requests being worked on.", (double)s.requests_running);
    gauge(b, "space_http_upgraded", "Open WebSockets and tunnels.", (double)s.upgraded);
}

static void sandboxes(struct buf *b, struct api *api)
{
    static const char *const sources[] = {[CLAIM_COLD] = "source=\"cold\"", [CLAIM_BLANK] = "source=\"blank\"",
                                          [CLAIM_HOT] = "source=\"hot\""};
    struct control_stats s;
    control_stats_get(api->control, &s);
    head(b, "space_sandboxes", "gauge", "Sandboxes by state.");
    for (int i = 0; i < LIFE_STATES; i++)
        if (i != LIFE_DELETED && i != LIFE_FAILED)
            buf_printf(b, "space_sandboxes{state=\"%s\"} %u\n", life_state_name((enum life_state)i), s.sandboxes[i]);
    head(b, "space_sandboxes_ended_total", "counter", "Sandboxes that were deleted or failed.");
    buf_printf(b, "space_sandboxes_ended_total{state=\"deleted\"} %u\n", s.sandboxes[LIFE_DELETED]);
    buf_printf(b, "space_sandboxes_ended_total{state=\"failed\"} %u\n", s.sandboxes[LIFE_FAILED]);
    counter(b, "space_sandbox_deadlines_total", "Sandboxes ended by their timeout.", s.deadlines);
    head(b, "space_create_seconds", "histogram", "From the request to a sandbox that answers.");
    histogram_rows(b, "space_create_seconds", "", &s.create);
    head(b, "space_claim_seconds", "histogram", "Time to bring a machine to a sandbox, by where it came from.");
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        histogram_rows(b, "space_claim_seconds", sources[i], &s.claim[i]);
    gauge(b, "space_execs_running", "Commands that run.", s.execs_running);
    head(b, "space_execs_total", "counter", "Commands by what became of them.");
    buf_printf(b, "space_execs_total{result=\"started\"} %llu\n", (unsigned long long)s.execs_started);
    buf_printf(b, "space_execs_total{result=\"exited\"} %llu\n", (unsigned long long)s.execs_ended);
    buf_printf(b, "space_execs_total{result=\"failed\"} %llu\n", (unsigned long long)s.execs_failed);
    buf_printf(b, "space_execs_total{result=\"lost\"} %llu\n", (unsigned long long)s.execs_lost);
    counter(b, "space_machines_lost_total", "Machines that ended by themselves.", s.machines_lost);
    counter(b, "space_store_retries_total", "Steps that the store did not take at once.", s.store_retries);
}

static void node(struct buf *b, struct api *api)
{
    struct node_stats n;
    node_stats_get(control_node(api->control), &n);
    gauge(b, "space_node_ready", "1: the node takes work.", n.ready);
    head(b, "space_machines", "gauge", "Machines by what they are for.");
    buf_printf(b, "space_machines{kind=\"claimed\"} %u\nspace_machines{kind=\"hot\"} %u\n", n.claimed, n.hot);
    buf_printf(b, "space_machines{kind=\"blank\"} %u\nspace_machines{kind=\"starting\"} %u\n", n.blank, n.starting);
    gauge(b, "space_claims_waiting", "Creates that wait for a machine.", n.claims_waiting);
    gauge(b, "space_slots", "Machines that this host can have.", n.slots);
    gauge(b, "space_slots_used", "Machines that it has.", n.slots_used);
    gauge(b, "space_pool_memory_bytes", "Memory reckoned for machines in pools.", (double)n.pool_memory_bytes);
    gauge(b, "space_pool_memory_max_bytes", "Its limit.", (double)n.pool_memory_max_bytes);
    head(b, "space_claims_total", "counter", "Machines brought to sandboxes, by where they came from.");
    buf_printf(b, "space_claims_total{source=\"hot\"} %llu\n", (unsigned long long)n.claims_hot);
    buf_printf(b, "space_claims_total{source=\"blank\"} %llu\n", (unsigned long long)n.claims_blank);
    buf_printf(b, "space_claims_total{source=\"cold\"} %llu\n", (unsigned long long)n.claims_cold);
    buf_printf(b, "space_claims_total{source=\"failed\"} %llu\n", (unsigned long long)n.claims_failed);
}

static void store(struct buf *b, struct api *api)
{
    struct store_stats s;
    store_stats_get(api->store, &s);
    gauge(b, "space_store_file_bytes", "Size of the store.", (double)s.file_bytes);
    gauge(b, "space_store_wal_bytes", "Size of its write-ahead log.", (double)s.wal_bytes);
    counter(b, "space_store_commits_total", "Transactions.", s.commits);
    counter(b, "space_store_checkpoints_total", "Times that the log was emptied.", s.checkpoints);
}

void api_metrics(struct http_request *r, void *arg)
{
    struct api *api = arg;
    struct err e = {0};
    if (!api->config->metrics_enabled) {
        err_set(&e, ERR_NOT_FOUND, "figures are switched off (metrics_enabled)");
        http_reply_error(r, &e);
        return;
    }
    _cleanup_buf_ struct buf b = BUF_MAX(METRICS_MAX);
    process(&b, api);
    http(&b, api);
    sandboxes(&b, api);
    node(&b, api);
    store(&b, api);
    http_reply_data(r, 200, "text/plain; version=0.0.4; charset=utf-8", buf_data(&b), b.len);
}

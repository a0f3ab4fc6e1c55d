/* spaced: the daemon. Order of a start:
 *
 *   configuration → lock on the state folder → store → node (which starts space-priv while this is still root)
 *   → first key → listeners → all privileges dropped → sandboxes of an earlier run found again → ready
 *
 * and of an end (SIGTERM, SIGINT): the server finishes what it answers, control and node let go of the machines, which
 * run on, and the store is closed. A second signal ends at once. SIGUSR1 ends the sandboxes and every machine first;
 * --stop-machines does that for the machines that an ended daemon has left. */
#include "api/api.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "bin/daemon.h"
#include "config/config.h"
#include "control/control.h"
#include "jail/feature.h"
#include "node/node.h"
#include "store/api_key.h"
#include "store/checkpoint.h"

#include <signal.h>
#include <sysexits.h>

#define END_MACHINES_MS 30000

struct daemon {
    struct config config;
    uv_loop_t loop;
    struct store *store;
    struct control *control;
    struct node *node;
    struct api *api;
    uv_signal_t term, interrupt, hangup, end_machines_signal;
    bool ready, stopping, failed;
    bool end_machines; /* no machine outlives this daemon */
    bool only_end;     /* --stop-machines: nothing is served */
    int lock_fd;
};

static const char usage[] =
    "Usage: spaced [--config FILE] [--set KEY=VALUE]... [--KEY VALUE]...\n"
    "\n"
    "Serve the API and run the machines of this host. Keys are those of the configuration file,\n"
    "with dashes: --state-dir, --listen, --pool-hot and so on.\n"
    "\n"
    "  --config FILE       read this file instead of <state>/config\n"
    "  --stop-machines     end all machines that a daemon of this state folder has left, and end\n"
    "  --check-config      read the configuration, say what is wrong, and end\n"
    "  --show-config       print the configuration as it is in force, and end\n"
    "  --config-reference  print the description of all keys (Markdown), and end\n"
    "  --version, --help\n"
    "\n"
    "SIGTERM leaves the sandboxes running, for the next start to find; SIGUSR1 ends them with the daemon.\n";

/* ---- end ---- */

static void on_signal_closed(uv_handle_t *handle)
{
    (void)handle;
}

static void on_checkpoint_stopped(void *arg)
{
    struct daemon *d = arg;
    /* Lets the helper go, whose handles are closed by the loop. */
    node_free(d->node);
    d->node = NULL;
    uv_close((uv_handle_t *)&d->term, on_signal_closed);
    uv_close((uv_handle_t *)&d->interrupt, on_signal_closed);
    uv_close((uv_handle_t *)&d->hangup, on_signal_closed);
    uv_close((uv_handle_t *)&d->end_machines_signal, on_signal_closed);
}

static void on_api_freed(void *arg)
{
    struct daemon *d = arg;
    d->api = NULL;
    store_checkpoint_stop(d->store, on_checkpoint_stopped, d);
}

static void on_node_stopped(void *arg)
{
    struct daemon *d = arg;
    api_free(d->api, on_api_freed, d);
}

static void on_control_stopped(void *arg)
{
    struct daemon *d = arg;
    node_stop(d->node, d->end_machines, on_node_stopped, d);
}

static void on_server_stopped(void *arg)
{
    struct daemon *d = arg;
    control_stop(d->control, on_control_stopped, d);
}

static void stop(struct daemon *d)
{
    if (d->stopping)
        _exit(EX_TEMPFAIL);
    d->stopping = true;
    daemon_notify("STOPPING=1");
    log_info("stopping", F_STR("machines", d->end_machines ? "ended" : "left running"));
    http_server_stop(api_server(d->api), d->config.shutdown_grace_ms, on_server_stopped, d);
}

static void on_stop_signal(uv_signal_t *handle, int number)
{
    (void)number;
    stop(handle->data);
}

static void on_all_ended(void *arg)
{
    struct daemon *d = arg;
    if (!d->stopping)
        stop(d);
}

static void end_machines(struct daemon *d)
{
    d->end_machines = true;
    if (d->stopping || !d->ready)
        return; /* in time for node_stop; or as soon as there is something to end */
    log_info("ending all sandboxes");
    control_end_all(d->control, "the platform was stopped", END_MACHINES_MS, on_all_ended, d);
}

static void on_end_machines_signal(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;
    (void)number;
    if (!d->end_machines)
        end_machines(d);
}

static void on_hangup(uv_signal_t *handle, int number)
{
    (void)handle, (void)number;
}

/* ---- start ---- */

static void on_ready(void *arg, const struct err *e)
{
    struct daemon *d = arg;
    struct node_stats stats;
    char names[JAIL_FEATURE_NAMES_SIZE];
    if (e) {
        log_error("cannot take up the work of an earlier run", F_STR("error", e->text));
        d->failed = true;
        stop(d);
        return;
    }
    node_stats_get(d->node, &stats);
    d->ready = true;
    if (d->only_end || d->end_machines) {
        end_machines(d);
        return;
    }
    bool tcg = stats.accelerator == ACCELERATOR_TCG;
    log_info("ready", F_STR("accelerator", tcg ? "tcg" : "kvm"), F_STR("qemu", stats.qemu_version),
             F_INT("slots", stats.slots));
    if (tcg)
        log_warn("machines run under TCG, which QEMU does not call a security boundary: the jail alone is one");
    if (stats.jail_missing)
        log_warn("the jail of machines is reduced", F_STR("missing", jail_feature_names(stats.jail_missing, names)));
    daemon_notify("READY=1");
}

static int open_store(struct daemon *d, struct err *e)
{
    _cleanup_free_ char *path = xasprintf("%s/space.db", d->config.state_dir);
    struct store_options options = {
        .path = path,
        .exclusive = true,
        .full_durability = d->config.store_durability == CONFIG_DURABILITY_FULL,
    };
    int r = store_open(&options, &d->store, e);
    if (r < 0)
        return err_prefix(e, "open the store %s", path);
    return store_checkpoint_start(d->store, &d->loop, e);
}

static void choose_reason(struct daemon *d)
{
    struct node_stats stats;
    node_stats_get(d->node, &stats);
    if (d->config.accelerator != CONFIG_ACCELERATOR_AUTO)
        api_set_reason(d->api, "chosen by the configuration");
    else if (stats.accelerator == ACCELERATOR_KVM)
        api_set_reason(d->api, "/dev/kvm can be opened and the processor shows vmx or svm");
    else
        api_set_reason(d->api, "/dev/kvm cannot be opened, or the processor does not show vmx or svm");
}

static int start(struct daemon *d, struct err *e)
{
    const struct config *c = &d->config;
    int r;
    if ((r = daemon_state_folder(c, &d->lock_fd, e)) < 0 || (r = open_store(d, e)) < 0 ||
        (r = control_new(&d->loop, c, d->store, &d->control, e)) < 0 ||
        (r = node_new(&d->loop, c, d->store, control_node_callbacks(), d->control, &d->node, e)) < 0 ||
        (r = daemon_first_key(c, d->store, e)) < 0 || (r = api_new(d->control, c, SPACE_VERSION, &d->api, e)) < 0 ||
        (!d->only_end && (r = daemon_listen(c, api_server(d->api), e)) < 0) || (r = daemon_drop_privileges(c, e)) < 0)
        return r;
    choose_reason(d);
    uv_signal_init(&d->loop, &d->term);
    uv_signal_init(&d->loop, &d->interrupt);
    uv_signal_init(&d->loop, &d->hangup);
    uv_signal_init(&d->loop, &d->end_machines_signal);
    d->term.data = d->interrupt.data = d->hangup.data = d->end_machines_signal.data = d;
    uv_signal_start(&d->term, on_stop_signal, SIGTERM);
    uv_signal_start(&d->interrupt, on_stop_signal, SIGINT);
    uv_signal_start(&d->hangup, on_hangup, SIGHUP);
    uv_signal_start(&d->end_machines_signal, on_end_machines_signal, SIGUSR1);
    control_start(d->control, d->node, on_ready, d);
    return 0;
}

/* Options that print something and end; -1: none of them, else the exit status. */
static int print_and_end(const struct config *c, int argc, char **argv)
{
    _cleanup_buf_ struct buf out = BUF_MAX(MIB);
    for (int i = 1; i < argc; i++) {
        if (str_eq(argv[i], "--check-config"))
            buf_put_str(&out, "the configuration is in order\n");
        else if (str_eq(argv[i], "--show-config"))
            config_dump(c, false, &out);
        else {
            fprintf(stderr, "spaced: there is no option %s (see --help)\n", argv[i]);
            return EX_USAGE;
        }
    }
    if (argc < 2)
        return -1;
    fwrite(buf_data(&out), 1, out.len, stdout);
    return fflush(stdout) == 0 ? 0 : EX_IOERR;
}

/* Those that need no configuration at all. */
static int early_options(int argc, char **argv)
{
    _cleanup_buf_ struct buf out = BUF_MAX(MIB);
    if (argc != 2)
        return -1;
    if (str_eq(argv[1], "--version"))
        buf_put_str(&out, "spaced " SPACE_VERSION "\n");
    else if (str_eq(argv[1], "--help"))
        buf_put_str(&out, usage);
    else if (str_eq(argv[1], "--config-reference"))
        config_reference(&out);
    else
        return -1;
    fwrite(buf_data(&out), 1, out.len, stdout);
    return fflush(stdout) == 0 ? 0 : EX_IOERR;
}

int main(int argc, char **argv)
{
    struct daemon d = {.lock_fd = -1};
    struct err e = {0};
    int status = early_options(argc, argv);
    if (status >= 0)
        return status;
    config_init(&d.config);
    _cleanup_free_ char *default_path = daemon_config_path(&d.config, argc, argv);
    if (config_load(&d.config, &argc, argv, environ, default_path, &e) < 0 || config_check(&d.config, &e) < 0 ||
        node_config_check(&d.config, &e) < 0) {
        fprintf(stderr, "spaced: %s\n", e.text);
        config_done(&d.config);
        return EX_CONFIG;
    }
    if (argc == 2 && str_eq(argv[1], "--stop-machines")) {
        d.only_end = true;
        argc = 1;
    }
    if ((status = print_and_end(&d.config, argc, argv)) >= 0) {
        config_done(&d.config);
        return status;
    }
    log_setup(d.config.log_level, d.config.log_json);
    daemon_process_setup();
    uv_loop_init(&d.loop);
    if (start(&d, &e) < 0) {
        log_error("cannot start", F_STR("error", e.text));
        return err_info(e.code)->exit_code;
    }
    uv_run(&d.loop, UV_RUN_DEFAULT);
    control_free(d.control);
    store_close(d.store);
    uv_loop_close(&d.loop);
    config_done(&d.config);
    log_info("stopped");
    return d.failed ? EX_SOFTWARE : 0;
}

/* The guest agent: PID 1 of a machine, or with --test-socket an ordinary process that does the same over a Unix socket
 * and leaves the system as it is. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>

#include "agent/agent.h"
#include "agent/boot.h"
#include "agent/router.h"
#include "base/str.h"

static struct agent agent;
static struct loop_source signals, stop_signals;

static void on_signals(struct loop_source *source, uint32_t events ATTR_UNUSED)
{
    struct signalfd_siginfo info[8];
    if (read(source->fd, info, sizeof(info)) > 0) /* which children ended is asked of the kernel */
        execs_reap(&agent.execs);
}

static void on_stop(struct loop_source *source, uint32_t events ATTR_UNUSED)
{
    source->loop->stop = true;
}

static int watch_signals(struct err *e)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0 || loop_add(&agent.loop, &signals, fd, EPOLLIN, on_signals) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "watch for signals");
    if (agent.is_guest)
        return 0;
    sigemptyset(&set); /* an orderly end, so that a leak is found */
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0 || loop_add(&agent.loop, &stop_signals, fd, EPOLLIN, on_stop) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "watch for signals");
    return 0;
}

static void after_batch(void *arg ATTR_UNUSED)
{
    port_run(&agent.port);
}

static int serve(const char *test_socket, struct err *e)
{
    /* One arena: threads come and go, and their memory should not stay. */
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_TRIM_THRESHOLD, 256 * 1024);
    int r = boot_process(agent.is_guest, e);
    if (r == 0)
        r = loop_init(&agent.loop, e);
    if (r == 0)
        r = execs_init(&agent.execs, &agent.loop, e);
    if (r == 0)
        r = watch_signals(e);
    if (r == 0)
        r = session_init(&agent.session, router_handle, &agent);
    if (r == 0 && test_socket)
        r = port_open_socket(&agent.port, &agent.loop, &agent.session, test_socket, e);
    else if (r == 0)
        r = port_open_virtio(&agent.port, &agent.loop, &agent.session, AGENT_PORT_NAME, e);
    if (r < 0)
        return r;
    agent.loop.after = after_batch;
    printf("%s\n", AGENT_READY_LINE);
    fflush(stdout);
    after_batch(NULL);
    loop_run(&agent.loop);
    port_close(&agent.port);
    session_done(&agent.session);
    execs_done(&agent.execs);
    identity_done(&agent.identity);
    return 0;
}

int main(int argc, char **argv)
{
    struct err e;
    const char *test_socket = NULL;
    int r = 0;
    if (argc == 3 && str_eq(argv[1], "--test-socket"))
        test_socket = argv[2];
    agent.is_guest = !test_socket && getpid() == 1;
    if (!agent.is_guest && !test_socket) {
        fprintf(stderr, "usage: space-agent --test-socket PATH (or as PID 1 of a machine)\n");
        return 2;
    }
    if (agent.is_guest)
        r = boot_guest(&e);
    if (r == 0)
        r = serve(test_socket, &e);
    if (r < 0) {
        printf("space-agent: %s\n", e.text);
        fflush(stdout);
    }
    return r < 0 ? 1 : 0; /* the end of PID 1 is the end of the machine, and the host sees it */
}

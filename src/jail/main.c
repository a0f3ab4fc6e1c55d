/* space-jail: takes a finished plan, builds the box, drops everything, executes QEMU. It is started by space-priv
 * alone, single-threaded, as the first process of its pid namespace, with the descriptors of enum jail_fd and enum
 * qemu_fd.
 *
 * It says on the status pipe what it could not do, or that all is done; the exec itself closes the pipe. It must never
 * go on after a step that failed, unless the plan allows exactly that feature to be missing. */
#include "jail/box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

static struct jail_plan plan;

#ifdef JAIL_TEST_STEPS
/* "…-7" kills itself after the seventh step. */
void jail_step(void)
{
    static int die_at, step;
    char name[JAIL_PATH_SIZE] = "";
    if (!step && readlink("/proc/self/exe", name, sizeof(name) - 1) > 0 && strrchr(name, '-'))
        die_at = (int)strtol(strrchr(name, '-') + 1, NULL, 10);
    if (++step == die_at)
        __builtin_trap(); /* the first process of a namespace cannot send itself a signal */
}
#endif

static void status_send(uint32_t kind, const struct jail_progress *p)
{
    struct jail_status s = {
        .magic = JAIL_STATUS_MAGIC,
        .kind = kind,
        .stage = p->stage,
        .errnum = p->errnum,
        .feature = p->feature,
        .features = p->features,
        .missing = p->missing,
        .bind = p->bind,
    };
    if (write(JAIL_FD_STATUS, &s, sizeof(s)) != sizeof(s))
        _exit(1);
}

static void give_up(struct jail_progress *p, uint32_t stage, int errnum)
{
    if (stage) {
        p->stage = stage;
        p->errnum = errnum;
        p->feature = 0;
    }
    status_send(JAIL_STATUS_FAILED, p);
    _exit(1);
}

static void plan_read(struct jail_progress *p)
{
    size_t len = 0;
    while (len < sizeof(plan)) {
        ssize_t n = pread(JAIL_FD_PLAN, (char *)&plan + len, sizeof(plan) - len, (off_t)len);
        if (n <= 0)
            give_up(p, JAIL_STAGE_PLAN, n < 0 ? errno : EPROTO);
        len += (size_t)n;
    }
    if (!jail_plan_valid(&plan, len))
        give_up(p, JAIL_STAGE_PLAN, EPROTO);
}

/* Signals as a new program expects them, no terminal. */
static void process_reset(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
    setsid();
    umask(0022); /* of the box; QEMU's own is set with its ids */
}

/* The path of QEMU at the one address that the filter lets execve pass with. */
static const char *exec_path_place(struct jail_progress *p)
{
    char *page = (char *)(plan.exec_address & ~4095UL);
    size_t offset = plan.exec_address & 4095;
    if (mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page)
        give_up(p, JAIL_STAGE_EXEC, errno);
    char *path = page + offset;
    __asm__("" : "+r"(path)); /* the first page is no null pointer here */
    memcpy(path, plan.text, strlen(plan.text) + 1);
    return path;
}

int main(void)
{
    struct jail_progress p = {0};
    plan_read(&p);
    p.features = plan.have;
    process_reset();
    jail_step();

    if (!box_build(&plan, &p))
        give_up(&p, 0, 0);
    const char *path = exec_path_place(&p); /* the first page needs a capability */
    jail_step();
    if (!rights_drop(&plan, &p))
        give_up(&p, 0, 0);

    char *argv[JAIL_ARGS_MAX + 1] = {NULL}, *envp[JAIL_ENV_MAX + 1] = {NULL};
    char *text = plan.text;
    for (uint32_t i = 0; i < plan.arg_count; i++, text += strlen(text) + 1)
        argv[i] = text;
    for (uint32_t i = 0; i < plan.env_count; i++, text += strlen(text) + 1)
        envp[i] = text;

    /* A plan asks for what must be there in the end: nothing may have been forgotten on the way. */
    if (!filter_load(&plan, &p))
        give_up(&p, 0, 0);
    if (plan.features & ~(p.features | p.missing)) {
        p.feature = plan.features & ~(p.features | p.missing);
        p.feature &= ~p.feature + 1;
        give_up(&p, JAIL_STAGE_NONE, ENOTSUP);
    }

    /* Whoever waits for this machine must still be there: else nobody would know of it. */
    struct pollfd reader = {.fd = JAIL_FD_STATUS};
    if (poll(&reader, 1, 0) < 0 || reader.revents & (POLLERR | POLLHUP))
        _exit(1);
    jail_step();
    status_send(JAIL_STATUS_BUILT, &p);
    jail_step();
    if (plan.probe)
        _exit(0);
    execve(path, argv, envp);
    give_up(&p, JAIL_STAGE_EXEC, errno);
}

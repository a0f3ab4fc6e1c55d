/* Start of a process (see spawn.h). The child shares the agent's memory until it loads its program (CLONE_VM and
 * CLONE_VFORK): no page tables are copied, and a failure is told by a plain store. In return the child may use nothing
 * but system calls: no library function that keeps state, and above all none of the set*id() wrappers, which would
 * signal the agent's other threads. */
#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define STACK_SIZE (64 * 1024)

enum stage { STAGE_EXEC, STAGE_CWD, STAGE_USER, STAGE_SETUP };

struct child {
    const struct spawn *s;
    sigset_t signals; /* to restore: empty */
    struct rlimit files;
    bool raised; /* the agent has a priority above the usual one */
    struct sched_param scheduling;
    int stage, errnum; /* what failed */
};

#define CHILD_FUNCTION __attribute__((no_sanitize("address", "undefined"), noinline))

CHILD_FUNCTION static void try_exec(const struct spawn *s, const char *file)
{
    syscall(SYS_execve, file, s->argv, s->envp);
    if (errno != ENOEXEC)
        return;
    /* A script without "#!" goes to the shell, as execvp(3) does. */
    char **argv = (char **)(uintptr_t)s->argv - 1;
    argv[0] = (char *)(uintptr_t) "/bin/sh";
    char *first = argv[1];
    argv[1] = (char *)(uintptr_t)file;
    syscall(SYS_execve, "/bin/sh", argv, s->envp);
    argv[1] = first;
    errno = ENOEXEC;
}

/* As execvp(3): the error that tells most wins. */
CHILD_FUNCTION static void search_exec(const struct spawn *s, char *file)
{
    const char *name = s->argv[0];
    size_t name_len = 0;
    bool has_slash = false, denied = false;
    for (; name[name_len]; name_len++)
        has_slash |= name[name_len] == '/';
    if (has_slash || name_len == 0) {
        try_exec(s, name_len ? name : "");
        return;
    }
    int last = ENOENT;
    for (const char *dir = s->path;;) {
        size_t dir_len = 0;
        while (dir[dir_len] && dir[dir_len] != ':')
            dir_len++;
        if (dir_len + 1 + name_len <= AGENT_PATH_MAX) {
            char *to = file;
            for (size_t i = 0; i < dir_len; i++)
                *to++ = dir[i];
            if (dir_len > 0)
                *to++ = '/';
            for (size_t i = 0; i <= name_len; i++)
                *to++ = name[i];
            try_exec(s, file);
            if (errno == EACCES)
                denied = true;
            else if (errno != ENOENT && errno != ENOTDIR) {
                last = errno;
                break;
            }
        }
        if (!dir[dir_len])
            break;
        dir += dir_len + 1;
    }
    errno = last == ENOENT && denied ? EACCES : last;
}

CHILD_FUNCTION static bool child_setup(struct child *c)
{
    const struct spawn *s = c->s;
    c->stage = STAGE_SETUP;
    if (syscall(SYS_setsid) < 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (syscall(SYS_dup2, s->stdio[i], i) < 0)
            return false;
    if (s->tty && syscall(SYS_ioctl, 0, TIOCSCTTY, 0) < 0)
        return false;
    /* The agent is exempt from the out-of-memory killer, what it starts is not. */
    long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        syscall(SYS_write, fd, "0", 1);
        syscall(SYS_close, fd);
    }
    syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &c->files, NULL);
    if (c->raised)
        syscall(SYS_sched_setscheduler, 0, SCHED_OTHER | SCHED_RESET_ON_FORK, &c->scheduling);
    c->stage = STAGE_USER;
    if (syscall(SYS_geteuid) == 0) {
        const struct user *u = s->user;
        if (syscall(SYS_setgroups, u->group_count, u->groups) < 0 ||
            syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 || syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
            return false;
    }
    c->stage = STAGE_CWD;
    if (syscall(SYS_chdir, s->cwd) < 0 && (!s->cwd_optional || syscall(SYS_chdir, "/") < 0))
        return false;
    syscall(SYS_umask, 022);
    return true;
}

CHILD_FUNCTION static int child_main(void *arg)
{
    static char file[AGENT_PATH_MAX + 1]; /* one child at a time: the parent waits for it */
    struct child *c = arg;
    if (child_setup(c)) {
        struct {
            void (*handler)(int);
            unsigned long flags;
            void (*restorer)(void);
            unsigned long mask;
        } action = {.handler = SIG_DFL};
        c->stage = STAGE_EXEC;
        syscall(SYS_rt_sigaction, SIGPIPE, &action, NULL, sizeof(action.mask)); /* the one that the agent ignores */
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &c->signals, NULL, sizeof(action.mask));
        search_exec(c->s, file);
    }
    c->errnum = errno;
    syscall(SYS_exit, 127);
    return 0;
}

static int spawn_error(const struct child *c, struct err *e)
{
    const struct spawn *s = c->s;
    static const struct {
        int errnum, code;
    } codes[] = {{ENOENT, ERR_NOT_FOUND}, {ENOTDIR, ERR_NOT_FOUND}, {EACCES, ERR_FORBIDDEN},  {EPERM, ERR_FORBIDDEN},
                 {E2BIG, ERR_TOO_LARGE},  {EAGAIN, ERR_LIMIT},      {ENOMEM, ERR_UNAVAILABLE}};
    int code = ERR_INVALID;
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].errnum == c->errnum)
            code = codes[i].code;
    switch (c->stage) {
    case STAGE_CWD:
        return err_errno(e, code, c->errnum, "enter folder \"%.200s\"", s->cwd);
    case STAGE_USER:
        return err_errno(e, code, c->errnum, "become user \"%s\"", s->user->name);
    case STAGE_EXEC:
        return err_errno(e, code, c->errnum, "run \"%.200s\"", s->argv[0]);
    default:
        return err_errno(e, ERR_SYSTEM, c->errnum, "prepare the process for \"%.200s\"", s->argv[0]);
    }
}

int spawn_process(const struct spawn *s, pid_t *ret_pid, struct err *e)
{
    static char *stack;
    if (!stack) {
        void *mem = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        if (mem == MAP_FAILED)
            return err_errno(e, ERR_UNAVAILABLE, errno, "stack for a new process");
        stack = mem;
    }
    if (geteuid() != 0 && s->user->uid != geteuid())
        return err_set(e, ERR_FORBIDDEN, "only root can run a command as \"%s\"", s->user->name);
    /* The child keeps the agent's priority until it is executed, because the agent waits for it; then it gets the usual
     * one, and so does what it may have started in between. */
    struct child c = {.s = s, .raised = getpriority(PRIO_PROCESS, 0) < 0};
    getrlimit(RLIMIT_NOFILE, &c.files); /* the agent's own maximum stays, what programs expect goes on top */
    c.files.rlim_cur = MIN(c.files.rlim_max, (rlim_t)LIMIT_CHILD_FILES);
    sigset_t all, before;
    sigfillset(&all);
    sigemptyset(&c.signals);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pid_t pid = clone(child_main, stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | SIGCHLD, &c);
    int saved = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return err_errno(e, saved == EAGAIN ? ERR_LIMIT : ERR_UNAVAILABLE, saved, "start a process");
    if (c.raised && c.errnum == 0) {
        sched_setscheduler(pid, SCHED_OTHER, &c.scheduling);
        setpriority(PRIO_PROCESS, (id_t)pid, 0);
    }
    if (c.errnum != 0) {
        waitpid(pid, NULL, 0);
        return spawn_error(&c, e);
    }
    *ret_pid = pid;
    return 0;
}

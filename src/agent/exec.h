/* The execs: processes that the host asked for, their input, their kept output, their end.
 *
 *   running ── main process ended ──► lingering ── pipes at their end, or LIMIT_LINGER_MS ──► finished
 *
 * Output goes on being taken while lingering, so that what the process wrote before it ended is complete; what its
 * background children write later is read and thrown away, so that they do not die of it. The exit record stands at
 * the end of the output and is made when finished. A finished exec stays until the host deletes it or room is needed.
 *
 * With a reader attached nothing that it has not taken is dropped: at a full log the pipes are left alone until it has
 * moved on. */
#ifndef SPACE_AGENT_EXEC_H
#define SPACE_AGENT_EXEC_H

#include <sys/resource.h>
#include <uthash.h>

#include "agent/loop.h"
#include "agent/output_log.h"
#include "agent/session.h"
#include "agent/users.h"
#include "wire/wire.h"

#define EXEC_EXIT_MAX 256 /* an exit record's payload */

struct execs;
struct exec;

struct exec_pipe {
    struct loop_source source;
    struct exec *exec;
    int fd; /* -1: at its end, or never there */
    uint8_t kind;
    bool paused, grown;
};

/* One attached reader; its request's ctx. */
struct exec_reader {
    struct request *request;
    struct exec *exec; /* NULL when the exec was deleted */
    uint64_t at;       /* next offset to send */
    uint64_t until;    /* end there although the exec goes on (UINT64_MAX: no) */
    uint8_t head[WIRE_RECORD_HEADER + EXEC_EXIT_MAX];
    size_t head_len, head_at;
    size_t payload_left; /* of the record under way, from the log */
    bool exit_sent;
    LIST_ENTRY(exec_reader) entry;
};

/* One stdin request; its ctx. */
struct exec_feed {
    struct request *request;
    struct exec *exec;
    struct buf pending;
    uint64_t accepted;
    bool eof, ended;
    TAILQ_ENTRY(exec_feed) entry;
};

struct exec {
    struct execs *execs;
    char id[AGENT_EXEC_ID_MAX + 1];
    UT_hash_handle by_id, by_pid;
    TAILQ_ENTRY(exec) entry; /* oldest first */
    pid_t pid;
    bool tty, running, ended, timed_out, linger_over;
    int64_t started_ms;
    struct exec_pipe out[2];
    int stdin_fd;
    struct loop_source stdin_source;
    TAILQ_HEAD(exec_feed_list, exec_feed) feeds;
    LIST_HEAD(, exec_reader) readers;
    size_t reader_count;
    struct output_log log;
    struct loop_timer linger, timeout;
    struct loop_timer gather; /* armed: much comes, so the pipes are left to fill for a moment */
    uint64_t gather_ms;       /* the millisecond of the last reading, and what was read in it */
    size_t gather_bytes;
    int status;
    struct rusage usage;
    int64_t ended_ms;
    uint8_t exit[EXEC_EXIT_MAX]; /* payload of the exit record, once finished */
    size_t exit_len;
};

struct execs {
    struct loop *loop;
    struct exec *by_id, *by_pid;
    TAILQ_HEAD(exec_list, exec) all;
    size_t count, running;
    struct output_budget budget;
    uint64_t oom_kills; /* of the kernel's counter, as last seen */
    int drains;
    int null_fd;
};

/* What to start. The texts belong to the caller. */
struct exec_spec {
    char **argv; /* with a free slot before the first; or NULL and `shell` */
    const char *shell, *user, *cwd;
    char *const *env;      /* NULL-terminated, may be NULL: in addition to the usual ones */
    char *const *base_env; /* the same, weaker */
    bool tty, want_stdin;
    uint16_t rows, cols;
    size_t buffer_bytes;
    uint64_t timeout_ms;
};

int execs_init(struct execs *execs, struct loop *loop, struct err *e);
void execs_done(struct execs *execs);
/* Reap every child that has ended, ours or not. */
void execs_reap(struct execs *execs);

/* ERR_CONFLICT for an id that is known, ERR_LIMIT, and the errors of spawn_process. */
int exec_start(struct execs *execs, const char *id, const struct exec_spec *spec, struct exec **ret_exec,
               struct err *e);
struct exec *exec_find(struct execs *execs, const char *id);
void exec_delete(struct exec *x);
static inline bool exec_finished(const struct exec *x)
{
    return x->exit_len > 0;
}
int exec_signal(struct exec *x, int sig, struct err *e);
int exec_resize(struct exec *x, uint16_t rows, uint16_t cols, struct err *e);
void exec_state_put(const struct exec *x, struct buf *b); /* the fields of one EXEC_STATE */

/* Attach to the output from `from` on. ERR_RANGE beyond the end, ERR_LIMIT. The reader is freed with its request. */
int exec_attach(struct exec *x, struct request *r, uint64_t from, bool follow, struct err *e);
/* Feed the request's body to standard input. ERR_STATE when there is none. */
int exec_feed(struct exec *x, struct request *r, bool eof, struct err *e);

/* For exec_output.c: take output again where it was left alone, if there is room. */
void exec_resume(struct exec *x);

#endif

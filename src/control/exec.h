/* Execs: one command in a sandbox.
 *
 *   reserved ──attach──► running ──exit──► exited
 *      │                    └── sandbox ended, or the agent has forgotten it ──► lost
 *      └── could not be started, or nobody attached in time ──► failed
 *
 * The guest keeps the output. What happens to the command is learnt from a stream of its output while anybody reads,
 * else by asking the agent's list at growing intervals, else (somebody waits for the result) by a stream that starts at
 * the end and throws the bytes away. After a restart the list tells what became of each. */
#ifndef SPACE_CONTROL_EXEC_H
#define SPACE_CONTROL_EXEC_H

#include "control/control.h"
#include "guest/guest.h"
#include "store/exec.h"

/* Write a reserved exec to the store. `spec_json` is the request, checked: {"command":[…] | "shell":"…", "user", "cwd",
 * "env":{}, "stdin":bool, "terminal":{"rows","cols"}, "buffer_bytes", "timeout_ms"}. ERR_STATE, ERR_GONE: the sandbox
 * does not take execs; ERR_LIMIT: too many that have not ended. */
int exec_create(struct control *c, const char *project_id, const char *sandbox_id, const char *spec_json,
                char ret_exec[ID_SIZE], char ret_token[STORE_TOKEN_SIZE], struct err *e);

/* Start it unless it was started. `done` is called once, with an error when it is not running and has not run. */
typedef void (*exec_started_cb)(void *arg, const struct err *e);
void exec_start(struct control *c, const char *project_id, const char *sandbox_id, const char *id, exec_started_cb done,
                void *arg);

/* ---- output ---- */

struct exec_stream;

/* As guest_output_callbacks; `done` is the last call. */
struct exec_stream_callbacks {
    void (*on_started)(void *arg); /* the exec runs or has run: bytes may follow; may be NULL */
    void (*on_data)(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len);
    void (*on_dropped)(void *arg, uint64_t offset, uint64_t count);
    void (*on_exit)(void *arg, uint64_t end_offset, const struct guest_exit *x);
    void (*done)(void *arg, const struct err *e);
};

/* Start the exec if need be and read its output from an offset. Never NULL; callbacks come from the loop. */
struct exec_stream *exec_stream_open(struct control *c, const char *project_id, const char *sandbox_id, const char *id,
                                     uint64_t from, bool follow, const struct exec_stream_callbacks *callbacks,
                                     void *arg);
void exec_stream_consume(struct exec_stream *s, size_t len);
void exec_stream_drop(struct exec_stream *s); /* no callback any more; NULL is fine */

/* ---- the rest ---- */

/* See to it that waiters for this exec (waiter.h, by its id) are woken promptly: to be called after waiter_add. */
void exec_watch(struct control *c, const char *sandbox_id, const char *id);

/* The calls to the guest for a running exec: stdin, signal and resize take this guest. ERR_STATE when it is reserved or
 * has ended. */
struct guest *exec_guest(struct control *c, const char *project_id, const char *sandbox_id, const char *id,
                         struct err *e);

/* Kill it if it runs, and forget it with its output. */
void exec_delete(struct control *c, const char *project_id, const char *sandbox_id, const char *id,
                 exec_started_cb done, void *arg);

/* ---- one call: run, wait, collect ---- */

struct exec_run_result {
    struct guest_exit exit;
    const uint8_t *out, *err;
    size_t out_len, err_len;
    bool truncated;
};
typedef void (*exec_run_cb)(void *arg, const struct exec_run_result *result, const struct err *e);
struct exec_run;

/* Start the exec, give it `input` (NULL: none), collect at most `max_output` bytes of both streams together (what is
 * more is thrown away and `truncated` says so), and call `done` once when it has ended. */
struct exec_run *exec_run_start(struct control *c, const char *project_id, const char *sandbox_id, const char *id,
                                const void *input, size_t input_len, size_t max_output, exec_run_cb done, void *arg);
/* Nobody wants the answer any more: no callback, and the command is killed. NULL is fine. */
void exec_run_drop(struct exec_run *r);

#endif

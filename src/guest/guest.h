/* Typed calls to the agent of one sandbox, over a channel (HTTP/2, see channel/channel.h; the messages are in
 * wire/agent_protocol.h). Everything that comes back is decoded strictly and bounded; what does not fit the protocol is
 * ERR_PROTOCOL for that call. Texts in errors are cut and escaped, and only a fixed set of codes is taken from the
 * guest: what it says never looks like a failure of the host.
 *
 *  - A call returns a handle, never NULL; its `done` callback comes exactly once, from the loop, with a result
 *    (valid during the callback) or an error, and is the last callback of the call. The handle is invalid after.
 *  - What cannot even be started also ends by `done`, from the loop.
 *  - guest_call_cancel calls `done` with ERR_CANCELLED before it returns; guest_call_drop never calls it. After either
 *    no callback comes and the handle is invalid. An answer that arrives later goes nowhere.
 *  - Each call has a deadline from `struct guest_timeouts`; streams have an idle one where silence means a fault.
 *  - Strings given to a call are copied before it returns. Names from the guest are bytes without NUL: not always
 *    UTF-8, never to be used as a path on the host. Times from the guest are shown, never decided by. */
#ifndef SPACE_GUEST_GUEST_H
#define SPACE_GUEST_GUEST_H

#include "channel/channel.h"
#include "wire/agent_protocol.h"

struct guest;
struct guest_call;

/* Milliseconds; zero stands for the default. */
struct guest_timeouts {
    uint32_t simple;      /* one small question, whole: 10,000 */
    uint32_t identity;    /* 10,000 */
    uint32_t exec_start;  /* 30,000 */
    uint32_t response;    /* until the header of a streaming answer: 30,000 */
    uint32_t transfer;    /* file and tar data that do not move: 60,000 */
    uint32_t file_change; /* move, remove (trees), whole: 120,000 */
    uint32_t connect;     /* until a guest port answers: 10,000 */
    uint32_t freeze;      /* sync, freeze, thaw: 15,000 */
    uint32_t bench;       /* 120,000 */
};

struct guest_options {
    struct channel_options channel;
    struct guest_timeouts timeouts;
};

struct guest_callbacks {
    void (*on_ready)(void *arg);                       /* the agent is in step; may be NULL; calls may be made before */
    void (*on_closed)(void *arg, const struct err *e); /* last; `guest` is invalid after; every call is done before */
};

/* `o` may be NULL. As channel_open_path and channel_open_fd. */
int guest_open_path(uv_loop_t *loop, const char *path, const struct guest_options *o,
                    const struct guest_callbacks *callbacks, void *arg, struct guest **ret_guest, struct err *e);
int guest_open_fd(uv_loop_t *loop, int fd, const struct guest_options *o, const struct guest_callbacks *callbacks,
                  void *arg, struct guest **ret_guest, struct err *e);
/* Every open call ends with ERR_CANCELLED, then on_closed comes, from the loop. */
void guest_close(struct guest *g);
bool guest_ready(const struct guest *g);
/* The machine is paused (true) or goes on: deadlines and heartbeats stand still. */
void guest_hold(struct guest *g, bool hold);
struct channel *guest_channel(struct guest *g);

/* --- handles ------------------------------------------------------------------------------------------------------ */

void guest_call_cancel(struct guest_call *call); /* done(ERR_CANCELLED) now */
void guest_call_drop(struct guest_call *call);   /* nothing is called any more */

/* Calls that give data (output, file_get, tar_get, connect): so many bytes of on_data have been passed on. */
void guest_call_consume(struct guest_call *call, size_t len);
/* Calls that take data (stdin, file_put, tar_put, connect): returns how much was taken; less than `len` means that
 * on_drain follows. */
size_t guest_call_write(struct guest_call *call, const void *data, size_t len);
size_t guest_call_writable(const struct guest_call *call);
void guest_call_write_end(struct guest_call *call);

/* Done without a result: `e` is NULL on success. */
typedef void guest_done_cb(void *arg, const struct err *e);

/* --- the agent itself --------------------------------------------------------------------------------------------- */

struct guest_hello {
    uint64_t protocol;
    uint64_t uptime_ms;
    char version[64];
    char boot_id[40];
    char sandbox_id[64];
};
typedef void guest_hello_cb(void *arg, const struct guest_hello *hello, const struct err *e);
struct guest_call *guest_hello(struct guest *g, guest_hello_cb *done, void *arg);

struct guest_identity {
    const void *entropy; /* AGENT_ENTROPY_MIN..MAX bytes */
    size_t entropy_len;
    uint64_t realtime_ns; /* 0: the host's clock at the moment of sending */
    const char *hostname;
    const char *machine_id; /* 32 hexadecimal digits */
    const char *sandbox_id;
    const char *boot_id;    /* uuid */
    const char *const *env; /* KEY=VALUE, NULL-terminated; may be NULL */
};
struct guest_confirm {
    uint64_t realtime_ns; /* the guest's clock after it was set */
};
/* Success means that the agent confirmed this very sandbox id. */
typedef void guest_identity_cb(void *arg, const struct guest_confirm *confirm, const struct err *e);
struct guest_call *guest_identity(struct guest *g, const struct guest_identity *identity, guest_identity_cb *done,
                                  void *arg);

struct guest_metrics {
    uint64_t cpus, cpu_total_us, cpu_idle_us;
    uint64_t load_1_milli, load_5_milli, load_15_milli;
    uint64_t memory_total, memory_available, memory_used; /* bytes */
    uint64_t disk_total, disk_used;                       /* bytes */
    uint64_t processes, execs_running, agent_rss;
};
typedef void guest_metrics_cb(void *arg, const struct guest_metrics *metrics, const struct err *e);
struct guest_call *guest_metrics(struct guest *g, guest_metrics_cb *done, void *arg);

struct guest_call *guest_sync(struct guest *g, guest_done_cb *done, void *arg);
struct guest_call *guest_freeze(struct guest *g, uint32_t thaw_after_ms, guest_done_cb *done, void *arg);
struct guest_call *guest_thaw(struct guest *g, guest_done_cb *done, void *arg);

struct guest_bench_spawn {
    uint64_t mean_ns;
    const uint64_t *each_ns;
    size_t count;
};
typedef void guest_bench_spawn_cb(void *arg, const struct guest_bench_spawn *bench, const struct err *e);
struct guest_call *guest_bench_spawn(struct guest *g, uint32_t n, const char *path /* NULL: /bin/true */,
                                     guest_bench_spawn_cb *done, void *arg);

/* --- execs -------------------------------------------------------------------------------------------------------- */

struct guest_exec_spec {
    const char *const *argv; /* NULL-terminated, or NULL with `shell` set */
    const char *shell;
    const char *user;       /* NULL: the template's default */
    const char *cwd;        /* NULL: the user's home */
    const char *const *env; /* KEY=VALUE, NULL-terminated; may be NULL */
    bool terminal;
    uint16_t rows, cols;   /* of the terminal; 0: 24 × 80 */
    bool stdin_open;       /* else standard input is /dev/null */
    uint64_t buffer_bytes; /* 0: AGENT_BUFFER_DEFAULT */
    uint64_t timeout_ms;   /* 0: none */
};
struct guest_exec_started {
    uint32_t pid;
    int64_t started_ms;
};
typedef void guest_exec_start_cb(void *arg, const struct guest_exec_started *started, const struct err *e);
/* ERR_CONFLICT when the id is in use. `id`: [a-zA-Z0-9_-]{1,64}. */
struct guest_call *guest_exec_start(struct guest *g, const char *id, const struct guest_exec_spec *spec,
                                    guest_exec_start_cb *done, void *arg);

struct guest_exit {
    bool signalled;
    int code;   /* 0..255, when not signalled */
    int signal; /* 1..64, when signalled */
    int64_t started_ms, ended_ms;
    uint64_t user_us, system_us, max_rss_kib;
    uint64_t total_bytes, dropped_bytes;
    bool oom, timed_out;
};

enum guest_output { GUEST_STDOUT = 1, GUEST_STDERR = 2 };

struct guest_output_callbacks {
    /* `offset` is that of the first byte; the next piece starts at offset + len. Acknowledge with guest_call_consume.
     */
    void (*on_data)(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *data, size_t len);
    void (*on_dropped)(void *arg, uint64_t offset, uint64_t count); /* bytes that are gone; may be NULL */
    void (*on_exit)(void *arg, uint64_t end_offset, const struct guest_exit *x);
    /* Success also when `follow` is off and the process runs on (no on_exit then). */
    guest_done_cb *done;
};
/* ERR_RANGE when `from` lies after the end. With `follow` off: what is kept at this moment, and the exit if there was.
 */
struct guest_call *guest_exec_output(struct guest *g, const char *id, uint64_t from, bool follow,
                                     const struct guest_output_callbacks *callbacks, void *arg);

struct guest_stdin_callbacks {
    void (*on_drain)(void *arg);
    void (*done)(void *arg, uint64_t accepted, const struct err *e);
};
/* Data by guest_call_write, end of this piece by guest_call_write_end; with `eof` the exec's standard input is closed
 * after it. */
struct guest_call *guest_exec_stdin(struct guest *g, const char *id, bool eof,
                                    const struct guest_stdin_callbacks *callbacks, void *arg);
struct guest_call *guest_exec_signal(struct guest *g, const char *id, int signal, guest_done_cb *done, void *arg);
struct guest_call *guest_exec_resize(struct guest *g, const char *id, uint16_t rows, uint16_t cols, guest_done_cb *done,
                                     void *arg);
struct guest_call *guest_exec_forget(struct guest *g, const char *id, guest_done_cb *done, void *arg);

struct guest_exec_state {
    char id[AGENT_EXEC_ID_MAX + 1];
    bool running;
    bool terminal;
    uint32_t pid;
    int64_t started_ms;
    uint64_t oldest, end;   /* offsets of what is kept */
    struct guest_exit exit; /* when not running */
};
typedef void guest_exec_state_cb(void *arg, const struct guest_exec_state *state, const struct err *e);
struct guest_call *guest_exec_state(struct guest *g, const char *id, guest_exec_state_cb *done, void *arg);
typedef void guest_exec_list_cb(void *arg, const struct guest_exec_state *execs, size_t count, const struct err *e);
struct guest_call *guest_exec_list(struct guest *g, guest_exec_list_cb *done, void *arg);

/* --- files -------------------------------------------------------------------------------------------------------- */

/* `user` (name or decimal uid) may be NULL in every call: root. Paths are absolute, at most AGENT_PATH_MAX bytes. */

struct guest_file_info {
    uint64_t size; /* of the whole file */
    int64_t mtime_ms;
    uint32_t mode;
};
struct guest_file_get_callbacks {
    void (*on_info)(void *arg, const struct guest_file_info *info); /* before any data */
    void (*on_data)(void *arg, const uint8_t *data, size_t len);    /* acknowledge with guest_call_consume */
    void (*done)(void *arg, uint64_t bytes, const struct err *e);   /* bytes given */
};
/* `length` UINT64_MAX: to the end. ERR_RANGE when `offset` lies after the end. */
struct guest_call *guest_file_get(struct guest *g, const char *path, const char *user, uint64_t offset, uint64_t length,
                                  const struct guest_file_get_callbacks *callbacks, void *arg);

struct guest_put_callbacks {
    void (*on_drain)(void *arg);
    void (*done)(void *arg, uint64_t count, const struct err *e); /* bytes written, or tar entries made */
};
struct guest_file_put {
    const char *path;
    const char *user;
    int mode; /* permission bits; -1: the guest's default */
    bool make_parents;
    bool sync;
};
/* The file appears whole when guest_call_write_end was called and `done` says success; cancelling leaves nothing. */
struct guest_call *guest_file_put(struct guest *g, const struct guest_file_put *put,
                                  const struct guest_put_callbacks *callbacks, void *arg);

struct guest_entry {
    const char *name;   /* opaque bytes, no '/', never "." or ".." */
    const char *target; /* of a symbolic link, else NULL; opaque */
    const char *owner;  /* names, when the guest has them, else NULL */
    const char *group;
    enum agent_file_type type;
    uint32_t mode; /* permission bits */
    uint32_t uid, gid;
    uint64_t size;
    int64_t mtime_ms;
};
/* The name of the entry that stat gives is the last part of the path asked for ("b" of "/a/b/" too), or "/". */
typedef void guest_stat_cb(void *arg, const struct guest_entry *entry, const struct err *e);
struct guest_call *guest_stat(struct guest *g, const char *path, bool follow, const char *user, guest_stat_cb *done,
                              void *arg);
/* Sorted by name as bytes, names after `after` (NULL: from the start); `limit` 1..AGENT_DIR_PAGE_MAX. */
typedef void guest_dir_cb(void *arg, const struct guest_entry *entries, size_t count, bool more, const struct err *e);
struct guest_call *guest_dir(struct guest *g, const char *path, const char *after, uint32_t limit, const char *user,
                             guest_dir_cb *done, void *arg);
struct guest_call *guest_mkdir(struct guest *g, const char *path, bool parents, int mode, const char *user,
                               guest_done_cb *done, void *arg);
struct guest_call *guest_move(struct guest *g, const char *from, const char *to, bool replace, const char *user,
                              guest_done_cb *done, void *arg);
struct guest_call *guest_remove(struct guest *g, const char *path, bool recursive, const char *user,
                                guest_done_cb *done, void *arg);
struct guest_attributes {
    int mode;          /* -1: unchanged */
    const char *owner; /* name or number; NULL: unchanged */
    const char *group;
};
struct guest_call *guest_attributes(struct guest *g, const char *path, const struct guest_attributes *attributes,
                                    const char *user, guest_done_cb *done, void *arg);

/* A pax archive of the folder; on_info is not called. */
struct guest_call *guest_tar_get(struct guest *g, const char *path, const char *user,
                                 const struct guest_file_get_callbacks *callbacks, void *arg);
struct guest_call *guest_tar_put(struct guest *g, const char *path, const char *user,
                                 const struct guest_put_callbacks *callbacks, void *arg);

struct guest_watch_event {
    enum agent_watch_event type;
    bool is_dir;
    const char *path; /* relative to what is watched, "" for itself; opaque */
    const char *to;   /* of a move, else NULL */
};
struct guest_watch_callbacks {
    /* Events are consumed by themselves; an owner that cannot keep up drops the call. */
    void (*on_event)(void *arg, const struct guest_watch_event *event);
    guest_done_cb *done;
};
struct guest_call *guest_watch(struct guest *g, const char *path, bool recursive, const char *user,
                               const struct guest_watch_callbacks *callbacks, void *arg);

/* --- ports -------------------------------------------------------------------------------------------------------- */

struct guest_connect_callbacks {
    void (*on_open)(void *arg);                                  /* the port took the connection; may be NULL */
    void (*on_data)(void *arg, const uint8_t *data, size_t len); /* acknowledge with guest_call_consume */
    void (*on_read_end)(void *arg);                              /* the guest will send no more; may be NULL */
    void (*on_drain)(void *arg);
    guest_done_cb *done; /* both directions have ended, or an error */
};
/* Bytes may be written before on_open. ERR_UNAVAILABLE when nothing listens on the port. */
struct guest_call *guest_connect(struct guest *g, uint16_t port, const struct guest_connect_callbacks *callbacks,
                                 void *arg);

#endif

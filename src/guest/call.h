/* What all calls share: from the request to the one `done` (see guest.h). Not for use outside this folder.
 *
 * A call is in the guest's `calls` from its start until call_finish or call_detach. What a kind of call does with the
 * answer is in its `struct call_kind`; `finish` decodes what was collected and calls the owner. Around every callback
 * to the owner stands call_enter / call_leave: the owner may cancel or drop the call in it, which is then freed when
 * the outermost one leaves, so after a callback `call->gone` is looked at before anything else. */
#ifndef SPACE_GUEST_CALL_H
#define SPACE_GUEST_CALL_H

#include <sys/queue.h>

#include "guest/guest.h"
#include "guest/record.h"

TAILQ_HEAD(call_list, guest_call);

struct guest {
    struct channel *channel; /* NULL when it has closed */
    uv_prepare_t prepare;    /* runs while `unstarted` has a call */
    struct guest_timeouts timeouts;
    const struct guest_callbacks *callbacks;
    void *arg;
    struct call_list calls;     /* under way */
    struct call_list unstarted; /* could not be started: `done` is to come */
    uint64_t serial;            /* of the newest call */
    struct err closed_why;
};

struct call_kind {
    int success; /* the status that means it; others below 400 are out of protocol */
    /* A successful answer has begun; may be NULL. */
    void (*begin)(struct guest_call *call, const struct channel_header *headers, size_t count);
    /* Bytes of a successful answer; NULL: they are collected in `body`. */
    void (*data)(struct guest_call *call, const uint8_t *data, size_t len);
    void (*read_end)(struct guest_call *call); /* may be NULL */
    void (*drain)(struct guest_call *call);    /* may be NULL */
    /* The last one, exactly once: call the owner's `done`. `e` NULL: the answer came whole and `body` is complete. */
    void (*finish)(struct guest_call *call, const struct err *e);
};

struct guest_call {
    struct guest *guest;
    TAILQ_ENTRY(guest_call) link;
    const struct call_kind *kind;
    struct channel_stream *stream; /* NULL: not started, or ended */
    void *arg;
    uint64_t serial;
    bool unstarted;
    bool gone; /* nothing is called any more */
    unsigned depth;
    struct err failure; /* of an unstarted call */

    int status;
    int error_code; /* of an answer that says no */
    struct buf body;

    union {
        guest_done_cb *plain;
        guest_hello_cb *hello;
        guest_identity_cb *identity;
        guest_metrics_cb *metrics;
        guest_bench_spawn_cb *bench;
        guest_exec_start_cb *exec_start;
        guest_exec_state_cb *exec_state;
        guest_exec_list_cb *exec_list;
        guest_stat_cb *stat;
        guest_dir_cb *dir;
    } done;
    union {
        struct guest_output_callbacks output;
        struct guest_stdin_callbacks in;
        struct guest_file_get_callbacks get;
        struct guest_put_callbacks put;
        struct guest_watch_callbacks watch;
        struct guest_connect_callbacks connect;
    } cb;
    struct record_reader records;   /* exec_output, watch */
    char id[AGENT_EXEC_ID_MAX + 1]; /* what the answer must be about: exec id, sandbox id */
    char *after;                    /* dir: names must sort after it */
    char *name;                     /* stat: what the entry is called */
    uint64_t expected;              /* exec_output: offset of the next record; file_get: bytes that may come */
    uint64_t moved;                 /* bytes given to or taken from the owner */
    uint32_t limit;                 /* dir: entries asked for */
    bool follow;
    bool exited;
    bool opened;
};

/* A call of this kind that is not started yet. */
struct guest_call *call_new(struct guest *g, const struct call_kind *kind, void *arg);
/* Send it; what fails ends by `finish` from the loop. `target` must be complete (no overflow). Returns `call`. */
struct guest_call *call_start(struct guest_call *call, struct channel_request *r, struct buf *target);
/* It cannot be sent: `finish` comes from the loop with this error. Returns `call`. */
struct guest_call *call_refuse(struct guest_call *call, int code, const char *format, ...) ATTR_PRINTF(3, 4);
void call_finish(struct guest_call *call, const struct err *e);
/* As call_finish with an error, giving up the stream. */
void call_break(struct guest_call *call, int code, const char *format, ...) ATTR_PRINTF(3, 4);
void call_enter(struct guest_call *call);
void call_leave(struct guest_call *call);
/* End the calls that could not start, up to this serial: not those that are made meanwhile. */
void call_unstarted_flush(struct guest *g, uint64_t serial);

/* Targets: a path, then name=value pairs with percent-encoding. */
#define TARGET_MAX (16u * 1024)
void target_text(struct buf *target, const char *name, const char *value); /* NULL leaves it out */
void target_number(struct buf *target, const char *name, uint64_t value);
void target_octal(struct buf *target, const char *name, int value); /* negative leaves it out */
void target_flag(struct buf *target, const char *name, bool value); /* false leaves it out */

/* A finish for answers that say nothing but yes. */
void call_finish_plain(struct guest_call *call, const struct err *e);
struct guest_call *call_simple(struct guest *g, const char *method, struct buf *target, uint32_t timeout_ms,
                               guest_done_cb *done, void *arg);

#endif

/* What host and guest agent say to each other over the port `space.agent`: the one place for its paths, names, tags
 * and the limits that both sides know.
 *
 * Start of a session: the host writes a prelude of 32 bytes (magic, nonce). The agent drops whatever session it had,
 * answers with the same 32 bytes and is a fresh HTTP/2 server (prior knowledge, the client's connection preface comes
 * next). The host discards everything up to that answer. Without an answer it may write AGENT_RESYNC_FLUSH zero bytes
 * and the same prelude again: a frame that a former host left unfinished swallows no more than that. One nonce is
 * answered once; the host begins HTTP/2 only after the answer. On any breach of protocol, and when the host side of the
 * port closes, the agent returns to looking for a prelude; processes and their kept output stay.
 *
 * A request is a method and a path whose query values are percent-encoded; bodies are raw bytes or one message of
 * fields (wire.h). Success is 200 (201 for a new exec). An error has the HTTP status of its code, a header
 * `space-error: <name of the code in base/err.h>` and a body of UTF-8 text, at most AGENT_ERROR_TEXT_MAX bytes. */
#ifndef SPACE_WIRE_AGENT_PROTOCOL_H
#define SPACE_WIRE_AGENT_PROTOCOL_H

#define AGENT_PROTOCOL_VERSION 1

/* Names of the ports: /dev/virtio-ports/… has no udev in the guest, the agent reads /sys/class/virtio-ports. */
#define AGENT_PORT_NAME "space.agent"
#define EGRESS_PORT_NAME "space.egress"

/* What the agent prints on the kernel's console when it serves. */
#define AGENT_READY_LINE "space-agent: ready"

/* --- session start ------------------------------------------------------------------------------------------------ */

#define AGENT_PRELUDE_MAGIC "SPACE-AGENT-v1\r\n" /* 16 bytes, then AGENT_NONCE_SIZE random bytes */
#define AGENT_MAGIC_SIZE 16
#define AGENT_NONCE_SIZE 16
#define AGENT_PRELUDE_SIZE (AGENT_MAGIC_SIZE + AGENT_NONCE_SIZE)
#define AGENT_RESYNC_DISCARD_MAX (16 * 1024 * 1024) /* bytes before the answer that the host throws away at most */
#define AGENT_RESYNC_FLUSH (AGENT_FRAME_MAX + 9)

/* Raw throughput of the port, for measurements: magic, u64 count (network byte order), u8 direction. The agent sends
 * or swallows that many bytes; having swallowed them it answers with one byte AGENT_RAW_DONE. Then it looks for a
 * prelude again. */
#define AGENT_RAW_MAGIC "SPACE-RAW-TEST1\n"
#define AGENT_RAW_PRELUDE_SIZE (AGENT_MAGIC_SIZE + 9)
#define AGENT_RAW_TO_HOST 0
#define AGENT_RAW_TO_GUEST 1
#define AGENT_RAW_DONE 0x2e

/* --- limits that both sides know ---------------------------------------------------------------------------------- */

#define AGENT_STREAM_WINDOW (1024 * 1024)
#define AGENT_CONNECTION_WINDOW (4 * 1024 * 1024)
#define AGENT_FRAME_MAX (64 * 1024)
#define AGENT_STREAMS_MAX 256
#define AGENT_HEADER_LIST_MAX (16 * 1024)
#define AGENT_BODY_MAX (256 * 1024) /* a body of fields; raw bodies are streamed without an end */
#define AGENT_ERROR_TEXT_MAX 512

#define AGENT_EXECS_MAX 1024         /* known at one time, running and finished */
#define AGENT_EXEC_ID_MAX 64         /* [a-zA-Z0-9_-]+ */
#define AGENT_ARGS_MAX 1024          /* of argv, and again of env */
#define AGENT_BUFFER_MIN (64 * 1024) /* output kept of one exec */
#define AGENT_BUFFER_DEFAULT (4 * 1024 * 1024)
#define AGENT_BUFFER_MAX (64 * 1024 * 1024)
#define AGENT_RECORD_MAX (256 * 1024) /* payload of one record */
#define AGENT_PATH_MAX 4095
#define AGENT_DIR_PAGE_MAX 1000
#define AGENT_ENTROPY_MIN 64
#define AGENT_ENTROPY_MAX 1024
#define AGENT_FREEZE_MAX_MS 10000
#define AGENT_WATCHES_MAX 4096 /* folders under one recursive watch */
#define AGENT_BENCH_SPAWN_MAX 1000

/* --- headers ------------------------------------------------------------------------------------------------------ */

#define AGENT_HEADER_ERROR "space-error"
#define AGENT_HEADER_SIZE "space-size"      /* of the whole file, decimal */
#define AGENT_HEADER_MTIME "space-mtime-ms" /* decimal, may be negative */
#define AGENT_HEADER_MODE "space-mode"      /* permission bits, octal, four digits */

/* --- paths -------------------------------------------------------------------------------------------------------- */

#define AGENT_PATH_HELLO "/v1/hello"       /* GET → HELLO_* */
#define AGENT_PATH_IDENTITY "/v1/identity" /* POST IDENTITY_* → IDENTITY_CONFIRM_* */
/* GET → EXEC_STATE of each. Below it: POST /<id> EXEC_* → 201 EXEC_STARTED_*; GET /<id> → EXEC_STATE_*; DELETE /<id>
 * kills a running group and forgets; GET /<id>/output?from=&follow= → records (may be
 * asked for before the POST of the same id is answered: one round trip less); POST /<id>/stdin?eof= raw body →
 * STDIN_ACCEPTED; POST /<id>/signal?sig=; POST /<id>/resize?rows=&cols= */
#define AGENT_PATH_EXECS "/v1/execs"
#define AGENT_SUB_OUTPUT "output"
#define AGENT_SUB_STDIN "stdin"
#define AGENT_SUB_SIGNAL "signal"
#define AGENT_SUB_RESIZE "resize"
#define AGENT_PATH_FILE                                                                                                \
    "/v1/file" /* GET path offset length user; PUT path mode make_parents sync user; DELETE path recursive user */
#define AGENT_PATH_STAT "/v1/stat"                 /* GET path follow user → ENTRY_* */
#define AGENT_PATH_DIR "/v1/dir"                   /* GET path after limit user → DIR_ENTRY*, DIR_MORE */
#define AGENT_PATH_MKDIR "/v1/mkdir"               /* POST path parents mode user */
#define AGENT_PATH_MOVE "/v1/move"                 /* POST from to replace user */
#define AGENT_PATH_ATTR "/v1/attr"                 /* POST path mode owner group user */
#define AGENT_PATH_TAR "/v1/tar"                   /* GET path user → pax archive; PUT path user: extract */
#define AGENT_PATH_WATCH "/v1/watch"               /* GET path recursive user → records of WATCH_* */
#define AGENT_PATH_METRICS "/v1/metrics"           /* GET → METRICS_* */
#define AGENT_PATH_SYNC "/v1/sync"                 /* POST */
#define AGENT_PATH_FREEZE "/v1/freeze"             /* POST timeout_ms (at most AGENT_FREEZE_MAX_MS, also the default) */
#define AGENT_PATH_THAW "/v1/thaw"                 /* POST */
#define AGENT_PATH_BENCH_SPAWN "/v1/bench/spawn"   /* POST n path → BENCH_* */
#define AGENT_PATH_BENCH_SOURCE "/v1/bench/source" /* GET bytes → that many zero bytes */
#define AGENT_PATH_BENCH_SINK "/v1/bench/sink"     /* PUT → BENCH_BYTES */
/* CONNECT with :authority 127.0.0.1:<port> → 200, then bytes both ways; END_STREAM is the half close. */

/* --- query names -------------------------------------------------------------------------------------------------- */

#define AGENT_QUERY_PATH "path" /* absolute */
#define AGENT_QUERY_USER "user" /* name or decimal uid; absent: root */
#define AGENT_QUERY_OFFSET "offset"
#define AGENT_QUERY_LENGTH "length"
#define AGENT_QUERY_MODE "mode"   /* octal */
#define AGENT_QUERY_OWNER "owner" /* name or number */
#define AGENT_QUERY_GROUP "group"
#define AGENT_QUERY_MAKE_PARENTS "make_parents" /* flags are 0 or 1 */
#define AGENT_QUERY_PARENTS "parents"
#define AGENT_QUERY_SYNC "sync"
#define AGENT_QUERY_FOLLOW                                                                                             \
    "follow"                      /* output: 0 ends at what is kept at this moment; stat: follow a last symbolic link */
#define AGENT_QUERY_AFTER "after" /* name of the last entry of the page before */
#define AGENT_QUERY_LIMIT "limit"
#define AGENT_QUERY_FROM "from" /* output: offset; move: path */
#define AGENT_QUERY_TO "to"
#define AGENT_QUERY_REPLACE "replace"
#define AGENT_QUERY_RECURSIVE "recursive"
#define AGENT_QUERY_EOF "eof"
#define AGENT_QUERY_SIGNAL "sig"
#define AGENT_QUERY_ROWS "rows"
#define AGENT_QUERY_COLS "cols"
#define AGENT_QUERY_TIMEOUT "timeout_ms"
#define AGENT_QUERY_N "n"
#define AGENT_QUERY_BYTES "bytes"

/* --- records ------------------------------------------------------------------------------------------------------ */

/* Types of the records of an exec's output. Offsets count stdout and stderr bytes together in the order in which they
 * arrived; a reader that has taken a record goes on from offset + length. Types that are not known are passed over. */
enum agent_record {
    AGENT_RECORD_STDOUT = 1, /* also everything from a terminal */
    AGENT_RECORD_STDERR = 2,
    AGENT_RECORD_EXIT = 3,    /* last; offset: end of the output; payload EXIT_* */
    AGENT_RECORD_DROPPED = 4, /* payload u64 count: the bytes from offset to offset + count are gone */
    AGENT_RECORD_KEEPALIVE = 5,
    AGENT_RECORD_WATCH = 6, /* payload WATCH_*; offset counts events */
};

/* --- tags --------------------------------------------------------------------------------------------------------- */

/* A tag has one meaning in all messages. A comment with (*) marks a field that repeats. Times are milliseconds since
 * 1970, `_US` microseconds, flags 0 or 1. */
enum agent_tag {
    /* GET /v1/hello */
    AGENT_TAG_HELLO_PROTOCOL = 0x0101,
    AGENT_TAG_HELLO_VERSION = 0x0102, /* text */
    AGENT_TAG_HELLO_UPTIME_MS = 0x0103,
    AGENT_TAG_HELLO_BOOT_ID = 0x0104,    /* text, uuid */
    AGENT_TAG_HELLO_SANDBOX_ID = 0x0105, /* text, empty before the first identity */

    /* POST /v1/identity */
    AGENT_TAG_IDENTITY_ENTROPY = 0x0201,     /* bytes */
    AGENT_TAG_IDENTITY_REALTIME_NS = 0x0202, /* wall clock of the host */
    AGENT_TAG_IDENTITY_HOSTNAME = 0x0203,
    AGENT_TAG_IDENTITY_MACHINE_ID = 0x0204, /* 32 hexadecimal digits */
    AGENT_TAG_IDENTITY_SANDBOX_ID = 0x0205,
    AGENT_TAG_IDENTITY_BOOT_ID = 0x0206, /* uuid */
    AGENT_TAG_IDENTITY_ENV = 0x0207,     /* (*) KEY=VALUE, for every exec */
    /* answer */
    AGENT_TAG_CONFIRM_SANDBOX_ID = 0x0211,
    AGENT_TAG_CONFIRM_REALTIME_NS = 0x0212, /* read back after the clock was set */
    AGENT_TAG_CONFIRM_OK = 0x0213,

    /* POST /v1/execs/<id>: ARG+ or SHELL */
    AGENT_TAG_EXEC_ARG = 0x0301,   /* (*) */
    AGENT_TAG_EXEC_SHELL = 0x0302, /* text for /bin/bash -c */
    AGENT_TAG_EXEC_USER = 0x0303,  /* name or decimal uid; absent: `user`, else root */
    AGENT_TAG_EXEC_CWD = 0x0304,   /* absent: the user's home */
    AGENT_TAG_EXEC_ENV = 0x0305,   /* (*) KEY=VALUE */
    AGENT_TAG_EXEC_TTY = 0x0306,   /* flag */
    AGENT_TAG_EXEC_ROWS = 0x0307,
    AGENT_TAG_EXEC_COLS = 0x0308,
    AGENT_TAG_EXEC_STDIN = 0x0309, /* flag; without it standard input is /dev/null */
    AGENT_TAG_EXEC_BUFFER = 0x030a,
    AGENT_TAG_EXEC_TIMEOUT_MS = 0x030b, /* the group is killed after it; 0 or absent: never */
    /* answer */
    AGENT_TAG_STARTED_PID = 0x0311,
    AGENT_TAG_STARTED_AT_MS = 0x0312,
    /* GET /v1/execs/<id>; in the list each exec is one EXEC_STATE with these inside */
    AGENT_TAG_EXEC_STATE = 0x0320, /* (*) nested */
    AGENT_TAG_STATE_ID = 0x0321,
    AGENT_TAG_STATE_RUNNING = 0x0322, /* flag */
    AGENT_TAG_STATE_PID = 0x0323,
    AGENT_TAG_STATE_STARTED_MS = 0x0324,
    AGENT_TAG_STATE_OLDEST = 0x0325, /* offset of the oldest byte kept */
    AGENT_TAG_STATE_END = 0x0326,    /* offset of the end so far */
    AGENT_TAG_STATE_TTY = 0x0327,
    AGENT_TAG_STATE_EXIT = 0x0328, /* nested EXIT_*, when it has ended */
    /* payload of an exit record: CODE or SIGNAL */
    AGENT_TAG_EXIT_CODE = 0x0331,
    AGENT_TAG_EXIT_SIGNAL = 0x0332,
    AGENT_TAG_EXIT_STARTED_MS = 0x0333,
    AGENT_TAG_EXIT_ENDED_MS = 0x0334,
    AGENT_TAG_EXIT_USER_US = 0x0335,
    AGENT_TAG_EXIT_SYSTEM_US = 0x0336,
    AGENT_TAG_EXIT_MAX_RSS_KIB = 0x0337,
    AGENT_TAG_EXIT_TOTAL_BYTES = 0x0338,
    AGENT_TAG_EXIT_DROPPED_BYTES = 0x0339,
    AGENT_TAG_EXIT_OOM = 0x033a,       /* flag: the kernel's out-of-memory killer ended it */
    AGENT_TAG_EXIT_TIMED_OUT = 0x033b, /* flag: killed by timeout_ms */
    /* POST …/stdin */
    AGENT_TAG_STDIN_ACCEPTED = 0x0341, /* bytes taken; fewer than sent when the reader of the pipe is gone */

    /* GET /v1/stat; each DIR_ENTRY has the same inside */
    AGENT_TAG_ENTRY_NAME = 0x0401, /* bytes as the file system has them */
    AGENT_TAG_ENTRY_TYPE = 0x0402, /* AGENT_FILE_* */
    AGENT_TAG_ENTRY_MODE = 0x0403, /* permission bits */
    AGENT_TAG_ENTRY_UID = 0x0404,
    AGENT_TAG_ENTRY_GID = 0x0405,
    AGENT_TAG_ENTRY_SIZE = 0x0406,
    AGENT_TAG_ENTRY_MTIME_MS = 0x0407,
    AGENT_TAG_ENTRY_TARGET = 0x0408, /* of a symbolic link */
    AGENT_TAG_ENTRY_OWNER = 0x0409,  /* names, when the guest has them */
    AGENT_TAG_ENTRY_GROUP = 0x040a,
    AGENT_TAG_DIR_ENTRY = 0x0411,   /* (*) nested, sorted by name as bytes */
    AGENT_TAG_DIR_MORE = 0x0412,    /* flag: ask again with after=<last name> */
    AGENT_TAG_FILE_SIZE = 0x0421,   /* PUT /v1/file: bytes written */
    AGENT_TAG_TAR_ENTRIES = 0x0431, /* PUT /v1/tar: entries made */

    /* payload of a watch record */
    AGENT_TAG_WATCH_EVENT = 0x0501, /* AGENT_WATCH_* */
    AGENT_TAG_WATCH_PATH = 0x0502,  /* relative to the watched path; empty: itself */
    AGENT_TAG_WATCH_TO = 0x0503,    /* of a move: the path after it */
    AGENT_TAG_WATCH_IS_DIR = 0x0504,

    /* GET /v1/metrics */
    AGENT_TAG_METRICS_CPU_TOTAL_US = 0x0601, /* all processors since boot */
    AGENT_TAG_METRICS_CPU_IDLE_US = 0x0602,  /* idle and waiting for disk */
    AGENT_TAG_METRICS_LOAD_1_MILLI = 0x0603, /* load average × 1000 */
    AGENT_TAG_METRICS_LOAD_5_MILLI = 0x0604,
    AGENT_TAG_METRICS_LOAD_15_MILLI = 0x0605,
    AGENT_TAG_METRICS_MEMORY_TOTAL = 0x0606, /* bytes */
    AGENT_TAG_METRICS_MEMORY_AVAILABLE = 0x0607,
    AGENT_TAG_METRICS_MEMORY_USED = 0x0608,
    AGENT_TAG_METRICS_DISK_TOTAL = 0x0609,
    AGENT_TAG_METRICS_DISK_USED = 0x060a,
    AGENT_TAG_METRICS_PROCESSES = 0x060b,
    AGENT_TAG_METRICS_EXECS_RUNNING = 0x060c,
    AGENT_TAG_METRICS_CPUS = 0x060d,
    AGENT_TAG_METRICS_AGENT_RSS = 0x060e, /* bytes, of the agent itself */

    /* bench */
    AGENT_TAG_BENCH_MEAN_NS = 0x0701, /* fork, exec and wait */
    AGENT_TAG_BENCH_EACH_NS = 0x0702, /* (*) */
    AGENT_TAG_BENCH_BYTES = 0x0711,   /* swallowed by the sink */
};

enum agent_file_type {
    AGENT_FILE_REGULAR = 1,
    AGENT_FILE_DIRECTORY = 2,
    AGENT_FILE_SYMLINK = 3,
    AGENT_FILE_FIFO = 4,
    AGENT_FILE_SOCKET = 5,
    AGENT_FILE_CHARACTER = 6,
    AGENT_FILE_BLOCK = 7,
};

enum agent_watch_event {
    AGENT_WATCH_CREATE = 1,
    AGENT_WATCH_MODIFY = 2,
    AGENT_WATCH_REMOVE = 3,
    AGENT_WATCH_MOVE = 4, /* inside the watched tree; into it: create, out of it: remove */
    AGENT_WATCH_ATTRIB = 5,
    AGENT_WATCH_OVERFLOW = 6, /* events were lost: look at the tree again */
    AGENT_WATCH_READY = 7,    /* first record: everything after this moment is reported */
};

#endif

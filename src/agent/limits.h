/* Every limit of the guest agent. Those that the host knows too stand in wire/agent_protocol.h. */
#ifndef SPACE_AGENT_LIMITS_H
#define SPACE_AGENT_LIMITS_H

#include "wire/agent_protocol.h"

/* Port and session. */
#define LIMIT_IN_BUFFER (64 * 1024)
#define LIMIT_OUT_BUFFER (512 * 1024)   /* at least one frame of AGENT_FRAME_MAX */
#define LIMIT_ROUND_BYTES (1024 * 1024) /* moved over the port before other events get their turn */
#define LIMIT_BODY_WINDOW (256 * 1024)  /* sent unasked into one request: what a stalled stdin can hold */
#define LIMIT_QUERY_PARAMS 16
#define LIMIT_REPLY_HEADERS 4
#define LIMIT_SESSION_YOUNG_MS 1000 /* a session younger than this may belong to a host not yet announced */
#define LIMIT_SESSION_DOUBT_MS 100

/* Execs. */
#define LIMIT_OUTPUT_TOTAL (64 * 1024 * 1024) /* memory of all output logs; an eighth of the RAM if that is less */
#define LIMIT_READ_CHUNK (64 * 1024)
#define LIMIT_READ_ROUND (256 * 1024)  /* from one pipe before other events get their turn */
#define LIMIT_PIPE_BYTES (1024 * 1024) /* of a pipe that proved busy */
#define LIMIT_GATHER_BYTES (4 * 1024)  /* read within a millisecond: output is gathered for LIMIT_GATHER_MS */
#define LIMIT_GATHER_MS 1
#define LIMIT_OUTPUT_RUNS (64 * 1024) /* changes between stdout and stderr that one log remembers */
#define LIMIT_READERS 16              /* attached to one exec */
#define LIMIT_LINGER_MS 100           /* for output of background children after the main process ended */
#define LIMIT_DRAINS 256              /* pipes held open only for background children */
#define LIMIT_ARG_BYTES (128 * 1024)  /* one argument or variable: the kernel's own maximum */
#define LIMIT_CHILD_FILES 1024        /* soft; the hard one is LIMIT_FILES_HARD */
#define AGENT_NICE (-10)              /* what it starts has 0 */
#define LIMIT_FILES 65536             /* the agent's own */
#define LIMIT_FILES_HARD (1024 * 1024)

/* Users. */
#define LIMIT_USER_NAME 64
#define LIMIT_USER_HOME 256
#define LIMIT_GROUPS 64
#define LIMIT_PASSWD_BYTES (1024 * 1024)

/* Files. */
#define LIMIT_WORKERS 6 /* threads for what can block */
#define LIMIT_WORKER_STACK (256 * 1024)
#define LIMIT_WORKER_IDLE_MS 2000
#define LIMIT_JOBS 512                  /* waiting for a worker */
#define LIMIT_PSEUDO_FILE (1024 * 1024) /* of a file that does not say its size (/proc) */
#define LIMIT_TREE_DEPTH 256            /* folders within folders */
#define LIMIT_LINK_HOPS 16
#define LIMIT_DIR_REPLY (768 * 1024)     /* bytes of one page of a folder */
#define LIMIT_TARS 3                     /* archives under way */
#define LIMIT_TAR_EXTENDED (64 * 1024)   /* one extended header of an archive */
#define LIMIT_WATCHES 32                 /* watch streams */
#define LIMIT_WATCH_PENDING (256 * 1024) /* events not yet sent: more is an overflow event */
#define LIMIT_WATCH_PAIR_MS 20           /* for the second half of a move */
#define LIMIT_TCP_BUFFER (64 * 1024)

#endif

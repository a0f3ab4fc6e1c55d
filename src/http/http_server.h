/* The HTTP/1.1 server: libmicrohttpd driven from a libuv loop. Offers: http_server.h (start, listen, stop, limits,
 * counters), http_request.h (requests and answers), router.h (tables of routes, queries), problem.h (errors as
 * problem details), sse.h (Server-Sent Events), http_tunnel.h (raw upgraded connections), websocket.h.
 * It knows nothing of sandboxes, keys or JSON shapes: authority and logging come in by hooks. */
#ifndef SPACE_HTTP_HTTP_SERVER_H
#define SPACE_HTTP_HTTP_SERVER_H

#include "base/buf.h"
#include "base/err.h"
#include "http/http_request.h"
#include "http/router.h"

#define HTTP_LATER 1 /* of the authorize hook: http_request_proceed or an answer will follow */

/* One finished request. */
struct http_log_entry {
    const char *request_id;
    const char *method;
    const char *path; /* without query: queries may hold tokens */
    const char *remote;
    int status;         /* 0: no answer was begun */
    uint64_t bytes_out; /* of the body */
    uint64_t bytes_in;  /* of the body */
    uint64_t duration_us;
    bool aborted;
};

/* 0 in a field means its default. */
struct http_options {
    const struct http_route *routes;
    size_t route_count;
    void *handler_arg;

    size_t header_max;                /* 32 KiB: request line and headers together */
    uint64_t json_max;                /* 1 MiB */
    size_t output_max;                /* 256 KiB: output buffer of one stream */
    size_t connections_max;           /* 1024 */
    size_t connections_per_address;   /* 256; Unix sockets are not counted by address */
    uint64_t requests_per_connection; /* 0: no limit; the last one is answered with "Connection: close" */
    uint64_t idle_ms;                 /* 60 s between requests of a connection */
    uint64_t header_ms;               /* 10 s from the first byte to the end of the headers */
    uint64_t body_stall_ms;           /* 30 s without a byte of a body that is being read */
    uint64_t write_stall_ms;          /* 60 s without a byte of an answer being taken */

    /* Decides before the body is read and the handler runs. 0: go on; negative: refused with that error; HTTP_LATER. */
    int (*authorize)(struct http_request *r, void *arg, struct err *e);
    /* Another path for a request by its Host (http_host_port): write it to ret_path and return true. */
    bool (*on_host)(void *arg, const char *host, const char *path, struct buf *ret_path);
    /* Access log. */
    void (*on_log)(void *arg, const struct http_log_entry *entry);
    /* The full text of an error whose detail was hidden from the client. */
    void (*on_error)(void *arg, const char *request_id, const struct err *error);
    void *hook_arg;
};

struct http_stats {
    uint64_t requests_total;
    uint64_t by_class[6]; /* [2]: answers 2xx, …; [0]: none begun */
    uint64_t aborted;
    uint64_t bytes_in, bytes_out; /* of bodies */
    uint64_t connections_accepted;
    uint64_t connections_refused; /* over a limit */
    uint64_t timeouts;            /* slow-client deadlines that passed */
    size_t connections;           /* open */
    size_t requests_running;
    size_t upgraded; /* open WebSockets and tunnels */
};

/* Make a server on a loop; it serves once it listens. ERR_INVALID (routes), ERR_SYSTEM. */
int http_server_new(uv_loop_t *loop, const struct http_options *options, struct http_server **ret_server,
                    struct err *e);

/* Listen on a TCP address ("127.0.0.1", "::1", "0.0.0.0"; no names are resolved). Port 0 takes a free one;
 * *ret_port (may be NULL) tells which. May be called several times. */
int http_server_listen_tcp(struct http_server *server, const char *address, uint16_t port, uint16_t *ret_port,
                           struct err *e);
/* Listen on a Unix socket, made with `mode`. A socket file left over by a dead process is replaced; a live one is
 * ERR_CONFLICT. The file is removed when the server stops. */
int http_server_listen_unix(struct http_server *server, const char *path, mode_t mode, struct err *e);
/* Listen on a socket that is already bound and listening (socket activation); owned by the server from then on. */
int http_server_listen_fd(struct http_server *server, int fd, struct err *e);

void http_server_stats(const struct http_server *server, struct http_stats *ret_stats);

/* Stop: closes the listeners, ends idle connections, waits up to grace_ms for running requests, cuts the rest
 * (on_abort with HTTP_ABORT_SHUTDOWN), frees everything; then `on_stopped` (may be NULL). */
void http_server_stop(struct http_server *server, uint64_t grace_ms, void (*on_stopped)(void *arg), void *arg);

#endif

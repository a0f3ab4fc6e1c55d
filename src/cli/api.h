/* The HTTP client: libcurl on one multi handle, so that calls and streams share kept-alive connections and run side by
 * side. Errors of the server (problem details) come back as project codes with their detail as text. */
#ifndef SPACE_CLI_API_H
#define SPACE_CLI_API_H

#include <curl/curl.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

struct api;

/* `url`: "unix:/path" or "http://host:port" or https, without a path or with one that is put before every path. `key`
 * may be NULL. */
int api_open(const char *url, const char *key, struct api **ret_api, struct err *e);
void api_close(struct api *api);
const char *api_url(const struct api *api);

/* One exchange. Zero-initialise, set what is needed, api_start, then api_work and
 * api_wait until `done`; then api_finish. api_run does the first three. */
struct transfer {
    const char *method; /* NULL: GET */
    const char *path;   /* with query, percent-encoded */
    const json_t *json; /* body; borrowed */
    const void *data;   /* or a body in memory; borrowed */
    size_t data_len;
    /* or a body that is asked for: ≥ 0 bytes, 0 at its end, negative to give up */
    ssize_t (*read)(void *arg, void *data, size_t len);
    int64_t read_len; /* its size, or -1 for chunked */
    const char *content_type;
    /* An answer of class 2 goes here as it comes; without it, into `body`. Non-zero gives up. */
    int (*write)(void *arg, const void *data, size_t len);
    void *arg;
    const char *headers[4]; /* "Name: value" */
    uint64_t timeout_ms;    /* for the whole exchange; 0: none */
    size_t body_max;        /* 0: 64 MiB */

    /* results */
    bool done;
    bool answered; /* headers of an answer have come; only then a repeat is not safe in general */
    long status;
    CURLcode code;
    struct buf body;
    uint64_t retry_after_s;

    CURL *easy; /* private */
    struct curl_slist *header_list;
    char *url, *sent;
    struct api *api;
    char curl_error[CURL_ERROR_SIZE];
};

int api_start(struct api *api, struct transfer *t, struct err *e);
/* Do on all transfers what can be done at once; how many have ended by it, or negative. */
int api_work(struct api *api, struct err *e);
/* Wait at most timeout_ms until one of them or of `fds` has something to do. */
int api_wait(struct api *api, struct curl_waitfd *fds, unsigned count, int timeout_ms, struct err *e);
/* Free what belongs to `t` (also when it is not done: that gives it up). 0 when the status was of class 2. */
int api_finish(struct transfer *t, struct err *e);

/* One call, answered with JSON (or nothing): *ret_json may be NULL after 204. ret_json and ret_status may be NULL. */
int api_call(struct api *api, const char *method, const char *path, const json_t *body, json_t **ret_json,
             long *ret_status, struct err *e);
/* The same with one more header, such as "Prefer: wait=30". */
int api_call_with(struct api *api, const char *method, const char *path, const json_t *body, const char *header,
                  json_t **ret_json, long *ret_status, struct err *e);
/* Start and work until done; the caller finishes. */
int api_run(struct api *api, struct transfer *t, struct err *e);

/* All pages of a list: an array of the items, at most `max` (0: 100,000). `path` may have a query. */
int api_list(struct api *api, const char *path, size_t max, json_t **ret_items, struct err *e);

/* A problem document as an error; for answers that do not come through a transfer. */
int api_problem(long status, const void *body, size_t len, struct err *e);

/* "…/x?path=%2Fa&b=c": the format's own text, then name and value pairs, ended by NULL; a NULL value leaves its name
 * out. The caller frees. */
char *api_path(const char *base, ...) __attribute__((sentinel));

/* Connections that stop being HTTP: the socket after "101 Switching Protocols". */
struct upgraded {
    CURL *easy;
    int fd;
    struct buf early; /* bytes that came right after the answer's head */
};

/* GET `path` with `headers` (lines ended by CRLF, Upgrade and Connection among them). */
int api_upgrade(struct api *api, const char *path, const char *headers, struct upgraded *ret_up, char *ret_accept,
                size_t accept_size, struct err *e);
/* > 0 bytes, 0 at the end, -EAGAIN, or another negative errno. */
ssize_t upgraded_read(struct upgraded *up, void *data, size_t len);
ssize_t upgraded_write(struct upgraded *up, const void *data, size_t len);
void upgraded_close(struct upgraded *up);

#endif

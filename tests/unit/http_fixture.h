/* A server on a loop of its own thread, and a small HTTP client on blocking sockets, for the tests of src/http. */
#ifndef SPACE_TESTS_HTTP_FIXTURE_H
#define SPACE_TESTS_HTTP_FIXTURE_H

#include "base/buf.h"
#include "http/http_server.h"

#include <pthread.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum event { EVENT_HANDLER, EVENT_ABORT, EVENT_LOG, EVENT_CLOSE, EVENT_ERROR, EVENT_DRAIN, EVENT_BLOCKED, EVENT_COUNT };

struct fixture {
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t async;
    struct http_server *server;
    uint16_t port;
    char unix_path[64];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned events[EVENT_COUNT];
    void (*job)(void *arg);
    void *job_arg;
    bool job_done;
    bool stopped;
    enum http_abort last_abort;
    struct http_log_entry last_log; /* strings point into the arrays below */
    char log_id[80], log_path[256];
    char last_error[512];
};

extern struct fixture fixture; /* one a test program */

void fixture_start(const struct http_options *options); /* adds hooks for the log and errors */
void fixture_stop(uint64_t grace_ms);
void fixture_call(void (*job)(void *arg), void *arg); /* on the loop's thread; waits for it */
void event_post(enum event event);
void event_wait(enum event event, unsigned count); /* until it was posted so often in all; fails after 5 s */
unsigned event_count(enum event event);
void on_abort_event(struct http_request *r, enum http_abort why, void *arg);

int client_connect(void);
void client_send(int fd, const char *text);
void client_send_bytes(int fd, const void *data, size_t len);
struct response {
    int status;
    char head[16384];
    struct buf body;
    bool whole; /* the body ended as its framing says */
};
/* Read one answer. `head` true: an answer to HEAD. */
void client_read(int fd, bool head, struct response *ret_response);
const char *response_header(const struct response *r, const char *name, char *ret_value, size_t size);
void response_done(struct response *r);
/* Send a request and read the answer on a connection of its own. */
void client_ask(const char *request, struct response *ret_response);
void client_expect_end(int fd); /* the server closes; bytes before it are ignored */
long rss_kib(void);
#if defined(__SANITIZE_ADDRESS__)
#define RSS_SLACK_KIB 300000 /* freed memory rests in quarantine */
#else
#define RSS_SLACK_KIB 0
#endif
void assert_body(const struct response *r, const char *text);
void assert_body_holds(struct response *r, const char *part);

#endif

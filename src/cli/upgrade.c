/* Connections that stop being HTTP (see api.h): libcurl connects and does TLS, the head is read here. */
#include "cli/api.h"
#include "cli/api_internal.h"

#include <errno.h>
#include <poll.h>
#include <strings.h>

#include "base/clock.h"
#include "base/str.h"

#define HEAD_MAX (32 * KIB)
#define ANSWER_MAX (64 * KIB)
#define HEAD_TIMEOUT_MS 70000

static int wait_for(int fd, short events, uint64_t deadline_ms)
{
    uint64_t at = clock_mono_ms();
    if (at >= deadline_ms)
        return -ETIMEDOUT;
    struct pollfd p = {.fd = fd, .events = events};
    int n = poll(&p, 1, (int)(deadline_ms - at));
    return n < 0 && errno != EINTR ? -errno : 0;
}

static int write_all(struct upgraded *up, const void *data, size_t len, uint64_t deadline_ms)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = upgraded_write(up, p, len);
        if (n == -EAGAIN)
            n = wait_for(up->fd, POLLOUT, deadline_ms);
        if (n < 0)
            return (int)n;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Bytes of `b` up to and with the empty line, or 0. */
static size_t head_end(const struct buf *b)
{
    const uint8_t *found = b->mem ? memmem(buf_data(b), b->len, "\r\n\r\n", 4) : NULL;
    return found ? (size_t)(found - buf_data(b)) + 4 : 0;
}

/* The value of a header in a head that ends in an empty line; false when it is not there or does not fit. */
static bool head_find(const char *head, const char *name, char *ret_value, size_t size)
{
    size_t name_len = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, name_len) != 0 || line[name_len] != ':')
            continue;
        const char *value = line + name_len + 1 + strspn(line + name_len + 1, " \t");
        size_t len = strcspn(value, "\r");
        while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
            len--;
        if (len >= size)
            return false;
        memcpy(ret_value, value, len);
        ret_value[len] = '\0';
        return true;
    }
    return false;
}

/* Read until `b` has `want` bytes (0: a whole head). */
static int read_until(struct upgraded *up, struct buf *b, size_t want, uint64_t deadline_ms)
{
    while (want ? b->len < want : head_end(b) == 0) {
        char chunk[4096];
        ssize_t n = upgraded_read(up, chunk, sizeof(chunk));
        if (n == -EAGAIN)
            n = wait_for(up->fd, POLLIN, deadline_ms);
        else if (n == 0)
            return -ECONNRESET;
        if (n < 0)
            return (int)n;
        if (n > 0 && !buf_put(b, chunk, (size_t)n))
            return -EMSGSIZE;
    }
    return 0;
}

static int refused(struct upgraded *up, const char *head, size_t head_len, long status, uint64_t deadline_ms,
                   struct err *e)
{
    char value[32];
    uint64_t len = 0;
    if (head_find(head, "content-length", value, sizeof(value)))
        str_to_u64(value, 0, ANSWER_MAX - HEAD_MAX, &len);
    if (len > 0 && read_until(up, &up->early, head_len + len, deadline_ms) < 0)
        len = 0;
    return api_problem(status, buf_data(&up->early) + head_len, len, e);
}

static int handshake(struct api *api, const char *path, const char *headers, struct upgraded *up, char *ret_accept,
                     size_t accept_size, struct err *e)
{
    const char *host = strstr(api->url, "://") + 3;
    size_t host_len = strcspn(host, "/");
    _cleanup_buf_ struct buf request = BUF_MAX(0);
    buf_printf(&request, "GET %s%s HTTP/1.1\r\nHost: %.*s\r\nUser-Agent: space/%s\r\n%s%s%s\r\n", host + host_len, path,
               (int)host_len, host, SPACE_VERSION, api->auth ? api->auth : "", api->auth ? "\r\n" : "", headers);
    uint64_t deadline = clock_mono_ms() + HEAD_TIMEOUT_MS;
    int r = write_all(up, buf_data(&request), request.len, deadline);
    wipe(buf_data(&request), request.len);
    if (r == 0)
        r = read_until(up, &up->early, 0, deadline);
    if (r < 0)
        return err_errno(e, r == -ETIMEDOUT ? ERR_TIMEOUT : ERR_UNAVAILABLE, -r, "talk to %s", api->url);
    size_t head_len = head_end(&up->early);
    _cleanup_free_ char *head = xstrndup((const char *)buf_data(&up->early), head_len);
    uint64_t status = 0;
    char digits[4] = "";
    if (str_starts(head, "HTTP/1.1 ") && head_len > 12)
        memcpy(digits, head + 9, 3);
    if (!str_to_u64(digits, 100, 599, &status))
        return err_set(e, ERR_PROTOCOL, "%s did not answer with HTTP", api->url);
    if (status != 101)
        return status >= 300 ? refused(up, head, head_len, (long)status, deadline, e)
                             : err_set(e, ERR_PROTOCOL, "%s did not switch protocols", api->url);
    if (ret_accept && !head_find(head, "sec-websocket-accept", ret_accept, accept_size))
        return err_set(e, ERR_PROTOCOL, "%s switched protocols without Sec-WebSocket-Accept", api->url);
    buf_consume(&up->early, head_len);
    return 0;
}

int api_upgrade(struct api *api, const char *path, const char *headers, struct upgraded *ret_up, char *ret_accept,
                size_t accept_size, struct err *e)
{
    struct upgraded up = {.easy = curl_easy_init(), .fd = -1};
    char text[CURL_ERROR_SIZE] = "";
    if (!up.easy)
        return err_set(e, ERR_SYSTEM, "set up a connection");
    buf_init(&up.early, ANSWER_MAX);
    api_set_common(api, up.easy, api->url);
    curl_easy_setopt(up.easy, CURLOPT_ERRORBUFFER, text);
    curl_easy_setopt(up.easy, CURLOPT_CONNECT_ONLY, 1L);
    CURLcode code = curl_easy_perform(up.easy);
    curl_socket_t socket = CURL_SOCKET_BAD;
    if (code == CURLE_OK)
        code = curl_easy_getinfo(up.easy, CURLINFO_ACTIVESOCKET, &socket);
    int r = code == CURLE_OK ? 0 : api_curl_failed(api, code, text, e);
    up.fd = socket;
    if (r == 0)
        r = handshake(api, path, headers, &up, ret_accept, accept_size, e);
    if (r < 0) {
        upgraded_close(&up);
        return r;
    }
    *ret_up = up;
    return 0;
}

ssize_t upgraded_read(struct upgraded *up, void *data, size_t len)
{
    size_t n = 0;
    CURLcode code = curl_easy_recv(up->easy, data, len, &n);
    return code == CURLE_OK ? (ssize_t)n : code == CURLE_AGAIN ? -EAGAIN : -ECONNRESET;
}

ssize_t upgraded_write(struct upgraded *up, const void *data, size_t len)
{
    size_t n = 0;
    CURLcode code = curl_easy_send(up->easy, data, len, &n);
    return code == CURLE_OK ? (ssize_t)n : code == CURLE_AGAIN ? -EAGAIN : -EPIPE;
}

void upgraded_close(struct upgraded *up)
{
    if (up->easy)
        curl_easy_cleanup(up->easy);
    buf_done(&up->early);
    *up = (struct upgraded){.fd = -1};
}

/* See port_head.h. */
#include "api/port_head.h"

#include "base/str.h"

#include <strings.h>
#include <sys/types.h>

#define CHUNK_LINE_MAX 4096 /* size line with extensions, or one trailer */
#define TRAILERS_MAX (16 * KIB)

size_t port_head_len(const uint8_t *data, size_t len)
{
    for (size_t i = 0; i + 1 < len; i++) {
        if (data[i] != '\n')
            continue;
        if (data[i + 1] == '\n')
            return i + 2;
        if (data[i + 1] == '\r' && i + 2 < len && data[i + 2] == '\n')
            return i + 3;
    }
    return 0;
}

static bool is_token(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if ((unsigned char)*s <= 0x20 || (unsigned char)*s >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", *s))
            return false;
    return true;
}

static bool is_value(const char *s)
{
    for (; *s; s++)
        if (((unsigned char)*s < 0x20 && *s != '\t') || *s == 0x7f)
            return false;
    return true;
}

static char *trim(char *s)
{
    s += strspn(s, " \t");
    size_t len = strlen(s);
    while (len && (s[len - 1] == ' ' || s[len - 1] == '\t'))
        s[--len] = '\0';
    return s;
}

bool port_list_has(const char *list, const char *token)
{
    size_t len = strlen(token);
    while (list && *list) {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, ",");
        while (n && (list[n - 1] == ' ' || list[n - 1] == '\t'))
            n--;
        if (n == len && strncasecmp(list, token, len) == 0)
            return true;
        list = strchr(list, ',');
    }
    return false;
}

bool port_hop_by_hop(const char *name, const char *connection)
{
    static const char *const names[] = {"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate",
                                        "Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding", "Upgrade"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return port_list_has(connection, name);
}

void port_response_done(struct port_response *response)
{
    free(response->storage);
    response->storage = NULL;
}

/* "HTTP/1.1 200 OK" */
static bool parse_status(const char *line, int *ret_status)
{
    if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
        return false;
    const char *p = line + 9;
    for (int i = 0; i < 3; i++)
        if (p[i] < '0' || p[i] > '9')
            return false;
    if (p[3] != '\0' && p[3] != ' ')
        return false;
    *ret_status = (p[0] - '0') * 100 + (p[1] - '0') * 10 + (p[2] - '0');
    return *ret_status >= 100 && *ret_status < 600;
}

/* How the body is framed (RFC 9112, section 6.3). */
static int decide_body(struct port_response *r, bool to_head, struct err *e)
{
    const char *length = NULL, *coding = NULL;
    for (size_t i = 0; i < r->header_count; i++) {
        const struct port_header *h = &r->headers[i];
        if (strcasecmp(h->name, "Content-Length") == 0) {
            if (length && !str_eq(length, h->value))
                return err_set(e, ERR_PROTOCOL, "the program answered with two lengths");
            length = h->value;
        } else if (strcasecmp(h->name, "Transfer-Encoding") == 0) {
            if (coding)
                return err_set(e, ERR_PROTOCOL, "the program answered with two transfer codings");
            coding = h->value;
        }
    }
    if (length && !str_to_u64(length, 0, INT64_MAX, &r->length))
        return err_set(e, ERR_PROTOCOL, "the program answered with a length that is no number");
    if (coding && (length || strcasecmp(coding, "chunked") != 0))
        return err_set(e, ERR_PROTOCOL, "the program answered with a transfer coding that is not understood");
    if (to_head || r->status < 200 || r->status == 204 || r->status == 304)
        r->body = PORT_BODY_NONE;
    else if (coding)
        r->body = PORT_BODY_CHUNKED;
    else if (length)
        r->body = PORT_BODY_LENGTH;
    else
        r->body = PORT_BODY_TO_CLOSE;
    return 0;
}

int port_response_parse(const uint8_t *head, size_t len, bool to_head, struct port_response *ret_response,
                        struct err *e)
{
    struct port_response r = {0};
    if (memchr(head, '\0', len))
        return err_set(e, ERR_PROTOCOL, "the program answered with a zero byte in the head");
    r.storage = xstrndup((const char *)head, len);
    char *rest = r.storage, *line;
    bool first = true;
    int result = 0;
    while (result == 0 && (line = strsep(&rest, "\n"))) {
        size_t n = strlen(line);
        if (n && line[n - 1] == '\r')
            line[n - 1] = '\0';
        if (first) {
            if (!parse_status(line, &r.status))
                result = err_set(e, ERR_PROTOCOL, "the program did not answer with HTTP/1");
            first = false;
            continue;
        }
        if (!*line)
            break;
        char *colon = strchr(line, ':');
        if (!colon || line[0] == ' ' || line[0] == '\t') {
            result = err_set(e, ERR_PROTOCOL, "the program answered with a header that is not well formed");
            break;
        }
        *colon = '\0';
        char *value = trim(colon + 1);
        if (!is_token(line) || !is_value(value))
            result = err_set(e, ERR_PROTOCOL, "the program answered with a header that is not well formed");
        else if (r.header_count == PORT_HEADERS_MAX)
            result = err_set(e, ERR_PROTOCOL, "the program answered with more than %d headers", PORT_HEADERS_MAX);
        else {
            if (strcasecmp(line, "Upgrade") == 0)
                r.upgrade = value;
            r.headers[r.header_count++] = (struct port_header){.name = line, .value = value};
        }
    }
    if (result == 0)
        result = decide_body(&r, to_head, e);
    if (result < 0) {
        port_response_done(&r);
        return result;
    }
    *ret_response = r;
    return 0;
}

/* ---- chunked bodies ---- */

enum { SIZE_FIRST, SIZE, EXTENSION, DATA, DATA_CR, DATA_LF, TRAILER_START, TRAILER, LAST_LF };

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

/* The size line has ended. */
static void after_size(struct port_chunks *c)
{
    c->line = 0;
    c->state = c->left ? DATA : TRAILER_START;
}

/* One byte of what lies between the pieces of body. False: not well formed. */
static bool take_byte(struct port_chunks *c, uint8_t byte)
{
    int digit;
    switch (c->state) {
    case SIZE_FIRST:
    case SIZE:
        if ((digit = hex_value(byte)) >= 0) {
            if (c->state == SIZE_FIRST)
                c->left = 0;
            c->left = c->left * 16 + (unsigned)digit;
            c->state = SIZE;
            return ++c->line <= 15; /* fits in 60 bits */
        }
        if (c->state == SIZE_FIRST)
            return false;
        if (byte == '\n')
            after_size(c);
        else if (byte == ';' || byte == ' ' || byte == '\t' || byte == '\r')
            c->state = EXTENSION;
        else
            return false;
        return true;
    case EXTENSION:
        if (byte == '\n')
            after_size(c);
        return ++c->line <= CHUNK_LINE_MAX;
    case DATA_CR:
        c->state = byte == '\n' ? SIZE_FIRST : DATA_LF;
        c->line = 0;
        return byte == '\n' || byte == '\r';
    case DATA_LF:
        c->state = SIZE_FIRST;
        return byte == '\n';
    case TRAILER_START:
        if (byte == '\n')
            c->end = true;
        else
            c->state = byte == '\r' ? LAST_LF : TRAILER;
        return ++c->line <= TRAILERS_MAX;
    case TRAILER:
        if (byte == '\n')
            c->state = TRAILER_START;
        return ++c->line <= TRAILERS_MAX;
    default: /* LAST_LF */
        c->end = byte == '\n';
        return c->end;
    }
}

ssize_t port_chunks_next(struct port_chunks *c, const uint8_t **data, size_t *len, const uint8_t **ret_piece,
                         struct err *e)
{
    while (*len && !c->end) {
        if (c->state == DATA) {
            size_t n = (size_t)MIN((uint64_t)*len, c->left);
            *ret_piece = *data;
            *data += n;
            *len -= n;
            c->left -= n;
            if (!c->left)
                c->state = DATA_CR;
            return (ssize_t)n;
        }
        if (!take_byte(c, **data))
            return err_set(e, ERR_PROTOCOL, "the program's chunked answer is not well formed");
        (*data)++;
        (*len)--;
    }
    return 0;
}

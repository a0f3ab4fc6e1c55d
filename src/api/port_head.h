/* HTTP/1.1 as the proxy to guest ports needs it: heads of responses and chunked bodies, from a program that is not to
 * be trusted. No I/O: bytes in, meaning out (tests/fuzz/fuzz_port_head.c drives it). RFC 9112. */
#ifndef SPACE_API_PORT_HEAD_H
#define SPACE_API_PORT_HEAD_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

#define PORT_HEAD_MAX (64 * KIB)
#define PORT_HEADERS_MAX 128

enum port_body {
    PORT_BODY_NONE,
    PORT_BODY_LENGTH,
    PORT_BODY_CHUNKED,
    PORT_BODY_TO_CLOSE,
};

struct port_header {
    const char *name;
    const char *value; /* without space around it */
};

struct port_response {
    int status; /* 100–599 */
    enum port_body body;
    uint64_t length;     /* of PORT_BODY_LENGTH */
    const char *upgrade; /* of a 101: the protocol */
    struct port_header headers[PORT_HEADERS_MAX];
    size_t header_count;
    char *storage;
};

/* How many bytes the head at the start of `data` has, with the empty line that ends it; 0: it is not complete. */
size_t port_head_len(const uint8_t *data, size_t len);

/* Parse a complete head. `to_head`: it answers a HEAD request. ERR_PROTOCOL: no HTTP/1 response, lengths that contradict
 * each other, folded lines, bytes that have no place in a head, too many headers. */
int port_response_parse(const uint8_t *head, size_t len, bool to_head, struct port_response *ret_response,
                        struct err *e);
void port_response_done(struct port_response *response);

/* Headers that end at a hop: their names, and those that the Connection header (may be NULL) lists. */
bool port_hop_by_hop(const char *name, const char *connection);
/* Whether `list`, parted by commas, has `token`; letter case does not matter. */
bool port_list_has(const char *list, const char *token);

/* ---- chunked bodies ---- */

struct port_chunks {
    int state;
    uint64_t left; /* of the chunk */
    unsigned line; /* bytes of the present line */
    bool end;      /* the last chunk and the trailers are over */
};

/* Take bytes from `*data` up to the next piece of body: `*ret_piece` and the return value are that piece (it points
 * into `*data`, which then stands behind it); 0 when all of `*data` was used or the body is at its end. ERR_PROTOCOL. */
ssize_t port_chunks_next(struct port_chunks *c, const uint8_t **data, size_t *len, const uint8_t **ret_piece,
                         struct err *e);

#endif

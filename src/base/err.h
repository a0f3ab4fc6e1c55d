/* The error type. A function that can fail returns 0 or a positive value for success and a negative `enum err_code`
 * for failure, and writes the text into the caller's `struct err` (last parameter, may be NULL).
 *
 * The text says what was attempted on what: lower case, no full stop, no C function names. One table (err.c) gives each
 * code its HTTP status, problem type, CLI exit code, and whether a repeat can help. */
#ifndef SPACE_BASE_ERR_H
#define SPACE_BASE_ERR_H

#include "base/defs.h"

enum err_code {
    ERR_INVALID = -1,         /* the request is wrong in itself */
    ERR_UNAUTHENTICATED = -2, /* no key, or one that is not valid */
    ERR_FORBIDDEN = -3,       /* the key lacks the scope, or the guest refused by permission */
    ERR_NOT_FOUND = -4,
    ERR_CONFLICT = -5,    /* exists already, or another change is under way */
    ERR_STATE = -6,       /* not possible in the state that the thing is in */
    ERR_GONE = -7,        /* was there, is not any more (output dropped, sandbox ended) */
    ERR_TOO_LARGE = -8,   /* over a documented size */
    ERR_RANGE = -9,       /* offset or range outside of what exists */
    ERR_LIMIT = -10,      /* a quota, rate or count is used up */
    ERR_UNAVAILABLE = -11,/* no capacity at this moment, nothing changed */
    ERR_TIMEOUT = -12,    /* the other side did not answer in time */
    ERR_PROTOCOL = -13,   /* the other side (guest, QEMU) broke its protocol */
    ERR_SYSTEM = -14,     /* a system call of the host failed */
    ERR_NO_SPACE = -15,   /* disk full on the host or in the guest */
    ERR_UNSUPPORTED = -16,/* this host or build cannot do it */
    ERR_CANCELLED = -17,  /* given up by the caller */
    ERR_INTERNAL = -18,   /* a fault of the program itself */
    ERR_PRECONDITION = -19, /* If-Match and the like */
    ERR_METHOD = -20,     /* no such method on this path */
};

struct err {
    int code;
    char text[512];
};

/* What a code means to the outside. `retry`: the same call can succeed later without a change by the caller. */
struct err_info {
    int code;
    const char *name;       /* "not_found": in JSON and logs */
    int http_status;
    const char *title;      /* RFC 9457 `title` */
    int exit_code;          /* of the CLI */
    bool retry;
};

/* Write code and text into `e` (if not NULL) and return `code`. The text is cut at the size of `struct err`. */
int err_set(struct err *e, int code, const char *format, ...) ATTR_PRINTF(3, 4);

/* As err_set with ": " and the text of `errnum` added; ENOSPC and EDQUOT become ERR_NO_SPACE, EMFILE,
 * ENFILE and ENOMEM become ERR_UNAVAILABLE, ENOENT stays `code`. */
int err_errno(struct err *e, int code, int errnum, const char *format, ...) ATTR_PRINTF(4, 5);

/* Put "context: " before the text that `e` holds; returns the code of `e`. */
int err_prefix(struct err *e, const char *format, ...) ATTR_PRINTF(2, 3);

/* Never NULL: an unknown code is described as ERR_INTERNAL. */
const struct err_info *err_info(int code);

/* The code with this name, or ERR_INTERNAL. */
int err_code_by_name(const char *name);

#endif

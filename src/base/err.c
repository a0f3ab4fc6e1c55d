/* The error table and its text helpers (see err.h). */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>

static const struct err_info table[] = {
    {ERR_INVALID, "invalid_request", 400, "The request is not valid", 2, false},
    {ERR_UNAUTHENTICATED, "unauthenticated", 401, "A valid API key is needed", 10, false},
    {ERR_FORBIDDEN, "forbidden", 403, "Not allowed", 11, false},
    {ERR_NOT_FOUND, "not_found", 404, "Not found", 12, false},
    {ERR_METHOD, "method_not_allowed", 405, "This method is not offered here", 2, false},
    {ERR_CONFLICT, "conflict", 409, "Conflict with what exists", 13, false},
    {ERR_STATE, "wrong_state", 409, "Not possible in this state", 13, false},
    {ERR_GONE, "gone", 410, "No longer there", 12, false},
    {ERR_PRECONDITION, "precondition_failed", 412, "A precondition does not hold", 13, false},
    {ERR_TOO_LARGE, "too_large", 413, "Too large", 14, false},
    {ERR_RANGE, "range_not_satisfiable", 416, "Range not satisfiable", 2, false},
    {ERR_LIMIT, "limit_exceeded", 429, "A limit is reached", 14, true},
    {ERR_INTERNAL, "internal", 500, "Internal error", 1, false},
    {ERR_SYSTEM, "system", 500, "The host refused", 1, true},
    {ERR_UNSUPPORTED, "unsupported", 501, "Not supported here", 15, false},
    {ERR_PROTOCOL, "guest_protocol", 502, "The sandbox broke its protocol", 16, false},
    {ERR_UNAVAILABLE, "unavailable", 503, "No capacity at this moment", 17, true},
    {ERR_CANCELLED, "cancelled", 503, "Given up", 17, true},
    {ERR_TIMEOUT, "timeout", 504, "No answer in time", 18, true},
    {ERR_NO_SPACE, "no_space", 507, "No space left", 14, false},
};

ATTR_PRINTF(3, 0) static int err_vset(struct err *e, int code, const char *format, va_list args)
{
    if (e) {
        e->code = code;
        vsnprintf(e->text, sizeof(e->text), format, args);
    }
    return code;
}

int err_set(struct err *e, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err_vset(e, code, format, args);
    va_end(args);
    return code;
}

int err_errno(struct err *e, int code, int errnum, const char *format, ...)
{
    va_list args;
    if (errnum == ENOSPC || errnum == EDQUOT)
        code = ERR_NO_SPACE;
    else if (errnum == EMFILE || errnum == ENFILE || errnum == ENOMEM)
        code = ERR_UNAVAILABLE; /* of the host as a whole, and passing */
    va_start(args, format);
    err_vset(e, code, format, args);
    va_end(args);
    if (e) {
        size_t used = strlen(e->text);
        snprintf(e->text + used, sizeof(e->text) - used, ": %s", strerror(errnum));
    }
    return code;
}

int err_prefix(struct err *e, const char *format, ...)
{
    if (!e)
        return ERR_INTERNAL;
    struct err inner = *e;
    va_list args;
    va_start(args, format);
    err_vset(e, inner.code, format, args);
    va_end(args);
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof(e->text) - used, ": %s", inner.text);
    return inner.code;
}

const struct err_info *err_info(int code)
{
    const struct err_info *fallback = NULL;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (table[i].code == code)
            return &table[i];
        if (table[i].code == ERR_INTERNAL)
            fallback = &table[i];
    }
    return fallback;
}

int err_code_by_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].code;
    return ERR_INTERNAL;
}

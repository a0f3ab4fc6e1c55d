/* RFC 9457 problem details made from the error type:
 * {"type":"/problems/<name>","title":…,"status":…,"detail":…,"code":"<name>","request_id":…}
 *
 * The text of errors that speak about the host itself (ERR_SYSTEM, ERR_INTERNAL, ERR_NO_SPACE) never goes out: the
 * detail is a general sentence, and the full text goes to http_options.on_error. */
#ifndef SPACE_HTTP_PROBLEM_H
#define SPACE_HTTP_PROBLEM_H

#include <jansson.h>

#include "base/err.h"

/* True when the text of an error with this code must not be shown to a client. */
bool problem_hides(int code);

/* A new JSON object; `status` 0 takes the code's own. `request_id` may be NULL (problems kept in operations). */
json_t *problem_json(const struct err *error, int status, const char *request_id);

/* A detail as it may be shown: the text, made valid UTF-8, or the general sentence. Freed by the caller. */
char *problem_detail(const struct err *error);

#endif

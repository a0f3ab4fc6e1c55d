/* Between api.c and upgrade.c. */
#ifndef SPACE_CLI_API_INTERNAL_H
#define SPACE_CLI_API_INTERNAL_H

#include "base/id.h"
#include "cli/api.h"

struct api {
    char *url;
    char *auth; /* the whole header line */
    CURLM *multi;
    char *socket; /* path of a Unix socket, or NULL */
};

void api_set_common(const struct api *api, CURL *easy, const char *url);
int api_curl_failed(const struct api *api, CURLcode code, const char *text, struct err *e);

#endif

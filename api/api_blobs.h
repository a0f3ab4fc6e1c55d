/* What `/openapi.json` and `/docs` answer: generated at build time from api/openapi.yaml, part of the program, so that
 * an answer always describes the very server that gives it. Not NUL-terminated. */
#ifndef SPACE_API_BLOBS_H
#define SPACE_API_BLOBS_H

#include <stddef.h>

extern const unsigned char api_openapi_json[]; /* application/json, UTF-8 */
extern const size_t api_openapi_json_len;
extern const unsigned char api_docs_html[]; /* text/html; charset=utf-8 */
extern const size_t api_docs_html_len;

#endif

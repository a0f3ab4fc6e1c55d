/* Answers that several resources give in the same way. */
#ifndef SPACE_API_REPLY_H
#define SPACE_API_REPLY_H

#include "http/http_request.h"
#include "http/problem.h"
#include "store/store.h"

#define LIST_PARAMETERS "limit", "cursor" /* what reply_page_of takes from the query */

/* A page of a list from `limit` and `cursor`. Negative: refused (`e`). */
int page_of(struct http_request *r, struct store_page *ret_page, struct err *e);

/* {"items": items, "next_cursor": cursor or null}; takes `items`. */
void reply_list(struct http_request *r, json_t *items, const char *next_cursor);

/* A problem with more members; takes `extra` (an object or NULL). */
void reply_problem(struct http_request *r, const struct err *error, json_t *extra);

/* 1 and a mask of `1 << index of name`, 0 when the parameter is not given, ERR_INVALID. `name_of` gives the names of
 * 0..count-1. */
int query_mask(struct http_request *r, const char *parameter, const char *(*name_of)(unsigned i), unsigned count,
               uint32_t *ret_mask, struct err *e);

#endif

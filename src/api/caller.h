/* Who asks: found by the authorize hook, kept with the request. */
#ifndef SPACE_API_CALLER_H
#define SPACE_API_CALLER_H

#include "http/http_request.h"
#include "store/api_key.h"

/* `flags` of a route: the scope that it needs (enum store_scope), and */
enum api_route_flag {
    API_PUBLIC = 1 << 16,    /* no key */
    API_ANY = 1 << 17,       /* any valid key */
    API_TOKEN = 1 << 18,     /* the attach token of the exec in the path will do; also ?token= */
    API_SPACE_KEY = 1 << 19, /* the key may come as Space-Key */
};

struct caller {
    char key_id[ID_SIZE]; /* empty: an attach token */
    char project_id[ID_SIZE];
    uint32_t scopes;
};

/* The http_options.authorize hook; `arg` is the api. */
int caller_authorize(struct http_request *r, void *arg, struct err *e);
/* Of a request that is not public. */
const struct caller *caller_of(const struct http_request *r);
/* The project to look things up in. */
static inline const char *project_of(const struct http_request *r)
{
    return caller_of(r)->project_id;
}
bool caller_may(const struct caller *c, uint32_t scope);

#endif

/* Projects (tenants). */
#ifndef SPACE_STORE_PROJECT_H
#define SPACE_STORE_PROJECT_H

#include "store/store.h"

struct store_project {
    char id[ID_SIZE];
    char *name; /* 1–128 bytes, unique */
    int64_t created_at_ms;
};

void store_project_free(struct store_project *p);
static inline void cleanup_store_project(struct store_project **p)
{
    store_project_free(*p);
}
#define _cleanup_store_project_ _cleanup_(cleanup_store_project)

struct store_project_list {
    struct store_project **items;
    size_t count;
    char next_cursor[STORE_CURSOR_SIZE]; /* empty: this was the last page */
};
void store_project_list_done(struct store_project_list *list);
#define _cleanup_store_project_list_ _cleanup_(store_project_list_done)

/* ERR_CONFLICT: the name is taken. */
int store_project_make(struct store *s, const char *name, int64_t now_ms, struct store_project **ret_project,
                       struct err *e);
int store_project_get(struct store *s, const char *id, struct store_project **ret_project, struct err *e);
int store_project_list(struct store *s, const struct store_page *page, struct store_project_list *ret_list,
                       struct err *e);

#endif

/* Templates and their movable tags. */
#ifndef SPACE_STORE_TEMPLATE_H
#define SPACE_STORE_TEMPLATE_H

#include "store/sandbox.h"

enum store_template_state {
    STORE_TEMPLATE_IMPORTING,
    STORE_TEMPLATE_READY,
    STORE_TEMPLATE_FAILED,
    STORE_TEMPLATE_DELETING,
};
const char *store_template_state_name(enum store_template_state state);

#define STORE_KIND_MAX 32
struct store_template {
    char *digest;             /* 1–80 bytes of [a-z0-9:_-] */
    char *kind;               /* "base" …, 1 to STORE_KIND_MAX bytes */
    enum store_template_state state;
    char *reason;
    char *manifest_json;      /* ≤ 1 MiB */
    uint64_t size_bytes;
    int64_t created_at_ms;
};

void store_template_free(struct store_template *t);
static inline void cleanup_store_template(struct store_template **t)
{
    store_template_free(*t);
}
#define _cleanup_store_template_ _cleanup_(cleanup_store_template)

struct store_template_list {
    struct store_template **items;
    size_t count;
    char next_cursor[STORE_CURSOR_SIZE * 3];
};
void store_template_list_done(struct store_template_list *list);
#define _cleanup_store_template_list_ _cleanup_(store_template_list_done)

/* ERR_CONFLICT: exists. */
int store_template_insert(struct store *s, const struct store_template *t, struct err *e);
int store_template_get(struct store *s, const char *digest, struct store_template **ret_template, struct err *e);
int store_template_list(struct store *s, const struct store_page *page, struct store_template_list *ret_list,
                        struct err *e);
int store_template_set_state(struct store *s, const char *digest, enum store_template_state to, const char *reason,
                             struct err *e);
/* With its tags. ERR_STATE: a sandbox that has not ended was made from it. */
int store_template_delete(struct store *s, const char *digest, struct err *e);

/* Tags: [a-z0-9] then [a-z0-9._-], ≤ 64 bytes. A tag of a project stands before a tag of all projects (project NULL). */
struct store_template_tag {
    char project_id[ID_SIZE]; /* empty: of all projects */
    char tag[STORE_TAG_MAX + 1];
    char digest[STORE_DIGEST_MAX + 1];
    int64_t updated_at_ms;
};
int store_template_tag_set(struct store *s, const char *project_id, const char *tag, const char *digest,
                           int64_t now_ms, struct err *e);
int store_template_tag_delete(struct store *s, const char *project_id, const char *tag, struct err *e);
/* Of one digest, or all when `digest` is NULL; what `project_id` sees. *ret_tags is the caller's (free). */
int store_template_tag_list(struct store *s, const char *project_id, const char *digest,
                            struct store_template_tag **ret_tags, size_t *ret_count, struct err *e);
/* A digest or a tag → the template, which is `ready`. ERR_NOT_FOUND; ERR_STATE: it is not ready. */
int store_template_resolve(struct store *s, const char *project_id, const char *reference,
                           struct store_template **ret_template, struct err *e);

#endif

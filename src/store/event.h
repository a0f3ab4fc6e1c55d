/* Events: an append-only record of what changed, kept for a bounded time and number. Changes of a sandbox's state add
 * theirs by themselves (kind "sandbox.state", data {"from","to","reason"}). */
#ifndef SPACE_STORE_EVENT_H
#define SPACE_STORE_EVENT_H

#include "store/store.h"

#define STORE_EVENT_KIND_MAX 64

struct store_event {
    int64_t id; /* ever growing */
    char project_id[ID_SIZE];
    char sandbox_id[ID_SIZE]; /* empty: of no sandbox */
    char *kind;
    char *data_json; /* object, ≤ 64 KiB; NULL stands for {} */
    int64_t at_ms;
};

struct store_event_list {
    struct store_event *items;
    size_t count;
};
void store_event_list_done(struct store_event_list *list);
#define _cleanup_store_event_list_ _cleanup_(store_event_list_done)

/* project_id and sandbox_id may be NULL. */
int store_event_add(struct store *s, const char *project_id, const char *sandbox_id, const char *kind,
                    const char *data_json, int64_t now_ms, struct err *e);
/* Those with an id greater than `after`, oldest first; sandbox_id NULL: of all. limit 1–1000. */
int store_event_list(struct store *s, const char *project_id, const char *sandbox_id, int64_t after, uint32_t limit,
                     struct store_event_list *ret_list, struct err *e);

#endif

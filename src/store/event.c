/* Events (see event.h). */
#include "store/event.h"
#include "store/internal.h"

void store_event_list_done(struct store_event_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].kind);
        free(list->items[i].data_json);
    }
    free(list->items);
    *list = (struct store_event_list){0};
}

int store_event_add(struct store *s, const char *project_id, const char *sandbox_id, const char *kind,
                    const char *data_json, int64_t now_ms, struct err *e)
{
    int r;
    if ((r = check_text("event kind", kind, 1, STORE_EVENT_KIND_MAX, e)) < 0 ||
        (r = check_json("event data", data_json, STORE_JSON_MAX, e)) < 0)
        return r;
    r = statement_run(s, "INSERT INTO events (project_id, sandbox_id, kind, data, at) VALUES (?, ?, ?, ?, ?)",
                      BINDS(B_TEXT(project_id ? project_id : ""), B_ID(sandbox_id), B_TEXT(kind),
                            B_TEXT(data_json ? data_json : "{}"), B_INT(now_ms)),
                      e);
    return r < 0 ? r : 0;
}

int store_event_list(struct store *s, const char *project_id, const char *sandbox_id, int64_t after, uint32_t limit,
                     struct store_event_list *ret_list, struct err *e)
{
    _cleanup_query_ struct query q = QUERY_INIT;
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    _cleanup_store_event_list_ struct store_event_list list = {0};
    if (limit < 1 || limit > STORE_PAGE_MAX)
        return err_set(e, ERR_INVALID, "limit: %u is not between 1 and %d", limit, STORE_PAGE_MAX);
    query_bind(&q, "SELECT id, project_id, sandbox_id, kind, data, at FROM events WHERE id > ?", B_INT(after));
    if (project_id)
        query_bind(&q, " AND project_id = ?", B_TEXT(project_id));
    if (sandbox_id)
        query_bind(&q, " AND sandbox_id = ?", B_TEXT(sandbox_id));
    query_bind(&q, " ORDER BY id LIMIT ?", B_INT(limit));
    int r = query_open(s, &q, &stmt, e);
    if (r < 0)
        return r;
    list.items = xcalloc(limit, sizeof(*list.items));
    while ((r = statement_step(s, stmt, e)) > 0) {
        struct store_event *event = &list.items[list.count++];
        event->id = sqlite3_column_int64(stmt, 0);
        column_id(stmt, 1, event->project_id);
        column_id(stmt, 2, event->sandbox_id);
        event->kind = column_text(stmt, 3);
        event->data_json = column_text(stmt, 4);
        event->at_ms = sqlite3_column_int64(stmt, 5);
    }
    if (r < 0)
        return r;
    *ret_list = list;
    list = (struct store_event_list){0};
    return 0;
}

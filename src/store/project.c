/* Projects (see project.h). */
#include "store/project.h"
#include "store/internal.h"

#define COLUMNS "id, name, created_at"

void store_project_free(struct store_project *p)
{
    if (!p)
        return;
    free(p->name);
    free(p);
}

void store_project_list_done(struct store_project_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        store_project_free(list->items[i]);
    free(list->items);
    *list = (struct store_project_list){0};
}

static struct store_project *row(sqlite3_stmt *stmt)
{
    struct store_project *p = NEW(struct store_project);
    column_id(stmt, 0, p->id);
    p->name = column_text(stmt, 1);
    p->created_at_ms = sqlite3_column_int64(stmt, 2);
    return p;
}

int store_project_make(struct store *s, const char *name, int64_t now_ms, struct store_project **ret_project,
                       struct err *e)
{
    char id[ID_SIZE];
    int r = check_text("project name", name, 1, STORE_NAME_MAX, e);
    if (r < 0)
        return r;
    id_new(ID_PROJECT, id);
    r = statement_run(s, "INSERT INTO projects (" COLUMNS ") VALUES (?, ?, ?)",
                      BINDS(B_TEXT(id), B_TEXT(name), B_INT(now_ms)), e);
    if (r == ERR_CONFLICT)
        return err_set(e, ERR_CONFLICT, "a project \"%s\" exists already", name);
    if (r < 0)
        return r;
    return store_project_get(s, id, ret_project, e);
}

int store_project_get(struct store *s, const char *id, struct store_project **ret_project, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, "SELECT " COLUMNS " FROM projects WHERE id = ?", BINDS(B_TEXT(id)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no project %s", id);
    *ret_project = row(stmt);
    return 0;
}

int store_project_list(struct store *s, const struct store_page *page, struct store_project_list *ret_list,
                       struct err *e)
{
    _cleanup_query_ struct query q = QUERY_INIT;
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    _cleanup_store_project_list_ struct store_project_list list = {0};
    query_add(&q, "SELECT " COLUMNS " FROM projects WHERE 1");
    int r = query_page(&q, page, "created_at", "id", e);
    if (r < 0 || (r = query_open(s, &q, &stmt, e)) < 0)
        return r;
    while ((r = statement_step(s, stmt, e)) > 0) {
        if (list.count == q.limit) {
            struct store_project *last = list.items[list.count - 1];
            store_cursor_encode(last->created_at_ms, last->id, list.next_cursor);
            break;
        }
        list_push(&list.items, &list.count, row(stmt));
    }
    if (r < 0)
        return r;
    *ret_list = list;
    list = (struct store_project_list){0};
    return 0;
}

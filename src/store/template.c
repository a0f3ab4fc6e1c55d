/* Templates and their tags (see template.h). */
#include "store/template.h"
#include "store/internal.h"

#include "base/str.h"

#define COLUMNS "digest, kind, state, reason, manifest, size_bytes, created_at"
#define MANIFEST_MAX (1024 * 1024)

const char *store_template_state_name(enum store_template_state state)
{
    static const char *const names[] = {"importing", "ready", "failed", "deleting"};
    return (unsigned)state < ARRAY_LEN(names) ? names[state] : "unknown";
}

void store_template_free(struct store_template *t)
{
    if (!t)
        return;
    free(t->digest);
    free(t->kind);
    free(t->reason);
    free(t->manifest_json);
    free(t);
}

void store_template_list_done(struct store_template_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        store_template_free(list->items[i]);
    free(list->items);
    *list = (struct store_template_list){0};
}

static struct store_template *row(sqlite3_stmt *stmt)
{
    struct store_template *t = NEW(struct store_template);
    t->digest = column_text(stmt, 0);
    t->kind = column_text(stmt, 1);
    t->state = (enum store_template_state)sqlite3_column_int(stmt, 2);
    t->reason = column_text(stmt, 3);
    t->manifest_json = column_text(stmt, 4);
    t->size_bytes = (uint64_t)sqlite3_column_int64(stmt, 5);
    t->created_at_ms = sqlite3_column_int64(stmt, 6);
    return t;
}

int store_template_insert(struct store *s, const struct store_template *t, struct err *e)
{
    _cleanup_free_ char *reason = reason_clean(t->reason, STORE_REASON_MAX);
    int r;
    if ((r = check_digest(t->digest, e)) < 0 || (r = check_text("template kind", t->kind, 1, STORE_KIND_MAX, e)) < 0 ||
        (r = check_json("template manifest", t->manifest_json, MANIFEST_MAX, e)) < 0)
        return r;
    r = statement_run(s, "INSERT INTO templates (" COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?)",
                      BINDS(B_TEXT(t->digest), B_TEXT(t->kind), B_INT(t->state), B_TEXT(reason),
                            B_TEXT(t->manifest_json ? t->manifest_json : "{}"), B_INT(t->size_bytes),
                            B_INT(t->created_at_ms)),
                      e);
    if (r == ERR_CONFLICT)
        return err_set(e, ERR_CONFLICT, "a template %s exists already", t->digest);
    return r < 0 ? r : 0;
}

int store_template_get(struct store *s, const char *digest, struct store_template **ret_template, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, "SELECT " COLUMNS " FROM templates WHERE digest = ?", BINDS(B_TEXT(digest)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no template %s", digest);
    *ret_template = row(stmt);
    return 0;
}

int store_template_list(struct store *s, const struct store_page *page, struct store_template_list *ret_list,
                        struct err *e)
{
    _cleanup_query_ struct query q = QUERY_INIT;
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    _cleanup_store_template_list_ struct store_template_list list = {0};
    query_add(&q, "SELECT " COLUMNS " FROM templates WHERE 1");
    int r = query_page(&q, page, "created_at", "digest", e);
    if (r < 0 || (r = query_open(s, &q, &stmt, e)) < 0)
        return r;
    while ((r = statement_step(s, stmt, e)) > 0) {
        if (list.count == q.limit) {
            struct store_template *last = list.items[list.count - 1];
            cursor_encode(last->created_at_ms, last->digest, list.next_cursor, sizeof(list.next_cursor));
            break;
        }
        list_push(&list.items, &list.count, row(stmt));
    }
    if (r < 0)
        return r;
    *ret_list = list;
    list = (struct store_template_list){0};
    return 0;
}

int store_template_set_state(struct store *s, const char *digest, enum store_template_state to,
                             const char *reason_given, struct err *e)
{
    _cleanup_free_ char *reason = reason_clean(reason_given, STORE_REASON_MAX);
    int r = statement_run(s, "UPDATE templates SET state = ?, reason = ? WHERE digest = ?",
                          BINDS(B_INT(to), B_TEXT(reason), B_TEXT(digest)), e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no template %s", digest);
    return r < 0 ? r : 0;
}

int store_template_delete(struct store *s, const char *digest, struct err *e)
{
    _cleanup_store_tx_ struct store_tx tx = {0};
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r;
    if ((r = store_begin(s, &tx, e)) < 0 ||
        (r = statement_open(s, "SELECT count(*) FROM sandboxes WHERE template_digest = ? AND state NOT IN (6, 7)",
                            BINDS(B_TEXT(digest)), &stmt, e)) < 0 ||
        (r = statement_step(s, stmt, e)) < 0)
        return r;
    int64_t users = sqlite3_column_int64(stmt, 0);
    statement_release(&stmt);
    if (users > 0)
        return err_set(e, ERR_STATE, "template %s is used by %lld sandboxes", digest, (long long)users);
    if ((r = statement_run(s, "DELETE FROM templates WHERE digest = ?", BINDS(B_TEXT(digest)), e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no template %s", digest);
    return store_commit(&tx, e);
}

/* ---- tags ---- */

int store_template_tag_set(struct store *s, const char *project_id, const char *tag, const char *digest,
                           int64_t now_ms, struct err *e)
{
    int r;
    if ((r = check_tag(tag, e)) < 0 || (r = check_digest(digest, e)) < 0)
        return r;
    if (strlen(tag) == 64 && strspn(tag, "0123456789abcdef") == 64)
        return err_set(e, ERR_INVALID, "template tag: looks like a digest");
    r = statement_run(s,
                      "INSERT INTO template_tags (project_id, tag, digest, updated_at) VALUES (?, ?, ?, ?)"
                      " ON CONFLICT (project_id, tag) DO UPDATE SET digest = excluded.digest,"
                      " updated_at = excluded.updated_at",
                      BINDS(B_TEXT(project_id ? project_id : ""), B_TEXT(tag), B_TEXT(digest), B_INT(now_ms)), e);
    if (r == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "no template %s", digest);
    return r < 0 ? r : 0;
}

int store_template_tag_delete(struct store *s, const char *project_id, const char *tag, struct err *e)
{
    int r = statement_run(s, "DELETE FROM template_tags WHERE project_id = ? AND tag = ?",
                          BINDS(B_TEXT(project_id ? project_id : ""), B_TEXT(tag)), e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no template tag \"%s\"", tag);
    return r < 0 ? r : 0;
}

int store_template_tag_list(struct store *s, const char *project_id, const char *digest,
                            struct store_template_tag **ret_tags, size_t *ret_count, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    _cleanup_free_ struct store_template_tag *tags = NULL;
    size_t count = 0;
    int r = statement_open(s,
                           "SELECT project_id, tag, digest, updated_at FROM template_tags"
                           " WHERE (?1 IS NULL OR project_id IN ('', ?1)) AND (?2 IS NULL OR digest = ?2)"
                           " ORDER BY tag, project_id",
                           BINDS(B_TEXT(project_id), B_TEXT(digest)), &stmt, e);
    if (r < 0)
        return r;
    while ((r = statement_step(s, stmt, e)) > 0) {
        tags = xrealloc(tags, (count + 1) * sizeof(*tags));
        struct store_template_tag *tag = &tags[count++];
        column_id(stmt, 0, tag->project_id);
        column_copy(stmt, 1, tag->tag, sizeof(tag->tag));
        column_copy(stmt, 2, tag->digest, sizeof(tag->digest));
        tag->updated_at_ms = sqlite3_column_int64(stmt, 3);
    }
    if (r < 0)
        return r;
    *ret_tags = steal(tags);
    *ret_count = count;
    return 0;
}

int store_template_resolve(struct store *s, const char *project_id, const char *reference,
                           struct store_template **ret_template, struct err *e)
{
    _cleanup_store_template_ struct store_template *t = NULL;
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    if (strnlen(reference, STORE_DIGEST_MAX + 1) > STORE_DIGEST_MAX)
        return err_set(e, ERR_NOT_FOUND, "no template \"%.80s…\"", reference);
    /* '' sorts before any project: the project's own tag comes first in descending order. */
    int r = statement_open(s,
                           "SELECT " COLUMNS " FROM templates WHERE digest = coalesce("
                           " (SELECT digest FROM templates WHERE digest = ?1),"
                           " (SELECT digest FROM template_tags WHERE tag = ?1 AND project_id IN ('', ?2)"
                           "  ORDER BY project_id DESC LIMIT 1))",
                           BINDS(B_TEXT(reference), B_TEXT(project_id ? project_id : "")), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no template \"%s\"", reference);
    t = row(stmt);
    if (t->state != STORE_TEMPLATE_READY)
        return err_set(e, ERR_STATE, "template \"%s\" is %s", reference, store_template_state_name(t->state));
    *ret_template = steal(t);
    return 0;
}

/* Sandboxes (see sandbox.h). */
#include "store/sandbox.h"
#include "store/event.h"
#include "store/internal.h"
#include "store/metadata.h"

#include "base/str.h"

#define COLUMNS                                                                                                        \
    "id, project_id, name, state, reason, template_digest, template_tag, vcpus, memory_mib, disk_mib, accelerator,"    \
    " jail_missing, env, metadata, timeout_ms, created_at, ready_at, expires_at, state_changed_at, ended_at,"          \
    " machine_id, slot, pid, pid_start_time, generation"

static const char *const state_names[STORE_SANDBOX_STATES] = {
    "creating", "running", "pausing", "paused", "resuming", "deleting", "deleted", "failed",
};

const char *store_sandbox_state_name(enum store_sandbox_state state)
{
    return (unsigned)state < STORE_SANDBOX_STATES ? state_names[state] : "unknown";
}

bool store_sandbox_state_by_name(const char *name, enum store_sandbox_state *ret_state)
{
    for (int i = 0; i < STORE_SANDBOX_STATES; i++) {
        if (str_eq(state_names[i], name)) {
            *ret_state = (enum store_sandbox_state)i;
            return true;
        }
    }
    return false;
}

void store_sandbox_free(struct store_sandbox *sb)
{
    if (!sb)
        return;
    free(sb->name);
    free(sb->reason);
    free(sb->template_digest);
    free(sb->template_tag);
    free(sb->env_json);
    free(sb->metadata_json);
    free(sb);
}

void store_sandbox_list_done(struct store_sandbox_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        store_sandbox_free(list->items[i]);
    free(list->items);
    *list = (struct store_sandbox_list){0};
}

static struct store_sandbox *row(sqlite3_stmt *stmt)
{
    struct store_sandbox *sb = NEW(struct store_sandbox);
    int c = 0;
    column_id(stmt, c++, sb->id);
    column_id(stmt, c++, sb->project_id);
    sb->name = column_text(stmt, c++);
    sb->state = (enum store_sandbox_state)sqlite3_column_int(stmt, c++);
    sb->reason = column_text(stmt, c++);
    sb->template_digest = column_text(stmt, c++);
    sb->template_tag = column_text(stmt, c++);
    sb->vcpus = (uint32_t)sqlite3_column_int64(stmt, c++);
    sb->memory_mib = (uint32_t)sqlite3_column_int64(stmt, c++);
    sb->disk_mib = (uint32_t)sqlite3_column_int64(stmt, c++);
    sb->accelerator = (enum store_accelerator)sqlite3_column_int(stmt, c++);
    sb->jail_missing = (uint64_t)sqlite3_column_int64(stmt, c++);
    sb->env_json = column_text(stmt, c++);
    sb->metadata_json = column_text(stmt, c++);
    sb->timeout_ms = (uint64_t)sqlite3_column_int64(stmt, c++);
    sb->created_at_ms = sqlite3_column_int64(stmt, c++);
    sb->ready_at_ms = sqlite3_column_int64(stmt, c++);
    sb->expires_at_ms = sqlite3_column_int64(stmt, c++);
    sb->state_changed_at_ms = sqlite3_column_int64(stmt, c++);
    sb->ended_at_ms = sqlite3_column_int64(stmt, c++);
    column_id(stmt, c++, sb->machine_id);
    sb->slot = sqlite3_column_type(stmt, c) == SQLITE_NULL ? -1 : sqlite3_column_int(stmt, c);
    c++;
    sb->pid = sqlite3_column_int(stmt, c++);
    sb->pid_start_time = (uint64_t)sqlite3_column_int64(stmt, c++);
    sb->generation = (uint64_t)sqlite3_column_int64(stmt, c++);
    return sb;
}

static int check(const struct store_sandbox *sb, struct err *e)
{
    int r;
    if ((r = check_id(ID_SANDBOX, sb->id, e)) < 0 ||
        (sb->name && (r = check_text("sandbox name", sb->name, 1, STORE_NAME_MAX, e)) < 0) ||
        (r = check_digest(sb->template_digest, e)) < 0 ||
        (sb->template_tag && (r = check_text("template tag", sb->template_tag, 1, STORE_TAG_MAX, e)) < 0) ||
        (r = store_env_check(sb->env_json, e)) < 0)
        return r;
    if ((unsigned)sb->state >= STORE_SANDBOX_STATES)
        return err_set(e, ERR_INVALID, "no sandbox state %d", (int)sb->state);
    if (sb->timeout_ms > INT64_MAX)
        return err_set(e, ERR_INVALID, "the timeout is too large");
    return 0;
}

/* The event of a change of state; `from` NULL for a new sandbox. */
static int add_event(struct store *s, const char *project_id, const char *id, const char *from, const char *to,
                     const char *reason, int64_t now_ms, struct err *e)
{
    _cleanup_(json_decref_cleanup) json_t *data = json_pack("{s:s?, s:s, s:s?}", "from", from, "to", to, "reason",
                                                            reason);
    _cleanup_free_ char *text = data ? json_dumps(data, JSON_COMPACT) : NULL;
    return store_event_add(s, project_id, id, "sandbox.state", text, now_ms, e);
}

int store_sandbox_insert(struct store *s, const struct store_sandbox *sb, struct err *e)
{
    _cleanup_store_tx_ struct store_tx tx = {0};
    _cleanup_(json_decref_cleanup) json_t *metadata = NULL;
    _cleanup_free_ char *reason = reason_clean(sb->reason, STORE_REASON_MAX);
    bool ended = STORE_MASK(sb->state) & STORE_SANDBOX_ENDED;
    int64_t changed = sb->state_changed_at_ms ? sb->state_changed_at_ms : sb->created_at_ms;
    int r;
    if ((r = check(sb, e)) < 0 || (r = metadata_parse(sb->metadata_json, &metadata, e)) < 0 ||
        (r = store_begin(s, &tx, e)) < 0)
        return r;
    r = statement_run(
        s,
        "INSERT INTO sandboxes (id, project_id, name, state, reason, template_digest, template_tag, vcpus, memory_mib,"
        " disk_mib, accelerator, jail_missing, env, metadata, timeout_ms, created_at, ready_at, expires_at,"
        " state_changed_at, ended_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        BINDS(B_TEXT(sb->id), B_TEXT(sb->project_id), B_TEXT(sb->name), B_INT(sb->state), B_TEXT(reason),
              B_TEXT(sb->template_digest), B_TEXT(sb->template_tag), B_INT(sb->vcpus), B_INT(sb->memory_mib),
              B_INT(sb->disk_mib), B_INT(sb->accelerator), B_INT(sb->jail_missing),
              B_TEXT(sb->env_json ? sb->env_json : "{}"), B_TEXT(sb->metadata_json ? sb->metadata_json : "{}"),
              B_INT(sb->timeout_ms), B_INT(sb->created_at_ms), B_TIME(sb->ready_at_ms), B_TIME(sb->expires_at_ms),
              B_INT(changed), ended ? B_INT(sb->ended_at_ms ? sb->ended_at_ms : changed) : B_TIME(0)),
        e);
    if (r == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "no project %s", sb->project_id);
    if (r == ERR_CONFLICT)
        return err_set(e, ERR_CONFLICT, "a sandbox %s exists already", sb->id);
    if (r < 0 || (r = metadata_write(s, sb->id, metadata, e)) < 0 ||
        (r = add_event(s, sb->project_id, sb->id, NULL, state_names[sb->state], reason, changed, e)) < 0)
        return r;
    return store_commit(&tx, e);
}

int store_sandbox_get(struct store *s, const char *project_id, const char *id, struct store_sandbox **ret_sandbox,
                      struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, "SELECT " COLUMNS " FROM sandboxes WHERE id = ?1 AND (?2 IS NULL OR project_id = ?2)",
                           BINDS(B_TEXT(id), B_TEXT(project_id)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no sandbox %s", id);
    *ret_sandbox = row(stmt);
    return 0;
}

static int add_filter(struct query *q, const struct store_sandbox_filter *filter, struct err *e)
{
    if (filter->metadata_count > STORE_SANDBOX_FILTERS_MAX)
        return err_set(e, ERR_TOO_LARGE, "more than %d metadata filters", STORE_SANDBOX_FILTERS_MAX);
    uint32_t states = filter->state_mask & STORE_SANDBOX_ANY;
    if (filter->state_mask && states != STORE_SANDBOX_ANY)
        query_bind(q, " AND (1 << state) & ?", B_INT(states));
    if (filter->name)
        query_bind(q, " AND name = ?", B_TEXT(filter->name));
    /* The plus keeps the list's own order: rows are looked up in the set, not fetched from it and sorted. */
    for (size_t i = 0; i < filter->metadata_count; i++) {
        query_bind(q, " AND +id IN (SELECT sandbox_id FROM sandbox_metadata WHERE key = ?",
                   B_TEXT(filter->metadata[i].key));
        query_bind(q, " AND value = ?)", B_TEXT(filter->metadata[i].value));
    }
    return 0;
}

int store_sandbox_list(struct store *s, const char *project_id, const struct store_sandbox_filter *filter,
                       const struct store_page *page, struct store_sandbox_list *ret_list, struct err *e)
{
    _cleanup_query_ struct query q = QUERY_INIT;
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    _cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
    int r;
    query_add(&q, "SELECT " COLUMNS " FROM sandboxes WHERE 1");
    if (project_id)
        query_bind(&q, " AND project_id = ?", B_TEXT(project_id));
    if ((filter && (r = add_filter(&q, filter, e)) < 0) || (r = query_page(&q, page, "created_at", "id", e)) < 0 ||
        (r = query_open(s, &q, &stmt, e)) < 0)
        return r;
    while ((r = statement_step(s, stmt, e)) > 0) {
        if (list.count == q.limit) {
            struct store_sandbox *last = list.items[list.count - 1];
            store_cursor_encode(last->created_at_ms, last->id, list.next_cursor);
            break;
        }
        list_push(&list.items, &list.count, row(stmt));
    }
    if (r < 0)
        return r;
    *ret_list = list;
    list = (struct store_sandbox_list){0};
    return 0;
}

int store_sandbox_count_live(struct store *s, const char *project_id, uint64_t *ret_count, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = project_id ? statement_open(s,
                                        "SELECT count(*) FROM sandboxes INDEXED BY sandboxes_live"
                                        " WHERE project_id = ? AND state NOT IN (6, 7)",
                                        BINDS(B_TEXT(project_id)), &stmt, e)
                       : statement_open(s,
                                        "SELECT count(*) FROM sandboxes INDEXED BY sandboxes_live"
                                        " WHERE state NOT IN (6, 7)",
                                        NULL, 0, &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    *ret_count = (uint64_t)sqlite3_column_int64(stmt, 0);
    return 0;
}

/* State and project of a sandbox. */
static int look(struct store *s, const char *project_id, const char *id, enum store_sandbox_state *ret_state,
                char ret_project_id[ID_SIZE], struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, "SELECT state, project_id FROM sandboxes WHERE id = ?1 AND (?2 IS NULL OR project_id = ?2)",
                           BINDS(B_TEXT(id), B_TEXT(project_id)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no sandbox %s", id);
    *ret_state = (enum store_sandbox_state)sqlite3_column_int(stmt, 0);
    column_id(stmt, 1, ret_project_id);
    return 0;
}

int store_sandbox_set_state(struct store *s, const char *id, uint32_t from_mask, enum store_sandbox_state to,
                            const char *reason_given, int64_t now_ms, struct err *e)
{
    _cleanup_store_tx_ struct store_tx tx = {0};
    _cleanup_free_ char *reason = reason_clean(reason_given, STORE_REASON_MAX);
    enum store_sandbox_state from = STORE_SANDBOX_CREATING;
    char project_id[ID_SIZE];
    int r;
    if ((unsigned)to >= STORE_SANDBOX_STATES)
        return err_set(e, ERR_INVALID, "no sandbox state %d", (int)to);
    if ((r = store_begin(s, &tx, e)) < 0 || (r = look(s, NULL, id, &from, project_id, e)) < 0)
        return r;
    if (!(STORE_MASK(from) & from_mask))
        return err_set(e, STORE_MASK(from) & STORE_SANDBOX_CHANGING ? ERR_CONFLICT : ERR_STATE, "sandbox %s is %s", id,
                       state_names[from]);
    bool ended = STORE_MASK(to) & STORE_SANDBOX_ENDED;
    r = statement_run(s,
                      "UPDATE sandboxes SET state = ?1, reason = ?2, state_changed_at = ?3,"
                      " ready_at = CASE WHEN ?1 = 1 THEN coalesce(ready_at, ?3) ELSE ready_at END, ended_at = ?4"
                      " WHERE id = ?5",
                      BINDS(B_INT(to), B_TEXT(reason), B_INT(now_ms), ended ? B_INT(now_ms) : B_TIME(0), B_TEXT(id)), e);
    if (r < 0 || (r = add_event(s, project_id, id, state_names[from], state_names[to], reason, now_ms, e)) < 0)
        return r;
    return store_commit(&tx, e);
}

int store_sandbox_set_machine(struct store *s, const char *id, const struct store_machine_ref *machine, struct err *e)
{
    int r = machine ? statement_run(s,
                                    "UPDATE sandboxes SET machine_id = ?, slot = ?, pid = ?, pid_start_time = ?,"
                                    " accelerator = ?, jail_missing = ?, generation = generation + 1 WHERE id = ?",
                                    BINDS(B_TEXT(machine->machine_id), B_INT(machine->slot), B_INT(machine->pid),
                                          B_INT(machine->pid_start_time), B_INT(machine->accelerator),
                                          B_INT(machine->jail_missing), B_TEXT(id)),
                                    e)
                    : statement_run(s,
                                    "UPDATE sandboxes SET machine_id = NULL, slot = NULL, pid = NULL,"
                                    " pid_start_time = NULL WHERE id = ?",
                                    BINDS(B_TEXT(id)), e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no sandbox %s", id);
    return r < 0 ? r : 0;
}

int store_sandbox_update(struct store *s, const char *project_id, const char *id,
                         const struct store_sandbox_change *change, int64_t now_ms, struct err *e)
{
    _cleanup_store_tx_ struct store_tx tx = {0};
    _cleanup_(json_decref_cleanup) json_t *metadata = NULL;
    enum store_sandbox_state state = STORE_SANDBOX_CREATING;
    char owner[ID_SIZE];
    int r;
    if ((change->metadata_json && (r = metadata_parse(change->metadata_json, &metadata, e)) < 0) ||
        (change->name && (r = check_text("sandbox name", change->name, 0, STORE_NAME_MAX, e)) < 0))
        return r;
    if (change->set_timeout && change->timeout_ms > INT64_MAX)
        return err_set(e, ERR_INVALID, "the timeout is too large");
    if ((r = store_begin(s, &tx, e)) < 0 || (r = look(s, project_id, id, &state, owner, e)) < 0)
        return r;
    if (STORE_MASK(state) & STORE_SANDBOX_ENDED)
        return err_set(e, ERR_STATE, "sandbox %s is %s", id, state_names[state]);
    r = statement_run(s,
                      "UPDATE sandboxes SET timeout_ms = CASE WHEN ?1 THEN ?2 ELSE timeout_ms END,"
                      " expires_at = CASE WHEN ?1 THEN ?3 ELSE expires_at END,"
                      " metadata = coalesce(?4, metadata), name = nullif(coalesce(?5, name), '') WHERE id = ?6",
                      BINDS(B_INT(change->set_timeout), B_INT(change->timeout_ms), B_TIME(change->expires_at_ms),
                            B_TEXT(change->metadata_json), B_TEXT(change->name), B_TEXT(id)),
                      e);
    if (r >= 0 && metadata)
        r = statement_run(s, "DELETE FROM sandbox_metadata WHERE sandbox_id = ?", BINDS(B_TEXT(id)), e);
    if (r >= 0 && metadata)
        r = metadata_write(s, id, metadata, e);
    if (r < 0 || (r = store_event_add(s, owner, id, "sandbox.changed", NULL, now_ms, e)) < 0)
        return r;
    return store_commit(&tx, e);
}

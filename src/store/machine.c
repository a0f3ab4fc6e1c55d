/* Machines (see machine.h). */
#include "store/machine.h"
#include "store/internal.h"

#define COLUMNS                                                                                                        \
    "id, kind, slot, pid, pid_start_time, template_digest, vcpus, memory_mib, disk_mib, accelerator, jail_missing,"    \
    " sandbox_id, created_at"

const char *store_machine_kind_name(enum store_machine_kind kind)
{
    static const char *const names[] = {"blank", "hot", "claimed", "build"};
    return (unsigned)kind < ARRAY_LEN(names) ? names[kind] : "unknown";
}

void store_machine_free(struct store_machine *m)
{
    if (!m)
        return;
    free(m->template_digest);
    free(m);
}

void store_machine_list_done(struct store_machine_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        store_machine_free(list->items[i]);
    free(list->items);
    *list = (struct store_machine_list){0};
}

static struct store_machine *row(sqlite3_stmt *stmt)
{
    struct store_machine *m = NEW(struct store_machine);
    int c = 0;
    column_id(stmt, c++, m->id);
    m->kind = (enum store_machine_kind)sqlite3_column_int(stmt, c++);
    m->slot = (uint32_t)sqlite3_column_int64(stmt, c++);
    m->pid = sqlite3_column_int(stmt, c++);
    m->pid_start_time = (uint64_t)sqlite3_column_int64(stmt, c++);
    m->template_digest = column_text(stmt, c++);
    m->vcpus = (uint32_t)sqlite3_column_int64(stmt, c++);
    m->memory_mib = (uint32_t)sqlite3_column_int64(stmt, c++);
    m->disk_mib = (uint32_t)sqlite3_column_int64(stmt, c++);
    m->accelerator = (enum store_accelerator)sqlite3_column_int(stmt, c++);
    m->jail_missing = (uint64_t)sqlite3_column_int64(stmt, c++);
    column_id(stmt, c++, m->sandbox_id);
    m->created_at_ms = sqlite3_column_int64(stmt, c++);
    return m;
}

int store_machine_insert(struct store *s, const struct store_machine *m, struct err *e)
{
    int r;
    if ((r = check_id(ID_MACHINE, m->id, e)) < 0 || (r = check_digest(m->template_digest, e)) < 0)
        return r;
    r = statement_run(s, "INSERT INTO machines (" COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                      BINDS(B_TEXT(m->id), B_INT(m->kind), B_INT(m->slot), B_INT(m->pid), B_INT(m->pid_start_time),
                            B_TEXT(m->template_digest), B_INT(m->vcpus), B_INT(m->memory_mib), B_INT(m->disk_mib),
                            B_INT(m->accelerator), B_INT(m->jail_missing), B_ID(m->sandbox_id),
                            B_INT(m->created_at_ms)),
                      e);
    if (r == ERR_CONFLICT)
        return err_set(e, ERR_CONFLICT, "a machine %s or one in slot %u exists already", m->id, m->slot);
    return r < 0 ? r : 0;
}

int store_machine_get(struct store *s, const char *id, struct store_machine **ret_machine, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, "SELECT " COLUMNS " FROM machines WHERE id = ?", BINDS(B_TEXT(id)), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no machine %s", id);
    *ret_machine = row(stmt);
    return 0;
}

int store_machine_list(struct store *s, struct store_machine_list *ret_list, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    _cleanup_store_machine_list_ struct store_machine_list list = {0};
    int r = statement_open(s, "SELECT " COLUMNS " FROM machines ORDER BY slot", NULL, 0, &stmt, e);
    if (r < 0)
        return r;
    while ((r = statement_step(s, stmt, e)) > 0)
        list_push(&list.items, &list.count, row(stmt));
    if (r < 0)
        return r;
    *ret_list = list;
    list = (struct store_machine_list){0};
    return 0;
}

int store_machine_set_process(struct store *s, const char *id, int32_t pid, uint64_t pid_start_time,
                              uint64_t jail_missing, struct err *e)
{
    _cleanup_store_tx_ struct store_tx tx = {0};
    int r;
    if ((r = store_begin(s, &tx, e)) < 0 ||
        (r = statement_run(s, "UPDATE machines SET pid = ?, pid_start_time = ?, jail_missing = ? WHERE id = ?",
                           BINDS(B_INT(pid), B_INT(pid_start_time), B_INT(jail_missing), B_TEXT(id)), e)) < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no machine %s", id);
    /* One that was claimed before it was started has its sandbox already. */
    r = statement_run(s, "UPDATE sandboxes SET pid = ?, pid_start_time = ?, jail_missing = ? WHERE machine_id = ?",
                      BINDS(B_INT(pid), B_INT(pid_start_time), B_INT(jail_missing), B_TEXT(id)), e);
    return r < 0 ? r : store_commit(&tx, e);
}

static int not_free(struct store *s, const char *id, struct err *e)
{
    _cleanup_store_machine_ struct store_machine *m = NULL;
    int r = store_machine_get(s, id, &m, e);
    if (r < 0)
        return r;
    return err_set(e, ERR_STATE, "machine %s is %s", id, store_machine_kind_name(m->kind));
}

int store_machine_set_kind(struct store *s, const char *id, enum store_machine_kind kind, struct err *e)
{
    if (kind != STORE_MACHINE_BLANK && kind != STORE_MACHINE_HOT)
        return err_set(e, ERR_INVALID, "a machine becomes %s in another way", store_machine_kind_name(kind));
    int r = statement_run(s, "UPDATE machines SET kind = ? WHERE id = ? AND kind IN (0, 1)",
                          BINDS(B_INT(kind), B_TEXT(id)), e);
    if (r == 0)
        return not_free(s, id, e);
    return r < 0 ? r : 0;
}

int store_machine_claim(struct store *s, const char *id, const char *sandbox_id, struct err *e)
{
    _cleanup_store_tx_ struct store_tx tx = {0};
    _cleanup_store_machine_ struct store_machine *m = NULL;
    int r;
    if ((r = check_id(ID_SANDBOX, sandbox_id, e)) < 0 || (r = store_begin(s, &tx, e)) < 0 ||
        (r = statement_run(s, "UPDATE machines SET kind = 2, sandbox_id = ? WHERE id = ? AND kind IN (0, 1)",
                           BINDS(B_TEXT(sandbox_id), B_TEXT(id)), e)) < 0)
        return r;
    if (r == 0)
        return not_free(s, id, e);
    if ((r = store_machine_get(s, id, &m, e)) < 0)
        return r;
    const struct store_machine_ref ref = {
        .machine_id = m->id,
        .slot = (int32_t)m->slot,
        .pid = m->pid,
        .pid_start_time = m->pid_start_time,
        .accelerator = m->accelerator,
        .jail_missing = m->jail_missing,
    };
    if ((r = store_sandbox_set_machine(s, sandbox_id, &ref, e)) < 0)
        return r;
    return store_commit(&tx, e);
}

int store_machine_delete(struct store *s, const char *id, struct err *e)
{
    _cleanup_store_tx_ struct store_tx tx = {0};
    int r;
    if ((r = store_begin(s, &tx, e)) < 0 ||
        (r = statement_run(s,
                           "UPDATE sandboxes SET machine_id = NULL, slot = NULL, pid = NULL, pid_start_time = NULL"
                           " WHERE id = (SELECT sandbox_id FROM machines WHERE id = ?1) AND machine_id = ?1",
                           BINDS(B_TEXT(id)), e)) < 0 ||
        (r = statement_run(s, "DELETE FROM machines WHERE id = ?", BINDS(B_TEXT(id)), e)) < 0)
        return r;
    return store_commit(&tx, e);
}

/* Removing what is past its time, a bounded number of rows a call (see store_prune in store.h). */
#include "store/internal.h"

struct prune_step {
    const char *sql; /* ?1: oldest time that stays, ?2: how many rows at most */
    size_t age;      /* offset of the age in struct store_retention */
};

/* A sandbox whose machine may still run is not pruned, whatever its state says. Execs go before their sandbox, so that
 * one with thousands of them does not make one long delete. */
static const struct prune_step steps[] = {
    {"DELETE FROM execs WHERE rowid IN (SELECT x.rowid FROM sandboxes AS s JOIN execs AS x ON x.sandbox_id = s.id"
     " WHERE s.ended_at IS NOT NULL AND s.ended_at < ?1 AND s.machine_id IS NULL LIMIT ?2)",
     offsetof(struct store_retention, deleted_ms)},
    {"DELETE FROM sandboxes WHERE rowid IN (SELECT s.rowid FROM sandboxes AS s WHERE s.ended_at IS NOT NULL AND"
     " s.ended_at < ?1 AND s.machine_id IS NULL AND NOT EXISTS (SELECT 1 FROM execs WHERE sandbox_id = s.id) LIMIT ?2)",
     offsetof(struct store_retention, deleted_ms)},
    {"DELETE FROM operations WHERE rowid IN (SELECT rowid FROM operations WHERE ended_at IS NOT NULL AND"
     " ended_at < ?1 LIMIT ?2)",
     offsetof(struct store_retention, operation_ms)},
    {"DELETE FROM idempotency_keys WHERE rowid IN (SELECT rowid FROM idempotency_keys WHERE created_at < ?1 LIMIT ?2)",
     offsetof(struct store_retention, idempotency_ms)},
    /* Rows are in the order of time; the newest one stays, so that ids are never given twice. */
    {"DELETE FROM events WHERE id IN (SELECT id FROM (SELECT id, at FROM events WHERE id < (SELECT max(id) FROM events)"
     " ORDER BY id LIMIT ?2) WHERE at < ?1)",
     offsetof(struct store_retention, event_ms)},
};

int store_prune(struct store *s, const struct store_retention *retention, int64_t now_ms, unsigned batch,
                struct err *e)
{
    _cleanup_store_tx_ struct store_tx tx = {0};
    int total = 0, r;
    if (batch == 0 || batch > 10000)
        return err_set(e, ERR_INVALID, "prune: a batch of %u rows is not between 1 and 10,000", batch);
    if ((r = store_begin(s, &tx, e)) < 0)
        return r;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        uint64_t age;
        memcpy(&age, (const char *)retention + steps[i].age, sizeof(age));
        if (age > (uint64_t)now_ms)
            continue;
        if ((r = statement_run(s, steps[i].sql, BINDS(B_INT(now_ms - (int64_t)age), B_INT(batch)), e)) < 0)
            return r;
        total += r;
    }
    if (retention->events_max > 0 && retention->events_max < INT64_MAX) {
        r = statement_run(s,
                          "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE"
                          " id <= (SELECT max(id) FROM events) - ?1 ORDER BY id LIMIT ?2)",
                          BINDS(B_INT(retention->events_max), B_INT(batch)), e);
        if (r < 0)
            return r;
        total += r;
    }
    if ((r = store_commit(&tx, e)) < 0)
        return r;
    return total;
}

/* Shapes of templates for which a checkpoint was made (see template.h). */
#include "store/internal.h"
#include "store/template.h"

#define KEY_WHERE                                                                                                      \
    " WHERE digest = ? AND vcpus = ? AND memory_mib = ? AND disk_mib = ? AND accelerator = ? AND qemu_version = ?"
#define KEY_BINDS(shape)                                                                                               \
    BINDS(B_TEXT((shape)->digest), B_INT((shape)->vcpus), B_INT((shape)->memory_mib), B_INT((shape)->disk_mib),        \
          B_INT((shape)->accelerator), B_TEXT((shape)->qemu_version))
#define COLUMNS                                                                                                        \
    "digest, vcpus, memory_mib, disk_mib, accelerator, qemu_version, state, size_bytes, created_at, last_used_at"

static int not_found(const struct store_template_shape *shape, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "no shape %u-%u-%u of template %s", shape->vcpus, shape->memory_mib,
                   shape->disk_mib, shape->digest);
}

int store_template_shape_put(struct store *s, const struct store_template_shape *shape, struct err *e)
{
    int r;
    if ((r = check_digest(shape->digest, e)) < 0 ||
        (r = check_text("QEMU version", shape->qemu_version, 1, sizeof(shape->qemu_version) - 1, e)) < 0)
        return r;
    r = statement_run(s,
                      "INSERT INTO template_shapes (" COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                      " ON CONFLICT (digest, vcpus, memory_mib, disk_mib, accelerator, qemu_version) DO UPDATE SET"
                      " state = excluded.state, size_bytes = excluded.size_bytes, created_at = excluded.created_at,"
                      " last_used_at = excluded.last_used_at",
                      BINDS(B_TEXT(shape->digest), B_INT(shape->vcpus), B_INT(shape->memory_mib),
                            B_INT(shape->disk_mib), B_INT(shape->accelerator), B_TEXT(shape->qemu_version),
                            B_INT(shape->state), B_INT(shape->size_bytes), B_INT(shape->created_at_ms),
                            B_TIME(shape->last_used_at_ms)),
                      e);
    if (r == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "no template %s", shape->digest);
    return r < 0 ? r : 0;
}

static void row(sqlite3_stmt *stmt, struct store_template_shape *shape)
{
    column_copy(stmt, 0, shape->digest, sizeof(shape->digest));
    shape->vcpus = (uint32_t)sqlite3_column_int64(stmt, 1);
    shape->memory_mib = (uint32_t)sqlite3_column_int64(stmt, 2);
    shape->disk_mib = (uint32_t)sqlite3_column_int64(stmt, 3);
    shape->accelerator = (enum store_accelerator)sqlite3_column_int(stmt, 4);
    column_copy(stmt, 5, shape->qemu_version, sizeof(shape->qemu_version));
    shape->state = (enum store_shape_state)sqlite3_column_int(stmt, 6);
    shape->size_bytes = (uint64_t)sqlite3_column_int64(stmt, 7);
    shape->created_at_ms = sqlite3_column_int64(stmt, 8);
    shape->last_used_at_ms = sqlite3_column_int64(stmt, 9);
}

int store_template_shape_get(struct store *s, struct store_template_shape *shape, struct err *e)
{
    const struct store_template_shape key = *shape;
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    int r = statement_open(s, "SELECT " COLUMNS " FROM template_shapes" KEY_WHERE, KEY_BINDS(&key), &stmt, e);
    if (r < 0 || (r = statement_step(s, stmt, e)) < 0)
        return r;
    if (r == 0)
        return not_found(shape, e);
    row(stmt, shape);
    return 0;
}

int store_template_shape_delete(struct store *s, const struct store_template_shape *shape, struct err *e)
{
    int r = statement_run(s, "DELETE FROM template_shapes" KEY_WHERE, KEY_BINDS(shape), e);
    if (r == 0)
        return not_found(shape, e);
    return r < 0 ? r : 0;
}

int store_template_shape_list(struct store *s, const char *digest, struct store_template_shape **ret_shapes,
                              size_t *ret_count, struct err *e)
{
    _cleanup_stmt_ sqlite3_stmt *stmt = NULL;
    _cleanup_free_ struct store_template_shape *shapes = NULL;
    size_t count = 0;
    int r = statement_open(s,
                           "SELECT " COLUMNS " FROM template_shapes WHERE ?1 IS NULL OR digest = ?1"
                           " ORDER BY digest, vcpus, memory_mib, disk_mib, accelerator, qemu_version",
                           BINDS(B_TEXT(digest)), &stmt, e);
    if (r < 0)
        return r;
    while ((r = statement_step(s, stmt, e)) > 0) {
        shapes = xrealloc(shapes, (count + 1) * sizeof(*shapes));
        row(stmt, &shapes[count++]);
    }
    if (r < 0)
        return r;
    *ret_shapes = steal(shapes);
    *ret_count = count;
    return 0;
}

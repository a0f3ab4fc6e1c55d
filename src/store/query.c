/* Queries put together from conditions, pages and cursors (see internal.h and store.h). */
#include "store/internal.h"

#include "base/str.h"

#define CURSOR_VERSION 1

void query_done(struct query *q)
{
    buf_done(&q->sql);
}

void query_add(struct query *q, const char *sql)
{
    buf_put_str(&q->sql, sql);
}

void query_bind(struct query *q, const char *sql, struct bind value)
{
    buf_put_str(&q->sql, sql);
    if (q->bind_count < QUERY_BINDS_MAX)
        q->binds[q->bind_count++] = value;
    else
        q->sql.overflow = true;
}

int query_page(struct query *q, const struct store_page *page, const char *time_column, const char *key_column,
               struct err *e)
{
    uint32_t limit = page && page->limit ? page->limit : 100;
    if (limit > STORE_PAGE_MAX)
        return err_set(e, ERR_INVALID, "limit: %u is not between 1 and %d", limit, STORE_PAGE_MAX);
    q->limit = limit;
    if (page && page->cursor) {
        int r = cursor_decode(page->cursor, &q->after_ms, q->after_key, sizeof(q->after_key), e);
        if (r < 0)
            return r;
        buf_printf(&q->sql, " AND (%s, %s) < (?", time_column, key_column);
        query_bind(q, "", B_INT(q->after_ms));
        query_bind(q, ", ?)", B_TEXT(q->after_key));
    }
    buf_printf(&q->sql, " ORDER BY %s DESC, %s DESC", time_column, key_column);
    query_bind(q, " LIMIT ?", B_INT(limit + 1)); /* one more row tells that there is a next page */
    return 0;
}

int query_open(struct store *s, struct query *q, sqlite3_stmt **ret_stmt, struct err *e)
{
    if (q->sql.overflow)
        return err_set(e, ERR_TOO_LARGE, "too many conditions in one list");
    return statement_open(s, buf_cstr(&q->sql), q->binds, q->bind_count, ret_stmt, e);
}

void list_push(void *items_pointer, size_t *count, void *item)
{
    void ***items = items_pointer;
    if ((*count & (*count - 1)) == 0) /* full at 0, 1, 2, 4, 8 … */
        *items = xrealloc(*items, (*count ? *count * 2 : 1) * sizeof(void *));
    (*items)[(*count)++] = item;
}

static bool key_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr(":_.-", c));
}

void cursor_encode(int64_t at_ms, const char *key, char *ret_text, size_t size)
{
    uint8_t raw[9 + STORE_DIGEST_MAX];
    char text[(sizeof(raw) + 2) / 3 * 4 + 1];
    size_t key_len = MIN(strlen(key), (size_t)STORE_DIGEST_MAX);
    raw[0] = CURSOR_VERSION;
    for (int i = 0; i < 8; i++)
        raw[1 + i] = (uint8_t)((uint64_t)at_ms >> (56 - 8 * i));
    memcpy(raw + 9, key, key_len);
    size_t len = base64_encode(raw, 9 + key_len, text);
    while (len > 0 && text[len - 1] == '=')
        len--;
    text[len] = '\0';
    for (char *p = text; *p; p++)
        *p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
    snprintf(ret_text, size, "%s", text);
}

int cursor_decode(const char *text, int64_t *ret_at_ms, char *ret_key, size_t key_size, struct err *e)
{
    char padded[160];
    uint8_t raw[sizeof(padded) / 4 * 3];
    size_t len = strnlen(text, sizeof(padded));
    if (len < 12 || len > sizeof(padded) - 4)
        goto wrong;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '+' || text[i] == '/' || text[i] == '=')
            goto wrong;
        padded[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
    }
    while (len % 4)
        padded[len++] = '=';
    ssize_t n = base64_decode(padded, len, raw);
    if (n < 10 || raw[0] != CURSOR_VERSION || (size_t)n - 9 >= key_size)
        goto wrong;
    uint64_t at = get_u64(raw + 1);
    if (at > INT64_MAX)
        goto wrong;
    for (ssize_t i = 9; i < n; i++)
        if (!key_char((char)raw[i]))
            goto wrong;
    memcpy(ret_key, raw + 9, (size_t)n - 9);
    ret_key[n - 9] = '\0';
    *ret_at_ms = (int64_t)at;
    return 0;
wrong:
    return err_set(e, ERR_INVALID, "cursor: not one that a list has given");
}

void store_cursor_encode(int64_t created_at_ms, const char *id, char ret_text[STORE_CURSOR_SIZE])
{
    cursor_encode(created_at_ms, id, ret_text, STORE_CURSOR_SIZE);
}

int store_cursor_decode(const char *text, int64_t *ret_created_at_ms, char ret_id[ID_SIZE], struct err *e)
{
    return cursor_decode(text, ret_created_at_ms, ret_id, ID_SIZE, e);
}

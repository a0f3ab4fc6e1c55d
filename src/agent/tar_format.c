/* The tar format (see tar_format.h). */
#include "agent/tar_format.h"

/* A header block (POSIX ustar): offset and size of each field. */
enum {
    NAME_AT = 0,
    NAME_SIZE = 100,
    MODE_AT = 100,
    UID_AT = 108,
    GID_AT = 116,
    NUMBER_SIZE = 8,
    SIZE_AT = 124,
    MTIME_AT = 136,
    LONG_SIZE = 12,
    SUM_AT = 148,
    TYPE_AT = 156,
    LINK_AT = 157,
    MAGIC_AT = 257,
    PREFIX_AT = 345,
    PREFIX_SIZE = 155,
};

#define OCTAL_MAX 077777777777ull /* eleven digits */
#define OCTAL_ID_MAX 07777777u

/* --- writing --------------------------------------------------------------------------------------------------------
 */

static void octal(uint8_t *at, size_t size, uint64_t value)
{
    at[size - 1] = '\0';
    for (size_t i = size - 1; i-- > 0; value >>= 3)
        at[i] = (uint8_t)('0' + (value & 7));
}

static void block_put(struct buf *b, char type, const char *path, const char *link, const struct tar_entry *entry,
                      uint64_t size)
{
    uint8_t h[TAR_BLOCK] = {0};
    unsigned sum = 8 * ' ';
    memcpy(h + NAME_AT, path, MIN(strlen(path), (size_t)NAME_SIZE));
    memcpy(h + LINK_AT, link, MIN(strlen(link), (size_t)NAME_SIZE));
    octal(h + MODE_AT, NUMBER_SIZE, entry->mode & 07777);
    octal(h + UID_AT, NUMBER_SIZE, entry->uid <= OCTAL_ID_MAX ? entry->uid : 0);
    octal(h + GID_AT, NUMBER_SIZE, entry->gid <= OCTAL_ID_MAX ? entry->gid : 0);
    octal(h + SIZE_AT, LONG_SIZE, size <= OCTAL_MAX ? size : 0);
    octal(h + MTIME_AT, LONG_SIZE,
          entry->mtime >= 0 && (uint64_t)entry->mtime <= OCTAL_MAX ? (uint64_t)entry->mtime : 0);
    h[TYPE_AT] = (uint8_t)type;
    memcpy(h + MAGIC_AT, "ustar\00000", 8);
    memset(h + SUM_AT, ' ', 8);
    sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += h[i];
    octal(h + SUM_AT, 7, sum);
    buf_put(b, h, sizeof(h));
}

/* "length key=value\n", where the length counts itself. */
static void pax_put(struct buf *b, const char *key, const char *value)
{
    size_t rest = strlen(key) + strlen(value) + 3, len = rest + 1;
    for (size_t power = 10; len >= power; power *= 10)
        len = rest + (size_t)snprintf(NULL, 0, "%zu", len);
    len = rest + (size_t)snprintf(NULL, 0, "%zu", len);
    buf_printf(b, "%zu %s=%s\n", len, key, value);
}

static void pax_put_u64(struct buf *b, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    pax_put(b, key, text);
}

static void pad(struct buf *b, uint64_t size)
{
    static const uint8_t zeros[TAR_BLOCK];
    buf_put(b, zeros, tar_padding(size));
}

void tar_header_put(struct buf *b, const struct tar_entry *entry)
{
    _cleanup_buf_ struct buf pax = BUF_MAX(LIMIT_TAR_EXTENDED);
    if (strlen(entry->path) > NAME_SIZE)
        pax_put(&pax, "path", entry->path);
    if (strlen(entry->link) > NAME_SIZE)
        pax_put(&pax, "linkpath", entry->link);
    if (entry->size > OCTAL_MAX)
        pax_put_u64(&pax, "size", entry->size);
    if (entry->uid > OCTAL_ID_MAX)
        pax_put_u64(&pax, "uid", entry->uid);
    if (entry->gid > OCTAL_ID_MAX)
        pax_put_u64(&pax, "gid", entry->gid);
    if (entry->mtime < 0 || (uint64_t)entry->mtime > OCTAL_MAX) {
        char text[24];
        snprintf(text, sizeof(text), "%lld", (long long)entry->mtime);
        pax_put(&pax, "mtime", text);
    }
    if (pax.len > 0) {
        block_put(b, 'x', "pax", "", &(struct tar_entry){.mode = 0644}, pax.len);
        buf_put(b, buf_data(&pax), pax.len);
        pad(b, pax.len);
    }
    block_put(b, entry->type, entry->path, entry->link, entry, entry->size);
}

/* --- reading --------------------------------------------------------------------------------------------------------
 */

void tar_parser_init(struct tar_parser *p)
{
    *p = (struct tar_parser){.text = BUF_MAX(LIMIT_TAR_EXTENDED)};
}

void tar_parser_done(struct tar_parser *p)
{
    buf_done(&p->text);
}

/* Octal digits between spaces and NULs, or base-256 when the first bit is set. */
static bool number_read(const uint8_t *at, size_t size, uint64_t *ret_value)
{
    uint64_t v = 0;
    if (at[0] & 0x80) {
        for (size_t i = 0; i < size; i++) {
            if (v >> 55)
                return false;
            v = v << 8 | (i == 0 ? at[i] & 0x7f : at[i]);
        }
        *ret_value = v;
        return true;
    }
    size_t i = 0;
    while (i < size && at[i] == ' ')
        i++;
    for (; i < size && at[i] >= '0' && at[i] <= '7'; i++)
        v = v << 3 | (uint64_t)(at[i] - '0');
    if (i < size && at[i] != ' ' && at[i] != '\0')
        return false;
    *ret_value = v;
    return true;
}

static bool decimal_read(const char *at, size_t len, int64_t *ret_value)
{
    bool negative = len > 0 && *at == '-';
    int64_t v = 0;
    size_t i = negative;
    for (; i < len && at[i] >= '0' && at[i] <= '9'; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, at[i] - '0', &v))
            return false;
    if (i == (size_t)negative || (i < len && at[i] != '.')) /* fractions of a second are left out */
        return false;
    *ret_value = negative ? -v : v;
    return true;
}

static bool text_take(char to[AGENT_PATH_MAX + 1], const void *data, size_t len)
{
    if (len > AGENT_PATH_MAX || memchr(data, '\0', len))
        return false;
    memcpy(to, data, len);
    to[len] = '\0';
    return true;
}

static bool pax_value(struct tar_parser *p, const char *key, size_t key_len, const char *value, size_t len)
{
    struct tar_entry *c = &p->current;
    int64_t v;
    if (key_len == 4 && memcmp(key, "path", 4) == 0)
        return (p->has_path = text_take(c->path, value, len));
    if (key_len == 8 && memcmp(key, "linkpath", 8) == 0)
        return (p->has_link = text_take(c->link, value, len));
    if (key_len == 5 && memcmp(key, "mtime", 5) == 0)
        return (p->has_mtime = decimal_read(value, len, &c->mtime));
    bool is_size = key_len == 4 && memcmp(key, "size", 4) == 0, is_uid = key_len == 3 && memcmp(key, "uid", 3) == 0,
         is_gid = key_len == 3 && memcmp(key, "gid", 3) == 0;
    if (!is_size && !is_uid && !is_gid)
        return true;
    if (!decimal_read(value, len, &v) || v < 0 || (!is_size && v > UINT32_MAX))
        return false;
    if (is_size) {
        c->size = (uint64_t)v;
        p->has_size = true;
    } else if (is_uid) {
        c->uid = (uint32_t)v;
        p->has_uid = true;
    } else {
        c->gid = (uint32_t)v;
        p->has_gid = true;
    }
    return true;
}

static bool pax_read(struct tar_parser *p)
{
    const char *at = (const char *)buf_data(&p->text), *end = at + p->text.len;
    while (at < end) {
        size_t len = 0;
        const char *digits = at;
        for (; at < end && *at >= '0' && *at <= '9' && len < LIMIT_TAR_EXTENDED; at++)
            len = len * 10 + (size_t)(*at - '0');
        if (at == end || *at != ' ' || len < (size_t)(at - digits) + 3 || len > (size_t)(end - digits))
            return false;
        const char *key = at + 1, *last = digits + len - 1; /* the newline */
        if (last <= key || *last != '\n')
            return false;
        const char *equals = memchr(key, '=', (size_t)(last - key));
        if (!equals || !pax_value(p, key, (size_t)(equals - key), equals + 1, (size_t)(last - equals) - 1))
            return false;
        at = last + 1;
    }
    return true;
}

/* An extended header is complete: its values hold for the next entry. */
static bool extended_take(struct tar_parser *p)
{
    char type = p->extended;
    p->extended = 0;
    if (type == 'x')
        return pax_read(p);
    size_t len = strnlen((const char *)buf_data(&p->text), p->text.len);
    if (type == 'L')
        return (p->has_path = text_take(p->current.path, buf_data(&p->text), len));
    if (type == 'K')
        return (p->has_link = text_take(p->current.link, buf_data(&p->text), len));
    return true; /* 'g': holds comments and the like */
}

static bool checksum_right(const uint8_t *h)
{
    uint64_t sum;
    unsigned want = 8 * ' ';
    for (size_t i = 0; i < TAR_BLOCK; i++)
        if (i < SUM_AT || i >= SUM_AT + 8)
            want += h[i];
    return number_read(h + SUM_AT, 8, &sum) && sum == want;
}

static bool header_fields(struct tar_parser *p, const uint8_t *h)
{
    struct tar_entry *c = &p->current;
    uint64_t mode, uid, gid, size, mtime;
    if (!number_read(h + MODE_AT, NUMBER_SIZE, &mode) || !number_read(h + UID_AT, NUMBER_SIZE, &uid) ||
        !number_read(h + GID_AT, NUMBER_SIZE, &gid) || !number_read(h + SIZE_AT, LONG_SIZE, &size) ||
        !number_read(h + MTIME_AT, LONG_SIZE, &mtime))
        return false;
    c->type = h[TYPE_AT] == '\0' || h[TYPE_AT] == '7' ? TAR_REGULAR : (char)h[TYPE_AT];
    c->mode = (uint32_t)mode & 07777;
    c->uid = p->has_uid ? c->uid : (uint32_t)uid;
    c->gid = p->has_gid ? c->gid : (uint32_t)gid;
    c->size = p->has_size ? c->size : size;
    c->mtime = p->has_mtime ? c->mtime : (int64_t)mtime;
    if (!p->has_link)
        text_take(c->link, h + LINK_AT, strnlen((const char *)h + LINK_AT, NAME_SIZE));
    if (!p->has_path) {
        size_t prefix = memcmp(h + MAGIC_AT, "ustar", 6) == 0 ? strnlen((const char *)h + PREFIX_AT, PREFIX_SIZE) : 0;
        size_t name = strnlen((const char *)h + NAME_AT, NAME_SIZE);
        memcpy(c->path, h + PREFIX_AT, prefix);
        if (prefix > 0)
            c->path[prefix++] = '/';
        memcpy(c->path + prefix, h + NAME_AT, name);
        c->path[prefix + name] = '\0';
    }
    return c->path[0] != '\0' && c->size <= INT64_MAX;
}

static int header_take(struct tar_parser *p, struct err *e)
{
    static const uint8_t zeros[TAR_BLOCK];
    const uint8_t *h = p->block;
    if (memcmp(h, zeros, TAR_BLOCK) == 0) {
        p->finished = true;
        return 0;
    }
    if (!checksum_right(h))
        return err_set(e, ERR_INVALID, "a header of the archive has a wrong checksum");
    char type = (char)h[TYPE_AT];
    if (type == 'x' || type == 'g' || type == 'L' || type == 'K') {
        uint64_t size;
        if (!number_read(h + SIZE_AT, LONG_SIZE, &size) || size > LIMIT_TAR_EXTENDED)
            return err_set(e, ERR_INVALID, "an extended header of the archive is too long");
        p->extended = type;
        buf_reset(&p->text);
        p->content_left = size;
        p->padding_left = tar_padding(size);
        return size > 0 || extended_take(p) ? 0
                                            : err_set(e, ERR_INVALID, "an extended header of the archive is broken");
    }
    if (!header_fields(p, h))
        return err_set(e, ERR_INVALID, "a header of the archive is broken");
    struct tar_entry *c = &p->current;
    if (c->type == TAR_DIRECTORY || c->type == TAR_SYMLINK || c->type == TAR_FIFO)
        c->size = 0;
    p->content_left = c->type == TAR_HARDLINK ? 0 : c->size;
    p->padding_left = tar_padding(p->content_left);
    p->has_path = p->has_link = p->has_size = p->has_uid = p->has_gid = p->has_mtime = false;
    p->in_entry = true;
    return p->entry(p->arg, c, e);
}

static int entry_end(struct tar_parser *p, struct err *e)
{
    p->in_entry = false;
    return p->end(p->arg, e);
}

static int content_take(struct tar_parser *p, const uint8_t *data, size_t len, struct err *e)
{
    p->content_left -= len;
    if (!p->extended)
        return p->data(p->arg, data, len, e);
    buf_put(&p->text, data, len);
    if (p->content_left == 0 && !extended_take(p))
        return err_set(e, ERR_INVALID, "an extended header of the archive is broken");
    return 0;
}

int tar_parser_feed(struct tar_parser *p, const uint8_t *data, size_t len, struct err *e)
{
    int r = 0;
    while (len > 0 && r >= 0 && !p->finished) {
        size_t n;
        if (p->content_left > 0) {
            n = (size_t)MIN(p->content_left, (uint64_t)len);
            r = content_take(p, data, n, e);
        } else if (p->padding_left > 0) {
            n = MIN(p->padding_left, len);
            p->padding_left -= n;
        } else {
            n = MIN(TAR_BLOCK - p->block_len, len);
            memcpy(p->block + p->block_len, data, n);
            p->block_len += n;
            if (p->block_len == TAR_BLOCK) {
                p->block_len = 0;
                r = header_take(p, e);
            }
        }
        data += n;
        len -= n;
        if (r >= 0 && p->in_entry && p->content_left == 0)
            r = entry_end(p, e);
    }
    return r < 0 ? r : 0;
}

int tar_parser_finish(const struct tar_parser *p, struct err *e)
{
    if (p->content_left > 0 || p->block_len > 0 || p->in_entry)
        return err_set(e, ERR_INVALID, "the archive ends in the middle of an entry");
    return 0;
}

/* What may be stored: lengths and forms of text (see internal.h). */
#include "store/internal.h"

#include "base/str.h"

int check_text(const char *what, const char *text, size_t min, size_t max, struct err *e)
{
    size_t len = text ? strnlen(text, max + 1) : 0;
    if (len < min)
        return err_set(e, ERR_INVALID, "%s: must not be %s", what, len == 0 ? "empty" : "so short");
    if (len > max)
        return err_set(e, ERR_TOO_LARGE, "%s: longer than %zu bytes", what, max);
    if (!utf8_valid(text ? text : "", len))
        return err_set(e, ERR_INVALID, "%s: not UTF-8", what);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return err_set(e, ERR_INVALID, "%s: has a control character", what);
    return 0;
}

int check_json(const char *what, const char *text, size_t max, struct err *e)
{
    if (!text)
        return 0;
    size_t len = strnlen(text, max + 1);
    if (len > max)
        return err_set(e, ERR_TOO_LARGE, "%s: longer than %zu bytes", what, max);
    if (!utf8_valid(text, len))
        return err_set(e, ERR_INVALID, "%s: not UTF-8", what);
    return 0;
}

static bool all_of(const char *text, const char *extra)
{
    for (; *text; text++)
        if (!(*text >= 'a' && *text <= 'z') && !(*text >= '0' && *text <= '9') && !strchr(extra, *text))
            return false;
    return true;
}

int check_digest(const char *digest, struct err *e)
{
    int r = check_text("template digest", digest, 1, STORE_DIGEST_MAX, e);
    if (r == 0 && !all_of(digest, ":_-"))
        return err_set(e, ERR_INVALID, "template digest: has other than a-z, 0-9, ':', '_' and '-'");
    return r;
}

int check_tag(const char *tag, struct err *e)
{
    int r = check_text("template tag", tag, 1, STORE_TAG_MAX, e);
    if (r == 0 && (!all_of(tag, "._-") || strchr("._-", *tag)))
        return err_set(e, ERR_INVALID, "template tag: must be of a-z, 0-9, '.', '_', '-' and start with a letter or digit");
    return r;
}

int check_id(enum id_kind kind, const char *id, struct err *e)
{
    if (!id || !id_valid(kind, id))
        return err_set(e, ERR_INVALID, "not an id of the kind '%c'", (char)kind);
    return 0;
}

char *reason_clean(const char *reason, size_t max)
{
    if (!reason)
        return NULL;
    size_t len = strnlen(reason, max);
    if (reason[len]) /* cut: not within a character */
        while (len > 0 && ((unsigned char)reason[len] & 0xc0) == 0x80)
            len--;
    char *clean = xstrndup(reason, len);
    if (!utf8_valid(clean, len))
        for (char *p = clean; *p; p++)
            if ((unsigned char)*p >= 0x80)
                *p = '?';
    return clean;
}

void secret_new(const char *prefix, char *ret_secret, size_t size)
{
    uint8_t raw[20];
    char hex[2 * sizeof(raw) + 1];
    random_bytes(raw, sizeof(raw));
    hex_encode(raw, sizeof(raw), hex);
    snprintf(ret_secret, size, "%s%s", prefix, hex);
    wipe(raw, sizeof(raw));
    wipe(hex, sizeof(hex));
}

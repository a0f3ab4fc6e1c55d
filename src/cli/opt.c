/* The option parser (see opt.h). */
#include "cli/opt.h"

#include "base/str.h"

struct found {
    const struct opt *opt;
    void *values;
};

static struct found find_long(const struct opt_table *tables, size_t count, const char *name, size_t len)
{
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables[t].len; i++) {
            const struct opt *o = &tables[t].opts[i];
            if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
                return (struct found){o, tables[t].values};
        }
    return (struct found){NULL, NULL};
}

static struct found find_short(const struct opt_table *tables, size_t count, char key)
{
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables[t].len; i++)
            if (tables[t].opts[i].key == key)
                return (struct found){&tables[t].opts[i], tables[t].values};
    return (struct found){NULL, NULL};
}

static bool choice_valid(const char *choices, const char *value)
{
    size_t len = strlen(value);
    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, value, n) == 0)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static int store_number(const struct opt *o, const char *value, uint64_t *to, struct err *e)
{
    uint64_t v;
    bool ok = o->kind == OPT_TIME    ? str_to_ms(value, &v)
              : o->kind == OPT_BYTES ? str_to_bytes(value, &v)
                                     : str_to_u64(value, 0, UINT64_MAX, &v);
    if (!ok)
        return err_set(e, ERR_INVALID, "--%s: \"%s\" is not %s", o->name, value,
                       o->kind == OPT_TIME    ? "a duration such as 250ms, 30s, 5m or 2h"
                       : o->kind == OPT_BYTES ? "a size such as 512, 64K, 16M or 2G"
                                              : "a number");
    if (v < o->min || (o->max && v > o->max)) {
        const char *unit = o->kind == OPT_TIME ? " ms" : o->kind == OPT_BYTES ? " bytes" : "";
        if (!o->max)
            return err_set(e, ERR_INVALID, "--%s: %s is less than %ju%s", o->name, value, (uintmax_t)o->min, unit);
        return err_set(e, ERR_INVALID, "--%s: %s is not between %ju and %ju%s", o->name, value, (uintmax_t)o->min,
                       (uintmax_t)o->max, unit);
    }
    *to = v;
    return 0;
}

static int store(struct found f, const char *value, struct err *e)
{
    void *to = (char *)f.values + f.opt->offset;
    switch (f.opt->kind) {
    case OPT_FLAG:
        *(bool *)to = true;
        return 0;
    case OPT_CHOICE:
        if (!choice_valid(f.opt->choices, value))
            return err_set(e, ERR_INVALID, "--%s: \"%s\" is not one of %s", f.opt->name, value, f.opt->choices);
        *(const char **)to = value;
        return 0;
    case OPT_TEXT:
        *(const char **)to = value;
        return 0;
    case OPT_LIST: {
        struct opt_list *list = to;
        if (list->len == OPT_LIST_MAX)
            return err_set(e, ERR_INVALID, "--%s is given more than %d times", f.opt->name, OPT_LIST_MAX);
        list->items[list->len++] = value;
        return 0;
    }
    case OPT_NUMBER:
    case OPT_TIME:
    case OPT_BYTES:
        return store_number(f.opt, value, to, e);
    }
    return 0;
}

static int parse_long(const struct opt_table *tables, size_t count, char **argv, int argc, int *at, struct err *e)
{
    const char *name = argv[*at] + 2;
    size_t len = strcspn(name, "=");
    const char *value = name[len] == '=' ? name + len + 1 : NULL;
    struct found f = find_long(tables, count, name, len);
    if (!f.opt)
        return err_set(e, ERR_INVALID, "no option --%.*s", (int)MIN(len, 64), name);
    if (f.opt->kind == OPT_FLAG) {
        if (value)
            return err_set(e, ERR_INVALID, "--%s takes no value", f.opt->name);
    } else if (!value) {
        if (*at + 1 >= argc)
            return err_set(e, ERR_INVALID, "--%s needs a value (%s)", f.opt->name, f.opt->arg);
        value = argv[++*at];
    }
    return store(f, value, e);
}

static int parse_shorts(const struct opt_table *tables, size_t count, char **argv, int argc, int *at, struct err *e)
{
    for (const char *p = argv[*at] + 1; *p; p++) {
        struct found f = find_short(tables, count, *p);
        if (!f.opt)
            return err_set(e, ERR_INVALID, "no option -%c", *p);
        if (f.opt->kind == OPT_FLAG) {
            int r = store(f, NULL, e);
            if (r < 0)
                return r;
            continue;
        }
        const char *value = p + 1;
        if (!*value) {
            if (*at + 1 >= argc)
                return err_set(e, ERR_INVALID, "-%c needs a value (%s)", *p, f.opt->arg);
            value = argv[++*at];
        }
        return store(f, value, e);
    }
    return 0;
}

int opt_parse(const struct opt_table *tables, size_t table_count, int words, char **argv, int *inout_argc,
              struct err *e)
{
    int kept = 0, argc = *inout_argc;
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        int r = 0;
        if (ended || word[0] != '-' || word[1] == '\0') {
            argv[kept++] = word;
            if (words >= 0 && kept > words)
                ended = true;
        } else if (str_eq(word, "--")) {
            ended = true;
        } else if (word[1] == '-') {
            r = parse_long(tables, table_count, argv, argc, &i, e);
        } else {
            r = parse_shorts(tables, table_count, argv, argc, &i, e);
        }
        if (r < 0)
            return r;
    }
    *inout_argc = kept;
    return 0;
}

/* The configuration of a whole program: file, environment and command line in their order (see config_load). */
#include "base/str.h"
#include "config/config.h"
#include "config/table.h"

/* An option of the command line: "--set" with its pair, or a key's own. */
struct option {
    const struct config_key *key; /* NULL: --set */
    char *value;
};

/* Is argv[at] `--name`, `--name=value` or `--name value`? Then the value, and how many arguments it took. */
static int take(const char *name, size_t name_len, int at, int argc, char **argv, bool value_optional, char **ret_value,
                int *ret_used, struct err *e)
{
    const char *after = argv[at] + 2 + name_len;
    if (*after == '=') {
        *ret_value = argv[at] + 2 + name_len + 1;
        *ret_used = 1;
    } else if (value_optional) {
        *ret_value = NULL;
        *ret_used = 1;
    } else if (at + 1 < argc) {
        *ret_value = argv[at + 1];
        *ret_used = 2;
    } else {
        return err_set(e, ERR_INVALID, "--%.*s: a value is missing", (int)name_len, name);
    }
    return 0;
}

int config_load(struct config *c, int *argc, char **argv, char *const *environment, const char *default_path,
                struct err *e)
{
    _cleanup_free_ struct option *options = xcalloc((size_t)*argc + 1, sizeof(*options));
    size_t option_count = 0;
    const char *path = NULL;
    int kept = *argc > 0 ? 1 : 0, r, used = 1;
    for (int i = kept; i < *argc; i += used) {
        const char *name = argv[i] + 2;
        size_t len = str_starts(argv[i], "--") ? strcspn(name, "=") : 0;
        const struct config_key *key = config_find(name, len, true);
        char *value = NULL;
        used = 1;
        if (str_eq(argv[i], "--")) {
            while (i < *argc)
                argv[kept++] = argv[i++];
            break;
        }
        bool is_config = len == 6 && strncmp(name, "config", 6) == 0, is_set = len == 3 && strncmp(name, "set", 3) == 0;
        if (len == 0 || (!key && !is_config && !is_set)) {
            argv[kept++] = argv[i];
            continue;
        }
        if ((r = take(name, len, i, *argc, argv, key && key->type == CONFIG_BOOL, &value, &used, e)) < 0)
            return r;
        if (is_config)
            path = value;
        else
            options[option_count++] = (struct option){key, value};
    }
    for (int i = kept; i < *argc; i++)
        argv[i] = NULL;
    *argc = kept;

    bool must_exist = path != NULL;
    for (char *const *variable = environment; *variable && !path; variable++)
        if (str_starts(*variable, "SPACE_CONFIG=") && (*variable)[13]) {
            path = *variable + 13;
            must_exist = true;
        }
    if (!path)
        path = default_path;
    if (path && (r = config_read_file(c, path, e)) < 0 && (r != ERR_NOT_FOUND || must_exist))
        return r;
    if ((r = config_read_environment(c, environment, e)) < 0)
        return r;
    for (size_t i = 0; i < option_count; i++) {
        char where[80];
        if (!options[i].key) {
            if ((r = config_set_pair(c, "--set", options[i].value, e)) < 0)
                return r;
            continue;
        }
        snprintf(where, sizeof(where), "--%s", options[i].key->name);
        for (char *p = where + 2; *p; p++)
            *p = *p == '_' ? '-' : *p;
        r = config_set(c, where, options[i].key->name, options[i].value ? options[i].value : "true", e);
        if (r < 0)
            return r;
    }
    return config_check(c, e);
}

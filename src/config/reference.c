/* The configuration as text: a file that reads back, and the reference page (see config.h). */
#include "base/str.h"
#include "config/config.h"
#include "config/table.h"

void config_dump(const struct config *c, bool only_changed, struct buf *out)
{
    struct config standard;
    config_init(&standard);
    for (size_t i = 0; i < config_table_len; i++) {
        const struct config_key *key = &config_table[i];
        _cleanup_buf_ struct buf value = BUF_MAX(2 * CONFIG_VALUE_MAX), normal = BUF_MAX(2 * CONFIG_VALUE_MAX);
        if (config_key_is_heading(key)) {
            if (!only_changed)
                buf_printf(out, "%s# %s\n", i ? "\n" : "", key->name);
            continue;
        }
        config_field_format(c, key, &value);
        config_field_format(&standard, key, &normal);
        if (!only_changed || !str_eq(buf_cstr(&value), buf_cstr(&normal)))
            buf_printf(out, "%s = %s\n", key->name, buf_cstr(&value));
    }
    config_done(&standard);
}

void config_reference(struct buf *out)
{
    buf_put_str(out,
                "# Configuration of `spaced`\n\n"
                "<!-- Made from src/config/table.c by build/src/config/config-reference; do not edit. -->\n\n"
                "A file has lines `key = value`. `#` starts a comment at the start of a line or after a space; a value in "
                "double quotes keeps its spaces and its `#`. What comes later wins: the default, the file (`config` in the "
                "state folder, `--config FILE` or `SPACE_CONFIG`), the environment (`SPACE_LISTEN` for `listen`), the "
                "command line (`--listen 127.0.0.1:7777` or `--set listen=127.0.0.1:7777`). An unknown key or a value out "
                "of its bounds refuses the start.\n\n"
                "Durations: `250ms`, `30s`, `5m`, `2h`, `1d`. Sizes: `64KiB`, `4MiB`, `1GiB`. Lists: names with commas "
                "between.\n");
    for (size_t i = 0; i < config_table_len; i++) {
        const struct config_key *key = &config_table[i];
        if (config_key_is_heading(key)) {
            buf_printf(out, "\n## %s\n\n| key | value | default | meaning |\n|---|---|---|---|\n", key->name);
            continue;
        }
        buf_printf(out, "| `%s` | ", key->name);
        config_describe_type(key, out);
        if (!key->standard)
            buf_put_str(out, " | `/var/lib/space` for root, else `$XDG_DATA_HOME/space` or `~/.local/share/space`");
        else if (*key->standard)
            buf_printf(out, " | `%s`", key->standard);
        else
            buf_put_str(out, " | empty");
        buf_printf(out, " | %s |\n", key->help);
    }
}

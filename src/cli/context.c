/* Where the server is and what the key is (see cli.h). */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>

#include "base/file.h"
#include "base/id.h"
#include "base/str.h"
#include "cli/api.h"

#define SMALL_FILE_MAX 4096

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *cli_state_folder(struct cli *cli)
{
    if (cli->state)
        return cli->state;
    if (cli->state_found)
        return cli->state_found;
    const char *given = environment("SPACE_STATE_DIR"), *data = environment("XDG_DATA_HOME"),
               *home = environment("HOME");
    if (given)
        cli->state_found = xstrdup(given);
    else if (geteuid() == 0)
        cli->state_found = xstrdup("/var/lib/space");
    else if (data)
        cli->state_found = xasprintf("%s/space", data);
    else
        cli->state_found = xasprintf("%s/.local/share/space", home ? home : "");
    return cli->state_found;
}

/* The first line of a small file; NULL when there is none, with the reason in `e` when it cannot be read. */
static char *first_line(const char *path, struct err *e)
{
    _cleanup_buf_ struct buf content = BUF_MAX(SMALL_FILE_MAX);
    if (file_read(path, SMALL_FILE_MAX, &content, e) < 0)
        return NULL;
    char *line = xstrdup(buf_cstr(&content));
    line[strcspn(line, "\r\n")] = '\0';
    if (content.len > 0)
        wipe(buf_data(&content), content.len);
    if (!*line) {
        free(line);
        return NULL;
    }
    return line;
}

int cli_api(struct cli *cli, struct api **ret_api, struct err *e)
{
    if (!cli->api) {
        const char *folder = cli_state_folder(cli);
        const char *url = cli->url ? cli->url : environment("SPACE_URL");
        const char *key = cli->key || cli->key_file ? cli->key : environment("SPACE_API_KEY");
        _cleanup_free_ char *url_path = xasprintf("%s/url", folder), *key_path = xasprintf("%s/admin.key", folder);
        struct err why = {0};
        if (!url)
            url = cli->url_found = first_line(url_path, NULL);
        if (!key) {
            key = cli->key_found = first_line(cli->key_file ? cli->key_file : key_path, &why);
            if (!key && cli->key_file)
                return err_set(e, ERR_INVALID, "--key-file: %s", why.code ? why.text : "the file is empty");
        }
        int r = api_open(url ? url : SPACE_URL_DEFAULT, key, &cli->api, e);
        if (r < 0)
            return r;
    }
    *ret_api = cli->api;
    return 0;
}

char *cli_program_folder(void)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n <= 0)
        return xstrdup(".");
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return xstrdup(path);
}

int cli_pairs(const struct opt_list *list, const char *option, bool from_environment, json_t **ret_object,
              struct err *e)
{
    json_t *object = json_object();
    for (size_t i = 0; i < list->len; i++) {
        const char *item = list->items[i], *equals = strchr(item, '=');
        _cleanup_free_ char *name = equals ? xstrndup(item, (size_t)(equals - item)) : xstrdup(item);
        const char *value = equals ? equals + 1 : from_environment ? getenv(name) : NULL;
        if (!*name || !value || json_object_set_new(object, name, json_string(value)) < 0) {
            json_decref(object);
            if (!equals && from_environment && *name)
                return err_set(e, ERR_INVALID, "--%s %s: no such variable in this environment", option, name);
            return err_set(e, ERR_INVALID, "--%s: \"%s\" is not NAME=VALUE in UTF-8", option, item);
        }
    }
    *ret_object = object;
    return 0;
}

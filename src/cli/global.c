/* The options that every command takes. */
#include "cli/cli.h"

#define OPTION(member, ...)                                                                                            \
    {                                                                                                                  \
        .offset = offsetof(struct cli, member), __VA_ARGS__                                                            \
    }

const struct opt global_options[] = {
    OPTION(url, .name = "url", .arg = "URL", .kind = OPT_TEXT,
           .help = "where the server is: http://, https:// or unix:/socket (SPACE_URL)"),
    OPTION(key, .name = "key", .arg = "KEY", .kind = OPT_TEXT,
           .help = "API key; better in SPACE_API_KEY, where other users cannot see it"),
    OPTION(key_file, .name = "key-file", .arg = "FILE", .kind = OPT_TEXT,
           .help = "file that holds the API key (default: admin.key in the state folder)"),
    OPTION(state, .name = "state-dir", .arg = "DIR", .kind = OPT_TEXT,
           .help = "state folder of the platform (SPACE_STATE_DIR)"),
    OPTION(json, .name = "json", .kind = OPT_FLAG, .help = "print JSON for programs"),
    OPTION(quiet, .key = 'q', .name = "quiet", .kind = OPT_FLAG, .help = "print results alone, no progress or remarks"),
    OPTION(help, .key = 'h', .name = "help", .kind = OPT_FLAG, .help = "show this help"),
    OPTION(version, .name = "version", .kind = OPT_FLAG, .help = "show the version"),
};
const size_t global_option_count = ARRAY_LEN(global_options);

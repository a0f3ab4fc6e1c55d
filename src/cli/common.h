/* What several commands do with the API. */
#ifndef SPACE_CLI_COMMON_H
#define SPACE_CLI_COMMON_H

#include <jansson.h>

#include "base/id.h"
#include "cli/api.h"
#include "cli/cli.h"

static inline void cleanup_json(json_t **j)
{
    json_decref(*j);
}
#define _cleanup_json_ _cleanup_(cleanup_json)

/* `text` is an id, or the name of exactly one sandbox (asked from the server). ERR_NOT_FOUND, ERR_CONFLICT. */
int sandbox_resolve(struct api *api, const char *text, char ret_id[ID_SIZE], struct err *e);
/* A digest, a tag, or the first 6 or more digits of a digest → what the API takes; the caller frees. */
int template_resolve(struct api *api, const char *text, bool digest_needed, char **ret_ref, struct err *e);

/* POST /v1/sandboxes and wait until it runs, with progress. ret_id is set as soon as it is known, "" before; also when
 * this fails or a SIGINT or SIGTERM that the caller has blocked is pending (ERR_CANCELLED). ret_answer: {operation,
 * sandbox}; with `wait` false as the server gave it at once. */
int sandbox_create(struct cli *cli, struct api *api, const json_t *request, bool wait, char ret_id[ID_SIZE],
                   json_t **ret_answer, struct err *e);

/* Follow an operation to its end with progress: ret_operation (may be NULL) is its last form. Its own failure comes
 * back as this call's. `text` is what is shown before the first step is known. */
int operation_wait(struct cli *cli, struct api *api, const char *id, const char *text, uint64_t timeout_ms,
                   json_t **ret_operation, struct err *e);

/* POST or DELETE that answers {operation, …}: the change of one sandbox, waited for unless `wait` is false. */
int sandbox_change(struct cli *cli, struct api *api, const char *method, const char *id, const char *verb, bool wait,
                   json_t **ret_answer, struct err *e);

/* The options of create that run and shell have too. */
struct create_options {
    const char *template, *name;
    uint64_t vcpus, memory, disk, timeout_ms;
    struct opt_list env, metadata;
};

#define CREATE_OPTIONS(type, member)                                                                                   \
    {.name = "template",                                                                                               \
     .arg = "TEMPLATE",                                                                                                \
     .kind = OPT_TEXT,                                                                                                 \
     .offset = offsetof(type, member.template),                                                                        \
     .help = "tag or digest to start from (default: base)"},                                                           \
        {.name = "vcpus",                                                                                              \
         .arg = "N",                                                                                                   \
         .kind = OPT_NUMBER,                                                                                           \
         .offset = offsetof(type, member.vcpus),                                                                       \
         .min = 1,                                                                                                     \
         .max = 8,                                                                                                     \
         .help = "processors"},                                                                                        \
        {.name = "memory",                                                                                             \
         .arg = "SIZE",                                                                                                \
         .kind = OPT_BYTES,                                                                                            \
         .offset = offsetof(type, member.memory),                                                                      \
         .min = 128 * MIB,                                                                                             \
         .max = 8 * GIB,                                                                                               \
         .help = "memory, such as 512M"},                                                                              \
        {.name = "disk",                                                                                               \
         .arg = "SIZE",                                                                                                \
         .kind = OPT_BYTES,                                                                                            \
         .offset = offsetof(type, member.disk),                                                                        \
         .min = 256 * MIB,                                                                                             \
         .max = 64 * GIB,                                                                                              \
         .help = "disk, such as 4G"},                                                                                  \
    {                                                                                                                  \
        .name = "metadata", .arg = "KEY=VALUE", .kind = OPT_LIST, .offset = offsetof(type, member.metadata),           \
        .help = "a label for lists to filter by"                                                                       \
    }

int create_request(const struct create_options *o, json_t **ret_request, struct err *e);

#endif

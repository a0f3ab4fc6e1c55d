/* Things as JSON, in the form of the schemas of api/openapi.yaml. */
#ifndef SPACE_API_RENDER_H
#define SPACE_API_RENDER_H

#include "api/api_internal.h"
#include "store/api_key.h"
#include "store/exec.h"
#include "store/operation.h"
#include "store/project.h"
#include "store/sandbox.h"
#include "store/template.h"

#include <jansson.h>

json_t *render_time(int64_t ms); /* null for 0 */
/* Bytes of a guest or file as a JSON string: what is no UTF-8 becomes U+FFFD. */
json_t *render_text(const void *data, size_t len);

json_t *render_sandbox(struct api *api, const struct store_sandbox *sb);
json_t *render_operation(const struct store_operation *op);
json_t *render_exec(const struct store_exec *x);
json_t *render_exec_result(const struct store_exec *x);
json_t *render_key(const struct store_api_key *k);
json_t *render_project(const struct store_project *p);
json_t *render_shape(uint32_t vcpus, uint32_t memory_mib, uint32_t disk_mib);
/* With its tags and the shapes that are ready; `whole` also with its packages. */
json_t *render_template(struct api *api, const char *project_id, const struct store_template *t, bool whole);
json_t *render_missing(uint64_t jail_missing); /* names of jail features */

const char *signal_name(int number);        /* "TERM"; NULL when there is no such signal */
int signal_number(const char *name);        /* 0 when there is none */

#endif

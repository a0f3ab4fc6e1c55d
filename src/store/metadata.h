/* Metadata rows; of this folder alone. */
#ifndef SPACE_STORE_METADATA_H
#define SPACE_STORE_METADATA_H

#include <jansson.h>

#include "store/store.h"

static inline void json_decref_cleanup(json_t **json)
{
    json_decref(*json);
}

/* Parsed and checked as store_metadata_check does. */
int metadata_parse(const char *json, json_t **ret_object, struct err *e);
/* A row for each pair; the sandbox has none yet. */
int metadata_write(struct store *s, const char *sandbox_id, json_t *object, struct err *e);

#endif

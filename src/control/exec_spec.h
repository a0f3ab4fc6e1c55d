/* The request of an exec as it lies in the store, in the guest's form. */
#ifndef SPACE_CONTROL_EXEC_SPEC_H
#define SPACE_CONTROL_EXEC_SPEC_H

#include "guest/guest.h"

#include <jansson.h>

struct exec_spec {
    struct guest_exec_spec guest; /* points into the rest */
    json_t *json;
    const char **argv;
    char **env;
    size_t env_count;
};

/* ERR_INTERNAL when the text is not what exec_create was given. */
int exec_spec_init(struct exec_spec *ret_spec, const char *spec_json, struct err *e);
void exec_spec_done(struct exec_spec *s);

#endif

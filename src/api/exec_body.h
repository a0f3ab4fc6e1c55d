/* The members that an exec and a run have in common, checked and made into what control/exec.h takes. */
#ifndef SPACE_API_EXEC_BODY_H
#define SPACE_API_EXEC_BODY_H

#include "api/fields.h"

struct exec_body {
    const json_t *command, *env, *terminal;
    const char *shell, *user, *cwd;
    bool stdin_open;
    int64_t buffer_bytes, timeout_ms; /* 0: not given */
    /* of a run alone */
    const char *stdin_data, *encoding;
    int64_t max_output_bytes;
};

void exec_body_parse(const json_t *json, struct exec_body *ret_body, struct faults *f);
void run_body_parse(const json_t *json, struct exec_body *ret_body, struct faults *f);

/* The normalised request, with `buffer_default` where it names no size; the caller frees. */
char *exec_body_spec(const struct exec_body *b, uint64_t buffer_default);

/* {"rows", "cols"} */
struct terminal_body {
    int64_t rows, cols;
};
void terminal_body_parse(const json_t *json, const char *at, struct terminal_body *ret_body, struct faults *f);

/* A signal by name or number; 0 and a fault when it is none. */
int signal_body_parse(const json_t *value, const char *at, struct faults *f);

#endif

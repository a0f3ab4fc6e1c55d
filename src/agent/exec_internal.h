/* Between exec.c, exec_input.c and exec_output.c. */
#ifndef SPACE_AGENT_EXEC_INTERNAL_H
#define SPACE_AGENT_EXEC_INTERNAL_H

#include "agent/exec.h"

/* Close standard input and answer what was still being fed. */
void exec_input_end(struct exec *x);
/* The exec is about to go: end every reader. */
void exec_output_end(struct exec *x);

#endif

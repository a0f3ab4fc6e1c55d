/* `--help`, man pages and shell completion, all from the tables of commands and options. */
#ifndef SPACE_CLI_HELP_H
#define SPACE_CLI_HELP_H

#include "base/buf.h"
#include "cli/cli.h"

void help_overview(const struct cli *cli, struct buf *out);
/* `group`: the first word of several commands ("template"). */
void help_group(const struct cli *cli, const char *group, struct buf *out);
void help_command(const struct cli *cli, const struct command *c, struct buf *out);
/* roff with man macros: space(1), or the page of one command, space-exec(1). */
void help_man(const struct command *c, struct buf *out);
void help_bash_completion(struct buf *out);

#endif

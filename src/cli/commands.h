/* Every command; the list that main.c and the help walk through is in commands.c. */
#ifndef SPACE_CLI_COMMANDS_H
#define SPACE_CLI_COMMANDS_H

#include "cli/cli.h"

extern const struct command command_run, command_exec, command_shell;
extern const struct command command_create, command_ls, command_inspect, command_update, command_pause, command_resume,
    command_kill;
extern const struct command command_ps, command_logs, command_console, command_metrics;
extern const struct command command_cp, command_port;
extern const struct command command_template_build, command_template_import, command_template_ls,
    command_template_inspect, command_template_tag, command_template_untag, command_template_rm, command_template_log;
extern const struct command command_op_ls, command_op_get, command_op_wait;
extern const struct command command_key_create, command_key_ls, command_key_revoke, command_project_create,
    command_project_ls;
extern const struct command command_node, command_doctor, command_bench, command_serve, command_help,
    command_completion;

#endif

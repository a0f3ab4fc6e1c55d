/* What a daemon needs of the host: its state folder and lock, limits, listeners, the drop of privileges, systemd. */
#ifndef SPACE_BIN_DAEMON_H
#define SPACE_BIN_DAEMON_H

#include "config/config.h"
#include "http/http_server.h"
#include "store/store.h"

/* `<state>/config` of the state folder that the command line or the environment names. The caller frees. */
char *daemon_config_path(const struct config *defaults, int argc, char **argv);

/* Signals, umask, no core dumps, as many descriptors as allowed. */
void daemon_process_setup(void);

/* Make the state folder (0700, of the service's uid when root) and hold its lock. ERR_CONFLICT: a daemon has it. */
int daemon_state_folder(const struct config *c, int *ret_lock_fd, struct err *e);

/* See to it that `<state>/admin.key` holds a valid key. */
int daemon_first_key(const struct config *c, struct store *store, struct err *e);

/* Listen as configured and write `<state>/url`. */
int daemon_listen(const struct config *c, struct http_server *server, struct err *e);

/* Root becomes uid_base for good; what it made in the state folder is given to that uid. Without root: nothing. */
int daemon_drop_privileges(const struct config *c, struct err *e);

/* Tell the service manager, if there is one ($NOTIFY_SOCKET). */
void daemon_notify(const char *state);

#endif

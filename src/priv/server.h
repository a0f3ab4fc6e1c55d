/* The loop of space-priv: one peer, a table of slots, nothing else. */
#ifndef SPACE_PRIV_SERVER_H
#define SPACE_PRIV_SERVER_H

#include "priv/launch.h"

/* Serve the peer on `sock` until it goes away or breaks the protocol. Returns an enum priv_exit_status. Machines that
 * run are left running. */
int server_run(int sock, const struct launch_paths *paths);

#endif

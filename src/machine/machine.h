/* One QEMU process and what belongs to it: its folder of sockets, its control connection, its guest connection.
 *
 * Theory of operation. A machine moves along
 *
 *     SPAWNING ─► BLANK ─► LOADING ─► RUNNING ◄─► PAUSED
 *         └─────────┴─────────┴──────────┴──────────┴────► ENDED
 *
 *   SPAWNING  space-priv was asked; there is no QEMU yet, or it does not answer yet
 *   BLANK     QEMU stands with empty memory and a null disk; machine_prepare gives it what is shared by every clone
 *   LOADING   the disk is being put in, the device state read (restore), or the kernel started (boot)
 *   RUNNING   vCPUs run       PAUSED  vCPUs stand still, memory stays
 *   ENDED     the process is gone, or is being killed; on_ended has been or is being called, exactly once
 *
 * Each step takes one callback, called exactly once from the loop; a step that cannot be done in the machine's state
 * answers ERR_STATE. Whatever goes wrong with QEMU ends the machine: no step is repeated on a QEMU whose state is not
 * known. The owner frees with machine_free, which kills what still runs; nothing is called after that.
 *
 * Nothing that QEMU says is trusted further than the machine itself. */
#ifndef SPACE_MACHINE_MACHINE_H
#define SPACE_MACHINE_MACHINE_H

#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"
#include "guest/guest.h"
#include "priv/priv_client.h"

#define MACHINE_CONSOLE_MAX (64 * KIB) /* the ring inside QEMU; a power of two */

enum machine_state {
    MACHINE_SPAWNING,
    MACHINE_BLANK,
    MACHINE_LOADING,
    MACHINE_RUNNING,
    MACHINE_PAUSED,
    MACHINE_ENDED,
};

struct machine;

typedef void (*machine_done_cb)(void *arg, const struct err *e); /* e is NULL on success */

struct machine_context {
    uv_loop_t *loop;
    struct priv *priv;
    const char *folder_base;    /* <state>/machines */
    uint32_t spawn_timeout_ms;  /* until QEMU answers: default 15,000 */
    uint32_t load_timeout_ms;   /* until a device state is read: default 10,000 */
    struct guest_options guest;
    /* The guest connection broke by itself (not by machine_guest_close); may be NULL. */
    void (*guest_lost)(void *arg, struct machine *m, const struct err *e);
};

struct machine_plan {
    char id[ID_SIZE];
    struct priv_spawn spawn;    /* sockets and console are filled in by machine_new */
};

/* The owner is told once that a machine that it did not free has ended; text says why in words for people. */
typedef void (*machine_ended_cb)(void *arg, struct machine *m, const char *reason);

/* Make the folder and the sockets, ask for the process. `done` when QEMU answers (BLANK). */
int machine_new(const struct machine_context *context, const struct machine_plan *plan, machine_ended_cb ended,
                machine_done_cb done, void *arg, struct machine **ret_machine, struct err *e);

/* Take over a machine of an earlier life. `done` when QEMU has said whether it runs or stands still. */
int machine_adopt(const struct machine_context *context, const char *id, const struct priv_machine *process,
                  machine_ended_cb ended, machine_done_cb done, void *arg, struct machine **ret_machine, struct err *e);

/* Give a BLANK machine what it shares with others: the template's root file system (raw) and, unless -1, the shape's
 * frozen layer (qcow2) as read-only descriptors, and the device state (copied). Restore mode. */
void machine_prepare(struct machine *m, int rootfs_fd, int layer_fd, const void *device_state, size_t device_state_len,
                     machine_done_cb done);

/* Put the writable overlay (qcow2, read-write descriptor) on top, read the device state, go on. RUNNING. */
void machine_restore(struct machine *m, int overlay_fd, machine_done_cb done);

/* Boot mode: root file system read-only, `disk_fd` (qcow2) on top of it, start the kernel. RUNNING. */
void machine_boot(struct machine *m, int rootfs_fd, int disk_fd, machine_done_cb done);

/* Write the device state into state_fd (opened write-only) and stay PAUSED. */
void machine_freeze(struct machine *m, int state_fd, machine_done_cb done);

void machine_pause(struct machine *m, machine_done_cb done);  /* PAUSED is a success */
void machine_resume(struct machine *m, machine_done_cb done); /* RUNNING is a success */

/* The newest bytes of the guest's console. */
void machine_console(struct machine *m, void (*done)(void *arg, const void *data, size_t len, const struct err *e),
                     void *arg);
/* What was read of it so far, NULL when nobody has; when a guest has shut down or panicked, all of it. Borrowed. */
const struct buf *machine_console_seen(const struct machine *m);

/* Connect to the agent if there is no connection. The answer of the agent is not waited for: calls can be made. */
int machine_guest_open(struct machine *m, struct err *e);
struct guest *machine_guest(struct machine *m); /* NULL when there is none */
/* Close it; `done` (with the machine's arg, may be NULL) when it is closed. */
void machine_guest_close(struct machine *m, machine_done_cb done);

enum machine_state machine_state(const struct machine *m);
const char *machine_id(const struct machine *m);
const char *machine_folder(const struct machine *m);
const struct priv_machine *machine_process(const struct machine *m); /* pid 0 while SPAWNING */
uint32_t machine_jail_missing(const struct machine *m);

/* Let go of it: QEMU, its folder and its sockets stay for machine_adopt in a later life. `freed` as in machine_free. */
void machine_detach(struct machine *m, void (*freed)(void *arg), void *arg);

/* The process of a slot has ended (from struct priv_config on_exit). */
void machine_on_exit(struct machine *m, const struct priv_exit *exit);

/* Kill it, remove its folder; `freed` (may be NULL) when the process is gone and all is given back. A machine that has
 * ended is freed the same way. The pointer is invalid at once for every other call. */
void machine_free(struct machine *m, void (*freed)(void *arg), void *arg);

#endif

/* What the files of src/machine share: machine.c (steps, ending, guest connection), machine_start.c (a new process, or
 * one of an earlier life), machine_console.c. Nothing outside of this folder includes it. */
#ifndef SPACE_MACHINE_MACHINE_INTERNAL_H
#define SPACE_MACHINE_MACHINE_INTERNAL_H

#include "base/buf.h"
#include "machine/machine.h"
#include "qmp/qmp.h"

struct machine {
    struct machine_context context;
    char id[ID_SIZE];
    char *folder;
    enum machine_state state;
    struct priv_machine process;
    uint32_t jail_missing;
    bool spawn_pending; /* space-priv has not answered: memory must stay */
    bool exited;        /* the process is gone */
    bool freeing;
    bool detached; /* freed without ending the process */
    struct qmp *qmp;
    struct guest *guest;
    bool guest_closing;
    machine_done_cb guest_closed;
    machine_ended_cb ended;
    void *arg;
    machine_done_cb step; /* of the step under way */
    uv_timer_t timer;     /* deadline of SPAWNING and LOADING; kill after QEMU hung up */
    bool timer_open;
    int state_pipe; /* read end that QEMU gets by getfd */
    struct buf console;
    bool console_read;
    char shutdown_reason[64];
    void (*freed)(void *arg);
    void *freed_arg;
};

/* machine.c */
void machine_release(struct machine *m); /* frees it when nothing holds it any more */
void machine_end(struct machine *m,
                 const char *reason); /* it cannot go on: the step under way is told, then the owner */
void machine_kill(struct machine *m);
void step_done(struct machine *m, const struct err *e);
void step_failed(struct machine *m, const struct err *e); /* kills */
void machine_on_timeout(uv_timer_t *timer);               /* deadline of SPAWNING and LOADING */
void machine_on_event(void *arg, const char *name, json_t *data);
void machine_on_qmp_close(void *arg, const struct err *e);

/* machine_console.c */
void machine_last_words(struct machine *m); /* the guest has ended itself: reads why, kills, ends */

#endif

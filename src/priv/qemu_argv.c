/* The machine: microvm, one disk, two serial ports, a console, nothing else. What QEMU works on comes by descriptor
 * (enum qemu_fd); the disk is blank until the real one is put in its place over QMP. */
#include "priv/qemu_argv.h"

#include <stdarg.h>

/* One argument; `plan` becomes NULL in the caller's hand when it did not fit. */
static void add(struct jail_plan **plan, const char *format, ...) ATTR_PRINTF(2, 3);
static void add(struct jail_plan **plan, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(text) || (*plan && !jail_plan_add_arg(*plan, text)))
        *plan = NULL;
}

static void machine_add(struct jail_plan **plan, const struct priv_spawn_request *m)
{
    add(plan, "-M");
    add(plan, "microvm,acpi=on,rtc=on,smm=off,memory-backend=ram,suppress-vmdesc=on,dump-guest-core=off");
    add(plan, "-accel");
    if (m->accel == PRIV_ACCEL_TCG)
        add(plan, "tcg,tb-size=%u,thread=multi", m->tb_size_mib ? m->tb_size_mib : 64);
    else
        add(plan, "kvm");
    add(plan, "-cpu");
    /* Under TCG a string instruction is one step a byte, and erms, fsrm make the guest's kernel and libc copy by them. No
     * guest starts machines of its own: TCG offers svm, vmx only comes from a host. */
    add(plan, m->accel == PRIV_ACCEL_TCG ? "max,-erms,-fsrm,-svm" : "host,-svm,-vmx");
    add(plan, "-smp");
    add(plan, "%u", m->vcpus);
    add(plan, "-m");
    add(plan, "%uM", m->mem_mib);
    add(plan, "-object");
    add(plan, "memory-backend-file,id=ram,size=%uM,mem-path=/proc/self/fd/%d,share=%s,merge=off,dump=off", m->mem_mib,
        QEMU_FD_MEMORY, m->mode == PRIV_MODE_BOOT ? "on" : "off");
    add(plan, "-nodefaults");
    add(plan, "-no-user-config");
    /* A guest that resets (after a panic) or powers off stands still, so that its last words can be read. */
    add(plan, "-action");
    add(plan, "reboot=shutdown,shutdown=pause");
    add(plan, "-display");
    add(plan, "none");
}

/* A listening socket that was inherited. */
static void socket_add(struct jail_plan **plan, const char *id, int fd)
{
    add(plan, "-chardev");
    add(plan, "socket,id=%s,fd=%d,server=on,wait=off", id, fd);
}

static void devices_add(struct jail_plan **plan, const struct priv_spawn_request *m)
{
    socket_add(plan, "qmp", QEMU_FD_QMP);
    add(plan, "-mon");
    add(plan, "chardev=qmp,mode=control");
    /* The console is a ring inside QEMU: bounded, read over QMP, and there after a restart of spaced. */
    add(plan, "-chardev");
    add(plan, "ringbuf,id=console,size=%u", PRIV_CONSOLE_BYTES);
    add(plan, "-serial");
    add(plan, "chardev:console");
    socket_add(plan, "agent", QEMU_FD_AGENT);
    socket_add(plan, "egress", QEMU_FD_EGRESS);
    add(plan, "-device");
    add(plan, "virtio-serial-device,id=ports,max_ports=3");
    add(plan, "-device");
    add(plan, "virtserialport,bus=ports.0,chardev=agent,name=space.agent,nr=1");
    add(plan, "-device");
    add(plan, "virtserialport,bus=ports.0,chardev=egress,name=space.egress,nr=2");
    add(plan, "-blockdev");
    add(plan, "driver=null-co,node-name=empty,size=%llu,read-zeroes=on", (unsigned long long)m->disk_bytes);
    add(plan, "-blockdev");
    add(plan, "driver=raw,node-name=d0,file=empty");
    add(plan, "-device");
    add(plan, "virtio-blk-device,id=disk,drive=d0");
}

static void start_add(struct jail_plan **plan, const struct priv_spawn_request *m)
{
    add(plan, "-S"); /* the disk and, in restore mode, the state come over QMP, then cont */
    if (m->mode == PRIV_MODE_RESTORE) {
        add(plan, "-incoming");
        add(plan, "defer");
        add(plan, "-global");
        add(plan, "migration.send-configuration=off");
        return;
    }
    add(plan, "-kernel");
    add(plan, "/proc/self/fd/%d", QEMU_FD_KERNEL);
    add(plan, "-initrd");
    add(plan, "/proc/self/fd/%d", QEMU_FD_INITRD);
    char tsc[48] = "";
    if (m->tsc_khz)
        snprintf(tsc, sizeof(tsc), " tsc_early_khz=%u", m->tsc_khz);
    add(plan, "-append");
    add(plan, "console=ttyS0 quiet reboot=t panic=-1 mitigations=off tsc=reliable%s", tsc);
}

bool qemu_argv_compose(const struct priv_spawn_request *m, const struct qemu_options *o, struct jail_plan *plan)
{
    add(&plan, "%s", o->jailed_root ? QEMU_JAIL_PATH : o->qemu_path);
    add(&plan, "-name");
    add(&plan, QEMU_NAME_FORMAT ",debug-threads=off", o->instance, m->slot);
    for (uint32_t i = 0; i < o->data_count; i++) {
        add(&plan, "-L");
        if (o->jailed_root)
            add(&plan, QEMU_JAIL_DATA "%u", i);
        else
            add(&plan, "%s", o->data_paths[i]);
    }
    machine_add(&plan, m);
    devices_add(&plan, m);
    start_add(&plan, m);
    /* Last of its options to be read, first to hold: no other user, no other program, no resource games. */
    add(&plan, "-sandbox");
    add(&plan, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    return plan != NULL;
}

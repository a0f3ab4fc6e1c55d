/* What this host can give: one finding a matter. */
#ifndef SPACE_CLI_DOCTOR_CHECKS_H
#define SPACE_CLI_DOCTOR_CHECKS_H

#include "base/defs.h"

enum finding_status { FINDING_GOOD, FINDING_NOTE, FINDING_WARNING, FINDING_BAD };

struct finding {
    const char *name;
    enum finding_status status;
    char detail[256]; /* what was found */
    char hint[256];   /* what it means or what to do; may be empty */
};

#define FINDINGS_MAX 64

struct findings {
    struct finding items[FINDINGS_MAX];
    size_t len;
};

/* Add one; more than FINDINGS_MAX are left out. */
void finding_add(struct findings *f, const char *name, enum finding_status status, const char *hint, const char *format,
                 ...) ATTR_PRINTF(5, 6);

/* Processor, accelerator, cgroups, namespaces, seccomp, memory, privileges, build tools. Returns whether KVM is usable. */
bool doctor_check_host(struct findings *f);
/* The QEMU of the server ("10.0.2"), or with NULL the one in PATH. */
void doctor_check_qemu(struct findings *f, const char *served_version, bool kvm);
/* Permissions and room of the state folder. */
void doctor_check_state(struct findings *f, const char *folder);

/* For tests: "QEMU emulator version 7.2.22 (Debian …)" → 7, 2. */
bool qemu_version_parse(const char *text, unsigned *ret_major, unsigned *ret_minor);
/* Whether a "flags" line of /proc/cpuinfo has a flag as a whole word. */
bool cpu_has_flag(const char *cpuinfo, const char *flag);

#endif

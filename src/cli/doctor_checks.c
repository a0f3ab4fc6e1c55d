/* What this host can give (see doctor_checks.h). */
#include "cli/doctor_checks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/str.h"
#include "cli/out.h"

#define SMALL_MAX (1 * MIB)

void finding_add(struct findings *f, const char *name, enum finding_status status, const char *hint, const char *format,
                 ...)
{
    if (f->len == FINDINGS_MAX)
        return;
    struct finding *item = &f->items[f->len++];
    *item = (struct finding){.name = name, .status = status};
    va_list args;
    va_start(args, format);
    vsnprintf(item->detail, sizeof(item->detail), format, args);
    va_end(args);
    snprintf(item->hint, sizeof(item->hint), "%s", hint ? hint : "");
}

/* The file's text, "" when it cannot be read; the caller frees. */
static char *text_of(const char *path)
{
    _cleanup_buf_ struct buf b = BUF_MAX(SMALL_MAX);
    file_read(path, SMALL_MAX, &b, NULL);
    return buf_steal_str(&b);
}

static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += n)
        if ((p == text || strchr(" \t\n:", p[-1])) && strchr(" \t\n", p[n]))
            return true;
    return false;
}

bool cpu_has_flag(const char *cpuinfo, const char *flag)
{
    const char *line = strstr(cpuinfo, "\nflags");
    if (!line)
        return false;
    line++;
    _cleanup_free_ char *copy = xstrndup(line, strcspn(line, "\n"));
    return has_word(copy, flag);
}

static bool check_accelerator(struct findings *f)
{
    _cleanup_free_ char *cpuinfo = text_of("/proc/cpuinfo");
    bool flags = cpu_has_flag(cpuinfo, "vmx") || cpu_has_flag(cpuinfo, "svm");
    _cleanup_close_ int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    int error = errno;
    if (flags && fd >= 0) {
        finding_add(f, "accelerator", FINDING_GOOD, NULL, "kvm: hardware virtualisation");
        return true;
    }
    static const char hint[] = "software emulation (tcg) is used: slower, and the jail alone is the boundary; "
                               "require_hardware_isolation refuses it";
    if (flags && error == ENOENT)
        finding_add(f, "accelerator", FINDING_WARNING, hint, "tcg: the processor could, but there is no /dev/kvm");
    else if (flags)
        finding_add(f, "accelerator", FINDING_WARNING, hint, "tcg: /dev/kvm does not open: %s", strerror(error));
    else if (fd >= 0)
        finding_add(f, "accelerator", FINDING_WARNING, hint,
                    "tcg: /dev/kvm opens, but the processor shows neither vmx nor svm");
    else
        finding_add(f, "accelerator", FINDING_WARNING, hint, "tcg: no hardware virtualisation here");
    return false;
}

bool qemu_version_parse(const char *text, unsigned *ret_major, unsigned *ret_minor)
{
    const char *p = strstr(text, "version ");
    unsigned major, minor;
    if (!p || sscanf(p, "version %3u.%3u", &major, &minor) != 2)
        return false;
    *ret_major = major;
    *ret_minor = minor;
    return true;
}

void doctor_check_qemu(struct findings *f, const char *served_version, bool kvm)
{
    char line[256] = "";
    unsigned major = 0, minor = 0;
    FILE *pipe = served_version ? NULL : popen("qemu-system-x86_64 --version 2>/dev/null", "re");
    if (served_version)
        snprintf(line, sizeof(line), "version %.40s", served_version);
    if (pipe) {
        if (!fgets(line, sizeof(line), pipe))
            line[0] = '\0';
        pclose(pipe);
    }
    if (!qemu_version_parse(line, &major, &minor))
        finding_add(f, "qemu", FINDING_NOTE, "make run brings one; the server says which it uses",
                    "no qemu-system-x86_64 in PATH");
    else if (major < 7 || (major == 7 && minor < 2))
        finding_add(f, "qemu", FINDING_BAD, "7.2 or later is needed", "version %u.%u", major, minor);
    else if (!kvm && major < 10)
        finding_add(f, "qemu", FINDING_WARNING, "without KVM version 10 starts processes several times faster",
                    "version %u.%u", major, minor);
    else
        finding_add(f, "qemu", FINDING_GOOD, NULL, "version %u.%u", major, minor);
}

static void check_cgroups(struct findings *f)
{
    static const char *const wanted[] = {"memory", "cpu", "pids"};
    struct statfs fs;
    bool v2 = statfs("/sys/fs/cgroup", &fs) == 0 && (unsigned long)fs.f_type == CGROUP2_SUPER_MAGIC;
    _cleanup_free_ char *controllers = text_of(v2 ? "/sys/fs/cgroup/cgroup.controllers" : "/proc/self/cgroup");
    char missing[64] = "";
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        _cleanup_free_ char *folder = xasprintf("/sys/fs/cgroup/%s", wanted[i]);
        if (v2 ? !has_word(controllers, wanted[i]) : access(folder, F_OK) != 0) {
            size_t n = strlen(missing);
            snprintf(missing + n, sizeof(missing) - n, " %s", wanted[i]);
        }
    }
    if (missing[0])
        finding_add(f, "cgroups", FINDING_WARNING, "machines are not limited in these", "%s without:%s",
                    v2 ? "version 2" : "version 1", missing);
    else if (geteuid() != 0)
        finding_add(f, "cgroups", FINDING_WARNING, "limits for each machine need root", "%s: memory, cpu, pids",
                    v2 ? "version 2" : "version 1");
    else
        finding_add(f, "cgroups", FINDING_GOOD, NULL, "%s: memory, cpu, pids", v2 ? "version 2" : "version 1");
}

/* Whether a child can have this namespace; without root inside a user namespace of its own. */
static bool namespace_works(int flag)
{
    pid_t pid = fork();
    if (pid < 0)
        return false;
    if (pid == 0)
        _exit(unshare(geteuid() == 0 ? flag : flag | CLONE_NEWUSER) == 0 ? 0 : 1);
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void check_namespaces(struct findings *f)
{
    static const struct {
        const char *name;
        int flag;
    } kinds[] = {{"mount", CLONE_NEWNS},
                 {"pid", CLONE_NEWPID},
                 {"network", CLONE_NEWNET},
                 {"ipc", CLONE_NEWIPC},
                 {"uts", CLONE_NEWUTS}};
    char missing[64] = "";
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (!namespace_works(kinds[i].flag)) {
            size_t n = strlen(missing);
            snprintf(missing + n, sizeof(missing) - n, " %s", kinds[i].name);
        }
    if (missing[0])
        finding_add(f, "namespaces", FINDING_WARNING,
                    geteuid() == 0 ? "the kernel or a container around us forbids them"
                                   : "user namespaces are not allowed to ordinary users here",
                    "not to be had:%s", missing);
    else
        finding_add(f, "namespaces", FINDING_GOOD, NULL, "mount, pid, network, ipc, uts");
}

static void check_seccomp(struct findings *f)
{
    _cleanup_free_ char *actions = text_of("/proc/sys/kernel/seccomp/actions_avail");
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0 && (!*actions || has_word(actions, "kill_process")))
        finding_add(f, "seccomp", FINDING_GOOD, NULL, "filters work");
    else
        finding_add(f, "seccomp", FINDING_WARNING, "system calls of machines are not filtered",
                    "this kernel has no seccomp filters");
}

static void check_memfd(struct findings *f)
{
    _cleanup_close_ int fd = memfd_create("doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        finding_add(f, "sealed memory", FINDING_GOOD, NULL, "memfd with seals");
    else
        finding_add(f, "sealed memory", FINDING_BAD, "templates' memory could be written to by a machine",
                    "memfd with seals: %s", strerror(errno));
}

static void check_memory(struct findings *f)
{
    _cleanup_free_ char *info = text_of("/proc/meminfo");
    unsigned long long total = 0, available = 0;
    const char *p = strstr(info, "MemTotal:");
    if (p)
        sscanf(p, "MemTotal: %19llu", &total);
    p = strstr(info, "MemAvailable:");
    if (p)
        sscanf(p, "MemAvailable: %19llu", &available);
    char a[24], b[24];
    finding_add(f, "memory", available < 1024 * 1024 ? FINDING_WARNING : FINDING_GOOD,
                available < 1024 * 1024 ? "less than 1 GiB is little for more than a few sandboxes" : NULL,
                "%s of %s free", format_bytes(available * 1024, a), format_bytes(total * 1024, b));
}

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    _cleanup_free_ char *all = xasprintf("%s:/usr/sbin:/sbin", path ? path : "/usr/bin:/bin");
    for (char *save = NULL, *folder = strtok_r(all, ":", &save); folder; folder = strtok_r(NULL, ":", &save)) {
        _cleanup_free_ char *file = xasprintf("%s/%s", folder, program);
        if (access(file, X_OK) == 0)
            return true;
    }
    return false;
}

static void check_build_tools(struct findings *f)
{
    static const char *const tools[] = {"mmdebstrap", "mke2fs", "cpio", "xz", "zstd", "dpkg-deb"};
    char missing[96] = "";
    for (size_t i = 0; i < ARRAY_LEN(tools); i++)
        if (!in_path(tools[i])) {
            size_t n = strlen(missing);
            snprintf(missing + n, sizeof(missing) - n, " %s", tools[i]);
        }
    if (missing[0])
        finding_add(f, "template tools", FINDING_NOTE, "needed on this host only for \"space template build\"",
                    "missing:%s", missing);
    else
        finding_add(f, "template tools", FINDING_GOOD, NULL, "all there");
}

bool doctor_check_host(struct findings *f)
{
    struct utsname name;
    uname(&name);
    bool right = str_eq(name.machine, "x86_64");
    finding_add(f, "host", right ? FINDING_GOOD : FINDING_BAD, right ? NULL : "only x86_64 is supported",
                "%.60s, Linux %.60s", name.machine, name.release);
    bool kvm = check_accelerator(f);
    if (geteuid() == 0)
        finding_add(f, "privileges", FINDING_GOOD, NULL, "root: a uid of its own for each machine");
    else
        finding_add(f, "privileges", FINDING_WARNING,
                    "machines run under your uid and without cgroup limits; require_jail refuses that", "not root");
    check_cgroups(f);
    check_namespaces(f);
    check_seccomp(f);
    check_memfd(f);
    check_memory(f);
    check_build_tools(f);
    return kvm;
}

void doctor_check_state(struct findings *f, const char *folder)
{
    struct stat st;
    struct statvfs fs;
    char room[24];
    if (stat(folder, &st) < 0) {
        finding_add(f, "state folder", FINDING_NOTE, errno == ENOENT ? "made when the server first starts" : NULL,
                    "%s: %s", folder, strerror(errno));
        return;
    }
    if (st.st_mode & 077)
        finding_add(f, "state folder", FINDING_BAD, "others can look into it: chmod 700", "%s has mode %04o", folder,
                    (unsigned)(st.st_mode & 07777));
    else
        finding_add(f, "state folder", FINDING_GOOD, NULL, "%s, owner %u, mode %04o", folder, st.st_uid,
                    (unsigned)(st.st_mode & 07777));
    if (statvfs(folder, &fs) < 0)
        return;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    finding_add(f, "disk", free_bytes < 4 * GIB ? FINDING_WARNING : FINDING_GOOD,
                free_bytes < 4 * GIB ? "a template takes about 2 GiB, each sandbox what it writes" : NULL, "%s free",
                format_bytes(free_bytes, room));
}

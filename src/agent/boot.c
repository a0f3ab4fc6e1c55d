/* The duties of PID 1 (see boot.h). */
#include "agent/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <net/if.h>
#include <signal.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>

#include "agent/limits.h"
#include "base/buf.h"
#include "base/file.h"

#define NEW_ROOT "/newroot"
#define ROOT_DEVICE "/dev/vda"
/* No background thread that writes inode tables of a grown disk, in every clone again: they are zeroed when it grows. */
#define ROOT_OPTIONS "noinit_itable,no_prefetch_block_bitmaps"
#define DEVICE_WAIT_MS 10000
/* linux/ext4.h is not among the exported headers (Documentation/filesystems/ext4: EXT4_IOC_RESIZE_FS). */
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)

struct mounting {
    const char *source, *target, *type, *options;
    unsigned long flags;
};

static int mount_one(const char *prefix, const struct mounting *m, struct err *e)
{
    char target[256];
    snprintf(target, sizeof(target), "%s%s", prefix, m->target);
    mkdir(target, 0755);
    if (mount(m->source, target, m->type, m->flags, m->options) < 0 && errno != EBUSY)
        return err_errno(e, ERR_SYSTEM, errno, "mount %s", target);
    return 0;
}

/* Before the root file system: what loading modules and finding devices needs. */
static const struct mounting early[] = {
    {"proc", "/proc", "proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
    {"sysfs", "/sys", "sysfs", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
    {"devtmpfs", "/dev", "devtmpfs", "mode=0755", MS_NOSUID},
};

static const struct mounting late[] = {
    {"devpts", "/dev/pts", "devpts", "gid=5,mode=620,ptmxmode=666", MS_NOSUID | MS_NOEXEC},
    {"tmpfs", "/dev/shm", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV},
    {"tmpfs", "/run", "tmpfs", "mode=0755", MS_NOSUID | MS_NODEV},
    {"tmpfs", "/run/lock", "tmpfs", "mode=1777,size=5m", MS_NOSUID | MS_NODEV | MS_NOEXEC},
    {"cgroup2", "/sys/fs/cgroup", "cgroup2", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
};

static int load_module(const char *name, struct err *e)
{
    char path[128];
    snprintf(path, sizeof(path), "/modules/%s", name);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
        return err_errno(e, ERR_SYSTEM, errno, "load %s", path);
    return 0;
}

/* /modules/order: one file name of /modules a line, in the order of loading. */
static int load_modules(struct err *e)
{
    _cleanup_buf_ struct buf order = BUF_MAX(64 * KIB);
    int r = file_read("/modules/order", 32 * KIB, &order, e);
    if (r == ERR_NOT_FOUND)
        return 0; /* a kernel that has everything built in */
    if (r < 0)
        return r;
    char *rest = (char *)(uintptr_t)buf_cstr(&order);
    for (char *line; r == 0 && (line = strsep(&rest, "\n"));)
        if (*line && *line != '#')
            r = load_module(line, e);
    return r;
}

static int wait_for(const char *path, struct err *e)
{
    static const struct timespec step = {.tv_nsec = 2000000};
    for (int ms = 0; access(path, F_OK) < 0; ms += 2) {
        if (ms >= DEVICE_WAIT_MS)
            return err_set(e, ERR_TIMEOUT, "%s does not appear", path);
        nanosleep(&step, NULL);
    }
    return 0;
}

/* A template's image may be smaller than the disk of the shape: the file system takes the rest. */
static int grow_root(struct err *e)
{
    struct statfs fs;
    uint64_t bytes = 0;
    _cleanup_close_ int device = open(ROOT_DEVICE, O_RDONLY | O_CLOEXEC);
    _cleanup_close_ int root = open(NEW_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (device < 0 || root < 0 || ioctl(device, BLKGETSIZE64, &bytes) < 0 || fstatfs(root, &fs) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "look at the size of " ROOT_DEVICE);
    uint64_t blocks = bytes / (uint64_t)fs.f_bsize;
    if (fs.f_type != EXT4_SUPER_MAGIC)
        return 0;
    if (ioctl(root, EXT4_IOC_RESIZE_FS, &blocks) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "grow the root file system to %llu bytes", (unsigned long long)bytes);
    return 0;
}

static int enter_root(struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(early); i++) {
        char target[64];
        snprintf(target, sizeof(target), NEW_ROOT "%s", early[i].target);
        mkdir(target, 0755);
        if (mount(early[i].target, target, NULL, MS_MOVE, NULL) < 0)
            return err_errno(e, ERR_SYSTEM, errno, "move %s", early[i].target);
    }
    dir_remove_tree("/modules", NULL); /* it lies in memory */
    if (chdir(NEW_ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
        return err_errno(e, ERR_SYSTEM, errno, "enter the root file system");
    return 0;
}

static void raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &request) == 0) {
        request.ifr_flags |= IFF_UP;
        ioctl(fd, SIOCSIFFLAGS, &request);
    }
}

static void link_devices(void)
{
    static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
                                           {"/proc/self/fd/0", "/dev/stdin"},
                                           {"/proc/self/fd/1", "/dev/stdout"},
                                           {"/proc/self/fd/2", "/dev/stderr"}};
    for (size_t i = 0; i < ARRAY_LEN(links); i++)
        if (symlink(links[i][0], links[i][1]) < 0)
            continue; /* there already */
    if (access("/etc/mtab", F_OK) < 0 && symlink("../proc/self/mounts", "/etc/mtab") < 0)
        return;
}

/* The firmware leaves channel 0 of the interval timer (8254) running as a square wave, and the kernel does not stop it
 * once it has a better clock: in an idle guest that wakes the machine's process 36 times a second, for nobody. Mode 0
 * ("interrupt on terminal count") with a count ends for good after its one interrupt. */
static void stop_interval_timer(void)
{
    static const char clock[] = "/sys/devices/system/clockevents/clockevent0/current_device";
    enum { CHANNEL_0 = 0x40, CONTROL = 0x43, COUNT_MODE_0 = 0x30 };
    _cleanup_buf_ struct buf name = BUF_MAX(64);
    if (file_read(clock, 63, &name, NULL) < 0 || strncmp(buf_cstr(&name), "pit", 3) == 0)
        return;
    if (ioperm(CHANNEL_0, CONTROL - CHANNEL_0 + 1, 1) < 0)
        return;
    outb(COUNT_MODE_0, CONTROL);
    outb(0, CHANNEL_0);
    outb(0, CHANNEL_0);
    ioperm(CHANNEL_0, CONTROL - CHANNEL_0 + 1, 0);
}

int boot_guest(struct err *e)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(early); i++)
        r = mount_one("", &early[i], e);
    if (r == 0)
        r = load_modules(e);
    if (r == 0)
        r = wait_for(ROOT_DEVICE, e);
    mkdir(NEW_ROOT, 0755);
    if (r == 0 && mount(ROOT_DEVICE, NEW_ROOT, "ext4", MS_NOATIME, ROOT_OPTIONS) < 0)
        r = err_errno(e, ERR_SYSTEM, errno, "mount " ROOT_DEVICE);
    if (r == 0)
        r = grow_root(e);
    if (r == 0)
        r = enter_root(e);
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(late); i++)
        r = mount_one("", &late[i], e);
    if (r == 0) {
        link_devices();
        raise_loopback();
        stop_interval_timer();
    }
    return r;
}

int boot_process(bool is_guest, struct err *e)
{
    struct rlimit files = {LIMIT_FILES, LIMIT_FILES_HARD};
    sigset_t all;
    umask(0);
    for (int fd; (fd = open("/dev/null", O_RDWR)) >= 0;) { /* 0, 1 and 2 must be something */
        if (fd > 2) {
            close(fd);
            break;
        }
    }
    close_range(3, UINT_MAX, CLOSE_RANGE_CLOEXEC); /* what the starter left open is not for the execs */
    if (is_guest)
        setrlimit(RLIMIT_NOFILE, &files);
    prctl(PR_SET_DUMPABLE, 0);
    if (!is_guest && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "become a subreaper");
    if (is_guest) {
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "-1000", 5) < 0)
            return err_errno(e, ERR_SYSTEM, errno, "be spared by the out-of-memory killer");
        close(fd);
        /* However many programs want the processor, the host's questions are answered. Not a real-time class: what
         * produces output must get its turn while the agent carries it away. */
        setpriority(PRIO_PROCESS, 0, AGENT_NICE);
    }
    signal(SIGPIPE, SIG_IGN);
    /* SIGCHLD comes through a descriptor; as PID 1 nothing else is wanted, a test wants to be stopped. */
    sigemptyset(&all);
    sigaddset(&all, SIGCHLD);
    if (is_guest)
        sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    return 0;
}

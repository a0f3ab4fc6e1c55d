/* The box: namespaces and an empty root.
 *
 * There is no jail folder on disk that anybody could prepare: the root is a tmpfs that exists in this mount namespace
 * alone, laid over /proc until it becomes the root. What QEMU needs is opened as a detached mount first, while the
 * host's tree is as it was, then made read-only and moved in. Sources are not followed through a last symbolic link. */
#include "jail/box.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define BASE "/proc"

static int pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}

/* One namespace. With its feature given by somebody else already there is nothing to do. */
static bool namespace_enter(const struct jail_plan *plan, struct jail_progress *p, int flag, uint32_t feature,
                            uint32_t stage)
{
    if (p->features & feature || !(plan->features & feature))
        return true;
    if (unshare(flag) < 0)
        return jail_lacks(plan, p, stage, feature, errno);
    p->features |= feature;
    jail_step();
    return true;
}

/* Make the parents of `target` below the folder `root`, then a folder or an empty file for the mount itself. */
static int target_make(int root, const char *target, bool is_folder)
{
    char path[JAIL_PATH_SIZE];
    size_t len = strlen(target);
    for (size_t i = 0; i < len; i++) {
        if (target[i] == '/') {
            path[i] = '\0';
            if (mkdirat(root, path, 0755) < 0 && errno != EEXIST)
                return -errno;
        }
        path[i] = target[i];
    }
    path[len] = '\0';
    if (is_folder)
        return mkdirat(root, path, 0755) < 0 && errno != EEXIST ? -errno : 0;
    int fd = openat(root, path, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

static int bind_open(const struct jail_bind *b)
{
    int fd = open_tree(AT_FDCWD, b->source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
    if (fd < 0)
        return -errno;
    struct stat st;
    int r = 0;
    if (fstat(fd, &st) < 0)
        r = -errno;
    else if (b->is_device ? !S_ISCHR(st.st_mode) : b->is_folder ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
        r = -EINVAL;
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID};
    attr.attr_set |= b->is_device ? MOUNT_ATTR_NOEXEC : MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV;
    if (!r && mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        r = -errno;
    if (r) {
        close(fd);
        return r;
    }
    return fd;
}

static bool binds_place(const struct jail_plan *plan, struct jail_progress *p, int root, const int *mounts)
{
    for (uint32_t i = 0; i < plan->bind_count; i++) {
        const struct jail_bind *b = &plan->binds[i];
        int r = target_make(root, b->target, b->is_folder);
        if (!r && move_mount(mounts[i], "", root, b->target, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            r = -errno;
        if (r) {
            p->bind = i;
            return jail_lacks(plan, p, JAIL_STAGE_BIND, 0, -r);
        }
        jail_step();
    }
    return true;
}

/* /dev/kvm belongs to a group on the host that this process is not in: root makes a node of the machine's own, in a
 * tmpfs of its own because the rest of the root is nodev. Without root the user's right to the host's node counts. */
static int kvm_place(const struct jail_plan *plan, int root, dev_t kvm)
{
    int r = target_make(root, "dev/kvm", true);
    if (r)
        return r;
    if (mount("kvm", BASE "/dev/kvm", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=4k,nr_inodes=4") < 0)
        return -errno;
    if (mknod(BASE "/dev/kvm/kvm", S_IFCHR | 0600, kvm) < 0 || chown(BASE "/dev/kvm/kvm", plan->uid, plan->gid) < 0)
        return -errno;
    int node = open_tree(AT_FDCWD, BASE "/dev/kvm/kvm", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (node < 0)
        return -errno;
    if (umount2(BASE "/dev/kvm", MNT_DETACH) < 0 || unlinkat(root, "dev/kvm", AT_REMOVEDIR) < 0)
        r = -errno;
    r = r ?: target_make(root, "dev/kvm", false);
    if (!r && move_mount(node, "", root, "dev/kvm", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        r = -errno;
    close(node);
    return r;
}

static bool proc_place(const struct jail_plan *plan, struct jail_progress *p, int root)
{
    int r = target_make(root, "proc", true);
    if (r)
        return jail_lacks(plan, p, JAIL_STAGE_PROC, 0, -r);
    if (p->features & JAIL_PID_NS) {
        const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
        if (mount("proc", BASE "/proc", "proc", flags, "subset=pid,hidepid=ptraceable") == 0) {
            p->features |= JAIL_OWN_PROC;
            return true;
        }
    }
    /* QEMU opens its memory by /proc/self/fd. The host's /proc is worse than none of its own, so this is asked for. */
    if (!jail_lacks(plan, p, JAIL_STAGE_PROC, JAIL_OWN_PROC, errno))
        return false;
    return true;
}

static bool root_build(const struct jail_plan *plan, struct jail_progress *p)
{
    int mounts[JAIL_BINDS_MAX + 1];
    for (uint32_t i = 0; i < plan->bind_count; i++) {
        mounts[i] = bind_open(&plan->binds[i]);
        if (mounts[i] < 0) {
            p->bind = i;
            return jail_lacks(plan, p, JAIL_STAGE_BIND, 0, -mounts[i]);
        }
    }
    struct stat kvm = {0};
    if (plan->kvm && plan->root && (stat("/dev/kvm", &kvm) < 0 || !S_ISCHR(kvm.st_mode)))
        return jail_lacks(plan, p, JAIL_STAGE_DEVICES, 0, ENODEV);
    /* The host's /proc, kept for the case that a new one cannot be had. */
    int host_proc = -1;
    if (plan->allow_missing & JAIL_OWN_PROC)
        host_proc = open_tree(AT_FDCWD, "/proc", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);

    if (mount("root", BASE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k,nr_inodes=128") < 0)
        return jail_lacks(plan, p, JAIL_STAGE_ROOT, JAIL_EMPTY_ROOT, errno);
    jail_step();
    int root = open(BASE, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return jail_lacks(plan, p, JAIL_STAGE_ROOT, 0, errno);

    if (!binds_place(plan, p, root, mounts))
        return false;
    if (plan->kvm && plan->root) {
        int r = kvm_place(plan, root, kvm.st_rdev);
        if (r)
            return jail_lacks(plan, p, JAIL_STAGE_DEVICES, 0, -r);
    }
    if (!proc_place(plan, p, root))
        return false;
    if (!(p->features & JAIL_OWN_PROC) && move_mount(host_proc, "", root, "proc", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return jail_lacks(plan, p, JAIL_STAGE_PROC, 0, errno);

    jail_step();
    if (fchdir(root) < 0 || pivot_root(".", ".") < 0)
        return jail_lacks(plan, p, JAIL_STAGE_PIVOT, JAIL_EMPTY_ROOT, errno);
    jail_step();
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return jail_lacks(plan, p, JAIL_STAGE_PIVOT, 0, errno);
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (mount_setattr(AT_FDCWD, "/", 0, &read_only, sizeof(read_only)) < 0)
        return jail_lacks(plan, p, JAIL_STAGE_ROOT, 0, errno);
    p->features |= JAIL_EMPTY_ROOT;
    return true;
}

bool box_build(const struct jail_plan *plan, struct jail_progress *p)
{
    if (!namespace_enter(plan, p, CLONE_NEWNS, JAIL_MOUNT_NS, JAIL_STAGE_MOUNT_NS) ||
        !namespace_enter(plan, p, CLONE_NEWNET, JAIL_NET_NS, JAIL_STAGE_NET_NS) ||
        !namespace_enter(plan, p, CLONE_NEWIPC, JAIL_IPC_NS, JAIL_STAGE_IPC_NS) ||
        !namespace_enter(plan, p, CLONE_NEWUTS, JAIL_UTS_NS, JAIL_STAGE_UTS_NS))
        return false;
    if (p->features & JAIL_UTS_NS && sethostname("space", 5) < 0)
        return jail_lacks(plan, p, JAIL_STAGE_UTS_NS, 0, errno);
    if (!(p->features & JAIL_MOUNT_NS)) /* a root of its own cannot be had without */
        return jail_lacks(plan, p, JAIL_STAGE_ROOT, JAIL_EMPTY_ROOT, EPERM) &&
               jail_lacks(plan, p, JAIL_STAGE_PROC, JAIL_OWN_PROC, EPERM);
    /* Nothing done here may show on the host. */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return jail_lacks(plan, p, JAIL_STAGE_MOUNT_NS, 0, errno);
    return root_build(plan, p);
}

/* See cgroup.h. Only fixed names and numbers are written below the `space` folders. */
#include "priv/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define PERIOD_US 100000u

static const struct {
    const char *name;
    uint32_t feature;
} controllers[] = {
    {"memory", JAIL_CGROUP_MEMORY},
    {"cpu", JAIL_CGROUP_CPU},
    {"pids", JAIL_CGROUP_PIDS},
};

/* "path: value" of one small file; 0 or -errno. */
static int value_write(const char *folder, const char *file, const char *value)
{
    char path[CGROUP_PATH_SIZE + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    return write(fd, value, strlen(value)) < 0 ? -errno : 0;
}

static bool value_read(const char *folder, const char *file, char *ret_text, size_t size)
{
    char path[CGROUP_PATH_SIZE + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t len = 0;
    for (ssize_t n; len < size - 1 && (n = read(fd, ret_text + len, size - 1 - len)) > 0;)
        len += (size_t)n;
    ret_text[len] = '\0';
    return true;
}

/* Is `word` one of the words of `list`, which are separated by any of `separators`? */
static bool list_has(const char *list, const char *separators, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, separators);
        if (n == len && memcmp(p, word, n) == 0)
            return true;
        p += n;
        p += strspn(p, separators);
    }
    return false;
}

/* The path of a process in the hierarchy with these controllers ("" is v2), from /proc/PID/cgroup. */
static bool process_path(const char *pid, const char *list, char ret_path[CGROUP_PATH_SIZE])
{
    char file[64];
    snprintf(file, sizeof(file), "/proc/%s/cgroup", pid);
    _cleanup_fclose_ FILE *f = fopen(file, "re");
    if (!f)
        return false;
    char line[CGROUP_PATH_SIZE + 128];
    while (fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        if (strcmp(names + 1, list) == 0 && path[0] == '/' && strlen(path) < CGROUP_PATH_SIZE) {
            memcpy(ret_path, path, strlen(path) + 1);
            return true;
        }
    }
    return false;
}

/* All machines together weigh as much as two busy processes for each processor (a new group weighs as much as one process):
 * on a host that does other work too they get their part, and the daemon still gets its own. */
static void base_weigh(const struct cgroup_tree *t)
{
    char value[32];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned long weight = 2 * (unsigned long)MAX(1L, processors);
    snprintf(value, sizeof(value), "%lu", t->v2 ? MIN(weight * 100, 10000ul) : MIN(weight * 1024, 262144ul));
    value_write(t->base, t->v2 ? "cpu.weight" : "cpu.shares", value); /* not to be had: the usual weight */
}

/* Make `folder`/space; with v2 also hand the wanted controllers down, and see which came. */
static bool base_make(struct cgroup_tree *t, const char *folder, const char *name)
{
    int n = snprintf(t->base, sizeof(t->base), "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof(t->base) - 16)
        return false;
    if (mkdir(t->base, 0755) < 0 && errno != EEXIST)
        return false;
    if (access(t->base, W_OK) < 0)
        return false;
    if (!t->v2) {
        if (t->features & JAIL_CGROUP_CPU)
            base_weigh(t);
        return true;
    }
    t->features = 0;
    char text[512];
    for (size_t i = 0; i < ARRAY_LEN(controllers); i++) {
        char add[32];
        snprintf(add, sizeof(add), "+%s", controllers[i].name);
        value_write(folder, "cgroup.subtree_control", add);
        value_write(t->base, "cgroup.subtree_control", add);
        if (value_read(t->base, "cgroup.subtree_control", text, sizeof(text)) &&
            list_has(text, " \n", controllers[i].name))
            t->features |= controllers[i].feature;
    }
    if (t->features & JAIL_CGROUP_CPU)
        base_weigh(t);
    return true;
}

/* The manager of this host has handed this cgroup to us: move its processes into a leaf, so that it can have children
 * with controllers. */
static bool delegated_prepare(const char *own)
{
    char value[8];
    if (getxattr(own, "trusted.delegate", value, sizeof(value)) <= 0 &&
        getxattr(own, "user.delegate", value, sizeof(value)) <= 0)
        return false;
    char leaf[CGROUP_PATH_SIZE];
    int n = snprintf(leaf, sizeof(leaf), "%s/daemon", own);
    if (n < 0 || (size_t)n >= sizeof(leaf) || (mkdir(leaf, 0755) < 0 && errno != EEXIST))
        return false;
    char text[4096];
    if (!value_read(own, "cgroup.procs", text, sizeof(text)))
        return false;
    char *rest = text;
    for (char *pid = strsep(&rest, "\n"); pid; pid = strsep(&rest, "\n"))
        if (*pid)
            value_write(leaf, "cgroup.procs", pid);
    return true;
}

/* v2: below the own cgroup when that is the root or was delegated, else beside it, else at the top. */
static bool base_find_v2(struct cgroup_tree *t, const char *own, uint32_t wanted)
{
    char folder[2 * CGROUP_PATH_SIZE];
    bool at_root = strcmp(own, "/") == 0;
    snprintf(folder, sizeof(folder), "%s%s", t->mount, at_root ? "" : own);
    if (strlen(folder) >= CGROUP_PATH_SIZE)
        return false;
    /* A daemon that was restarted is in the leaf that an earlier one made. */
    char *last = strrchr(folder, '/');
    if (!at_root && strcmp(last, "/daemon") == 0) {
        *last = '\0';
        if (base_make(t, folder, "space"))
            return true;
        *last = '/';
    }
    if ((at_root || delegated_prepare(folder)) && base_make(t, folder, "space"))
        return true;
    if (!at_root) {
        *strrchr(folder, '/') = '\0';
        if (strlen(folder) >= strlen(t->mount) && base_make(t, folder, "space")) {
            if ((t->features & wanted) == wanted)
                return true;
            rmdir(t->base);
        }
    }
    return base_make(t, t->mount, "space");
}

static bool base_find(struct cgroup_tree *t, uint32_t wanted)
{
    char own[CGROUP_PATH_SIZE];
    if (!process_path("self", t->controllers, own))
        strcpy(own, "/");
    if (t->v2)
        return base_find_v2(t, own, wanted);
    char folder[2 * CGROUP_PATH_SIZE];
    snprintf(folder, sizeof(folder), "%s%s", t->mount, strcmp(own, "/") == 0 ? "" : own);
    /* In a container the path may be told as the host sees it, and not be there. */
    if (strlen(folder) < CGROUP_PATH_SIZE && access(folder, F_OK) == 0 && base_make(t, folder, "space"))
        return true;
    return base_make(t, t->mount, "space");
}

static void tree_add(struct cgroups *c, const char *mount, bool v2, const char *list, uint32_t features)
{
    if (c->count >= CGROUP_TREES_MAX || strlen(mount) >= CGROUP_PATH_SIZE ||
        strlen(list) >= sizeof(c->trees[0].controllers))
        return;
    struct cgroup_tree *t = &c->trees[c->count];
    *t = (struct cgroup_tree){.v2 = v2, .features = features};
    memcpy(t->mount, mount, strlen(mount) + 1);
    memcpy(t->controllers, list, strlen(list) + 1);
    if (!base_find(t, (uint32_t)(JAIL_CGROUP_MEMORY | JAIL_CGROUP_CPU | JAIL_CGROUP_PIDS)))
        return;
    c->features |= t->features;
    if (t->features)
        c->version = t->v2 ? 2 : 1;
    c->count++;
}

/* A v1 hierarchy that has at least one wanted controller that no tree before it has. */
static void v1_consider(struct cgroups *c, const char *mount, const char *options)
{
    uint32_t features = 0;
    for (size_t i = 0; i < ARRAY_LEN(controllers); i++)
        if (list_has(options, ",", controllers[i].name) && !(c->features & controllers[i].feature))
            features |= controllers[i].feature;
    if (!features)
        return;
    /* The list of controllers as /proc/PID/cgroup names this hierarchy. */
    _cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "re");
    char line[CGROUP_PATH_SIZE + 128];
    while (f && fgets(line, sizeof(line), f)) {
        char *list = strchr(line, ':');
        char *end = list ? strchr(list + 1, ':') : NULL;
        if (!end)
            continue;
        *end = '\0';
        for (size_t i = 0; i < ARRAY_LEN(controllers); i++)
            if (features & controllers[i].feature && list_has(list + 1, ",", controllers[i].name)) {
                tree_add(c, mount, false, list + 1, features);
                return;
            }
    }
}

/* Each cgroup mount of this process: v2 first. Lines of mountinfo: "… mount-point … - type source super-options". */
static void mounts_walk(struct cgroups *c, bool v2)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[4096];
    while (f && fgets(line, sizeof(line), f)) {
        char mount[CGROUP_PATH_SIZE], type[16], options[256];
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %*s %511s", mount) != 1 ||
            sscanf(tail, " - %15s %*s %255s", type, options) != 2)
            continue;
        if (v2 && strcmp(type, "cgroup2") == 0) {
            tree_add(c, mount, true, "", 0);
            return;
        }
        if (!v2 && strcmp(type, "cgroup") == 0)
            v1_consider(c, mount, options);
    }
}

void cgroups_open(struct cgroups *ret)
{
    *ret = (struct cgroups){0};
    mounts_walk(ret, true);
    mounts_walk(ret, false);
}

void cgroups_close(const struct cgroups *c)
{
    for (size_t i = 0; i < c->count; i++)
        rmdir(c->trees[i].base);
}

/* Another platform on this host has ended, and taken the `space` folder with it: make it again. */
static void base_restore(const struct cgroup_tree *t)
{
    if (mkdir(t->base, 0755) < 0)
        return;
    for (size_t i = 0; t->v2 && i < ARRAY_LEN(controllers); i++) {
        char add[32];
        snprintf(add, sizeof(add), "+%s", controllers[i].name);
        if (t->features & controllers[i].feature)
            value_write(t->base, "cgroup.subtree_control", add);
    }
    if (t->features & JAIL_CGROUP_CPU)
        base_weigh(t);
}

static int cpu_write(const struct cgroup_tree *t, const char *folder, uint32_t percent)
{
    char value[64];
    unsigned long long quota = (unsigned long long)percent * PERIOD_US / 100;
    if (t->v2) {
        snprintf(value, sizeof(value), "%llu %u", quota, PERIOD_US);
        return value_write(folder, "cpu.max", value);
    }
    snprintf(value, sizeof(value), "%u", PERIOD_US);
    int r = value_write(folder, "cpu.cfs_period_us", value);
    snprintf(value, sizeof(value), "%llu", quota);
    return r ?: value_write(folder, "cpu.cfs_quota_us", value);
}

static int limits_write(const struct cgroup_tree *t, const char *folder, const struct cgroup_limits *l)
{
    char value[64];
    int r = 0;
    if (t->features & JAIL_CGROUP_MEMORY) {
        snprintf(value, sizeof(value), "%llu", (unsigned long long)l->memory_bytes);
        r = value_write(folder, t->v2 ? "memory.max" : "memory.limit_in_bytes", value);
        /* Where swap is accounted: none of it. Where it is not, the file is missing. */
        if (!r && t->v2) {
            value_write(folder, "memory.swap.max", "0");
            value_write(folder, "memory.oom.group", "1");
        } else if (!r) {
            value_write(folder, "memory.memsw.limit_in_bytes", value);
        }
    }
    if (!r && t->features & JAIL_CGROUP_PIDS) {
        snprintf(value, sizeof(value), "%u", l->pids);
        r = value_write(folder, "pids.max", value);
    }
    if (!r && t->features & JAIL_CGROUP_CPU)
        r = cpu_write(t, folder, l->cpu_percent);
    return r;
}

static void path_name(const struct cgroup_tree *t, const char *name, char ret_path[CGROUP_PATH_SIZE])
{
    int n = snprintf(ret_path, CGROUP_PATH_SIZE, "%s/%s", t->base, name);
    if (n < 0 || n >= CGROUP_PATH_SIZE)
        ret_path[0] = '\0';
}

int cgroup_make(const struct cgroups *c, const char *name, const struct cgroup_limits *limits, struct cgroup *ret)
{
    *ret = (struct cgroup){0};
    int r = 0;
    size_t made = 0;
    for (; made < c->count && !r; made++) {
        path_name(&c->trees[made], name, ret->path[made]);
        int failed = mkdir(ret->path[made], 0755);
        if (failed < 0 && errno == ENOENT) {
            base_restore(&c->trees[made]);
            failed = mkdir(ret->path[made], 0755);
        }
        if (failed < 0) {
            r = -errno;
            ret->path[made][0] = '\0'; /* not ours to remove */
            break;
        }
        r = limits_write(&c->trees[made], ret->path[made], limits);
    }
    if (r) {
        cgroup_remove(c, ret);
        *ret = (struct cgroup){0};
    }
    return r;
}

void cgroup_name(const struct cgroups *c, const char *name, pid_t pid, struct cgroup *ret)
{
    char wanted[64], text[16];
    snprintf(wanted, sizeof(wanted), "/space/%s", name);
    snprintf(text, sizeof(text), "%d", pid);
    for (size_t i = 0; i < c->count; i++) {
        char path[CGROUP_PATH_SIZE];
        path_name(&c->trees[i], name, ret->path[i]);
        if (pid <= 0 || !process_path(text, c->trees[i].controllers, path) || strlen(path) < strlen(wanted) ||
            strcmp(path + strlen(path) - strlen(wanted), wanted) != 0)
            continue;
        char full[2 * CGROUP_PATH_SIZE];
        snprintf(full, sizeof(full), "%s%s", c->trees[i].mount, path);
        if (strlen(full) < CGROUP_PATH_SIZE && access(full, F_OK) == 0)
            memcpy(ret->path[i], full, strlen(full) + 1);
    }
    for (size_t i = c->count; i < CGROUP_TREES_MAX; i++)
        ret->path[i][0] = '\0';
}

bool cgroup_exists(const struct cgroups *c, const struct cgroup *g)
{
    for (size_t i = 0; i < c->count; i++)
        if (g->path[i][0] && access(g->path[i], F_OK) == 0)
            return true;
    return false;
}

int cgroup_cpu_set(const struct cgroups *c, const struct cgroup *g, uint32_t cpu_percent)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->trees[i].features & JAIL_CGROUP_CPU && g->path[i][0])
            return cpu_write(&c->trees[i], g->path[i], cpu_percent);
    return -ENOTSUP;
}

int cgroup_entry_open(const struct cgroups *c, const struct cgroup *g, int *ret_folder, int ret_files[CGROUP_TREES_MAX],
                      size_t *ret_count)
{
    int folder = -1;
    size_t count = 0;
    int r = 0;
    for (size_t i = 0; i < c->count && !r; i++) {
        if (c->trees[i].v2) {
            folder = open(g->path[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            r = folder < 0 ? -errno : 0;
            continue;
        }
        char path[CGROUP_PATH_SIZE + 8];
        snprintf(path, sizeof(path), "%s/tasks", g->path[i]);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
            r = -errno;
        else
            ret_files[count++] = fd;
    }
    if (r) {
        if (folder >= 0)
            close(folder);
        for (size_t i = 0; i < count; i++)
            close(ret_files[i]);
        return r;
    }
    *ret_folder = folder;
    *ret_count = count;
    return 0;
}

size_t cgroup_pids(const struct cgroups *c, const struct cgroup *g, pid_t *ret_pids, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < c->count; i++) {
        char path[CGROUP_PATH_SIZE + 16];
        snprintf(path, sizeof(path), "%s/cgroup.procs", g->path[i]);
        _cleanup_fclose_ FILE *f = g->path[i][0] ? fopen(path, "re") : NULL;
        for (int pid; f && count < max && fscanf(f, "%d", &pid) == 1;) {
            bool known = pid <= 0;
            for (size_t k = 0; k < count; k++)
                known |= ret_pids[k] == pid;
            if (!known)
                ret_pids[count++] = pid;
        }
    }
    return count;
}

void cgroup_kill(const struct cgroups *c, const struct cgroup *g)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->trees[i].v2 && g->path[i][0])
            value_write(g->path[i], "cgroup.kill", "1");
}

bool cgroup_oom(const struct cgroups *c, const struct cgroup *g)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct cgroup_tree *t = &c->trees[i];
        char text[1024];
        if (!(t->features & JAIL_CGROUP_MEMORY) || !g->path[i][0] ||
            !value_read(g->path[i], t->v2 ? "memory.events" : "memory.oom_control", text, sizeof(text)))
            continue;
        const char *line = strstr(text, "oom_kill ");
        return line && strtoull(line + strlen("oom_kill "), NULL, 10) > 0;
    }
    return false;
}

int cgroup_remove(const struct cgroups *c, const struct cgroup *g)
{
    int r = 0;
    for (size_t i = 0; i < c->count; i++)
        if (g->path[i][0] && rmdir(g->path[i]) < 0 && errno != ENOENT)
            r = errno == EBUSY ? -EBUSY : r ?: -errno;
    return r;
}

void cgroups_each(const struct cgroups *c, void (*found)(void *arg, const char *name), void *arg)
{
    for (size_t i = 0; i < c->count; i++) {
        DIR *d = opendir(c->trees[i].base);
        for (struct dirent *entry; d && (entry = readdir(d));)
            if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
                found(arg, entry->d_name);
        if (d)
            closedir(d);
    }
}

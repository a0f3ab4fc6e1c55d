/* See process.h. Text of /proc is read into fixed buffers; a command line is the process's own and is only compared. */
#include "priv/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "priv/qemu_argv.h"

static ssize_t proc_read(pid_t pid, const char *file, char *ret_text, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t len = 0;
    for (ssize_t n; len < size - 1 && (n = read(fd, ret_text + len, size - 1 - len)) != 0;) {
        if (n < 0)
            return -1;
        len += (size_t)n;
    }
    ret_text[len] = '\0';
    return (ssize_t)len;
}

bool process_start_time(pid_t pid, uint64_t *ret_ticks)
{
    char text[1024];
    if (proc_read(pid, "stat", text, sizeof(text)) <= 0)
        return false;
    /* The name in parentheses may hold anything: the fields begin after the last one. Field 3 is the state. */
    const char *p = strrchr(text, ')');
    if (!p || p[1] != ' ' || p[2] == 'Z' || p[2] == 'X')
        return false;
    p += 2;
    for (int field = 3; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return false;
        p++;
    }
    char *end;
    unsigned long long ticks = strtoull(p, &end, 10);
    if (end == p || *end != ' ')
        return false;
    *ret_ticks = ticks;
    return true;
}

bool process_real_uid(pid_t pid, uid_t *ret_uid)
{
    char text[4096];
    if (proc_read(pid, "status", text, sizeof(text)) <= 0)
        return false;
    const char *line = strstr(text, "\nUid:\t");
    if (!line)
        return false;
    *ret_uid = (uid_t)strtoul(line + strlen("\nUid:\t"), NULL, 10);
    return true;
}

bool process_runs(pid_t pid, const struct stat *file)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/exe", pid);
    struct stat st;
    return stat(path, &st) == 0 && st.st_dev == file->st_dev && st.st_ino == file->st_ino;
}

bool process_named_slot(pid_t pid, uint32_t instance, uint32_t *ret_slot)
{
    char text[4096];
    ssize_t len = proc_read(pid, "cmdline", text, sizeof(text));
    for (const char *p = text; len > 0 && p < text + len; p += strlen(p) + 1) {
        if (strcmp(p, "-name") != 0 || p + 6 >= text + len)
            continue;
        p += 6;
        unsigned named_instance, slot;
        if (sscanf(p, QEMU_NAME_FORMAT, &named_instance, &slot) != 2 || named_instance != instance)
            return false;
        *ret_slot = slot;
        return true;
    }
    return false;
}

void process_each(void (*found)(void *arg, pid_t pid), void *arg)
{
    DIR *d = opendir("/proc");
    for (struct dirent *entry; d && (entry = readdir(d));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            found(arg, (pid_t)strtol(entry->d_name, NULL, 10));
    if (d)
        closedir(d);
}

struct uid_search {
    uid_t uid;
    bool found;
};

static void uid_compare(void *arg, pid_t pid)
{
    struct uid_search *q = (struct uid_search *)arg;
    uid_t uid;
    uint64_t start;
    if (!q->found && process_real_uid(pid, &uid) && uid == q->uid && process_start_time(pid, &start))
        q->found = true;
}

bool process_uid_exists(uid_t uid)
{
    errno = 0;
    if (getpriority(PRIO_USER, uid) == -1 && errno == ESRCH)
        return false;
    struct uid_search q = {.uid = uid};
    process_each(uid_compare, &q);
    return q.found;
}

/* Figures about the guest, read at the moment of asking. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/statvfs.h>

#include "agent/router.h"

/* A small file of /proc into `text`; empty when it cannot be read. */
static void read_small(const char *path, char *text, size_t size)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    text[MAX(n, 0)] = '\0';
}

static void put_cpu(struct buf *b)
{
    char text[8192];
    unsigned long long t[8] = {0}, total = 0;
    read_small("/proc/stat", text, sizeof(text));
    if (sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6],
               &t[7]) < 5)
        return;
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        total += t[i];
    uint64_t us_per_tick = 1000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    wire_put_u64(b, AGENT_TAG_METRICS_CPU_TOTAL_US, total * us_per_tick);
    wire_put_u64(b, AGENT_TAG_METRICS_CPU_IDLE_US, (t[3] + t[4]) * us_per_tick);
    wire_put_u64(b, AGENT_TAG_METRICS_CPUS, (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
}

static void put_load(struct buf *b)
{
    char text[128];
    unsigned whole[3], part[3];
    read_small("/proc/loadavg", text, sizeof(text));
    if (sscanf(text, "%u.%u %u.%u %u.%u", &whole[0], &part[0], &whole[1], &part[1], &whole[2], &part[2]) != 6)
        return;
    for (int i = 0; i < 3; i++)
        wire_put_u64(b, (uint16_t)(AGENT_TAG_METRICS_LOAD_1_MILLI + i), (uint64_t)whole[i] * 1000 + part[i] * 10u);
}

static uint64_t kib_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

static void put_memory(struct buf *b)
{
    char text[4096];
    read_small("/proc/meminfo", text, sizeof(text));
    uint64_t total = kib_of(text, "MemTotal:"), available = kib_of(text, "MemAvailable:");
    wire_put_u64(b, AGENT_TAG_METRICS_MEMORY_TOTAL, total);
    wire_put_u64(b, AGENT_TAG_METRICS_MEMORY_AVAILABLE, available);
    wire_put_u64(b, AGENT_TAG_METRICS_MEMORY_USED, total - MIN(total, available));
    read_small("/proc/self/statm", text, sizeof(text));
    unsigned long long pages;
    if (sscanf(text, "%*u %llu", &pages) == 1)
        wire_put_u64(b, AGENT_TAG_METRICS_AGENT_RSS, pages * (uint64_t)sysconf(_SC_PAGESIZE));
}

static void put_disk(struct buf *b)
{
    struct statvfs st;
    if (statvfs("/", &st) < 0)
        return;
    wire_put_u64(b, AGENT_TAG_METRICS_DISK_TOTAL, (uint64_t)st.f_blocks * st.f_frsize);
    wire_put_u64(b, AGENT_TAG_METRICS_DISK_USED, (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize);
}

static void put_processes(struct buf *b)
{
    uint64_t count = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += isdigit((unsigned char)entry->d_name[0]) != 0;
    if (dir)
        closedir(dir);
    wire_put_u64(b, AGENT_TAG_METRICS_PROCESSES, count);
}

void metrics_get(struct request *r, const struct query *q ATTR_UNUSED)
{
    struct buf b = BUF_MAX(4096);
    put_cpu(&b);
    put_load(&b);
    put_memory(&b);
    put_disk(&b);
    put_processes(&b);
    wire_put_u64(&b, AGENT_TAG_METRICS_EXECS_RUNNING, request_agent(r)->execs.running);
    request_reply(r, 200, &b);
}

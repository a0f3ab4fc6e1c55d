/* space-priv from the side of a peer: one that breaks the protocol in every field, and one that goes away and comes
 * back. Run with the name of a case, and "rootless" to do it as an ordinary user. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/id.h"
#include "priv/cgroup.h"
#include "priv/process.h"
#include "rig.h"

static struct rig rig;
static struct rig_machine m;

static void up(void)
{
    CHECK(rig_start(&rig, &(struct rig_options){0}), "space-priv: %s", jail_stage_title(rig.failed.stage));
}

/* The peer did something wrong: it is hung up on, the exit says why, no machine has started, nothing is left. */
static void must_end(const char *what)
{
    union priv_message a;
    int fd = -1;
    ssize_t len = rig_receive(&rig, &a, &fd);
    CHECK(len == 0 && fd < 0, "%s: answered with %u", what, a.header.type);
    int status = rig_wait_exit(&rig);
    printf("#   %s: exit %d\n", what, status);
    CHECK(status == PRIV_EXIT_PROTOCOL, "%s: exit status %d", what, status);
    rig_stop(&rig);
    rig_nothing_left(&rig);
}

static void send_good_spawn(uint32_t slot, void (*change)(union priv_message *message, int *fds, size_t *count))
{
    union priv_message message;
    int fds[PRIV_FDS_MAX + 8], extra = -1;
    size_t count;
    rig_spawn_message(&rig, slot, &message, &m, fds, &count);
    int console = fds[3];
    message.header = (struct priv_header){.magic = PRIV_MAGIC, .type = PRIV_SPAWN, .tag = 77};
    if (change)
        change(&message, fds, &count);
    rig_send_raw(&rig, &message, sizeof(message.spawn), fds, count);
    close(console);
    (void)extra;
}

/* ---- before and around HELLO ---- */

static void raw_peer(const void *data, size_t len, const int *fds, size_t count, const char *what)
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    rig = (struct rig){.sock = pair[0], .uid_base = 0x7f000000};
    fflush(stdout);
    rig.pid = fork();
    if (rig.pid == 0) {
        int copy = fcntl(pair[1], F_DUPFD_CLOEXEC, 10);
        dup2(copy, 3);
        execl(SPACE_PRIV, "space-priv", "--fd", "3", "--qemu", JAIL_PROBE, "--data", "/usr/share/doc/libc6", "--jail",
              SPACE_JAIL, (char *)NULL);
        _exit(127);
    }
    close(pair[1]);
    rig_send_raw(&rig, data, len, fds, count);
    must_end(what);
}

static struct priv_hello hello_good(void)
{
    return (struct priv_hello){.header = {.magic = PRIV_MAGIC, .type = PRIV_HELLO, .tag = 1},
                               .version = PRIV_VERSION,
                               .uid_base = 0x7f000000,
                               .slots = 4,
                               .allow_missing = rig_rootless ? JAIL_FEATURES_NEED_ROOT : 0};
}

static void hello(void)
{
    struct priv_hello h = hello_good();
    raw_peer("", 1, NULL, 0, "one byte");
    raw_peer("GET / HTTP/1.1\r\n\r\n", 18, NULL, 0, "text");
    char large[2048] = {0};
    memcpy(large, &h, sizeof(h));
    raw_peer(large, sizeof(large), NULL, 0, "far too long");
    raw_peer(large, sizeof(h) + 1, NULL, 0, "a byte too long");
    raw_peer(&h, sizeof(h) - 1, NULL, 0, "a byte too short");
    raw_peer(&h, sizeof(h.header), NULL, 0, "a header alone");
    int fd = 1;
    raw_peer(&h, sizeof(h), &fd, 1, "a descriptor that belongs to nothing");
#define WRONG(field, value)                                                                                            \
    do {                                                                                                               \
        h = hello_good();                                                                                              \
        h.field = (value);                                                                                             \
        raw_peer(&h, sizeof(h), NULL, 0, "HELLO with " #field " " #value);                                             \
    } while (0)
    WRONG(header.magic, 0);
    WRONG(header.type, 0);
    WRONG(header.type, 99);
    WRONG(header.type, PRIV_READY);
    WRONG(header.type, UINT32_MAX);
    WRONG(header.tag, 0);
    WRONG(version, 0);
    WRONG(version, PRIV_VERSION + 1);
    WRONG(uid_base, 0);
    WRONG(uid_base, 999);
    WRONG(uid_base, UINT32_MAX);
    WRONG(uid_base, PRIV_UID_MAX);
    WRONG(slots, 0);
    WRONG(slots, PRIV_SLOTS_MAX + 1);
    WRONG(slots, UINT32_MAX);
    WRONG(allow_missing, UINT32_MAX);
    WRONG(allow_missing, (uint32_t)JAIL_NO_CAPS);
    WRONG(overhead_mib, UINT32_MAX);
    WRONG(cpu_percent, UINT32_MAX);
    WRONG(pids_max, PRIV_PIDS_MAX + 1);
    WRONG(reserved, 1);
#undef WRONG
    up();
    union priv_message a = {.hello = hello_good()};
    rig_send(&rig, &a, PRIV_HELLO, NULL, 0);
    must_end("HELLO twice");
}

static void state(void)
{
    /* Everything but HELLO before HELLO. */
    static const uint32_t types[] = {PRIV_SPAWN,      PRIV_KILL,  PRIV_ADOPT,    PRIV_LIST,
                                     PRIV_KILL_STRAY, PRIV_CLEAN, PRIV_SET_LIMIT};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        union priv_message a = {.header = {.magic = PRIV_MAGIC, .type = types[i], .tag = 1}};
        if (types[i] == PRIV_KILL || types[i] == PRIV_ADOPT)
            a.machine.machine = (struct priv_machine){.slot = 1, .pid = 2, .start_time = 3};
        if (types[i] == PRIV_SET_LIMIT)
            a.slot.cpu_percent = 100;
        char what[64];
        snprintf(what, sizeof(what), "type %u before HELLO", types[i]);
        raw_peer(&a, priv_message_size(types[i]), NULL, 0, what);
    }
    /* A slot that is in use: starting, then running. */
    up();
    send_good_spawn(3, NULL);
    struct rig_machine first = m;
    send_good_spawn(3, NULL);
    union priv_message a;
    int fd;
    ssize_t len = rig_receive(&rig, &a, &fd);
    CHECK(len == 0 || a.header.type == PRIV_SPAWNED, "answer %u", a.header.type);
    int status = rig_wait_exit(&rig);
    CHECK(status == PRIV_EXIT_PROTOCOL, "SPAWN into a slot that starts: exit %d", status);
    rig_machine_close(&first);
    uint32_t base = rig.uid_base;
    rig_stop(&rig);
    /* The first one was a good request and may run: its slot is cleaned as after a crash. */
    CHECK(rig_start(&rig, &(struct rig_options){.uid_base = base}), "space-priv again");
    a = (union priv_message){.slot = {.slot = 3}};
    rig_send(&rig, &a, PRIV_CLEAN, NULL, 0);
    CHECK(rig_expect(&rig, PRIV_DONE, &a, &fd), "CLEAN");
    CHECK(rig_spawn(&rig, 3, PRIV_ACCEL_TCG, &m), "spawn");
    a = (union priv_message){.machine = {.machine = m.machine}};
    rig_send(&rig, &a, PRIV_ADOPT, NULL, 0);
    CHECK(rig_receive(&rig, &a, &fd) == 0 && rig_wait_exit(&rig) == PRIV_EXIT_PROTOCOL, "ADOPT into a slot that runs");
    kill(m.machine.pid, SIGKILL);
    rig_stop(&rig);
    CHECK(rig_start(&rig, &(struct rig_options){.uid_base = base}), "space-priv again");
    a = (union priv_message){.slot = {.slot = 3}};
    rig_send(&rig, &a, PRIV_CLEAN, NULL, 0);
    CHECK(rig_expect(&rig, PRIV_DONE, &a, &fd), "CLEAN");
    rig_stop(&rig);
    rig_nothing_left(&rig);
}

static void numbers(void)
{
#define WRONG(field, value)                                                                                            \
    do {                                                                                                               \
        up();                                                                                                          \
        union priv_message message;                                                                                    \
        int fds[PRIV_FDS_MAX];                                                                                         \
        size_t count;                                                                                                  \
        rig_spawn_message(&rig, 3, &message, &m, fds, &count);                                                         \
        message.header = (struct priv_header){.magic = PRIV_MAGIC, .type = PRIV_SPAWN, .tag = 77};                     \
        message.spawn.field = (value);                                                                                 \
        rig_send_raw(&rig, &message, sizeof(message.spawn), fds, count);                                               \
        must_end("SPAWN with " #field " " #value);                                                                     \
        rig_machine_close(&m);                                                                                         \
        close(fds[3]);                                                                                                 \
    } while (0)
    WRONG(header.magic, 1);
    WRONG(header.type, PRIV_SPAWNED);
    WRONG(header.type, PRIV_LIST);
    WRONG(header.tag, 0);
    WRONG(slot, RIG_SLOTS);
    WRONG(slot, PRIV_SLOTS_MAX);
    WRONG(slot, UINT32_MAX);
    WRONG(accel, 0);
    WRONG(accel, 3);
    WRONG(mode, 0);
    WRONG(mode, 3);
    WRONG(mode, PRIV_MODE_BOOT); /* with the descriptors of restore */
    WRONG(vcpus, 0);
    WRONG(vcpus, PRIV_VCPUS_MAX + 1);
    WRONG(vcpus, UINT32_MAX);
    WRONG(mem_mib, 0);
    WRONG(mem_mib, PRIV_MEM_MIB_MAX + 1);
    WRONG(mem_mib, 65); /* not the size of the memory */
    WRONG(tb_size_mib, UINT32_MAX);
    WRONG(tsc_khz, UINT32_MAX);
    WRONG(reserved, 1);
    WRONG(disk_bytes, 0);
    WRONG(disk_bytes, 513);
    WRONG(disk_bytes, UINT64_MAX);
#undef WRONG
#define WRONG(type, ...)                                                                                               \
    do {                                                                                                               \
        up();                                                                                                          \
        union priv_message message = {__VA_ARGS__};                                                                    \
        rig_send(&rig, &message, type, NULL, 0);                                                                       \
        must_end(#type " with " #__VA_ARGS__);                                                                         \
    } while (0)
    WRONG(PRIV_KILL, .machine = {.machine = {.slot = RIG_SLOTS, .pid = 5, .start_time = 1}});
    WRONG(PRIV_KILL, .machine = {.machine = {.slot = 1, .pid = 1, .start_time = 1}});
    WRONG(PRIV_KILL, .machine = {.machine = {.slot = 1, .pid = 0, .start_time = 1}});
    WRONG(PRIV_KILL, .machine = {.machine = {.slot = 1, .pid = -1, .start_time = 1}});
    WRONG(PRIV_KILL, .machine = {.machine = {.slot = 1, .pid = 5, .start_time = 0}});
    WRONG(PRIV_ADOPT, .machine = {.machine = {.slot = UINT32_MAX, .pid = 5, .start_time = 1}});
    WRONG(PRIV_ADOPT, .machine = {.machine = {.slot = 1, .pid = -5, .start_time = 1}});
    WRONG(PRIV_LIST, .slot = {.slot = 1});
    WRONG(PRIV_CLEAN, .slot = {.slot = RIG_SLOTS});
    WRONG(PRIV_KILL_STRAY, .slot = {.slot = UINT32_MAX});
    WRONG(PRIV_CLEAN, .slot = {.slot = 1, .cpu_percent = 1});
    WRONG(PRIV_SET_LIMIT, .slot = {.slot = 1, .cpu_percent = 0});
    WRONG(PRIV_SET_LIMIT, .slot = {.slot = 1, .cpu_percent = UINT32_MAX});
    WRONG(PRIV_SET_LIMIT, .slot = {.slot = RIG_SLOTS, .cpu_percent = 100});
    WRONG(PRIV_DONE, .header = {.tag = 1});
    WRONG(PRIV_EXITED, .header = {.tag = 1});
    WRONG(PRIV_FAILED, .header = {.tag = 1});
#undef WRONG
}

/* ---- descriptors ---- */

static void swap_fds(int *fds, int at, int fd)
{
    fds[at] = fd;
}
static void no_fds(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)fds;
    *count = 0;
}
static void one_fewer(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)fds;
    (*count)--;
}
static void one_more(union priv_message *message, int *fds, size_t *count)
{
    (void)message;
    fds[*count] = fds[0];
    (*count)++;
}
static void many_more(union priv_message *message, int *fds, size_t *count)
{
    (void)message;
    for (; *count < PRIV_FDS_MAX + 4; (*count)++)
        fds[*count] = fds[0];
}
static void folder_for_socket(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    swap_fds(fds, 0, open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}
static void connected_for_listening(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    swap_fds(fds, 1, pair[0]);
}
static void inet_for_unix(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && listen(fd, 1) == 0, "listen");
    swap_fds(fds, 2, fd);
}
static void datagram_for_stream(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) == 0 && listen(fd, 1) == 0, "listen");
    swap_fds(fds, 0, fd);
}
static void read_end_for_console(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    swap_fds(fds, 3, m.console);
}
static void folder_for_console(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    swap_fds(fds, 3, open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}
static void device_for_console(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    swap_fds(fds, 3, open("/dev/null", O_WRONLY | O_CLOEXEC));
}
static void path_for_console(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    swap_fds(fds, 3, open("/etc/hostname", O_PATH | O_CLOEXEC));
}
static void file_for_memory(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 64 * (off_t)MIB) == 0, "file");
    swap_fds(fds, 4, fd);
}
static void unsealed_memory(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    int fd = memfd_create("m", MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, 64 * (off_t)MIB) == 0, "memory");
    swap_fds(fds, 4, fd);
}
static void half_sealed_memory(union priv_message *message, int *fds, size_t *count)
{
    unsealed_memory(message, fds, count);
    CHECK(fcntl(fds[4], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) == 0, "seals");
}
static void short_memory(union priv_message *message, int *fds, size_t *count)
{
    (void)message, (void)count;
    int fd = memfd_create("m", MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, 15) == 0, "memory");
    swap_fds(fds, 4, fd);
}
static void boot_with(union priv_message *message, int *fds, size_t *count, int kernel, int initrd)
{
    unsealed_memory(message, fds, count);
    message->spawn.mode = PRIV_MODE_BOOT;
    fds[5] = kernel;
    fds[6] = initrd;
    *count = 7;
}
static void private_kernel(union priv_message *message, int *fds, size_t *count)
{
    boot_with(message, fds, count, open("/tmp", O_TMPFILE | O_RDWR, 0600), open("/etc/hostname", O_RDONLY));
}
static void folder_for_initrd(union priv_message *message, int *fds, size_t *count)
{
    boot_with(message, fds, count, open("/etc/hostname", O_RDONLY), open("/etc", O_RDONLY | O_DIRECTORY));
}
static void sealed_boot_memory(union priv_message *message, int *fds, size_t *count)
{
    int sealed = fds[4];
    boot_with(message, fds, count, open("/etc/hostname", O_RDONLY), open("/etc/hostname", O_RDONLY));
    fds[4] = sealed;
}

static void descriptors(void)
{
    static const struct {
        const char *what;
        void (*change)(union priv_message *message, int *fds, size_t *count);
    } wrong[] = {
        {"no descriptors", no_fds},
        {"one too few", one_fewer},
        {"one too many", one_more},
        {"far too many", many_more},
        {"a folder for a socket", folder_for_socket},
        {"a connected socket", connected_for_listening},
        {"an internet socket", inet_for_unix},
        {"a packet socket", datagram_for_stream},
        {"the read end as console", read_end_for_console},
        {"a folder as console", folder_for_console},
        {"a device as console", device_for_console},
        {"a path as console", path_for_console},
        {"a file as memory", file_for_memory},
        {"memory that is not sealed", unsealed_memory},
        {"memory that is half sealed", half_sealed_memory},
        {"memory that is too short", short_memory},
        {"a kernel that is private", private_kernel},
        {"a folder as initrd", folder_for_initrd},
        {"boot into a sealed memory", sealed_boot_memory},
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        up();
        send_good_spawn(3, wrong[i].change);
        must_end(wrong[i].what);
        rig_machine_close(&m);
    }
    up();
    union priv_message a = {0};
    int fd = 1;
    rig_send(&rig, &a, PRIV_LIST, &fd, 1);
    must_end("LIST with a descriptor");
}

/* Random bytes in every place of good messages: it ends its peer or answers, and never starts what was not asked for.
 */
static void noise(void)
{
    srandom(1);
    size_t ended = 0, rounds = 60;
    for (size_t i = 0; i < rounds; i++) {
        up();
        unsigned char data[sizeof(union priv_message)];
        random_bytes(data, sizeof(data));
        struct priv_header header = {
            .magic = PRIV_MAGIC, .type = (uint32_t)(1 + random() % 8), .tag = (uint64_t)random() + 1};
        memcpy(data, &header, sizeof(header));
        rig_send_raw(&rig, data, priv_message_size(header.type), NULL, 0);
        shutdown(rig.sock, SHUT_WR);
        int status = rig_wait_exit(&rig);
        CHECK(status == PRIV_EXIT_PROTOCOL || status == PRIV_EXIT_PEER_GONE, "exit status %d", status);
        ended += status == PRIV_EXIT_PROTOCOL;
        rig_stop(&rig);
        rig_nothing_left(&rig);
    }
    printf("#   %zu of %zu ended as wrong\n", ended, rounds);
    CHECK(ended > rounds / 2, "only %zu", ended);
}

/* ---- a good peer ---- */

static size_t list(struct priv_machine *ret, size_t max)
{
    union priv_message a = {0};
    int fd;
    size_t count = 0;
    rig_send(&rig, &a, PRIV_LIST, NULL, 0);
    do {
        CHECK(rig_expect(&rig, PRIV_LISTED, &a, &fd), "LIST");
        for (uint32_t i = 0; i < a.listed.count && count < max; i++)
            ret[count++] = a.listed.machines[i];
    } while (a.listed.more);
    return count;
}

/* The peer goes away: machines live on, a successor lists them and takes them over, and nothing but them. */
static void adopt(void)
{
    up();
    uint32_t base = rig.uid_base;
    struct rig_machine machines[3];
    for (uint32_t i = 0; i < 3; i++)
        CHECK(rig_spawn(&rig, i * 7, PRIV_ACCEL_TCG, &machines[i]), "spawn");
    char answer[256];
    CHECK(rig_ask(&machines[0], answer, sizeof(answer), "show ids"), "ask");
    CHECK(rig_stop(&rig) == PRIV_EXIT_PEER_GONE, "exit status");
    for (uint32_t i = 0; i < 3; i++)
        CHECK(process_start_time(machines[i].machine.pid, &(uint64_t){0}), "machine %u ended with space-priv", i);

    CHECK(rig_start(&rig, &(struct rig_options){.uid_base = base}), "space-priv again");
    struct priv_machine found[64];
    size_t count = list(found, ARRAY_LEN(found));
    CHECK(count == 3, "%zu found", count);
    for (uint32_t i = 0; i < 3; i++) {
        bool there = false;
        for (size_t k = 0; k < count; k++)
            there |= memcmp(&found[k], &machines[i].machine, sizeof(found[k])) == 0;
        CHECK(there, "machine %u is not in the list", i);
    }
    /* Not what it was: wrong slot, wrong start time, a process that is no machine, one that does not exist. */
    struct priv_machine wrong[] = {machines[0].machine,
                                   machines[0].machine,
                                   {.slot = 9, .pid = getpid()},
                                   {.slot = 9, .pid = 1 << 22, .start_time = 5}};
    wrong[0].slot = 1;
    wrong[1].start_time++;
    CHECK(process_start_time(getpid(), &wrong[2].start_time), "own start time");
    union priv_message a;
    int fd;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        a = (union priv_message){.machine = {.machine = wrong[i]}};
        rig_send(&rig, &a, PRIV_ADOPT, NULL, 0);
        CHECK(!rig_expect(&rig, PRIV_SPAWNED, &a, &fd) && rig.failed.code == ERR_NOT_FOUND &&
                  rig.failed.stage == JAIL_STAGE_IDENTITY,
              "wrong machine %zu was adopted", i);
    }
    for (uint32_t i = 0; i < 2; i++) {
        a = (union priv_message){.machine = {.machine = machines[i].machine}};
        rig_send(&rig, &a, PRIV_ADOPT, NULL, 0);
        CHECK(rig_expect(&rig, PRIV_SPAWNED, &a, &fd) && fd >= 0, "adopt: %s", jail_stage_title(rig.failed.stage));
        close(fd);
    }
    /* A kill that means another process at that place does nothing. */
    a = (union priv_message){.machine = {.machine = wrong[1]}};
    rig_send(&rig, &a, PRIV_KILL, NULL, 0);
    CHECK(rig_expect(&rig, PRIV_DONE, &a, &fd), "KILL of one that is gone");
    CHECK(process_start_time(machines[0].machine.pid, &(uint64_t){0}), "it killed a process with another start time");
    if (!rig_rootless) {
        a = (union priv_message){.slot = {.slot = 0, .cpu_percent = 25}};
        rig_send(&rig, &a, PRIV_SET_LIMIT, NULL, 0);
        CHECK(rig_expect(&rig, PRIV_DONE, &a, &fd), "SET_LIMIT: %s", strerror(rig.failed.errnum));
    }
    /* A slot that is held cannot be cleaned; the one that is not adopted can. */
    a = (union priv_message){.slot = {.slot = 0}};
    rig_send(&rig, &a, PRIV_CLEAN, NULL, 0);
    CHECK(!rig_expect(&rig, PRIV_DONE, &a, &fd) && rig.failed.code == ERR_CONFLICT, "CLEAN of a held slot");
    a = (union priv_message){.slot = {.slot = 14}};
    rig_send(&rig, &a, PRIV_CLEAN, NULL, 0);
    CHECK(rig_expect(&rig, PRIV_DONE, &a, &fd), "CLEAN");
    struct pollfd gone = {.fd = machines[2].pidfd, .events = POLLIN};
    CHECK(poll(&gone, 1, 0) == 1, "the stray lives");
    rig_machine_close(&machines[2]);
    /* An adopted machine's end is told like any other's. */
    kill(machines[1].machine.pid, SIGKILL);
    struct priv_exited exited;
    rig_expect_exit(&rig, &machines[1], &exited);
    rig_machine_close(&machines[1]);
    CHECK(list(found, ARRAY_LEN(found)) == 1, "list after");
    CHECK(rig_ask(&machines[0], answer, sizeof(answer), "show ids"), "the adopted one does not answer");
    rig_kill(&rig, &machines[0]);
    CHECK(rig_spawn(&rig, 0, PRIV_ACCEL_TCG, &m), "spawn into a slot that was adopted");
    rig_kill(&rig, &m);
    CHECK(rig_stop(&rig) == 0, "exit status");
    rig_nothing_left(&rig);
}

/* What a machine's end looks like: exit code, signal, out of memory. */
static void ends(void)
{
    up();
    struct priv_exited exited;
    char answer[64];
    CHECK(rig_spawn(&rig, 1, PRIV_ACCEL_TCG, &m), "spawn");
    rig_ask(&m, answer, sizeof(answer), "exit 7");
    rig_expect_exit(&rig, &m, &exited);
    CHECK(exited.exit_code == 7 && exited.signal == 0 && !exited.oom, "exit %d, %d", exited.exit_code, exited.signal);
    rig_machine_close(&m);
    CHECK(rig_spawn(&rig, 1, PRIV_ACCEL_TCG, &m), "spawn");
    rig_ask(&m, answer, sizeof(answer), "mount");
    rig_expect_exit(&rig, &m, &exited);
    CHECK(exited.exit_code == -1 && exited.signal == SIGSYS, "exit %d, %d", exited.exit_code, exited.signal);
    rig_machine_close(&m);
    if (!rig_rootless) {
        CHECK(rig_spawn(&rig, 1, PRIV_ACCEL_TCG, &m), "spawn");
        rig_ask(&m, answer, sizeof(answer), "eat 1024");
        rig_expect_exit(&rig, &m, &exited);
        CHECK(exited.oom && exited.signal == SIGKILL, "more memory than its cgroup has: exit %d, signal %d, oom %u",
              exited.exit_code, exited.signal, exited.oom);
        rig_machine_close(&m);
        CHECK(rig_spawn(&rig, 1, PRIV_ACCEL_TCG, &m), "spawn");
        CHECK(rig_ask(&m, answer, sizeof(answer), "threads 200"), "threads");
        CHECK(atoi(answer) >= 16 && atoi(answer) < 64, "%s threads", answer);
        rig_kill(&rig, &m);
    }
    CHECK(rig_stop(&rig) == 0, "exit status");
    rig_nothing_left(&rig);
}

/* Many at once, in any order. */
static void many(void)
{
    enum { N = 24 };
    up();
    struct rig_machine machines[N];
    int consoles[N];
    for (uint32_t i = 0; i < N; i++) {
        union priv_message message;
        int fds[PRIV_FDS_MAX];
        size_t count;
        rig_spawn_message(&rig, i, &message, &machines[i], fds, &count);
        rig_send(&rig, &message, PRIV_SPAWN, fds, count);
        consoles[i] = fds[3];
    }
    for (uint32_t i = 0; i < N; i++) {
        union priv_message a;
        int fd;
        CHECK(rig_expect(&rig, PRIV_SPAWNED, &a, &fd), "spawn: %s", jail_stage_title(rig.failed.stage));
        machines[a.spawned.machine.slot].machine = a.spawned.machine;
        machines[a.spawned.machine.slot].pidfd = fd;
    }
    struct priv_machine found[2 * N];
    CHECK(list(found, ARRAY_LEN(found)) == N, "list");
    for (uint32_t i = 0; i < N; i++) {
        close(consoles[i]);
        rig_kill(&rig, &machines[i]);
    }
    CHECK(rig_stop(&rig) == 0, "exit status");
    rig_nothing_left(&rig);
}

/* A peer that kills its machines and goes, without waiting: nothing is left; those it did not kill live. */
static void leave(void)
{
    up();
    uint32_t base = rig.uid_base;
    struct rig_machine machines[6];
    for (uint32_t i = 0; i < ARRAY_LEN(machines); i++)
        CHECK(rig_spawn(&rig, i, PRIV_ACCEL_TCG, &machines[i]), "spawn");
    for (uint32_t i = 0; i < 5; i++) {
        union priv_message a = {.machine = {.machine = machines[i].machine}};
        rig_send(&rig, &a, PRIV_KILL, NULL, 0);
    }
    CHECK(rig_stop(&rig) == PRIV_EXIT_PEER_GONE, "exit status");
    CHECK(rig_start(&rig, &(struct rig_options){.uid_base = base}), "space-priv again");
    struct priv_machine found[64];
    size_t count = list(found, ARRAY_LEN(found));
    /* Another platform's end takes the common folders with it, when they are empty. */
    struct cgroups c;
    cgroups_open(&c);
    cgroups_close(&c);
    CHECK(count == 1 && found[0].slot == 5 && found[0].pid == machines[5].machine.pid, "%zu found", count);
    union priv_message a = {.slot = {.slot = 5}};
    int fd;
    rig_send(&rig, &a, PRIV_CLEAN, NULL, 0);
    CHECK(rig_expect(&rig, PRIV_DONE, &a, &fd), "CLEAN");
    cgroups_close(&c);
    CHECK(rig_spawn(&rig, 5, PRIV_ACCEL_TCG, &m), "spawn without the common folders");
    rig_kill(&rig, &m);
    for (uint32_t i = 0; i < ARRAY_LEN(machines); i++)
        rig_machine_close(&machines[i]);
    CHECK(rig_stop(&rig) == 0, "exit status");
    rig_nothing_left(&rig);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"leave", leave}, {"hello", hello}, {"state", state}, {"numbers", numbers}, {"descriptors", descriptors},
             {"noise", noise}, {"adopt", adopt}, {"ends", ends},   {"many", many}};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(0022);
    if (argc > 2 && strcmp(argv[2], "rootless") == 0) {
        rig_become_user();
    } else if (getuid() != 0) {
        printf("skip: needs root\n");
        return SKIP;
    }
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            printf("ok %s\n", cases[i].name);
            return 0;
        }
    printf("unknown case\n");
    return 1;
}

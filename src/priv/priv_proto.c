/* Sizes, ranges, sending and receiving of the messages. The same code on both sides. */
#include "priv/priv_proto.h"

#include <errno.h>
#include <sys/socket.h>

size_t priv_message_size(uint32_t type)
{
    switch (type) {
    case PRIV_HELLO:
        return sizeof(struct priv_hello);
    case PRIV_SPAWN:
        return sizeof(struct priv_spawn_request);
    case PRIV_KILL:
    case PRIV_ADOPT:
        return sizeof(struct priv_machine_request);
    case PRIV_LIST:
    case PRIV_KILL_STRAY:
    case PRIV_CLEAN:
    case PRIV_SET_LIMIT:
        return sizeof(struct priv_slot_request);
    case PRIV_READY:
        return sizeof(struct priv_ready);
    case PRIV_SPAWNED:
        return sizeof(struct priv_spawned);
    case PRIV_DONE:
        return sizeof(struct priv_done);
    case PRIV_LISTED:
        return sizeof(struct priv_listed);
    case PRIV_EXITED:
        return sizeof(struct priv_exited);
    case PRIV_FAILED:
        return sizeof(struct priv_failed);
    default:
        return 0;
    }
}

static bool hello_valid(const struct priv_hello *m)
{
    return m->version == PRIV_VERSION && m->slots >= 1 && m->slots <= PRIV_SLOTS_MAX && m->uid_base >= PRIV_UID_MIN &&
           m->uid_base <= PRIV_UID_MAX - 2 * PRIV_SLOTS_MAX - 2 && !(m->allow_missing & ~JAIL_FEATURES_OPTIONAL) &&
           m->overhead_mib <= PRIV_OVERHEAD_MIB_MAX && m->cpu_percent <= PRIV_CPU_PERCENT_MAX &&
           m->pids_max <= PRIV_PIDS_MAX && m->reserved == 0;
}

static bool spawn_valid(const struct priv_spawn_request *m, size_t fd_count)
{
    if (m->accel != PRIV_ACCEL_TCG && m->accel != PRIV_ACCEL_KVM)
        return false;
    if (m->mode == PRIV_MODE_BOOT ? fd_count != PRIV_SPAWN_FDS_BOOT
                                  : m->mode != PRIV_MODE_RESTORE || fd_count != PRIV_SPAWN_FDS_RESTORE)
        return false;
    return m->slot < PRIV_SLOTS_MAX && m->vcpus >= 1 && m->vcpus <= PRIV_VCPUS_MAX && m->mem_mib >= PRIV_MEM_MIB_MIN &&
           m->mem_mib <= PRIV_MEM_MIB_MAX && m->tb_size_mib <= PRIV_TB_SIZE_MIB_MAX && m->tsc_khz <= PRIV_TSC_KHZ_MAX &&
           m->reserved == 0 && m->disk_bytes >= 512 && m->disk_bytes <= PRIV_DISK_BYTES_MAX && m->disk_bytes % 512 == 0;
}

bool priv_request_valid(const union priv_message *m, size_t len, size_t fd_count)
{
    if (len < sizeof(m->header) || m->header.magic != PRIV_MAGIC || m->header.tag == 0 ||
        len != priv_message_size(m->header.type))
        return false;
    if (m->header.type != PRIV_SPAWN && fd_count != 0)
        return false;
    switch (m->header.type) {
    case PRIV_HELLO:
        return hello_valid(&m->hello);
    case PRIV_SPAWN:
        return spawn_valid(&m->spawn, fd_count);
    case PRIV_KILL:
    case PRIV_ADOPT:
        return m->machine.machine.slot < PRIV_SLOTS_MAX && m->machine.machine.pid > 1 &&
               m->machine.machine.start_time > 0;
    case PRIV_LIST:
        return m->slot.slot == 0 && m->slot.cpu_percent == 0;
    case PRIV_KILL_STRAY:
    case PRIV_CLEAN:
        return m->slot.slot < PRIV_SLOTS_MAX && m->slot.cpu_percent == 0;
    case PRIV_SET_LIMIT:
        return m->slot.slot < PRIV_SLOTS_MAX && m->slot.cpu_percent >= 1 && m->slot.cpu_percent <= PRIV_CPU_PERCENT_MAX;
    default:
        return false; /* answers do not come this way */
    }
}

int priv_message_send(int sock, const union priv_message *m, const int *fds, size_t fd_count)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(PRIV_FDS_MAX * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)m, .iov_len = priv_message_size(m->header.type)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_count) {
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(sock, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

ssize_t priv_message_receive(int sock, union priv_message *ret_m, int ret_fds[PRIV_FDS_MAX], size_t *ret_fd_count)
{
    /* One byte more than the largest message tells a longer one apart; room for more descriptors than are ever right,
     * so that too many are seen (and closed) and not silently dropped by the kernel. */
    char data[sizeof(*ret_m) + 1];
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(4 * PRIV_FDS_MAX * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = sizeof(data)};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
    ssize_t n;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;

    int fds[4 * PRIV_FDS_MAX];
    size_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here && count < ARRAY_LEN(fds); i++)
            memcpy(&fds[count++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
    if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || (size_t)n > sizeof(*ret_m) || count > PRIV_FDS_MAX ||
        (n == 0 && count)) {
        for (size_t i = 0; i < count; i++)
            close(fds[i]);
        return -EBADMSG;
    }
    memset(ret_m, 0, sizeof(*ret_m));
    memcpy(ret_m, data, (size_t)n);
    memcpy(ret_fds, fds, count * sizeof(int));
    *ret_fd_count = count;
    return n;
}

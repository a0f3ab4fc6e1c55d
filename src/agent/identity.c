/* POST /v1/identity and GET /v1/hello (see identity.h). After a restore every copy of a machine has the same state of
 * its random generator, the same clock, names and ids: the host's message replaces them, in one go and before anything
 * else is asked of this machine. */
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/router.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"

#define HOSTS_MAX (64 * 1024)
#define BOOT_ID_FILE "/run/space-boot-id"
#define BOOT_ID_PROC "/proc/sys/kernel/random/boot_id"

struct identity_request {
    const uint8_t *entropy; /* in the request's body */
    size_t entropy_len;
    uint64_t realtime_ns;
    char hostname[65], machine_id[33], sandbox_id[64], boot_id[37];
    char **env;
    size_t envc;
};

static void env_free(char **env)
{
    for (char **s = env; s && *s; s++)
        free(*s);
    free(env);
}

static bool take_env(struct identity_request *q, const struct wire_field *f)
{
    if (!q->env)
        q->env = xcalloc(AGENT_ARGS_MAX + 1, sizeof(*q->env));
    if (q->envc == AGENT_ARGS_MAX || !wire_field_text_dup(f, LIMIT_ARG_BYTES, &q->env[q->envc]))
        return false;
    const char *text = q->env[q->envc++];
    return strchr(text, '=') > text;
}

static bool take_field(struct identity_request *q, const struct wire_field *f)
{
    switch (f->tag) {
    case AGENT_TAG_IDENTITY_ENTROPY:
        q->entropy = f->data;
        q->entropy_len = f->len;
        return f->len >= AGENT_ENTROPY_MIN && f->len <= AGENT_ENTROPY_MAX;
    case AGENT_TAG_IDENTITY_REALTIME_NS:
        return wire_field_u64(f, &q->realtime_ns) && q->realtime_ns < INT64_MAX;
    case AGENT_TAG_IDENTITY_HOSTNAME:
        return wire_field_text(f, q->hostname, sizeof(q->hostname)) && *q->hostname &&
               strspn(q->hostname, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") ==
                   strlen(q->hostname);
    case AGENT_TAG_IDENTITY_MACHINE_ID: {
        uint8_t raw[16];
        return wire_field_text(f, q->machine_id, sizeof(q->machine_id)) && strlen(q->machine_id) == 32 &&
               hex_decode(q->machine_id, 32, raw);
    }
    case AGENT_TAG_IDENTITY_SANDBOX_ID:
        return wire_field_text(f, q->sandbox_id, sizeof(q->sandbox_id)) && utf8_valid(f->data, f->len);
    case AGENT_TAG_IDENTITY_BOOT_ID:
        return wire_field_text(f, q->boot_id, sizeof(q->boot_id)) && strlen(q->boot_id) == 36 &&
               strspn(q->boot_id, "0123456789abcdef-") == 36;
    case AGENT_TAG_IDENTITY_ENV:
        return take_env(q, f);
    default:
        return true;
    }
}

/* Overwrite in place: no other name for the file appears, and ext4 has no reason to write it out at once. */
static int write_file(const char *path, const void *data, size_t len, mode_t mode)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, mode);
    if (fd < 0 && errno == ELOOP && unlink(path) == 0)
        fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, mode);
    if (fd < 0 || pwrite(fd, data, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len) < 0)
        return -errno;
    return 0;
}

static int write_line(const char *path, const char *line, mode_t mode, struct err *e)
{
    char text[128];
    int n = snprintf(text, sizeof(text), "%s\n", line);
    int r = write_file(path, text, (size_t)n, mode);
    return r < 0 ? err_errno(e, ERR_SYSTEM, -r, "write %s", path) : 0;
}

static int mix_entropy(const uint8_t *data, size_t len, struct err *e)
{
    union {
        struct rand_pool_info info;
        uint8_t raw[sizeof(struct rand_pool_info) + AGENT_ENTROPY_MAX];
    } pool = {.info = {.entropy_count = (int)len * 8, .buf_size = (int)len}};
    memcpy(pool.raw + sizeof(struct rand_pool_info), data, len);
    _cleanup_close_ int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
    int r = fd < 0 || ioctl(fd, RNDADDENTROPY, &pool) < 0 || ioctl(fd, RNDRESEEDCRNG) < 0 ? -errno : 0;
    wipe(&pool, sizeof(pool));
    return r < 0 ? err_errno(e, ERR_SYSTEM, -r, "reseed the random generator") : 0;
}

/* The line of the host's own name in /etc/hosts: replaced where it is, else added. */
static int set_hosts(const char *hostname, struct err *e)
{
    _cleanup_buf_ struct buf old = BUF_MAX(HOSTS_MAX + 1), out = BUF_MAX(2 * HOSTS_MAX);
    _cleanup_close_ int fd = open("/etc/hosts", O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd >= 0) {
        uint8_t *to = buf_reserve(&old, HOSTS_MAX);
        ssize_t n = read(fd, to, HOSTS_MAX);
        buf_commit(&old, (size_t)MAX(n, 0));
    }
    const char *text = buf_cstr(&old);
    while (*text) {
        const char *end = strchrnul(text, '\n');
        if (!str_starts(text, "127.0.1.1")) {
            buf_put(&out, text, (size_t)(end - text));
            buf_put_byte(&out, '\n');
        }
        text = *end ? end + 1 : end;
    }
    if (old.len == 0)
        buf_put_str(&out, "127.0.0.1\tlocalhost\n::1\tlocalhost\n");
    buf_printf(&out, "127.0.1.1\t%s\n", hostname);
    int r = write_file("/etc/hosts", buf_data(&out), out.len, 0644);
    return r < 0 ? err_errno(e, ERR_SYSTEM, -r, "write /etc/hosts") : 0;
}

/* The kernel's own id cannot be changed: a file lies over it. */
static int set_boot_id(const char *boot_id, struct err *e)
{
    bool first = access(BOOT_ID_FILE, F_OK) < 0;
    int r = write_line(BOOT_ID_FILE, boot_id, 0444, e);
    if (r == 0 && first && mount(BOOT_ID_FILE, BOOT_ID_PROC, NULL, MS_BIND, NULL) < 0) {
        int saved = errno;
        unlink(BOOT_ID_FILE);
        r = err_errno(e, ERR_SYSTEM, saved, "set the boot id");
    }
    return r;
}

static int apply(const struct identity_request *q, struct err *e)
{
    struct timespec now = {.tv_sec = (time_t)(q->realtime_ns / 1000000000u),
                           .tv_nsec = (long)(q->realtime_ns % 1000000000u)};
    int r = mix_entropy(q->entropy, q->entropy_len, e);
    if (r == 0 && q->realtime_ns > 0 && clock_settime(CLOCK_REALTIME, &now) < 0)
        r = err_errno(e, ERR_SYSTEM, errno, "set the clock");
    if (r == 0 && *q->hostname) {
        if (sethostname(q->hostname, strlen(q->hostname)) < 0)
            r = err_errno(e, ERR_SYSTEM, errno, "set the host name");
        if (r == 0)
            r = write_line("/etc/hostname", q->hostname, 0644, e);
        if (r == 0)
            r = set_hosts(q->hostname, e);
    }
    if (r == 0 && *q->machine_id)
        r = write_line("/etc/machine-id", q->machine_id, 0444, e);
    if (r == 0 && *q->boot_id)
        r = set_boot_id(q->boot_id, e);
    return r;
}

static void identity_complete(struct request *r)
{
    struct agent *agent = request_agent(r);
    struct identity *id = &agent->identity;
    struct identity_request q = {0};
    struct wire_reader reader;
    struct wire_field f;
    struct err e = {0};
    int error = 0;
    wire_reader_init(&reader, buf_data(&r->body), r->body.len);
    while (error == 0 && wire_next(&reader, &f))
        if (!take_field(&q, &f))
            error = err_set(&e, ERR_INVALID, "the field %04x of the identity is not valid", f.tag);
    if (error == 0 && (!wire_done(&reader) || !q.entropy || !*q.sandbox_id))
        error = err_set(&e, ERR_INVALID, "the identity is not complete");
    if (error == 0 && agent->frozen)
        error = err_set(&e, ERR_STATE, "the file system is frozen");
    if (error == 0 && agent->is_guest)
        error = apply(&q, &e);
    if (r->body.len > 0)
        wipe(buf_data(&r->body), r->body.len);
    if (error < 0) {
        env_free(q.env);
        request_fail(r, &e);
        return;
    }
    memcpy(id->sandbox_id, q.sandbox_id, sizeof(id->sandbox_id));
    if (*q.boot_id)
        memcpy(id->boot_id, q.boot_id, sizeof(id->boot_id));
    env_free(id->env);
    id->env = q.env;
    struct buf b = BUF_MAX(256);
    wire_put_text(&b, AGENT_TAG_CONFIRM_SANDBOX_ID, id->sandbox_id);
    wire_put_u64(&b, AGENT_TAG_CONFIRM_REALTIME_NS, (uint64_t)clock_wall_ms() * 1000000u);
    wire_put_u64(&b, AGENT_TAG_CONFIRM_OK, 1);
    request_reply(r, 200, &b);
}

void identity_post(struct request *r, const struct query *q ATTR_UNUSED)
{
    request_collect(r, identity_complete);
}

void hello_get(struct request *r, const struct query *q ATTR_UNUSED)
{
    struct identity *id = &request_agent(r)->identity;
    struct buf b = BUF_MAX(512);
    if (!*id->boot_id) {
        _cleanup_close_ int fd = open(BOOT_ID_PROC, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, id->boot_id, sizeof(id->boot_id) - 1) != sizeof(id->boot_id) - 1)
            id->boot_id[0] = '\0';
    }
    struct timespec up;
    clock_gettime(CLOCK_BOOTTIME, &up);
    wire_put_u64(&b, AGENT_TAG_HELLO_PROTOCOL, AGENT_PROTOCOL_VERSION);
    wire_put_text(&b, AGENT_TAG_HELLO_VERSION, AGENT_VERSION);
    wire_put_u64(&b, AGENT_TAG_HELLO_UPTIME_MS, (uint64_t)up.tv_sec * 1000u + (uint64_t)up.tv_nsec / 1000000u);
    wire_put_text(&b, AGENT_TAG_HELLO_BOOT_ID, id->boot_id);
    wire_put_text(&b, AGENT_TAG_HELLO_SANDBOX_ID, id->sandbox_id);
    request_reply(r, 200, &b);
}

void identity_done(struct identity *id)
{
    env_free(id->env);
    id->env = NULL;
}

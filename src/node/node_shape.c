/* Template shapes: opening a template's parts, checking them, and bringing a shape's frozen machine into memory.
 *
 * The memory lies in a sealed memfd: QEMU wants to open its memory file for writing, and a plain file would let a
 * captured QEMU write into every neighbour's template. Nothing can write to a sealed one, so clones map it privately. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "digest/digest.h"
#include "node/node_internal.h"

#define MANIFEST_MAX (1 * MIB)
#define DEVICE_STATE_MAX (1 * MIB)

static const char *const shape_parts[] = {"memory", "device.state", "disk.qcow2", "overlay.qcow2"};

int file_sha256(const char *path, char ret_hex[DIGEST_SIZE], uint64_t *ret_size, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_SYSTEM, errno, "open %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is no regular file", path);
    struct sha256 *sum = sha256_new();
    _cleanup_free_ uint8_t *chunk = xmalloc(MIB);
    uint8_t digest[SHA256_LEN];
    ssize_t n;
    while ((n = read(fd, chunk, MIB)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0)
            sha256_add(sum, chunk, (size_t)n);
    int saved = errno;
    sha256_end(sum, digest);
    if (n < 0)
        return err_errno(e, ERR_SYSTEM, saved, "read %s", path);
    hex_encode(digest, sizeof(digest), ret_hex);
    if (ret_size)
        *ret_size = (uint64_t)st.st_size;
    return 0;
}

int parts_write(const char *folder, const char *const *parts, size_t count, struct err *e)
{
    json_t *manifest = json_pack("{s:i, s:{}}", "schema", 1, "parts");
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", folder, parts[i]);
        char hex[DIGEST_SIZE];
        uint64_t size = 0;
        r = file_sha256(path, hex, &size, e);
        if (r == 0)
            json_object_set_new(json_object_get(manifest, "parts"), parts[i],
                                json_pack("{s:s, s:I}", "sha256", hex, "size", (json_int_t)size));
    }
    char *text = json_dumps(manifest, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(manifest);
    if (r == 0) {
        _cleanup_free_ char *path = xasprintf("%s/manifest.json", folder);
        r = file_write_atomic(path, text, strlen(text), 0600, e);
    }
    free(text);
    return r;
}

/* What identifies an unchanged file without reading it: a change by anybody but root changes the ctime. */
static void stamp_add(struct buf *stamp, const char *name, const struct stat *st)
{
    buf_printf(stamp, "%s %llu %llu %lld.%09ld %lld.%09ld\n", name, (unsigned long long)st->st_ino,
               (unsigned long long)st->st_size, (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
               (long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
}

/* Every part against the SHA-256 in `manifest.json`. Parts that were checked before and have not been touched since
 * (file `verified`) are not read again. ERR_INVALID names the part that does not match. */
int parts_verify(const char *folder, const char *const *parts, size_t count, struct err *e)
{
    _cleanup_free_ char *manifest_path = xasprintf("%s/manifest.json", folder);
    _cleanup_free_ char *stamp_path = xasprintf("%s/verified", folder);
    _cleanup_buf_ struct buf text = BUF_MAX(MANIFEST_MAX), stamp = BUF_MAX(65536), known = BUF_MAX(65536);
    struct stat st;
    int r = file_read(manifest_path, MANIFEST_MAX, &text, e);
    if (r < 0)
        return r;
    if (stat(manifest_path, &st) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "look at %s", manifest_path);
    stamp_add(&stamp, "manifest.json", &st);
    for (size_t i = 0; i < count; i++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", folder, parts[i]);
        if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
            return err_set(e, ERR_INVALID, "the part \"%s\" of %s is missing", parts[i], folder);
        stamp_add(&stamp, parts[i], &st);
    }
    if (file_read(stamp_path, 65536, &known, NULL) == 0 && known.len == stamp.len &&
        memcmp(buf_data(&known), buf_data(&stamp), stamp.len) == 0)
        return 0;
    json_t *manifest = json_loadb((const char *)buf_data(&text), text.len, JSON_REJECT_DUPLICATES, NULL);
    json_t *listed = json_object_get(manifest, "parts");
    for (size_t i = 0; i < count && r == 0; i++) {
        json_t *part = json_object_get(listed, parts[i]);
        const char *expected = json_string_value(json_object_get(part, "sha256"));
        _cleanup_free_ char *path = xasprintf("%s/%s", folder, parts[i]);
        char hex[DIGEST_SIZE];
        uint64_t size = 0;
        if (!expected)
            r = err_set(e, ERR_INVALID, "the manifest of %s does not name the part \"%s\"", folder, parts[i]);
        else if ((r = file_sha256(path, hex, &size, e)) == 0 && !str_eq(hex, expected))
            r = err_set(e, ERR_INVALID, "the part \"%s\" of %s does not match its digest", parts[i], folder);
    }
    json_decref(manifest);
    if (r == 0)
        file_write_atomic(stamp_path, buf_data(&stamp), stamp.len, 0600, NULL); /* a miss costs time, nothing else */
    return r;
}

/* ---- templates ---- */

static int part_open(const struct template *t, const char *name, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", t->folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(e, ERR_NOT_FOUND, errno, "open the part \"%s\" of template %.12s", name, t->digest);
    *ret_fd = fd;
    return 0;
}

static void template_free(struct template *t)
{
    int *fds[] = {&t->rootfs_fd, &t->kernel_fd, &t->initrd_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        cleanup_close(fds[i]);
    free(t->folder);
    free(t);
}

static bool digest_valid(const char *digest)
{
    return strlen(digest) == DIGEST_SIZE - 1 && strspn(digest, "0123456789abcdef") == DIGEST_SIZE - 1;
}

struct template *template_open(struct node *n, const char *digest, const char *folder, struct err *e)
{
    struct template *t = NEW(struct template);
    t->rootfs_fd = t->kernel_fd = t->initrd_fd = -1;
    snprintf(t->digest, sizeof(t->digest), "%s", digest);
    t->folder = xstrdup(folder);
    struct stat st = {0};
    if (part_open(t, "rootfs.raw", &t->rootfs_fd, e) < 0 || part_open(t, "vmlinuz", &t->kernel_fd, e) < 0 ||
        part_open(t, "initramfs.img", &t->initrd_fd, e) < 0 || fstat(t->rootfs_fd, &st) < 0) {
        template_free(t);
        return NULL;
    }
    t->disk_mib = (uint32_t)(((uint64_t)st.st_size + MIB - 1) / MIB);
    HASH_ADD_STR(n->templates, digest, t);
    return t;
}

struct template *template_find(struct node *n, const char *digest, struct err *e)
{
    struct template *t = NULL;
    if (!digest_valid(digest)) {
        err_set(e, ERR_INVALID, "\"%.80s\" is no template digest", digest);
        return NULL;
    }
    HASH_FIND_STR(n->templates, digest, t);
    _cleanup_free_ char *folder = xasprintf("%s/%s", n->templates_folder, digest);
    return t ? t : template_open(n, digest, folder, e);
}

void template_forget(struct node *n, struct template *t)
{
    HASH_DEL(n->templates, t);
    template_free(t);
}

/* ---- shapes ---- */

char *shape_folder(const struct shape_entry *s)
{
    return xasprintf("%s/shapes/%s", s->template->folder, s->key);
}

void shape_key(const struct node *n, const struct shape *s, char ret_key[SHAPE_KEY_SIZE])
{
    snprintf(ret_key, SHAPE_KEY_SIZE, "%uc-%um-%ud-%s-%s", s->vcpus, s->mem_mib, s->disk_mib,
             n->accelerator == ACCELERATOR_KVM ? "kvm" : "tcg", n->qemu_version);
}

struct shape_entry *shape_find(struct node *n, const char *digest, const struct shape *shape, struct err *e)
{
    struct template *t = template_find(n, digest, e);
    struct shape_entry *s;
    if (!t || shape_check(shape, e) < 0)
        return NULL;
    if (shape->disk_mib < t->disk_mib) {
        err_set(e, ERR_INVALID, "disk_mib is %u, the template's root file system alone needs %u", shape->disk_mib,
                t->disk_mib);
        return NULL;
    }
    TAILQ_FOREACH (s, &n->shapes, link)
        if (s->template == t && memcmp(&s->shape, shape, sizeof(*shape)) == 0)
            return s;
    s = NEW(struct shape_entry);
    s->node = n;
    s->template = t;
    s->shape = *shape;
    s->memory_fd = s->layer_fd = s->overlay_fd = -1;
    buf_init(&s->device_state, DEVICE_STATE_MAX);
    TAILQ_INIT(&s->waiters);
    shape_key(n, shape, s->key);
    TAILQ_INSERT_TAIL(&n->shapes, s, link);
    return s;
}

void shape_free(struct shape_entry *s)
{
    int *fds[] = {&s->memory_fd, &s->layer_fd, &s->overlay_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        cleanup_close(fds[i]);
    buf_done(&s->device_state);
    TAILQ_REMOVE(&s->node->shapes, s, link);
    free(s);
}

void shape_progress(struct shape_entry *s, const char *step, uint64_t done, uint64_t total)
{
    struct shape_waiter *w;
    TAILQ_FOREACH (w, &s->waiters, link)
        if (w->progress)
            w->progress(w->arg, step, done, total);
}

void shape_settled(struct shape_entry *s, const struct err *e)
{
    struct shape_waiter *w;
    s->state = e ? SHAPE_NEW : SHAPE_READY;
    s->pooled = !e && !s->removing;
    s->used_ms = clock_mono_ms();
    /* Only those that waited up to here: a callback may ask again. */
    TAILQ_HEAD(, shape_waiter) waiters = TAILQ_HEAD_INITIALIZER(waiters);
    TAILQ_CONCAT(&waiters, &s->waiters, link);
    while ((w = TAILQ_FIRST(&waiters))) {
        TAILQ_REMOVE(&waiters, w, link);
        w->done(w->arg, e);
        free(w);
    }
    pool_refill_soon(s->node);
}

struct shape_job {
    uv_work_t work;
    struct shape_entry *shape;
    char *folder;
    uint64_t mem_bytes;
    int memory_fd, layer_fd, overlay_fd;
    struct buf device_state;
    struct err e;
};

static int memory_load(const char *path, uint64_t bytes, int *ret_fd, struct err *e)
{
    _cleanup_close_ int from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (from < 0)
        return err_errno(e, ERR_SYSTEM, errno, "open %s", path);
    struct stat st;
    if (fstat(from, &st) < 0 || (uint64_t)st.st_size != bytes)
        return err_set(e, ERR_INVALID, "%s does not have the size of the machine's memory", path);
    _cleanup_close_ int fd = memfd_create("space-template", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make memory for a template");
    _cleanup_free_ uint8_t *chunk = xmalloc(MIB);
    for (off_t at = 0; (at = lseek(from, at, SEEK_DATA)) >= 0;) {
        off_t end = lseek(from, at, SEEK_HOLE);
        while (at < end) {
            ssize_t n = pread(from, chunk, MIN((size_t)MIB, (size_t)(end - at)), at);
            if (n <= 0 || pwrite(fd, chunk, (size_t)n, at) != n)
                return err_errno(e, ERR_SYSTEM, n == 0 ? EIO : errno, "copy %s into memory", path);
            at += n;
        }
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "seal the memory of a template");
    *ret_fd = steal_fd(&fd);
    return 0;
}

static void load_work(uv_work_t *work)
{
    struct shape_job *j = container_of(work, struct shape_job, work);
    if (parts_verify(j->folder, shape_parts, ARRAY_LEN(shape_parts), &j->e) < 0)
        return;
    _cleanup_free_ char *memory = xasprintf("%s/memory", j->folder), *state = xasprintf("%s/device.state", j->folder);
    _cleanup_free_ char *layer = xasprintf("%s/disk.qcow2", j->folder), *overlay = xasprintf("%s/overlay.qcow2", j->folder);
    if (memory_load(memory, j->mem_bytes, &j->memory_fd, &j->e) < 0 ||
        file_read(state, DEVICE_STATE_MAX, &j->device_state, &j->e) < 0)
        return;
    if ((j->layer_fd = open(layer, O_RDONLY | O_CLOEXEC)) < 0 || (j->overlay_fd = open(overlay, O_RDONLY | O_CLOEXEC)) < 0)
        err_errno(&j->e, ERR_SYSTEM, errno, "open the disks of a shape");
}

static void load_done(uv_work_t *work, int status)
{
    struct shape_job *j = container_of(work, struct shape_job, work);
    struct shape_entry *s = j->shape;
    if (status < 0 && !j->e.code)
        err_set(&j->e, ERR_CANCELLED, "load a shape: %s", uv_strerror(status));
    if (!j->e.code) {
        s->memory_fd = steal_fd(&j->memory_fd);
        s->layer_fd = steal_fd(&j->layer_fd);
        s->overlay_fd = steal_fd(&j->overlay_fd);
        buf_done(&s->device_state);
        s->device_state = j->device_state;
        j->device_state = (struct buf){0};
    }
    int *fds[] = {&j->memory_fd, &j->layer_fd, &j->overlay_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        cleanup_close(fds[i]);
    buf_done(&j->device_state);
    struct err e = j->e;
    free(j->folder);
    free(j);
    shape_settled(s, e.code ? &e : NULL);
}

void shape_load(struct shape_entry *s)
{
    struct shape_job *j = NEW(struct shape_job);
    s->state = SHAPE_LOADING;
    *j = (struct shape_job){.shape = s, .folder = shape_folder(s), .mem_bytes = s->shape.mem_mib * MIB};
    j->memory_fd = j->layer_fd = j->overlay_fd = -1;
    buf_init(&j->device_state, DEVICE_STATE_MAX);
    uv_queue_work(s->node->loop, &j->work, load_work, load_done);
}

void shape_ensure(struct shape_entry *s, node_progress_cb progress, void (*done)(void *arg, const struct err *e),
                  void *arg)
{
    struct shape_waiter *w = NEW(struct shape_waiter);
    *w = (struct shape_waiter){.progress = progress, .done = done, .arg = arg};
    TAILQ_INSERT_TAIL(&s->waiters, w, link);
    if (s->state == SHAPE_READY)
        shape_settled(s, NULL);
    if (s->state != SHAPE_NEW)
        return;
    _cleanup_free_ char *folder = shape_folder(s);
    if (access(folder, F_OK) == 0)
        shape_load(s);
    else
        shape_build(s);
}

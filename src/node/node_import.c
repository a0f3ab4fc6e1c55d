/* Incoming folders (made by the build script) to templates.
 *
 * The folder is checked, moved to `templates/.import-<digest>`, booted and frozen there for the default shape, and only
 * then gets its real name: a template that can be seen is complete. Failure or interruption removes all of it. The
 * digest is the SHA-256 over the digests of the parts, so equal content has one name. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/str.h"
#include "digest/digest.h"
#include "node/node_internal.h"

static const char *const template_parts[] = {"rootfs.raw", "vmlinuz", "initramfs.img"};

struct import {
    struct node *node;
    uv_work_t work;
    char *incoming, *staging, *target;
    char digest[DIGEST_SIZE];
    bool exists;
    struct template *template;
    node_progress_cb progress;
    node_template_cb done;
    void *arg;
    struct err e;
};

static void import_end(struct import *i)
{
    struct node *n = i->node;
    struct shape_entry *s, *next;
    if (i->e.code && i->template) {
        for (s = TAILQ_FIRST(&n->shapes); s; s = next) {
            next = TAILQ_NEXT(s, link);
            if (s->template == i->template) {
                pool_forget_shape(s);
                shape_free(s);
            }
        }
        template_forget(n, i->template);
    }
    if (i->e.code && i->staging)
        dir_remove_tree(i->staging, NULL);
    i->done(i->arg, i->digest[0] ? i->digest : NULL, i->e.code ? &i->e : NULL);
    free(i->incoming);
    free(i->staging);
    free(i->target);
    free(i);
}

/* SHA-256 over "<part> <sha256>\n" of each part in order. */
static int digest_make(const char *folder, char ret_digest[DIGEST_SIZE], struct err *e)
{
    _cleanup_free_ char *path = xasprintf("%s/manifest.json", folder);
    _cleanup_buf_ struct buf text = BUF_MAX(MIB), lines = BUF_MAX(4096);
    int r = file_read(path, MIB, &text, e);
    if (r < 0)
        return r;
    json_t *manifest = json_loadb((const char *)buf_data(&text), text.len, JSON_REJECT_DUPLICATES, NULL);
    for (size_t k = 0; k < ARRAY_LEN(template_parts); k++) {
        const char *hex =
            json_string_value(json_object_get(json_object_get(json_object_get(manifest, "parts"), template_parts[k]), "sha256"));
        buf_printf(&lines, "%s %s\n", template_parts[k], hex ? hex : "");
    }
    json_decref(manifest);
    uint8_t digest[SHA256_LEN];
    sha256_of(buf_data(&lines), lines.len, digest);
    hex_encode(digest, sizeof(digest), ret_digest);
    return 0;
}

static void check_work(uv_work_t *work)
{
    struct import *i = container_of(work, struct import, work);
    struct err *e = &i->e;
    if (parts_verify(i->incoming, template_parts, ARRAY_LEN(template_parts), e) < 0 ||
        digest_make(i->incoming, i->digest, e) < 0)
        return;
    i->target = xasprintf("%s/%s", i->node->templates_folder, i->digest);
    if (access(i->target, F_OK) == 0) {
        i->exists = true;
        dir_remove_tree(i->incoming, NULL);
        return;
    }
    i->staging = xasprintf("%s/.import-%s", i->node->templates_folder, i->digest);
    /* The machine's own user opens kernel and initramfs again; the folders above them stay closed to it. */
    static const char *const readable[] = {"vmlinuz", "initramfs.img"};
    for (size_t k = 0; k < ARRAY_LEN(readable); k++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", i->incoming, readable[k]);
        if (chmod(path, 0444) < 0) {
            err_errno(e, ERR_SYSTEM, errno, "make %s readable", path);
            return;
        }
    }
    _cleanup_free_ char *shapes = xasprintf("%s/shapes", i->incoming);
    if (dir_make(shapes, 0700, e) < 0)
        return;
    if (rename(i->incoming, i->staging) < 0)
        err_errno(e, errno == EEXIST || errno == ENOTEMPTY ? ERR_CONFLICT : ERR_SYSTEM, errno,
                  "take over the incoming template");
}

static void on_shape(void *arg, const struct err *e)
{
    struct import *i = arg;
    if (e)
        i->e = *e;
    else if (rename(i->staging, i->target) < 0)
        err_errno(&i->e, ERR_SYSTEM, errno, "put a finished template in place");
    else {
        dir_sync(i->node->templates_folder, NULL);
        free(i->template->folder);
        i->template->folder = xstrdup(i->target);
    }
    import_end(i);
}

static void import_progress(void *arg, const char *step, uint64_t done, uint64_t total)
{
    struct import *i = arg;
    if (i->progress)
        i->progress(i->arg, step, done, total);
}

static void check_done(uv_work_t *work, int status)
{
    struct import *i = container_of(work, struct import, work);
    struct node *n = i->node;
    if (status < 0 && !i->e.code)
        err_set(&i->e, ERR_CANCELLED, "import a template: %s", uv_strerror(status));
    if (i->e.code || i->exists) {
        free(steal(i->staging)); /* not ours yet */
        import_end(i);
        return;
    }
    struct template *t = NULL;
    HASH_FIND_STR(n->templates, i->digest, t);
    if (t) {
        err_set(&i->e, ERR_CONFLICT, "this template is being imported already");
        free(steal(i->staging));
        import_end(i);
        return;
    }
    i->template = template_open(n, i->digest, i->staging, &i->e);
    struct shape shape = {.vcpus = n->config->default_vcpus, .mem_mib = n->config->default_memory_mib};
    struct shape_entry *s = NULL;
    if (i->template) {
        shape.disk_mib = MAX(n->config->default_disk_mib, i->template->disk_mib);
        s = shape_find(n, i->digest, &shape, &i->e);
    }
    if (!s) {
        import_end(i);
        return;
    }
    shape_ensure(s, import_progress, on_shape, i);
}

bool node_incoming_valid(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= NODE_INCOMING_NAME_MAX && !strchr("._-", name[0]) &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

struct early {
    node_template_cb done;
    void *arg;
    char digest[DIGEST_SIZE];
    struct err e;
};

static void on_early(void *arg)
{
    _cleanup_free_ struct early *early = arg;
    early->done(early->arg, early->digest[0] ? early->digest : NULL, early->e.code ? &early->e : NULL);
}

static void finish_early(struct node *n, const char *digest, const struct err *e, node_template_cb done, void *arg)
{
    struct early *early = NEW(struct early);
    *early = (struct early){.done = done, .arg = arg};
    snprintf(early->digest, sizeof(early->digest), "%s", digest ? digest : "");
    if (e)
        early->e = *e;
    node_defer(n, on_early, early);
}

void node_template_import(struct node *n, const char *incoming_name, node_progress_cb progress, node_template_cb done,
                          void *arg)
{
    struct err e = {0};
    if (!node_incoming_valid(incoming_name))
        err_set(&e, ERR_INVALID, "\"%.100s\" is no name of an incoming folder", incoming_name);
    else if (n->stopping || !n->ready)
        err_set(&e, ERR_UNAVAILABLE, "the node is not ready");
    _cleanup_free_ char *folder = xasprintf("%s/%s", n->incoming_folder, incoming_name);
    struct stat st;
    if (!e.code && (lstat(folder, &st) < 0 || !S_ISDIR(st.st_mode)))
        err_set(&e, ERR_NOT_FOUND, "there is no incoming folder \"%s\"", incoming_name);
    if (e.code) {
        finish_early(n, NULL, &e, done, arg);
        return;
    }
    struct import *i = NEW(struct import);
    *i = (struct import){.node = n, .incoming = steal(folder), .progress = progress, .done = done, .arg = arg};
    if (progress)
        progress(arg, "check", 0, 0);
    uv_queue_work(n->loop, &i->work, check_work, check_done);
}

struct prepare {
    char digest[DIGEST_SIZE];
    node_progress_cb progress;
    node_template_cb done;
    void *arg;
};

static void prepare_progress(void *arg, const char *step, uint64_t done, uint64_t total)
{
    struct prepare *p = arg;
    if (p->progress)
        p->progress(p->arg, step, done, total);
}

static void on_prepared(void *arg, const struct err *e)
{
    _cleanup_free_ struct prepare *p = arg;
    p->done(p->arg, p->digest, e);
}

void node_template_prepare(struct node *n, const char *digest, const struct shape *shape, node_progress_cb progress,
                           node_template_cb done, void *arg)
{
    struct err e = {0};
    struct shape_entry *s = NULL;
    if (n->stopping || !n->ready)
        err_set(&e, ERR_UNAVAILABLE, "the node is not ready");
    else
        s = shape_find(n, digest, shape, &e);
    if (!s || s->state == SHAPE_READY) {
        finish_early(n, digest, s ? NULL : &e, done, arg);
        return;
    }
    struct prepare *p = NEW(struct prepare);
    *p = (struct prepare){.progress = progress, .done = done, .arg = arg};
    snprintf(p->digest, sizeof(p->digest), "%s", digest);
    shape_ensure(s, prepare_progress, on_prepared, p);
}

/* ---- what there is ---- */

size_t node_template_shapes(struct node *n, const char *digest, struct node_template_shape *ret_shapes, size_t max)
{
    struct template *t = template_find(n, digest, NULL);
    if (!t)
        return 0;
    _cleanup_free_ char *folder = xasprintf("%s/shapes", t->folder);
    DIR *dir = opendir(folder);
    size_t count = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct shape s;
        char key[SHAPE_KEY_SIZE];
        /* A folder gets this name when all of it is there (node_build.c); the name is made again to compare all of it. */
        if (sscanf(entry->d_name, "%uc-%um-%ud-", &s.vcpus, &s.mem_mib, &s.disk_mib) != 3)
            continue;
        shape_key(n, &s, key);
        if (!str_eq(key, entry->d_name))
            continue;
        if (count++ >= max)
            continue;
        ret_shapes[count - 1] = (struct node_template_shape){.shape = s, .accelerator = n->accelerator};
        memcpy(ret_shapes[count - 1].qemu_version, n->qemu_version, sizeof(n->qemu_version));
    }
    if (dir)
        closedir(dir);
    return count;
}

/* ---- removal ---- */

struct removal {
    struct node *node;
    struct template *template;
    size_t waiting;
    node_done_cb cb;
    void *arg;
};

static void on_machine_removed(void *arg, const struct err *e)
{
    struct removal *r = arg;
    struct node *n = r->node;
    (void)e;
    if (--r->waiting > 0)
        return;
    struct shape_entry *s, *next;
    for (s = TAILQ_FIRST(&n->shapes); s; s = next) {
        next = TAILQ_NEXT(s, link);
        if (s->template == r->template)
            shape_free(s);
    }
    /* First out of sight, then away: an interrupted removal is finished by reconciliation. */
    _cleanup_free_ char *folder = xstrdup(r->template->folder);
    _cleanup_free_ char *trash = xasprintf("%s/.import-%s", n->templates_folder, r->template->digest);
    struct err own = {0};
    template_forget(n, r->template);
    if (rename(folder, trash) < 0)
        err_errno(&own, ERR_SYSTEM, errno, "remove a template");
    else
        dir_remove_tree(trash, &own);
    r->cb(r->arg, own.code ? &own : NULL);
    free(r);
}

static void removal_start(void *arg)
{
    on_machine_removed(arg, NULL);
}

void node_template_remove(struct node *n, const char *digest, node_done_cb cb, void *arg)
{
    struct err e = {0};
    struct template *t = template_find(n, digest, &e);
    struct shape_entry *s;
    struct node_entry *m, *next;
    if (t) {
        TAILQ_FOREACH (s, &n->shapes, link)
            if (s->template == t && (s->state == SHAPE_LOADING || s->state == SHAPE_BUILDING))
                err_set(&e, ERR_CONFLICT, "a shape of the template is being made");
        HASH_ITER (hh, n->machines, m, next)
            if (str_eq(m->pub.template_digest, digest) && (m->stage == STAGE_CLAIMED || m->claim || m->stage == STAGE_ADOPTING))
                err_set(&e, ERR_CONFLICT, "a sandbox of the template is running");
    }
    if (e.code) {
        cb(arg, &e);
        return;
    }
    struct removal *r = NEW(struct removal);
    *r = (struct removal){.node = n, .template = t, .waiting = 1, .cb = cb, .arg = arg};
    TAILQ_FOREACH (s, &n->shapes, link) {
        if (s->template != t)
            continue;
        s->removing = true;
        s->pooled = false;
        HASH_ITER (hh, n->machines, m, next) {
            if (m->shape != s)
                continue;
            r->waiting++;
            m->shape = NULL;
            entry_remove(m, on_machine_removed, r);
        }
    }
    node_defer(n, removal_start, r);
}

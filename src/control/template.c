/* Templates: the node does the work, the store learns of it here. */
#include "control/template.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "config/config.h"
#include "control/internal.h"
#include "control/operation.h"
#include "store/template.h"

#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>

#define PROGRESS_MS 250 /* how often at most progress is written to the store */
#define MANIFEST_MAX MIB

/* One import under way. Found by name: there is one of a name at a time. */
struct template_job {
    struct control *control;
    char name[NODE_INCOMING_NAME_MAX + 1];
    char tag[STORE_TAG_MAX + 1];
    char op_id[ID_SIZE];
    uint64_t progress_at_ms;
    char step[128];
    bool dead; /* the control has stopped: nothing is recorded any more */
    UT_hash_handle hh;
};

bool template_tag_valid(const char *tag)
{
    size_t n = strlen(tag);
    return n > 0 && n <= 63 && !strchr("._-", tag[0]) && strspn(tag, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

bool template_digest_valid(const char *digest)
{
    return strlen(digest) == 64 && strspn(digest, "0123456789abcdef") == 64;
}

static uint64_t folder_bytes(const char *folder)
{
    static const char *const parts[] = {"rootfs.raw", "vmlinuz", "initramfs.img", "manifest.json", TEMPLATE_LOG_NAME};
    uint64_t total = 0;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", folder, parts[i]);
        struct stat st;
        if (lstat(path, &st) == 0)
            total += (uint64_t)st.st_blocks * 512;
    }
    return total;
}

/* The row of a template that the node has taken in, unless there is one. */
static int record_template(struct control *c, const char *digest, struct err *e)
{
    _cleanup_store_template_ struct store_template *old = NULL;
    int r = store_template_get(c->store, digest, &old, NULL);
    if (r >= 0)
        return old->state == STORE_TEMPLATE_READY
                   ? 0
                   : store_template_set_state(c->store, digest, STORE_TEMPLATE_READY, NULL, e);
    _cleanup_free_ char *folder = xasprintf("%s/templates/%s", c->config->state_dir, digest);
    _cleanup_free_ char *path = xasprintf("%s/manifest.json", folder);
    _cleanup_buf_ struct buf manifest = BUF_MAX(MANIFEST_MAX);
    if ((r = file_read(path, MANIFEST_MAX, &manifest, e)) < 0)
        return r;
    json_t *json = json_loadb((const char *)buf_data(&manifest), manifest.len, 0, NULL);
    const char *kind = json_string_value(json_object_get(json, "kind"));
    if (!kind)
        kind = json_string_value(json_object_get(json, "name"));
    if (!kind || !kind[0] || strlen(kind) > STORE_KIND_MAX)
        kind = "base"; /* nothing hangs on it */
    struct store_template t = {
        .digest = (char *)digest,
        .kind = (char *)kind,
        .state = STORE_TEMPLATE_READY,
        .manifest_json = (char *)buf_cstr(&manifest),
        .size_bytes = folder_bytes(folder),
        .created_at_ms = clock_wall_ms(),
    };
    r = store_template_insert(c->store, &t, e);
    json_decref(json);
    return r;
}

static void on_progress(void *arg, const char *step, uint64_t done, uint64_t total)
{
    struct template_job *job = arg;
    uint64_t now = clock_mono_ms();
    bool same_step = str_eq(job->step, step);
    if (job->dead || (same_step && now - job->progress_at_ms < PROGRESS_MS))
        return;
    snprintf(job->step, sizeof(job->step), "%s", step);
    job->progress_at_ms = now;
    store_operation_progress(job->control->store, job->op_id, done, total, step, NULL);
}

static int record_import(struct template_job *job, const char *digest, struct err *e)
{
    struct control *c = job->control;
    int r;
    _cleanup_store_tx_ struct store_tx tx = {0};
    if ((r = store_begin(c->store, &tx, e)) < 0 || (r = record_template(c, digest, e)) < 0 ||
        (job->tag[0] && (r = store_template_tag_set(c->store, NULL, job->tag, digest, clock_wall_ms(), e)) < 0) ||
        (r = store_operation_set_target(c->store, job->op_id, digest, e)) < 0 ||
        (r = operation_close(c, job->op_id, 0, NULL, e)) < 0)
        return r;
    return store_commit(&tx, e);
}

static void on_imported(void *arg, const char *digest, const struct err *e)
{
    struct template_job *job = arg;
    struct control *c = job->control;
    struct err error = {0};
    if (!job->dead) {
        HASH_DEL(c->template_jobs, job);
        if (e)
            error = *e;
        else
            record_import(job, digest, &error);
        if (error.code)
            operation_close(c, job->op_id, error.code, error.text, NULL);
        operation_wake(c, job->op_id);
    }
    free(job);
}

int template_import(struct control *c, const char *project_id, const char *name, const char *tag,
                    const char *request_id, char ret_op[ID_SIZE], struct err *e)
{
    struct template_job *job;
    if (!c->ready)
        return err_set(e, ERR_UNAVAILABLE, "the platform is starting");
    if (!node_incoming_valid(name))
        return err_set(e, ERR_INVALID, "\"%s\" is no name of a folder in incoming/", name);
    if (tag && !template_tag_valid(tag))
        return err_set(e, ERR_INVALID, "\"%s\" is no tag", tag);
    HASH_FIND_STR(c->template_jobs, name, job);
    if (job)
        return err_set(e, ERR_CONFLICT, "incoming/%s is being taken in by operation %s", name, job->op_id);
    job = NEW(struct template_job);
    job->control = c;
    snprintf(job->name, sizeof(job->name), "%s", name);
    snprintf(job->tag, sizeof(job->tag), "%s", tag ? tag : "");
    int r = operation_open(c, project_id, "template.import", "template", name, request_id, job->op_id, e);
    if (r < 0) {
        free(job);
        return r;
    }
    memcpy(ret_op, job->op_id, ID_SIZE);
    HASH_ADD_STR(c->template_jobs, name, job);
    node_template_import(c->node, name, on_progress, on_imported, job);
    return 0;
}

void templates_stop(struct control *c)
{
    struct template_job *job, *tmp;
    HASH_ITER(hh, c->template_jobs, job, tmp) {
        HASH_DEL(c->template_jobs, job);
        job->dead = true; /* freed by its callback */
    }
}

/* ---- removal ---- */

struct removal {
    struct control *control;
    char digest[DIGEST_SIZE];
    template_done_cb done;
    void *arg;
};

static void on_template_removed(void *arg, const struct err *e)
{
    struct removal *r = arg;
    struct err error = {0};
    if (e)
        error = *e;
    else {
        int rc = store_template_delete(r->control->store, r->digest, &error);
        if (rc == ERR_NOT_FOUND)
            error.code = 0;
    }
    /* The folder is still there: it can be used again. */
    if (e && !r->control->stopping)
        store_template_set_state(r->control->store, r->digest, STORE_TEMPLATE_READY, NULL, NULL);
    r->done(r->arg, error.code ? &error : NULL);
    free(r);
}

void template_remove(struct control *c, const char *digest, template_done_cb done, void *arg)
{
    _cleanup_store_template_ struct store_template *t = NULL;
    struct err e = {0};
    struct live *l;
    if (store_template_get(c->store, digest, &t, &e) < 0) {
        done(arg, &e);
        return;
    }
    for (l = c->lives; l; l = l->hh.next) {
        _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
        if (life_holds_machine(l->state) && store_sandbox_get(c->store, NULL, l->id, &sb, NULL) >= 0 &&
            str_eq(sb->template_digest, digest)) {
            err_set(&e, ERR_CONFLICT, "sandbox %s uses the template", l->id);
            done(arg, &e);
            return;
        }
    }
    /* Nothing new is made from it while it is being removed. */
    if (store_template_set_state(c->store, digest, STORE_TEMPLATE_DELETING, NULL, &e) < 0) {
        done(arg, &e);
        return;
    }
    struct removal *r = NEW(struct removal);
    *r = (struct removal){.control = c, .done = done, .arg = arg};
    snprintf(r->digest, sizeof(r->digest), "%s", digest);
    node_template_remove(c->node, digest, on_template_removed, r);
}

int template_log(struct control *c, const char *digest, struct buf *ret_text, struct err *e)
{
    _cleanup_free_ char *path = xasprintf("%s/templates/%s/" TEMPLATE_LOG_NAME, c->config->state_dir, digest);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_NOT_FOUND, "template %s has no log of its build", digest);
    off_t at = st.st_size > (off_t)TEMPLATE_LOG_MAX ? st.st_size - (off_t)TEMPLATE_LOG_MAX : 0;
    for (;;) {
        uint8_t *room = buf_reserve(ret_text, 64 * KIB);
        ssize_t n = room ? pread(fd, room, 64 * KIB, at) : 0;
        if (n <= 0)
            return 0;
        buf_commit(ret_text, (size_t)n);
        at += n;
    }
}

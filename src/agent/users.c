/* Users and groups (see users.h). */
#include "agent/users.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/str.h"

struct table {
    const char *path;
    char *text; /* the whole file, with a terminator */
    struct timespec mtime;
    off_t size;
    ino_t inode;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table passwd_table = {.path = "/etc/passwd"}, group_table = {.path = "/etc/group"};
static struct user last_found; /* most execs are of one user */
static char last_asked[LIMIT_USER_NAME];

/* The file as it is at this moment; `*ret_changed` when it is another than before. Empty when it cannot be read. */
static const char *table_text(struct table *t, bool *ret_changed)
{
    struct stat st;
    if (stat(t->path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > LIMIT_PASSWD_BYTES) {
        *ret_changed |= t->text != NULL;
        free(t->text);
        t->text = NULL;
        return "";
    }
    if (t->text && t->size == st.st_size && t->inode == st.st_ino && t->mtime.tv_sec == st.st_mtim.tv_sec &&
        t->mtime.tv_nsec == st.st_mtim.tv_nsec)
        return t->text;
    *ret_changed = true;
    free(t->text);
    t->text = xcalloc(1, (size_t)st.st_size + 1);
    _cleanup_close_ int fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    size_t len = 0;
    for (ssize_t n; fd >= 0 && len < (size_t)st.st_size; len += (size_t)n)
        if ((n = read(fd, t->text + len, (size_t)st.st_size - len)) <= 0)
            break;
    t->text[len] = '\0';
    t->size = st.st_size;
    t->inode = st.st_ino;
    t->mtime = st.st_mtim;
    return t->text;
}

#define FIELDS_MAX 7

/* The next line's fields, cut at ':' into pieces that are not terminated; false at the end. */
static bool line_next(const char **at, const char *ret_field[FIELDS_MAX], size_t ret_len[FIELDS_MAX])
{
    const char *line = *at;
    if (!*line)
        return false;
    const char *end = strchrnul(line, '\n');
    for (size_t i = 0; i < FIELDS_MAX; i++) {
        const char *colon = memchr(line, ':', (size_t)(end - line));
        ret_field[i] = line;
        ret_len[i] = (size_t)((colon ? colon : end) - line);
        line = colon ? colon + 1 : end;
    }
    *at = *end ? end + 1 : end;
    return true;
}

static bool field_is(const char *field, size_t len, const char *text)
{
    return strlen(text) == len && memcmp(field, text, len) == 0;
}

static bool field_number(const char *field, size_t len, uint32_t *ret_value)
{
    char text[12];
    uint64_t v;
    if (len == 0 || len >= sizeof(text))
        return false;
    memcpy(text, field, len);
    text[len] = '\0';
    if (!str_to_u64(text, 0, UINT32_MAX - 1, &v))
        return false;
    *ret_value = (uint32_t)v;
    return true;
}

static bool field_copy(const char *field, size_t len, char *to, size_t size)
{
    if (len >= size)
        return false;
    memcpy(to, field, len);
    to[len] = '\0';
    return true;
}

/* Line of `text` whose name is `name`, or when `name` is NULL whose number is `number`. */
static bool line_find(const char *text, const char *name, uint32_t number, const char *ret_field[FIELDS_MAX],
                      size_t ret_len[FIELDS_MAX])
{
    uint32_t v;
    while (line_next(&text, ret_field, ret_len)) {
        if (name ? field_is(ret_field[0], ret_len[0], name) : field_number(ret_field[2], ret_len[2], &v) && v == number)
            return true;
    }
    return false;
}

static void groups_fill(const char *text, struct user *u)
{
    const char *f[FIELDS_MAX];
    size_t n[FIELDS_MAX];
    u->groups[0] = u->gid;
    u->group_count = 1;
    while (u->group_count < LIMIT_GROUPS && line_next(&text, f, n)) {
        uint32_t gid;
        const char *members = f[3], *end = f[3] + n[3];
        while (members < end) {
            const char *comma = memchr(members, ',', (size_t)(end - members));
            size_t len = (size_t)((comma ? comma : end) - members);
            if (field_is(members, len, u->name) && field_number(f[2], n[2], &gid) && gid != u->gid) {
                u->groups[u->group_count++] = gid;
                break;
            }
            members += len + 1;
        }
    }
}

static bool user_lookup(const char *passwd, const char *group, const char *name, struct user *u)
{
    const char *f[FIELDS_MAX];
    size_t n[FIELDS_MAX];
    uint64_t number = 0;
    bool numeric = str_to_u64(name, 0, UINT32_MAX - 1, &number);
    *u = (struct user){.home = "/", .shell = "/bin/sh"};
    if (line_find(passwd, name, 0, f, n) || (numeric && line_find(passwd, NULL, (uint32_t)number, f, n))) {
        if (!field_copy(f[0], n[0], u->name, sizeof(u->name)) || !field_number(f[2], n[2], &u->uid) ||
            !field_number(f[3], n[3], &u->gid))
            return false;
        if (n[5] > 0 && f[5][0] == '/')
            field_copy(f[5], n[5], u->home, sizeof(u->home));
        if (n[6] > 0)
            field_copy(f[6], n[6], u->shell, sizeof(u->shell));
    } else if (numeric || str_eq(name, "root")) {
        u->uid = u->gid = (uint32_t)number;
        snprintf(u->name, sizeof(u->name), "%s", number == 0 ? "root" : name);
        if (number == 0)
            snprintf(u->home, sizeof(u->home), "/root");
    } else {
        return false;
    }
    groups_fill(group, u);
    return true;
}

int user_find(const char *name, struct user *ret_user, struct err *e)
{
    bool changed = false, found;
    if (name && (!*name || strlen(name) >= LIMIT_USER_NAME))
        return err_set(e, ERR_INVALID, "a user's name has 1 to %d bytes", LIMIT_USER_NAME - 1);
    pthread_mutex_lock(&lock);
    const char *passwd = table_text(&passwd_table, &changed), *group = table_text(&group_table, &changed);
    const char *asked = name ? name : "";
    if (!changed && last_found.group_count > 0 && str_eq(asked, last_asked)) {
        *ret_user = last_found;
        found = true;
    } else {
        struct user u;
        found =
            user_lookup(passwd, group, name ? name : "user", &u) || (!name && user_lookup(passwd, group, "root", &u));
        if (found) {
            *ret_user = last_found = u;
            snprintf(last_asked, sizeof(last_asked), "%s", asked);
        } else {
            last_found.group_count = 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return found ? 0 : err_set(e, ERR_NOT_FOUND, "no user \"%s\"", name ? name : "root");
}

int group_find(const char *name, gid_t *ret_gid, struct err *e)
{
    const char *f[FIELDS_MAX];
    size_t n[FIELDS_MAX];
    bool changed = false;
    uint64_t number;
    uint32_t gid = 0;
    pthread_mutex_lock(&lock);
    bool found = line_find(table_text(&group_table, &changed), name, 0, f, n) && field_number(f[2], n[2], &gid);
    pthread_mutex_unlock(&lock);
    if (!found && str_to_u64(name, 0, UINT32_MAX - 1, &number)) {
        gid = (gid_t)number;
        found = true;
    }
    if (!found)
        return err_set(e, ERR_NOT_FOUND, "no group \"%.64s\"", name);
    *ret_gid = gid;
    return 0;
}

static bool name_of(struct table *table, uint32_t number, char *ret_name, size_t size)
{
    const char *f[FIELDS_MAX];
    size_t n[FIELDS_MAX];
    bool changed = false;
    pthread_mutex_lock(&lock);
    bool found = line_find(table_text(table, &changed), NULL, number, f, n) && field_copy(f[0], n[0], ret_name, size);
    if (changed)
        last_found.group_count = 0;
    pthread_mutex_unlock(&lock);
    return found;
}

bool user_name(uid_t uid, char *ret_name, size_t size)
{
    return name_of(&passwd_table, uid, ret_name, size);
}

bool group_name(gid_t gid, char *ret_name, size_t size)
{
    return name_of(&group_table, gid, ret_name, size);
}

int user_assume(const struct user *user, struct err *e)
{
    if (geteuid() != 0) {
        if (!user || user->uid == geteuid())
            return 0;
        return err_set(e, ERR_FORBIDDEN, "only root can act as \"%s\"", user->name);
    }
    uid_t uid = user ? user->uid : 0;
    gid_t gid = user ? user->gid : 0;
    size_t count = user ? user->group_count : 0;
    /* The system calls themselves: the library's setgroups() changes every thread of the process. */
    if (uid == 0)
        setfsuid(0);
    if (syscall(SYS_setgroups, count, user ? user->groups : NULL) < 0)
        return err_errno(e, ERR_FORBIDDEN, errno, "act as user %u", (unsigned)uid);
    setfsgid(gid);
    setfsuid(uid);
    return 0;
}

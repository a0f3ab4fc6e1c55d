/* The guest agent's files, folders, archives, watches and tunnels, in a temporary folder of the host. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "agent_client.h"
#include "base/clock.h"
#include "base/file.h"

static struct client client;
static char folder[32];

static int setup(void **state)
{
    *state = &client;
    strcpy(folder, "/tmp/space-files-XXXXXX");
    assert_non_null(mkdtemp(folder));
    client_start(&client);
    return 0;
}

static int teardown(void **state ATTR_UNUSED)
{
    client_stop(&client);
    return dir_remove_tree(folder, NULL);
}

/* --- helpers --------------------------------------------------------------------------------------------------------
 */

static void expect(struct reply *r, int status)
{
    if (r->status != status)
        fail_msg("got %d %.*s", r->status, (int)r->body.len, r->body.len ? (const char *)buf_data(&r->body) : "");
    reply_free(r);
}

static void put_file(struct client *c, const char *name, const char *more, const void *data, size_t len, int status)
{
    char path[1024];
    snprintf(path, sizeof(path), AGENT_PATH_FILE "?path=%s/%s%s", folder, name, more);
    expect(client_call(c, "PUT", path, data, len), status);
}

static const char *at(const char *name)
{
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), "%s/%s", folder, name);
    return path[next];
}

static bool holds(const char *path, const char *text)
{
    _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
    return file_read(path, 1 << 20, &b, NULL) == 0 && strcmp(buf_cstr(&b), text) == 0;
}

static uint64_t number_of(const struct buf *body, uint16_t tag)
{
    struct wire_reader r;
    struct wire_field f;
    uint64_t v = UINT64_MAX;
    wire_reader_init(&r, buf_data(body), body->len);
    while (wire_next(&r, &f))
        if (f.tag == tag)
            wire_field_u64(&f, &v);
    assert_true(wire_done(&r));
    return v;
}

static int entries_in(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

/* --- files ----------------------------------------------------------------------------------------------------------
 */

static void put_and_get(void **state)
{
    struct client *c = *state;
    put_file(c, "f", "", "hello", 5, 200);
    assert_true(holds(at("f"), "hello"));
    struct stat st;
    assert_int_equal(stat(at("f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    put_file(c, "f", "&mode=4711", "changed", 7, 200);
    put_file(c, "f", "&sync=1", "changed!", 8, 200);
    stat(at("f"), &st);
    assert_int_equal(st.st_mode & 07777, 04711); /* kept */
    struct reply *r = client_callf(c, "GET", AGENT_PATH_FILE "?path=%s/f&offset=2&length=3", folder);
    assert_int_equal(r->status, 200);
    assert_int_equal(r->body.len, 3);
    assert_memory_equal(buf_data(&r->body), "ang", 3);
    assert_string_equal(r->size, "8");
    assert_string_equal(r->mode, "4711");
    assert_true(atoll(r->mtime) > 1600000000000);
    reply_free(r);
    r = client_callf(c, "GET", AGENT_PATH_FILE "?path=%s/f&offset=8", folder);
    assert_true(r->status == 200 && r->ended && r->body.len == 0);
    reply_free(r);
    expect(client_callf(c, "GET", AGENT_PATH_FILE "?path=%s/f&offset=9", folder), 416);
    expect(client_callf(c, "GET", AGENT_PATH_FILE "?path=%s", folder), 400);
    expect(client_callf(c, "GET", AGENT_PATH_FILE "?path=%s/none", folder), 404);
    put_file(c, "a/b/c", "", "x", 1, 404);
    put_file(c, "a/b/c", "&make_parents=1", "x", 1, 200);
    assert_true(holds(at("a/b/c"), "x"));
    put_file(c, "a/b", "", "x", 1, 409);
    put_file(c, "empty", "", "", 0, 200);
    assert_true(holds(at("empty"), ""));
    r = client_callf(c, "GET", AGENT_PATH_FILE "?path=/proc/self/status"); /* of a file without a size */
    assert_non_null(memmem(buf_data(&r->body), r->body.len, "PPid", 4));
    reply_free(r);
}

static void large_file(void **state)
{
    struct client *c = *state;
    size_t len = (30 << 20) + 12345;
    _cleanup_free_ uint8_t *data = xmalloc(len);
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    put_file(c, "big", "", data, len, 200);
    char path[512];
    snprintf(path, sizeof(path), AGENT_PATH_FILE "?path=%s/big", folder);
    struct reply *r = client_open(c, "GET", path, NULL, 0);
    r->body.max = 64 << 20;
    client_wait_closed(c, r);
    assert_int_equal(r->body.len, len);
    assert_memory_equal(buf_data(&r->body), data, len);
    reply_free(r);
}

static void an_upload_given_up_leaves_nothing(void **state)
{
    struct client *c = *state;
    char path[512];
    put_file(c, "f", "", "old", 3, 200);
    snprintf(path, sizeof(path), AGENT_PATH_FILE "?path=%s/f", folder);
    struct reply *r = client_open_stream(c, "PUT", path);
    client_send(c, r, "new", 3, false);
    uint64_t until = clock_mono_ms() + CLIENT_DEADLINE_MS;
    while (entries_in(folder) != 2) { /* its temporary file */
        assert_true(clock_mono_ms() < until);
        client_run_ms(c, 5);
    }
    client_cancel(c, r);
    reply_free(r);
    client_run_ms(c, 20);
    assert_int_equal(entries_in(folder), 1);
    assert_true(holds(at("f"), "old"));
    r = client_open_stream(c, "PUT", path); /* the same with the connection */
    client_send(c, r, "new", 3, false);
    client_run_ms(c, 20);
    client_disconnect(c);
    reply_free(r);
    until = clock_mono_ms() + CLIENT_DEADLINE_MS;
    while (entries_in(folder) != 1) {
        assert_true(clock_mono_ms() < until);
        usleep(1000);
    }
    assert_true(holds(at("f"), "old"));
}

static void through_links(void **state)
{
    struct client *c = *state;
    put_file(c, "real", "", "1", 1, 200);
    assert_int_equal(symlink("real", at("link")), 0);
    assert_int_equal(symlink("newly", at("dangling")), 0);
    assert_int_equal(symlink("loop", at("loop")), 0);
    put_file(c, "link", "", "22", 2, 200);
    assert_true(holds(at("real"), "22"));
    put_file(c, "dangling", "", "333", 3, 200);
    assert_true(holds(at("newly"), "333"));
    put_file(c, "loop", "", "4", 1, 400);
    struct reply *r = client_callf(c, "GET", AGENT_PATH_STAT "?path=%s/link", folder);
    assert_int_equal(number_of(&r->body, AGENT_TAG_ENTRY_TYPE), AGENT_FILE_SYMLINK);
    assert_non_null(memmem(buf_data(&r->body), r->body.len, "real", 4));
    reply_free(r);
    r = client_callf(c, "GET", AGENT_PATH_STAT "?path=%s/link&follow=1", folder);
    assert_int_equal(number_of(&r->body, AGENT_TAG_ENTRY_TYPE), AGENT_FILE_REGULAR);
    assert_int_equal(number_of(&r->body, AGENT_TAG_ENTRY_SIZE), 2);
    reply_free(r);
    expect(client_callf(c, "GET", AGENT_PATH_FILE "?path=/proc/self/root/etc/passwd"), 400); /* a magic link */
    expect(client_callf(c, "GET", AGENT_PATH_DIR "?path=/proc/self/cwd"), 400);
}

static void as_another_user(void **state)
{
    struct client *c = *state;
    if (geteuid() != 0)
        skip();
    chmod(folder, 0755);
    put_file(c, "secret", "&mode=600", "root's", 6, 200);
    expect(client_callf(c, "GET", AGENT_PATH_FILE "?path=%s/secret&user=daemon", folder), 403);
    put_file(c, "theirs", "&user=daemon", "x", 1, 403);
    chmod(folder, 0777);
    put_file(c, "theirs", "&user=daemon", "x", 1, 200);
    struct stat st;
    stat(at("theirs"), &st);
    assert_true(st.st_uid == 1 && st.st_gid == 1);
    expect(client_callf(c, "POST", AGENT_PATH_ATTR "?path=%s/secret&mode=644&user=daemon", folder), 403);
    expect(client_callf(c, "POST", AGENT_PATH_ATTR "?path=%s/theirs&mode=600&user=daemon", folder), 200);
    expect(client_callf(c, "POST", AGENT_PATH_ATTR "?path=%s/secret&owner=daemon&group=games", folder), 200);
    stat(at("secret"), &st);
    assert_true(st.st_uid == 1 && st.st_gid == 60);
    expect(client_callf(c, "GET", AGENT_PATH_FILE "?path=%s/secret&user=daemon", folder), 200);
    put_file(c, "secret", "", "again", 5, 200); /* root writes: the owner stays */
    stat(at("secret"), &st);
    assert_int_equal(st.st_uid, 1);
    put_file(c, "theirs2", "&user=nobody-there", "x", 1, 404);
}

static void names(void **state)
{
    struct client *c = *state;
    expect(client_callf(c, "POST", AGENT_PATH_MKDIR "?path=%s/d&mode=1770", folder), 200);
    struct stat st;
    stat(at("d"), &st);
    assert_int_equal(st.st_mode & 07777, 01770);
    expect(client_callf(c, "POST", AGENT_PATH_MKDIR "?path=%s/d", folder), 409);
    expect(client_callf(c, "POST", AGENT_PATH_MKDIR "?path=%s/x/y/z", folder), 404);
    expect(client_callf(c, "POST", AGENT_PATH_MKDIR "?path=%s/x/y/z&parents=1", folder), 200);
    expect(client_callf(c, "POST", AGENT_PATH_MKDIR "?path=%s/x/y/z/&parents=1", folder), 200);
    put_file(c, "f", "", "1", 1, 200);
    put_file(c, "g", "", "2", 1, 200);
    expect(client_callf(c, "POST", AGENT_PATH_MOVE "?from=%s/f&to=%s/g", folder, folder), 409);
    expect(client_callf(c, "POST", AGENT_PATH_MOVE "?from=%s/f&to=%s/g&replace=1", folder, folder), 200);
    assert_true(holds(at("g"), "1"));
    expect(client_callf(c, "POST", AGENT_PATH_MOVE "?from=%s/f&to=%s/h", folder, folder), 404);
    expect(client_callf(c, "DELETE", AGENT_PATH_FILE "?path=%s/x", folder), 409);
    assert_int_equal(symlink("/etc", at("x/etc")), 0); /* not followed */
    expect(client_callf(c, "DELETE", AGENT_PATH_FILE "?path=%s/x&recursive=1", folder), 200);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
    assert_int_equal(access(at("x"), F_OK), -1);
    expect(client_callf(c, "DELETE", AGENT_PATH_FILE "?path=%s/x&recursive=1", folder), 404);
    expect(client_callf(c, "DELETE", AGENT_PATH_FILE "?path=/&recursive=1"), 400);
    expect(client_callf(c, "POST", AGENT_PATH_MKDIR "?path=%s/%%20%%25%%C3%%A4", folder), 200);
    assert_int_equal(access(at(" %ä"), F_OK), 0);
}

static void pages(void **state)
{
    struct client *c = *state;
    for (int i = 0; i < 25; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%02d", (i * 7) % 25);
        close(open(at(name), O_CREAT | O_WRONLY, 0600));
    }
    char after[300] = "";
    int expected = 0;
    for (bool more = true; more;) {
        struct reply *r = client_callf(c, "GET", AGENT_PATH_DIR "?path=%s&limit=10&after=%s", folder, after);
        assert_int_equal(r->status, 200);
        struct wire_reader reader, inner;
        struct wire_field f, g;
        wire_reader_init(&reader, buf_data(&r->body), r->body.len);
        while (wire_next(&reader, &f)) {
            if (f.tag == AGENT_TAG_DIR_MORE)
                wire_field_bool(&f, &more);
            if (f.tag != AGENT_TAG_DIR_ENTRY)
                continue;
            char want[16];
            wire_field_nested(&f, &inner);
            assert_true(wire_next(&inner, &g) && g.tag == AGENT_TAG_ENTRY_NAME);
            wire_field_text(&g, after, sizeof(after));
            snprintf(want, sizeof(want), "n%02d", expected++);
            assert_string_equal(after, want);
        }
        reply_free(r);
    }
    assert_int_equal(expected, 25);
    expect(client_callf(c, "GET", AGENT_PATH_DIR "?path=%s/n00", folder), 404);
}

/* --- archives -------------------------------------------------------------------------------------------------------
 */

static void archive_round_trip(void **state)
{
    struct client *c = *state;
    size_t len = 3 << 20;
    _cleanup_free_ uint8_t *data = xmalloc(len);
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 11);
    put_file(c, "src/deep/er/f", "&make_parents=1&mode=755", "hello", 5, 200);
    put_file(c, "src/big", "", data, len, 200);
    put_file(c, "src/empty", "", "", 0, 200);
    assert_int_equal(symlink("deep/er/f", at("src/link")), 0);
    assert_int_equal(mkfifo(at("src/pipe"), 0600), 0);
    char name[200], path[700];
    memset(name, 'n', sizeof(name));
    name[199] = '\0';
    snprintf(path, sizeof(path), "src/%s", name);
    put_file(c, path, "", "long", 4, 200);
    struct reply *r = client_callf(c, "GET", AGENT_PATH_TAR "?path=%s/src", folder);
    assert_int_equal(r->status, 200);
    assert_true(r->ended);
    FILE *listing = NULL; /* the system's own tar reads it too */
    char file[64];
    snprintf(file, sizeof(file), "%s/a.tar", folder);
    assert_int_equal(file_write_atomic(file, buf_data(&r->body), r->body.len, 0600, NULL), 0);
    snprintf(path, sizeof(path), "tar -tf %s | sort | head -3", file);
    listing = popen(path, "re");
    char line[256];
    assert_non_null(fgets(line, sizeof(line), listing));
    assert_string_equal(line, "./\n");
    pclose(listing);
    expect(client_callf(c, "POST", AGENT_PATH_MKDIR "?path=%s/dst", folder), 200);
    snprintf(path, sizeof(path), AGENT_PATH_TAR "?path=%s/dst", folder);
    struct reply *p = client_call(c, "PUT", path, buf_data(&r->body), r->body.len);
    assert_int_equal(p->status, 200);
    assert_int_equal(number_of(&p->body, AGENT_TAG_TAR_ENTRIES), 8);
    reply_free(p);
    reply_free(r);
    snprintf(path, sizeof(path), "diff -r --no-dereference %s/src %s/dst -x pipe", folder, folder);
    assert_int_equal(system(path), 0);
    struct stat st;
    assert_int_equal(lstat(at("dst/deep/er/f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_int_equal(lstat(at("dst/pipe"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    expect(client_callf(c, "GET", AGENT_PATH_TAR "?path=%s/none", folder), 404);
}

/* Archives that want out: refused, nothing appears outside. */
static void archives_stay_inside(void **state)
{
    struct client *c = *state;
    static const char *const renamed[] = {
        "f -P --transform s,^f$,../escaped,", "f -P --transform s,^f$,/tmp/space-escaped,",
        "l f --transform s,^f$,l/escaped,", /* through a link that the archive itself makes */
    };
    put_file(c, "m/f", "&make_parents=1", "x", 1, 200);
    assert_int_equal(symlink("..", at("m/l")), 0);
    expect(client_callf(c, "POST", AGENT_PATH_MKDIR "?path=%s/dst", folder), 200);
    for (size_t i = 0; i < ARRAY_LEN(renamed); i++) {
        char command[300], path[300];
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        snprintf(command, sizeof(command), "tar -C %s/m -cf - %s", folder, renamed[i]);
        FILE *tar = popen(command, "re");
        size_t n = fread(buf_reserve(&b, 1 << 19), 1, 1 << 19, tar);
        buf_commit(&b, n);
        pclose(tar);
        snprintf(path, sizeof(path), AGENT_PATH_TAR "?path=%s/dst", folder);
        struct reply *r = client_call(c, "PUT", path, buf_data(&b), b.len);
        assert_int_equal(r->status, 400);
        reply_free(r);
        assert_int_equal(access(at("escaped"), F_OK), -1);
        assert_int_equal(access("/tmp/space-escaped", F_OK), -1);
    }
}

/* --- watch ----------------------------------------------------------------------------------------------------------
 */

/* Wait until an event of this kind has come; what came before it is passed over. `*from`: where to go on. */
static void wait_event(struct client *c, struct reply *r, size_t *from, uint64_t type, const char *path, const char *to)
{
    for (;;) {
        while (r->body.len < *from + WIRE_RECORD_HEADER)
            client_wait_body(c, r, *from + WIRE_RECORD_HEADER);
        struct wire_record rec;
        assert_true(wire_record_decode(buf_data(&r->body) + *from, &rec));
        assert_int_equal(rec.type, AGENT_RECORD_WATCH);
        client_wait_body(c, r, *from + WIRE_RECORD_HEADER + rec.len);
        struct wire_reader reader;
        struct wire_field f;
        uint64_t got = 0;
        char got_path[256] = "", got_to[256] = "";
        wire_reader_init(&reader, buf_data(&r->body) + *from + WIRE_RECORD_HEADER, rec.len);
        while (wire_next(&reader, &f)) {
            if (f.tag == AGENT_TAG_WATCH_EVENT)
                wire_field_u64(&f, &got);
            if (f.tag == AGENT_TAG_WATCH_PATH)
                wire_field_text(&f, got_path, sizeof(got_path));
            if (f.tag == AGENT_TAG_WATCH_TO)
                wire_field_text(&f, got_to, sizeof(got_to));
        }
        *from += WIRE_RECORD_HEADER + rec.len;
        if (got == type && strcmp(got_path, path) == 0 && strcmp(got_to, to) == 0)
            return;
    }
}

static void watching(void **state)
{
    struct client *c = *state;
    char path[512];
    size_t seen = 0;
    put_file(c, "w/sub/old", "&make_parents=1", "x", 1, 200);
    snprintf(path, sizeof(path), AGENT_PATH_WATCH "?path=%s/w&recursive=1", folder);
    struct reply *r = client_open(c, "GET", path, NULL, 0);
    wait_event(c, r, &seen, AGENT_WATCH_READY, "", "");
    close(open(at("w/one"), O_CREAT | O_WRONLY, 0644));
    wait_event(c, r, &seen, AGENT_WATCH_CREATE, "one", "");
    int fd = open(at("w/sub/old"), O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "y", 1), 1);
    close(fd);
    wait_event(c, r, &seen, AGENT_WATCH_MODIFY, "sub/old", "");
    chmod(at("w/one"), 0600);
    wait_event(c, r, &seen, AGENT_WATCH_ATTRIB, "one", "");
    rename(at("w/one"), at("w/sub/two"));
    wait_event(c, r, &seen, AGENT_WATCH_MOVE, "one", "sub/two");
    rename(at("w/sub"), at("w/bus"));
    wait_event(c, r, &seen, AGENT_WATCH_MOVE, "sub", "bus");
    unlink(at("w/bus/two"));
    wait_event(c, r, &seen, AGENT_WATCH_REMOVE, "bus/two", "");
    mkdir(at("w/new"), 0755); /* a tree that appears */
    mkdir(at("w/new/er"), 0755);
    close(open(at("w/new/er/f"), O_CREAT | O_WRONLY, 0644));
    wait_event(c, r, &seen, AGENT_WATCH_CREATE, "new/er/f", "");
    rename(at("w/new"), at("outside"));
    wait_event(c, r, &seen, AGENT_WATCH_REMOVE, "new", "");
    rename(at("outside"), at("w/back"));
    wait_event(c, r, &seen, AGENT_WATCH_CREATE, "back/er/f", "");
    dir_remove_tree(at("w"), NULL);
    client_wait_closed(c, r); /* the watched folder is gone: the stream ends */
    assert_true(r->ended);
    reply_free(r);
    expect(client_callf(c, "GET", AGENT_PATH_WATCH "?path=%s/none", folder), 404);
}

/* --- tunnels --------------------------------------------------------------------------------------------------------
 */

static int listen_on(int family, uint16_t *ret_port)
{
    struct sockaddr_in6 address = {.sin6_family = (sa_family_t)family};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin6_addr = (struct in6_addr)IN6ADDR_LOOPBACK_INIT;
    struct sockaddr *sa = family == AF_INET6 ? (struct sockaddr *)&address : (struct sockaddr *)&v4;
    socklen_t len = family == AF_INET6 ? sizeof(address) : sizeof(v4);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, sa, len) < 0 || listen(fd, 4) < 0 || getsockname(fd, sa, &len) < 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *ret_port = ntohs(family == AF_INET6 ? address.sin6_port : v4.sin_port);
    return fd;
}

static void tunnel(void **state)
{
    struct client *c = *state;
    uint16_t port = 0;
    char authority[32], text[16] = "";
    int fd = listen_on(AF_INET, &port);
    assert_true(fd >= 0);
    snprintf(authority, sizeof(authority), "127.0.0.1:%u", port);
    struct reply *r = client_open_stream(c, "CONNECT", authority);
    client_wait_status(c, r);
    assert_int_equal(r->status, 200);
    int peer = accept(fd, NULL, NULL);
    client_send(c, r, "ping", 4, false);
    assert_int_equal(recv(peer, text, 4, MSG_WAITALL), 4);
    assert_string_equal(text, "ping");
    assert_int_equal(send(peer, "pong", 4, 0), 4);
    client_wait_body(c, r, 4);
    assert_memory_equal(buf_data(&r->body), "pong", 4);
    client_send(c, r, "bye", 3, true); /* half close: what comes back still arrives */
    assert_int_equal(recv(peer, text, sizeof(text), MSG_WAITALL), 3);
    assert_int_equal(send(peer, "last", 4, 0), 4);
    close(peer);
    client_wait_closed(c, r);
    assert_true(r->ended);
    assert_int_equal(r->body.len, 8);
    reply_free(r);
    close(fd);
    r = client_call(c, "CONNECT", authority, NULL, 0);
    assert_int_equal(r->status, 503);
    assert_string_equal(r->error, "unavailable");
    reply_free(r);
}

static void tunnel_to_ipv6(void **state)
{
    struct client *c = *state;
    uint16_t port = 0;
    char authority[32];
    int fd = listen_on(AF_INET6, &port);
    if (fd < 0)
        skip();
    snprintf(authority, sizeof(authority), "127.0.0.1:%u", port);
    struct reply *r = client_open_stream(c, "CONNECT", authority);
    client_wait_status(c, r);
    assert_int_equal(r->status, 200);
    client_cancel(c, r);
    reply_free(r);
    close(fd);
}

static void tunnel_of_much(void **state)
{
    struct client *c = *state;
    uint16_t port = 0;
    char authority[32];
    size_t len = 8 << 20;
    int fd = listen_on(AF_INET, &port);
    snprintf(authority, sizeof(authority), "127.0.0.1:%u", port);
    int pid = fork();
    if (pid == 0) { /* an echo server */
        static char chunk[65536];
        int peer = accept(fd, NULL, NULL);
        for (ssize_t n; (n = read(peer, chunk, sizeof(chunk))) > 0;)
            if (fd_write_all(peer, chunk, (size_t)n) < 0)
                break;
        _exit(0);
    }
    _cleanup_free_ uint8_t *data = xmalloc(len);
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 9);
    struct reply *r = client_open_stream(c, "CONNECT", authority);
    client_send(c, r, data, len, true);
    client_wait_closed(c, r);
    assert_int_equal(r->body.len, len);
    assert_memory_equal(buf_data(&r->body), data, len);
    reply_free(r);
    close(fd);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(put_and_get),
                                       CASE(large_file),
                                       CASE(an_upload_given_up_leaves_nothing),
                                       CASE(through_links),
                                       CASE(as_another_user),
                                       CASE(names),
                                       CASE(pages),
                                       CASE(archive_round_trip),
                                       CASE(archives_stay_inside),
                                       CASE(watching),
                                       CASE(tunnel),
                                       CASE(tunnel_to_ipv6),
                                       CASE(tunnel_of_much)};
    return cmocka_run_group_tests_name("agent_files", tests, NULL, NULL);
}

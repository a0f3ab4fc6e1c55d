/* Unit tests of src/config. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/file.h"
#include "base/str.h"
#include "config/config.h"
#include "config/table.h"

#define ok(call)                                                                                                       \
    do {                                                                                                               \
        struct err ok_e_ = {0}, *e = &ok_e_;                                                                           \
        if ((call) < 0)                                                                                                \
            fail_msg("%s: %s", #call, ok_e_.text);                                                                     \
    } while (0)

static int parse(struct config *c, const char *text, struct err *e)
{
    return config_parse(c, "/etc/x", text, strlen(text), e);
}

static void every_key_has_a_valid_default(void **state)
{
    (void)state;
    _cleanup_config_ struct config c;
    config_init(&c);
    ok(config_check(&c, e));
    assert_string_equal(c.listen, "127.0.0.1:7777");
    assert_string_equal(c.listen_unix, "");
    assert_string_equal(c.domain, "sandbox.localhost");
    assert_int_equal(c.log_level, LOG_LEVEL_INFO);
    assert_true(c.metrics_enabled);
    assert_int_equal(c.accelerator, CONFIG_ACCELERATOR_AUTO);
    assert_int_equal(c.uid_base, 0x70000000);
    assert_int_equal(c.slots, 1024);
    assert_int_equal(c.default_timeout_ms, 300000);
    assert_int_equal(c.max_timeout_ms, 86400000);
    assert_int_equal(c.exec_buffer_bytes, 4 * MIB);
    assert_int_equal(c.attach_token_ttl_ms, 60000);
    assert_int_equal(c.idempotency_ttl_ms, 86400000);
    assert_int_equal(c.store_durability, CONFIG_DURABILITY_NORMAL);
    assert_int_equal(c.allow_missing_isolation.count, 0);
    for (size_t i = 0; i < config_table_len; i++) { /* names, help, and no two alike */
        const struct config_key *key = &config_table[i];
        if (config_key_is_heading(key))
            continue;
        assert_ptr_equal(config_find(key->name, strlen(key->name), false), key);
        assert_true(strlen(key->help) > 20 && key->help[strlen(key->help) - 1] == '.');
        assert_true(strlen(key->name) < 64);
    }
}

static void a_file_sets_keys(void **state)
{
    (void)state;
    _cleanup_config_ struct config c;
    config_init(&c);
    ok(parse(&c,
             "# comment\n"
             "\n"
             "  listen=0.0.0.0:80   # comment\n"
             "state_dir = \"/srv/with # and \\\"quotes\\\"  \"\r\n"
             "\tdomain = a.example\n"
             "listen_unix = /run/a#b\n"
             "accelerator = kvm\n"
             "log_json = yes\n"
             "max_timeout = 2h\n"
             "exec_buffer = 64KiB\n"
             "qemu_path =\n"
             "qemu_data = \"\" # empty\n"
             "allow_missing_isolation = cgroup-cpu , net_ns,x\n"
             "pool_hot = 0",
             e));
    assert_string_equal(c.listen, "0.0.0.0:80");
    assert_string_equal(c.state_dir, "/srv/with # and \"quotes\"  ");
    assert_string_equal(c.domain, "a.example");
    assert_string_equal(c.listen_unix, "/run/a#b");
    assert_int_equal(c.accelerator, CONFIG_ACCELERATOR_KVM);
    assert_true(c.log_json);
    assert_int_equal(c.max_timeout_ms, 2 * 3600000);
    assert_int_equal(c.exec_buffer_bytes, 65536);
    assert_int_equal(c.allow_missing_isolation.count, 3);
    assert_string_equal(c.allow_missing_isolation.items[0], "cgroup-cpu");
    assert_string_equal(c.allow_missing_isolation.items[2], "x");
    assert_int_equal(c.pool_hot, 0);
    ok(parse(&c, "allow_missing_isolation =\n", e));
    assert_int_equal(c.allow_missing_isolation.count, 0);
}

static void wrong_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"\n\nlisten_unixx = /a\n", "/etc/x:3: there is no key \"listen_unixx\", did you mean \"listen_unix\"?"},
        {"zzzzzzzz = 1", "/etc/x:1: there is no key \"zzzzzzzz\""},
        {"slots = 0", "/etc/x:1: slots: \"0\" is not a whole number from 1 to 4096"},
        {"slots = 12x", "/etc/x:1: slots: \"12x\" is not a whole number from 1 to 4096"},
        {"slots = -1", "/etc/x:1: slots: \"-1\" is not a whole number from 1 to 4096"},
        {"slots = 18446744073709551617", "/etc/x:1: slots: \"18446744073709551617\" is not a whole number from 1 to 4096"},
        {"slots =", "/etc/x:1: slots: \"\" is not a whole number from 1 to 4096"},
        {"log_json = maybe", "/etc/x:1: log_json: \"maybe\" is not true or false"},
        {"log_level = INFO", "/etc/x:1: log_level: \"INFO\" is not one of debug, info, warn, error"},
        {"default_timeout = 31d",
         "/etc/x:1: default_timeout: \"31d\" is not a duration from 1s to 1d such as 250ms, 30s, 5m, 2h or 1d"},
        {"default_timeout = 5 m",
         "/etc/x:1: default_timeout: \"5 m\" is not a duration from 1s to 1d such as 250ms, 30s, 5m, 2h or 1d"},
        {"max_timeout = 25h", "/etc/x:1: max_timeout: \"25h\" is not a duration from 1s to 1d such as 250ms, 30s, 5m, 2h or 1d"},
        {"uid_base = 99999", "/etc/x:1: uid_base: \"99999\" is not a whole number from 100000 to 2147467261"},
        {"uid_base = 2147467262", "/etc/x:1: uid_base: \"2147467262\" is not a whole number from 100000 to 2147467261"},
        {"tb_size_mib = 513", "/etc/x:1: tb_size_mib: \"513\" is not a whole number from 16 to 512"},
        {"exec_buffer = 1G", "/etc/x:1: exec_buffer: \"1G\" is not a size from 64KiB to 64MiB such as 64KiB or 4MiB"},
        {"state_dir = relative", "/etc/x:1: state_dir: \"relative\" is not an absolute path"},
        {"state_dir =", "/etc/x:1: state_dir: \"\" is not an absolute path"},
        {"state_dir = /a\tb", "/etc/x:1: state_dir: \"/a\\tb\" is not an absolute path"},
        {"listen = 127.0.0.1", "/etc/x:1: listen: \"127.0.0.1\" is not an address such as 127.0.0.1:7777 or [::1]:7777"},
        {"listen = ::1:80", "/etc/x:1: listen: \"::1:80\" is not an address such as 127.0.0.1:7777 or [::1]:7777"},
        {"listen = a.example:80", "/etc/x:1: listen: \"a.example:80\" is not an address such as 127.0.0.1:7777 or [::1]:7777"},
        {"listen = 1.2.3.4:65536", "/etc/x:1: listen: \"1.2.3.4:65536\" is not an address such as 127.0.0.1:7777 or [::1]:7777"},
        {"domain = UPPER", "/etc/x:1: domain: \"UPPER\" is not a domain name in lower case"},
        {"domain = a..b", "/etc/x:1: domain: \"a..b\" is not a domain name in lower case"},
        {"domain = -a", "/etc/x:1: domain: \"-a\" is not a domain name in lower case"},
        {"domain = a-", "/etc/x:1: domain: \"a-\" is not a domain name in lower case"},
        {"allow_missing_isolation = a,,b",
         "/etc/x:1: allow_missing_isolation: \"a,,b\" is not names of a-z, 0-9, '_' and '-' with commas between"},
        {"allow_missing_isolation = a,",
         "/etc/x:1: allow_missing_isolation: \"a,\" is not names of a-z, 0-9, '_' and '-' with commas between"},
        {"just text", "/etc/x:1: expected a line \"key = value\""},
        {"= 1", "/etc/x:1: expected a line \"key = value\""},
        {"slots", "/etc/x:1: expected a line \"key = value\""},
        {"SLOTS = 1", "/etc/x:1: expected a line \"key = value\""},
        {"[section]", "/etc/x:1: expected a line \"key = value\""},
        {"domain = \"a", "/etc/x:1: domain: the closing '\"' is missing"},
        {"domain = \"a\" b", "/etc/x:1: domain: there is text after the closing '\"'"},
        {"slots = 1\n#\nslots = 2\n", "/etc/x:3: slots was set in line 1 already"},
        {"domain = \x1b[31m", "/etc/x:1: domain: \"\\x1b[31m\" is not a domain name in lower case"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_config_ struct config c;
        struct err e = {0};
        config_init(&c);
        assert_int_equal(parse(&c, cases[i].text, &e), ERR_INVALID);
        assert_string_equal(e.text, cases[i].message);
    }
    _cleanup_config_ struct config c;
    struct err e = {0};
    config_init(&c);
    assert_int_equal(config_parse(&c, "/etc/x", "a\0b", 3, &e), ERR_INVALID);
    _cleanup_free_ char *large = xcalloc(1, CONFIG_FILE_MAX + 2);
    memset(large, '#', CONFIG_FILE_MAX + 1);
    assert_int_equal(config_parse(&c, "/etc/x", large, CONFIG_FILE_MAX + 1, &e), ERR_TOO_LARGE);
    memcpy(large, "domain=", 7);
    assert_int_equal(config_parse(&c, "/etc/x", large, CONFIG_FILE_MAX, &e), ERR_INVALID);
}

static void the_environment_sets_keys(void **state)
{
    (void)state;
    _cleanup_config_ struct config c;
    struct err e = {0};
    config_init(&c);
    char *good[] = {(char[]){"SPACE_LISTEN=127.0.0.1:1"}, (char[]){"SPACE_POOL_HOT=7"}, (char[]){"PATH=/x"},
                    (char[]){"SPACE_API_KEY=sk"},         (char[]){"SPACE_URL=x"},      (char[]){"SPACE_TEST_X=1"},
                    (char[]){"SPACESHIP=1"},              NULL};
    assert_int_equal(config_read_environment(&c, good, &e), 0);
    assert_string_equal(c.listen, "127.0.0.1:1");
    assert_int_equal(c.pool_hot, 7);
    char *wrong[] = {(char[]){"SPACE_POOL_HOT=x"}, NULL}, *unknown[] = {(char[]){"SPACE_POOL_HOTT=1"}, NULL};
    assert_int_equal(config_read_environment(&c, wrong, &e), ERR_INVALID);
    assert_string_equal(e.text, "environment SPACE_POOL_HOT: pool_hot: \"x\" is not a whole number from 0 to 256");
    assert_int_equal(config_read_environment(&c, unknown, &e), ERR_INVALID);
    assert_string_equal(e.text, "environment SPACE_POOL_HOTT: there is no key \"pool_hott\", did you mean \"pool_hot\"?");
}

struct folder {
    char path[64], file[80];
};

static int folder_setup(void **state)
{
    struct folder *f = NEW(struct folder);
    snprintf(f->path, sizeof(f->path), "/tmp/space-config-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    snprintf(f->file, sizeof(f->file), "%s/config", f->path);
    *state = f;
    return 0;
}

static int folder_teardown(void **state)
{
    struct folder *f = *state;
    dir_remove_tree(f->path, NULL);
    free(f);
    return 0;
}

static void what_comes_later_wins(void **state)
{
    struct folder *f = *state;
    static const char text[] = "slots = 10\npool_hot = 10\npool_blank = 10\npids_max = 32\n";
    ok(file_write_atomic(f->file, text, strlen(text), 0600, e));
    _cleanup_config_ struct config c;
    config_init(&c);
    char *argv[] = {(char[]){"spaced"}, (char[]){"--verbose"},      (char[]){"--pool-hot"}, (char[]){"30"},
                    (char[]){"serve"},  (char[]){"--set"},          (char[]){"slots=31"},   (char[]){"--log-json"},
                    (char[]){"--config"}, f->file,                  (char[]){"--set=pids_max=33"},
                    (char[]){"--metrics-enabled=false"},            (char[]){"--"},         (char[]){"--slots=1"}, NULL};
    char *environment[] = {(char[]){"SPACE_POOL_HOT=20"}, (char[]){"SPACE_POOL_BLANK=20"}, NULL};
    int argc = (int)ARRAY_LEN(argv) - 1;
    ok(config_load(&c, &argc, argv, environment, "/nonexistent", e));
    assert_int_equal(c.slots, 31);
    assert_int_equal(c.pool_hot, 30);
    assert_int_equal(c.pool_blank, 20);
    assert_int_equal(c.pids_max, 33);
    assert_true(c.log_json);
    assert_false(c.metrics_enabled);
    assert_int_equal(argc, 5); /* what is no key is the program's own */
    assert_string_equal(argv[1], "--verbose");
    assert_string_equal(argv[2], "serve");
    assert_string_equal(argv[3], "--");
    assert_string_equal(argv[4], "--slots=1");
    assert_null(argv[5]);
}

static void files_may_be_missing_only_when_not_asked_for(void **state)
{
    struct folder *f = *state;
    _cleanup_config_ struct config c;
    struct err e = {0};
    char *nothing[] = {NULL};
    config_init(&c);
    char *plain[] = {(char[]){"spaced"}, NULL};
    int argc = 1;
    assert_int_equal(config_load(&c, &argc, plain, nothing, f->file, &e), 0);
    char *asked[] = {(char[]){"spaced"}, (char[]){"--config"}, f->file, NULL};
    argc = 3;
    assert_int_equal(config_load(&c, &argc, asked, nothing, NULL, &e), ERR_NOT_FOUND);
    _cleanup_free_ char *variable = xasprintf("SPACE_CONFIG=%s", f->file);
    char *named[] = {variable, NULL};
    argc = 1;
    assert_int_equal(config_load(&c, &argc, plain, named, NULL, &e), ERR_NOT_FOUND);
    assert_int_equal(file_write_atomic(f->file, "slots = 5\n", 10, 0600, &e), 0);
    assert_int_equal(config_load(&c, &argc, plain, named, NULL, &e), 0);
    assert_int_equal(c.slots, 5);
    char *cut[] = {(char[]){"spaced"}, (char[]){"--listen"}, NULL};
    argc = 2;
    assert_int_equal(config_load(&c, &argc, cut, nothing, NULL, &e), ERR_INVALID);
    assert_string_equal(e.text, "--listen: a value is missing");
    char *wrong[] = {(char[]){"spaced"}, (char[]){"--pool-hot=x"}, NULL};
    argc = 2;
    assert_int_equal(config_load(&c, &argc, wrong, nothing, NULL, &e), ERR_INVALID);
    assert_string_equal(e.text, "--pool-hot: pool_hot: \"x\" is not a whole number from 0 to 256");
    char *pair[] = {(char[]){"spaced"}, (char[]){"--set"}, (char[]){"slots"}, NULL};
    argc = 3;
    assert_int_equal(config_load(&c, &argc, pair, nothing, NULL, &e), ERR_INVALID);
    assert_string_equal(e.text, "--set: \"slots\" is not key=value");
}

static void keys_that_contradict_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"default_timeout = 2h\nmax_timeout = 1h", "configuration: default_timeout is larger than max_timeout"},
        {"max_vcpus = 1\ndefault_vcpus = 2", "configuration: default_vcpus is larger than max_vcpus"},
        {"listen =", "configuration: neither listen nor listen_unix is set"},
        {"accelerator = tcg\nrequire_hardware_isolation = true",
         "configuration: require_hardware_isolation excludes accelerator = tcg"},
        {"require_jail = true\nallow_missing_isolation = x", "configuration: require_jail excludes allow_missing_isolation"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_config_ struct config c;
        struct err e = {0};
        config_init(&c);
        assert_int_equal(parse(&c, cases[i].text, &e), 0);
        assert_int_equal(config_check(&c, &e), ERR_INVALID);
        assert_string_equal(e.text, cases[i].message);
    }
}

static void a_dump_reads_back_the_same(void **state)
{
    (void)state;
    _cleanup_config_ struct config c, again;
    _cleanup_buf_ struct buf first = BUF_MAX(1 * MIB), second = BUF_MAX(1 * MIB), changed = BUF_MAX(1 * MIB);
    config_init(&c);
    config_init(&again);
    ok(parse(&c,
             "state_dir = \"/a b # \\\\ \\\"c\"\nmax_timeout = 90s\ndefault_timeout = 1500ms\nexec_buffer = 65537\n"
             "allow_missing_isolation = a,b\ndeleted_retention = 0\nlisten = [::1]:0",
             e));
    config_dump(&c, false, &first);
    ok(config_parse(&again, "dump", buf_cstr(&first), first.len, e));
    config_dump(&again, false, &second);
    assert_string_equal(buf_cstr(&first), buf_cstr(&second));
    config_dump(&c, true, &changed);
    assert_string_equal(buf_cstr(&changed),
                        "state_dir = \"/a b # \\\\ \\\"c\"\nlisten = [::1]:0\nallow_missing_isolation = a, b\n"
                        "default_timeout = 1500ms\nmax_timeout = 90s\nexec_buffer = 65537\ndeleted_retention = 0\n");
}

static void addresses(void **state)
{
    (void)state;
    struct sockaddr_storage a;
    socklen_t len;
    ok(config_parse_address("localhost:80", &a, &len, e));
    assert_int_equal(len, sizeof(struct sockaddr_in));
    assert_int_equal(((struct sockaddr_in *)&a)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_int_equal(((struct sockaddr_in *)&a)->sin_port, htons(80));
    ok(config_parse_address("[::]:0", &a, &len, e));
    assert_int_equal(len, sizeof(struct sockaddr_in6));
    static const char *const wrong[] = {"", ":", ":80", "[]:80", "[::1]", "[::1:80", "::1]:80", "1.2.3:80", "1.2.3.4:", "1.2.3.4:+1", "["};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(config_parse_address(wrong[i], &a, &len, NULL), ERR_INVALID);
}

static void the_reference_page_is_up_to_date(void **state)
{
    (void)state;
    const char *root = getenv("SOURCE_ROOT");
    _cleanup_free_ char *path = xasprintf("%s/docs/reference/configuration.md", root ? root : ".");
    _cleanup_buf_ struct buf page = BUF_MAX(1 * MIB), file = BUF_MAX(1 * MIB);
    config_reference(&page);
    ok(file_read(path, 1 * MIB, &file, e));
    if (!str_eq(buf_cstr(&page), buf_cstr(&file)))
        fail_msg("%s is older than src/config/table.c: run build/src/config/config-reference > %s", path, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_has_a_valid_default),
        cmocka_unit_test(a_file_sets_keys),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(the_environment_sets_keys),
        cmocka_unit_test_setup_teardown(what_comes_later_wins, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(files_may_be_missing_only_when_not_asked_for, folder_setup, folder_teardown),
        cmocka_unit_test(keys_that_contradict_are_refused),
        cmocka_unit_test(a_dump_reads_back_the_same),
        cmocka_unit_test(addresses),
        cmocka_unit_test(the_reference_page_is_up_to_date),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}

/* Unit tests of src/priv and src/jail: what is pure in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"
#include "jail/filter.h"
#include "priv/process.h"
#include "priv/qemu_argv.h"
#include "priv/trust.h"

static struct jail_plan plan;

static struct priv_spawn_request request(enum priv_mode mode, enum priv_accel accel)
{
    return (struct priv_spawn_request){.header = {.magic = PRIV_MAGIC, .type = PRIV_SPAWN, .tag = 1},
                                       .slot = 7,
                                       .accel = accel,
                                       .mode = mode,
                                       .vcpus = 2,
                                       .mem_mib = 256,
                                       .tsc_khz = mode == PRIV_MODE_BOOT ? 2100000 : 0,
                                       .disk_bytes = 1 * GIB};
}

/* The command line as one string with spaces. */
static const char *composed(const struct priv_spawn_request *m)
{
    static char text[JAIL_TEXT_SIZE];
    const struct qemu_options o = {.instance = 1879048192, .data_count = 1, .jailed_root = true};
    plan = (struct jail_plan){0};
    assert_true(qemu_argv_compose(m, &o, &plan));
    memcpy(text, plan.text, plan.text_len);
    for (uint32_t i = 0; i + 1 < plan.text_len; i++)
        if (!text[i])
            text[i] = ' ';
    return text;
}

static void restore_command_line_is_exact(void **state)
{
    (void)state;
    struct priv_spawn_request m = request(PRIV_MODE_RESTORE, PRIV_ACCEL_TCG);
    assert_string_equal(
        composed(&m),
        "/qemu/qemu -name space-1879048192-7,debug-threads=off -L /qemu/data0 "
        "-M microvm,acpi=on,rtc=on,smm=off,memory-backend=ram,suppress-vmdesc=on,dump-guest-core=off "
        "-accel tcg,tb-size=64,thread=multi -cpu max,-erms,-fsrm,-svm -smp 2 -m 256M "
        "-object memory-backend-file,id=ram,size=256M,mem-path=/proc/self/fd/7,share=off,merge=off,dump=off "
        "-nodefaults -no-user-config -action reboot=shutdown,shutdown=pause -display none "
        "-chardev socket,id=qmp,fd=3,server=on,wait=off -mon chardev=qmp,mode=control "
        "-chardev ringbuf,id=console,size=65536 -serial chardev:console "
        "-chardev socket,id=agent,fd=4,server=on,wait=off -chardev socket,id=egress,fd=5,server=on,wait=off "
        "-device virtio-serial-device,id=ports,max_ports=3 "
        "-device virtserialport,bus=ports.0,chardev=agent,name=space.agent,nr=1 "
        "-device virtserialport,bus=ports.0,chardev=egress,name=space.egress,nr=2 "
        "-blockdev driver=null-co,node-name=empty,size=1073741824,read-zeroes=on "
        "-blockdev driver=raw,node-name=d0,file=empty -device virtio-blk-device,id=disk,drive=d0 "
        "-S -incoming defer -global migration.send-configuration=off "
        "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
}

static void boot_command_line_has_kernel_and_shared_memory(void **state)
{
    (void)state;
    struct priv_spawn_request m = request(PRIV_MODE_BOOT, PRIV_ACCEL_KVM);
    const char *text = composed(&m);
    assert_non_null(strstr(text, "-accel kvm -cpu host,-svm,-vmx "));
    assert_non_null(strstr(text, "share=on"));
    assert_non_null(strstr(text, "-kernel /proc/self/fd/8 -initrd /proc/self/fd/9 -append console=ttyS0 quiet reboot=t "
                                 "panic=-1 mitigations=off tsc=reliable tsc_early_khz=2100000 -sandbox"));
    assert_null(strstr(text, "incoming"));
    m.tb_size_mib = 128;
    m.accel = PRIV_ACCEL_TCG;
    assert_non_null(strstr(composed(&m), "tb-size=128"));
}

static void command_line_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct priv_spawn_request m = request(PRIV_MODE_RESTORE, PRIV_ACCEL_TCG);
    const struct qemu_options o = {.data_count = 1, .jailed_root = true};
    plan = (struct jail_plan){.text_len = JAIL_TEXT_SIZE - 300};
    assert_false(qemu_argv_compose(&m, &o, &plan));
    plan = (struct jail_plan){.arg_count = JAIL_ARGS_MAX - 5};
    assert_false(qemu_argv_compose(&m, &o, &plan));
}

static struct jail_plan *good_plan(void)
{
    plan = (struct jail_plan){.magic = JAIL_PLAN_MAGIC,
                              .size = sizeof(plan),
                              .features = JAIL_FEATURES_ALL,
                              .root = 1,
                              .uid = 100001,
                              .gid = 100001,
                              .second_gid = 100002,
                              .fd_count = 8,
                              .file_size_max = GIB,
                              .files_max = 1024,
                              .threads_max = 64,
                              .filter_len = 1,
                              .exec_address = JAIL_EXEC_ADDRESS};
    assert_true(jail_plan_add_arg(&plan, "/qemu/qemu"));
    assert_true(jail_plan_add_arg(&plan, "-S"));
    assert_true(jail_plan_add_env(&plan, "LANG=C"));
    assert_true(jail_plan_add_bind(&plan, "/usr/lib", "usr/lib", true, false));
    return &plan;
}

static void plan_is_checked(void **state)
{
    (void)state;
    assert_true(jail_plan_valid(good_plan(), sizeof(plan)));
    assert_false(jail_plan_add_arg(good_plan(), "arguments come before environment"));
    assert_false(jail_plan_valid(good_plan(), sizeof(plan) - 1));
#define WRONG(change)                                                                                                  \
    do {                                                                                                               \
        struct jail_plan *p = good_plan();                                                                             \
        change;                                                                                                        \
        assert_false(jail_plan_valid(p, sizeof(plan)));                                                                \
    } while (0)
    WRONG(p->magic++);
    WRONG(p->size++);
    WRONG(p->features |= 1u << 31);
    WRONG(p->features &= ~(uint32_t)JAIL_NO_CAPS);
    WRONG(p->allow_missing = JAIL_NO_NEW_PRIVS);
    WRONG(p->have = 1u << 30);
    WRONG(p->uid = 0);
    WRONG(p->gid = 0);
    WRONG(p->second_gid = 0);
    WRONG(p->fd_count = 2);
    WRONG(p->fd_count = 11);
    WRONG(p->bind_count = JAIL_BINDS_MAX + 1);
    WRONG(p->arg_count++);
    WRONG(p->arg_count = 0);
    WRONG(p->env_count = JAIL_ENV_MAX + 1);
    WRONG(p->text_len = JAIL_TEXT_SIZE + 1);
    WRONG(p->text_len = 0);
    WRONG(p->text[p->text_len - 1] = 'x');
    WRONG(p->text[0] = 'x');
    WRONG(p->filter_len = 0);
    WRONG(p->filter_len = JAIL_FILTER_MAX + 1);
    WRONG(p->exec_address = 0x400000);
    WRONG(p->file_size_max = 0);
    WRONG(p->threads_max = 0);
    WRONG(strcpy(p->binds[0].source, "usr/lib"));
    WRONG(strcpy(p->binds[0].source, ""));
    WRONG(strcpy(p->binds[0].target, "/usr/lib"));
    WRONG(strcpy(p->binds[0].target, "../usr"));
    WRONG(strcpy(p->binds[0].target, "usr/../../x"));
    WRONG(strcpy(p->binds[0].target, "usr//lib"));
    WRONG(strcpy(p->binds[0].target, "usr/./lib"));
    WRONG(memset(p->binds[0].target, 'x', JAIL_PATH_SIZE));
#undef WRONG
    char longer[JAIL_PATH_SIZE + 1];
    memset(longer, 'x', JAIL_PATH_SIZE);
    longer[0] = '/';
    longer[JAIL_PATH_SIZE] = '\0';
    assert_false(jail_plan_add_bind(good_plan(), longer, "x", true, false));
}

static void features_and_stages_have_names(void **state)
{
    (void)state;
    for (uint32_t bit = 1; bit & JAIL_FEATURES_ALL; bit <<= 1) {
        assert_non_null(jail_feature_title(bit));
        assert_int_equal(jail_feature_by_name(jail_feature_name(bit)), bit);
    }
    assert_null(jail_feature_title(3));
    assert_null(jail_feature_name(JAIL_FEATURES_ALL + 1));
    assert_int_equal(jail_feature_by_name("nothing"), 0);
    for (uint32_t stage = 0; stage < JAIL_STAGE_COUNT; stage++)
        assert_non_null(jail_stage_title(stage));
    assert_non_null(jail_stage_title(UINT32_MAX));
}

static void filter_fits_and_profiles_differ(void **state)
{
    (void)state;
    static struct sock_filter tcg[JAIL_FILTER_MAX], kvm[JAIL_FILTER_MAX];
    size_t tcg_len, kvm_len;
    struct err e = {0};
    assert_int_equal(filter_compile(FILTER_TCG, JAIL_EXEC_ADDRESS, tcg, JAIL_FILTER_MAX, &tcg_len, &e), 0);
    assert_int_equal(filter_compile(FILTER_KVM, JAIL_EXEC_ADDRESS, kvm, JAIL_FILTER_MAX, &kvm_len, &e), 0);
    assert_true(tcg_len > 100 && tcg_len < JAIL_FILTER_MAX / 2);
    assert_true(tcg_len != kvm_len || memcmp(tcg, kvm, tcg_len * sizeof(tcg[0])) != 0);
    assert_int_equal(filter_compile(FILTER_TCG, JAIL_EXEC_ADDRESS, tcg, 16, &tcg_len, &e), ERR_INTERNAL);
}

static void own_process_is_known_again(void **state)
{
    (void)state;
    uint64_t start = 0, again = 0;
    uid_t uid = 1;
    assert_true(process_start_time(getpid(), &start) && start > 0);
    assert_true(process_start_time(getpid(), &again) && again == start);
    assert_true(process_real_uid(getpid(), &uid) && uid == getuid());
    assert_true(process_uid_exists(getuid()));
    assert_false(process_uid_exists(0x7ffffff0));
    struct stat self, other;
    assert_int_equal(stat("/proc/self/exe", &self), 0);
    assert_int_equal(stat("/bin/sh", &other), 0);
    assert_true(process_runs(getpid(), &self));
    assert_false(process_runs(getpid(), &other));
    assert_false(process_start_time(0x3ffffff, &start));
    uint32_t slot;
    assert_false(process_named_slot(getpid(), 1, &slot));
}

static void files_that_others_can_change_are_not_trusted(void **state)
{
    (void)state;
    struct err e = {0};
    char folder[] = "/tmp/space-trust.XXXXXX", file[64], link[64];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/file", folder);
    snprintf(link, sizeof(link), "%s/link", folder);
    int fd = open(file, O_CREAT | O_WRONLY, 0644);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(trust_check(file, TRUST_FILE, getuid(), &e), 0);
    assert_int_equal(trust_check(folder, TRUST_FOLDER, getuid(), &e), 0);
    assert_int_equal(trust_check(file, TRUST_FOLDER, getuid(), &e), ERR_INVALID);
    assert_int_equal(trust_check("file", TRUST_FILE, getuid(), &e), ERR_INVALID);
    assert_int_equal(trust_check("/nothing/here", TRUST_FILE, getuid(), &e), ERR_NOT_FOUND);
    assert_int_equal(chmod(file, 0664), 0);
    assert_int_equal(trust_check(file, TRUST_FILE, getuid(), &e), ERR_FORBIDDEN);
    assert_int_equal(trust_check(folder, TRUST_FOLDER, getuid(), &e), ERR_FORBIDDEN);
    assert_true(str_ends(e.text, "file can be changed by others"));
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(symlink(file, link), 0);
    assert_int_equal(trust_check(link, TRUST_FILE, getuid(), &e), ERR_FORBIDDEN);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(trust_check(file, TRUST_FILE, getuid(), &e), ERR_FORBIDDEN);
    unlink(link);
    unlink(file);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restore_command_line_is_exact),
        cmocka_unit_test(boot_command_line_has_kernel_and_shared_memory),
        cmocka_unit_test(command_line_that_does_not_fit_is_refused),
        cmocka_unit_test(plan_is_checked),
        cmocka_unit_test(features_and_stages_have_names),
        cmocka_unit_test(filter_fits_and_profiles_differ),
        cmocka_unit_test(own_process_is_known_again),
        cmocka_unit_test(files_that_others_can_change_are_not_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

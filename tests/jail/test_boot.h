/* Case J27 of test_jail.c: a real guest's life in the jail (boot, disk by descriptor, device state by descriptor) meets
 * no call that ends it. Needs TEST_TEMPLATE (a template's folder): its kernel and initramfs are started with a disk
 * that is blank, so the guest may give up on it. */

/* A QMP command with a descriptor. */
static void qmp_fd(FILE *in, const char *command, int fd, char *ret, size_t size)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {(char *)command, strlen(command)};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    CHECK(sendmsg(m.conn, &msg, 0) == (ssize_t)strlen(command), "send a descriptor");
    do
        CHECK(fgets(ret, (int)size, in), "QEMU is gone");
    while (strstr(ret, "\"event\""));
    CHECK(!strstr(ret, "\"error\""), "%s: %s", command, ret);
}

/* A template's files are private to the platform; a machine gets them as memory. */
static int memory_copy(const char *path)
{
    struct err e = {0};
    struct buf content = BUF_MAX(256 * MIB);
    CHECK(file_read(path, 256 * MIB, &content, &e) == 0, "%s", e.text);
    int fd = memfd_create("copy", MFD_CLOEXEC);
    CHECK(fd >= 0 && fd_write_all(fd, buf_data(&content), content.len) == 0, "copy");
    buf_done(&content);
    return fd;
}

static void boot_machine(const char *kernel, const char *initrd)
{
    union priv_message message;
    int fds[PRIV_FDS_MAX], pidfd;
    size_t count;
    rig_spawn_message(&rig, 5, &message, &m, fds, &count);
    message.spawn.mode = PRIV_MODE_BOOT;
    message.spawn.mem_mib = 256;
    message.spawn.vcpus = 2;
    message.spawn.tsc_khz = 2100000;
    close(m.memory);
    fds[4] = m.memory = memfd_create("template", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(ftruncate(m.memory, 256 * (off_t)MIB) == 0, "memory");
    fds[5] = memory_copy(kernel);
    fds[6] = memory_copy(initrd);
    rig_send(&rig, &message, PRIV_SPAWN, fds, 7);
    CHECK(rig_expect(&rig, PRIV_SPAWNED, &message, &pidfd), "spawn: %s", jail_stage_title(rig.failed.stage));
    m.machine = message.spawned.machine;
    m.pidfd = pidfd;
    rig_started(pidfd);
    close(fds[3]);
    close(fds[5]);
    close(fds[6]);
}

static void disk_attach(FILE *in, FILE *out, const char *qemu)
{
    char command[1024], line[8192], disk[128];
    snprintf(disk, sizeof(disk), "%s/disk.qcow2", rig.folder);
    snprintf(command, sizeof(command), "%.*s/qemu-img create -q -f qcow2 %s 256M", (int)(strrchr(qemu, '/') - qemu),
             qemu, disk);
    bool qcow2 = system(command) == 0;
    int fd = open(disk, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && (qcow2 || ftruncate(fd, 256 * (off_t)MIB) == 0), "disk");
    qmp_fd(in, "{\"execute\":\"add-fd\",\"arguments\":{\"fdset-id\":9}}\n", fd, line, sizeof(line));
    close(fd);
    snprintf(
        command, sizeof(command),
        "{\"execute\":\"blockdev-add\",\"arguments\":{\"driver\":\"%s\",\"node-name\":\"real\",\"discard\":\"unmap\","
        "\"file\":{\"driver\":\"file\",\"filename\":\"/dev/fdset/9\",\"discard\":\"unmap\"}}}",
        qcow2 ? "qcow2" : "raw");
    qmp(in, out, command, line, sizeof(line));
    qmp(in, out,
        "{\"execute\":\"blockdev-reopen\",\"arguments\":{\"options\":[{\"driver\":\"raw\",\"node-name\":\"d0\","
        "\"file\":\"real\"}]}}",
        line, sizeof(line));
}

static void j27(void)
{
    const char *template = getenv("TEST_TEMPLATE");
    if (!template) {
        printf("skip: TEST_TEMPLATE is not set\n");
        exit(SKIP);
    }
    char kernel[512], initrd[512];
    snprintf(kernel, sizeof(kernel), "%s/vmlinuz", template);
    snprintf(initrd, sizeof(initrd), "%s/initramfs.img", template);
    struct rig_options o = {0};
    o.qemu = real_qemu(&o.data);
    CHECK(rig_start(&rig, &o), "space-priv: %s", jail_stage_title(rig.failed.stage));
    boot_machine(kernel, initrd);
    char line[1 << 17];
    CHECK(rig_ask(&m, line, sizeof(line), "{\"execute\":\"qmp_capabilities\"}"), "QEMU is gone");
    FILE *in = fdopen(dup(m.conn), "r"), *out = fdopen(dup(m.conn), "w");
    CHECK(fgets(line, sizeof(line), in), "QEMU is gone");
    disk_attach(in, out, o.qemu);
    qmp(in, out, "{\"execute\":\"cont\"}", line, sizeof(line));
    for (int i = 0; i < 8; i++) {
        poll(NULL, 0, 1000);
        qmp(in, out, "{\"execute\":\"ringbuf-read\",\"arguments\":{\"device\":\"console\",\"size\":65536}}", line,
            sizeof(line));
        if (strlen(line) > 20)
            printf("#   console: %.300s\n", line);
    }
    size_t threads;
    CHECK(threads_confined(m.machine.pid, &threads), "a thread is not confined");
    printf("#   %zu threads confined\n", threads);
    qmp(in, out, "{\"execute\":\"stop\"}", line, sizeof(line));
    int memory = memfd_create("state", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
    int state = open(path, O_WRONLY | O_CLOEXEC); /* QEMU wants exactly the mode that it would open with */
    close(memory);
    qmp_fd(in, "{\"execute\":\"add-fd\",\"arguments\":{\"fdset-id\":10}}\n", state, line, sizeof(line));
    qmp(in, out,
        "{\"execute\":\"xen-save-devices-state\",\"arguments\":{\"filename\":\"/dev/fdset/10\",\"live\":false}}", line,
        sizeof(line));
    CHECK(lseek(state, 0, SEEK_END) > 4096, "no device state");
    close(state);
    fclose(in);
    fclose(out);
    down();
}

/* The floor of the benchmark: what the same QEMU, template and agent cost with none of the platform around them.
 *
 * A clone here is: QEMU with the template's memory mapped privately and the device state in a pipe that `-incoming`
 * reads, an overlay copied from the empty one, and the first answer of the agent. No jail, no pools, no store, no API.
 *
 *   floor create  QEMU DATA TEMPLATE SHAPE N          one after the other: milliseconds each, one a line
 *   floor rate    QEMU DATA TEMPLATE SHAPE SECONDS K  K at a time, created and killed: clones a second
 *   floor raw     QEMU DATA TEMPLATE SHAPE MIB        bytes straight through the port: MB/s from and to the guest
 *   floor spawn   QEMU DATA TEMPLATE SHAPE N          fork, exec, wait of /bin/true measured in the guest: ms each
 *   floor hello  QEMU DATA TEMPLATE SHAPE N          one small question to the agent: ms each
 *   floor exec   QEMU DATA TEMPLATE SHAPE N          /bin/true by the agent's own calls (start, output, exit): ms each
 *   floor pss     QEMU DATA TEMPLATE SHAPE            KiB of one idle clone (proportional set size)
 *   floor idle    QEMU DATA TEMPLATE SHAPE SECONDS    percent of a core that one idle clone takes
 *
 * TEMPLATE is a template's folder, SHAPE the folder of one of its shapes; vcpus, memory and accelerator are read from
 * the shape's name. */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/id.h"
#include "guest/guest.h"

extern char **environ;

static const char *qemu, *data, *template, *shape;
static unsigned vcpus, mem_mib;
static bool kvm;
static int memory_fd = -1;
static struct buf device_state;
static uv_loop_t loop;
static char scratch[] = "/tmp/space-floor-XXXXXX";

struct clone {
    pid_t pid;
    char folder[64];
    uint64_t start_ns;
    struct guest *guest;
    bool answered, closed, failed;
    unsigned slot;
};

static void die(const char *what)
{
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void memory_load(void)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/memory", shape);
    int from = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (from < 0 || fstat(from, &st) < 0)
        die(path);
    memory_fd = memfd_create("space-floor", MFD_ALLOW_SEALING);
    if (memory_fd < 0 || ftruncate(memory_fd, st.st_size) < 0)
        die("memfd");
    uint8_t *chunk = xmalloc(MIB);
    for (off_t at = 0; (at = lseek(from, at, SEEK_DATA)) >= 0;) {
        off_t end = lseek(from, at, SEEK_HOLE);
        for (ssize_t n; at < end; at += n)
            if ((n = pread(from, chunk, MIN((size_t)MIB, (size_t)(end - at)), at)) <= 0 ||
                pwrite(memory_fd, chunk, (size_t)n, at) != n)
                die("copy memory");
    }
    free(chunk);
    close(from);
    fcntl(memory_fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    snprintf(path, sizeof(path), "%s/device.state", shape);
    buf_init(&device_state, MIB);
    if (file_read(path, MIB, &device_state, NULL) < 0)
        die(path);
}

static int listener(const char *folder, const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", folder, name);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 1) < 0)
        die("listen");
    return fd;
}

static void copy_overlay(const char *to)
{
    char from[512];
    snprintf(from, sizeof(from), "%s/overlay.qcow2", shape);
    int a = open(from, O_RDONLY | O_CLOEXEC), b = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    struct stat st;
    if (a < 0 || b < 0 || fstat(a, &st) < 0 || copy_file_range(a, NULL, b, NULL, (size_t)st.st_size, 0) != st.st_size)
        die("copy overlay");
    close(a);
    close(b);
}

static void clone_start(struct clone *c)
{
    static unsigned number;
    snprintf(c->folder, sizeof(c->folder), "%s/%u", scratch, number++);
    if (mkdir(c->folder, 0700) < 0)
        die("mkdir");
    c->start_ns = clock_mono_ns();
    char overlay[128];
    snprintf(overlay, sizeof(overlay), "%s/overlay.qcow2", c->folder);
    copy_overlay(overlay);
    int agent = listener(c->folder, "agent"), egress = listener(c->folder, "egress"), ends[2];
    if (pipe(ends) < 0 || write(ends[1], buf_data(&device_state), device_state.len) != (ssize_t)device_state.len)
        die("pipe");
    close(ends[1]);
    fcntl(memory_fd, F_SETFD, 0);
    char object[256], accel[64], agent_dev[64], egress_dev[64], disk[1024], incoming[32], memory[32], cpus[16];
    snprintf(accel, sizeof(accel), "%s", kvm ? "kvm" : "tcg,tb-size=64,thread=multi");
    snprintf(object, sizeof(object), "memory-backend-file,id=ram,size=%uM,mem-path=/proc/self/fd/%d,share=off", mem_mib, memory_fd);
    snprintf(agent_dev, sizeof(agent_dev), "socket,id=agent,fd=%d,server=on,wait=off", agent);
    snprintf(egress_dev, sizeof(egress_dev), "socket,id=egress,fd=%d,server=on,wait=off", egress);
    snprintf(disk, sizeof(disk),
             "driver=qcow2,node-name=disk,file.driver=file,file.filename=%s,backing.driver=qcow2,backing.read-only=on,"
             "backing.file.driver=file,backing.file.filename=%s/disk.qcow2,backing.file.read-only=on,backing.backing.driver=raw,"
             "backing.backing.read-only=on,backing.backing.file.driver=file,backing.backing.file.filename=%s/rootfs.raw,"
             "backing.backing.file.read-only=on", overlay, shape, template);
    snprintf(incoming, sizeof(incoming), "fd:%d", ends[0]);
    snprintf(memory, sizeof(memory), "%uM", mem_mib);
    snprintf(cpus, sizeof(cpus), "%u", vcpus);
    const char *argv[] = {
        qemu, "-L", data, "-M",
        "microvm,acpi=on,rtc=on,smm=off,memory-backend=ram,suppress-vmdesc=on,dump-guest-core=off",
        "-accel", accel, "-cpu", kvm ? "host,-svm,-vmx" : "max,-erms,-fsrm,-svm", "-smp", cpus, "-m", memory, "-object", object, "-nodefaults",
        "-no-user-config", "-display", "none", "-chardev", "ringbuf,id=console,size=65536", "-serial", "chardev:console",
        "-chardev", agent_dev, "-chardev", egress_dev, "-device", "virtio-serial-device,id=ports,max_ports=3",
        "-device", "virtserialport,bus=ports.0,chardev=agent,name=space.agent,nr=1",
        "-device", "virtserialport,bus=ports.0,chardev=egress,name=space.egress,nr=2",
        "-blockdev", disk, "-blockdev", "driver=raw,node-name=d0,file=disk", "-device", "virtio-blk-device,id=disk,drive=d0",
        "-global", "migration.send-configuration=off", "-incoming", incoming, NULL,
    };
    /* The null disk of the platform's machines is "empty" below "d0"; here the real one lies there from the start. */
    if (posix_spawn(&c->pid, qemu, NULL, NULL, (char *const *)argv, environ) != 0)
        die("spawn qemu");
    close(ends[0]);
    close(agent);
    close(egress);
}

static void on_hello(void *arg, const struct guest_hello *hello, const struct err *e)
{
    struct clone *c = arg;
    (void)hello;
    c->answered = true;
    c->failed = e != NULL;
    if (e)
        fprintf(stderr, "floor: %s\n", e->text);
}

static void on_closed(void *arg, const struct err *e)
{
    struct clone *c = arg;
    (void)e;
    c->closed = true;
    c->guest = NULL;
}

static void clone_connect(struct clone *c)
{
    static const struct guest_callbacks callbacks = {.on_closed = on_closed};
    char path[128];
    struct err e = {0};
    snprintf(path, sizeof(path), "%s/agent", c->folder);
    if (guest_open_path(&loop, path, NULL, &callbacks, c, &c->guest, &e) < 0)
        die(e.text);
    guest_hello(c->guest, on_hello, c);
}

static void clone_wait(struct clone *c)
{
    while (!c->answered)
        uv_run(&loop, UV_RUN_ONCE);
    if (c->failed)
        exit(1);
}

static void clone_end(struct clone *c)
{
    if (c->guest)
        guest_close(c->guest);
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    while (!c->closed)
        uv_run(&loop, UV_RUN_ONCE);
    dir_remove_tree(c->folder, NULL);
    *c = (struct clone){0};
}

static void clone_up(struct clone *c)
{
    clone_start(c);
    clone_connect(c);
    clone_wait(c);
}

static void run_create(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct clone c = {0};
        clone_up(&c);
        printf("%.3f\n", (double)(clock_mono_ns() - c.start_ns) / 1e6);
        clone_end(&c);
    }
}

static void run_rate(unsigned seconds, unsigned parallel)
{
    struct clone *clones = xcalloc(parallel, sizeof(*clones));
    uint64_t start = clock_mono_ns(), end = start + seconds * 1000000000ULL, done = 0;
    for (unsigned i = 0; i < parallel; i++) {
        clone_start(&clones[i]);
        clone_connect(&clones[i]);
    }
    while (clock_mono_ns() < end) {
        uv_run(&loop, UV_RUN_ONCE);
        for (unsigned i = 0; i < parallel; i++) {
            if (!clones[i].answered)
                continue;
            clone_end(&clones[i]);
            done++;
            clone_start(&clones[i]);
            clone_connect(&clones[i]);
        }
    }
    printf("%.3f\n", (double)done * 1e9 / (double)(clock_mono_ns() - start));
    for (unsigned i = 0; i < parallel; i++) {
        clone_wait(&clones[i]);
        clone_end(&clones[i]);
    }
    free(clones);
}

/* One direction of the raw test of the agent's port; AGENT_RAW_MAGIC in wire/agent_protocol.h. */
static double raw_once(const char *folder, uint64_t bytes, uint8_t direction)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/agent", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        die("connect");
    struct buf head = BUF_MAX(64);
    buf_put_str(&head, AGENT_RAW_MAGIC);
    buf_put_u64(&head, bytes);
    buf_put_byte(&head, direction);
    fd_write_all(fd, buf_data(&head), head.len);
    uint8_t *chunk = xcalloc(1, MIB);
    uint64_t left = bytes, start = 0;
    if (direction == AGENT_RAW_TO_HOST) {
        while (left > 0) {
            ssize_t n = read(fd, chunk, MIN((uint64_t)MIB, left));
            if (n <= 0)
                die("raw read");
            if (!start)
                start = clock_mono_ns();
            left -= (uint64_t)n;
        }
    } else {
        start = clock_mono_ns();
        for (ssize_t n; left > 0; left -= (uint64_t)n)
            if ((n = write(fd, chunk, MIN((uint64_t)MIB, left))) <= 0)
                die("raw write");
        if (read(fd, chunk, 1) != 1 || chunk[0] != AGENT_RAW_DONE) /* the agent says that it has all */
            die("raw end");
    }
    double seconds = (double)(clock_mono_ns() - start) / 1e9;
    close(fd);
    free(chunk);
    buf_done(&head);
    return (double)bytes / 1e6 / seconds;
}

static void run_raw(uint64_t bytes)
{
    struct clone c = {0};
    clone_up(&c);
    guest_close(c.guest);
    while (!c.closed)
        uv_run(&loop, UV_RUN_ONCE);
    for (int round = 0; round < 3; round++) {
        double from = raw_once(c.folder, bytes, AGENT_RAW_TO_HOST);
        double to = raw_once(c.folder, bytes, AGENT_RAW_TO_GUEST);
        printf("%.1f %.1f\n", from, to);
    }
    clone_end(&c);
}

static bool spawn_done;

static void on_spawn(void *arg, const struct guest_bench_spawn *bench, const struct err *e)
{
    (void)arg;
    if (e) {
        fprintf(stderr, "floor: %s\n", e->text);
        exit(1);
    }
    for (size_t i = 0; i < bench->count; i++)
        printf("%.3f\n", (double)bench->each_ns[i] / 1e6);
    spawn_done = true;
}

static void run_spawn(unsigned n)
{
    struct clone c = {0};
    clone_up(&c);
    guest_bench_spawn(c.guest, n, "/bin/true", on_spawn, NULL);
    while (!spawn_done)
        uv_run(&loop, UV_RUN_ONCE);
    clone_end(&c);
}

static bool step_done, exec_done;
static uint64_t exec_started_ns;
static struct guest_call *exec_call;

static void on_step(void *arg, const struct guest_hello *hello, const struct err *e)
{
    (void)arg;
    (void)hello;
    if (e)
        die(e->text);
    step_done = true;
}

static void run_hello(unsigned n)
{
    struct clone c = {0};
    clone_up(&c);
    for (unsigned i = 0; i < n; i++) {
        uint64_t start = clock_mono_ns();
        step_done = false;
        guest_hello(c.guest, on_step, NULL);
        while (!step_done)
            uv_run(&loop, UV_RUN_ONCE);
        printf("%.3f\n", (double)(clock_mono_ns() - start) / 1e6);
    }
    clone_end(&c);
}

static void on_exec_started(void *arg, const struct guest_exec_started *started, const struct err *e)
{
    (void)arg;
    (void)started;
    if (e)
        die(e->text);
    exec_started_ns = clock_mono_ns();
}

static void on_exec_data(void *arg, enum guest_output stream, uint64_t offset, const uint8_t *bytes, size_t len)
{
    (void)arg;
    (void)stream;
    (void)offset;
    (void)bytes;
    guest_call_consume(exec_call, len);
}

static void on_exec_exit(void *arg, uint64_t end, const struct guest_exit *x)
{
    (void)arg;
    (void)end;
    (void)x;
}

static void on_exec_done(void *arg, const struct err *e)
{
    (void)arg;
    if (e)
        die(e->text);
    exec_done = true;
}

static void run_exec(unsigned n)
{
    static const struct guest_output_callbacks callbacks = {
        .on_data = on_exec_data, .on_exit = on_exec_exit, .done = on_exec_done};
    static const char *const argv[] = {"/bin/true", NULL};
    struct clone c = {0};
    clone_up(&c);
    for (unsigned i = 0; i < n; i++) {
        char id[32];
        snprintf(id, sizeof(id), "exec-%u", i);
        const struct guest_exec_spec spec = {.argv = argv, .user = "root"};
        uint64_t start = clock_mono_ns();
        exec_done = false;
        guest_exec_start(c.guest, id, &spec, on_exec_started, NULL);
        exec_call = guest_exec_output(c.guest, id, 0, true, &callbacks, NULL);
        while (!exec_done)
            uv_run(&loop, UV_RUN_ONCE);
        printf("%.3f %.3f\n", (double)(clock_mono_ns() - start) / 1e6, (double)(exec_started_ns - start) / 1e6);
    }
    clone_end(&c);
}

static void run_pss(void)
{
    struct clone c = {0};
    clone_up(&c);
    sleep(2);
    char path[64], line[256];
    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", c.pid);
    FILE *f = fopen(path, "r");
    unsigned long kib = 0;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Pss: %lu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    printf("%lu\n", kib);
    clone_end(&c);
}

static uint64_t cpu_ticks(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strrchr(text, ')');
    unsigned long long user = 0, system = 0;
    if (!at || sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
        die("read cpu time");
    return user + system;
}

static void run_idle(unsigned seconds)
{
    struct clone c = {0};
    clone_up(&c);
    sleep(2);
    uint64_t before = cpu_ticks(c.pid);
    sleep(seconds);
    printf("%.3f\n", (double)(cpu_ticks(c.pid) - before) * 100.0 / (double)sysconf(_SC_CLK_TCK) / seconds);
    clone_end(&c);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: floor MODE QEMU DATA TEMPLATE SHAPE [N] [K]\n");
        return 2;
    }
    const char *mode = argv[1];
    qemu = argv[2];
    data = argv[3];
    template = argv[4];
    shape = argv[5];
    unsigned n = argc > 6 ? (unsigned)atoi(argv[6]) : 1, k = argc > 7 ? (unsigned)atoi(argv[7]) : 1;
    const char *name = strrchr(shape, '/') ? strrchr(shape, '/') + 1 : shape;
    if (sscanf(name, "%uc-%um", &vcpus, &mem_mib) != 2) {
        fprintf(stderr, "floor: %s is no shape's folder\n", shape);
        return 2;
    }
    kvm = strstr(name, "-kvm-") != NULL;
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(scratch))
        die("mkdtemp");
    uv_loop_init(&loop);
    memory_load();
    if (strcmp(mode, "create") == 0)
        run_create(n);
    else if (strcmp(mode, "rate") == 0)
        run_rate(n, k);
    else if (strcmp(mode, "raw") == 0)
        run_raw(n * MIB);
    else if (strcmp(mode, "spawn") == 0)
        run_spawn(n);
    else if (strcmp(mode, "hello") == 0)
        run_hello(n);
    else if (strcmp(mode, "exec") == 0)
        run_exec(n);
    else if (strcmp(mode, "pss") == 0)
        run_pss();
    else if (strcmp(mode, "idle") == 0)
        run_idle(n);
    else
        fprintf(stderr, "floor: unknown mode \"%s\"\n", mode);
    dir_remove_tree(scratch, NULL);
    return 0;
}

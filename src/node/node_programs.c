/* Where the other programs and QEMU lie (see node_programs.h). */
#include "node/node_programs.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/str.h"

void programs_done(struct programs *p)
{
    char *strings[] = {p->priv, p->jail, p->qemu, p->qemu_data, p->qemu_img};
    for (size_t i = 0; i < ARRAY_LEN(strings); i++)
        free(strings[i]);
    *p = (struct programs){0};
}

/* The first of `candidates` (NULL-terminated, stolen) that can be executed. */
static char *first_executable(char **candidates)
{
    char *found = NULL;
    for (char **c = candidates; *c; c++) {
        if (!found && access(*c, X_OK) == 0)
            found = *c;
        else
            free(*c);
    }
    return found;
}

static int own_folder(char *ret_path, size_t size, struct err *e)
{
    ssize_t n = readlink("/proc/self/exe", ret_path, size - 1);
    if (n <= 0)
        return err_errno(e, ERR_SYSTEM, errno, "find the folder of this program");
    ret_path[n] = '\0';
    char *slash = strrchr(ret_path, '/');
    *slash = '\0';
    return 0;
}

static char *helper_find(const char *folder, const char *name)
{
    char *candidates[] = {
        xasprintf("%s/%s", folder, name),
        xasprintf("%s/../libexec/space/%s", folder, name),
        /* the build tree: the programs beside src/bin, and a test two folders below its root */
        xasprintf("%s/../priv/%s", folder, name),
        xasprintf("%s/../jail/%s", folder, name),
        xasprintf("%s/../../src/priv/%s", folder, name),
        xasprintf("%s/../../src/jail/%s", folder, name),
        NULL,
    };
    char *found = first_executable(candidates);
    char *absolute = found ? realpath(found, NULL) : NULL;
    free(found);
    return absolute;
}

/* The length of "/usr" in "/usr/bin/qemu…". */
static int prefix_length(const char *program)
{
    const char *slash = strrchr(program, '/');
    size_t len = slash ? (size_t)(slash - program) : 0;
    return len >= 4 && strncmp(program + len - 4, "/bin", 4) == 0 ? (int)len - 4 : (int)len;
}

/* "QEMU emulator version 10.0.2 (Debian …)" → "10.0.2". */
static int qemu_version(const char *qemu, char ret_version[32], struct err *e)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make a pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    char *const argv[] = {(char *)"qemu", (char *)"--version", NULL};
    char *const environment[] = {NULL};
    pid_t pid = -1;
    int r = posix_spawn(&pid, qemu, &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char text[256] = "";
    ssize_t n = r == 0 ? read(ends[0], text, sizeof(text) - 1) : -1;
    close(ends[0]);
    int status = 0;
    if (r == 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    text[n > 0 ? n : 0] = '\0';
    char *at = strstr(text, "version ");
    if (r != 0 || status != 0 || !at)
        return err_set(e, ERR_UNSUPPORTED, "%s does not run or does not say its version", qemu);
    at += 8;
    size_t len = strspn(at, "0123456789.");
    if (len == 0 || len > 31)
        return err_set(e, ERR_UNSUPPORTED, "%s does not say its version in a known form", qemu);
    memcpy(ret_version, at, len);
    ret_version[len] = '\0';
    return 0;
}

int programs_find(const struct config *config, struct programs *p, struct err *e)
{
    char folder[4096];
    int r = own_folder(folder, sizeof(folder), e);
    if (r < 0)
        return r;
    p->priv = helper_find(folder, "space-priv");
    p->jail = helper_find(folder, "space-jail");
    if (!p->priv || !p->jail)
        return err_set(e, ERR_UNSUPPORTED, "the helper %s was found neither in %s nor in %s/../libexec/space",
                       p->priv ? "space-jail" : "space-priv", folder, folder);
    char *qemus[] = {
        xstrdup(config->qemu_path[0] ? config->qemu_path : "/nonexistent"),
        xasprintf("%s/qemu/bin/qemu-system-x86_64", config->state_dir),
        xasprintf("%s/../lib/space/qemu/bin/qemu-system-x86_64", folder),
        xstrdup("/usr/bin/qemu-system-x86_64"),
        NULL,
    };
    if (config->qemu_path[0]) { /* what the operator names is what is taken */
        for (size_t i = 1; qemus[i]; i++)
            free(qemus[i]);
        qemus[1] = NULL;
    }
    p->qemu = first_executable(qemus);
    if (!p->qemu)
        return err_set(e, ERR_UNSUPPORTED, "no QEMU: %s",
                       config->qemu_path[0] ? "qemu_path cannot be executed"
                                            : "none in <state>/qemu, none installed beside this program, no /usr/bin/qemu-system-x86_64");
    char *absolute = realpath(p->qemu, NULL);
    if (absolute) {
        free(p->qemu);
        p->qemu = absolute;
    }
    int prefix = prefix_length(p->qemu);
    _cleanup_free_ char *firmware = xasprintf("%.*s/share/bios-microvm.bin", prefix, p->qemu);
    if (config->qemu_data[0])
        p->qemu_data = xstrdup(config->qemu_data);
    else if (access(firmware, R_OK) == 0)
        p->qemu_data = xasprintf("%.*s/share", prefix, p->qemu);
    else
        p->qemu_data = xasprintf("%.*s/share/qemu:%.*s/share/seabios", prefix, p->qemu, prefix, p->qemu);
    char *images[] = {xasprintf("%.*s/bin/qemu-img", prefix, p->qemu), xstrdup("/usr/bin/qemu-img"), NULL};
    p->qemu_img = first_executable(images);
    if (!p->qemu_img)
        return err_set(e, ERR_UNSUPPORTED, "no qemu-img: install the package qemu-utils");
    return qemu_version(p->qemu, p->qemu_version, e);
}

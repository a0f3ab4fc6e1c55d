/* Names of the features and stages of a jail. */
#include "jail/feature.h"
#include "jail/stage.h"

static const struct {
    uint32_t bit;
    const char *name;
    const char *title;
} features[] = {
    {JAIL_UNIQUE_UID, "unique_uid", "user id of its own"},
    {JAIL_USER_NS, "user_ns", "user namespace"},
    {JAIL_PID_NS, "pid_ns", "pid namespace"},
    {JAIL_MOUNT_NS, "mount_ns", "mount namespace"},
    {JAIL_NET_NS, "net_ns", "network namespace"},
    {JAIL_IPC_NS, "ipc_ns", "ipc namespace"},
    {JAIL_UTS_NS, "uts_ns", "uts namespace"},
    {JAIL_EMPTY_ROOT, "empty_root", "empty root"},
    {JAIL_OWN_PROC, "own_proc", "/proc of its own"},
    {JAIL_CGROUP_MEMORY, "cgroup_memory", "memory cgroup"},
    {JAIL_CGROUP_CPU, "cgroup_cpu", "cpu cgroup"},
    {JAIL_CGROUP_PIDS, "cgroup_pids", "pids cgroup"},
    {JAIL_SECCOMP, "seccomp", "system call filter"},
    {JAIL_NOT_DUMPABLE, "not_dumpable", "protection from dumps"},
    {JAIL_NO_CAPS, "no_capabilities", "drop of all capabilities"},
    {JAIL_NO_NEW_PRIVS, "no_new_privs", "no_new_privs"},
    {JAIL_RLIMITS, "rlimits", "resource limits"},
};

const char *jail_feature_title(uint32_t feature)
{
    for (size_t i = 0; i < ARRAY_LEN(features); i++)
        if (features[i].bit == feature)
            return features[i].title;
    return NULL;
}

const char *jail_feature_name(uint32_t feature)
{
    for (size_t i = 0; i < ARRAY_LEN(features); i++)
        if (features[i].bit == feature)
            return features[i].name;
    return NULL;
}

const char *jail_feature_names(uint32_t bits, char ret_text[JAIL_FEATURE_NAMES_SIZE])
{
    size_t len = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(features) && len < JAIL_FEATURE_NAMES_SIZE; i++)
        if (features[i].bit & bits)
            len += (size_t)snprintf(ret_text + len, JAIL_FEATURE_NAMES_SIZE - len, "%s%s", len ? ", " : "",
                                    features[i].name);
    return ret_text;
}

uint32_t jail_feature_by_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(features); i++)
        if (strcmp(features[i].name, name) == 0)
            return features[i].bit;
    return 0;
}

static const char *const stages[JAIL_STAGE_COUNT] = {
    [JAIL_STAGE_NONE] = "jail",
    [JAIL_STAGE_OPTIONS] = "options of space-priv",
    [JAIL_STAGE_LOCK] = "lock of space-priv",
    [JAIL_STAGE_QEMU_FILE] = "QEMU program",
    [JAIL_STAGE_DATA_FILES] = "QEMU firmware folder",
    [JAIL_STAGE_LIBRARY_FILES] = "QEMU library folder",
    [JAIL_STAGE_JAIL_FILE] = "jail program",
    [JAIL_STAGE_SLOT_BUSY] = "slot of an earlier machine",
    [JAIL_STAGE_SLOT_HELD] = "slot of a machine",
    [JAIL_STAGE_CGROUP] = "cgroup",
    [JAIL_STAGE_FORK] = "new process",
    [JAIL_STAGE_PLAN] = "plan of the jail",
    [JAIL_STAGE_IDENTITY] = "identity of the machine",
    [JAIL_STAGE_SIGNAL] = "signal to the machine",
    [JAIL_STAGE_LIMIT] = "change of a cgroup limit",
    [JAIL_STAGE_USER_NS] = "user namespace",
    [JAIL_STAGE_PID_NS] = "pid namespace",
    [JAIL_STAGE_MOUNT_NS] = "mount namespace",
    [JAIL_STAGE_NET_NS] = "network namespace",
    [JAIL_STAGE_IPC_NS] = "ipc namespace",
    [JAIL_STAGE_UTS_NS] = "uts namespace",
    [JAIL_STAGE_ROOT] = "empty root",
    [JAIL_STAGE_BIND] = "file or folder of the root",
    [JAIL_STAGE_DEVICES] = "device files",
    [JAIL_STAGE_PROC] = "/proc of its own",
    [JAIL_STAGE_PIVOT] = "change of the root",
    [JAIL_STAGE_RLIMITS] = "resource limits",
    [JAIL_STAGE_DESCRIPTORS] = "descriptors",
    [JAIL_STAGE_IDS] = "user and group ids",
    [JAIL_STAGE_CAPABILITIES] = "drop of all capabilities",
    [JAIL_STAGE_NO_NEW_PRIVS] = "no_new_privs",
    [JAIL_STAGE_NOT_DUMPABLE] = "protection from dumps",
    [JAIL_STAGE_SECCOMP] = "system call filter",
    [JAIL_STAGE_EXEC] = "execution of QEMU",
};

const char *jail_stage_title(uint32_t stage)
{
    return stage < JAIL_STAGE_COUNT ? stages[stage] : stages[JAIL_STAGE_NONE];
}

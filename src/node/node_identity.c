/* Who a machine is: host name, machine id, boot id and environment of its sandbox, made new for each claim, kept beside
 * the disk so that a restarted daemon can renew them after a pause, and sent with fresh entropy and the time. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>

#include "base/file.h"
#include "base/str.h"
#include "node/node_internal.h"

#define ENTROPY_BYTES 256

static void uuid_new(char ret_text[37])
{
    uint8_t r[16];
    char hex[33];
    random_bytes(r, sizeof(r));
    r[6] = (uint8_t)((r[6] & 0x0f) | 0x40);
    r[8] = (uint8_t)((r[8] & 0x3f) | 0x80);
    hex_encode(r, sizeof(r), hex);
    snprintf(ret_text, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

static void env_free(char **env)
{
    for (char **v = env; v && *v; v++)
        free(*v);
    free(env);
}

void identity_free(struct node_entry *m)
{
    free(steal(m->hostname));
    env_free(steal(m->env));
}

/* Kept beside the disk, so that a restarted daemon can renew it after a pause. */
int identity_save(struct node_entry *m, struct err *e)
{
    json_t *env = json_array();
    for (char **v = m->env; v && *v; v++)
        json_array_append_new(env, json_string(*v));
    json_t *root = json_pack("{s:s, s:s, s:s, s:o}", "hostname", m->hostname, "machine_id", m->machine_uuid, "boot_id",
                             m->boot_uuid, "env", env);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    _cleanup_free_ char *folder = entry_sandbox_folder(m), *path = xasprintf("%s/identity.json", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
    free(text);
    if (fd >= 0)
        close(fd);
    return r < 0 ? err_errno(e, ERR_SYSTEM, -r, "write the identity of a sandbox") : 0;
}

bool identity_load(struct node_entry *m)
{
    _cleanup_free_ char *folder = entry_sandbox_folder(m), *path = xasprintf("%s/identity.json", folder);
    _cleanup_buf_ struct buf text = BUF_MAX(4 * MIB);
    if (file_read(path, 4 * MIB, &text, NULL) < 0)
        return false;
    json_t *root = json_loadb((const char *)buf_data(&text), text.len, 0, NULL);
    const char *hostname = json_string_value(json_object_get(root, "hostname"));
    const char *machine_uuid = json_string_value(json_object_get(root, "machine_id"));
    const char *boot_uuid = json_string_value(json_object_get(root, "boot_id"));
    json_t *env = json_object_get(root, "env");
    bool good = hostname && machine_uuid && boot_uuid && strlen(machine_uuid) == 32 && strlen(boot_uuid) == 36;
    if (good) {
        identity_free(m);
        m->hostname = xstrdup(hostname);
        memcpy(m->machine_uuid, machine_uuid, 33);
        memcpy(m->boot_uuid, boot_uuid, 37);
        m->env = xcalloc(json_array_size(env) + 1, sizeof(*m->env));
        for (size_t i = 0; i < json_array_size(env); i++)
            m->env[i] = xstrdup(json_string_value(json_array_get(env, i)) ?: "");
    }
    json_decref(root);
    return good;
}

void identity_take(struct node_entry *m)
{
    struct claim *c = m->claim;
    identity_free(m);
    m->hostname = xstrdup(c ? c->hostname : "space");
    if (c) {
        size_t count = 0;
        while (c->env[count])
            count++;
        m->env = xcalloc(count + 1, sizeof(*m->env));
        for (size_t i = 0; i < count; i++)
            m->env[i] = xstrdup(c->env[i]);
    }
    uint8_t raw[16];
    random_bytes(raw, sizeof(raw));
    hex_encode(raw, sizeof(raw), m->machine_uuid);
    uuid_new(m->boot_uuid);
    m->identified_for = c ? c->number : 0;
}

void identity_send(struct node_entry *m, guest_identity_cb *done)
{
    uint8_t entropy[ENTROPY_BYTES];
    random_bytes(entropy, sizeof(entropy));
    const struct guest_identity identity = {
        .entropy = entropy,
        .entropy_len = sizeof(entropy),
        .hostname = m->hostname,
        .machine_id = m->machine_uuid,
        .sandbox_id = m->pub.sandbox_id[0] ? m->pub.sandbox_id : "pool",
        .boot_id = m->boot_uuid,
        .env = (const char *const *)m->env,
    };
    m->call = guest_identity(machine_guest(m->machine), &identity, done, m);
    wipe(entropy, sizeof(entropy));
}

/* Making and checking a plan. Used on both sides, so that what one may write is what the other accepts. */
#include "jail/plan.h"

static bool text_add(struct jail_plan *plan, const char *s)
{
    size_t size = strlen(s) + 1;
    if (size > JAIL_TEXT_SIZE - plan->text_len)
        return false;
    memcpy(plan->text + plan->text_len, s, size);
    plan->text_len += (uint32_t)size;
    return true;
}

bool jail_plan_add_arg(struct jail_plan *plan, const char *arg)
{
    if (plan->env_count || plan->arg_count >= JAIL_ARGS_MAX || !text_add(plan, arg))
        return false;
    plan->arg_count++;
    return true;
}

bool jail_plan_add_env(struct jail_plan *plan, const char *entry)
{
    if (plan->env_count >= JAIL_ENV_MAX || !text_add(plan, entry))
        return false;
    plan->env_count++;
    return true;
}

bool jail_plan_add_bind(struct jail_plan *plan, const char *source, const char *target, bool is_folder, bool is_device)
{
    if (plan->bind_count >= JAIL_BINDS_MAX || strlen(source) >= JAIL_PATH_SIZE || strlen(target) >= JAIL_PATH_SIZE)
        return false;
    struct jail_bind *b = &plan->binds[plan->bind_count++];
    memcpy(b->source, source, strlen(source) + 1);
    memcpy(b->target, target, strlen(target) + 1);
    b->is_folder = is_folder;
    b->is_device = is_device;
    return true;
}

static bool path_valid(const char *path, bool absolute)
{
    size_t len = strnlen(path, JAIL_PATH_SIZE);
    if (len == 0 || len == JAIL_PATH_SIZE || (path[0] == '/') != absolute)
        return false;
    /* No component may be empty, "." or "..". */
    for (const char *p = path + (absolute ? 1 : 0);;) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        if (!p[n])
            return true;
        p += n + 1;
    }
}

bool jail_plan_valid(const struct jail_plan *plan, size_t len)
{
    if (len != sizeof(*plan) || plan->magic != JAIL_PLAN_MAGIC || plan->size != sizeof(*plan))
        return false;
    if ((plan->features & ~JAIL_FEATURES_ALL) || (plan->have & ~plan->features) ||
        (plan->features & JAIL_FEATURES_FIXED) != JAIL_FEATURES_FIXED || (plan->allow_missing & JAIL_FEATURES_FIXED))
        return false;
    if (plan->root > 1 || plan->probe > 1 || plan->kvm > 1 || plan->reserved || plan->fd_count < 3 ||
        plan->fd_count > JAIL_FD_MACHINE_END || plan->bind_count > JAIL_BINDS_MAX || plan->arg_count < 1 ||
        plan->arg_count > JAIL_ARGS_MAX || plan->env_count > JAIL_ENV_MAX || plan->text_len > JAIL_TEXT_SIZE ||
        plan->filter_len < 1 || plan->filter_len > JAIL_FILTER_MAX || plan->files_max < 64 || plan->threads_max < 1 ||
        plan->file_size_max < MIB)
        return false;
    if (plan->exec_address != JAIL_EXEC_ADDRESS && plan->exec_address != JAIL_EXEC_ADDRESS_USER)
        return false;
    if (plan->root && (!plan->uid || !plan->gid || !plan->second_gid))
        return false;
    for (uint32_t i = 0; i < plan->bind_count; i++) {
        const struct jail_bind *b = &plan->binds[i];
        if (!path_valid(b->source, true) || !path_valid(b->target, false) || b->is_folder > 1 || b->is_device > 1)
            return false;
    }
    uint32_t strings = 0;
    for (uint32_t i = 0; i < plan->text_len; i++)
        strings += plan->text[i] == '\0';
    return plan->text_len && plan->text[plan->text_len - 1] == '\0' && strings == plan->arg_count + plan->env_count &&
           plan->text[0] == '/' && strlen(plan->text) < JAIL_PATH_SIZE;
}

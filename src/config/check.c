/* What only shows between keys (see config_check). */
#include "config/config.h"

struct order_rule {
    const char *small, *large;
    uint64_t small_value, large_value;
};

int config_check(const struct config *c, struct err *e)
{
    const struct order_rule rules[] = {
        {"default_timeout", "max_timeout", c->default_timeout_ms, c->max_timeout_ms},
        {"default_vcpus", "max_vcpus", c->default_vcpus, c->max_vcpus},
        {"default_memory_mib", "max_memory_mib", c->default_memory_mib, c->max_memory_mib},
        {"default_disk_mib", "max_disk_mib", c->default_disk_mib, c->max_disk_mib},
    };
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (rules[i].small_value > rules[i].large_value)
            return err_set(e, ERR_INVALID, "configuration: %s is larger than %s", rules[i].small, rules[i].large);
    if (!*c->listen && !*c->listen_unix)
        return err_set(e, ERR_INVALID, "configuration: neither listen nor listen_unix is set");
    if (c->require_hardware_isolation && c->accelerator == CONFIG_ACCELERATOR_TCG)
        return err_set(e, ERR_INVALID, "configuration: require_hardware_isolation excludes accelerator = tcg");
    if (c->require_jail && c->allow_missing_isolation.count > 0)
        return err_set(e, ERR_INVALID, "configuration: require_jail excludes allow_missing_isolation");
    return 0;
}

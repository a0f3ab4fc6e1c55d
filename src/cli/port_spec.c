/* Ports as space port takes them (see port_spec.h). */
#include "cli/port_spec.h"

#include "base/str.h"

int port_spec_parse(const char *text, struct port_spec *ret_spec, struct err *e)
{
    struct port_spec spec = {.address = "127.0.0.1"};
    _cleanup_free_ char *copy = xstrdup(text);
    char *rest = copy, *colon = strrchr(copy, ':');
    const char *guest = colon ? colon + 1 : copy, *local = NULL, *address = NULL;
    if (colon) {
        *colon = '\0';
        colon = strrchr(rest, ':');
        local = colon ? colon + 1 : rest;
        if (colon) {
            *colon = '\0';
            address = rest;
        }
    }
    uint64_t g, l;
    bool ok = str_to_u64(guest, 1, 65535, &g);
    l = ok ? g : 0;
    if (ok && local)
        ok = str_to_u64(local, 0, 65535, &l);
    if (ok && address) {
        size_t len = strlen(address);
        if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
            copy[len - 1] = '\0';
            address++;
            len -= 2;
        }
        ok = len > 0 && len < sizeof(spec.address);
        if (ok)
            snprintf(spec.address, sizeof(spec.address), "%s", address);
    }
    if (!ok)
        return err_set(e, ERR_INVALID, "\"%s\" is not [[ADDRESS:]LOCAL:]PORT", text);
    spec.local = (uint16_t)l;
    spec.guest = (uint16_t)g;
    *ret_spec = spec;
    return 0;
}

/* "[[ADDRESS:]LOCAL:]PORT", as space port takes it. */
#ifndef SPACE_CLI_PORT_SPEC_H
#define SPACE_CLI_PORT_SPEC_H

#include "base/err.h"

struct port_spec {
    char address[64]; /* without the brackets of an IPv6 address */
    uint16_t local, guest;
};

/* ERR_INVALID for what is not of that form. */
int port_spec_parse(const char *text, struct port_spec *ret_spec, struct err *e);

#endif

/* Can anybody but root (and, without root, the user) change a program or folder that QEMU is made of? */
#ifndef SPACE_PRIV_TRUST_H
#define SPACE_PRIV_TRUST_H

#include "base/err.h"

enum trust_kind { TRUST_FILE, TRUST_FOLDER };

/* 0 when `path` is absolute, has no symbolic link or ".." in it, is of this kind, and it, every folder above it and (a
 * folder's) every entry in it belong to root or to `owner` and are writable for no one else. ERR_FORBIDDEN,
 * ERR_NOT_FOUND. */
int trust_check(const char *path, enum trust_kind kind, uid_t owner, struct err *e);

#endif

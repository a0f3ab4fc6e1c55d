/* API keys. The secret is `sk_space_` and 40 hex digits; only its SHA-256 and its first four
 * digits are kept. A key is found by the first 8 bytes
 * of that hash and then compared whole in constant time. Keys that were found valid stay in a bounded table in memory,
 * so that a request costs one SHA-256; revoking takes effect at once. */
#ifndef SPACE_STORE_API_KEY_H
#define SPACE_STORE_API_KEY_H

#include "store/store.h"

#define STORE_SECRET_PREFIX "sk_space_"
#define STORE_SECRET_SIZE 50 /* with the NUL */
#define STORE_SECRET_START_SIZE 14 /* the prefix, four digits and the NUL */
#define STORE_KEYS_PER_PROJECT_MAX 1000

enum store_scope {
    STORE_SCOPE_SANDBOXES_READ = 1 << 0,
    STORE_SCOPE_SANDBOXES_WRITE = 1 << 1,
    STORE_SCOPE_EXECS = 1 << 2,
    STORE_SCOPE_FILES = 1 << 3,
    STORE_SCOPE_PORTS = 1 << 4,
    STORE_SCOPE_TEMPLATES_WRITE = 1 << 5,
    STORE_SCOPE_KEYS = 1 << 6,
    STORE_SCOPE_ADMIN = 1 << 7, /* every other scope, in every project */
    STORE_SCOPE_ALL = (1 << 8) - 1,
};

/* "sandboxes:read" … ; NULL for what is not one scope / 0 for a name that is none. */
const char *store_scope_name(uint32_t scope);
uint32_t store_scope_by_name(const char *name);

struct store_api_key {
    char id[ID_SIZE];
    char project_id[ID_SIZE];
    char *name;      /* 1–128 bytes */
    char prefix[STORE_SECRET_START_SIZE]; /* how its secret begins, to know it by */
    uint32_t scopes; /* of enum store_scope, not 0 */
    int64_t created_at_ms;
    int64_t expires_at_ms;   /* 0: never */
    int64_t revoked_at_ms;   /* 0: not revoked */
    int64_t last_used_at_ms; /* 0: never; exact to a minute */
};

void store_api_key_free(struct store_api_key *k);
static inline void cleanup_store_api_key(struct store_api_key **k)
{
    store_api_key_free(*k);
}
#define _cleanup_store_api_key_ _cleanup_(cleanup_store_api_key)

struct store_api_key_list {
    struct store_api_key **items;
    size_t count;
    char next_cursor[STORE_CURSOR_SIZE];
};
void store_api_key_list_done(struct store_api_key_list *list);
#define _cleanup_store_api_key_list_ _cleanup_(store_api_key_list_done)

/* Make a key; `ret_secret` is the only time that the secret is seen: wipe it after use. ERR_NOT_FOUND: no such
 * project. ERR_LIMIT: the project has STORE_KEYS_PER_PROJECT_MAX keys that are neither revoked nor expired. */
int store_api_key_make(struct store *s, const char *project_id, const char *name, uint32_t scopes,
                       int64_t expires_at_ms, int64_t now_ms, char ret_secret[STORE_SECRET_SIZE],
                       struct store_api_key **ret_key, struct err *e);

/* Who is it? Embedded, no allocation: this is called for each request. */
struct store_caller {
    char key_id[ID_SIZE];
    char project_id[ID_SIZE];
    uint32_t scopes; /* all of them when the key has STORE_SCOPE_ADMIN */
};
/* ERR_UNAUTHENTICATED, with one and the same text, for a secret that is malformed, unknown, revoked or expired. */
int store_api_key_verify(struct store *s, const char *secret, int64_t now_ms, struct store_caller *ret_caller,
                         struct err *e);

int store_api_key_get(struct store *s, const char *project_id, const char *id, struct store_api_key **ret_key,
                      struct err *e);
/* Revoked and expired ones as well. */
int store_api_key_list(struct store *s, const char *project_id, const struct store_page *page,
                       struct store_api_key_list *ret_list, struct err *e);
/* Revoking a second time changes nothing. */
int store_api_key_revoke(struct store *s, const char *project_id, const char *id, int64_t now_ms, struct err *e);

/* Write the times of last use that are only in memory; call once a minute and at the end. */
int store_api_key_flush_used(struct store *s, struct err *e);

/* The first key. `known_secret` is the content of admin.key, or NULL when that file is missing. Returns 0 when it is
 * a valid admin key; else makes project "default" if it is missing, revokes what an earlier call made, makes a key
 * with every scope, gives its secret for the file, and returns 1. */
int store_api_key_ensure_admin(struct store *s, const char *known_secret, int64_t now_ms,
                               char ret_secret[STORE_SECRET_SIZE], struct err *e);

#endif

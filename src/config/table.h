/* The table of configuration keys; of this folder alone. */
#ifndef SPACE_CONFIG_TABLE_H
#define SPACE_CONFIG_TABLE_H

#include "config/config.h"

enum config_type {
    CONFIG_STRING,   /* UTF-8 without control characters */
    CONFIG_PATH,     /* absolute, or empty */
    CONFIG_ADDRESS,  /* "127.0.0.1:7777", "[::1]:7777", or empty */
    CONFIG_DOMAIN,   /* lower-case DNS name */
    CONFIG_BOOL,
    CONFIG_NUMBER,   /* uint32_t */
    CONFIG_SIZE,     /* uint64_t, bytes */
    CONFIG_DURATION, /* uint64_t, milliseconds */
    CONFIG_CHOICE,   /* an enum whose values are the places in `choices` */
    CONFIG_LIST,     /* words of [a-z0-9_-] with commas between */
};

struct config_key {
    const char *name;
    enum config_type type;
    size_t offset;
    const char *standard; /* the default, as text; NULL: state_dir's */
    uint64_t min, max;
    const char *const *choices; /* NULL-terminated */
    const char *help;
};

/* Keys in the order of the reference page; a row with a name alone is the heading of what follows. */
extern const struct config_key config_table[];
extern const size_t config_table_len;

static inline bool config_key_is_heading(const struct config_key *key)
{
    return key->help == NULL;
}

/* The default as text; *ret_owned is the caller's to free when it had to be made. */
const char *config_standard(const struct config_key *key, char **ret_owned);

/* `value` → the field of `c`; false when it is not what the key asks for. */
bool config_field_set(struct config *c, const struct config_key *key, const char *value);
void config_field_free(struct config *c, const struct config_key *key);
/* The field's value in the form that config_field_set reads. */
void config_field_format(const struct config *c, const struct config_key *key, struct buf *out);
/* "a whole number from 1 to 8" */
void config_describe_type(const struct config_key *key, struct buf *out);
/* The key of this name, or NULL. `len` bytes of `name`; '-' counts as '_' when `dashes`. */
const struct config_key *config_find(const char *name, size_t len, bool dashes);

#endif

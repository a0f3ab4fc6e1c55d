/* JSON bodies by tables: each member has a row that says its type, bounds and where its value goes. Members without a
 * row are refused. Every fault is named by a JSON pointer and what is expected there. */
#ifndef SPACE_API_FIELDS_H
#define SPACE_API_FIELDS_H

#include "base/err.h"
#include "http/http_request.h"

#include <jansson.h>

enum field_kind {
    FIELD_STRING,  /* const char *; min and max are bytes (max 0: no maximum) */
    FIELD_INTEGER, /* int64_t */
    FIELD_BOOL,    /* bool */
    FIELD_STRINGS, /* json_t *: an array of strings; min and max are members; `valid` looks at each */
    FIELD_MAP,     /* json_t *: an object of strings; max is members; `valid` looks at the names */
    FIELD_MAP_OR_NULLS, /* the same, members may be null */
    FIELD_OBJECT,  /* json_t *: an object, parsed by another table */
    FIELD_ANY,     /* json_t *: looked at by the caller */
};

enum field_flag {
    FIELD_REQUIRED = 1 << 0,
    FIELD_NULLABLE = 1 << 1, /* null is as if it were missing (FIELD_ANY: gives the null) */
};

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset; /* of the value in the caller's struct; untouched when the member is missing */
    unsigned flags;
    int64_t min, max;
    bool (*valid)(const char *text); /* of strings; may be NULL */
    const char *expect;              /* "a name of at most 63 letters, digits and dashes"; NULL: made from the rest */
    int64_t value_max;               /* of strings in FIELD_STRINGS and FIELD_MAP: bytes; 0: no maximum */
};

/* Faults found so far. */
struct faults {
    json_t *list; /* of {"field", "detail"}; NULL while there is none */
    struct err first;
};
void faults_done(struct faults *f);
#define _cleanup_faults_ _cleanup_(faults_done)

/* Values are borrowed from `object`. `at` is the pointer of the object ("" for the body). */
void fields_parse(const json_t *object, const char *at, const struct field *fields, size_t count, void *out,
                  struct faults *f);
void faults_add(struct faults *f, const char *pointer, const char *format, ...) ATTR_PRINTF(3, 4);
/* Answer 400 when there is a fault. */
bool faults_reply(struct http_request *r, struct faults *f);

/* ---- checks for `valid` ---- */
bool valid_name(const char *s);      /* a DNS label */
bool valid_tag_or_digest(const char *s);
bool valid_env_name(const char *s);
bool valid_metadata_name(const char *s);
bool valid_guest_user(const char *s);
bool valid_guest_path(const char *s); /* absolute, ≤ 4095 bytes */
bool valid_file_mode(const char *s);  /* octal, 3 or 4 digits */
bool valid_duration(const char *s);
#define EXPECT_NAME "lower-case letters, digits and dashes, at most 63, beginning and ending with none of the dashes"
#define EXPECT_USER "a user name or number of the guest"
#define EXPECT_PATH "an absolute path of at most 4095 bytes"
#define EXPECT_MODE "permission bits as three or four octal digits"
#define EXPECT_DURATION "a duration such as \"30s\" or \"5m\""

/* The query parameters `path` (required) and `user` of the file calls; `names` are all that the call knows. */
int path_of(struct http_request *r, const char *const *names, const char **ret_path, const char **ret_user,
            struct err *e);

#endif

/* The tar format: ustar headers with pax extended headers where a value does not fit (POSIX pax, "pax Interchange
 * Format"). Reads GNU long names and base-256 numbers too. No I/O: bytes in, entries out. */
#ifndef SPACE_AGENT_TAR_FORMAT_H
#define SPACE_AGENT_TAR_FORMAT_H

#include "agent/limits.h"
#include "base/buf.h"
#include "base/err.h"

#define TAR_BLOCK 512

enum tar_type {
    TAR_REGULAR = '0',
    TAR_HARDLINK = '1',
    TAR_SYMLINK = '2',
    TAR_CHARACTER = '3',
    TAR_BLOCK_DEVICE = '4',
    TAR_DIRECTORY = '5',
    TAR_FIFO = '6',
};

struct tar_entry {
    char type; /* enum tar_type; other values are passed on as they are */
    char path[AGENT_PATH_MAX + 1];
    char link[AGENT_PATH_MAX + 1];
    uint32_t mode, uid, gid;
    uint64_t size; /* of the content; 0 for all but regular files */
    int64_t mtime;
};

/* Append the header of an entry. The content follows, padded to whole blocks; two zero blocks end the archive. */
void tar_header_put(struct buf *b, const struct tar_entry *entry);
static inline size_t tar_padding(uint64_t size)
{
    return (size_t)(-size & (TAR_BLOCK - 1));
}

struct tar_parser {
    /* An entry begins; its content in parts; its end. A negative return ends the parsing with it. */
    int (*entry)(void *arg, const struct tar_entry *entry, struct err *e);
    int (*data)(void *arg, const uint8_t *data, size_t len, struct err *e);
    int (*end)(void *arg, struct err *e);
    void *arg;

    uint8_t block[TAR_BLOCK];
    size_t block_len;
    uint64_t content_left;
    size_t padding_left;
    char extended; /* type of the extended header under way, 0: an entry's content */
    struct buf text;
    struct tar_entry current;
    bool has_path, has_link, has_size, has_uid, has_gid, has_mtime; /* given by an extended header */
    bool in_entry, finished;
};

void tar_parser_init(struct tar_parser *p);
void tar_parser_done(struct tar_parser *p);
/* ERR_INVALID for what is no archive, or what a callback returned. What comes after the end is thrown away. */
int tar_parser_feed(struct tar_parser *p, const uint8_t *data, size_t len, struct err *e);
/* No more comes: ERR_INVALID when that is in the middle of an entry. */
int tar_parser_finish(const struct tar_parser *p, struct err *e);

#endif

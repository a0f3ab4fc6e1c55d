/* Folders as tar streams (see tar_stream.h). */
#include "cli/tar_stream.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/str.h"

#define BLOCK_BYTES (64 * 1024)
#define PADDING_MAX (4 * MIB)

static void cleanup_read(struct archive **a)
{
    if (*a)
        archive_read_free(*a);
}

static void cleanup_write(struct archive **a)
{
    if (*a)
        archive_write_free(*a);
}

static void cleanup_entry(struct archive_entry **entry)
{
    archive_entry_free(*entry);
}

static int failed(struct archive *a, int code, const char *what, struct err *e)
{
    const char *why = archive_error_string(a);
    if (archive_errno(a) == ENOSPC || archive_errno(a) == EDQUOT)
        code = ERR_NO_SPACE;
    return err_set(e, code, "%s: %s", what, why ? why : "failed");
}

static bool is_ordinary(struct archive_entry *entry)
{
    mode_t type = archive_entry_filetype(entry);
    return type == AE_IFREG || type == AE_IFDIR || type == AE_IFLNK || (type == 0 && archive_entry_hardlink(entry));
}

/* Holes come back as gaps between blocks; a tar stream has them as zeros. */
static int copy_content(struct archive *from, struct archive *to, const char *name, struct err *e)
{
    static const char zeros[4096];
    la_int64_t at = 0;
    for (;;) {
        const void *data;
        size_t len;
        la_int64_t offset;
        int r = archive_read_data_block(from, &data, &len, &offset);
        if (r == ARCHIVE_EOF)
            return 0;
        if (r < ARCHIVE_WARN)
            return failed(from, ERR_SYSTEM, name, e);
        while (at < offset) {
            size_t n = (size_t)MIN(offset - at, (la_int64_t)sizeof(zeros));
            if (archive_write_data(to, zeros, n) < 0)
                return failed(to, ERR_CANCELLED, name, e);
            at += (la_int64_t)n;
        }
        if (len > 0 && archive_write_data(to, data, len) < 0)
            return failed(to, ERR_CANCELLED, name, e);
        at += (la_int64_t)len;
    }
}

static int pack_entry(struct archive *disk, struct archive *out, struct archive_entry *entry, size_t prefix,
                      struct tar_count *count, struct err *e)
{
    const char *path = archive_entry_pathname(entry);
    if (!path || strlen(path) < prefix)
        return err_set(e, ERR_INTERNAL, "a file lies outside of the folder that is packed");
    const char *name = path + prefix + strspn(path + prefix, "/");
    if (!*name)
        return 0;
    if (!is_ordinary(entry)) {
        count->skipped++;
        return 0;
    }
    _cleanup_free_ char *copy = xstrdup(name);
    archive_entry_copy_pathname(entry, copy);
    archive_entry_set_uid(entry, 0);
    archive_entry_set_gid(entry, 0);
    archive_entry_copy_uname(entry, NULL);
    archive_entry_copy_gname(entry, NULL);
    count->files++;
    if (archive_write_header(out, entry) < ARCHIVE_WARN)
        return failed(out, ERR_CANCELLED, copy, e);
    return archive_entry_filetype(entry) == AE_IFREG && archive_entry_size(entry) > 0 ? copy_content(disk, out, copy, e)
                                                                                      : 0;
}

int tar_pack(const char *folder, int fd, struct tar_count *ret_count, struct err *e)
{
    _cleanup_(cleanup_read) struct archive *disk = archive_read_disk_new();
    _cleanup_(cleanup_write) struct archive *out = archive_write_new();
    _cleanup_(cleanup_entry) struct archive_entry *entry = archive_entry_new();
    struct tar_count count = {0};
    archive_read_disk_set_symlink_physical(disk);
    archive_write_set_format_pax_restricted(out);
    archive_write_set_bytes_per_block(out, BLOCK_BYTES);
    archive_write_set_bytes_in_last_block(out, 1);
    if (archive_write_open_fd(out, fd) != ARCHIVE_OK)
        return failed(out, ERR_SYSTEM, "begin an archive", e);
    if (archive_read_disk_open(disk, folder) != ARCHIVE_OK)
        return failed(disk, ERR_SYSTEM, folder, e);
    for (;;) {
        archive_entry_clear(entry);
        int r = archive_read_next_header2(disk, entry);
        if (r == ARCHIVE_EOF)
            break;
        if (r < ARCHIVE_WARN)
            return failed(disk, ERR_SYSTEM, folder, e);
        archive_read_disk_descend(disk);
        r = pack_entry(disk, out, entry, strlen(folder), &count, e);
        if (r < 0)
            return r;
    }
    if (archive_write_close(out) != ARCHIVE_OK)
        return failed(out, ERR_CANCELLED, "end an archive", e);
    *ret_count = count;
    return 0;
}

static int unpack_content(struct archive *in, struct archive *disk, const char *name, uint64_t *left, struct err *e)
{
    for (;;) {
        const void *data;
        size_t len;
        la_int64_t offset;
        int r = archive_read_data_block(in, &data, &len, &offset);
        if (r == ARCHIVE_EOF)
            return 0;
        if (r < ARCHIVE_WARN)
            return failed(in, ERR_PROTOCOL, name, e);
        if (len > *left)
            return err_set(e, ERR_TOO_LARGE, "the folder is larger than --max-size; what came before is kept");
        *left -= len;
        if (archive_write_data_block(disk, data, len, offset) < ARCHIVE_WARN)
            return failed(disk, ERR_SYSTEM, name, e);
    }
}

static int unpack_entry(struct archive *in, struct archive *disk, struct archive_entry *entry, uint64_t *left,
                        struct tar_count *count, struct err *e)
{
    const char *name = archive_entry_pathname(entry);
    if (!name || !is_ordinary(entry)) {
        count->skipped++;
        return 0;
    }
    if (str_eq(name, ".") || str_eq(name, "./"))
        return 0;
    _cleanup_free_ char *copy = xstrdup(name);
    archive_entry_set_perm(entry, archive_entry_perm(entry) & 0777);
    count->files++;
    if (archive_write_header(disk, entry) < ARCHIVE_WARN)
        return failed(disk, ERR_PROTOCOL, copy, e);
    int r = archive_entry_size(entry) > 0 ? unpack_content(in, disk, copy, left, e) : 0;
    if (r >= 0 && archive_write_finish_entry(disk) < ARCHIVE_WARN)
        r = failed(disk, ERR_SYSTEM, copy, e);
    return r;
}

/* After its end an archive is padded with zeros: the writer must find a reader for them, but not for ever. */
static void read_padding(int fd)
{
    char rest[16384];
    size_t total = 0;
    for (ssize_t n; total < PADDING_MAX && ((n = read(fd, rest, sizeof(rest))) > 0 || (n < 0 && errno == EINTR));)
        total += n > 0 ? (size_t)n : 0;
}

int tar_unpack(int fd, uint64_t max_bytes, uint64_t max_files, struct tar_count *ret_count, struct err *e)
{
    _cleanup_(cleanup_read) struct archive *in = archive_read_new();
    _cleanup_(cleanup_write) struct archive *disk = archive_write_disk_new();
    struct tar_count count = {0};
    archive_read_support_format_tar(in);
    archive_write_disk_set_options(disk, ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
                                             ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
    if (archive_read_open_fd(in, fd, BLOCK_BYTES) != ARCHIVE_OK)
        return failed(in, ERR_PROTOCOL, "read the archive", e);
    for (;;) {
        struct archive_entry *entry;
        int r = archive_read_next_header(in, &entry);
        if (r == ARCHIVE_EOF)
            break;
        if (r < ARCHIVE_WARN)
            return failed(in, ERR_PROTOCOL, "read the archive", e);
        if (count.files + count.skipped >= max_files)
            return err_set(e, ERR_TOO_LARGE, "the folder has more than %ju files", (uintmax_t)max_files);
        r = unpack_entry(in, disk, entry, &max_bytes, &count, e);
        if (r < 0)
            return r;
    }
    if (archive_write_close(disk) < ARCHIVE_WARN)
        return failed(disk, ERR_SYSTEM, "finish the folder", e);
    read_padding(fd);
    *ret_count = count;
    return 0;
}

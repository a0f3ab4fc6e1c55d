/* Feeds a fuzz target every file of a corpus folder once: the corpus as an ordinary test. No folder, no files: it still
 * gets the empty input. */
#include <dirent.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/file.h"
#include "fuzz.h"

int main(int argc, char **argv)
{
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    int inputs = 1;
    DIR *dir = argc > 1 ? opendir(argv[1]) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        _cleanup_buf_ struct buf b = BUF_MAX(1 << 20);
        struct err e;
        if (file_read(path, 1 << 20, &b, &e) < 0) {
            fprintf(stderr, "cannot read %s\n", path);
            return 1;
        }
        printf("%s\n", entry->d_name);
        fflush(stdout);
        /* A copy of exact size, so that the address sanitizer sees a read past its end. */
        uint8_t *exact = malloc(b.len ? b.len : 1);
        if (!exact)
            return 1;
        memcpy(exact, buf_data(&b), b.len);
        LLVMFuzzerTestOneInput(exact, b.len);
        free(exact);
        inputs++;
    }
    if (dir)
        closedir(dir);
    printf("%d inputs\n", inputs);
    return 0;
}

/* The lines by which a build script tells how far it is. */
#ifndef SPACE_CLI_BUILD_PROGRESS_H
#define SPACE_CLI_BUILD_PROGRESS_H

#include "base/defs.h"

struct build_line {
    bool is_result;
    char step[64], text[256]; /* a result has its folder in `text` */
    uint64_t done, total;
};

/* "@progress STEP DONE TOTAL TEXT" or "@result FOLDER"; false for any other line. */
bool build_line_parse(const char *line, struct build_line *ret_line);

#endif

/* Signals by name, as numbered by Linux on x86. */
#include "api/render.h"

static const char *const names[] = {
    [1] = "HUP",   [2] = "INT",    [3] = "QUIT",    [4] = "ILL",   [5] = "TRAP",  [6] = "ABRT",  [7] = "BUS",
    [8] = "FPE",   [9] = "KILL",   [10] = "USR1",   [11] = "SEGV", [12] = "USR2", [13] = "PIPE", [14] = "ALRM",
    [15] = "TERM", [16] = "STKFLT", [17] = "CHLD",  [18] = "CONT", [19] = "STOP", [20] = "TSTP", [21] = "TTIN",
    [22] = "TTOU", [23] = "URG",   [24] = "XCPU",   [25] = "XFSZ", [26] = "VTALRM", [27] = "PROF", [28] = "WINCH",
    [29] = "IO",   [30] = "PWR",   [31] = "SYS",
};

const char *signal_name(int number)
{
    static char real_time[8];
    if (number > 0 && number < (int)ARRAY_LEN(names))
        return names[number];
    if (number < 32 || number > 64)
        return NULL;
    snprintf(real_time, sizeof(real_time), "%d", number);
    return real_time;
}

int signal_number(const char *name)
{
    for (size_t i = 1; i < ARRAY_LEN(names); i++)
        if (str_eq(name, names[i]))
            return (int)i;
    return 0;
}

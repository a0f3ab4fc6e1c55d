/* Prints docs/reference/configuration.md. */
#include "config/config.h"

int main(void)
{
    _cleanup_buf_ struct buf page = BUF_MAX(1 * MIB);
    config_reference(&page);
    return fwrite(buf_data(&page), 1, page.len, stdout) == page.len && fflush(stdout) == 0 ? 0 : 1;
}

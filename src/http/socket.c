/* What the kernel knows about a TCP connection. A file of its own: linux/tcp.h and netinet/tcp.h exclude each other,
 * and only the former knows all fields of struct tcp_info. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

uint64_t socket_received(int fd);

/* Bytes received on a TCP connection so far; 0 where that is not known. */
uint64_t socket_received(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_bytes_received : 0;
}

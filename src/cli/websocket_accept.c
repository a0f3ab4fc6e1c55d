/* The proof in a WebSocket handshake (see websocket_accept.h). */
#include "cli/websocket_accept.h"

#include <openssl/evp.h>

#include "base/defs.h"

void websocket_accept(const char *key, char ret_accept[32])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    _cleanup_free_ char *text = xasprintf("%s%s", key, guid);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    EVP_Digest(text, strlen(text), digest, &len, EVP_sha1(), NULL);
    EVP_EncodeBlock((unsigned char *)ret_accept, digest, 20);
}

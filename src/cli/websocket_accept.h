/* The proof in a WebSocket handshake. Apart from websocket.c, as OpenSSL's headers and base/err.h share a name. */
#ifndef SPACE_CLI_WEBSOCKET_ACCEPT_H
#define SPACE_CLI_WEBSOCKET_ACCEPT_H

/* Sec-WebSocket-Accept for a Sec-WebSocket-Key: 28 characters. RFC 6455, section 4.2.2. */
void websocket_accept(const char *key, char ret_accept[32]);

#endif

/* WebSocket client layer of a connection. Only connection.c uses it. */
#ifndef WEBSOCKET_H
#define WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct websocket;

/* Wait for the connection, request the upgrade and wait for the answer. NULL with errno on failure. */
struct websocket *websocket_connect(int fd);

/* Like recv and send, for payload: -1 with errno, EAGAIN if the socket would block or the input had no payload. Octets
 * that the socket did not accept are kept and sent first; a write of no bytes sends only those. */
ssize_t websocket_read(struct websocket *w, int fd, void *to, size_t most);
ssize_t websocket_write(struct websocket *w, int fd, const void *from, size_t bytes);
bool websocket_pending(const struct websocket *w); /* true if octets are kept */

#endif

/* WebSocket under a connection of the generator, as a client: nothing is known of it but here and in connection.c. */
#ifndef WEBSOCKET_H
#define WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct websocket;

/* Connects, asks and waits for the answer; NULL: errno says why not. */
struct websocket *websocket_connect(int fd);

/* As recv and send, of payload: -1 with errno, EAGAIN where the socket would wait; a read of frames without payload
 * is one, too. What the socket did not take is kept and sent first; a write of nothing sends no more than that. */
ssize_t websocket_read(struct websocket *w, int fd, void *to, size_t most);
ssize_t websocket_write(struct websocket *w, int fd, const void *from, size_t bytes);
bool websocket_pending(const struct websocket *w); /* octets are kept */

#endif

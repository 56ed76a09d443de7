#include "websocket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "options.h"

enum { PIECE = 65536, HEADER = 14, ANSWER = 4096, WAIT_MS = 10000, FINAL_BINARY = 0x82, MASKED = 0x80 };

struct websocket {
    uint8_t out[PIECE + HEADER];
    size_t out_start, out_end;
    uint8_t header[HEADER];
    size_t header_size;
    uint64_t left;        /* payload octets of the frame still to be received */
    bool data;            /* true for a data frame, false for a control frame */
};

static bool ready(int fd, short events) {
    struct pollfd p = {fd, events, 0};
    if (poll(&p, 1, WAIT_MS) == 1) return true;
    errno = ETIMEDOUT;
    return false;
}

struct websocket *websocket_connect(int fd) {
    static const char format[] =
        "GET / HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n";
    char text[ANSWER];
    int size = snprintf(text, sizeof text, format, options.host);
    if (!ready(fd, POLLOUT) || send(fd, text, (size_t)size, MSG_NOSIGNAL) != size) return NULL;
    for (size = 0; size < 4 || memcmp(text + size - 4, "\r\n\r\n", 4); size++) {
        if (size == ANSWER || !ready(fd, POLLIN) || recv(fd, text + size, 1, 0) != 1) return NULL;
    }
    if (strncmp(text, "HTTP/1.1 101 ", 13)) {
        errno = EPROTO;
        return NULL;
    }
    return calloc(1, sizeof(struct websocket));
}

bool websocket_pending(const struct websocket *w) { return w->out_start < w->out_end; }

static bool drain(struct websocket *w, int fd) {
    while (websocket_pending(w)) {
        ssize_t sent = send(fd, w->out + w->out_start, w->out_end - w->out_start, MSG_NOSIGNAL);
        if (sent < 0) return false;
        w->out_start += (size_t)sent;
    }
    return true;
}

ssize_t websocket_write(struct websocket *w, int fd, const void *from, size_t bytes) {
    static const uint8_t mask[8] = {0x3a, 0x81, 0x5c, 0xe7, 0x3a, 0x81, 0x5c, 0xe7};
    if (!drain(w, fd)) return -1;
    if (!bytes) return 0;
    if (bytes > PIECE) bytes = PIECE;
    int length = bytes < 126 ? 0 : bytes < 65536 ? 2 : 8;
    uint8_t *at = w->out;
    *at++ = FINAL_BINARY;
    *at++ = MASKED | (uint8_t)(length == 0 ? bytes : length == 2 ? 126 : 127);
    for (int i = length; i-- > 0;) *at++ = (uint8_t)(bytes >> 8 * i);
    memcpy(at, mask, 4), at += 4;
    const uint8_t *read = from;
    size_t i = 0;
    for (uint64_t word, key; i + 8 <= bytes; i += 8) {
        memcpy(&word, read + i, 8), memcpy(&key, mask, 8);
        word ^= key;
        memcpy(at + i, &word, 8);
    }
    for (; i < bytes; i++) at[i] = read[i] ^ mask[i & 3];
    w->out_start = 0;
    w->out_end = (size_t)(at + bytes - w->out);
    if (!drain(w, fd) && errno != EAGAIN && errno != EINTR) return -1;
    return (ssize_t)bytes;
}

/* Begin a frame if its header is complete. Returns false if it is not. */
static bool begin(struct websocket *w) {
    if (w->header_size < 2) return false;
    int size = w->header[1] & 0x7f, length = size == 126 ? 2 : size == 127 ? 8 : 0;
    if (w->header_size < (size_t)(2 + length)) return false;
    w->left = length ? 0 : (uint64_t)size;
    for (int i = 0; i < length; i++) w->left = w->left << 8 | w->header[2 + i];
    w->data = (w->header[0] & 0x0f) <= 2;
    w->header_size = 0;
    return true;
}

ssize_t websocket_read(struct websocket *w, int fd, void *to, size_t most) {
    uint8_t *data = to;
    ssize_t got = recv(fd, to, most, 0);
    size_t made = 0;
    if (got <= 0) return got;
    for (size_t at = 0; at < (size_t)got;) {
        if (w->left) {
            size_t here = (size_t)got - at < w->left ? (size_t)got - at : (size_t)w->left;
            if (w->data) memmove(data + made, data + at, here), made += here;
            at += here, w->left -= here;
        } else {
            w->header[w->header_size++] = data[at++];
            begin(w);
        }
    }
    if (made) return (ssize_t)made;
    errno = EAGAIN;
    return -1;
}

/* AMQP connection of the generator with one session (channel 0): buffers in both directions, the
 * handshake, and windows and credit of both ends. These are stored as limits, so that serial-number
 * arithmetic and shrinking windows are exact. Owned by one thread at a time. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include "amqp.h"
#include "tls.h"
#include "websocket.h"

enum role { SENDER, RECEIVER };
enum { ADDRESS_ROOM = 256, DETACHED_TEXT = 256 };

struct connection;
struct handlers { /* callbacks for frames; `fields` is positioned at the first field */
    void (*transfer)(struct connection *c, struct cursor *fields, struct bytes payload, uint64_t now);
    void (*disposition)(struct connection *c, struct cursor *fields, uint64_t now);
    void (*echo)(struct connection *c); /* the peer's flow has echo set */
    void (*attached)(struct connection *c); /* the peer's attach to a container was answered */
    /* Handles every frame and protocol header in place of connection.c; the other callbacks are then unused. */
    void (*frame)(struct connection *c, const uint8_t *frame, uint32_t size, uint64_t now);
};

struct connection {
    int fd;
    SSL *tls;                    /* NULL: no TLS */
    struct websocket *websocket; /* NULL: no WebSocket */
    unsigned index;
    enum role role;
    const struct handlers *handlers;
    char address[ADDRESS_ROOM];

    uint8_t *in, *out;
    size_t in_length, in_capacity, out_start, out_end, out_capacity;
    uint64_t last_write;         /* time in ns, for heartbeats */
    uint32_t interest;           /* epoll events registered; owned by the side */
    bool closing, peer_closed;

    uint32_t peer_max_frame;     /* largest frame we may send, at most options.max_frame */
    uint32_t heartbeat_ms;       /* the peer's idle time-out, 0: none */
    bool container;              /* the peer begins session and link */
    bool opened;                 /* an open frame was received */
    unsigned attaches;           /* attach frames received */
    uint32_t next_incoming;      /* session: expected id of the next transfer frame */
    uint32_t incoming_limit;     /* session: first transfer id that we have not allowed */
    uint32_t next_outgoing;      /* session: id of our next transfer frame */
    uint32_t outgoing_limit;     /* session: first transfer id that the peer has not allowed */
    uint32_t delivery_count;     /* link 0: the sender's delivery-count, at either end */
    uint32_t credit_limit;       /* link 0: first delivery count that is not allowed */
};

uint64_t clock_ns(void); /* CLOCK_MONOTONIC */

/* Return a non-blocking socket that is connecting to `port`; negative with errno on failure.
 * host: number of the loopback address to connect from, below 50,000; 0: the default address. */
int connection_socket(int port, unsigned host);

/* Start connecting (non-blocking) and queue nothing. The buffers of an earlier connection are used again.
 * resumed: TLS session to resume, or NULL. False: a fault was recorded. */
bool connection_connect(struct connection *c, int port, unsigned host, SSL_SESSION *resumed, size_t buffer);
void connection_disconnect(struct connection *c); /* keeps the buffers */

/* Start connecting (non-blocking) and queue header, open and begin. False: a fault was recorded. */
bool connection_start(struct connection *c, int port, size_t buffer);
void connection_attach(struct connection *c, uint32_t handle, enum role role, const char *address);

/* Return room for `bytes` of output; connection_wrote commits the bytes up to `end`. */
uint8_t *connection_room(struct connection *c, size_t bytes);
void connection_wrote(struct connection *c, const uint8_t *end);
bool connection_flush(struct connection *c);        /* true if nothing is left to send */
static inline size_t connection_pending(const struct connection *c) {
    return c->out_end - c->out_start + (c->websocket && websocket_pending(c->websocket));
}
bool connection_writes(const struct connection *c); /* true if it waits for a writable socket */

/* Set connections to serve while another one is awaited, because its progress may depend on them. */
void connections_beside(struct connection **all, unsigned count);

/* Read at most `most` bytes and handle the complete frames; return the bytes read. */
size_t connection_read(struct connection *c, size_t most);

void connection_flow(struct connection *c);         /* our state: session and, as receiver, link 0 */
void connection_heartbeat(struct connection *c, uint64_t now);

/* Wait until `done` or a fatal fault; only for set-up, before a side owns the connection. */
bool connection_await(struct connection *c, bool (*done)(const struct connection *), double seconds);
bool connection_attached(const struct connection *c);
bool connection_opened(const struct connection *c);
bool connection_credited(const struct connection *c); /* a sender may send */

/* Close all connections, wait `seconds` in total for the answers, and free their buffers. */
void connections_close(struct connection **all, unsigned count, double seconds);

#endif

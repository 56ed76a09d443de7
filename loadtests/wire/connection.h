/* One AMQP connection of the generator, with one session (channel 0): bytes in both directions,
 * the handshake, and the windows and credit of both ends, kept as limits so that serial-number
 * arithmetic and shrinking windows come out exactly. Owned by one thread at a time. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include "amqp.h"
#include "tls.h"
#include "websocket.h"

enum role { SENDER, RECEIVER };
enum { ADDRESS_ROOM = 256, DETACHED_TEXT = 256 };

struct connection;
struct handlers { /* frames that a side acts on; fields are positioned at the first one */
    void (*transfer)(struct connection *c, struct cursor *fields, struct bytes payload, uint64_t now);
    void (*disposition)(struct connection *c, struct cursor *fields, uint64_t now);
    void (*echo)(struct connection *c); /* the peer's flow asked for ours */
    void (*attached)(struct connection *c); /* the peer has attached a link to a container, which is answered */
};

struct connection {
    int fd;
    SSL *tls;                    /* NULL: octets go as they are */
    struct websocket *websocket; /* NULL: AMQP without it */
    unsigned index;
    enum role role;
    const struct handlers *handlers;
    char address[ADDRESS_ROOM];

    uint8_t *in, *out;
    size_t in_length, in_capacity, out_start, out_end, out_capacity;
    uint64_t last_write;         /* ns, for heartbeats */
    uint32_t interest;           /* epoll events registered; owned by the side */
    bool closing, peer_closed;

    uint32_t peer_max_frame;     /* largest frame we may send, ours also limited by options.max_frame */
    uint32_t heartbeat_ms;       /* the peer's idle time-out, 0: none */
    bool container;              /* session and link are the peer's to begin */
    bool opened;                 /* an open frame was received */
    unsigned attaches;           /* attach frames received */
    uint32_t next_incoming;      /* session: id of the next transfer frame to come */
    uint32_t incoming_limit;     /* session: first transfer id that we have not allowed */
    uint32_t next_outgoing;      /* session: id of our next transfer frame */
    uint32_t outgoing_limit;     /* session: first transfer id that the peer has not allowed */
    uint32_t delivery_count;     /* link 0, of the sender wherever it is */
    uint32_t credit_limit;       /* link 0: first delivery count that is not allowed */
};

uint64_t clock_ns(void); /* CLOCK_MONOTONIC */

/* A socket that is being connected to that port (non-blocking); below 0: errno says why not. */
int connection_socket(int port);

/* Starts connecting (non-blocking) and queues header, open and begin. False: a fault was recorded. */
bool connection_start(struct connection *c, int port, size_t buffer);
void connection_attach(struct connection *c, uint32_t handle, enum role role, const char *address);

/* Makes room for `bytes` in the output; connection_wrote takes what was written. */
uint8_t *connection_room(struct connection *c, size_t bytes);
void connection_wrote(struct connection *c, const uint8_t *end);
bool connection_flush(struct connection *c);        /* true when nothing is left to send */
static inline size_t connection_pending(const struct connection *c) {
    return c->out_end - c->out_start + (c->websocket && websocket_pending(c->websocket));
}
bool connection_writes(const struct connection *c); /* it waits for a socket that can be written to */

/* Connections that are served, too, while another is awaited: what it waits for may be up to them. */
void connections_beside(struct connection **all, unsigned count);

/* Reads at most `most` bytes and handles the whole frames among them; returns the bytes read. */
size_t connection_read(struct connection *c, size_t most);

void connection_flow(struct connection *c);         /* ours as it stands: session and, as receiver, link 0 */
void connection_heartbeat(struct connection *c, uint64_t now);

/* Waits until `done` or until a fatal fault; only for set-up, before a side owns the connection. */
bool connection_await(struct connection *c, bool (*done)(const struct connection *), double seconds);
bool connection_attached(const struct connection *c);
bool connection_opened(const struct connection *c);
bool connection_credited(const struct connection *c); /* a sender may send */

/* Says close to all, waits for their answers for `seconds` in all, frees. */
void connections_close(struct connection **all, unsigned count, double seconds);

#endif

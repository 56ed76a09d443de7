#define _GNU_SOURCE
#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"
#include "options.h"

enum { HANDSHAKE_ROOM = 2048, FLOW_ROOM = 128, HEADER_SIZE = 8, HOSTS = 250 /* with equal first three octets */ };

uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static const char *role_name(const struct connection *c) { return c->role == SENDER ? "sender" : "receiver"; }

static const char *reason(void) { return errno == EPROTO ? tls_error() : strerror(errno); }

static void *grown(void *old, size_t bytes) {
    void *more = realloc(old, bytes);
    if (!more) {
        fprintf(stderr, "amqpload: out of memory for a buffer of %zu bytes\n", bytes);
        exit(2);
    }
    return more;
}

/* ---- output ------------------------------------------------------------------ */

uint8_t *connection_room(struct connection *c, size_t bytes) {
    if (c->out_start == c->out_end) c->out_start = c->out_end = 0;
    if (c->out_end + bytes > c->out_capacity) {
        c->out_capacity = (c->out_end + bytes) * 2;
        c->out = grown(c->out, c->out_capacity);
    }
    return c->out + c->out_end;
}

void connection_wrote(struct connection *c, const uint8_t *end) { c->out_end = (size_t)(end - c->out); }

bool connection_flush(struct connection *c) {
    while (connection_pending(c)) {
        const uint8_t *from = c->out + c->out_start;
        size_t bytes = c->out_end - c->out_start;
        ssize_t sent = c->tls         ? tls_write(c->tls, from, bytes)
                       : c->websocket ? websocket_write(c->websocket, c->fd, from, bytes)
                                      : send(c->fd, from, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || (errno == ENOTCONN && c->attaches == 0))) return false;
        if (sent < 0) {
            if (!c->closing) fatal("%s %u: send: %s", role_name(c), c->index, reason());
            c->peer_closed = true;
            c->out_start = c->out_end;
            free(c->websocket);
            c->websocket = NULL;
            return true;
        }
        c->out_start += (size_t)sent;
        c->last_write = clock_ns();
    }
    return true;
}

bool connection_writes(const struct connection *c) {
    return connection_pending(c) && !(c->tls && tls_reads_first(c->tls));
}

void connection_flow(struct connection *c) {
    struct writer w = {.at = connection_room(c, FLOW_ROOM)};
    frame_begin(&w, FLOW);
    put_uint(&w, c->next_incoming);
    put_uint(&w, c->incoming_limit - c->next_incoming);
    put_uint(&w, c->next_outgoing);
    put_uint(&w, 0x7fffffff);
    if (c->role == RECEIVER) {
        put_uint(&w, 0);
        put_uint(&w, c->delivery_count);
        put_uint(&w, c->credit_limit - c->delivery_count);
    }
    frame_end(&w);
    connection_wrote(c, w.at);
}

void connection_heartbeat(struct connection *c, uint64_t now) {
    if (!c->heartbeat_ms || now - c->last_write < (uint64_t)c->heartbeat_ms * 500000ull) return; /* half the time-out */
    uint8_t *at = connection_room(c, FRAME_HEADER);
    put32(at, FRAME_HEADER), put32(at + 4, 0x02000000);
    connection_wrote(c, at + FRAME_HEADER);
    connection_flush(c);
}

/* ---- handshake ----------------------------------------------------------------- */

static void begin(struct connection *c) {
    struct writer w = {.at = connection_room(c, HANDSHAKE_ROOM)};
    frame_begin(&w, BEGIN);
    if (c->container) put_ushort(&w, 0);
    else put_null(&w);
    put_uint(&w, c->next_outgoing), put_uint(&w, options.session_window), put_uint(&w, 0x7fffffff);
    frame_end(&w);
    connection_wrote(c, w.at);
}

/* Let a socket connect from loopback address `host`; the port is chosen when it connects. */
static bool bind_host(int fd, unsigned host) {
    int one = 1;
    struct sockaddr_in from = {.sin_family = AF_INET};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + ((1 + host / HOSTS) << 8) + host % HOSTS);
    return setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one) == 0
           && bind(fd, (struct sockaddr *)&from, sizeof from) == 0;
}

int connection_socket(int port, unsigned host) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, options.host, &to.sin_addr) != 1) fatal("--host %s: an IPv4 address is wanted", options.host);
    if (fd < 0 || stopped()) return -1;
    if ((host && !bind_host(fd, host)) || (connect(fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS)) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

bool connection_connect(struct connection *c, int port, unsigned host, SSL_SESSION *resumed, size_t buffer) {
    c->fd = connection_socket(port, host);
    if (c->fd < 0) {
        fatal("connection %u to %s:%d: %s", c->index, options.host, port, strerror(errno));
        return false;
    }
    if (options.tls) c->tls = tls_connect(c->fd, resumed);
    if (!c->in) {
        c->in_capacity = buffer;
        c->in = grown(NULL, buffer);
    }
    c->in_length = c->out_start = c->out_end = 0;
    c->closing = c->peer_closed = false;
    c->heartbeat_ms = 0;
    c->peer_max_frame = MIN_MAX_FRAME;
    c->next_outgoing = c->delivery_count = c->credit_limit = options.first_id;
    c->outgoing_limit = c->next_outgoing;
    return true;
}

void connection_disconnect(struct connection *c) {
    if (c->tls) {
        SSL_shutdown(c->tls); /* sends the alert, waits for none */
        SSL_free(c->tls);
        c->tls = NULL;
    }
    close(c->fd);
    c->fd = -1;
}

bool connection_start(struct connection *c, int port, size_t buffer) {
    if (!connection_connect(c, port, 0, NULL, buffer)) return false;
    if (options.websocket && !(c->websocket = websocket_connect(c->fd))) {
        fatal("connection %u to %s:%d: WebSocket: %s", c->index, options.host, port, strerror(errno));
        return false;
    }
    char name[64];
    if (c->container) snprintf(name, sizeof name, "%s", options.container);
    else snprintf(name, sizeof name, "amqpload-%d-%s-%u-%d", getpid(), role_name(c), c->index, c->fd);
    struct writer w = {.at = connection_room(c, HANDSHAKE_ROOM)};
    memcpy(w.at, "AMQP\0\1\0\0", HEADER_SIZE);
    w.at += HEADER_SIZE;
    frame_begin(&w, OPEN);
    put_string(&w, name), put_string(&w, options.host), put_uint(&w, options.max_frame), put_ushort(&w, 0);
    frame_end(&w);
    connection_wrote(c, w.at);
    if (!c->container) begin(c);
    return true;
}

void connection_attach(struct connection *c, uint32_t handle, enum role role, const char *address) {
    char name[64];
    snprintf(name, sizeof name, "%s-%d-%u-%u", role == SENDER ? "out" : "in", getpid(), c->index, handle);
    struct writer w = {.at = connection_room(c, HANDSHAKE_ROOM)};
    frame_begin(&w, ATTACH);
    put_string(&w, name), put_uint(&w, handle), put_bool(&w, role == RECEIVER);
    put_ubyte(&w, role == RECEIVER ? 2 : options.presettled); /* snd-settle-mode: mixed, settled or unsettled */
    put_ubyte(&w, 0);                                         /* rcv-settle-mode: first */
    put_terminus(&w, SOURCE, address);
    put_terminus(&w, TARGET, role == SENDER && options.anonymous ? NULL : address);
    if (role == SENDER) put_null(&w), put_null(&w), put_uint(&w, c->delivery_count);
    frame_end(&w);
    connection_wrote(c, w.at);
}

/* Answer the attach by which the router, as sender, opens a link to a container; accept its termini. */
static void answer_attach(struct connection *c, struct cursor *f) {
    struct bytes name = field_encoded(f);
    uint32_t handle = field_uint(f, 0);
    bool sends = !field_bool(f, false);
    field_skip(f, 2);
    struct bytes source = field_encoded(f), target = field_encoded(f);
    field_skip(f, 2);
    c->delivery_count = c->credit_limit = field_uint(f, 0);
    if (!sends || handle != 0 || c->attaches > 1) {
        fatal("container %u: one link is wanted on which the router sends; this is the %u. attach", c->index, c->attaches);
        return;
    }
    struct writer w = {.at = connection_room(c, HANDSHAKE_ROOM + name.length + source.length + target.length)};
    frame_begin(&w, ATTACH);
    put_encoded(&w, name), put_uint(&w, 0), put_bool(&w, true), put_ubyte(&w, 2), put_ubyte(&w, 0);
    put_encoded(&w, source), put_encoded(&w, target);
    frame_end(&w);
    connection_wrote(c, w.at);
}

/* ---- input --------------------------------------------------------------------- */

static void on_flow(struct connection *c, struct cursor *f) {
    uint32_t next_incoming = options.first_id, handle, count, credit;
    field_optional_uint(f, &next_incoming); /* null before the peer has seen our begin */
    c->outgoing_limit = next_incoming + field_uint(f, 0);
    field_skip(f, 2);
    bool link = field_optional_uint(f, &handle);
    bool counted = field_optional_uint(f, &count), credited = field_optional_uint(f, &credit);
    if (link && handle == 0 && credited && c->role == SENDER)
        c->credit_limit = (counted ? count : options.first_id) + credit;
    field_skip(f, 2);
    if (field_bool(f, false) && c->handlers) c->handlers->echo(c);
}

static void on_peer_end(struct connection *c, int code, struct cursor *f) {
    static const char *const names[] = {"detach", "end", "close"};
    struct bytes inside;
    const char *text = "without an error";
    int length = (int)strlen(text);
    if (c->closing) {
        c->peer_closed |= code == CLOSE;
        return;
    }
    if (code == DETACH) field_skip(f, 2);
    if (field_described(f, &inside) == ERROR) text = (const char *)inside.at, length = (int)inside.length;
    char clean[DETACHED_TEXT];
    int n = 0;
    for (int i = 0; i < length && n < DETACHED_TEXT - 1; i++)
        clean[n++] = text[i] < ' ' || text[i] > '~' ? ' ' : text[i]; /* the encoded fields of the error */
    fatal("%s %u: the peer sent %s: %.*s", role_name(c), c->index, names[code - DETACH], n, clean);
}

static void on_frame(struct connection *c, const uint8_t *frame, uint32_t size, uint64_t now) {
    struct cursor f = {0};
    struct bytes payload = {0};
    int code = frame_open(frame, size, &f, &payload);
    switch (code) {
    case 0: break;
    case OPEN:
        c->opened = true;
        field_skip(&f, 2);
        c->peer_max_frame = field_uint(&f, UINT32_MAX);
        if (c->peer_max_frame < MIN_MAX_FRAME)
            fatal("%s %u: the peer's max-frame-size is %u", role_name(c), c->index, c->peer_max_frame);
        if (c->peer_max_frame > options.max_frame) c->peer_max_frame = options.max_frame; /* limit of our buffers */
        field_skip(&f, 1);
        c->heartbeat_ms = field_uint(&f, 0);
        break;
    case BEGIN:
        field_skip(&f, 1);
        c->next_incoming = field_uint(&f, 0);
        c->incoming_limit = c->next_incoming + options.session_window;
        c->outgoing_limit = options.first_id + field_uint(&f, 0);
        if (c->container) begin(c);
        break;
    case ATTACH:
        c->attaches++;
        if (c->container) {
            answer_attach(c, &f);
            if (!stopped()) c->handlers->attached(c);
            break;
        }
        field_skip(&f, 9);
        if (c->role == RECEIVER) c->delivery_count = c->credit_limit = field_uint(&f, 0);
        break;
    case FLOW: on_flow(c, &f); break;
    case TRANSFER:
        if ((int32_t)(c->incoming_limit - c->next_incoming) <= 0)
            fault("%s %u: transfer %u is outside the session window", role_name(c), c->index, c->next_incoming);
        c->next_incoming++;
        if (c->handlers && c->role == RECEIVER) c->handlers->transfer(c, &f, payload, now);
        break;
    case DISPOSITION:
        if (c->handlers && c->role == SENDER) c->handlers->disposition(c, &f, now);
        break;
    case DETACH: case END: case CLOSE: on_peer_end(c, code, &f); break;
    default: fatal("%s %u: a frame that is no AMQP performative (0x%x)", role_name(c), c->index, (unsigned)code);
    }
    if (code > 0 && f.bad)
        fatal("%s %u: malformed fields in performative 0x%02x", role_name(c), c->index, (unsigned)code);
}

/* Handle complete frames at the start of the input; return the bytes used. */
static size_t eat(struct connection *c, uint64_t now) {
    size_t at = 0;
    while (c->in_length - at >= FRAME_HEADER && !stopped()) {
        if (memcmp(c->in + at, "AMQP", 4) == 0) { /* not a frame: one this large (1.1 GB) would be refused below */
            if (c->handlers && c->handlers->frame) c->handlers->frame(c, c->in + at, HEADER_SIZE, now);
            at += HEADER_SIZE;
            continue;
        }
        uint32_t size = get32(c->in + at);
        if (size < FRAME_HEADER || size > options.max_frame) {
            fatal("%s %u: a frame of %u bytes, our max-frame-size is %u", role_name(c), c->index, size,
                  options.max_frame);
            break;
        }
        if (c->in_length - at < size) break;
        if (c->handlers && c->handlers->frame) c->handlers->frame(c, c->in + at, size, now);
        else on_frame(c, c->in + at, size, now);
        at += size;
    }
    return at;
}

/* Read once, and handle the frames that are complete. */
static size_t read_once(struct connection *c, size_t most) {
    if (c->in_capacity == c->in_length) c->in = grown(c->in, c->in_capacity *= 2);
    size_t space = c->in_capacity - c->in_length;
    uint8_t *to = c->in + c->in_length;
    if (most > space) most = space;
    ssize_t got = c->tls         ? tls_read(c->tls, to, most)
                  : c->websocket ? websocket_read(c->websocket, c->fd, to, most)
                                 : recv(c->fd, to, most, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) {
        if (!c->closing)
            fatal("%s %u: %s", role_name(c), c->index, got ? reason() : "the connection was closed by the peer");
        c->peer_closed = true;
        return 0;
    }
    c->in_length += (size_t)got;
    size_t used = eat(c, clock_ns());
    memmove(c->in, c->in + used, c->in_length - used);
    c->in_length -= used;
    return (size_t)got;
}

size_t connection_read(struct connection *c, size_t most) {
    size_t all = read_once(c, most), part = all;
    /* Octets buffered by TLS do not make the socket readable, so they are read now. */
    while (c->tls && part && !stopped()) all += part = read_once(c, most);
    return all;
}

/* ---- outside the run -------------------------------------------------------------- */

bool connection_attached(const struct connection *c) { return c->attaches > 0; }
bool connection_opened(const struct connection *c) { return c->opened; }
bool connection_credited(const struct connection *c) { return (int32_t)(c->credit_limit - c->delivery_count) > 0; }

static struct connection **beside;
static unsigned besides;
static struct pollfd *polled; /* one for each of `beside`, and one more */

void connections_beside(struct connection **all, unsigned count) {
    beside = all, besides = count;
    polled = grown(polled, (count + 1) * sizeof *polled);
}

static void wait_io(struct connection *c, int milliseconds) {
    if (!polled) connections_beside(NULL, 0);
    for (unsigned i = 0; i <= besides; i++) {
        struct connection *each = i < besides ? beside[i] : c;
        short wanted = connection_writes(each) ? POLLIN | POLLOUT : POLLIN;
        polled[i] = (struct pollfd){i < besides && each == c ? -1 : each->fd, wanted, 0};
    }
    if (poll(polled, besides + 1, milliseconds) <= 0) return;
    for (unsigned i = 0; i <= besides; i++) {
        struct connection *each = i < besides ? beside[i] : c;
        if (polled[i].revents & POLLOUT) connection_flush(each);
        if (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) {
            connection_read(each, SIZE_MAX);
            if (each->tls) connection_flush(each); /* a TLS write may have waited for input */
        }
    }
}

bool connection_await(struct connection *c, bool (*done)(const struct connection *), double seconds) {
    const char *what = done == connection_credited ? "credit" : "answer to attach";
    uint64_t until = clock_ns() + (uint64_t)(seconds * 1e9);
    while (!done(c) && !stopped()) {
        uint64_t now = clock_ns();
        if (now >= until) fatal("%s %u: no %s within %g s", role_name(c), c->index, what, seconds);
        else wait_io(c, (int)((until - now) / 1000000) + 1);
    }
    return !stopped();
}

void connections_close(struct connection **all, unsigned count, double seconds) {
    uint64_t until = clock_ns() + (uint64_t)(seconds * 1e9);
    for (unsigned i = 0; i < count; i++) {
        struct writer w = {.at = connection_room(all[i], FLOW_ROOM)};
        frame_begin(&w, CLOSE);
        frame_end(&w);
        connection_wrote(all[i], w.at);
        all[i]->closing = true;
        connection_flush(all[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        struct connection *c = all[i];
        for (uint64_t now; !c->peer_closed && !stopped() && (now = clock_ns()) < until;)
            wait_io(c, (int)((until - now) / 1000000) + 1);
        if (c->tls) SSL_free(c->tls);
        free(c->websocket);
        close(c->fd);
        free(c->in), free(c->out);
        c->in = c->out = NULL;
    }
}

/* relay: byte relay, the limit of any user-space router. It joins a sender port and a receiver port
 * without parsing. AMQP is symmetric, so amqpload --direct then talks to itself through the relay.
 *
 *   relay [BUFFER_BYTES]      prints {"sender_port": N, "receiver_port": M}, then relays until killed
 *   relay BUFFER_BYTES PORT   prints {"sender_port": N}, joins each connection with a new one to PORT
 *
 * The i-th connection to one port is joined with the i-th to the other. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 256, BACKLOG = 1024, DEFAULT_BUFFER = 65536 };

struct end { /* connection, accepted or opened */
    int fd;
    bool ended;         /* has sent its last byte */
    uint32_t interest;
    struct end *other;  /* NULL until its counterpart has connected */
    uint8_t *waiting;   /* octets for it that its socket did not accept yet */
    size_t start, length;
    struct end *next;   /* in the queue of ends without a counterpart */
};
static int epoll_fd, listeners[2];
static struct end *queues[2], *dead;
static uint8_t *buffer;
static size_t buffer_size = DEFAULT_BUFFER;
static uint16_t next_port; /* 0: counterparts connect to the other listener */

static void failed(const char *what) {
    fprintf(stderr, "relay: %s: %s\n", what, strerror(errno));
    exit(2);
}

static int listen_any(uint16_t *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, BACKLOG)) failed("listen");
    if (getsockname(fd, (struct sockaddr *)&a, &n)) failed("getsockname");
    *port = ntohs(a.sin_port);
    return fd;
}

static void watch(struct end *e, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = e};
    if (e->interest == events) return;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, e->fd, &event)) failed("epoll_ctl");
    e->interest = events;
}

/* Watch a pair: read an end while nothing waits for its counterpart; write it while octets wait for it. */
static void watch_pair(struct end *e) {
    struct end *pair[2] = {e, e->other};
    for (int i = 0; i < 2; i++) {
        struct end *a = pair[i], *b = pair[!i];
        watch(a, (!a->ended && !b->length ? EPOLLIN : 0) | (a->length ? EPOLLOUT : 0));
    }
}

static struct end *new_end(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct end *e = calloc(1, sizeof *e);
    if (!e || !(e->waiting = malloc(buffer_size))) failed("memory");
    e->fd = fd;
    struct epoll_event event = {.events = 0, .data.ptr = e};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event)) failed("epoll_ctl");
    return e;
}

static void join(struct end *a, struct end *b) {
    a->other = b, b->other = a;
    watch_pair(a);
}

static struct end *connect_next(void) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(next_port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)) failed("connect");
    if (fcntl(fd, F_SETFL, O_NONBLOCK)) failed("fcntl");
    return new_end(fd);
}

static void accept_one(int side) {
    int fd = accept4(listeners[side], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EAGAIN || errno == ECONNABORTED)) return;
    if (fd < 0) failed("accept");
    struct end *e = new_end(fd), **queue = &queues[!side], *first = *queue;
    if (next_port) {
        join(e, connect_next());
        return;
    }
    if (first) {
        *queue = first->next;
        join(e, first);
        return;
    }
    for (queue = &queues[side]; *queue; queue = &(*queue)->next) {}
    *queue = e;
}

static void drop_pair(struct end *e) { /* freed after the batch of events, which may still refer to it */
    struct end *o = e->other;
    close(e->fd), close(o->fd);
    e->fd = o->fd = -1;
    e->next = o, o->next = dead, dead = e;
}

/* Send to `to`; octets that do not fit wait. False: the connection is broken. */
static bool pass(struct end *to, const uint8_t *at, size_t n) {
    ssize_t sent = send(to->fd, at, n, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return false;
    if (sent < 0) sent = 0;
    size_t left = n - (size_t)sent;
    if (left && at != to->waiting + to->start) memcpy(to->waiting, at + sent, left), to->start = 0;
    else to->start += (size_t)sent;
    to->length = left;
    return true;
}

/* Drop an end without a counterpart. Only a hang-up is reported for such an end. */
static void drop_waiting(struct end *e) {
    for (int side = 0; side < 2; side++)
        for (struct end **at = &queues[side]; *at; at = &(*at)->next)
            if (*at == e) {
                *at = e->next;
                close(e->fd);
                e->fd = -1;
                e->next = dead, dead = e;
                return;
            }
}

static void serve(struct end *e, uint32_t events) {
    if (e->fd < 0) return;
    if (!e->other) {
        drop_waiting(e);
        return;
    }
    struct end *o = e->other;
    bool alive = true;
    if ((events & EPOLLOUT) && e->length) alive = pass(e, e->waiting + e->start, e->length);
    if (alive && !e->ended && !o->length && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
        ssize_t n = recv(e->fd, buffer, buffer_size, 0);
        if (n > 0) alive = pass(o, buffer, (size_t)n);
        else if (n == 0) e->ended = true;
        else alive = errno == EAGAIN;
    }
    if (e->ended && !o->length && (events & (EPOLLHUP | EPOLLERR))) alive = false;
    if (alive && e->ended && !o->length) alive = shutdown(o->fd, SHUT_WR) == 0 && !o->ended;
    if (alive && o->ended && !e->length) alive = !e->ended;
    if (!alive) drop_pair(e);
    else watch_pair(e);
}

int main(int argc, char **argv) {
    struct rlimit limit;
    uint16_t ports[2];
    unsigned long next = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    if (argc > 1) buffer_size = strtoul(argv[1], NULL, 10);
    if (argc > 3 || buffer_size == 0 || next > UINT16_MAX || (argc > 2 && next == 0)) {
        fprintf(stderr, "usage: relay [BUFFER_BYTES [PORT]]\n");
        return 2;
    }
    next_port = (uint16_t)next;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit)) failed("RLIMIT_NOFILE");
    }
    buffer = malloc(buffer_size);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!buffer || epoll_fd < 0) failed("start");
    for (int i = 0; i < (next_port ? 1 : 2); i++) {
        listeners[i] = listen_any(&ports[i]);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listeners[i]};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listeners[i], &event)) failed("epoll_ctl");
    }
    if (next_port) printf("{\"sender_port\": %u}\n", ports[0]);
    else printf("{\"sender_port\": %u, \"receiver_port\": %u}\n", ports[0], ports[1]);
    fflush(stdout);
    for (struct epoll_event events[EVENTS];;) {
        int n = epoll_wait(epoll_fd, events, EVENTS, -1);
        if (n < 0 && errno != EINTR) failed("epoll_wait");
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &listeners[0]) accept_one(0);
            else if (events[i].data.ptr == &listeners[1]) accept_one(1);
            else serve(events[i].data.ptr, events[i].events);
        }
        while (dead) {
            struct end *next = dead->next;
            free(dead->waiting), free(dead);
            dead = next;
        }
    }
}

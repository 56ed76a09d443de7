#define _GNU_SOURCE
#include "standing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client.h"
#include "fault.h"
#include "options.h"
#include "script.h"

enum {
    BUFFER = 1024,
    EVENTS = 256,
    STARTS = 64,           /* connections begun before events are handled again */
    INPUT = UINT32_MAX,    /* epoll data of the standard input */
    RETRY = 20000000,      /* ns without attempts after a client has lost a connection that was not complete */
    CALM = 300000000,      /* ns without a loss after which all clients count as connected */
    SECOND = 1000000000,
    SHORT_WAIT_MS = 5,
    LONG_WAIT_MS = 100,
};

static struct client *clients;
static unsigned *waiting, next_waiting, waits; /* ring of the clients without a connection */
static unsigned connecting, complete;
static int epoll;

/* The present storm: from the first client that connects to the last one that has its links. */
static struct { uint64_t began, ended; unsigned came, retries; } storm;
static uint64_t retry_at, progress_at; /* ns */

static void let_wait(struct client *l) { waiting[(next_waiting + waits++) % options.standing] = l->c.index; }

static void start(struct client *l) {
    l->c.interest = 0;
    l->sender_handle = UINT32_MAX;
    if (!connection_connect(&l->c, options.port, l->c.index + 1, NULL, BUFFER)) return;
    l->c.closing = true; /* the peer may end the stream at any time */
    l->busy = true;
    connecting++;
    client_start(l, script_standing);
    client_watch(l, epoll, EPOLLIN | EPOLLOUT); /* written when it is connected */
}

static void start_some(uint64_t now) {
    if (!waits || now < retry_at) return;
    if (!storm.began) storm.began = now;
    for (unsigned i = 0; i < STARTS && waits && connecting < options.opening && !stopped(); i++) {
        struct client *l = &clients[waiting[next_waiting]];
        next_waiting = (next_waiting + 1) % options.standing;
        waits--;
        start(l);
    }
}

/* Return the ms until a client may connect. */
static int longest_wait(uint64_t now) {
    if (!waits || connecting >= options.opening) return LONG_WAIT_MS;
    return now < retry_at ? SHORT_WAIT_MS : 0;
}

static void lose(struct client *l, uint64_t now) {
    if (l->busy) connecting--, storm.retries++, retry_at = now + RETRY;
    else complete--;
    connection_disconnect(&l->c);
    l->c.interest = 0;
    let_wait(l);
}

static void act(struct client *l, uint32_t events, uint64_t now) {
    if (!l->c.interest) return;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) connection_read(&l->c, SIZE_MAX);
    if (!l->c.peer_closed) connection_flush(&l->c);
    if (l->c.peer_closed) {
        lose(l, now);
        return;
    }
    client_watch(l, epoll, EPOLLIN | (connection_writes(&l->c) ? EPOLLOUT : 0));
    if (!l->busy || !client_done(l)) return;
    l->busy = false;
    connecting--, complete++, storm.came++;
    storm.ended = progress_at = now;
}

static void heartbeats(uint64_t now) {
    static uint64_t due;
    if (now < due) return;
    due = now + SECOND;
    for (unsigned i = 0; i < options.standing; i++)
        if (clients[i].c.interest && !clients[i].busy) connection_heartbeat(&clients[i].c, now);
}

static void report(uint64_t now) {
    if (!storm.came || complete < options.standing || now - storm.ended < CALM) return;
    printf("{\"clients\": %u, \"retries\": %u, \"began\": %.3f, \"ended\": %.3f}\n", storm.came, storm.retries,
           (double)storm.began / SECOND, (double)storm.ended / SECOND);
    fflush(stdout);
    memset(&storm, 0, sizeof storm);
}

/* Return true at the end of the standard input. */
static bool input_ended(void) {
    char octets[64];
    return read(STDIN_FILENO, octets, sizeof octets) == 0;
}

static void serve(void) {
    struct epoll_event events[EVENTS];
    for (bool ended = false; !ended && !stopped();) {
        uint64_t now = clock_ns();
        start_some(now);
        int n = epoll_wait(epoll, events, EVENTS, longest_wait(now));
        now = clock_ns();
        for (int k = 0; k < n && !stopped(); k++) {
            if (events[k].data.u32 == INPUT) ended = input_ended();
            else act(&clients[events[k].data.u32], events[k].events, now);
        }
        heartbeats(now);
        report(now);
        if (complete == options.standing) progress_at = now;
        else if (now - progress_at > (uint64_t)(options.stall_seconds * SECOND))
            fatal("no client has connected for %g s: %u of %u are connected", options.stall_seconds, complete,
                  options.standing);
    }
}

void standing_run(void) {
    struct epoll_event input = {.events = EPOLLIN, .data.u32 = INPUT};
    clients = calloc(options.standing, sizeof *clients);
    waiting = calloc(options.standing, sizeof *waiting);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!clients || !waiting || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &input)) {
        fatal("cannot prepare %u clients that wait for standard input: %s", options.standing, strerror(errno));
        return;
    }
    for (unsigned i = 0; i < options.standing; i++) {
        clients[i].c.index = i, clients[i].c.handlers = client_handlers();
        let_wait(&clients[i]);
    }
    progress_at = clock_ns();
    serve();
    for (unsigned i = 0; i < options.standing; i++) {
        if (clients[i].c.interest) connection_disconnect(&clients[i].c);
        free(clients[i].c.in), free(clients[i].c.out);
    }
    close(epoll);
    free(clients), free(waiting);
}

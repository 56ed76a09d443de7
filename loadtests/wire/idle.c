#define _GNU_SOURCE
#include "idle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "connection.h"
#include "fault.h"
#include "options.h"
#include "process.h"

enum {
    BUFFER = 2048,         /* bytes of input, enough for the handshake's answers */
    LINKS = 2,
    EVENTS = 256,
    STEADY_KIB = 64,       /* two samples this close: memory is stable */
    STEADY_SAMPLES = 50,
};

static bool open_one(struct connection *c, int epoll, unsigned i) {
    c->index = i;
    c->role = RECEIVER;
    snprintf(c->address, sizeof c->address, "%s.%u", options.address, i);
    if (!connection_start(c, options.port, BUFFER)) return false;
    connection_attach(c, 0, RECEIVER, c->address);
    connection_attach(c, 1, SENDER, c->address);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u32 = i};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event)) {
        fatal("epoll_ctl: %s", strerror(errno));
        return false;
    }
    return true;
}

/* Open all connections; return the number with both links attached. */
static unsigned open_all(struct connection *all, int epoll) {
    unsigned opened = 0, ready = 0;
    struct epoll_event events[EVENTS];
    while (ready < options.idle && !stopped()) {
        while (opened < options.idle && opened - ready < options.opening && open_one(&all[opened], epoll, opened))
            opened++;
        int n = epoll_wait(epoll, events, EVENTS, (int)(options.stall_seconds * 1000));
        if (n == 0) fatal("no answer for %g s: %u connections opened, %u ready", options.stall_seconds, opened, ready);
        for (int k = 0; k < n; k++) {
            struct connection *c = &all[events[k].data.u32];
            unsigned before = c->attaches;
            if (events[k].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) connection_read(c, SIZE_MAX);
            if (c->out_start < c->out_end) {
                connection_flush(c);
                struct epoll_event event = {.events = EPOLLIN | (connection_writes(c) ? EPOLLOUT : 0),
                                            .data.u32 = events[k].data.u32};
                epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
            }
            if (before < LINKS && c->attaches >= LINKS) ready++;
        }
    }
    return ready;
}

/* Sample until two samples agree: the router frees memory that it needed for opening. */
static uint64_t steady_pss(void) {
    uint64_t last = processes_pss();
    for (int i = 0; i < STEADY_SAMPLES; i++) {
        usleep(100000);
        uint64_t now = processes_pss();
        if (now + STEADY_KIB > last && last + STEADY_KIB > now) return now;
        last = now;
    }
    return last;
}

void idle_run(void) {
    struct connection *all = calloc(options.idle, sizeof *all), **list = calloc(options.idle, sizeof *list);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!all || !list || epoll < 0) {
        fatal("cannot prepare %u connections: %s", options.idle, strerror(errno));
        return;
    }
    uint64_t before = steady_pss();
    struct cpu cpu = processes_cpu();
    uint64_t start = clock_ns();
    unsigned ready = open_all(all, epoll);
    double seconds = (double)(clock_ns() - start) / 1e9;
    struct cpu used = processes_cpu();
    uint64_t after = steady_pss();
    unsigned closed = 0;
    for (unsigned i = 0; i < ready; i++) {
        connection_read(&all[i], SIZE_MAX); /* input since then: nothing, or a close */
        closed += all[i].peer_closed;
    }
    for (unsigned i = 0; i < options.idle; i++) list[i] = &all[i];
    if (!stopped()) connections_close(list, ready, options.stall_seconds);
    close(epoll);
    printf("{\"connections\": %u, \"closed\": %u, \"seconds\": %.3f, \"per_second\": %.0f", ready, closed, seconds,
           ready / seconds);
    if (options.pid_count && ready)
        printf(", \"kib_per_connection\": %.2f, \"pss_before\": %lu, \"pss_after\": %lu, "
               "\"router_cpu_us_per_connection\": %.1f",
               ((double)after - (double)before) / ready, (unsigned long)before, (unsigned long)after,
               (used.user + used.system - cpu.user - cpu.system) / ready * 1e6);
    printf(", \"failed\": %s}\n", faulty() ? "true" : "false");
    free(all), free(list);
}

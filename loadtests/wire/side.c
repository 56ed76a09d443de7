#define _GNU_SOURCE
#include "side.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "fault.h"

enum { EVENTS = 256, SECOND = 1000000000, WAKE = UINT32_MAX, LONGEST_WAIT = SECOND / 10 };

static void failed(const char *what) {
    fprintf(stderr, "amqpload: %s: %s\n", what, strerror(errno));
    exit(2);
}

void side_open(struct side *s, const char *name, struct connection **all, unsigned count) {
    s->name = name, s->all = all, s->count = count;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (s->epoll < 0 || s->wake < 0) failed("epoll_create1 or eventfd");
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = WAKE};
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->wake, &event)) failed("epoll_ctl");
    for (unsigned i = 0; i < count; i++) {
        event = (struct epoll_event){.events = EPOLLIN, .data.u32 = i};
        all[i]->interest = EPOLLIN;
        if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, all[i]->fd, &event)) failed("epoll_ctl");
    }
}

void side_wake(struct side *s) {
    uint64_t one = 1;
    if (write(s->wake, &one, sizeof one) < 0 && errno != EAGAIN) failed("write to an eventfd");
}

void side_interest(struct side *s, struct connection *c, bool reading) {
    uint32_t wanted = (reading ? EPOLLIN : 0) | (connection_pending(c) ? EPOLLOUT : 0);
    if (wanted == c->interest) return;
    struct epoll_event event = {.events = wanted, .data.u32 = c->index};
    if (epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &event)) failed("epoll_ctl");
    c->interest = wanted;
}

static void serve(struct side *s, unsigned i, uint32_t events, uint64_t now) {
    struct connection *c = s->all[i];
    size_t most = SIZE_MAX;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        if (s->allowance) most = s->allowance(s, i, now);
        if (most) connection_read(c, most);
    }
    if (events & EPOLLOUT) connection_flush(c);
    s->served(s, i, now);
    side_interest(s, c, most != 0);
}

static int wait_events(struct side *s, struct epoll_event *events, uint64_t due) {
    uint64_t now = clock_ns();
    uint64_t wait = due <= now ? 0 : due - now < LONGEST_WAIT ? due - now : LONGEST_WAIT;
    struct timespec timeout = {.tv_nsec = (long)wait};
    int ready = epoll_pwait2(s->epoll, events, EVENTS, &timeout, NULL);
    if (ready < 0 && errno != EINTR) failed("epoll_pwait2");
    return ready;
}

void side_run(struct side *s) {
    struct epoll_event events[EVENTS];
    uint64_t due = 0, heartbeats = clock_ns() + SECOND;
    prctl(PR_SET_TIMERSLACK, 1UL); /* ns; the default of 50 us would add jitter to paced sending */
    while (!stopped() && !s->finished(s, clock_ns())) {
        int ready = wait_events(s, events, due);
        uint64_t now = clock_ns();
        for (int k = 0; k < ready; k++) {
            uint64_t ignored;
            if (events[k].data.u32 != WAKE) serve(s, events[k].data.u32, events[k].events, now);
            else if (read(s->wake, &ignored, sizeof ignored) < 0 && errno != EAGAIN) failed("read of an eventfd");
        }
        due = s->tick(s, now);
        if (now < heartbeats) continue;
        heartbeats = now + SECOND;
        for (unsigned i = 0; i < s->count; i++) connection_heartbeat(s->all[i], now);
    }
}

void side_close(struct side *s) { close(s->epoll), close(s->wake); }

#define _GNU_SOURCE
#include "handshakes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "connection.h"
#include "fault.h"
#include "histogram.h"
#include "options.h"
#include "process.h"
#include "tls.h"

enum { EVENTS = 256 };

struct attempt {
    int fd;
    SSL *tls;
    uint64_t started; /* ns */
    bool greeted;     /* the handshake is complete; waiting for a ticket */
};

static struct histogram latency;
static unsigned resumed;
static int epoll;

static void begin(struct attempt *a, unsigned i, SSL_SESSION *session) {
    a->started = clock_ns();
    a->greeted = false;
    a->fd = connection_socket(options.port, 0);
    if (a->fd < 0) {
        fatal("handshake %u: connect: %s", i, strerror(errno));
        return;
    }
    a->tls = tls_connect(a->fd, session);
    struct epoll_event event = {.events = EPOLLOUT, .data.u32 = i};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, a->fd, &event)) fatal("epoll_ctl: %s", strerror(errno));
}

static void end(struct attempt *a) {
    SSL_set_shutdown(a->tls, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(a->tls);
    close(a->fd);
    a->tls = NULL;
}

/* Advance an attempt. Returns true if it is complete. */
static bool step(struct attempt *a, unsigned i, bool ticket) {
    uint8_t octet;
    if (!a->greeted) {
        int result = SSL_do_handshake(a->tls);
        if (result != 1) {
            struct epoll_event event = {.events = tls_reads_first(a->tls) ? EPOLLIN : EPOLLOUT, .data.u32 = i};
            int error = SSL_get_error(a->tls, result);
            if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
                fatal("handshake %u: failed (%d, %s)", i, error, strerror(errno));
                return true;
            }
            epoll_ctl(epoll, EPOLL_CTL_MOD, a->fd, &event);
            return false;
        }
        histogram_add(&latency, clock_ns() - a->started);
        resumed += SSL_session_reused(a->tls) ? 1 : 0;
        a->greeted = true;
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        epoll_ctl(epoll, EPOLL_CTL_MOD, a->fd, &event);
    }
    /* A ticket arrives without stream octets, and perhaps with the end of the stream. */
    return !ticket || tls_read(a->tls, &octet, 1) >= 0 || errno != EAGAIN;
}

/* Run `count` handshakes. session: resumed by each, or NULL. into: receives a ticket; NULL: not wanted. */
static void run_all(struct attempt *all, unsigned count, SSL_SESSION *session, SSL_SESSION **into) {
    unsigned begun = 0, over = 0, width = options.opening < count ? options.opening : count;
    struct epoll_event events[EVENTS];
    while (begun < width) begin(&all[begun], begun, session), begun++;
    while (over < count && !stopped()) {
        int n = epoll_wait(epoll, events, EVENTS, (int)(options.stall_seconds * 1000));
        if (n == 0) fatal("no answer for %g s: %u handshakes of %u", options.stall_seconds, over, count);
        for (int k = 0; k < n && !stopped(); k++) {
            unsigned i = events[k].data.u32;
            bool done = step(&all[i], i, into != NULL);
            if (into && (*into = tls_ticket())) done = true;
            if (!done) continue;
            if (into && !*into) fatal("handshake %u: no ticket came", i);
            end(&all[i]);
            over++;
            if (begun < count && !stopped()) begin(&all[i], i, session), begun++;
        }
    }
}

void handshakes_run(void) {
    struct attempt *all = calloc(options.opening, sizeof *all);
    SSL_SESSION *session = NULL;
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!all || epoll < 0) {
        fatal("cannot prepare: %s", strerror(errno));
        return;
    }
    if (options.resume) run_all(all, 1, NULL, &session);
    resumed = 0;
    latency = (struct histogram){0};
    struct cpu before = processes_cpu();
    uint64_t start = clock_ns();
    if (!stopped()) run_all(all, options.handshakes, session, NULL);
    double seconds = (double)(clock_ns() - start) / 1e9;
    struct cpu after = processes_cpu();
    printf("{\"handshakes\": %u, \"resumed\": %u, \"seconds\": %.3f, \"per_second\": %.0f, \"median_us\": %.1f, "
           "\"p99_us\": %.1f, \"router_cpu_us\": %.1f, \"failed\": %s}\n",
           options.handshakes, resumed, seconds, options.handshakes / seconds,
           (double)histogram_at(&latency, 0.5) / 1e3, (double)histogram_at(&latency, 0.99) / 1e3,
           (after.user + after.system - before.user - before.system) / options.handshakes * 1e6,
           faulty() ? "true" : "false");
    if (session) SSL_SESSION_free(session);
    close(epoll);
    free(all);
}

#define _GNU_SOURCE
#include "operations.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client.h"
#include "echo.h"
#include "fault.h"
#include "options.h"
#include "process.h"
#include "script.h"
#include "tls.h"

enum { BUFFER = 4096, EVENTS = 256, REST_MICROSECONDS = 50000, REST_SAMPLES = 40, SECOND_MS = 1000 };

static struct client *clients; /* the last one is the service */
static unsigned width, resumed;
static int epoll;
static SSL_SESSION *session; /* each connection resumes it; NULL: none */

static void flush(struct client *l) {
    connection_flush(&l->c);
    client_watch(l, epoll, EPOLLIN | (connection_writes(&l->c) ? EPOLLOUT : 0));
}

static void start(struct client *l, const struct step *script, bool connects) {
    if (connects) {
        l->c.interest = 0;
        l->sender_handle = UINT32_MAX;
        if (!connection_connect(&l->c, options.port, l->c.index + 1, session, BUFFER)) return;
    }
    client_start(l, script);
    l->busy = true;
    if (connects) client_watch(l, epoll, EPOLLIN | EPOLLOUT); /* written when it is connected */
    else flush(l);
}

static void leave(struct client *l) {
    if (l->c.tls && SSL_session_reused(l->c.tls)) resumed++;
    connection_disconnect(&l->c);
    l->c.interest = 0;
}

/* Act on a connection. Returns true when its script is complete. */
static bool act(struct client *l, uint32_t events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) connection_read(&l->c, SIZE_MAX);
    if (l->busy && client_done(l)) {
        l->busy = false;
        return true;
    }
    if (l->c.peer_closed) fatal("client %u at step %s: the connection was closed", l->c.index, l->step->name);
    else flush(l);
    return false;
}

/* Write heartbeats of connections that are open; their clients may wait long. */
static void heartbeats(void) {
    static uint64_t due;
    uint64_t now = clock_ns();
    if (now < due) return;
    due = now + SECOND_MS * 1000000ull;
    for (unsigned i = 0; i <= width && !stopped(); i++)
        if (clients[i].c.interest && !clients[i].c.closing) connection_heartbeat(&clients[i].c, now);
}

/* Complete a script `count` times, with `crowd` clients from `first` on at a time. */
static void run(unsigned first, unsigned crowd, const struct step *script, unsigned count, bool connects, bool leaves) {
    unsigned begun = 0, over = 0;
    struct epoll_event events[EVENTS];
    uint64_t last = clock_ns(); /* time of the last event */
    for (; begun < crowd && begun < count && !stopped(); begun++) start(&clients[first + begun], script, connects);
    while (over < count && !stopped()) {
        int n = epoll_wait(epoll, events, EVENTS, SECOND_MS);
        heartbeats();
        if (n > 0) last = clock_ns();
        else if (clock_ns() - last > (uint64_t)(options.stall_seconds * 1e9))
            fatal("no answer for %g s: %u repetitions of %u", options.stall_seconds, over, count);
        for (int k = 0; k < n && !stopped(); k++) {
            struct client *l = &clients[events[k].data.u32];
            if (!act(l, events[k].events) || stopped()) continue;
            over++, l->repeats++;
            if (leaves) leave(l);
            if (begun < count) start(l, script, connects), begun++;
        }
    }
}

/* Get a ticket from a client that connects alone. */
static void take_ticket(const struct operation *operation) {
    run(0, 1, operation->repeat, 1, true, true);
    session = tls_ticket();
    resumed = 0;
    if (!session && !stopped()) fatal("no ticket came");
}

static double seconds_of(int pid) {
    struct cpu used = process_cpu(pid);
    return used.user + used.system;
}

/* Sample until the processes rest: they work on after their last answer. */
static void rest(double *cpu) {
    double before = -1;
    for (int i = 0; i < REST_SAMPLES; i++) {
        double sum = 0;
        for (int p = 0; p < options.pid_count; p++) sum += cpu[p] = seconds_of(options.pids[p]);
        if (sum == before) return;
        before = sum;
        usleep(REST_MICROSECONDS);
    }
}

static void report(unsigned done, double seconds, const double *before, const double *after) {
    printf("{\"operations\": %u, \"resumed\": %u, \"seconds\": %.3f, \"per_second\": %.1f, \"cpu_us\": {", done, resumed,
           seconds, done / seconds);
    for (int p = 0; p < options.pid_count; p++)
        printf("%s\"%d\": %.2f", p ? ", " : "", options.pids[p], (after[p] - before[p]) / done * 1e6);
    printf("}, \"failed\": %s}\n", faulty() ? "true" : "false");
}

/* Repeat the operation and measure. */
static void measure(const struct operation *operation) {
    unsigned count = (unsigned)options.count / operation->links;
    bool connects = !operation->prepare;
    double before[MAX_PIDS], after[MAX_PIDS];
    rest(before);
    uint64_t start_ns = clock_ns();
    run(0, width, operation->repeat, count, connects, connects);
    double seconds = (double)(clock_ns() - start_ns) / 1e9;
    rest(after);
    if (session && !stopped() && resumed != count) fatal("only %u of %u sessions were resumed", resumed, count);
    if (!stopped()) report(count * operation->links, seconds, before, after);
}

static const struct operation *wanted(void) {
    const struct operation *operation = operation_find(options.operation);
    if (!operation || options.count < operation->links || options.opening > ADDRESSES
        || (options.resume && operation->prepare)) {
        fprintf(stderr, "amqpload: --operation %s: unknown, --count too small, --opening above %d, or --resume of standing "
                "connections\n", options.operation, ADDRESSES);
        exit(2);
    }
    return operation;
}

void operations_run(void) {
    const struct operation *operation = wanted();
    uint64_t repetitions = options.count / operation->links;
    width = options.opening < repetitions ? options.opening : (unsigned)repetitions;
    clients = calloc(width + 1, sizeof *clients);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!clients || epoll < 0) {
        fatal("cannot prepare: %s", strerror(errno));
        return;
    }
    for (unsigned i = 0; i <= width; i++) clients[i].c.index = i, clients[i].c.handlers = client_handlers();
    if (operation->service) {
        run(width, 1, script_service, 1, true, false);
        echo_prepare(&clients[width]);
    }
    if (options.resume) take_ticket(operation);
    if (operation->prepare && !stopped()) run(0, width, operation->prepare, width, true, false);
    if (!stopped()) measure(operation);
    if (operation->prepare && !stopped()) run(0, width, script_close, width, false, true);
    if (operation->service && !stopped()) run(width, 1, script_close, 1, false, true);
    if (session) SSL_SESSION_free(session);
    for (unsigned i = 0; i <= width; i++) free(clients[i].c.in), free(clients[i].c.out);
    close(epoll);
    free(clients);
}

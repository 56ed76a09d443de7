/* amqpload: a wire-level AMQP 1.0 load generator and checker; `amqpload --help` lists its options.
 *
 * It implements just enough AMQP to load a router while using little CPU itself: credit in bulk,
 * dispositions as ranges, one thread for all senders and one for all receivers. Every message is
 * checked on arrival. With --direct both ends are opened before it waits for either, so that a
 * byte relay between them, the limit of any user-space router, is measured in the same way. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fault.h"
#include "handshakes.h"
#include "idle.h"
#include "operations.h"
#include "options.h"
#include "process.h"
#include "report.h"
#include "sides.h"
#include "standing.h"

enum {
    INPUT_BUFFER = 262144,   /* bytes read at once; grows when a frame needs more */
    SAMPLE_MS = 50,          /* interval of memory samples */
    PSS_EVERY = 5,           /* samples for each of PSS, which takes the router's mmap lock */
    PLACE_TRIES = 64,
};
static const double ATTACH_SECONDS = 20, CLOSE_SECONDS = 5;

struct run run;

static void *zeroed(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "amqpload: out of memory (%zu of %zu bytes)\n", count, size);
        exit(2);
    }
    return memory;
}

static void raise_file_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit)) fprintf(stderr, "amqpload: RLIMIT_NOFILE: %s\n", strerror(errno));
}

static uint8_t *make_pattern(void) {
    run.period = options.random ? RANDOM_PERIOD : PATTERN_PERIOD;
    run.stride = options.random ? RANDOM_STRIDE : 0;
    size_t bytes = (size_t)options.max_frame + run.period;
    uint8_t *pattern = zeroed(bytes, 1);
    uint64_t state = 1;
    for (size_t i = 0; i < bytes; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        pattern[i] = i >= run.period ? pattern[i - run.period] : options.random ? (uint8_t)(state >> 56) : (uint8_t)i;
    }
    return pattern;
}

static void find_address(struct connection *c, unsigned i) {
    if (options.distinct) snprintf(c->address, sizeof c->address, "%s.%u", options.address, i);
    else snprintf(c->address, sizeof c->address, "%s", options.address);
}

static bool start_end(struct connection *c, enum role role, unsigned i) {
    int port = role == RECEIVER && options.receiver_port ? options.receiver_port : options.port;
    c->role = role;
    c->index = i;
    find_address(c, i);
    c->container = role == RECEIVER && options.container;
    if (!connection_start(c, port, INPUT_BUFFER)) return false;
    if (!c->container) connection_attach(c, 0, role, c->address);
    connection_flush(c);
    return true;
}

/* Open the receivers with credit, before the senders, so that no message can miss them. */
static bool open_receivers(void) {
    for (unsigned i = 0; i < options.receivers; i++) {
        if (!start_end(&run.receivers[i].c, RECEIVER, i)) return false;
        if (options.direct && !start_end(&run.senders[i].c, SENDER, i)) return false;
    }
    for (unsigned i = 0; i < options.receivers; i++) {
        struct connection *c = &run.receivers[i].c;
        if (!connection_await(c, c->container ? connection_opened : connection_attached, ATTACH_SECONDS)) return false;
        if (!c->container) receiver_credit(&run.receivers[i]);
        connection_flush(c);
    }
    return true;
}

/* Reopen the single sender until the router has placed it as --place requires. */
static bool place_sender(struct measured *m) {
    static struct connection spare[PLACE_TRIES];
    struct connection *spares[PLACE_TRIES];
    unsigned used = 0;
    bool right = false;
    m->receiver_pid = process_of_peer(run.receivers[0].c.fd);
    for (; !right && used < PLACE_TRIES; used++) {
        if (!start_end(&run.senders[0].c, SENDER, 0)) return false;
        if (!connection_await(&run.senders[0].c, connection_attached, ATTACH_SECONDS)) return false;
        m->sender_pid = process_of_peer(run.senders[0].c.fd);
        right = m->sender_pid && m->receiver_pid && (m->sender_pid == m->receiver_pid) == (options.place == TOGETHER);
        if (right) break;
        spare[used] = run.senders[0].c; /* stays open, so that the next one goes elsewhere */
        spares[used] = &spare[used];
        run.senders[0].c = (struct connection){.handlers = spare[used].handlers};
    }
    connections_close(spares, used, CLOSE_SECONDS);
    if (!right)
        fatal("--place: %d connections, and none was placed as wanted (receiver in process %d)", PLACE_TRIES,
              m->receiver_pid);
    return right;
}

static bool open_senders(struct measured *m) {
    if (options.place != ANYWHERE) return place_sender(m);
    for (unsigned i = 0; i < options.senders && !options.direct; i++) {
        if (!start_end(&run.senders[i].c, SENDER, i)) return false;
        if (i < options.opening) continue;
        if (!connection_await(&run.senders[i - options.opening].c, connection_attached, ATTACH_SECONDS)) return false;
    }
    for (unsigned i = 0; i < options.senders; i++)
        if (!connection_await(&run.senders[i].c, connection_attached, ATTACH_SECONDS)) return false;
    return true;
}

/* Wait until every sender has credit. The clock starts then: the time in which routers learn of a receiver belongs
 * neither to the rate nor to the latency of messages. */
static bool await_credit(void) {
    for (unsigned i = 0; i < options.senders; i++)
        if (!connection_await(&run.senders[i].c, connection_credited, options.stall_seconds)) return false;
    return true;
}

static int done_event;

static void *run_thread(void *side) {
    uint64_t one = 1;
    side_run(side);
    if (write(done_event, &one, sizeof one) < 0) fatal("write to an eventfd: %s", strerror(errno));
    return NULL;
}

static void sample(struct measured *m, unsigned number) {
    uint64_t rss = processes_rss();
    if (rss > m->rss_peak) m->rss_peak = rss;
    if (number % PSS_EVERY) return;
    uint64_t pss = processes_pss();
    if (pss > m->pss_peak) m->pss_peak = pss;
}

/* Start both threads and sample memory until both have ended. */
static void measure(struct measured *m) {
    pthread_t threads[2];
    struct side *sides[2] = {&run.receiving, &run.sending};
    struct pollfd done = {.fd = done_event = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE), .events = POLLIN};
    m->rss_before = m->rss_peak = processes_rss();
    m->pss_before = m->pss_peak = processes_pss();
    m->cpu_before = processes_cpu();
    run.started = clock_ns();
    run.counted_from = run.started + (uint64_t)(options.warm * 1e9);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, run_thread, sides[i])) {
            fprintf(stderr, "amqpload: cannot start a thread\n");
            exit(2);
        }
    for (unsigned ended = 0, number = 1; ended < 2;) {
        uint64_t one;
        int ready = poll(&done, 1, options.pid_count ? SAMPLE_MS : -1);
        if (ready > 0 && read(done.fd, &one, sizeof one) == sizeof one) ended++;
        if (ready == 0) sample(m, number++);
    }
    m->cpu_after = processes_cpu();
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) side_close(sides[i]);
    m->pss_after = processes_pss();
    if (m->pss_after > m->pss_peak) m->pss_peak = m->pss_after;
    close(done.fd);
}

static void close_all(struct connection **receivers, struct connection **senders) {
    unsigned count = options.senders + options.receivers;
    struct connection **all = zeroed(count, sizeof *all);
    memcpy(all, senders, options.senders * sizeof *all);
    memcpy(all + options.senders, receivers, options.receivers * sizeof *all);
    connections_close(all, count, CLOSE_SECONDS);
    free(all);
}

static void end_sending(int signal) {
    (void)signal;
    atomic_store(&run.ending, true);
}

static void load_run(void) {
    struct measured m = {0};
    struct connection **receivers = zeroed(options.receivers, sizeof *receivers);
    struct connection **senders = zeroed(options.senders, sizeof *senders);
    run.senders = zeroed(options.senders, sizeof *run.senders);
    run.receivers = zeroed(options.receivers, sizeof *run.receivers);
    run.received = zeroed((size_t)(options.multicast ? options.receivers : 1) * options.senders, sizeof *run.received);
    run.pattern = make_pattern();
    for (unsigned i = 0; i < options.senders; i++) {
        find_address(&run.senders[i].c, i);
        sender_prepare(&run.senders[i]);
        senders[i] = &run.senders[i].c;
    }
    for (unsigned i = 0; i < options.receivers; i++) receivers[i] = &run.receivers[i].c;
    senders_start();
    receivers_start();
    if (options.container) connections_beside(receivers, options.receivers);
    if (options.direct) connections_beside(senders, options.senders); /* TLS handshakes need both ends */
    m.pss_start = processes_pss();
    if (options.seconds > 0) signal(SIGTERM, end_sending);
    if (!open_receivers() || !open_senders(&m) || !await_credit()) return;
    side_open(&run.receiving, "receivers", receivers, options.receivers);
    side_open(&run.sending, "senders", senders, options.senders);
    measure(&m);
    connections_beside(NULL, 0);
    if (!stopped()) close_all(receivers, senders);
    report(&m);
}

int main(int argc, char **argv) {
    options_parse(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    processes_find();
    if (options.tls) tls_prepare();
    if (options.operation) operations_run();
    else if (options.handshakes) handshakes_run();
    else if (options.idle) idle_run();
    else if (options.standing) standing_run();
    else load_run();
    return faulty() ? 1 : 0;
}

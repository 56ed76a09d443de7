#include "report.h"

#include <stdio.h>

#include "fault.h"
#include "options.h"
#include "sides.h"

struct totals {
    uint64_t sent, settled, accepted, rejected, released, modified, no_outcome, settled_twice;
    uint64_t received, bytes, duplicates, disordered, corrupt, misrouted, aborted, lost, last;
    struct histogram latency;
};

static void add_senders(struct totals *t) {
    for (unsigned i = 0; i < options.senders; i++) {
        const struct sender *s = &run.senders[i];
        t->sent += s->sent, t->settled += s->settled, t->accepted += s->accepted, t->rejected += s->rejected;
        t->released += s->released, t->modified += s->modified, t->no_outcome += s->no_outcome;
        t->settled_twice += s->settled_twice;
        if (s->last_settled > t->last) t->last = s->last_settled;
    }
}

static void add_receivers(struct totals *t) {
    for (unsigned i = 0; i < options.receivers; i++) {
        const struct receiver *r = &run.receivers[i];
        t->received += r->received, t->bytes += r->bytes, t->duplicates += r->duplicates;
        t->disordered += r->disordered, t->corrupt += r->corrupt, t->misrouted += r->misrouted;
        t->aborted += r->aborted;
        if (r->last_received > t->last) t->last = r->last_received;
        for (unsigned k = 0; k < HISTOGRAM_BUCKETS; k++) t->latency.counts[k] += r->latency.counts[k];
        t->latency.total += r->latency.total;
        if (r->latency.largest > t->latency.largest) t->latency.largest = r->latency.largest;
    }
}

/* Return the number of lost copies: of accepted messages, or of all presettled ones that did not arrive. */
static uint64_t lost_copies(void) {
    unsigned copies = options.multicast ? options.receivers : 1;
    uint64_t lost = 0;
    for (unsigned copy = 0; copy < copies; copy++)
        for (unsigned i = 0; i < options.senders; i++) {
            const struct sender *s = &run.senders[i];
            const struct bitmap *have = &run.received[copy * options.senders + i];
            lost += options.presettled ? s->sent - bitmap_count(have) : bitmap_missing(&s->accepted_set, have);
        }
    return lost;
}

static void judge(const struct totals *t) {
    if (t->lost && !(options.presettled && options.allow_loss)) fault("%lu messages were lost", (unsigned long)t->lost);
    if (t->duplicates) fault("%lu messages came twice", (unsigned long)t->duplicates);
    if (t->disordered) fault("%lu messages came out of order", (unsigned long)t->disordered);
    if (t->corrupt) fault("%lu messages were not what was sent", (unsigned long)t->corrupt);
    if (t->misrouted) fault("%lu messages came from a sender of another address", (unsigned long)t->misrouted);
    if (t->settled_twice) fault("%lu deliveries were settled twice", (unsigned long)t->settled_twice);
}

#define COUNT(name) printf("\"%s\": %lu, ", #name, (unsigned long)t.name)

void report(const struct measured *m) {
    struct totals t = {0};
    add_senders(&t);
    add_receivers(&t);
    t.lost = options.receivers ? lost_copies() : 0;
    judge(&t);
    double seconds = t.last > run.started ? (double)(t.last - run.started) / 1e9 : 0;
    double each = seconds > 0 ? 1 / seconds : 0;
    uint64_t arrived = options.receivers ? t.received : t.settled; /* receivers elsewhere: outcomes only */
    printf("{");
    COUNT(sent), COUNT(received), COUNT(settled), COUNT(accepted), COUNT(rejected), COUNT(released), COUNT(modified);
    COUNT(no_outcome), COUNT(aborted), COUNT(lost), COUNT(duplicates), COUNT(disordered), COUNT(corrupt);
    COUNT(misrouted), COUNT(settled_twice), COUNT(bytes);
    printf("\"seconds\": %.6f, \"per_second\": %.1f, \"bytes_per_second\": %.0f", seconds, (double)arrived * each,
           (double)t.bytes * each);
    const struct histogram *h = &t.latency;
    printf(", \"latency_us\": {\"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f, \"p99.9\": %.2f, \"max\": %.2f}",
           (double)histogram_at(h, 0.5) / 1e3, (double)histogram_at(h, 0.9) / 1e3, (double)histogram_at(h, 0.99) / 1e3,
           (double)histogram_at(h, 0.999) / 1e3, (double)h->largest / 1e3);
    if (options.pid_count) {
        double user = m->cpu_after.user - m->cpu_before.user, system = m->cpu_after.system - m->cpu_before.system;
        double per = arrived ? 1e6 / (double)arrived : 0;
        printf(", \"router_cpu\": {\"us_per_delivery\": %.4f, \"user_seconds\": %.2f, \"system_seconds\": %.2f, "
               "\"cores\": %.3f}", (user + system) * per, user, system, (user + system) * each);
        printf(", \"router_memory_kib\": {\"rss_before\": %lu, \"rss_peak\": %lu, \"pss_start\": %lu, "
               "\"pss_before\": %lu, "
               "\"pss_peak\": %lu, \"pss_after\": %lu}", (unsigned long)m->rss_before, (unsigned long)m->rss_peak,
               (unsigned long)m->pss_start, (unsigned long)m->pss_before, (unsigned long)m->pss_peak, (unsigned long)m->pss_after);
    }
    if (options.place) printf(", \"sender_pid\": %d, \"receiver_pid\": %d", m->sender_pid, m->receiver_pid);
    printf(", \"failed\": %s}\n", faulty() ? "true" : "false");
}

/* Sending side: writes transfers while credit, session window and socket allow, at the requested
 * rate, and counts the outcomes. */
#include <string.h>

#include "fault.h"
#include "options.h"
#include "sides.h"

enum {
    TURN_BYTES = 65536,   /* bytes queued in a turn of one sender; then others have their turns */
    TRANSFER_HEADER = 29, /* bytes of the transfer frame below, before the payload */
};

/* Return the time at which sending ends; NEVER without --seconds. */
static uint64_t end_of_sending(void) {
    if (options.seconds <= 0) return NEVER;
    return atomic_load(&run.ending) ? 0 : run.started + (uint64_t)(options.seconds * 1e9);
}

static bool out_of_messages(const struct sender *s, uint64_t now) {
    return s->started >= options.count || now >= end_of_sending();
}

static uint64_t due_of(const struct sender *s) {
    if (options.rate <= 0) return 0;
    double number = (double)s->started * options.senders + s->c.index;
    return run.started + (uint64_t)(number / options.rate * 1e9);
}

/* Begin a message. If it had to wait for the peer, its stamp is the time at which it was due, so
 * that a router that stops granting credit cannot hide the delay. Our own late wake-ups do not count. */
static void begin_message(struct sender *s, uint64_t due, uint64_t now) {
    uint64_t stamp = options.rate <= 0 ? now : s->late ? due : clock_ns();
    uint64_t sequence = (uint64_t)s->c.index << 48 | s->started;
    memcpy(s->head + s->head_length - 16, &stamp, 8);
    memcpy(s->head + s->head_length - 8, &sequence, 8);
    s->sequence = sequence;
    __atomic_store_n(&s->started, s->started + 1, __ATOMIC_RELAXED); /* the receiving thread reads it */
    s->c.delivery_count++;
    s->offset = 0;
    s->in_message = true;
}

static void send_frame(struct sender *s) {
    struct connection *c = &s->c;
    uint64_t n = c->peer_max_frame - TRANSFER_HEADER, left = s->encoded - s->offset;
    if (n > left) n = left;
    uint8_t *f = connection_room(c, TRANSFER_HEADER + n), *to = f + TRANSFER_HEADER;
    uint32_t id = c->delivery_count - 1;
    static const uint8_t header[TRANSFER_HEADER] = {
        0, 0, 0, 0, 2, 0, 0, 0, 0, 0x53, TRANSFER, 0xc0, 16, 6, /* list8 of six fields */
        0x43,                                                   /* handle 0 */
        0x70, 0, 0, 0, 0, 0xa0, 4, 0, 0, 0, 0,                  /* delivery-id, delivery-tag */
        0x43, 0x42, 0x42,                                       /* message-format, settled, more */
    };
    memcpy(f, header, TRANSFER_HEADER);
    put32(f, (uint32_t)(TRANSFER_HEADER + n));
    put32(f + 16, id);
    put32(f + 22, id);
    f[27] = options.presettled ? 0x41 : 0x42;
    f[28] = n < left ? 0x41 : 0x42;
    uint64_t from_head = s->offset < s->head_length ? s->head_length - s->offset : 0;
    if (from_head > n) from_head = n;
    memcpy(to, s->head + s->offset, from_head);
    uint64_t position = s->offset + from_head - s->head_length;
    if (n > from_head) memcpy(to + from_head, pattern_at(s->sequence, position), n - from_head);
    connection_wrote(c, to + n);
    c->next_outgoing++;
    s->offset += n;
    if (s->offset < s->encoded) return;
    s->in_message = false;
    s->sent++;
}

static void produce(struct sender *s, uint64_t now) {
    struct connection *c = &s->c;
    s->runnable = s->blocked = false;
    while (connection_pending(c) < TURN_BYTES) {
        if (!s->in_message) {
            uint64_t due = due_of(s);
            if ((s->ended = s->ended || out_of_messages(s, now))) break;
            if (due > now) {
                s->late = false;
                break;
            }
            if ((int32_t)(c->credit_limit - c->delivery_count) <= 0) {
                s->blocked = true;
                break;
            }
            begin_message(s, due, now);
        }
        if ((int32_t)(c->outgoing_limit - c->next_outgoing) <= 0) {
            s->blocked = true;
            break;
        }
        send_frame(s);
    }
    bool full = connection_pending(c) >= TURN_BYTES;
    bool empty = connection_flush(c);
    s->runnable = full && empty;
    if (!empty) s->blocked = true;
    if (s->blocked) s->late = true;
}

static void count_outcome(struct sender *s, uint64_t index, uint8_t outcome) {
    if (bitmap_add(&s->settled_set, index)) {
        s->settled_twice++;
        return;
    }
    s->settled++;
    switch (outcome) {
    case ACCEPTED: s->accepted++, bitmap_add(&s->accepted_set, index); break;
    case REJECTED: s->rejected++; break;
    case RELEASED: s->released++; break;
    case MODIFIED: s->modified++; break;
    default: s->no_outcome++;
    }
}

/* Settle a range that the peer has not settled itself. */
static void settle(struct connection *c, uint32_t first, uint32_t last) {
    struct writer w = {.at = connection_room(c, 64)};
    frame_begin(&w, DISPOSITION);
    put_bool(&w, false), put_uint(&w, first), put_uint(&w, last), put_bool(&w, true);
    frame_end(&w);
    connection_wrote(c, w.at);
}

static void on_disposition(struct connection *c, struct cursor *f, uint64_t now) {
    struct sender *s = (struct sender *)c;
    struct bytes inside;
    if (!field_bool(f, false)) return; /* concerns deliveries to us; there are none */
    uint32_t first = field_uint(f, 0), last = field_uint(f, first);
    bool settled = field_bool(f, false);
    uint8_t outcome = field_described(f, &inside);
    if (!settled && (outcome < ACCEPTED || outcome > MODIFIED)) return; /* not final, for example received */
    for (uint32_t id = first;; id++) {
        uint32_t back = c->delivery_count - id; /* 1 is the newest delivery */
        if (back == 0 || back > s->started) {
            fault("sender %u: disposition for delivery %u, which was never sent", c->index, id);
            break;
        }
        count_outcome(s, s->started - back, outcome);
        if (id == last) break;
    }
    if (!settled) settle(c, first, last);
    s->last_settled = now;
}

static void on_echo(struct connection *c) { connection_flow(c); }

static const struct handlers handlers = {.disposition = on_disposition, .echo = on_echo};

void sender_prepare(struct sender *s) {
    static const uint8_t data_section[] = {0x00, 0x53, DATA_SECTION, 0xb0};
    struct writer w = {.at = s->head};
    s->c.handlers = &handlers;
    if (options.anonymous) put_properties(&w, s->c.address, NULL);
    memcpy(w.at, data_section, sizeof data_section);
    put32(w.at + sizeof data_section, options.size);
    s->head_length = (size_t)(w.at - s->head) + BODY_HEAD;
    s->encoded = (uint64_t)options.size + s->head_length - BODY_STAMP;
}

static void served(struct side *side, unsigned i, uint64_t now) {
    (void)side;
    produce(&run.senders[i], now);
}

static uint64_t tick(struct side *side, uint64_t now) {
    uint64_t next = NEVER;
    for (unsigned i = 0; i < options.senders; i++) {
        struct sender *s = &run.senders[i];
        if (s->ended && !s->runnable && !s->in_message) continue;
        uint64_t due = s->runnable ? 0 : options.rate > 0 ? due_of(s) : now;
        if (due <= now && (s->runnable || !s->blocked)) {
            produce(s, now);
            side_interest(side, &s->c, true);
            due = s->runnable ? 0 : s->ended ? NEVER : options.rate > 0 ? due_of(s) : now;
        }
        if (s->blocked && !s->runnable) continue; /* waits for input or a writable socket */
        if (due < next) next = due;
    }
    if (options.seconds > 0) { /* ends blocked senders as well */
        uint64_t end = end_of_sending();
        for (unsigned i = 0; i < options.senders && now >= end; i++)
            if (!run.senders[i].ended && !run.senders[i].in_message) run.senders[i].ended = true;
        if (now < end && end < next) next = end;
    }
    return next;
}

static bool finished(struct side *side, uint64_t now) {
    static uint64_t seen, seen_at;
    uint64_t progress = 0, sent = 0, settled = 0, expected = 0;
    bool done = true;
    (void)side;
    for (unsigned i = 0; i < options.senders; i++) {
        const struct sender *s = &run.senders[i];
        sent += s->sent, settled += s->settled;
        progress += s->sent + s->settled + s->c.next_outgoing;
        expected += options.presettled ? s->sent : s->accepted;
        if (!s->ended || s->in_message || connection_pending(&s->c)) done = false;
        if (!options.presettled && s->settled < s->sent) done = false;
    }
    if (done) {
        atomic_store(&run.expected, expected * (options.multicast ? options.receivers : 1));
        atomic_store(&run.senders_done, true);
        side_wake(&run.receiving);
        return true;
    }
    if (progress != seen || !seen_at) seen = progress, seen_at = now;
    if (now > seen_at && (double)(now - seen_at) > options.stall_seconds * 1e9)
        fatal("senders made no progress for %g s: %lu sent, %lu settled", options.stall_seconds, (unsigned long)sent,
              (unsigned long)settled);
    return false;
}

void senders_start(void) {
    run.sending.served = served;
    run.sending.tick = tick;
    run.sending.finished = finished;
}

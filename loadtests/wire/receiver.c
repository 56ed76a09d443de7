/* Receiving side: checks every message (content, order, duplicates), measures its latency,
 * acknowledges in ranges, grants credit and window, and reads slowly if throttled. */
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "options.h"
#include "sides.h"

enum {
    READ_STEP = 65536,          /* bytes that a throttled receiver reads at a time */
    THROTTLE_TICK = 1000000,    /* ns */
    DISPOSITION_ROOM = 64,
};
static const double BURST_SECONDS = 0.02; /* burst allowance of a throttled receiver */

static uint64_t received_total; /* without duplicates */

/* ---- one message ------------------------------------------------------------------ */

static void verify(struct receiver *r, const uint8_t *at, size_t n) {
    uint32_t left = r->body_length - r->body_seen;
    if (n > left) r->damaged = true, n = left;
    if (memcmp(at, pattern_at(r->sequence, r->body_seen - BODY_STAMP), n)) r->damaged = true;
    r->body_seen += (uint32_t)n;
}

static void content(struct receiver *r, struct bytes payload) {
    const uint8_t *message = payload.at;
    size_t have = payload.length, start, rest = 0;
    r->bytes += payload.length;
    if (r->located) {
        verify(r, payload.at, payload.length);
        return;
    }
    if (r->head_length) { /* the first frames ended before the body */
        size_t more = HEAD_ROOM - r->head_length < have ? HEAD_ROOM - r->head_length : have;
        memcpy(r->head + r->head_length, message, more);
        rest = have - more;
        message = r->head, have = r->head_length += more;
    }
    int found = find_body(message, have, &start, &r->body_length);
    bool short_of_body = found == 0 || (found > 0 && have - start < BODY_STAMP);
    if (found < 0 || (short_of_body && have >= HEAD_ROOM)) {
        fatal("receiver %u: delivery %u has no data section where one is expected", r->c.index, r->delivery_id);
        return;
    }
    if (short_of_body) {
        if (message != r->head) memcpy(r->head, message, have), r->head_length = have;
        return;
    }
    r->located = true;
    r->body_seen = BODY_STAMP;
    memcpy(&r->stamp, message + start, 8);
    memcpy(&r->sequence, message + start + 8, 8);
    if (have - start > BODY_STAMP) verify(r, message + start + BODY_STAMP, have - start - BODY_STAMP);
    if (rest) verify(r, payload.at + payload.length - rest, rest);
}

static void acknowledge(struct receiver *r) {
    if (!r->ack_count) return;
    struct writer w = {.at = connection_room(&r->c, DISPOSITION_ROOM)};
    frame_begin(&w, DISPOSITION);
    put_bool(&w, true), put_uint(&w, r->ack_first), put_uint(&w, r->ack_first + r->ack_count - 1);
    put_bool(&w, true), put_outcome(&w, ACCEPTED);
    frame_end(&w);
    connection_wrote(&r->c, w.at);
    r->ack_count = 0;
}

static void book(struct receiver *r) {
    uint64_t from = r->sequence >> 48, number = r->sequence & 0xffffffffffffull;
    if (from >= options.senders || (options.distinct && from != r->c.index) ||
        number >= __atomic_load_n(&run.senders[from].started, __ATOMIC_RELAXED)) {
        r->misrouted++;
        return;
    }
    struct bitmap *set = &run.received[options.multicast ? r->c.index * options.senders + from : from];
    if (bitmap_add(set, number)) r->duplicates++, received_total--;
    else if (number < r->last[from]) r->disordered++;
    if (number >= r->last[from]) r->last[from] = number + 1;
}

static void end_message(struct receiver *r, uint64_t now) {
    r->in_message = false;
    r->received++, received_total++;
    if (r->received == 1) r->first_received = now;
    r->last_received = now;
    if (!r->located || r->damaged || r->body_seen != r->body_length || r->body_length != options.size) r->corrupt++;
    else {
        if (r->stamp >= run.counted_from) histogram_add(&r->latency, now > r->stamp ? now - r->stamp : 0);
        book(r);
    }
    if (r->message_settled) return;
    if (r->ack_count && r->ack_first + r->ack_count != r->delivery_id) acknowledge(r);
    if (!r->ack_count) r->ack_first = r->delivery_id;
    r->ack_count++;
}

static void on_transfer(struct connection *c, struct cursor *f, struct bytes payload, uint64_t now) {
    struct receiver *r = (struct receiver *)c;
    uint32_t handle = field_uint(f, 0), id;
    bool identified = field_optional_uint(f, &id);
    field_skip(f, 2);
    bool settled = field_bool(f, false), more = field_bool(f, false);
    r->frames++;
    if (handle != 0) fatal("receiver %u: transfer on handle %u, which is not attached", c->index, handle);
    if (!r->in_message) {
        if (!identified) fatal("receiver %u: the first transfer of a delivery has no delivery-id", c->index);
        if ((int32_t)(c->credit_limit - c->delivery_count) <= 0)
            fault("receiver %u: delivery %u has no credit", c->index, id);
        r->in_message = true;
        r->located = r->damaged = r->message_settled = false;
        r->body_length = r->body_seen = 0;
        r->head_length = 0;
        r->delivery_id = id;
    } else if (identified && id != r->delivery_id) {
        fault("receiver %u: delivery %u begins inside delivery %u", c->index, id, r->delivery_id);
    }
    r->message_settled |= settled;
    if (f->left) { /* rcv-settle-mode, state, resume, then aborted: rare */
        field_skip(f, 3);
        if (field_bool(f, false)) {
            r->in_message = false;
            r->aborted++;
            c->delivery_count++;
            return;
        }
    }
    content(r, payload);
    if (more) return;
    c->delivery_count++;
    end_message(r, now);
}

static void on_echo(struct connection *c) { connection_flow(c); }

static void on_attached(struct connection *c) { receiver_credit((struct receiver *)c); }

static const struct handlers handlers = {.transfer = on_transfer, .echo = on_echo, .attached = on_attached};

/* ---- flow --------------------------------------------------------------------------- */

static bool window_throttled(void) { return options.read_rate > 0 && options.throttle == THROTTLE_WINDOW; }
static bool read_throttled(void) { return options.read_rate > 0 && options.throttle == THROTTLE_READ; }

static double refill(struct receiver *r, uint64_t now, double least) {
    double most = options.read_rate * BURST_SECONDS;
    if (most < 2 * least) most = 2 * least;
    if (r->tokens_at && now > r->tokens_at) r->tokens += (double)(now - r->tokens_at) / 1e9 * options.read_rate;
    if (r->tokens > most) r->tokens = most;
    r->tokens_at = now;
    return r->tokens;
}

void receiver_credit(struct receiver *r) {
    struct connection *c = &r->c;
    bool flow = false;
    if (c->credit_limit - c->delivery_count <= options.credit / 2) {
        c->credit_limit = c->delivery_count + options.credit;
        flow = true;
    }
    uint32_t open = c->incoming_limit - c->next_incoming;
    if (!window_throttled() && open <= options.session_window / 2) {
        c->incoming_limit = c->next_incoming + options.session_window;
        flow = true;
    }
    if (flow) connection_flow(c);
}

/* Open the session window by as many frames as the rate permits. */
static void open_window(struct receiver *r, uint64_t now) {
    struct connection *c = &r->c;
    uint32_t open = c->incoming_limit - c->next_incoming;
    uint32_t room = open < options.session_window ? options.session_window - open : 0;
    double earned = refill(r, now, options.max_frame) / options.max_frame;
    uint32_t frames = earned > room ? room : (uint32_t)earned;
    if (!frames) return;
    r->tokens -= (double)frames * options.max_frame;
    c->incoming_limit += frames;
    connection_flow(c);
    connection_flush(c);
}

static size_t allowance(struct side *side, unsigned i, uint64_t now) {
    struct receiver *r = &run.receivers[i];
    (void)side;
    if (!read_throttled()) return SIZE_MAX;
    r->paused = refill(r, now, READ_STEP) < READ_STEP;
    if (!r->paused) r->tokens -= READ_STEP;
    return r->paused ? 0 : READ_STEP;
}

static void served(struct side *side, unsigned i, uint64_t now) {
    struct receiver *r = &run.receivers[i];
    (void)side, (void)now;
    acknowledge(r);
    receiver_credit(r);
    connection_flush(&r->c);
}

static uint64_t tick(struct side *side, uint64_t now) {
    uint64_t next = NEVER;
    if (options.read_rate <= 0) return next;
    for (unsigned i = 0; i < options.receivers; i++) {
        struct receiver *r = &run.receivers[i];
        if (window_throttled()) open_window(r, now);
        else if (r->paused && refill(r, now, READ_STEP) >= READ_STEP) r->paused = false;
        side_interest(side, &r->c, !r->paused);
        if (window_throttled() || r->paused) next = now + THROTTLE_TICK;
    }
    return next;
}

static bool finished(struct side *side, uint64_t now) {
    static uint64_t seen, seen_at;
    (void)side;
    if (!atomic_load(&run.senders_done)) return false;
    if (received_total >= atomic_load(&run.expected) || !options.receivers) return true;
    uint64_t progress = 0;
    for (unsigned i = 0; i < options.receivers; i++) progress += run.receivers[i].frames;
    if (progress != seen || !seen_at) seen = progress, seen_at = now;
    return now > seen_at && (double)(now - seen_at) > options.stall_seconds * 1e9; /* the others are lost */
}

void receivers_start(void) {
    run.receiving.allowance = allowance;
    run.receiving.served = served;
    run.receiving.tick = tick;
    run.receiving.finished = finished;
    for (unsigned i = 0; i < options.receivers; i++) {
        struct receiver *r = &run.receivers[i];
        r->c.handlers = &handlers;
        r->last = calloc(options.senders, sizeof *r->last);
        if (!r->last) fatal("out of memory for %u sequence numbers", options.senders);
        if (!window_throttled()) continue;
        r->tokens_at = clock_ns();
    }
}

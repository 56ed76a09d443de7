/* Two sides of a run, and the state that they share. */
#ifndef SIDES_H
#define SIDES_H

#include <stdatomic.h>

#include "bitmap.h"
#include "histogram.h"
#include "side.h"

enum { BODY_HEAD = 8 + 16 /* data section header; clock and sequence number */, HEAD_ROOM = 8192, PROPERTIES_ROOM = 300 };

struct run { /* shared by the threads */
    atomic_bool senders_done;
    _Atomic uint64_t expected;   /* copies that receivers must get; valid after senders_done */
    atomic_bool ending;          /* senders end before their time: SIGTERM came */
    uint64_t started;            /* ns; set before the threads start */
    uint64_t counted_from;       /* ns; messages sent before it do not count for the latency */
    const uint8_t *pattern;      /* bodies after the stamp; see pattern_at */
    uint64_t period;             /* bytes after which `pattern` repeats */
    uint64_t stride;             /* bytes by which the bodies of consecutive messages differ in it; 0: all are equal */
    struct side sending, receiving;
    struct sender *senders;
    struct receiver *receivers;
    struct bitmap *received;     /* by sender, or by receiver and sender when multicast */
};
extern struct run run;

/* Expected bytes of a body from `position` bytes after the stamp on, as many as a frame may have. */
static inline const uint8_t *pattern_at(uint64_t sequence, uint64_t position) {
    return run.pattern + (sequence * run.stride + position) % run.period;
}

struct sender { /* owned by the sending thread during the run */
    struct connection c;
    uint64_t started, sent;      /* deliveries begun (atomic: receivers read it), and completely sent */
    uint64_t settled, accepted, rejected, released, modified, no_outcome, settled_twice;
    uint64_t last_settled;       /* ns */
    uint64_t encoded, offset;    /* size of an encoded message; bytes sent of the present one */
    uint64_t sequence;           /* number of the present one, and the sender's index */
    bool in_message, ended;
    bool blocked;                /* cannot send before the peer acts */
    bool late;                   /* has been blocked and is behind its schedule */
    bool runnable;               /* can send more, after the other senders' turns */
    uint8_t head[PROPERTIES_ROOM + BODY_HEAD]; /* of each message: properties if it names its address, BODY_HEAD */
    size_t head_length;
    struct bitmap settled_set, accepted_set;
};
void sender_prepare(struct sender *s);
void senders_start(void);        /* sets run.sending's functions */

struct receiver { /* owned by the receiving thread during the run */
    struct connection c;
    uint64_t received, bytes, duplicates, disordered, corrupt, misrouted, aborted, frames;
    uint64_t first_received, last_received; /* ns */
    struct histogram latency;
    uint64_t *last;              /* by sender: sequence number of the newest message, plus 1 */
    /* the message being received */
    bool in_message, located, damaged, message_settled;
    uint32_t delivery_id, body_length, body_seen;
    uint64_t stamp, sequence;
    uint8_t head[HEAD_ROOM];     /* start of a message whose first frames are very small */
    size_t head_length;
    /* range to acknowledge */
    uint32_t ack_first, ack_count;
    /* throttle */
    double tokens;               /* bytes */
    uint64_t tokens_at;          /* ns */
    bool paused;
};
void receiver_credit(struct receiver *r); /* replenishes credit and window, queues the flow */
void receivers_start(void);

#endif

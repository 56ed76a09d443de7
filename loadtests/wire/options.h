/* Command-line options; read-only after parsing. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { BODY_STAMP = 16 /* clock and sequence number at the start of a body */, PATTERN_PERIOD = 251, RANDOM_PERIOD = 4 << 20,
       RANDOM_STRIDE = 10007, MAX_PIDS = 1024, MOST_STANDING = 100000 };
enum placement { ANYWHERE, APART, TOGETHER };
enum throttle { THROTTLE_READ, THROTTLE_WINDOW };

struct options {
    const char *host, *address;
    const char *container;        /* container id of receivers that answer the router's attaches; or NULL */
    int port, receiver_port;      /* receiver_port 0: same as port */
    unsigned senders, receivers, idle;
    unsigned standing;            /* clients that stay and come back, `opening` at a time; nothing else is done */
    const char *operation;        /* what clients repeat `count` times, `opening` at a time; nothing else is done */
    const char *user, *password;  /* of SCRAM-SHA-256; NULL: ANONYMOUS. With `operation` or `standing`, like `hostname` */
    const char *hostname;         /* in the open, for a policy */
    unsigned handshakes;          /* number of TLS handshakes; nothing else is done */
    bool tls, resume, websocket;
    const char *ca, *cipher, *certificate, *key; /* TLS; NULL: peer not checked, any cipher, no certificate */
    unsigned opening;             /* idle connections being opened at a time: below the router's listen backlog */
    uint64_t count;               /* messages per sender; upper bound with `seconds` */
    double seconds;               /* duration of sending; 0: send `count` messages */
    double warm;                  /* seconds at the start whose messages do not count for the latency */
    double rate;                  /* messages a second, all senders together; 0: as fast as possible */
    uint32_t size;                /* body size in bytes */
    bool random;                  /* bodies are random bytes, which do not compress */
    bool presettled, distinct, multicast, direct, allow_loss;
    bool anonymous;               /* senders have no target: each message names its address */
    uint32_t credit, session_window, max_frame, first_id;
    double read_rate;             /* bytes a second per receiver; 0: no throttle */
    enum throttle throttle;
    enum placement place;
    double stall_seconds;         /* abort after this time without progress */
    int pids[MAX_PIDS], pid_count;
};

extern struct options options;

void options_parse(int argc, char **argv); /* exits with status 2 and a message on an error */

#endif

/* What the command line asks for; read-only once parsed. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { BODY_STAMP = 16 /* clock and sequence number at the start of a body */, PATTERN_PERIOD = 251, MAX_PIDS = 1024 };
enum placement { ANYWHERE, APART, TOGETHER };
enum throttle { THROTTLE_READ, THROTTLE_WINDOW };

struct options {
    const char *host, *address;
    const char *container;        /* container id of the receivers, which answer what the router attaches; or NULL */
    int port, receiver_port;      /* receiver_port 0: the same */
    unsigned senders, receivers, idle;
    unsigned handshakes;          /* only so many TLS handshakes */
    bool tls, resume, websocket;
    const char *ca, *cipher, *certificate, *key; /* of TLS; NULL: no check of the peer, any cipher, none */
    unsigned opening;             /* idle connections being opened at a time: below the router's listen backlog */
    uint64_t count;               /* messages per sender; with `seconds`, at most */
    double seconds;               /* send for this long; 0: by count */
    double rate;                  /* messages a second, all senders together; 0: as fast as possible */
    uint32_t size;                /* bytes of body */
    bool presettled, distinct, multicast, direct, allow_loss;
    bool anonymous;               /* senders have no target: each message names its address */
    uint32_t credit, session_window, max_frame, first_id;
    double read_rate;             /* bytes a second per receiver; 0: no throttle */
    enum throttle throttle;
    enum placement place;
    double stall_seconds;         /* without any progress: give up */
    int pids[MAX_PIDS], pid_count;
};

extern struct options options;

void options_parse(int argc, char **argv); /* exits with status 2 and a message when wrong */

#endif

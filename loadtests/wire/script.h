/* Scripts of the operations that clients repeat. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include "client.h"

enum { BATCH = 100 /* links of a pipelined attach */, ADDRESSES = 500 /* that clients use */,
       SERVICE_CREDIT = 1000, ECHO_REFILL = 250 /* requests after which the echo client grants credit again */ };
#define SERVICE "service" /* address of the requests */

struct operation {
    const char *name;
    const struct step *prepare; /* once for each standing connection; NULL: each operation connects and closes */
    const struct step *repeat;
    unsigned links;             /* operations of one repetition */
    bool service;               /* it needs the echo client */
};

const struct operation *operation_find(const char *name); /* NULL: there is none */
extern const struct step script_close[];
extern const struct step script_service[]; /* of the echo client */
extern const struct step script_standing[]; /* of a client that stays, with two links on its own address */

/* Write one transfer that is a whole message; `reply_to` may be NULL. */
void send_message(struct client *l, const char *to, const char *reply_to);
void send_accepted(struct client *l, uint32_t handle, uint32_t delivery, uint32_t credit); /* credit 0: unchanged */

#endif

/* Client that takes one step after the other: it sends the frames of a step and waits for their answers. Anything
 * unexpected is a fatal fault. */
#ifndef CLIENT_H
#define CLIENT_H

#include "connection.h"
#include "scram.h"

enum answer { /* bits */
    ON_SASL_HEADER = 1 << 0, ON_MECHANISMS = 1 << 1, ON_OUTCOME = 1 << 2, ON_HEADER = 1 << 3, ON_OPEN = 1 << 4,
    ON_BEGIN = 1 << 5, ON_ATTACH = 1 << 6, ON_CREDIT = 1 << 7, ON_TRANSFER = 1 << 8, ON_ACCEPTED = 1 << 9,
    ON_DETACH = 1 << 10, ON_CLOSE = 1 << 11,
};

struct client;
struct step {
    const char *name;
    void (*send)(struct client *l); /* NULL: the end of the script */
    unsigned answers;               /* bits of `enum answer`; 0: the next step follows at once */
    unsigned times;                 /* number of each answer; 0: one */
};

struct client {
    struct connection c;            /* first: the handlers get this */
    const struct step *step;
    unsigned awaited, left;         /* answers of the step: bits, and number if `times` */
    unsigned repeats;               /* completed scripts */
    bool busy;                      /* its script is not complete; owned by operations.c */
    bool joined;                    /* logged in: frames are AMQP's */
    struct scram login;
    uint32_t sender_handle;         /* the peer's handle of the link on which we send */
    uint32_t delivery;              /* id of the last delivery received */
    uint32_t incoming_count;        /* delivery-count of the link on which we receive */
    char reply_to[ADDRESS_ROOM];    /* of the dynamic receiver */
    void (*serve)(struct client *l, int code, struct cursor *fields, struct bytes payload); /* after the script; or NULL */
};

/* Take the first step of a script, and those that need no answer. */
void client_start(struct client *l, const struct step *script);
/* Set the events of interest in an epoll instance; the events' data is the index of the connection. */
void client_watch(struct client *l, int epoll, uint32_t events);
static inline bool client_done(const struct client *l) { return !l->step->send; }
const struct handlers *client_handlers(void);

#endif

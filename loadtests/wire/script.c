#include "script.h"

#include <stdio.h>
#include <string.h>

#include "fault.h"
#include "login.h"
#include "options.h"

enum { ROOM = 2048, WINDOW = 0x7fffffff, BODY = 100, SENDER_HANDLE = 0, RECEIVER_HANDLE = 1 };

/* ---- connection and session ---------------------------------------------------- */

static void send_open(struct client *l) {
    char name[64];
    snprintf(name, sizeof name, "client-%u-%u", l->c.index, l->repeats);
    struct writer w = {.at = connection_room(&l->c, ROOM)};
    memcpy(w.at, "AMQP\0\1\0\0", 8);
    w.at += 8;
    frame_begin(&w, OPEN);
    put_string(&w, name), put_string(&w, options.hostname ? options.hostname : options.host);
    put_uint(&w, options.max_frame), put_ushort(&w, 255);
    frame_end(&w);
    connection_wrote(&l->c, w.at);
}

static void send_begin(struct client *l) {
    struct writer w = {.at = connection_room(&l->c, ROOM)};
    frame_begin(&w, BEGIN);
    put_null(&w), put_uint(&w, 0), put_uint(&w, WINDOW), put_uint(&w, WINDOW);
    frame_end(&w);
    connection_wrote(&l->c, w.at);
}

static void send_close(struct client *l) {
    struct writer w = {.at = connection_room(&l->c, ROOM)};
    frame_begin(&w, CLOSE);
    frame_end(&w);
    connection_wrote(&l->c, w.at);
    l->c.closing = true; /* the peer may end the stream after its answer */
}

/* ---- links --------------------------------------------------------------------- */

/* Write an attach. address: NULL for a dynamic source, and for a sender without a target. */
static void send_attach(struct client *l, uint32_t handle, enum role role, const char *address) {
    char name[64];
    snprintf(name, sizeof name, "%u-%u-%u", l->c.index, l->repeats, handle);
    struct writer w = {.at = connection_room(&l->c, ROOM)};
    frame_begin(&w, ATTACH);
    put_string(&w, name), put_uint(&w, handle), put_bool(&w, role == RECEIVER);
    put_ubyte(&w, role == RECEIVER ? 2 : 0), put_ubyte(&w, 0); /* settlement: mixed or unsettled, first */
    if (role == RECEIVER && !address) put_dynamic_source(&w);
    else put_terminus(&w, SOURCE, role == RECEIVER ? address : NULL);
    put_terminus(&w, TARGET, role == SENDER ? address : NULL);
    if (role == SENDER) {
        put_null(&w), put_null(&w), put_uint(&w, 0); /* initial-delivery-count */
        l->c.delivery_count = 0;
    }
    frame_end(&w);
    connection_wrote(&l->c, w.at);
}

static void send_detach(struct client *l, uint32_t handle) {
    struct writer w = {.at = connection_room(&l->c, ROOM)};
    frame_begin(&w, DETACH);
    put_uint(&w, handle), put_bool(&w, true);
    frame_end(&w);
    connection_wrote(&l->c, w.at);
}

static void send_credit(struct client *l, uint32_t handle, uint32_t credit) {
    struct writer w = {.at = connection_room(&l->c, ROOM)};
    frame_begin(&w, FLOW);
    put_uint(&w, l->c.next_incoming), put_uint(&w, WINDOW), put_uint(&w, l->c.next_outgoing), put_uint(&w, WINDOW);
    put_uint(&w, handle), put_uint(&w, l->incoming_count), put_uint(&w, credit);
    frame_end(&w);
    connection_wrote(&l->c, w.at);
}

void send_message(struct client *l, const char *to, const char *reply_to) {
    static const uint8_t body[BODY];
    char tag[16];
    uint32_t id = l->c.next_outgoing++;
    size_t length = (size_t)snprintf(tag, sizeof tag, "%x", id);
    if ((int32_t)(l->c.credit_limit - l->c.delivery_count++) <= 0) fatal("client %u: no credit to send", l->c.index);
    struct writer w = {.at = connection_room(&l->c, ROOM)};
    frame_begin(&w, TRANSFER);
    put_uint(&w, SENDER_HANDLE), put_uint(&w, id), put_binary(&w, (struct bytes){(uint8_t *)tag, length});
    put_uint(&w, 0), put_bool(&w, false);
    uint8_t *frame = w.frame;
    frame_end(&w);
    put_properties(&w, to, reply_to);
    put_data(&w, (struct bytes){body, sizeof body});
    put32(frame, (uint32_t)(w.at - frame)); /* with the payload */
    connection_wrote(&l->c, w.at);
}

void send_accepted(struct client *l, uint32_t handle, uint32_t delivery, uint32_t credit) {
    struct writer w = {.at = connection_room(&l->c, ROOM)};
    frame_begin(&w, DISPOSITION);
    put_bool(&w, true), put_uint(&w, delivery), put_null(&w), put_bool(&w, true), put_outcome(&w, ACCEPTED);
    frame_end(&w);
    connection_wrote(&l->c, w.at);
    if (credit) send_credit(l, handle, credit);
}

/* ---- steps ----------------------------------------------------------------------- */

static void name_address(struct client *l, unsigned number) {
    snprintf(l->c.address, sizeof l->c.address, "%s.%u", options.address, number);
}

static void attach_receiver(struct client *l) {
    name_address(l, l->c.index);
    send_attach(l, RECEIVER_HANDLE, RECEIVER, l->c.address);
}

static void attach_sender(struct client *l) {
    send_credit(l, RECEIVER_HANDLE, options.credit);
    send_attach(l, SENDER_HANDLE, SENDER, l->c.address);
}

static void send_to_receiver(struct client *l) { send_message(l, l->c.address, NULL); }
static void accept_message(struct client *l) { send_accepted(l, RECEIVER_HANDLE, l->delivery, 0); }

static void attach_to_service(struct client *l) { send_attach(l, SENDER_HANDLE, SENDER, SERVICE); }
static void attach_dynamic(struct client *l) { send_attach(l, RECEIVER_HANDLE, RECEIVER, NULL); }

static void send_request(struct client *l) {
    send_credit(l, RECEIVER_HANDLE, 1);
    send_message(l, SERVICE, l->reply_to);
}

static void accept_reply(struct client *l) {
    send_accepted(l, RECEIVER_HANDLE, l->delivery, 0);
    send_detach(l, RECEIVER_HANDLE);
}

/* Attach a receiver and a sender in turn. */
static void attach_next(struct client *l, unsigned handle, unsigned number) {
    name_address(l, number % ADDRESSES);
    send_attach(l, handle, number / ADDRESSES % 2 ? SENDER : RECEIVER, l->c.address);
}

static void attach_one(struct client *l) { attach_next(l, 0, l->c.index + ADDRESSES * l->repeats); }
static void detach_one(struct client *l) { send_detach(l, 0); }

static void attach_batch(struct client *l) {
    for (unsigned i = 0; i < BATCH; i++) attach_next(l, i, l->c.index + i + (i % 2 ? ADDRESSES : 0));
}

static void detach_batch(struct client *l) {
    for (unsigned i = 0; i < BATCH; i++) send_detach(l, i);
}

static void attach_requests(struct client *l) { send_attach(l, RECEIVER_HANDLE, RECEIVER, SERVICE); }

static void attach_replies(struct client *l) {
    send_credit(l, RECEIVER_HANDLE, SERVICE_CREDIT);
    send_attach(l, SENDER_HANDLE, SENDER, NULL);
}

/* ---- scripts ---------------------------------------------------------------------- */

#define CONNECT                                                                    \
    {"SASL header", login_header, ON_SASL_HEADER | ON_MECHANISMS, 0},              \
    {"login", login_init, ON_OUTCOME, 0}, {"open", send_open, ON_HEADER | ON_OPEN, 0}, \
    {"begin", send_begin, ON_BEGIN, 0}
#define LINKS                                                \
    {"attach of the receiver", attach_receiver, ON_ATTACH, 0}, \
    {"attach of the sender", attach_sender, ON_ATTACH | ON_CREDIT, 0}
#define LEAVE {"close", send_close, ON_CLOSE, 0}
#define END_OF_SCRIPT {"end", NULL, 0, 0}

const struct step script_close[] = {LEAVE, END_OF_SCRIPT};

const struct step script_service[] = {
    CONNECT,
    {"attach for requests", attach_requests, ON_ATTACH, 0},
    {"attach for replies", attach_replies, ON_ATTACH | ON_CREDIT, 0},
    END_OF_SCRIPT,
};

const struct step script_standing[] = {CONNECT, LINKS, END_OF_SCRIPT};

static const struct step standing[] = {CONNECT, END_OF_SCRIPT};
static const struct step connecting[] = {CONNECT, LINKS, LEAVE, END_OF_SCRIPT};

static const struct step one_message[] = {
    CONNECT,
    LINKS,
    {"message", send_to_receiver, ON_TRANSFER, 0},
    {"acceptance", accept_message, ON_ACCEPTED, 0},
    LEAVE,
    END_OF_SCRIPT,
};

static const struct step requester[] = {
    CONNECT,
    {"attach to the service", attach_to_service, ON_ATTACH | ON_CREDIT, 0},
    END_OF_SCRIPT,
};

static const struct step request[] = {
    {"attach for the reply", attach_dynamic, ON_ATTACH, 0},
    {"request", send_request, ON_ACCEPTED | ON_TRANSFER, 0},
    {"reply", accept_reply, ON_DETACH, 0},
    END_OF_SCRIPT,
};

static const struct step attaching[] = {
    {"attach", attach_one, ON_ATTACH, 0},
    {"detach", detach_one, ON_DETACH, 0},
    END_OF_SCRIPT,
};

static const struct step attaching_batches[] = {
    {"attaches", attach_batch, ON_ATTACH, BATCH},
    {"detaches", detach_batch, ON_DETACH, BATCH},
    END_OF_SCRIPT,
};

static const struct operation operations[] = {
    {"connect", NULL, connecting, 1, false},
    {"short", NULL, one_message, 1, false},
    {"rpc", requester, request, 1, true},
    {"attach", standing, attaching, 1, false},
    {"attach-pipelined", standing, attaching_batches, BATCH, false},
};

const struct operation *operation_find(const char *name) {
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(operations[i].name, name)) return &operations[i];
    return NULL;
}

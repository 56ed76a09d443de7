#include "echo.h"

#include <string.h>

#include "fault.h"
#include "script.h"

enum { RECEIVER_HANDLE = 1 };

/* Requests that wait for credit to be answered, from `first` on, in a ring. */
static struct request {
    uint32_t delivery;
    char reply_to[ADDRESS_ROOM];
} waiting[SERVICE_CREDIT];
static unsigned first, count;

static void answer_waiting(struct client *l) {
    for (; count && connection_credited(&l->c) && !stopped(); count--) {
        const struct request *request = &waiting[first++ % SERVICE_CREDIT];
        bool refill = first % ECHO_REFILL == 0;
        send_accepted(l, RECEIVER_HANDLE, request->delivery, refill ? SERVICE_CREDIT - count + 1 : 0);
        send_message(l, request->reply_to, NULL);
    }
}

static void accept_request(struct client *l, struct cursor *f, struct bytes payload) {
    struct cursor properties;
    field_skip(f, 1);
    uint32_t delivery = field_uint(f, 0);
    l->incoming_count++;
    if (find_properties(payload, &properties)) {
        field_skip(&properties, 4);
        struct bytes address = field_text(&properties);
        if (address.length && address.length < ADDRESS_ROOM && count < SERVICE_CREDIT) {
            struct request *request = &waiting[(first + count++) % SERVICE_CREDIT];
            request->delivery = delivery;
            memcpy(request->reply_to, address.at, address.length);
            request->reply_to[address.length] = 0;
            return;
        }
    }
    fatal("service: a request without reply-to, or without credit");
}

static void settled(struct cursor *f) {
    struct bytes inside;
    field_skip(f, 4);
    if (field_described(f, &inside) != ACCEPTED) fatal("service: a reply was not accepted");
}

static void serve(struct client *l, int code, struct cursor *f, struct bytes payload) {
    if (code == TRANSFER) accept_request(l, f, payload);
    else if (code == DISPOSITION) settled(f);
    answer_waiting(l);
}

void echo_prepare(struct client *l) { l->serve = serve; }

#include "echo.h"

#include <string.h>

#include "fault.h"
#include "script.h"

enum { RECEIVER_HANDLE = 1 };

static void answer(struct client *l, struct cursor *f, struct bytes payload) {
    struct cursor properties;
    char reply_to[ADDRESS_ROOM];
    field_skip(f, 1);
    uint32_t delivery = field_uint(f, 0);
    l->incoming_count++;
    if (find_properties(payload, &properties)) {
        field_skip(&properties, 4);
        struct bytes address = field_text(&properties);
        if (address.length && address.length < sizeof reply_to) {
            memcpy(reply_to, address.at, address.length);
            reply_to[address.length] = 0;
            send_accepted(l, RECEIVER_HANDLE, delivery, l->incoming_count % ECHO_REFILL ? 0 : SERVICE_CREDIT);
            send_message(l, reply_to, NULL);
            return;
        }
    }
    fatal("service: a request without reply-to");
}

static void settled(struct cursor *f) {
    struct bytes inside;
    field_skip(f, 4);
    if (field_described(f, &inside) != ACCEPTED) fatal("service: a reply was not accepted");
}

static void serve(struct client *l, int code, struct cursor *f, struct bytes payload) {
    if (code == TRANSFER) answer(l, f, payload);
    else settled(f);
}

void echo_prepare(struct client *l) { l->serve = serve; }

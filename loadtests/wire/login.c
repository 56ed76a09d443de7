#include "login.h"

#include <string.h>

#include "options.h"

enum { HEADER_SIZE = 8, ROOM = 2 * SCRAM_ROOM };

void login_header(struct client *l) {
    uint8_t *at = connection_room(&l->c, HEADER_SIZE);
    memcpy(at, "AMQP\3\1\0\0", HEADER_SIZE);
    connection_wrote(&l->c, at + HEADER_SIZE);
    l->joined = false;
}

void login_init(struct client *l) {
    char text[SCRAM_ROOM];
    struct writer w = {.at = connection_room(&l->c, ROOM)};
    sasl_begin(&w, INIT);
    put_symbol(&w, options.user ? "SCRAM-SHA-256" : "ANONYMOUS");
    if (options.user) put_binary(&w, (struct bytes){(uint8_t *)text, scram_first(&l->login, text)});
    frame_end(&w);
    connection_wrote(&l->c, w.at);
}

void login_respond(struct client *l, struct bytes challenge) {
    char text[SCRAM_ROOM];
    struct writer w = {.at = connection_room(&l->c, ROOM)};
    size_t length = scram_final(&l->login, challenge, text);
    if (!length) return;
    sasl_begin(&w, RESPONSE);
    put_binary(&w, (struct bytes){(uint8_t *)text, length});
    frame_end(&w);
    connection_wrote(&l->c, w.at);
}

bool login_accepted(struct client *l, struct bytes additional) {
    l->joined = true;
    return !options.user || scram_verify(&l->login, additional);
}

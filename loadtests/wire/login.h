/* SASL frames of a client that logs in. */
#ifndef LOGIN_H
#define LOGIN_H

#include "client.h"

void login_header(struct client *l);
void login_init(struct client *l);                               /* ANONYMOUS, or SCRAM-SHA-256 for --user */
void login_respond(struct client *l, struct bytes challenge);
bool login_accepted(struct client *l, struct bytes additional); /* false: a fault was recorded */

#endif

/* Standing client that answers requests: it sends one message back to the reply-to address of each. */
#ifndef ECHO_H
#define ECHO_H

#include "client.h"

void echo_prepare(struct client *l); /* after its script, `script_service` */

#endif

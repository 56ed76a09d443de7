/* Client of SCRAM-SHA-256 (RFC 7677). All clients are one user, and the keys that come from the password are computed
 * once for a salt, as by clients that keep them. */
#ifndef SCRAM_H
#define SCRAM_H

#include <openssl/sha.h>
#include <stdbool.h>

#include "amqp.h"

enum { SCRAM_NONCE = 24 /* characters */, SCRAM_ROOM = 512 /* characters of a message */ };

struct scram { /* one login */
    char nonce[SCRAM_NONCE + 1];
    uint8_t expected[SHA256_DIGEST_LENGTH]; /* the server's signature */
};

/* Each writes a message to `to` and returns its length. */
size_t scram_first(struct scram *login, char to[SCRAM_ROOM]);
size_t scram_final(struct scram *login, struct bytes challenge, char to[SCRAM_ROOM]); /* 0: a fault was recorded */
bool scram_verify(const struct scram *login, struct bytes outcome); /* false: a fault was recorded */

#endif

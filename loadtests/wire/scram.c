#include "scram.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "options.h"

enum { DIGEST = SHA256_DIGEST_LENGTH, ENCODED = 45 /* a digest in base64, terminated */, SALT_ROOM = 128 };

/* Keys of the user for one salt and iteration count. */
static struct {
    char salt[SALT_ROOM]; /* base64 */
    int iterations;
    uint8_t client[DIGEST], stored[DIGEST], server[DIGEST];
} keys;

static void sign(const uint8_t key[DIGEST], const char *text, uint8_t into[DIGEST]) {
    HMAC(EVP_sha256(), key, DIGEST, (const uint8_t *)text, strlen(text), into, NULL);
}

static bool derive(const char *salt, int iterations) {
    uint8_t raw[SALT_ROOM], salted[DIGEST];
    if (iterations == keys.iterations && !strcmp(salt, keys.salt)) return true;
    size_t length = strlen(salt);
    int octets = length % 4 || length >= SALT_ROOM ? -1 : EVP_DecodeBlock(raw, (const uint8_t *)salt, (int)length);
    if (octets < 0 || iterations < 1) return false;
    while (length && salt[length - 1] == '=') length--, octets--; /* padding decodes to zeros */
    const char *password = options.password;
    if (!PKCS5_PBKDF2_HMAC(password, (int)strlen(password), raw, octets, iterations, EVP_sha256(), DIGEST, salted))
        return false;
    strcpy(keys.salt, salt);
    keys.iterations = iterations;
    sign(salted, "Client Key", keys.client);
    SHA256(keys.client, DIGEST, keys.stored);
    sign(salted, "Server Key", keys.server);
    return true;
}

size_t scram_first(struct scram *login, char to[SCRAM_ROOM]) {
    uint8_t random[SCRAM_NONCE / 4 * 3];
    if (RAND_bytes(random, sizeof random) != 1) fatal("no random octets");
    EVP_EncodeBlock((uint8_t *)login->nonce, random, sizeof random);
    return (size_t)snprintf(to, SCRAM_ROOM, "n,,n=%s,r=%s", options.user, login->nonce);
}

size_t scram_final(struct scram *login, struct bytes challenge, char to[SCRAM_ROOM]) {
    char server[SCRAM_ROOM] = "", nonce[SCRAM_ROOM], salt[SALT_ROOM], bare[SCRAM_ROOM], encoded[ENCODED];
    char text[3 * SCRAM_ROOM];
    uint8_t proof[DIGEST];
    int iterations;
    if (challenge.length < sizeof server) memcpy(server, challenge.at, challenge.length);
    if (sscanf(server, "r=%511[^,],s=%127[^,],i=%d", nonce, salt, &iterations) != 3
        || strncmp(nonce, login->nonce, SCRAM_NONCE) || strlen(nonce) > SCRAM_ROOM / 2 || !derive(salt, iterations)) {
        fatal("SCRAM: a challenge that cannot be answered: %s", server);
        return 0;
    }
    snprintf(bare, sizeof bare, "c=biws,r=%s", nonce);
    snprintf(text, sizeof text, "n=%s,r=%s,%s,%s", options.user, login->nonce, server, bare);
    sign(keys.stored, text, proof);
    for (int i = 0; i < DIGEST; i++) proof[i] ^= keys.client[i];
    sign(keys.server, text, login->expected);
    EVP_EncodeBlock((uint8_t *)encoded, proof, DIGEST);
    return (size_t)snprintf(to, SCRAM_ROOM, "%.400s,p=%s", bare, encoded);
}

bool scram_verify(const struct scram *login, struct bytes outcome) {
    char wanted[2 + ENCODED] = "v=";
    EVP_EncodeBlock((uint8_t *)wanted + 2, login->expected, DIGEST);
    if (outcome.length == strlen(wanted) && !memcmp(outcome.at, wanted, outcome.length)) return true;
    fatal("SCRAM: the server's signature is wrong");
    return false;
}

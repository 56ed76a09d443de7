/* TLS under a connection of the generator, as a client: nothing is known of it but here and in connection.c. */
#ifndef TLS_H
#define TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

void tls_prepare(void);                      /* reads the certificates; exits with status 2 when they cannot be had */
SSL *tls_connect(int fd, SSL_SESSION *resumed); /* begins a handshake on a socket that does not wait */
SSL_SESSION *tls_ticket(void);               /* the last that a server has given, NULL: none yet; the caller's */

/* As recv and send: what was moved; 0 at the end of the stream; -1 with errno, EAGAIN where the socket would wait. */
ssize_t tls_read(SSL *tls, void *to, size_t most);
ssize_t tls_write(SSL *tls, const void *from, size_t bytes);
bool tls_reads_first(SSL *tls);              /* its handshake waits for the peer: nothing can be written yet */
const char *tls_error(void);                 /* of the last call that failed with EPROTO */

#endif

/* TLS client layer of a connection. Only connection.c and handshakes.c use it. */
#ifndef TLS_H
#define TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

void tls_prepare(void);                      /* reads the certificates; exits with status 2 on failure */
SSL *tls_connect(int fd, SSL_SESSION *resumed); /* begins a handshake on a non-blocking socket */
SSL_SESSION *tls_ticket(void);               /* last ticket from a server, NULL: none; owned by the caller */

/* Like recv and send: bytes moved; 0 at the end of the stream; -1 with errno, EAGAIN if the socket would block. */
ssize_t tls_read(SSL *tls, void *to, size_t most);
ssize_t tls_write(SSL *tls, const void *from, size_t bytes);
bool tls_reads_first(SSL *tls);              /* true if its handshake waits for the peer */
const char *tls_error(void);                 /* text of the last error with errno EPROTO */

#endif

#include "tls.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>

#include "options.h"

enum { READ_AHEAD = 131072 };

static SSL_CTX *context;
static SSL_SESSION *ticket;
static char text[256];

static void refuse(const char *what, const char *name) {
    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    fprintf(stderr, "amqpload: %s %s: %s\n", what, name, text);
    exit(2);
}

static int keep_ticket(SSL *tls, SSL_SESSION *session) {
    (void)tls;
    if (ticket) SSL_SESSION_free(ticket);
    ticket = session;
    return 1; /* this module keeps the reference */
}

void tls_prepare(void) {
    context = SSL_CTX_new(TLS_client_method());
    if (!context) refuse("TLS", "");
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    if (options.idle == 0 && options.handshakes == 0 && options.standing == 0 && !options.operation) {
        SSL_CTX_set_read_ahead(context, 1);
        SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD);
    }
    if (options.cipher && !SSL_CTX_set_ciphersuites(context, options.cipher)) refuse("--cipher", options.cipher);
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    if (options.ca) {
        if (!SSL_CTX_load_verify_locations(context, options.ca, NULL)) refuse("--ca", options.ca);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    }
    if (options.certificate && (SSL_CTX_use_certificate_chain_file(context, options.certificate) != 1
                                || SSL_CTX_use_PrivateKey_file(context, options.key, SSL_FILETYPE_PEM) != 1))
        refuse("--certificate", options.certificate);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    if (options.resume) SSL_CTX_sess_set_new_cb(context, keep_ticket);
}

SSL *tls_connect(int fd, SSL_SESSION *resumed) {
    SSL *tls = SSL_new(context);
    SSL_SESSION *own = resumed ? SSL_SESSION_dup(resumed) : NULL; /* a copy: a used one is not resumed again */
    if (!tls || !SSL_set_fd(tls, fd) || (own && !SSL_set_session(tls, own))) refuse("TLS", "connection");
    if (own) SSL_SESSION_free(own);
    SSL_set_connect_state(tls);
    return tls;
}

SSL_SESSION *tls_ticket(void) {
    SSL_SESSION *taken = ticket;
    ticket = NULL;
    return taken;
}

static ssize_t moved(SSL *tls, int result) {
    if (result > 0) return result;
    switch (SSL_get_error(tls, result)) {
    case SSL_ERROR_WANT_READ: case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL: return errno ? -1 : 0;
    default:
        ERR_error_string_n(ERR_get_error(), text, sizeof text);
        errno = EPROTO;
        return -1;
    }
}

ssize_t tls_read(SSL *tls, void *to, size_t most) {
    ERR_clear_error();
    errno = 0;
    return moved(tls, SSL_read(tls, to, most > INT_MAX ? INT_MAX : (int)most));
}

ssize_t tls_write(SSL *tls, const void *from, size_t bytes) {
    ERR_clear_error();
    errno = 0;
    ssize_t sent = moved(tls, SSL_write(tls, from, bytes > INT_MAX ? INT_MAX : (int)bytes));
    if (sent == 0) { /* end of the stream */
        errno = EPIPE;
        return -1;
    }
    return sent;
}

bool tls_reads_first(SSL *tls) { return SSL_in_init(tls) && SSL_want_read(tls); }

const char *tls_error(void) { return text; }

"""Transport over TLS. OpenSSL reads and writes the socket.

A listener with credentials accepts connections with and without TLS (security.md T-4). If the first octet begins a TLS
record, a handshake follows. Otherwise the octets pass unchanged, and the connection decides whether it needs TLS.
"""
from libc.errno cimport EAGAIN, EINTR, EPROTO, errno
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.tls.context cimport TlsContext
from sluice.router.tls.openssl cimport *
from sluice.router.tls.peer cimport channel_binding, is_certificate_expired, negotiated_tls, is_chain_revoked
from sluice.workers.fairness cimport TLS_HANDSHAKE_COST
from sluice.workers.poller cimport READABLE, WRITABLE
from sluice.workers.transport.base cimport (
    HANDSHAKE_DONE, HANDSHAKE_FAILED, HANDSHAKE_GOES_ON, HANDSHAKE_WAITS, Handshake, Transport,
)

import ipaddress

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK

cdef extern from *:
    """
    #include <errno.h>
    #define errno_set(value) (errno = (value))
    """
    void errno_set(int value) noexcept nogil

cdef enum:
    TLS_RECORD = 0x16          # first octet of a handshake record
    # Limit of records without data after the handshake. OpenSSL would continue to read them as long as the peer sends
    # any, and a key update costs a thousand times what it costs to send a prepared one. Peers send two or three such
    # records, then one for millions of records with data. Each record with data makes up for one part in
    # DATA_RECORDS_PER_CREDIT of a record without.
    MAX_RECORDS_WITHOUT_DATA = 16
    DATA_RECORDS_PER_CREDIT = 64
    RECORDS_PER_READ = 256       # most records with data in one read; each may have one octet only


cdef void limit_empty_records(int sent, int version, int kind, const void* data, size_t size, SSL* ssl,
                              void* argument) noexcept nogil:
    """Count a record that OpenSSL has read. After too many records without data, make OpenSSL report the end of the
    stream."""
    cdef int* records = <int*>argument
    # In TLS 1.3 all records look like data; the true type is inside.
    if sent or (kind != SSL3_RT_HEADER and kind != SSL3_RT_INNER_CONTENT_TYPE) \
            or (<const uint8_t*>data)[0] == SSL3_RT_APPLICATION_DATA:
        return
    records[0] += DATA_RECORDS_PER_CREDIT
    if records[0] > MAX_RECORDS_WITHOUT_DATA * DATA_RECORDS_PER_CREDIT:
        SSL_set_shutdown(ssl, SSL_RECEIVED_SHUTDOWN)


cdef class TlsTransport(Transport):
    """Transport over TLS. context: the credentials, and whether this end is the server. host: the server that this
    router connects to. verify_host: the server's certificate must be valid for `host`."""

    def __cinit__(self, loop, fd, connection, TlsContext context not None, str host=None, verify_host=True):
        self.context = context
        self.host = host
        self.looks = context.server
        if not self.looks:
            self.create_tls()
            self.expect(host, verify_host)

    def __dealloc__(self):
        SSL_free(self.ssl)

    def expect(self, str host, verify):
        """Request a name (SNI), and require that the peer's certificate is valid for it (security.md T-14, T-15)."""
        cdef bytes name = host.encode()
        cdef bint address = True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            address = False
        if not address:
            SSL_set_tlsext_host_name(self.ssl, name)
        if verify:
            SSL_set_hostflags(self.ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS)
            if address:
                X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(self.ssl), name)
            else:
                SSL_set1_host(self.ssl, name)

    cdef int create_tls(self) except -1:
        self.ssl = SSL_new(self.context.context)
        if self.ssl is NULL or not SSL_set_fd(self.ssl, self.fd):
            raise MemoryError("TLS connection")
        if self.context.server:
            SSL_set_accept_state(self.ssl)
        else:
            SSL_set_connect_state(self.ssl)
        return 0

    # -- handshake --------------------------------------------------------------------------------------------------

    cdef Handshake handshake(self) except *:
        cdef Handshake state
        if self.looks:
            state = self.look_at()
            if state != HANDSHAKE_GOES_ON or self.looks:
                return state
        if self.context.server and not self.loop.scheduler.take_admission_step(TLS_HANDSHAKE_COST):
            return HANDSHAKE_WAITS
        return self.do_tls_handshake()

    cdef Handshake look_at(self) except *:
        """Peek at the peer's first octet, and begin TLS if it is that of a handshake record."""
        cdef uint8_t first
        cdef ssize_t got = recv(self.fd, &first, 1, MSG_DONTWAIT | MSG_PEEK)
        if got < 0 and (errno == EAGAIN or errno == EINTR):
            return HANDSHAKE_GOES_ON
        if got <= 0:
            return HANDSHAKE_FAILED
        self.looks = False
        if first != TLS_RECORD:
            return HANDSHAKE_DONE
        self.create_tls()
        return HANDSHAKE_GOES_ON

    cdef Handshake do_tls_handshake(self) except *:
        cdef int result, error
        ERR_clear_error()
        result = SSL_do_handshake(self.ssl)
        if result == 1:
            self.tls = negotiated_tls(self.ssl)
            if self.tls.resumed and is_certificate_expired(self.ssl):
                self.failed = True
                self.connection.transport_failed("certificate has expired")
                return HANDSHAKE_FAILED
            self.more = True           # octets behind the handshake may be buffered
            # Buffers of a handshake take several times the memory of the connection. In a connection burst they stay
            # in the heap, as holes between the connections, until the heap is trimmed.
            self.loop.note_memory_use()
            SSL_set_msg_callback(self.ssl, limit_empty_records)
            SSL_set_msg_callback_arg(self.ssl, &self.records)
            return HANDSHAKE_DONE
        error = SSL_get_error(self.ssl, result)
        if error == SSL_ERROR_WANT_READ or error == SSL_ERROR_WANT_WRITE:
            return HANDSHAKE_GOES_ON
        self.failed = True
        self.connection.transport_failed(self.reason(error))
        return HANDSHAKE_FAILED

    def reason(self, int error):
        """Return the reason of a failed handshake, in the words of the library."""
        cdef unsigned long code = ERR_peek_last_error()
        cdef const char* text = ERR_reason_error_string(code)
        cdef long verified = SSL_get_verify_result(self.ssl)
        if text is NULL:
            return "unexpected eof while reading"
        said = text.decode("ascii", "replace")
        if verified == STALE_LIST:
            said += ": the revocation list of an authority is out of date"
        elif verified != X509_V_OK and (
                not self.context.server or verified == X509_V_ERR_CERT_REVOKED
                or verified == X509_V_ERR_UNABLE_TO_GET_CRL):
            said += f": {X509_verify_cert_error_string(verified).decode('ascii', 'replace')}"
        return said

    def channel_binding(self):
        """Return the channel binding; see Transport."""
        return None if self.ssl is NULL or self.failed else channel_binding(self.ssl)

    def revoked(self, TlsContext context not None):
        """True if a certificate of the peer is revoked; see Transport."""
        return self.ssl is not NULL and context.lists > 0 and is_chain_revoked(self.ssl, context.context)

    # -- octets -----------------------------------------------------------------------------------------------------

    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2:
        """Read all records that are available and fit into `data`, but at most RECORDS_PER_READ."""
        cdef size_t got = 0
        cdef int result
        if self.ssl is NULL:
            return recv(self.fd, data, size, MSG_DONTWAIT)
        if self.failed:
            errno_set(EPROTO)
            return -1
        ERR_clear_error()
        for _ in range(RECORDS_PER_READ):
            if got == size:
                break
            result = SSL_read(self.ssl, data + got, <int>(size - got))
            if result <= 0:
                self.more = SSL_get_error(self.ssl, result) != SSL_ERROR_WANT_READ
                if got:
                    ERR_clear_error()  # the error is reported again by the next read
                    return got
                return self.failure(result)
            got += result
            if self.records:
                self.records -= 1
            if not SSL_has_pending(self.ssl):
                # No part of another record was read: the socket will announce it.
                self.more = False
                return got
        self.more = True
        return got

    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2:
        cdef size_t sent = 0
        cdef int result
        if self.ssl is NULL:
            return send(self.fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL)
        if self.failed:
            errno_set(EPROTO)
            return -1
        ERR_clear_error()
        while sent < size:
            result = SSL_write(self.ssl, data + sent, <int>(size - sent))
            if result <= 0:
                if sent:
                    ERR_clear_error()
                    return sent
                return self.failure(result)
            sent += result
        return sent

    cdef ssize_t failure(self, int result) except? -2:
        """Return -1 with errno or 0, as recv(2) or send(2) would, for an error of the library."""
        cdef int error = SSL_get_error(self.ssl, result)
        if error == SSL_ERROR_WANT_READ or error == SSL_ERROR_WANT_WRITE:
            errno_set(EAGAIN)
            return -1
        self.failed = True
        ERR_clear_error()
        if self.records > MAX_RECORDS_WITHOUT_DATA * DATA_RECORDS_PER_CREDIT:
            self.connection.transport_failed("the peer sent too many TLS records without data")
        if error == SSL_ERROR_ZERO_RETURN:
            return 0
        errno_set(EPROTO)
        return -1

    cdef bint pending(self) except -1:
        return self.ssl is not NULL and self.more and not self.failed

    cdef uint32_t wants(self) except? 0xFFFF:
        if self.ssl is NULL:
            return 0 if self.established else READABLE
        if SSL_want_write(self.ssl):
            return WRITABLE
        return 0 if self.established else READABLE

    cdef int shutdown(self) except -1:
        """Send close_notify, so that the peer knows that nothing was cut off."""
        if self.ssl is not NULL and self.established and not self.failed:
            ERR_clear_error()
            SSL_shutdown(self.ssl)
            ERR_clear_error()
        return 0

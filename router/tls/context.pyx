"""OpenSSL contexts: credentials read from text, checked, and ready for connections (security.md 3)."""
from libc.stdint cimport uint64_t
from libc.string cimport memcpy
from libc.time cimport time_t, tm

from sluice.router.tls.openssl cimport *
from sluice.router.tls.stapling cimport request_ocsp_status

from math import inf

cdef extern from "<time.h>" nogil:
    time_t timegm(tm* parts)

# Session id contexts of listeners without and with client certificates, and of those where certificates are optional. A
# session established without a client certificate cannot be resumed at a listener that requires one.
SESSION_CONTEXT = b"sluice"
VERIFIED_CONTEXT = b"sluice verified"
cdef bytes OPTIONAL_CONTEXT = b"sluice optional"
VERSIONS = {"TLSv1": TLS1_VERSION, "TLSv1.1": TLS1_1_VERSION, "TLSv1.2": TLS1_2_VERSION, "TLSv1.3": TLS1_3_VERSION}
DEFAULT_VERSIONS = ("TLSv1.2", "TLSv1.3")
# Default ciphers of a server with TLS 1.2: forward secrecy and authenticated encryption.
SERVER_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
# Groups of a server: with the post-quantum group of OpenSSL 3.5, and for older versions without it.
SERVER_GROUPS = (b"X25519MLKEM768:X25519:prime256v1:secp384r1", b"X25519:prime256v1:secp384r1")

cdef enum:
    CHAIN_MOST = 10            # certificates between that of a peer and an authority
    CERTIFICATES_MOST = 65536  # octets of all certificates of a peer
    READ_BUFFER = 65536        # octets of one read of a socket
    NAME_MOST = 256            # octets of an authority's name in texts


class TlsError(ValueError):
    """Error in credentials. `part`: certificates, key, trusted, ciphers, protocols or peer."""

    def __init__(self, part, text):
        super().__init__(text)
        self.part = part


cdef str last_error():
    """Return OpenSSL's reason for the last failure, and clear its error queue."""
    cdef unsigned long error = ERR_peek_last_error()
    cdef const char* reason = ERR_reason_error_string(error)
    ERR_clear_error()
    return reason.decode("ascii", "replace") if reason is not NULL else "unknown error"


cdef int check_pem_end(str part) except -1:
    """Check that reading a PEM text stopped at its end and not at a damaged item. Raises TlsError.

    Without the check, a damaged revocation list would be ignored silently.
    """
    if ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE:
        raise TlsError(part, last_error())
    ERR_clear_error()
    return 0


def default_ciphers(protocols):
    """Return the default ciphers of a server with these protocol versions; None: those of OpenSSL.

    Versions before 1.2 support none of SERVER_CIPHERS.
    """
    return SERVER_CIPHERS if {*(protocols or DEFAULT_VERSIONS)} <= {*DEFAULT_VERSIONS} else None


cdef struct Password:
    const char* data
    int size
    bint asked


cdef int give_password(char* buffer, int size, int rwflag, void* userdata) noexcept nogil:
    """Give OpenSSL the password of a key in a PEM text. The callback prevents OpenSSL from asking on the terminal."""
    cdef Password* password = <Password*>userdata
    if password is not NULL:
        password.asked = True
    if password is NULL or password.size > size:
        return 0
    memcpy(buffer, password.data, password.size)
    return password.size


cdef int verify(X509_STORE_CTX* verification, void* argument) noexcept nogil:
    """Verify the peer's certificate chain.

    If a certificate has alternative names, its common name is ignored (RFC 9525). OpenSSL reports an expired revocation
    list to the peer with the alert for an expired certificate. To avoid this, the error is replaced by one without an
    alert of its own, and the peer gets `certificate_unknown`.
    """
    cdef X509* certificate = X509_STORE_CTX_get0_cert(verification)
    cdef int good
    if certificate is not NULL and X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1) >= 0:
        X509_VERIFY_PARAM_set_hostflags(
            X509_STORE_CTX_get0_param(verification),
            X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)
    good = X509_verify_cert(verification)
    if good <= 0 and X509_STORE_CTX_get_error(verification) == X509_V_ERR_CRL_HAS_EXPIRED:
        X509_STORE_CTX_set_error(verification, STALE_LIST)
    return good > 0


cdef double seconds_of(const ASN1_TIME* moment):
    """Return a time in seconds since the epoch; infinity for NULL or an invalid time."""
    cdef tm parts
    if moment is NULL or not ASN1_TIME_to_tm(moment, &parts):
        ERR_clear_error()
        return inf
    return timegm(&parts)


cdef class TlsContext:
    """OpenSSL context of credentials (Credentials of router/control/ops). Owner: its creator, and its connections.

    `verify_peer` of a server: clients have to present a certificate, or only if they have one (`optional`). A client
    always verifies the server. Raises TlsError. security.md T-11.
    """

    def __cinit__(self, credentials, *, server, verify_peer=False, optional=False):
        cdef int mode = SSL_VERIFY_NONE
        self.server = server
        self.list_ends = {}
        ERR_clear_error()
        self.context = SSL_CTX_new(TLS_server_method() if server else TLS_client_method())
        if self.context is NULL:  # OpenSSL's configuration allows nothing, for example if its FIPS module is missing
            raise TlsError("ciphers", f"OpenSSL allows none: {last_error()}")
        ERR_clear_error()
        SSL_CTX_set_options(self.context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION
                            | SSL_OP_CIPHER_SERVER_PREFERENCE)
        SSL_CTX_set_mode(self.context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
                         | SSL_MODE_RELEASE_BUFFERS)
        SSL_CTX_set_read_ahead(self.context, 1)
        SSL_CTX_set_default_read_buffer_len(self.context, READ_BUFFER)
        SSL_CTX_set_max_cert_list(self.context, CERTIFICATES_MOST)
        SSL_CTX_set_verify_depth(self.context, CHAIN_MOST)
        self.use_protocols(credentials.protocols or DEFAULT_VERSIONS)
        if credentials.ciphers is not None:
            self.use_ciphers(credentials.ciphers)
        elif server and default_ciphers(credentials.protocols) is not None:
            self.use_ciphers(default_ciphers(credentials.protocols))
        if server and not verify_peer:
            self.use_groups()
        if credentials.certificates is not None:
            self.use_certificates(credentials.certificates)
            self.use_key(credentials.key or credentials.certificates, credentials.password)
        elif server:
            raise TlsError("certificates", "there is no certificate")
        if credentials.trusted is not None:
            self.trust(credentials.trusted)
        if credentials.revoked is not None:
            self.use_lists(credentials.revoked)
            self.require_revocation_lists()
        SSL_CTX_set_cert_verify_callback(self.context, verify, NULL)
        if server:
            if verify_peer and credentials.trusted is None:
                raise TlsError("peer", "there is no authority to verify the certificates of clients")
            session = SESSION_CONTEXT
            if verify_peer:
                mode = SSL_VERIFY_PEER if optional else SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
                session = OPTIONAL_CONTEXT if optional else VERIFIED_CONTEXT
            SSL_CTX_set_verify(self.context, mode, NULL)
            self.use_tickets(credentials.ticket_key, session)
        else:
            if credentials.trusted is None:
                SSL_CTX_set_default_verify_paths(self.context)
            SSL_CTX_set_verify(self.context, SSL_VERIFY_PEER, NULL)
            request_ocsp_status(self.context)

    def __dealloc__(self):
        SSL_CTX_free(self.context)

    cdef int use_protocols(self, names) except -1:
        """Allow exactly the named protocol versions."""
        cdef uint64_t without = 0
        for name in names:
            if name not in VERSIONS:
                raise TlsError("protocols", f"'{name}' is none of {', '.join(VERSIONS)}")
        numbers = [VERSIONS[name] for name in names]
        if not SSL_CTX_set_min_proto_version(self.context, min(numbers)) \
                or not SSL_CTX_set_max_proto_version(self.context, max(numbers)):
            raise TlsError("protocols", last_error())
        if "TLSv1" not in names:
            without |= SSL_OP_NO_TLSv1
        if "TLSv1.1" not in names:
            without |= SSL_OP_NO_TLSv1_1
        if "TLSv1.2" not in names:
            without |= SSL_OP_NO_TLSv1_2
        if "TLSv1.3" not in names:
            without |= SSL_OP_NO_TLSv1_3
        if min(numbers) < TLS1_2_VERSION:
            # OpenSSL's default security level has no signature algorithm for versions before 1.2.
            SSL_CTX_set_cipher_list(self.context, b"DEFAULT:@SECLEVEL=0")
        SSL_CTX_set_options(self.context, without)
        return 0

    cdef int use_ciphers(self, str text) except -1:
        if not SSL_CTX_set_cipher_list(self.context, text.encode()):
            raise TlsError("ciphers", last_error())
        return 0

    cdef int use_groups(self) except -1:
        """Restrict key exchange to the usual groups.

        With client certificates all groups stay allowed, since the keys of clients may use other groups.
        """
        for groups in SERVER_GROUPS:
            if SSL_CTX_set1_groups_list(self.context, groups):
                return 0
            ERR_clear_error()
        return 0  # OpenSSL's configuration allows fewer groups: keep its own list

    cdef int use_certificates(self, str text) except -1:
        """Use a PEM text with the router's own certificate first, then the intermediate ones. Raises TlsError."""
        cdef bytes octets = text.encode()
        cdef BIO* bio = BIO_new_mem_buf(<const char*>octets, <int>len(octets))
        cdef X509* certificate
        cdef bint first = True
        if bio is NULL:
            raise MemoryError("certificates")
        try:
            while True:
                certificate = PEM_read_bio_X509(bio, NULL, give_password, NULL)
                if certificate is NULL:
                    if first:
                        raise TlsError("certificates", last_error())
                    return check_pem_end("certificates")
                try:
                    if first:
                        if not SSL_CTX_use_certificate(self.context, certificate):
                            raise TlsError("certificates", last_error())
                    elif not SSL_CTX_add1_chain_cert(self.context, certificate):
                        raise TlsError("certificates", last_error())
                    end = seconds_of(X509_get0_notAfter(certificate))
                    if first:
                        self.valid_from, self.valid_until = seconds_of(X509_get0_notBefore(certificate)), end
                    self.expires = end if first else min(self.expires, end)
                finally:
                    X509_free(certificate)
                first = False
        finally:
            BIO_free(bio)

    cdef int use_key(self, str text, password) except -1:
        cdef bytes octets = text.encode()
        cdef bytes secret = b"" if password is None else password.encode()
        cdef Password given
        cdef BIO* bio = BIO_new_mem_buf(<const char*>octets, <int>len(octets))
        cdef EVP_PKEY* key
        if bio is NULL:
            raise MemoryError("key")
        given.data = secret
        given.size = <int>len(secret)
        given.asked = False
        key = PEM_read_bio_PrivateKey(bio, NULL, give_password, &given)
        BIO_free(bio)
        if key is NULL:
            reason = last_error()
            if given.asked and password is None:
                reason = "it is encrypted, and no password is given"
            elif given.asked:  # OpenSSL's own reason is random: one in 256 wrong passwords seems to decrypt the key
                reason = "the given password does not decrypt it"
            elif "-----BEGIN" not in text or "PRIVATE KEY-----" not in text:
                reason = "there is no private key"
            raise TlsError("key", reason)
        try:
            if not SSL_CTX_use_PrivateKey(self.context, key) or not SSL_CTX_check_private_key(self.context):
                raise TlsError("key", last_error())
        finally:
            EVP_PKEY_free(key)
        return 0

    cdef int trust(self, str text) except -1:
        """Trust the authorities in a PEM text. If it contains revocation lists, they are used too. Raises TlsError."""
        cdef bytes octets = text.encode()
        cdef BIO* bio = BIO_new_mem_buf(<const char*>octets, <int>len(octets))
        cdef X509_STORE* store = SSL_CTX_get_cert_store(self.context)
        cdef X509* certificate
        cdef int found = 0
        if bio is NULL:
            raise MemoryError("certificates of authorities")
        try:
            while True:
                certificate = PEM_read_bio_X509(bio, NULL, give_password, NULL)
                if certificate is NULL:
                    break
                found += 1
                X509_STORE_add_cert(store, certificate)
                if self.server:
                    SSL_CTX_add_client_CA(self.context, certificate)
                X509_free(certificate)
            if not found:
                raise TlsError("trusted", last_error())
            check_pem_end("trusted")
        finally:
            BIO_free(bio)
        self.use_lists(text)
        if self.lists:
            self.require_revocation_lists()
        return 0

    cdef int use_lists(self, str text) except -1:
        """Add the revocation lists in a PEM text. Older lists of the same authority do no harm. Raises TlsError."""
        cdef bytes octets = text.encode()
        cdef BIO* bio = BIO_new_mem_buf(<const char*>octets, <int>len(octets))
        cdef X509_STORE* store = SSL_CTX_get_cert_store(self.context)
        cdef X509_CRL* revoked
        cdef char[NAME_MOST] name
        if bio is NULL:
            raise MemoryError("revocation lists")
        try:
            while True:
                revoked = PEM_read_bio_X509_CRL(bio, NULL, give_password, NULL)
                if revoked is NULL:
                    break
                self.lists += 1
                X509_STORE_add_crl(store, revoked)
                X509_NAME_oneline(X509_CRL_get_issuer(revoked), name, NAME_MOST)
                authority = name.decode("ascii", "replace")
                end = seconds_of(X509_CRL_get0_nextUpdate(revoked))
                self.list_ends[authority] = max(end, self.list_ends.get(authority, 0.0))
                X509_CRL_free(revoked)
            check_pem_end("trusted")
        finally:
            BIO_free(bio)
        return 0

    def require_revocation_lists(self):
        """Refuse revoked certificates, and all certificates whose authority has no revocation list."""
        X509_STORE_set_flags(
            SSL_CTX_get_cert_store(self.context), X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL)

    cdef int use_tickets(self, bytes key, bytes context) except -1:
        """Allow session resumption by tickets only; every worker can decrypt them. Without a key, disable resumption.

        `context` is the session id context of the listeners that accept the tickets. Raises TlsError.
        """
        SSL_CTX_set_session_cache_mode(self.context, SSL_SESS_CACHE_OFF)
        SSL_CTX_set_session_id_context(self.context, <const unsigned char*><const char*>context, <unsigned>len(context))
        if not key:
            SSL_CTX_set_options(self.context, SSL_OP_NO_TICKET)
            SSL_CTX_set_num_tickets(self.context, 0)
        elif not SSL_CTX_set_tlsext_ticket_keys(self.context, <void*><const char*>key, <long>len(key)):
            raise TlsError("certificates", last_error())
        else:
            SSL_CTX_set_num_tickets(self.context, 1)
        return 0

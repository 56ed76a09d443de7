"""Negotiated parameters of a TLS connection, and identity of its peer (security.md T-20)."""
from sluice.router.tls.openssl cimport *

from sluice.router.control.messages import TlsFacts

cdef extern from "openssl/x509.h" nogil:
    X509_NAME* X509_get_issuer_name(const X509* certificate)

cdef enum:
    DIGEST_MOST = 64
    TEXT_MOST = 128
    BINDING_SIZE = 32

cdef bytes BINDING_LABEL = b"EXPORTER-Channel-Binding"  # RFC 9266, 4.1


cdef object negotiated_tls(SSL* ssl):
    """Return the `TlsFacts` of an established connection."""
    cdef const SSL_CIPHER* cipher = SSL_get_current_cipher(ssl)
    cdef X509* certificate = SSL_get1_peer_certificate(ssl)
    subject, issuer, attributes, fingerprints, names = None, None, [], {}, {}
    if certificate is not NULL:
        try:
            subject = full_name(X509_get_subject_name(certificate))
            issuer = full_name(X509_get_issuer_name(certificate))
            attributes = attributes_of(X509_get_subject_name(certificate))
            names = alternative_names(certificate)
            fingerprints = {
                "1": fingerprint(certificate, EVP_sha1()),
                "2": fingerprint(certificate, EVP_sha256()),
                "5": fingerprint(certificate, EVP_sha512()),
            }
        finally:
            X509_free(certificate)
    return TlsFacts(
        protocol=SSL_get_version(ssl).decode("ascii"),
        cipher=SSL_CIPHER_get_name(cipher).decode("ascii"),
        ssf=SSL_CIPHER_get_bits(cipher, NULL),
        resumed=bool(SSL_session_reused(ssl)),
        subject=subject,
        issuer=issuer,
        attributes=attributes,
        fingerprints=fingerprints,
        names=names,
    )


cdef bytes channel_binding(SSL* ssl):
    """Return the channel binding `tls-exporter` (RFC 9266) of an established connection, or None.

    With TLS 1.2 without extended master secret the value would not be unique to the connection; the result is None.
    """
    cdef unsigned char[BINDING_SIZE] octets
    if SSL_version(ssl) < TLS1_3_VERSION and SSL_get_extms_support(ssl) != 1:
        return None
    if SSL_export_keying_material(ssl, octets, BINDING_SIZE, BINDING_LABEL, len(BINDING_LABEL), NULL, 0, 0) != 1:
        ERR_clear_error()
        return None
    return octets[:BINDING_SIZE]


cdef bint is_certificate_expired(SSL* ssl):
    """Return whether the peer has a certificate that has expired. OpenSSL does not check this in resumed sessions."""
    cdef X509* certificate = SSL_get1_peer_certificate(ssl)
    cdef int days = 0, seconds = 0
    if certificate is NULL:
        return False
    ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate))
    X509_free(certificate)
    return days < 0 or seconds < 0


cdef bint is_chain_revoked(SSL* ssl, SSL_CTX* context) except -1:
    """Return whether a revocation list of the context contains a certificate of the peer's chain.

    In a resumed session, OpenSSL knows only the peer's own certificate.
    """
    cdef X509_STORE_CTX* lists = X509_STORE_CTX_new()
    cdef X509* own = SSL_get1_peer_certificate(ssl)
    cdef STACK_OF_X509* chain = SSL_get0_verified_chain(ssl)
    cdef int at
    cdef bint found = False
    try:
        if lists is NULL or not X509_STORE_CTX_init(lists, SSL_CTX_get_cert_store(context), NULL, NULL):
            raise MemoryError("revocation lists")
        if own is not NULL:
            found = is_listed(lists, own)
        if chain is not NULL:
            for at in range(1, sk_X509_num(chain)):
                found = found or is_listed(lists, sk_X509_value(chain, at))
    finally:
        X509_free(own)
        X509_STORE_CTX_free(lists)
    return found


cdef bint is_listed(X509_STORE_CTX* lists, X509* certificate) noexcept:
    """Return whether a revocation list of its issuer contains the certificate."""
    cdef STACK_OF_X509_CRL* own = X509_STORE_CTX_get1_crls(lists, X509_get_issuer_name(certificate))
    cdef X509_REVOKED* entry
    cdef int at
    cdef bint found = False
    if own is NULL:
        return False
    for at in range(sk_X509_CRL_num(own)):
        # Result 2: the certificate was on hold and has been released.
        found = found or X509_CRL_get0_by_serial(
            sk_X509_CRL_value(own, at), &entry, X509_get0_serialNumber(certificate)) == 1
    sk_X509_CRL_pop_free(own, X509_CRL_free)
    return found


cdef str full_name(const X509_NAME* name):
    """Return a name in the form of RFC 2253, as printed by OpenSSL: ASCII, the last RDN first.

    The result is empty for a name without attributes, and for one with a value that OpenSSL cannot print: the part
    printed before the error could be the name of another certificate.
    """
    cdef BIO* out = BIO_new(BIO_s_mem())
    cdef char* text
    cdef long size
    if out is NULL:
        raise MemoryError("name of a certificate")
    try:
        if X509_NAME_print_ex(out, name, 0, XN_FLAG_RFC2253) < 0:
            ERR_clear_error()
            return ""
        size = BIO_get_mem_data(out, &text)
        return text[:size].decode("ascii")
    finally:
        BIO_free(out)


cdef list attributes_of(const X509_NAME* name):
    """Return the pairs (attribute, value) of a name in the order of the certificate."""
    cdef X509_NAME_ENTRY* entry
    cdef const ASN1_OBJECT* kind
    cdef unsigned char* text
    cdef char[TEXT_MOST] number
    cdef int at, size, nid
    cdef list found = []
    for at in range(X509_NAME_entry_count(name)):
        entry = X509_NAME_get_entry(name, at)
        kind = X509_NAME_ENTRY_get_object(entry)
        nid = OBJ_obj2nid(kind)
        if nid == NID_undef:
            OBJ_obj2txt(number, TEXT_MOST, kind, 1)
            label = number.decode("ascii", "replace")
        else:
            label = OBJ_nid2sn(nid).decode("ascii")
        size = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(entry))
        if size < 0:
            ERR_clear_error()
            continue
        try:
            found.append((label, text[:size].decode("utf-8", "replace")))
        finally:
            CRYPTO_free(text, b"", 0)
    return found


cdef dict alternative_names(const X509* certificate):
    """Return the first subject alternative name of each kind, by its letter in `uidFormat`.

    A name with characters that are invalid in its kind (NUL, blanks, characters beyond ASCII) is left out, since it
    could look like another name.
    """
    cdef GENERAL_NAMES* names = <GENERAL_NAMES*>X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL)
    cdef ASN1_STRING* string
    cdef int at, kind
    cdef dict found = {}
    if names is NULL:
        ERR_clear_error()
        return found
    for at in range(sk_GENERAL_NAME_num(names)):
        string = <ASN1_STRING*>GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, at), &kind)
        if kind != GEN_DNS and kind != GEN_URI and kind != GEN_EMAIL:
            continue
        text = ASN1_STRING_get0_data(string)[:ASN1_STRING_length(string)].decode("latin-1")
        if text and text.isascii() and text.isprintable() and " " not in text:
            found.setdefault("d" if kind == GEN_DNS else "i" if kind == GEN_URI else "e", text)
    GENERAL_NAMES_free(names)
    return found


cdef str fingerprint(const X509* certificate, const EVP_MD* kind):
    cdef unsigned char[DIGEST_MOST] digest
    cdef unsigned int size = 0
    if not X509_digest(certificate, kind, digest, &size):
        return ""
    return (<bytes>digest[:size]).hex()

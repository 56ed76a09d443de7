"""What a TLS connection has negotiated, and who the peer is (security.md T-20)."""
from router.tls.openssl cimport *

from router.control.messages import Tls

cdef extern from "openssl/x509.h" nogil:
    X509_NAME* X509_get_issuer_name(const X509* certificate)

cdef enum:
    DIGEST_MOST = 64
    TEXT_MOST = 128


cdef object negotiated(SSL* ssl):
    """`Tls` of an established connection."""
    cdef const SSL_CIPHER* cipher = SSL_get_current_cipher(ssl)
    cdef X509* certificate = SSL_get1_peer_certificate(ssl)
    subject, issuer, fingerprints = None, None, {}
    if certificate is not NULL:
        try:
            subject = names_of(X509_get_subject_name(certificate))
            issuer = names_of(X509_get_issuer_name(certificate))
            fingerprints = {
                "1": fingerprint(certificate, EVP_sha1()),
                "2": fingerprint(certificate, EVP_sha256()),
                "5": fingerprint(certificate, EVP_sha512()),
            }
        finally:
            X509_free(certificate)
    return Tls(
        protocol=SSL_get_version(ssl).decode("ascii"),
        cipher=SSL_CIPHER_get_name(cipher).decode("ascii"),
        ssf=SSL_CIPHER_get_bits(cipher, NULL),
        resumed=bool(SSL_session_reused(ssl)),
        subject=subject,
        issuer=issuer,
        fingerprints=fingerprints,
    )


cdef bint expired(SSL* ssl):
    """Whether the peer's certificate, if there is one, has expired: OpenSSL does not look when a session is resumed."""
    cdef X509* certificate = SSL_get1_peer_certificate(ssl)
    cdef int days = 0, seconds = 0
    if certificate is NULL:
        return False
    ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate))
    X509_free(certificate)
    return days < 0 or seconds < 0


cdef list names_of(const X509_NAME* name):
    """(attribute, value) in the order of the certificate."""
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


cdef str fingerprint(const X509* certificate, const EVP_MD* kind):
    cdef unsigned char[DIGEST_MOST] digest
    cdef unsigned int size = 0
    if not X509_digest(certificate, kind, digest, &size):
        return ""
    return (<bytes>digest[:size]).hex()

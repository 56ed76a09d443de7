"""Access of tests to the parsing of certificates."""
from sluice.router.tls.openssl cimport *
from sluice.router.tls.peer cimport attributes_of, full_name


def subject(bytes pem not None):
    """Return the subject of a certificate: its name in the form of RFC 2253, and its attributes."""
    cdef BIO* source = BIO_new_mem_buf(<const char*>pem, <int>len(pem))
    cdef X509* certificate = PEM_read_bio_X509(source, NULL, NULL, NULL)
    BIO_free(source)
    if certificate is NULL:
        ERR_clear_error()
        raise ValueError("not a certificate")
    try:
        name = X509_get_subject_name(certificate)
        return full_name(name), attributes_of(name)
    finally:
        X509_free(certificate)

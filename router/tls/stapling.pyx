"""Stapled OCSP responses (RFC 6960) of servers: the status `revoked` ends the handshake.

No OCSP server is queried. A server without a response, or with one that cannot be verified, is accepted: an attacker
with a revoked certificate would not staple a response anyway.
"""
from sluice.router.tls.openssl cimport *

cdef extern from "openssl/ocsp.h" nogil:
    ctypedef struct OCSP_RESPONSE
    ctypedef struct OCSP_BASICRESP
    ctypedef struct OCSP_SINGLERESP
    ctypedef struct OCSP_CERTID
    ctypedef struct ASN1_GENERALIZEDTIME
    ctypedef struct ASN1_OCTET_STRING
    ctypedef int (*status_callback)(SSL* ssl, void* argument) noexcept
    int TLSEXT_STATUSTYPE_ocsp, V_OCSP_CERTSTATUS_REVOKED
    long SSL_CTX_set_tlsext_status_type(SSL_CTX* context, int kind)
    long SSL_CTX_set_tlsext_status_cb(SSL_CTX* context, status_callback callback)
    long SSL_get_tlsext_status_ocsp_resp(SSL* ssl, const unsigned char** octets)
    OCSP_RESPONSE* d2i_OCSP_RESPONSE(OCSP_RESPONSE** into, const unsigned char** octets, long size)
    void OCSP_RESPONSE_free(OCSP_RESPONSE* response)
    OCSP_BASICRESP* OCSP_response_get1_basic(OCSP_RESPONSE* response)
    void OCSP_BASICRESP_free(OCSP_BASICRESP* basic)
    int OCSP_basic_verify(OCSP_BASICRESP* basic, STACK_OF_X509* others, X509_STORE* store, unsigned long flags)
    int OCSP_resp_count(OCSP_BASICRESP* basic)
    OCSP_SINGLERESP* OCSP_resp_get0(OCSP_BASICRESP* basic, int at)
    const OCSP_CERTID* OCSP_SINGLERESP_get0_id(const OCSP_SINGLERESP* single)
    int OCSP_single_get0_status(OCSP_SINGLERESP* single, int* reason, ASN1_GENERALIZEDTIME** revoked,
                                ASN1_GENERALIZEDTIME** this_update, ASN1_GENERALIZEDTIME** next_update)
    int OCSP_id_get0_info(ASN1_OCTET_STRING** name, ASN1_OBJECT** digest, ASN1_OCTET_STRING** key,
                          ASN1_INTEGER** serial, OCSP_CERTID* id)
    OCSP_CERTID* OCSP_cert_to_id(const EVP_MD* digest, const X509* certificate, const X509* issuer)
    int OCSP_id_cmp(const OCSP_CERTID* a, const OCSP_CERTID* b)
    void OCSP_CERTID_free(OCSP_CERTID* id)
    const EVP_MD* EVP_get_digestbyobj(const ASN1_OBJECT* kind)


cdef int request_ocsp_status(SSL_CTX* context) except -1:
    """Make connections of this client context request the status of the server's certificate."""
    SSL_CTX_set_tlsext_status_type(context, TLSEXT_STATUSTYPE_ocsp)
    SSL_CTX_set_tlsext_status_cb(context, check_stapled_response)
    return 0


cdef int check_stapled_response(SSL* ssl, void* argument) noexcept nogil:
    """Check the server's OCSP response, if it sent one. Called by OpenSSL; returning 0 ends the handshake."""
    cdef const unsigned char* octets = NULL
    cdef long size = SSL_get_tlsext_status_ocsp_resp(ssl, &octets)
    cdef OCSP_RESPONSE* response
    cdef OCSP_BASICRESP* basic
    cdef STACK_OF_X509* chain = SSL_get0_verified_chain(ssl)
    cdef bint revoked = False
    if octets is NULL or size <= 0 or chain is NULL:
        return 1
    response = d2i_OCSP_RESPONSE(NULL, &octets, size)
    basic = NULL if response is NULL else OCSP_response_get1_basic(response)
    if basic is not NULL:
        if OCSP_basic_verify(basic, chain, SSL_CTX_get_cert_store(SSL_get_SSL_CTX(ssl)), 0) == 1:
            revoked = response_revokes(basic, sk_X509_value(chain, 0), sk_X509_value(chain, sk_X509_num(chain) > 1))
        OCSP_BASICRESP_free(basic)
    OCSP_RESPONSE_free(response)
    ERR_clear_error()
    if revoked:
        SSL_set_verify_result(ssl, X509_V_ERR_CERT_REVOKED)
        return 0
    return 1


cdef bint response_revokes(OCSP_BASICRESP* basic, X509* certificate, X509* issuer) noexcept nogil:
    """Return whether the response has the status `revoked` for the certificate.

    The age of the response does not matter, since a revocation is final.
    """
    cdef OCSP_SINGLERESP* single
    cdef const OCSP_CERTID* about
    cdef OCSP_CERTID* own
    cdef ASN1_OBJECT* digest
    cdef int at
    cdef bint same
    for at in range(OCSP_resp_count(basic)):
        single = OCSP_resp_get0(basic, at)
        about = OCSP_SINGLERESP_get0_id(single)
        if OCSP_single_get0_status(single, NULL, NULL, NULL, NULL) != V_OCSP_CERTSTATUS_REVOKED \
                or not OCSP_id_get0_info(NULL, &digest, NULL, NULL, <OCSP_CERTID*>about):
            continue
        own = OCSP_cert_to_id(EVP_get_digestbyobj(digest), certificate, issuer)
        same = own is not NULL and OCSP_id_cmp(own, about) == 0
        OCSP_CERTID_free(own)
        if same:
            return True
    return False

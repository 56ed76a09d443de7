"""Declarations of the OpenSSL 3 functions in use."""
from libc.stdint cimport uint64_t
from libc.time cimport tm

cdef extern from "openssl/ssl.h" nogil:
    ctypedef struct SSL_METHOD
    ctypedef struct SSL_CTX
    ctypedef struct SSL
    ctypedef struct SSL_CIPHER
    ctypedef struct BIO
    ctypedef struct BIO_METHOD
    ctypedef struct X509
    ctypedef struct X509_CRL
    ctypedef struct X509_STORE
    ctypedef struct X509_STORE_CTX
    ctypedef struct X509_REVOKED
    ctypedef struct X509_NAME
    ctypedef struct X509_NAME_ENTRY
    ctypedef struct X509_VERIFY_PARAM
    ctypedef struct ASN1_OBJECT
    ctypedef struct ASN1_STRING
    ctypedef struct ASN1_TIME
    ctypedef struct ASN1_INTEGER
    ctypedef struct GENERAL_NAME
    ctypedef struct GENERAL_NAMES
    ctypedef struct STACK_OF_X509 "STACK_OF(X509)"
    ctypedef struct STACK_OF_X509_CRL "STACK_OF(X509_CRL)"
    ctypedef struct EVP_PKEY
    ctypedef struct EVP_MD
    ctypedef void (*message_callback)(int sent, int version, int kind, const void* data, size_t size, SSL* ssl,
                                      void* argument) noexcept
    ctypedef int (*verify_callback)(X509_STORE_CTX* verification, void* argument) noexcept
    ctypedef int (*pem_password_cb)(char* buffer, int size, int rwflag, void* userdata) noexcept

    int TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION
    int SSL_VERIFY_NONE, SSL_VERIFY_PEER, SSL_VERIFY_FAIL_IF_NO_PEER_CERT
    int SSL_ERROR_NONE, SSL_ERROR_SSL, SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE, SSL_ERROR_SYSCALL
    int SSL_ERROR_ZERO_RETURN
    long SSL_MODE_ENABLE_PARTIAL_WRITE, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, SSL_MODE_RELEASE_BUFFERS
    uint64_t SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_COMPRESSION, SSL_OP_NO_TICKET, SSL_OP_CIPHER_SERVER_PREFERENCE
    uint64_t SSL_OP_NO_SSLv3, SSL_OP_NO_TLSv1, SSL_OP_NO_TLSv1_1, SSL_OP_NO_TLSv1_2, SSL_OP_NO_TLSv1_3
    long SSL_SESS_CACHE_OFF
    int SSL3_RT_HEADER, SSL3_RT_INNER_CONTENT_TYPE, SSL3_RT_APPLICATION_DATA, SSL_RECEIVED_SHUTDOWN
    int X509_V_OK, X509_V_ERR_CERT_REVOKED, X509_V_ERR_UNABLE_TO_GET_CRL, X509_V_ERR_CRL_HAS_EXPIRED
    # An error about revocation lists with extensions that are not used here. It is reused for expired lists, see
    # context.pyx.
    int STALE_LIST "X509_V_ERR_CRL_PATH_VALIDATION_ERROR"
    int X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT
    unsigned long X509_V_FLAG_CRL_CHECK, X509_V_FLAG_CRL_CHECK_ALL, X509_V_FLAG_PARTIAL_CHAIN

    const SSL_METHOD* TLS_server_method()
    const SSL_METHOD* TLS_client_method()
    SSL_CTX* SSL_CTX_new(const SSL_METHOD* method)
    void SSL_CTX_free(SSL_CTX* context)
    uint64_t SSL_CTX_set_options(SSL_CTX* context, uint64_t options)
    long SSL_CTX_set_mode(SSL_CTX* context, long mode)
    int SSL_CTX_set_min_proto_version(SSL_CTX* context, int version)
    int SSL_CTX_set_max_proto_version(SSL_CTX* context, int version)
    int SSL_CTX_set_cipher_list(SSL_CTX* context, const char* text)
    int SSL_CTX_set1_groups_list(SSL_CTX* context, const char* text)
    int SSL_CTX_use_certificate(SSL_CTX* context, X509* certificate)
    int SSL_CTX_add1_chain_cert(SSL_CTX* context, X509* certificate)
    int SSL_CTX_use_PrivateKey(SSL_CTX* context, EVP_PKEY* key)
    int SSL_CTX_check_private_key(const SSL_CTX* context)
    X509_STORE* SSL_CTX_get_cert_store(const SSL_CTX* context)
    int SSL_CTX_set_default_verify_paths(SSL_CTX* context)
    int SSL_CTX_add_client_CA(SSL_CTX* context, X509* certificate)
    void SSL_CTX_set_verify(SSL_CTX* context, int mode, void* callback)
    void SSL_CTX_set_cert_verify_callback(SSL_CTX* context, verify_callback callback, void* argument)
    void SSL_CTX_set_verify_depth(SSL_CTX* context, int depth)
    int SSL_CTX_set_session_id_context(SSL_CTX* context, const unsigned char* data, unsigned int size)
    long SSL_CTX_set_session_cache_mode(SSL_CTX* context, long mode)
    long SSL_CTX_set_tlsext_ticket_keys(SSL_CTX* context, void* keys, long size)
    int SSL_CTX_set_num_tickets(SSL_CTX* context, size_t number)
    void SSL_CTX_set_read_ahead(SSL_CTX* context, int yes)
    void SSL_CTX_set_default_read_buffer_len(SSL_CTX* context, size_t size)
    long SSL_CTX_set_max_cert_list(SSL_CTX* context, long size)
    SSL* SSL_new(SSL_CTX* context)
    void SSL_free(SSL* ssl)
    int SSL_set_fd(SSL* ssl, int fd)
    void SSL_set_accept_state(SSL* ssl)
    void SSL_set_connect_state(SSL* ssl)
    long SSL_set_tlsext_host_name(SSL* ssl, const char* name)
    int SSL_set1_host(SSL* ssl, const char* name)
    void SSL_set_hostflags(SSL* ssl, unsigned int flags)
    X509_VERIFY_PARAM* SSL_get0_param(SSL* ssl)
    int SSL_do_handshake(SSL* ssl)
    int SSL_read(SSL* ssl, void* data, int size)
    int SSL_write(SSL* ssl, const void* data, int size)
    int SSL_shutdown(SSL* ssl)
    void SSL_set_shutdown(SSL* ssl, int mode)
    void SSL_set_msg_callback(SSL* ssl, message_callback callback)
    void SSL_set_msg_callback_arg(SSL* ssl, void* argument)
    int SSL_pending(const SSL* ssl)
    int SSL_has_pending(const SSL* ssl)
    int SSL_get_error(const SSL* ssl, int result)
    int SSL_want_write(const SSL* ssl)
    int SSL_session_reused(const SSL* ssl)
    const char* SSL_get_version(const SSL* ssl)
    const SSL_CIPHER* SSL_get_current_cipher(const SSL* ssl)
    const char* SSL_CIPHER_get_name(const SSL_CIPHER* cipher)
    int SSL_CIPHER_get_bits(const SSL_CIPHER* cipher, int* of_algorithm)
    X509* SSL_get1_peer_certificate(const SSL* ssl)
    STACK_OF_X509* SSL_get0_verified_chain(const SSL* ssl)
    int sk_X509_num(const STACK_OF_X509* chain)
    X509* sk_X509_value(const STACK_OF_X509* chain, int at)
    int SSL_version(const SSL* ssl)
    long SSL_get_extms_support(SSL* ssl)
    int SSL_export_keying_material(SSL* ssl, unsigned char* out, size_t size, const char* label, size_t label_size,
                                   const unsigned char* context, size_t context_size, int use_context)
    long SSL_get_verify_result(const SSL* ssl)
    void SSL_set_verify_result(SSL* ssl, long result)
    SSL_CTX* SSL_get_SSL_CTX(const SSL* ssl)
    const char* X509_verify_cert_error_string(long result)

cdef extern from "openssl/x509v3.h" nogil:
    int X509_VERIFY_PARAM_set1_ip_asc(X509_VERIFY_PARAM* param, const char* text)
    unsigned long X509_VERIFY_PARAM_set_flags(X509_VERIFY_PARAM* param, unsigned long flags)
    void X509_VERIFY_PARAM_set_hostflags(X509_VERIFY_PARAM* param, unsigned int flags)
    int NID_subject_alt_name
    int GEN_EMAIL, GEN_DNS, GEN_URI
    void* X509_get_ext_d2i(const X509* certificate, int kind, int* critical, int* at)
    int sk_GENERAL_NAME_num(const GENERAL_NAMES* names)
    GENERAL_NAME* sk_GENERAL_NAME_value(const GENERAL_NAMES* names, int at)
    void* GENERAL_NAME_get0_value(const GENERAL_NAME* name, int* kind)
    void GENERAL_NAMES_free(GENERAL_NAMES* names)

cdef extern from "openssl/x509.h" nogil:
    void X509_free(X509* certificate)
    void X509_CRL_free(X509_CRL* revoked)
    int X509_STORE_add_cert(X509_STORE* store, X509* certificate)
    int X509_STORE_add_crl(X509_STORE* store, X509_CRL* revoked)
    int X509_STORE_set_flags(X509_STORE* store, unsigned long flags)
    X509_STORE_CTX* X509_STORE_CTX_new()
    void X509_STORE_CTX_free(X509_STORE_CTX* verification)
    int X509_STORE_CTX_init(X509_STORE_CTX* verification, X509_STORE* store, X509* certificate, STACK_OF_X509* others)
    X509* X509_STORE_CTX_get0_cert(const X509_STORE_CTX* verification)
    X509_VERIFY_PARAM* X509_STORE_CTX_get0_param(const X509_STORE_CTX* verification)
    int X509_STORE_CTX_get_error(const X509_STORE_CTX* verification)
    void X509_STORE_CTX_set_error(X509_STORE_CTX* verification, int error)
    STACK_OF_X509_CRL* X509_STORE_CTX_get1_crls(const X509_STORE_CTX* verification, const X509_NAME* issuer)
    int sk_X509_CRL_num(const STACK_OF_X509_CRL* lists)
    X509_CRL* sk_X509_CRL_value(const STACK_OF_X509_CRL* lists, int at)
    void sk_X509_CRL_pop_free(STACK_OF_X509_CRL* lists, void (*free)(X509_CRL*) noexcept)
    int X509_verify_cert(X509_STORE_CTX* verification)
    int X509_get_ext_by_NID(const X509* certificate, int kind, int after)
    X509_NAME* X509_get_issuer_name(const X509* certificate)
    const ASN1_INTEGER* X509_get0_serialNumber(const X509* certificate)
    int X509_CRL_get0_by_serial(X509_CRL* revoked, X509_REVOKED** found, const ASN1_INTEGER* serial)
    X509_NAME* X509_CRL_get_issuer(const X509_CRL* revoked)
    const ASN1_TIME* X509_CRL_get0_nextUpdate(const X509_CRL* revoked)
    X509_NAME* X509_get_subject_name(const X509* certificate)
    char* X509_NAME_oneline(const X509_NAME* name, char* text, int size)
    int X509_NAME_print_ex(BIO* out, const X509_NAME* name, int indent, unsigned long flags)
    unsigned long XN_FLAG_RFC2253
    int X509_NAME_entry_count(const X509_NAME* name)
    X509_NAME_ENTRY* X509_NAME_get_entry(const X509_NAME* name, int at)
    ASN1_OBJECT* X509_NAME_ENTRY_get_object(const X509_NAME_ENTRY* entry)
    ASN1_STRING* X509_NAME_ENTRY_get_data(const X509_NAME_ENTRY* entry)
    int X509_digest(const X509* certificate, const EVP_MD* kind, unsigned char* digest, unsigned int* size)
    const EVP_MD* EVP_sha1()
    const EVP_MD* EVP_sha256()
    const EVP_MD* EVP_sha512()
    const ASN1_TIME* X509_get0_notBefore(const X509* certificate)
    const ASN1_TIME* X509_get0_notAfter(const X509* certificate)
    int ASN1_TIME_to_tm(const ASN1_TIME* moment, tm* parts)
    int ASN1_TIME_diff(int* days, int* seconds, const ASN1_TIME* earlier, const ASN1_TIME* later)
    const unsigned char* ASN1_STRING_get0_data(const ASN1_STRING* string)
    int ASN1_STRING_length(const ASN1_STRING* string)
    int ASN1_STRING_to_UTF8(unsigned char** text, const ASN1_STRING* string)
    void EVP_PKEY_free(EVP_PKEY* key)

cdef extern from "openssl/objects.h" nogil:
    int OBJ_obj2nid(const ASN1_OBJECT* object)
    const char* OBJ_nid2sn(int number)
    int OBJ_obj2txt(char* text, int size, const ASN1_OBJECT* object, int no_name)
    int NID_undef

cdef extern from "openssl/pem.h" nogil:
    int PEM_R_NO_START_LINE
    X509* PEM_read_bio_X509(BIO* bio, X509** into, pem_password_cb callback, void* userdata)
    X509_CRL* PEM_read_bio_X509_CRL(BIO* bio, X509_CRL** into, pem_password_cb callback, void* userdata)
    EVP_PKEY* PEM_read_bio_PrivateKey(BIO* bio, EVP_PKEY** into, pem_password_cb callback, void* userdata)

cdef extern from "openssl/bio.h" nogil:
    BIO* BIO_new_mem_buf(const void* data, int size)
    const BIO_METHOD* BIO_s_mem()
    BIO* BIO_new(const BIO_METHOD* kind)
    long BIO_get_mem_data(BIO* bio, char** data)
    int BIO_free(BIO* bio)

cdef extern from "openssl/crypto.h" nogil:
    void CRYPTO_free(void* data, const char* file, int line)

cdef extern from "openssl/err.h" nogil:
    unsigned long ERR_get_error()
    unsigned long ERR_peek_last_error()
    void ERR_clear_error()
    void ERR_error_string_n(unsigned long error, char* text, size_t size)
    const char* ERR_reason_error_string(unsigned long error)
    int ERR_GET_REASON(unsigned long error)

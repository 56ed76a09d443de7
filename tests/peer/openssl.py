"""TLS client on OpenSSL's C functions, for cases that the standard library cannot handle: records are created first
and sent later.
"""

import _ssl
import ctypes
import socket
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from typing import Any, Final

_LIBRARY: Final = ctypes.CDLL(_ssl.__file__)  # loads libssl and libcrypto, too
_KEY_UPDATE_NOT_REQUESTED: Final = 0


def _function(name: str, result: Any, *arguments: Any) -> Any:
    found = getattr(_LIBRARY, name)
    found.restype, found.argtypes = result, arguments
    return found


_client = _function("TLS_client_method", c_void_p)
_new_context = _function("SSL_CTX_new", c_void_p, c_void_p)
_free_context = _function("SSL_CTX_free", None, c_void_p)
_new = _function("SSL_new", c_void_p, c_void_p)
_free = _function("SSL_free", None, c_void_p)
_memory = _function("BIO_s_mem", c_void_p)
_new_bio = _function("BIO_new", c_void_p, c_void_p)
_set_bio = _function("SSL_set_bio", None, c_void_p, c_void_p, c_void_p)
_connect = _function("SSL_set_connect_state", None, c_void_p)
_shake = _function("SSL_do_handshake", c_int, c_void_p)
_update = _function("SSL_key_update", c_int, c_void_p, c_int)
_write = _function("SSL_write", c_int, c_void_p, c_char_p, c_int)
_bio_read = _function("BIO_read", c_int, c_void_p, c_char_p, c_int)
_bio_write = _function("BIO_write", c_int, c_void_p, c_char_p, c_int)
_bio_pending = _function("BIO_ctrl_pending", c_size_t, c_void_p)


class OpenSslClient:
    """TLS 1.3 connection that verifies no certificate. It does not read the server's records after the handshake."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._context = _new_context(_client())
        self._ssl = _new(self._context)
        self._in, self._out = _new_bio(_memory()), _new_bio(_memory())
        _set_bio(self._ssl, self._in, self._out)
        _connect(self._ssl)
        while _shake(self._ssl) != 1:
            self.socket.sendall(self._made())
            octets = self.socket.recv(65536)
            assert octets, "the server has ended it"
            _bio_write(self._in, octets, len(octets))
        self.socket.sendall(self._made())

    def close(self) -> None:
        self.socket.close()
        _free(self._ssl)
        _free_context(self._context)

    def updates(self, number: int) -> bytes:
        """Return `number` records that update the key."""
        for _ in range(number):
            assert _update(self._ssl, _KEY_UPDATE_NOT_REQUESTED) == 1
            assert _shake(self._ssl) == 1
        return self._made()

    def data(self, octets: bytes) -> bytes:
        """Return a record with data."""
        assert _write(self._ssl, octets, len(octets)) == len(octets)
        return self._made()

    def _made(self) -> bytes:
        size = _bio_pending(self._out)
        octets = ctypes.create_string_buffer(size)
        assert _bio_read(self._out, octets, size) == size or not size
        return octets.raw

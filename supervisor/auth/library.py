"""Provider libsasl2 (Cyrus SASL), loaded if configured: sasldb, GSSAPI and other mechanisms of its plugins.

The rules: security.md S-1 to S-6. The library may read files and query other servers, so each call is made in a
thread. It is initialised once in a process; changed settings need another process. Security layers are never
negotiated, because encryption is left to TLS.
"""

import ctypes
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_ulong, c_void_p
from typing import Any, Final

from sluice.router.sasl.mechanism import Answer, Challenge, Failure, Success
from sluice.supervisor.auth.messages import LibrarySettings as LibraryConfig

FILE: Final = "libsasl2.so.2"
SERVICE: Final = b"amqp"

# Constants of sasl.h.
OK, CONTINUE = 0, 1
BADPARAM, NOMEM, BADAUTH, NOUSER, NOMECH = -7, -2, -13, -20, -4
PATH_TYPE_CONFIG = 1
CB_LIST_END, CB_LOG, CB_PROXY_POLICY = 0, 2, 0x8001
LOG_ERR, LOG_PASS = 1, 7
SSF_EXTERNAL, SEC_PROPS, AUTH_EXTERNAL = 100, 101, 102
AUTHUSER = 16
MAX_SHOWN: Final = 500  # maximum characters of a library message in the log


class LibraryError(Exception):
    """Raised when the library cannot be used; the text is the reason."""


class _Callback(ctypes.Structure):
    _fields_ = (("id", c_ulong), ("proc", c_void_p), ("context", c_void_p))


class _SecurityProperties(ctypes.Structure):
    _fields_ = (
        ("min_ssf", c_uint),
        ("max_ssf", c_uint),
        ("maxbufsize", c_uint),
        ("security_flags", c_uint),
        ("property_names", c_void_p),
        ("property_values", c_void_p),
    )


_LogProc = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_char_p)
_ProxyProc = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_char_p, c_uint, c_char_p, c_uint, c_char_p, c_uint, c_void_p)
_MutexNew = ctypes.CFUNCTYPE(c_void_p)
_MutexUse = ctypes.CFUNCTYPE(c_int, c_void_p)
_MutexFree = ctypes.CFUNCTYPE(None, c_void_p)


class _Mutexes:
    """Mutexes for the library, which several threads use at the same time. Owner: the library."""

    def __init__(self) -> None:
        self._locks: dict[int, threading.Lock] = {}
        self._next = 1
        self._guard: Final = threading.Lock()
        self.procs: Final = (
            _MutexNew(self._new),
            _MutexUse(self._lock),
            _MutexUse(self._unlock),
            _MutexFree(self._free),
        )

    def _new(self) -> int:
        with self._guard:
            number, self._next = self._next, self._next + 1
            self._locks[number] = threading.Lock()
        return number

    def _lock(self, number: int) -> int:
        self._locks[number].acquire()
        return OK

    def _unlock(self, number: int) -> int:
        self._locks[number].release()
        return OK

    def _free(self, number: int) -> None:
        with self._guard:
            self._locks.pop(number, None)


class Library:
    """Initialised library. Owner: the authentication process, which has at most one."""

    def __init__(self, config: LibraryConfig, log: Any) -> None:
        """Load and initialise the library. Raises LibraryError. log: called with level and text, in any thread."""
        self.config: Final = config
        self._log: Final = log
        try:
            self._calls: Final = _declare(ctypes.CDLL(FILE))
        except (OSError, AttributeError) as error:
            raise LibraryError(f"{FILE} cannot be loaded: {error}") from None
        self._mutexes: Final = _Mutexes()
        self._calls.sasl_set_mutex(*self._mutexes.procs)
        if config.folder is not None:
            self._check(self._calls.sasl_set_path(PATH_TYPE_CONFIG, config.folder.encode()))
        # References that keep the callbacks alive as long as the library may call them.
        self._procs: Final = (_LogProc(self._line), _ProxyProc(_authorize))
        self._callbacks: Final = (_Callback * 3)(
            _Callback(CB_LOG, ctypes.cast(self._procs[0], c_void_p), None),
            _Callback(CB_PROXY_POLICY, ctypes.cast(self._procs[1], c_void_p), None),
            _Callback(CB_LIST_END, None, None),
        )
        self._check(self._calls.sasl_server_init(self._callbacks, config.name.encode()))

    def _check(self, result: int) -> None:
        if result != OK:
            text = self._calls.sasl_errstring(result, None, None) or b"?"
            raise LibraryError(f"SASL({result}): {text.decode(errors='replace')}")

    def begin(self, encryption: int, external: str | None) -> "LibraryExchange":
        """Begin an exchange with a client. Raises LibraryError.

        encryption: strength (ssf) of TLS; 0: none. external: user by the client's certificate.
        """
        handle = c_void_p()
        self._check(self._calls.sasl_server_new(SERVICE, None, None, None, None, None, 0, byref(handle)))
        exchange = LibraryExchange(self._calls, handle)
        try:
            strength = c_uint(encryption)
            properties = _SecurityProperties(0, 0, 0, 0, None, None)
            self._check(self._calls.sasl_setprop(handle, SSF_EXTERNAL, byref(strength)))
            self._check(self._calls.sasl_setprop(handle, SEC_PROPS, byref(properties)))
            if external is not None:
                self._check(self._calls.sasl_setprop(handle, AUTH_EXTERNAL, c_char_p(external.encode())))
        except BaseException:
            exchange.close()
            raise
        return exchange

    def _line(self, context: int | None, level: int, text: bytes | None) -> int:
        if level >= LOG_PASS or not text:  # messages of this level contain passwords
            return OK
        shown = text.decode(errors="replace")[:MAX_SHOWN]
        self._log("warning" if level <= LOG_ERR else "debug", f"libsasl2: {shown.strip()}")
        return OK


def _authorize(*_: object) -> int:
    """Accept every authorization identity, because it is ignored (security.md S-7)."""
    return OK


class LibraryExchange:
    """Exchange of the library with one client. Owner: its creator.

    Each method may block, so it is called in a thread, and by one thread at a time.
    """

    def __init__(self, calls: Any, handle: c_void_p) -> None:
        self._calls: Final = calls
        self._handle: c_void_p | None = handle
        self._closing: Final = threading.Lock()
        self._started = False

    def mechanisms(self) -> list[str]:
        """Return the mechanisms that the library offers, in its order."""
        found, size, count = c_char_p(), c_uint(), c_int()
        result = self._calls.sasl_listmech(self._handle, None, b"", b" ", b"", byref(found), byref(size), byref(count))
        if result == NOMECH or found.value is None:
            return []
        return found.value.decode("ascii", "replace").split()

    def step(self, mechanism: str, response: bytes) -> Answer:
        """Pass a response of the client to the library and return the answer. The first one starts the mechanism."""
        output, size = c_void_p(), c_uint()
        with self._closing:
            if self._handle is None:
                return Failure("SASL(-6): the SASL exchange has already ended")
            if self._started:
                result = self._calls.sasl_server_step(self._handle, response, len(response), byref(output), byref(size))
            else:
                self._started = True
                # The library distinguishes an absent initial response (null) from an empty one.
                result = self._calls.sasl_server_start(
                    self._handle, mechanism.encode(), response or None, len(response), byref(output), byref(size)
                )
            octets = ctypes.string_at(output, size.value) if output.value else b""
            if result == CONTINUE:
                return Challenge(octets)
            if result == OK:
                return self._user(octets or None)
            detail: bytes = self._calls.sasl_errdetail(self._handle) or b""
        return Failure(detail.decode(errors="replace")[:MAX_SHOWN].strip(), credentials=result in (BADAUTH, NOUSER))

    def _user(self, additional: bytes | None) -> Success | Failure:
        value = c_void_p()
        result = self._calls.sasl_getprop(self._handle, AUTHUSER, byref(value))
        name = ctypes.cast(value, c_char_p).value
        if result != OK or name is None:
            return Failure(f"SASL({result}): libsasl2 reports no user name")
        return Success(name.decode(errors="replace"), additional)

    def close(self) -> None:
        """Release the exchange in the library, after waiting for a step in another thread."""
        with self._closing:
            if self._handle is not None:
                self._calls.sasl_dispose(byref(self._handle))
                self._handle = None


def _declare(calls: Any) -> Any:
    """Declare parameters and results of the functions, because ctypes would truncate pointers to int."""
    text = c_char_p
    for name, result, arguments in (
        ("sasl_set_mutex", None, [_MutexNew, _MutexUse, _MutexUse, _MutexFree]),
        ("sasl_set_path", c_int, [c_int, text]),
        ("sasl_server_init", c_int, [c_void_p, text]),
        ("sasl_server_new", c_int, [text, text, text, text, text, c_void_p, c_uint, POINTER(c_void_p)]),
        ("sasl_setprop", c_int, [c_void_p, c_int, c_void_p]),
        ("sasl_getprop", c_int, [c_void_p, c_int, POINTER(c_void_p)]),
        ("sasl_listmech", c_int, [c_void_p, text, text, text, text, POINTER(text), POINTER(c_uint), POINTER(c_int)]),
        ("sasl_server_start", c_int, [c_void_p, text, text, c_uint, POINTER(c_void_p), POINTER(c_uint)]),
        ("sasl_server_step", c_int, [c_void_p, text, c_uint, POINTER(c_void_p), POINTER(c_uint)]),
        ("sasl_errdetail", text, [c_void_p]),
        ("sasl_errstring", text, [c_int, text, c_void_p]),
        ("sasl_dispose", None, [POINTER(c_void_p)]),
    ):
        function = getattr(calls, name)
        function.restype, function.argtypes = result, arguments
    return calls

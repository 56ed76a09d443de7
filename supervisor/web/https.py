"""TLS of HTTP listeners: contexts of the standard library, with the credentials of sslProfiles."""

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

from sluice.router.control.ops import Credentials
from sluice.router.log import ERROR, ProcessLog
from sluice.router.tls.context import default_ciphers
from sluice.router.tls.versions import limit_versions
from sluice.supervisor.tls.profiles import TlsProfiles

_DEFAULT: Final = ["TLSv1.2", "TLSv1.3"]

PIECE: Final = 512  # octets passed to OpenSSL at once
# Limit in octets of consecutive records without data: longer than the longest record with data. OpenSSL reads on as
# long as there are records, and each change of keys costs far more than it costs a peer to replay one.
MOST_WITHOUT_DATA: Final = 20_000

_Result = TypeVar("_Result")


class _Connection(ssl.SSLObject):
    """TLS connection whose peer cannot keep the event loop busy with records without data."""

    received: ssl.MemoryBIO  # from the socket, not passed to OpenSSL yet
    inside: ssl.MemoryBIO  # input of OpenSSL
    without_data = 0

    def do_handshake(self) -> None:
        """Perform the handshake. OpenSSL limits its input by itself."""
        self._run_with_input(super().do_handshake)
        self.without_data = 0

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002 - parameter name of the library
        """Read data. Raises SSLError also after too many octets without data."""
        found = self._run_with_input(partial(super().read, len, buffer), MOST_WITHOUT_DATA)
        self.without_data = 0
        return found

    def unwrap(self) -> None:
        """Close TLS, with the same limit as `read`."""
        self._run_with_input(super().unwrap, MOST_WITHOUT_DATA)

    def _run_with_input(self, step: Callable[[], _Result], most: float = inf) -> _Result:
        """Run a step of OpenSSL with as much input as it requests, and return its result."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                piece = self.received.read(PIECE)
                if piece:
                    self.inside.write(piece)
                elif self.received.eof and not self.inside.eof:
                    self.inside.write_eof()
                else:
                    raise
            self.without_data += len(piece)
            if self.without_data > most:
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the client sent too many TLS records without data")


class _Context(ssl.SSLContext):
    """SSL context that creates `_Connection` objects."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *given: Any, **named: Any) -> ssl.SSLObject:
        """Create a connection; see SSLContext."""
        inside = ssl.MemoryBIO()
        made = super().wrap_bio(inside, outgoing, *given, **named)
        assert isinstance(made, _Connection)
        made.received, made.inside = incoming, inside
        return made


_Context.sslobject_class = _Connection


class HttpsContexts:
    """SSL contexts by profile, made from the credentials in use. Owner: the HTTP service."""

    def __init__(self, profiles: TlsProfiles, log: ProcessLog) -> None:
        self._profiles: Final = profiles
        self._log: Final = log
        self._made: dict[tuple[str, ssl.VerifyMode], tuple[Credentials, ssl.SSLContext | None]] = {}

    def context(self, name: str, verify_peer: bool, optional: bool = False) -> ssl.SSLContext | None:
        """Return the context for a new connection, or None if the profile is not usable.

        verify_peer: the client has to present a certificate, or only if it has one (`optional`).
        """
        credentials = self._profiles.credentials(name)
        if credentials is None:
            return None
        mode = ssl.CERT_NONE
        if verify_peer and credentials.trusted is not None:
            mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
        made = self._made.get((name, mode))
        if made is None or made[0] is not credentials:
            made = self._made[name, mode] = credentials, self._make(name, credentials, mode)
        return made[1]

    def _make(self, name: str, credentials: Credentials, mode: ssl.VerifyMode) -> ssl.SSLContext | None:
        try:
            return _context(credentials, mode)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            reason = getattr(error, "strerror", None) or str(error)
            text = f"HTTP listeners with sslProfile '{name}' refuse TLS connections: {reason}"
            self._log.repeated(ERROR, "HTTP", name, text)
            return None


def _context(credentials: Credentials, mode: ssl.VerifyMode) -> ssl.SSLContext:
    """Return a context for credentials. Raises OSError and ValueError."""
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    limit_versions(context, credentials.protocols or _DEFAULT)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # No tickets: a session created without a client certificate must not be resumed where one is required.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    ciphers = credentials.ciphers or default_ciphers(credentials.protocols)
    if ciphers is not None:
        context.set_ciphers(ciphers)
    _load(context, credentials)
    if credentials.trusted is not None:
        _trust(context, credentials.trusted, credentials.revoked)
    context.verify_mode = mode
    return context


def _load(context: ssl.SSLContext, credentials: Credentials) -> None:
    if credentials.certificates is None:
        raise ValueError("there is no certificate")
    parts = [credentials.certificates] if credentials.key is None else [credentials.key, credentials.certificates]
    with _file("\n".join(parts)) as path:
        # Without a password the library would prompt on the terminal.
        context.load_cert_chain(path, password=credentials.password or "")


def _trust(context: ssl.SSLContext, text: str, revoked: str | None) -> None:
    """Trust certificates of authorities. If there are revocation lists, refuse revoked certificates."""
    with _file(f"{text}\n{revoked or ''}") as path:
        context.load_verify_locations(path)
    if revoked is not None or context.cert_store_stats()["crl"]:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN


@contextmanager
def _file(text: str) -> Iterator[str]:
    """Provide text as a file in memory, because the library reads these inputs only from files."""
    descriptor = os.memfd_create("credentials", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "w", closefd=False, encoding="utf-8") as file:
            file.write(text)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)

"""TLS of a client: certificates that it trusts and shows, and texts for its failures.

Functions import `ssl` when they need it: it costs programs without TLS 20 ms at their start.
"""

import os
from typing import TYPE_CHECKING, ClassVar, Final

from sluice.router.record import Record

if TYPE_CHECKING:
    import ssl

NO_TLS: Final = "WRONG_VERSION_NUMBER"  # OpenSSL's reason for octets that are not a TLS record


class Tls(Record, frozen=True):
    """TLS settings of connections to `amqps` URLs.

    ca_file: authorities (PEM); None: the system's. certificate, key: of the client (PEM); key None: the key is in the
    certificate's file. password: of the key. verify_host: the peer's certificate must be valid for the host of the
    URL. server_name: used for that check and for SNI; None: the host of the URL.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"password"})

    ca_file: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    password: str | None = None
    verify_host: bool = True
    server_name: str | None = None

    def context(self) -> "ssl.SSLContext":
        """Create a context from the current content of the files, so that the next connection uses replaced ones.
        Raises OSError (or ssl.SSLError, a subclass) with the file in its text."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise OSError(f"{self.ca_file}: {failure(error)}") from error
        context.check_hostname = self.verify_host
        # With this option `SSL_write` never waits for octets of the peer, so the socket is polled in one direction
        # only.
        context.options |= ssl.OP_NO_RENEGOTIATION
        if self.certificate is not None:
            try:
                # Without a password OpenSSL would ask for one on the terminal.
                context.load_cert_chain(self.certificate, self.key, lambda: self.password or "")
            except OSError as error:
                raise OSError(f"{self.certificate}, {self.key or 'its key'}: {failure(error)}") from error
        elif self.key is not None:
            raise OSError(f"{self.key}: this key was given without its certificate")
        return context


def is_untrusted(error: OSError) -> bool:
    """True if the peer's certificate was not accepted."""
    import ssl

    return isinstance(error, ssl.SSLCertVerificationError)


def failure(error: OSError) -> str:
    """Describe an error for people."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the peer's certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        # Only errors that OpenSSL has raised have a reason.
        reason = getattr(error, "reason", None) or str(error.args[-1] if error.args else error)
        if reason == NO_TLS:
            return "TLS: the peer does not use TLS on this port"
        return f"TLS: {reason.lower().replace('_', ' ')}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)

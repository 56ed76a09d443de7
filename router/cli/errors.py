"""Errors of the tools' connection, with the names and texts that scripts know from 1.19 (management.md 8.3)."""

import socket
from typing import Final

from sluice.router.amqp.errors import FRAMING_ERROR
from sluice.router.client.errors import ClientError, ConnectionFailedError

SOCKET: Final = "proton.pythonio"  # condition that 1.19's tools print for errors of the socket


class ToolError(Exception):
    """Base class of the errors of a tool's connection."""


class ConnectionException(ToolError):
    """Raised when the connection cannot be opened, or is lost."""


class ConnectionClosed(ConnectionException):
    """Raised when the router closes the connection."""


class LinkDetached(ToolError):
    """Raised when the router refuses or detaches a link."""


class SendException(ToolError):
    """Raised when the request was not accepted. Its text is the number of the outcome in AMQP."""


class SSLException(ToolError):
    """Raised when a file for TLS cannot be used."""


class Timeout(ToolError):
    """Raised when the router does not answer in time."""


def condition_text(name: str, description: str) -> str:
    """Return an AMQP error as 1.19's tools print it."""
    return f"Condition({name!r}, {description!r})" if description else f"Condition({name!r})"


def connection_error(url: str, host: str, error: ConnectionFailedError, *, layer: str | None) -> Exception:
    """Return the tools' error for a failed connection.

    layer: "SASL" or "AMQP", whose header the connection began with; None: the connection had opened. An unknown host
    name is reported by the resolver's own error, as in 1.19.
    """
    cause = error.__cause__
    if isinstance(cause, socket.gaierror):
        return cause
    if isinstance(cause, TimeoutError) and layer is not None:
        return Timeout(f"Connection {url} timed out: Opening connection")
    if error.closed_by_peer:
        reason = f" due to: {condition_text(error.condition, error.description)}" if error.condition else " by peer"
        return ConnectionClosed(f"Connection {host} closed{reason}")
    name, description = error.condition, error.description
    if isinstance(cause, OSError):
        name, description = _transport_text(cause)
    elif not name:
        expected = f"Expected {layer} protocol header: no protocol header found (connection aborted)"
        name, description = FRAMING_ERROR, "connection aborted" if layer is None else expected
    return ConnectionException(f"Connection {url} disconnected: {condition_text(name, description)}")


def link_error(what: str, error: ClientError) -> LinkDetached:
    """Return the tools' error for a detached link. what: names the link."""
    reason = f" due to: {condition_text(error.condition, error.description)}" if error.condition else " by peer"
    return LinkDetached(f"{what} closed{reason}")


def _transport_text(error: OSError) -> tuple[str, str]:
    """Return condition and description of an error of the socket or of TLS."""
    if isinstance(error, ConnectionRefusedError):
        return SOCKET, "Connection refused to all addresses"
    import ssl  # 20 ms that only errors need

    if not isinstance(error, ssl.SSLError):
        return SOCKET, f"Connection error: {error.errno} ({error.strerror or error})"
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"certificate verify failed: {error.verify_message}"
    elif isinstance(error, ssl.SSLEOFError):
        text = "unexpected eof while reading"
    else:
        # Only errors that OpenSSL has raised have a reason.
        reason: str | None = getattr(error, "reason", None)
        text = reason.lower().replace("_", " ") if reason else str(error)
    return FRAMING_ERROR, f"SSL Failure: {text}"

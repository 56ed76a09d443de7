"""Names and texts of the tools' errors, as scripts know them from 1.19 (management.md 8.3)."""

import socket
import ssl

import pytest

from sluice.router.cli.errors import connection_error, link_error
from sluice.router.client.errors import ConnectionFailedError, LinkDetachedError

URL = "amqp://h:5"
FRAMING = "amqp:connection:framing-error"


def shown(error: ConnectionFailedError, layer: str | None = "AMQP") -> str:
    """Return the line that a tool prints."""
    printed = connection_error(URL, "h", error, layer=layer)
    return f"{type(printed).__name__}: {printed}"


def failed(cause: OSError) -> ConnectionFailedError:
    error = ConnectionFailedError("", "text of the client")
    error.__cause__ = cause
    return error


def tls_error(kind: type[ssl.SSLError], **attributes: str) -> ssl.SSLError:
    error = kind(1, "raw text")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    ("cause", "condition"),
    [
        (ConnectionRefusedError(111, "refused"), "'proton.pythonio', 'Connection refused to all addresses'"),
        (ConnectionResetError(104, "reset"), "'proton.pythonio', 'Connection error: 104 (reset)'"),
        (OSError("no text of the system"), "'proton.pythonio', 'Connection error: None (no text of the system)'"),
        (
            tls_error(ssl.SSLCertVerificationError, verify_message="expired"),
            f"'{FRAMING}', 'SSL Failure: certificate verify failed: expired'",
        ),
        (tls_error(ssl.SSLEOFError), f"'{FRAMING}', 'SSL Failure: unexpected eof while reading'"),
        (tls_error(ssl.SSLError, reason="WRONG_VERSION_NUMBER"), f"'{FRAMING}', 'SSL Failure: wrong version number'"),
    ],
)
def test_error_of_transport_is_condition(cause: OSError, condition: str) -> None:
    assert shown(failed(cause)) == f"ConnectionException: Connection {URL} disconnected: Condition({condition})"


def test_unknown_host_is_error_of_resolver() -> None:
    cause = socket.gaierror(-2, "Name or service not known")
    assert shown(failed(cause)) == "gaierror: [Errno -2] Name or service not known"


def test_slow_connection_is_timeout_until_it_opens() -> None:
    slow = failed(TimeoutError(110, "timed out"))
    assert shown(slow) == f"Timeout: Connection {URL} timed out: Opening connection"
    assert shown(slow, None).startswith("ConnectionException: ")


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        ("AMQP", "Expected AMQP protocol header: no protocol header found (connection aborted)"),
        ("SASL", "Expected SASL protocol header: no protocol header found (connection aborted)"),
        (None, "connection aborted"),
    ],
)
def test_closed_socket_names_expected_layer(layer: str | None, text: str) -> None:
    line = f"ConnectionException: Connection {URL} disconnected: Condition('{FRAMING}', '{text}')"
    assert shown(ConnectionFailedError("", "the peer has closed the socket"), layer) == line


def test_close_of_router_is_distinguished_from_other_errors() -> None:
    error = ConnectionFailedError("amqp:connection:forced", "go")
    assert shown(error).endswith(" disconnected: Condition('amqp:connection:forced', 'go')")
    error.closed_by_peer = True
    assert (
        shown(error, None) == "ConnectionClosed: Connection h closed due to: Condition('amqp:connection:forced', 'go')"
    )
    silent = ConnectionFailedError("", "the peer has closed the connection")
    silent.closed_by_peer = True
    assert shown(silent, None) == "ConnectionClosed: Connection h closed by peer"


def test_detached_link_is_named_with_condition() -> None:
    assert str(link_error("sender s to a", LinkDetachedError("a:b", "c"))) == (
        "sender s to a closed due to: Condition('a:b', 'c')"
    )
    assert str(link_error("sender s to a", LinkDetachedError("a:b"))) == "sender s to a closed due to: Condition('a:b')"
    assert str(link_error("sender s to a", LinkDetachedError("", "text"))) == "sender s to a closed by peer"

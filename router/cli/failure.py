"""Errors of the commands of `sluice`: the failure, its place, advice, and the exit code.

`qdstat` and `qdmanage` print the texts of `errors`, as in 1.19.
"""

import socket
import sys
from typing import Final

from msgspec import Struct

from sluice.router.cli.client import (
    ForbiddenStatus,
    ManagementError,
    NotImplementedStatus,
    UnauthorizedStatus,
    UnknownRouter,
)
from sluice.router.cli.errors import ConnectionException, LinkDetached, SendException, SSLException, Timeout, ToolError
from sluice.router.cli.output import one_line
from sluice.router.client.errors import ClientError, ConnectionFailedError

REFUSED: Final = 1  # exit code: the router, or a file, refused the request
UNREACHABLE: Final = 4  # exit code: no answer of a router
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL
_ACCESS: Final = ("amqp:unauthorized-access", "amqp:not-allowed", "amqp:not-found")


class ToolFailure(Struct, frozen=True):
    """Failure of a command: its text, advice (may be empty), and the exit code."""

    text: str
    advice: str = ""
    code: int = REFUSED


def describe(error: Exception, place: str) -> ToolFailure:
    """Return the failure for an error of a tool. place: the router as the user named it, without password."""
    match error:
        case socket.gaierror():
            return _unknown_host(error, place)
        case UnknownRouter():
            return ToolFailure(str(error), "`sluice stat -n` lists the routers of the network")
        case ManagementError():
            return _refused(error)
        case SSLException():
            return ToolFailure(str(error), "check the options --ssl-…")
        case SendException():
            text = f"the router at {place} did not accept the request"
            return ToolFailure(text, "it may be shutting down, or the management address may be wrong")
        case LinkDetached():
            return _detached(error, place)
        case Timeout() | ConnectionException():
            return _unreachable(error, place)
        case OSError() if error.filename is not None:
            return ToolFailure(f"{error.filename}: {error.strerror}")
        case ToolError() | ValueError() | OSError():
            return ToolFailure(str(error))
    return ToolFailure(f"internal error: {type(error).__name__}: {error}", "please report it")


def report(failure: ToolFailure, program: str) -> None:
    """Print a failure to standard error."""
    print(one_line(f"{program}: {failure.text}"), file=sys.stderr)
    if failure.advice:
        print(one_line(f"  {failure.advice}"), file=sys.stderr)


def _unknown_host(error: OSError, place: str) -> ToolFailure:
    text = f"cannot connect to {place}: its host name cannot be resolved ({error.strerror})"
    return ToolFailure(text, "check the spelling of the host, and the name server", UNREACHABLE)


def _refused(error: ManagementError) -> ToolFailure:
    text = f"{error} (status {error.status})" if error.status else str(error)
    if isinstance(error, ForbiddenStatus | UnauthorizedStatus):
        return ToolFailure(text, "`sluice policy explain` shows which rule decides; log in as a user who may do this")
    if isinstance(error, NotImplementedStatus):
        return ToolFailure(text, "`sluice stat -g` shows the version of the router")
    return ToolFailure(text)


def _detached(error: LinkDetached, place: str) -> ToolFailure:
    cause = error.__cause__
    condition = cause.condition if isinstance(cause, ClientError) else ""
    reason = _reason(cause) if isinstance(cause, ClientError) else str(error)
    advice = ""
    if condition in _ACCESS:
        advice = "the user of this connection may not use management: log in as another one, or change the policy"
    return ToolFailure(f"the router at {place} refused the link to its management address: {reason}", advice)


def _unreachable(error: ToolError, place: str) -> ToolFailure:
    """Return the failure for a connection that was not opened, or was lost."""
    failed = error.__cause__
    cause = failed.__cause__ if isinstance(failed, ConnectionFailedError) else None
    where = f"cannot connect to {place}"
    if isinstance(error, Timeout):
        if str(error).startswith("Router "):
            return ToolFailure(_first_part(error), "it may be busy: more seconds with -t", UNREACHABLE)
        text = f"no answer from {place} in time"
        return ToolFailure(text, "check host and port, and firewalls; -t gives the router more seconds", UNREACHABLE)
    if isinstance(cause, ConnectionRefusedError):
        text = "no router listens there: check host and port, or name a router with -b URL"
        return ToolFailure(f"{where}: connection refused", text, UNREACHABLE)
    if isinstance(cause, OSError):
        return _of_transport(cause, where)
    if not isinstance(failed, ConnectionFailedError):
        return ToolFailure(f"{where}: {error}", code=UNREACHABLE)
    if failed.closed_by_peer:
        return ToolFailure(f"the router at {place} closed the connection: {_reason(failed)}", code=UNREACHABLE)
    if "Authentication failed" in failed.description:
        advice = "check user and password (--sasl-username, --sasl-password-file), or --sasl-mechanisms"
        return ToolFailure(f"{where}: {failed.description}", advice, UNREACHABLE)
    if failed.condition:
        return ToolFailure(f"{where}: {_reason(failed)}", code=UNREACHABLE)
    advice = "the listener may want TLS (amqps://…, --ssl-trustfile) or a login (--sasl-username), or not speak AMQP"
    return ToolFailure(f"{where}: it closed the connection before AMQP began", advice, UNREACHABLE)


def _of_transport(error: OSError, where: str) -> ToolFailure:
    """Return the failure for an error of the socket or of TLS."""
    import ssl  # 20 ms that only errors need

    if not isinstance(error, ssl.SSLError):
        return ToolFailure(f"{where}: {error.strerror or error}", code=UNREACHABLE)
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"{where}: its certificate is not accepted: {error.verify_message}"
        advice = "name its authority with --ssl-trustfile FILE, and the host as the certificate does"
        if error.verify_code == _EXPIRED:
            advice = "replace the files of its sslProfile: the router uses new ones at once; or correct the clock here"
        return ToolFailure(text, advice, UNREACHABLE)
    if isinstance(error, ssl.SSLEOFError):
        text = f"{where}: it closed the connection during the TLS handshake"
        return ToolFailure(text, "it may want a certificate of yours: --ssl-certificate, --ssl-key", UNREACHABLE)
    reason: str = getattr(error, "reason", None) or str(error)
    if reason == "WRONG_VERSION_NUMBER":
        text = f"{where}: the listener does not speak TLS"
        return ToolFailure(text, "use amqp:// without options --ssl-…, or the port of a listener with TLS", UNREACHABLE)
    return ToolFailure(f"{where}: TLS failed: {reason.lower().replace('_', ' ')}", code=UNREACHABLE)


def _reason(error: ClientError) -> str:
    """Return description and condition of an AMQP error."""
    if not error.condition:
        return error.description or "without a reason"
    return f"{error.description} ({error.condition})" if error.description else error.condition


def _first_part(error: Exception) -> str:
    """Return `Router 'X' does not answer`, without the connection's own text."""
    return str(error).partition(": ")[0]

"""Errors of the commands of `sluice`: texts, advice and exit codes."""

import argparse
import socket
import ssl

import pytest

from sluice.router.cli.client import ForbiddenStatus, ManagementError, UnknownRouter
from sluice.router.cli.errors import SSLException, Timeout, connection_error, link_error
from sluice.router.cli.failure import REFUSED, UNREACHABLE, describe
from sluice.router.cli.tool import run_tool
from sluice.router.client.errors import ConnectionFailedError, LinkDetachedError

PLACE = "amqp://h:5"


def failed(cause: OSError | None, description: str = "text of the client") -> Exception:
    """Return the tools' error for a failed connection."""
    error = ConnectionFailedError("", description)
    error.__cause__ = cause
    made = connection_error(PLACE, "h", error, layer="AMQP")
    made.__cause__ = error
    return made


def tls_error(kind: type[ssl.SSLError], **attributes: str | int) -> ssl.SSLError:
    error = kind(1, "raw text")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    ("error", "text", "advice"),
    [
        (failed(ConnectionRefusedError(111, "refused")), "connection refused", "-b URL"),
        (failed(socket.gaierror(-2, "Name unknown")), "host name cannot be resolved (Name unknown)", "spelling"),
        (failed(OSError(113, "No route to host")), f"{PLACE}: No route to host", ""),
        (failed(TimeoutError(110, "timed out")), f"no answer from {PLACE} in time", "-t"),
        (failed(tls_error(ssl.SSLEOFError)), "closed the connection during the TLS handshake", "--ssl-certificate"),
        (failed(tls_error(ssl.SSLError, reason="WRONG_VERSION_NUMBER")), "does not speak TLS", "amqp://"),
        (
            failed(tls_error(ssl.SSLCertVerificationError, verify_message="unknown issuer", verify_code=20)),
            "certificate is not accepted: unknown issuer",
            "--ssl-trustfile",
        ),
        (
            failed(tls_error(ssl.SSLCertVerificationError, verify_message="it has expired", verify_code=10)),
            "certificate is not accepted: it has expired",
            "replace the files of its sslProfile",
        ),
        (failed(None), "closed the connection before AMQP began", "amqps://"),
        (failed(None, "Authentication failed [mech=PLAIN]"), "[mech=PLAIN]", "--sasl-password-file"),
        (Timeout("Router 'B' does not answer: Connection timed out"), "Router 'B' does not answer", "-t"),
    ],
)
def test_missing_connection_is_described_with_place_and_advice(error: Exception, text: str, advice: str) -> None:
    failure = describe(error, PLACE)
    assert failure.code == UNREACHABLE
    assert text in failure.text
    assert advice in failure.advice
    assert "Condition(" not in failure.text + failure.advice


@pytest.mark.parametrize(
    ("error", "text", "advice"),
    [
        (ManagementError.of(404, "No entity with name=x"), "No entity with name=x (status 404)", ""),
        (ForbiddenStatus("no"), "no", "sluice policy explain"),
        (UnknownRouter("router 'B' is not in the network"), "router 'B' is not in the network", "sluice stat -n"),
        (SSLException("x has no authorities"), "x has no authorities", "--ssl-"),
        (FileNotFoundError(2, "No such file or directory", "pw"), "pw: No such file or directory", ""),
        (ValueError("Invalid URL 'x://'"), "Invalid URL 'x://'", ""),
        (KeyError("id"), "internal error: KeyError: 'id'", "report"),
    ],
)
def test_refusal_is_described_with_advice(error: Exception, text: str, advice: str) -> None:
    failure = describe(error, PLACE)
    assert (failure.text, failure.code) == (text, REFUSED)
    assert advice in failure.advice


def test_refused_link_is_described_with_reason() -> None:
    cause = LinkDetachedError("amqp:unauthorized-access", "not for you")
    error = link_error("sender s to $management", cause)
    error.__cause__ = cause
    failure = describe(error, PLACE)
    assert failure.text.endswith("refused the link to its management address: not for you (amqp:unauthorized-access)")
    assert "may not use management" in failure.advice


def fail() -> int:
    raise UnknownRouter("gone")


def test_command_of_sluice_reports_on_stderr_and_old_tools_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(bus="amqp://user:secret@h")
    assert run_tool(fail, "sluice stat", options) == REFUSED
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", "sluice stat: gone")
    assert run_tool(fail, "qdstat", options) == 1
    assert capsys.readouterr() == ("UnknownRouter: gone\n", "")


def test_password_of_url_is_not_in_error(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> int:
        raise failed(ConnectionRefusedError(111, "refused"))

    assert run_tool(refuse, "sluice stat", argparse.Namespace(bus="amqp://user:secret@h:5")) == UNREACHABLE
    assert "secret" not in capsys.readouterr().err

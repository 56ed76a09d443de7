"""Connections to servers that staple an OCSP response (RFC 6960), served by the `openssl` command."""

import select
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import ocsp

from sluice.router.amqp.connection import Connection
from sluice.router.control.ops import Credentials
from sluice.router.tls.context import TlsContext
from sluice.workers.loop import Loop
from sluice.workers.transport.tls import TlsTransport
from tests.peer.pki import Issued, Pki, pki
from tests.unit.workers.loop_connections import REGION, ClosingHandler

pytestmark = pytest.mark.starts

GOOD, REVOKED = ocsp.OCSPCertStatus.GOOD, ocsp.OCSPCertStatus.REVOKED
PATIENCE = 10.0
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Authority that the router does not trust."""
    return pki(tmp_path_factory.getbasetemp(), "other-authority")


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def response(
    authority: Pki, about: Issued, status: Any, *, signer: Pki | None = None, age: timedelta = timedelta()
) -> bytes:
    """Return an OCSP response. signer: another authority that has signed it. age: since it was issued for a day."""
    now = datetime.now(tz=UTC).replace(tzinfo=None) - age
    signing = (signer or authority).authority
    builder = ocsp.OCSPResponseBuilder().add_response(
        cert=certificate(about.certificate),
        issuer=certificate(authority.trusted),
        algorithm=SHA1(),
        cert_status=status,
        this_update=now,
        next_update=now + DAY,
        revocation_time=now if status is REVOKED else None,
        revocation_reason=None,
    )
    builder = builder.responder_id(ocsp.OCSPResponderEncoding.NAME, certificate(signing.certificate))
    key: Any = load_pem_private_key(signing.key.read_bytes(), None)
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)


@contextmanager
def serving(issued: Issued, stapled: bytes | None, folder: Path) -> Iterator[int]:
    """Yield the port of a server that staples this response."""
    words: list[str | Path] = [
        "openssl",
        "s_server",
        "-accept",
        "127.0.0.1:0",
        "-cert",
        issued.certificate,
        "-key",
        issued.key,
    ]
    if stapled is not None:
        path = folder / "status.der"
        path.write_bytes(stapled)
        words += ["-status_file", path]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = next(each for each in process.stdout if each.startswith("ACCEPT"))
            yield int(line.rsplit(":", 1)[1])
        finally:
            process.kill()


def connect(authority: Pki, stapled: bytes | None, folder: Path) -> str | None:
    """Connect the router to a server that staples this response. Return the text of the failure, or None."""
    with serving(authority.server, stapled, folder) as port:
        loop, handler = Loop(REGION, 0), ClosingHandler()
        near = socket.create_connection(("127.0.0.1", port), PATIENCE)
        near.setblocking(False)
        context = TlsContext(Credentials(trusted=authority.trusted.read_text("ascii")), server=False, verify_peer=True)
        connection = Connection(loop.scheduler, handler)
        transport = TlsTransport(loop, near.detach(), connection, context, "localhost", True)
        loop.add(transport.fd, transport)
        transport.begin()
        while transport.tls is None and transport.fd >= 0:
            loop.step()
            if transport.tls is None and transport.fd >= 0:
                assert select.select([transport.fd], [], [], PATIENCE)[0]
        failures = [text for _, text in handler.closed_with]
        if transport.fd >= 0:
            connection.drop_silently()
            loop.step()
        return failures[0] if failures else None


@pytest.mark.parametrize("age", [timedelta(), 30 * DAY], ids=["current", "outdated"])
def test_server_whose_certificate_is_revoked_is_refused(authority: Pki, tmp_path: Path, age: timedelta) -> None:
    """A revocation is final, so the age of the response does not matter."""
    stapled = response(authority, authority.server, REVOKED, age=age)
    failure = connect(authority, stapled, tmp_path)
    assert failure is not None
    assert "certificate revoked" in failure


def test_server_with_good_status_is_accepted(authority: Pki, tmp_path: Path) -> None:
    assert connect(authority, response(authority, authority.server, GOOD), tmp_path) is None


def test_server_without_response_is_accepted(authority: Pki, tmp_path: Path) -> None:
    assert connect(authority, None, tmp_path) is None


def test_revocation_of_other_certificate_does_not_matter(authority: Pki, tmp_path: Path) -> None:
    assert connect(authority, response(authority, authority.client, REVOKED), tmp_path) is None


def test_response_that_authority_has_not_signed_does_not_matter(authority: Pki, other: Pki, tmp_path: Path) -> None:
    stapled = response(authority, authority.server, REVOKED, signer=other)
    assert connect(authority, stapled, tmp_path) is None

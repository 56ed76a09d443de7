"""TLS of a client: certificates, and texts for failures."""

from __future__ import annotations

import errno
import os
import ssl
from pathlib import Path

import pytest

from sluice.router.client.tls import Tls, failure
from tests.peer.pki import KEY_PASSWORD, Pki, pki


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def locked_key(authority: Pki) -> Path:
    return authority.locked_key()


def test_peer_is_verified_by_default(authority: Pki) -> None:
    context = Tls(ca_file=authority.trusted).context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    unnamed = Tls(ca_file=authority.trusted, verify_host=False).context()
    assert (unnamed.verify_mode, unnamed.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_password_is_not_shown() -> None:
    assert "secret" not in repr(Tls(password="secret"))


def test_missing_files_are_named(authority: Pki, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    for settings in (Tls(ca_file=gone), Tls(certificate=gone), Tls(certificate=authority.client.certificate, key=gone)):
        with pytest.raises(OSError, match=str(gone)):
            settings.context()
    with pytest.raises(OSError, match="without its certificate"):
        Tls(key=authority.client.key).context()


def test_key_of_other_certificate_is_refused(authority: Pki) -> None:
    with pytest.raises(OSError, match="TLS: key values mismatch"):
        Tls(certificate=authority.client.certificate, key=authority.server.key).context()


def test_encrypted_key_needs_its_password(authority: Pki, locked_key: Path) -> None:
    certificate = authority.server.certificate
    Tls(certificate=certificate, key=locked_key, password=KEY_PASSWORD).context()
    for password in (None, "wrong"):
        with pytest.raises(OSError, match=str(locked_key)):
            Tls(certificate=certificate, key=locked_key, password=password).context()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "no answer in time"),
        (OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)), "Connection refused"),
        (OSError("text only"), "text only"),
        (ssl.SSLError(1, "some text"), "TLS: some text"),
    ],
)
def test_failure_is_described_for_people(error: OSError, text: str) -> None:
    assert failure(error) == text


def test_plain_peer_is_described() -> None:
    incoming = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, ssl.MemoryBIO(), server_hostname="x")
    incoming.write(b"AMQP\x00\x01\x00\x00")
    with pytest.raises(ssl.SSLError) as caught:
        client.do_handshake()
    assert failure(caught.value) == "TLS: the peer does not use TLS on this port"

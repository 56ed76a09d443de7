"""Connections of tools to peers that refuse them: output and exit code of `qdmanage`."""

import re
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from sluice.router.amqp import codec, sasl
from sluice.router.amqp.headers import SASL_HEADER
from sluice.router.cli.manage import main
from tests.unit.router.client.server import EngineBroker, TwoStepPlain

PATIENCE = 30.0


class OfferingPeer:
    """Listener that offers SASL mechanisms to its only client, and waits for the end of its stream."""

    def __init__(self, mechanisms: Sequence[str]) -> None:
        self._offer = codec.encode_described(sasl.MECHANISMS, [codec.encode_symbols(list(mechanisms))])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.place = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def stop(self) -> None:
        self._listener.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        transport, _ = self._listener.accept()
        with transport:
            transport.sendall(SASL_HEADER + sasl.frame(self._offer))
            while transport.recv(4096):
                pass


@pytest.fixture
def kerberos() -> Iterator[OfferingPeer]:
    peer = OfferingPeer(["GSSAPI", "DIGEST-MD5"])
    yield peer
    peer.stop()


def manage(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run a query; return exit code and output."""
    code = main(["query", "--type=listener", *words])
    return code, capsys.readouterr().out


def test_mechanisms_that_tools_lack_are_named(kerberos: OfferingPeer, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = manage(capsys, "-b", f"user:secret@{kerberos.place}", "--sasl-mechanisms", "GSSAPI CRAM-MD5")
    text = (
        "no mechanism in common: the peer offers GSSAPI DIGEST-MD5; usable here: none. "
        "This client does not implement GSSAPI CRAM-MD5 (Authentication failed [mech=none])"
    )
    place = f"Connection amqp://{kerberos.place} disconnected: "
    assert (code, out) == (1, f"ConnectionException: {place}Condition('amqp:unauthorized-access', '{text}')\n")


@pytest.mark.parametrize("words", [[], ["--sasl-mechanisms", "PLAIN"]])
def test_refused_password_is_reported(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A password is also sent without TLS, as by the tools of 1.19."""
    with EngineBroker(mechanisms={"PLAIN": TwoStepPlain}) as broker:
        code, out = manage(capsys, "-b", f"u:wrong@127.0.0.1:{broker.port}", *words)
    assert code == 1
    assert "a challenge is not expected in PLAIN (Authentication failed [mech=PLAIN])" in out


def test_user_may_be_anonymous_if_nothing_else_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    with EngineBroker(outcomes={"$management": codec.encode_described(0x26, [])}) as broker:
        code, out = manage(capsys, "-b", f"u:secret@127.0.0.1:{broker.port}")
    assert (code, out) == (1, "SendException: 38\n")


def test_refused_link_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with EngineBroker(refused={"$management"}) as broker:
        code, out = manage(capsys, "-b", f"127.0.0.1:{broker.port}")
    link = r"sender [-0-9a-f]{36}-\$management to \$management"
    text = rf"LinkDetached: {link} closed due to: Condition\('amqp:not-found', 'no \$management'\)\n"
    assert code == 1
    assert re.fullmatch(text, out)


def test_unusable_file_for_tls_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = manage(capsys, "-b", "127.0.0.1:1", "--ssl-trustfile", "/nowhere.pem")
    assert (code, out) == (1, "SSLException: /nowhere.pem has no authorities that can be read\n")
    code, out = manage(capsys, "-b", "127.0.0.1:1", "--ssl-certificate", "/c.pem", "--ssl-key", "/k.pem")
    text = "the certificate /c.pem cannot be used with the key /k.pem and the password given"
    assert (code, out) == (1, f"SSLException: {text}\n")

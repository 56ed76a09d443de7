"""Protocol headers and SASL (routing-semantics.md 1.1 and 1.2)."""

import time

import pytest

from tests.peer.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER, error_of
from tests.peer.types import Array, Symbol
from tests.system.fixtures import Connect
from tests.system.router import RouterProcess, Section, listener

TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01"  # of a client that does not ask for the AMQP TLS layer

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [
    listener("anonymous", saslMechanisms="ANONYMOUS"),
    listener("hasty", initialHandshakeTimeoutSeconds=1),
]
#: Handshake time-out in s of the listener `hasty`.
HASTY = 1.0


def test_sasl_header_is_answered_with_mechanisms(dial: Connect) -> None:
    peer = dial("anonymous")
    assert peer.header(SASL_HEADER) == SASL_HEADER
    frame = peer.expect("sasl-mechanisms")
    assert isinstance(frame.sasl_server_mechanisms, Array)
    assert frame.sasl_server_mechanisms == [Symbol("ANONYMOUS")]


def test_anonymous_succeeds_without_additional_data(dial: Connect) -> None:
    peer = dial("anonymous")
    outcome = peer.sasl("ANONYMOUS")
    assert (outcome.code, outcome.additional_data) == (0, None)
    assert peer.header() == AMQP_HEADER


def test_pipelined_login_and_open_succeed(connect: Connect) -> None:
    assert connect("anonymous").remote_open is not None


def test_open_without_sasl_is_accepted(connect: Connect) -> None:
    peer = connect(sasl=False)
    assert peer.remote_open is not None
    peer.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", ""])
def test_mechanism_outside_offer_fails(dial: Connect, mechanism: str) -> None:
    peer = dial("anonymous")
    assert peer.sasl(mechanism, b"\0guest\0guest").code == 1
    assert peer.expect_end() == []


def test_tls_header_without_tls_is_closed_silently(dial: Connect, router: RouterProcess) -> None:
    peer = dial()
    peer.raw(TLS_HEADER)
    assert peer.read_rest() == b""
    assert router.wait_log("failed: amqp:connection:framing-error AMQP's TLS header is not supported")


# brokers-and-edge.md W-6; security.md T-5.
@pytest.mark.parametrize(
    "octets",
    [
        b"AMQP\x01\x01\x00\x00",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x00\x01\x00\x01",
        b"HTTP/1.1",
        b"GET / HT",
        TLS_HELLO,
        bytes(8),
    ],
    ids=["old-1", "0-9-1", "1.0.1", "http", "get", "tls", "zeros"],
)
def test_foreign_octets_get_framing_error(dial: Connect, octets: bytes) -> None:
    peer = dial()
    assert peer.header(octets) == AMQP_HEADER
    assert peer.expect("open").container_id == ""
    assert error_of(peer.expect("close").error)[0] == "amqp:connection:framing-error"  # type: ignore[index]
    assert peer.expect_end() == []


def test_silent_connection_receives_no_octets(dial: Connect) -> None:
    """The router sends only after the peer: of two connections, only the active connection receives octets.

    brokers-and-edge.md L-6.
    """
    silent, speaking = dial(), dial()
    assert speaking.header(SASL_HEADER) == SASL_HEADER
    silent.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        silent.socket.recv(1)


# brokers-and-edge.md L-7.
@pytest.mark.parametrize("sent", [b"", AMQP_HEADER, SASL_HEADER], ids=["nothing", "amqp", "sasl"])
def test_handshake_timeout_ends_connection_without_frames(dial: Connect, sent: bytes) -> None:
    peer = dial("hasty")
    begun = time.monotonic()
    peer.raw(sent)
    rest = peer.read_rest()
    assert HASTY * 0.9 <= time.monotonic() - begun < HASTY + 3
    assert b"\x00S\x18" not in rest, "a close came"
    if not sent:
        assert rest == b""


def test_handshake_timeout_spares_open_connection(connect: Connect, dial: Connect) -> None:
    peer = connect("hasty")
    late = dial("hasty")
    late.read_rest()
    peer.barrier()

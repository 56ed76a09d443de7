"""Peers that violate the protocol, stall or vanish do not affect others."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.peer import message
from tests.peer.codec import encode
from tests.peer.frames import AMQP_HEADER, SASL_HEADER, Performative, frame_octets
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.types import Described, Raw, ULong
from tests.peer.wire import PeerError, StreamEnd
from tests.system.bystanders.harness import without_bystanders
from tests.system.fixtures import Connect, Fresh, pair, pass_one
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [
    listener("hasty", initialHandshakeTimeoutSeconds=1),
    listener("bounded", maxFrameSize=2048, maxSessionFrames=5),
]
#: Memory in octets that one misbehaving peer may cost the router.
MEMORY_ALLOWANCE = 64 << 20


@pytest.fixture(autouse=True)
def _others_are_served(connect: Connect, fresh: Fresh) -> Iterator[None]:
    """Check that a connected pair still works after the test, and that a new pair works as well."""
    sender, receiver = pair(connect, fresh())
    yield
    pass_one(sender, receiver)
    pass_one(*pair(connect, fresh()))


OPEN = Performative("open", container_id="bad").encode()
BEGIN = Performative("begin", next_outgoing_id=0, incoming_window=10, outgoing_window=10).encode()

#: 900 nested lists.
NESTED_LISTS = b"".join(b"\xd0" + (5 + 9 * n).to_bytes(4, "big") + b"\0\0\0\x01" for n in range(899, -1, -1)) + b"\x40"
BAD_FRAMES: dict[str, bytes] = {
    "size below header": b"\0\0\0\x04\x02\0\0\0",
    "size huge": b"\xff\xff\xff\xff\x02\0\0\0",
    "doff below two": b"\0\0\0\x0c\x01\0\0\0\0\x53\x11\x45",
    "doff beyond frame": b"\0\0\0\x0c\xff\0\0\0\0\x53\x11\x45",
    "unknown frame type": frame_octets(BEGIN, kind=7),
    "sasl frame after open": frame_octets(Performative("sasl-init", mechanism="ANONYMOUS").encode(), kind=1),
    "no performative": frame_octets(b"\x45"),
    "unknown performative": frame_octets(encode(Described(ULong(0x99), []))),
    "performative is a string": frame_octets(encode(Described(ULong(0x11), "text"))),
    "list count too large": frame_octets(b"\0\x53\x11\xc0\x03\x09\x40\x40"),
    "list size too large": frame_octets(b"\0\x53\x11\xc0\xff\x01\x40"),
    "list32 size huge": frame_octets(b"\0\x53\x11\xd0\xff\xff\xff\xff\0\0\0\x01\x40"),
    "truncated value": frame_octets(b"\0\x53\x11\xc0\x04\x01\x70\0\0"),
    "wrong field type": frame_octets(encode(Described(ULong(0x11), [None, "zero", b"x", []]))),
    "mandatory field missing": frame_octets(encode(Described(ULong(0x11), []))),
    "unknown type code": frame_octets(b"\0\x53\x11\xc0\x02\x01\x3f"),
    "deep nesting": frame_octets(encode(Described(ULong(0x18), [Raw(b"\0" * 5000 + b"\x40")]))),
    "deep lists": frame_octets(b"\0\x53\x18" + NESTED_LISTS),
    "descriptor is a list": frame_octets(b"\0\x45\x45"),
    "bad utf-8": frame_octets(b"\0\x53\x12\xc0\x06\x02\xa1\x02\xff\xfe\x43"),
    "map of odd length": frame_octets(b"\0\x53\x11\xc0\x10\x08\x40\x43\x43\x43\x40\x40\x40\xc1\x04\x03\x40\x40\x40"),
    "transfer without session": frame_octets(Performative("transfer", handle=0, delivery_id=0).encode()),
}


@pytest.mark.parametrize("name", list(BAD_FRAMES))
def test_malformed_frame_ends_connection(dial: Connect, name: str) -> None:
    peer = dial()
    peer.raw(AMQP_HEADER + frame_octets(OPEN))
    assert peer.read_octets(8) == AMQP_HEADER
    peer.expect("open")
    peer.raw(BAD_FRAMES[name])
    frames = peer.expect_end()
    if not peer.ended and frames:
        assert frames[-1].name == "close"
        assert frames[-1].error is not None


@pytest.mark.parametrize("name", list(BAD_FRAMES))
def test_malformed_frame_before_open_ends_connection(dial: Connect, name: str) -> None:
    peer = dial()
    peer.raw(AMQP_HEADER + BAD_FRAMES[name])
    peer.read_rest()


@pytest.mark.parametrize("name", ["size huge", "no performative", "list32 size huge", "unknown frame type"])
def test_malformed_sasl_frame_ends_connection(dial: Connect, name: str) -> None:
    peer = dial()
    peer.raw(SASL_HEADER + BAD_FRAMES[name])
    peer.read_rest()


def test_random_octets_end_connection(dial: Connect) -> None:
    dice = random.Random(7)
    for _ in range(30):
        peer = dial()
        peer.raw(AMQP_HEADER + frame_octets(OPEN) + dice.randbytes(dice.randrange(8, 400)))
        with contextlib.suppress(OSError):  # the router may have closed the connection already
            peer.frame("close")
            peer.socket.shutdown(socket.SHUT_WR)
        peer.read_rest()


def test_valid_conversation_cut_anywhere_is_tolerated(dial: Connect, fresh: Fresh) -> None:
    attach = Performative("attach", name="l", handle=0, role=False, target=Described(ULong(0x29), [fresh()]))
    octets = AMQP_HEADER + frame_octets(OPEN) + frame_octets(BEGIN) + frame_octets(attach.encode())
    for cut in range(1, len(octets), 3):
        peer = dial()
        peer.raw(octets[:cut])
        peer.drop()


def test_input_octet_by_octet_is_processed(dial: Connect) -> None:
    peer = dial()
    for octet in AMQP_HEADER + frame_octets(OPEN) + frame_octets(BEGIN) + frame_octets(Performative("close").encode()):
        peer.raw(bytes([octet]))
    assert peer.read_octets(8) == AMQP_HEADER
    peer.expect("begin")
    peer.expect("close")


def test_slow_loris_connection_is_closed(dial: Connect) -> None:
    """A peer that sends single octets never completes its open. The handshake timer ends its connection."""
    peer = dial("hasty")
    begun = time.monotonic()
    octets = iter(AMQP_HEADER + frame_octets(OPEN)[:-1] * 10)
    try:
        while time.monotonic() - begun < 10:
            peer.raw(bytes([next(octets)]))
            peer.idle_octets(0.1)
    except (OSError, StreamEnd):
        pass
    assert time.monotonic() - begun < 5


def test_window_violation_ends_session_or_connection(connect: Connect, fresh: Fresh) -> None:
    """Frames beyond the session window end the session or the connection, and do not fill memory."""
    sender, _receiver = pair(connect, fresh(), credit=0, into="bounded")
    peer = sender.peer
    first = sender.session.transfer_octets(bytes(1000), handle=0, delivery_id=0, delivery_tag=b"t", more=True)
    more = sender.session.transfer_octets(bytes(1000), handle=0, more=True)
    try:
        peer.raw(first)
        for _ in range(20):
            peer.raw_some(more * 100, timeout=0.2)
        peer.until(lambda: peer.take("end") or peer.take("close"), "end or close", timeout=5)
    except (OSError, StreamEnd, PeerError):
        return  # the router closed or stopped reading: both bound memory


def test_receiver_that_never_reads_costs_bounded_memory(connect: Connect, router: RouterProcess, fresh: Fresh) -> None:
    """Deliveries held for a receiver that grants credit and never reads are limited, and other clients are served."""
    address = fresh()
    deaf = AmqpPeer.opened(router.port, receive_buffer=4096)
    deaf.receiver(address, 1_000_000)
    sender = connect().sender(address)
    before = router.memory()
    payload = message.data(bytes(60_000))
    deadline = time.monotonic() + 4
    for _ in range(3000):
        while sender.credit <= 0 and time.monotonic() < deadline:
            sender.peer.idle_until(time.monotonic() + 0.05)
        if time.monotonic() > deadline or not sender.send_some(payload, timeout=0.5, settled=True):
            break
    assert router.memory() - before < MEMORY_ALLOWANCE
    sender.peer.drop()
    deaf.drop(reset=True)


def test_flow_requests_without_reading_cost_bounded_memory(connect: Connect, router: RouterProcess) -> None:
    """If replies to flows are not read, the router stops reading instead of queueing all of them."""
    peer = connect()
    asks = frame_octets(
        Performative(
            "flow", next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, echo=True
        ).encode(),
        channel=peer.session.channel,
    )
    before = router.memory()
    block = asks * ((1 << 20) // len(asks))
    for _ in range(40):  # 40 MiB of flows, and more of replies
        if peer.raw_some(block, timeout=1.0) < len(block):
            break
    assert router.memory() - before < MEMORY_ALLOWANCE // 2
    peer.drop(reset=True)


def test_endless_stream_without_credit_costs_bounded_memory(
    connect: Connect, router: RouterProcess, fresh: Fresh
) -> None:
    """A never-ending delivery without credit stays within memory limits (routing-semantics.md S-3, improved)."""
    sender, _receiver = pair(connect, fresh(), credit=0)
    before = router.memory()
    chunk = bytes(1 << 20)
    sent = 0
    while sent < 120 and sender.send_some(chunk, timeout=1.0, more=True):
        sent += 1
    assert router.memory() - before < MEMORY_ALLOWANCE, f"after {sent} MiB"


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "fin"])
def test_sender_vanishing_mid_message_aborts_delivery(connect: Connect, fresh: Fresh, reset: bool) -> None:
    address = fresh()
    sender, receiver = pair(connect, address)
    sender.send(message.data(bytes(500_000))[:200_000], more=True)
    delivery = receiver.next(complete=False)
    sender.peer.drop(reset=reset)
    receiver.peer.until(lambda: delivery.complete, "abort")
    assert delivery.aborted
    pass_one(connect().sender(address), receiver)


def test_receiver_vanishing_during_output_gives_outcomes(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    sender, receiver = pair(connect, address, credit=200)
    numbers = [sender.send(message.data(bytes(20_000))) for _ in range(50)]
    receiver.next(complete=False)
    receiver.peer.drop(reset=True)
    assert {sender.outcome(number).name for number in numbers} <= {"modified", "released"}


def test_hundreds_of_links_on_one_connection_attach(connect: Connect, fresh: Fresh) -> None:
    peer = connect()
    address = fresh()
    for _ in range(20):
        session = peer.begin()
        for number in range(25):
            session.receiver(f"{address}/{number}", wait=False)
    for session in peer.sessions:
        for link in session.links:
            link.wait_attached()
    peer.drop()


def test_half_closed_connection_is_closed(connect: Connect, fresh: Fresh) -> None:
    """The router closes the connection of a peer that has closed its sending side."""
    receiver = connect().receiver(fresh(), 5)
    receiver.peer.socket.shutdown(socket.SHUT_WR)
    receiver.peer.expect_end()


def test_connection_storm_is_survived(router: RouterProcess) -> None:
    """Hundreds of connections are opened and dropped from parallel threads."""

    def storm(failures: list[BaseException]) -> None:
        try:
            for _ in range(25):
                peer = AmqpPeer.opened(router.port)
                peer.begin()
                peer.drop(reset=random.random() < 0.5)
        except BaseException as error:
            failures.append(error)
            raise

    failures: list[BaseException] = []
    threads = [threading.Thread(target=storm, args=(failures,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_bad_peers_leave_no_connections(management: Management) -> None:
    """After the tests above only the connections of the pair of this test and of the manager are left."""
    poll(
        lambda: len(without_bystanders(management.query("connection", "container"))) <= 3,
        "the connections of bad peers are gone",
    )

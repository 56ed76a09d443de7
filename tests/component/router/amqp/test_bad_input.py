"""Invalid and extreme input from clients: regression tests."""

import itertools

import pytest

from sluice.router.amqp.codec import decode, decode_one
from sluice.router.amqp.errors import RemoteError
from sluice.router.log import LogSettings, ModuleSettings
from tests.peer import talk
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, AMQP_HEADER, TLS_HEADER, frame_octets
from tests.peer.talk import consumer, frames, message, of, producer, say, settle, start, transfer
from tests.peer.types import Described, Int, Raw, Symbol, ULong

HANDLE_MAX = 65535  # of the router
LONG = 300_000  # octets: streamed, more than all buffers between two connections


def closed_with(routers, *octets):
    """Return the condition of the router's close. An error of the router itself would raise."""
    router = routers()
    peer = router.connect()
    for piece in octets:
        peer.feed(piece)
        router.settle()
    (close,) = of(frames(peer), "close")
    return str(close.error.value[0])


def test_tls_header_is_logged_with_peer_and_remedy(routers, tmp_path):
    """The log tells what to change, since the client gets no answer (security.md T-4)."""
    path = tmp_path / "router.log"
    router = routers(log=LogSettings({"DEFAULT": ModuleSettings(output=str(path))}))
    peer = router.connect()
    peer.feed(TLS_HEADER)
    router.settle()
    assert peer.gone
    assert peer.take() == b""
    (line,) = [text for text in path.read_text().splitlines() if " failed: " in text]
    assert "SERVER (info)" in line
    assert (
        "Connection from 127.0.0.1:1 (to 127.0.0.1:0) failed: amqp:connection:framing-error AMQP's TLS header" in line
    )
    assert "start TLS without it" in line


@pytest.mark.parametrize("handle", [Int(-1), Raw(b"\x80" + b"\xff" * 8)])
def test_attach_with_invalid_handle_closes_connection(routers, handle):
    attach = frame_octets(encode(Described(ULong(0x12), ["x", handle, False])))
    assert closed_with(routers, start(), attach) == "amqp:invalid-field"


@pytest.mark.parametrize("handle", [Int(-1), Raw(b"\x80" + b"\xff" * 8)])
def test_detach_with_invalid_handle_closes_connection(routers, handle):
    detach = frame_octets(encode(Described(ULong(0x16), [handle])))
    assert closed_with(routers, start(), detach) == "amqp:invalid-field"


def test_attach_at_handle_max_is_accepted(routers):
    router = routers()
    peer = router.connect()
    peer.feed(start())
    router.settle()
    (begin,) = of(frames(peer), "begin")
    handle = begin.handle_max
    assert handle == HANDLE_MAX
    peer.feed(consumer(handle, "balanced.a") + producer(handle - 1, "balanced.a"))
    router.settle()
    peer.feed(transfer(handle - 1, 0, message(b"x")))
    router.settle()
    heard = frames(peer)
    assert len(of(heard, "transfer")) == 1
    peer.feed(settle(0, state=ACCEPTED) + say("detach", handle=handle, closed=True))
    router.settle()
    assert of(frames(peer), "detach")


@pytest.mark.parametrize("handle", [HANDLE_MAX + 1, 0xFFFFFFFF])
@pytest.mark.parametrize("attach", [consumer, producer])
def test_attach_above_handle_max_closes_connection(routers, handle, attach):
    """AMQP 2.7.2: the condition is the same as for a channel above channel-max."""
    assert closed_with(routers, start() + attach(handle, "balanced.a")) == "amqp:connection:framing-error"


@pytest.mark.parametrize("value", [Int(-1), Raw(b"\x80" + b"\xff" * 8), "x"])
def test_begin_with_invalid_handle_max_closes_connection(routers, value):
    begin = Described(ULong(0x11), [None, 0, 10, 10, value])
    assert closed_with(routers, AMQP_HEADER + say("open", container_id="c") + frame_octets(encode(begin))) == (
        "amqp:invalid-field"
    )


@pytest.mark.parametrize("field", [2, 3, 4])
@pytest.mark.parametrize("value", [Int(-1), Raw(b"\x80" + b"\xff" * 8)])
def test_open_with_invalid_numbers_closes_connection(routers, field, value):
    items = ["c", None, None, None, None]
    items[field] = value
    octets = AMQP_HEADER + frame_octets(encode(Described(ULong(0x10), items)))
    assert closed_with(routers, octets) == "amqp:invalid-field"


@pytest.mark.parametrize("idle", [1, 99])
def test_open_with_too_short_idle_time_out_is_refused(routers, idle):
    """AMQP 2.4.5: an idle time-out that is too short is answered by an open and a close with an error."""
    peer = routers().connect()
    peer.feed(AMQP_HEADER + say("open", container_id="c", idle_time_out=idle))
    peer.host.settle()
    said = frames(peer)
    assert [frame.name for frame in said] == ["open", "close"]
    condition, description = said[1].error.value[:2]
    assert str(condition) == "amqp:not-implemented"
    assert f"idle-time-out of {idle} ms is too short" in description
    assert peer.gone


def test_shortest_idle_time_out_is_accepted(routers):
    peer = routers().connect()
    peer.feed(start(idle_time_out=100))
    peer.host.settle()
    frames(peer)
    peer.host.pass_time(60)
    assert [frame.name for frame in frames(peer)] == ["heartbeat"]


def test_attach_with_symbol_as_name_closes_connection(routers):
    octets = frame_octets(encode(Described(ULong(0x12), [Symbol("x"), 0, False])))
    assert closed_with(routers, start(), octets) == "amqp:invalid-field"


def test_invalid_initial_delivery_count_is_taken_as_zero(routers):
    router = routers()
    peer = router.connect()
    peer.feed(start() + consumer(1, "balanced.a"))
    peer.feed(producer(0, "balanced.a", initial_delivery_count=Raw(b"\x54\xff")))
    router.settle()
    assert [frame.handle for frame in of(frames(peer), "flow")] == [1]


def test_transfers_far_beyond_the_credit_end_the_link(routers):
    router = routers()
    peer = router.connect(listener="kept")  # capacity 4
    peer.feed(start() + consumer(1, "balanced.a", 0) + producer(0, "balanced.a"))
    for number in range(60):
        peer.feed(transfer(0, number, message(b"x")))
    router.settle()
    (detach,) = of(frames(peer), "detach")
    assert str(detach.error.value[0]) == "amqp:link:transfer-limit-exceeded"


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("settled", [None, True])
def test_message_without_octets_is_rejected(routers, parts, settled):
    router = routers()
    peer = router.connect()
    peer.feed(start() + consumer(1, "balanced.a") + producer(0, "balanced.a"))
    router.settle()
    frames(peer)
    for part in range(parts):
        peer.feed(
            say("transfer", handle=0, delivery_id=0, delivery_tag=b"t", settled=settled, more=part < parts - 1 or None)
        )
    router.settle()
    router.check_quiet()
    outcomes = [frame.state.descriptor for frame in of(frames(peer), "disposition") if frame.settled]
    assert outcomes == ([] if settled else [0x25])


def test_close_is_last_frame_written(routers):
    router = routers()
    consuming, peer = router.connect(), router.connect()
    consuming.feed(start() + consumer(0, "balanced.a"))
    peer.feed(start() + producer(0, "balanced.a"))
    router.settle()
    peer.feed(transfer(0, 0, message(b"x")) + transfer(0, 1, message(b"y")))
    router.settle()
    frames(peer)
    consuming.feed(settle(0, 1, ACCEPTED))
    peer.feed(say("detach", handle=77))
    router.settle()
    assert frames(peer)[-1].name == "close"


def test_settlement_of_aborted_delivery_leaves_no_pending_work(routers):
    router = routers()
    consuming, peer = router.connect(), router.connect()
    consuming.feed(start() + consumer(0, "balanced.a"))
    peer.feed(start() + producer(0, "balanced.a"))
    router.settle()
    for _ in range(10):
        peer.feed(
            say(
                "transfer",
                payload=b"\x00\x53\x75\xb0\x00\x10\x00\x00" + bytes(15_000),
                handle=0,
                delivery_id=0,
                delivery_tag=b"t",
                more=True,
            )
        )
    router.settle()
    consuming.feed(talk.flow(None, window=0))
    router.settle()
    peer.feed(say("transfer", handle=0, aborted=True))
    router.settle()
    consuming.feed(settle(0, state=ACCEPTED))
    router.settle()
    router.check_quiet()


def test_octets_after_last_annotation_pair_are_refused(routers):
    router = routers()
    consuming, peer = router.connect(listener="kept"), router.connect(listener="kept")
    consuming.feed(start() + consumer(0, "balanced.a"))
    peer.feed(start() + producer(0, "balanced.a"))
    router.settle()
    pair = encode(Symbol("x")) + encode("y")
    octets = b"\x00\x53\x72\xc1" + bytes((len(pair) + 3, 2)) + pair + b"\xff\xff" + message(b"x")
    peer.feed(transfer(0, 0, octets))
    router.settle()
    assert [frame.state.descriptor for frame in of(frames(peer), "disposition")] == [0x25]
    assert not of(frames(consuming), "transfer")


def test_unreadable_state_is_not_relayed(routers):
    router = routers()
    consuming, peer = router.connect(), router.connect()
    consuming.feed(start() + consumer(0, "balanced.a"))
    peer.feed(start() + producer(0, "balanced.a"))
    router.settle()
    peer.feed(transfer(0, 0, message(b"x")))
    router.settle()
    frames(peer)
    consuming.feed(settle(0, state=Described(ULong(0x27), [Raw(b"\xc0\x02\x05\xff")])))
    router.settle()
    assert frames(consuming)[-1].name == "close"
    # modified: the consumer is lost
    assert [frame.state.descriptor for frame in of(frames(peer), "disposition")] == [0x27]


@pytest.mark.parametrize("constructor", [0x00, 0x40, 0x41, 0x45, 0x01])
def test_arrays_whose_items_have_no_octets_are_bounded(constructor):
    array = b"\xf0\x00\x00\x00\x05\x00\x01\x00\x00" + bytes((constructor,))
    with pytest.raises(RemoteError):
        decode_one(array)


def test_array_decoding_stays_within_its_octets():
    """Value and end are the same whatever octets follow the array."""
    taken = 0
    for constructor, size, more in itertools.product(range(256), range(4), (0, 1)):
        body = bytes((constructor,)) + bytes(size)
        array = b"\xe0" + bytes((len(body) + 1, size + more)) + body
        results: list[tuple[object, int] | None] = []
        for behind in (b"", bytes(64), b"\xff" * 64):
            try:
                results.append(decode(array + behind))
            except RemoteError:
                results.append(None)
        assert results[0] == results[1] == results[2], array
        if results[0] is not None:
            assert results[0][1] == len(array)
            taken += 1
    assert taken >= 30, "hardly any of these arrays is one"


@pytest.mark.parametrize(
    "octets",
    [
        b"\xc0\x03\x01\x40\x40",
        b"\xd0\0\0\0\x06\0\0\0\x01\x40\x40",
        b"\xc0\x02\x00\x40",
        b"\xc1\x04\x02\x40\x40\x40",
        b"\xd1\0\0\0\x07\0\0\0\x02\x40\x40\x40",
        b"\xe0\x04\x01\x50\x01\x02",
        b"\xf0\0\0\0\x07\0\0\0\x01\x50\x01\x02",
        b"\xe0\x03\x00\x50\x01",
        b"\xc0\x06\x01\xc0\x03\x01\x40\x40",
    ],
)
def test_octets_left_over_in_a_compound_value_are_an_error(octets):
    with pytest.raises(RemoteError):
        decode_one(octets)


def test_octets_left_over_in_a_list_of_fields_are_an_error(routers):
    begin = frame_octets(b"\0\x53\x11\xc0\x06\x04\x40\x43\x43\x43\x40", 1)
    assert closed_with(routers, start(), begin) == "amqp:decode-error"

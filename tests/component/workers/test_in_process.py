"""Messages for the router itself: arrival as a whole, and bounds."""

import pytest

import sluice.router.testing.engine as engine
from sluice.router.control import messages as control
from sluice.router.links.pause import RouterPause
from sluice.supervisor.addresses.inprocess import LocalMessage
from sluice.workers.inprocess import CONFIRM_MS, CONFIRM_OCTETS, CONNECTION_MESSAGES, HELD_OCTETS, MOST_OCTETS
from tests.component.engine.host import configuration
from tests.component.engine.served_address import KEY, ServedAddressRouter
from tests.peer.frames import ACCEPTED, RELEASED
from tests.peer.talk import frames, message, of, producer, start, transfer

MOST = 1 << 20  # octets of a message for the router itself
COLLECTING = 32 << 20  # octets of incomplete messages in a worker
CREDIT = 250


@pytest.fixture
def host(routers):
    return ServedAddressRouter(routers())


@pytest.fixture
def two_workers(routers):
    """Router with two workers."""
    return ServedAddressRouter(routers(2))


def without_last_frame(octets):
    at = 0
    while at + (size := int.from_bytes(octets[at : at + 4], "big")) < len(octets):
        at += size
    return octets[:at]


def delivery_ids(frame):
    """Return the delivery-ids that a disposition covers."""
    return range(frame.first, (frame.first if frame.last is None else frame.last) + 1)


@pytest.mark.parametrize("settled", [None, True], ids=["unsettled", "presettled"])
@pytest.mark.parametrize("anonymous", [False, True], ids=["targeted", "anonymous"])
@pytest.mark.parametrize("size", [0, 10, 100_000, 131_072, 300_000, MOST - 300])
def test_message_for_router_arrives_whole(two_workers, size, anonymous, settled):
    octets = message(b"x" * size, to="amqp:/inner")
    sender = two_workers.sender(None if anonymous else "inner", worker=1)
    sender.feed(transfer(0, 0, octets, settled=settled) + transfer(0, 1, octets, part=5000, settled=settled))
    two_workers.router.settle()
    number = two_workers.router.peers[0].known.number
    assert two_workers.taken == [LocalMessage(1, number, octets)] * 2
    received = frames(sender)
    outcomes = of(received, "disposition")
    assert all((frame.state, frame.settled) == (ACCEPTED, True) for frame in outcomes)
    assert [number for frame in outcomes for number in delivery_ids(frame)] == ([] if settled else [0, 1])
    assert of(received, "flow")[-1].link_credit == CREDIT
    counters = two_workers.counters(KEY)
    assert (counters["ingress"], counters["to_container"], counters["egress"]) == (2, 2, 0)


@pytest.mark.parametrize("settled", [None, True], ids=["unsettled", "presettled"])
def test_oversized_message_is_rejected_and_dropped(host, settled):
    sender = host.sender()
    before = engine.live_objects()[2]
    octets = transfer(0, 0, message(b"x" * (2 * MOST)), settled=settled)
    part = without_last_frame(octets)
    sender.feed(part)
    host.router.settle()
    assert engine.live_objects()[2] == before
    sender.feed(octets[len(part) :] + transfer(0, 1, message(b"next")))
    host.router.settle()
    received = frames(sender)
    assert [taken.octets for taken in host.taken] == [message(b"next")]
    reports = of(received, "disposition")
    rejections = [frame for frame in reports if frame.first == 0]
    if settled:
        assert rejections == []
    else:
        assert [bool(frame.settled) for frame in rejections] == [False, True]
        assert all(frame.state.value[0].value[0] == "amqp:link:message-size-exceeded" for frame in rejections)
    assert of(received, "flow")[-1].link_credit == CREDIT


def test_oversized_message_in_one_frame_is_rejected(routers):
    host = ServedAddressRouter(routers(text=configuration(listener="maxFrameSize: 4000000")))
    sender = host.sender()
    sender.feed(transfer(0, 0, message(b"x" * MOST), part=2 * MOST) + transfer(0, 1, message(b"next"), part=2 * MOST))
    host.router.settle()
    assert [taken.octets for taken in host.taken] == [message(b"next")]
    outcomes = [(frame.first, frame.state.descriptor) for frame in of(frames(sender), "disposition")]
    assert outcomes == [(0, 0x25), (1, 0x24)]


def test_incomplete_messages_are_bounded_together(host):
    """Each link may have one incomplete message."""
    peer = host.router.connect()
    links = COLLECTING // MOST + 4
    peer.feed(start() + b"".join(producer(n, "inner") for n in range(links)))
    host.router.settle()
    frames(peer)
    for n in range(links):
        peer.feed(without_last_frame(transfer(n, n, message(b"x" * (MOST - 1000)))))
        host.router.settle()
        assert engine.live_objects()[2] <= COLLECTING + 2 * MOST
    released = {frame.first for frame in of(frames(peer), "disposition") if frame.state == RELEASED}
    assert released
    assert host.taken == []


def test_message_of_lost_connection_is_dropped(host):
    sender = host.sender()
    whole = transfer(0, 0, message(b"x" * 500_000))
    sender.feed(whole[:300_000])
    sender.lose()
    host.router.settle()
    assert host.taken == []


def test_sender_is_paused_while_supervisor_is_behind(host):
    """No other connection waits."""
    greedy, modest = host.sender(), host.sender()
    host.router.work = False
    for n in range(CREDIT):
        greedy.feed(transfer(0, n, message(b"%d" % n)))
    modest.feed(transfer(0, 0, message(b"me, too")))
    host.router.settle()
    assert host.router.pause_reasons(greedy) is RouterPause.PAUSE_LOCAL
    assert not host.router.pause_reasons(modest)
    assert host.router.workers[0].in_process.held()[0] < 100 * (CONNECTION_MESSAGES + 1) * 10
    host.router.work = True
    host.router.settle()
    assert [taken.octets for taken in host.taken if taken.connection_number == greedy.known.number] == [
        message(b"%d" % n) for n in range(CREDIT)
    ]
    # The modest sender gets its turn among the first two.
    assert message(b"me, too") in [taken.octets for taken in host.taken[:2]]
    assert not host.router.pause_reasons(greedy)
    assert of(frames(greedy), "disposition")[-1].last == CREDIT - 1


def test_octets_for_supervisor_are_bounded(host):
    host.router.work = False
    octets = message(b"x" * 400_000)
    peers = [host.sender() for _ in range(2 * MOST_OCTETS // len(octets))]
    for peer in peers:
        peer.feed(transfer(0, 0, octets))
        host.router.settle()
        assert host.router.workers[0].in_process.held()[0] <= MOST_OCTETS + len(octets) + 1000
    outcomes = [of(frames(peer), "disposition")[0].state for peer in peers]
    kept = outcomes.count(ACCEPTED)
    assert outcomes == [ACCEPTED] * kept + [RELEASED] * (len(peers) - kept)
    assert 0 < HELD_OCTETS // len(octets) < kept < len(peers)
    host.router.work = True
    host.router.settle()
    assert len(host.taken) == kept
    assert not any(host.router.pause_reasons(peer) for peer in peers)


def test_paused_sender_misses_no_heartbeat(routers):
    host = ServedAddressRouter(routers(text=None))
    sender = host.sender()
    sender.connection.local_idle = 1000
    sender.transport.schedule()
    host.router.work = False
    for n in range(CREDIT):
        sender.feed(transfer(0, n, message(b"x")))
    host.router.settle()
    host.router.pass_time(5000)
    host.router.work = True
    host.router.settle()
    assert len(host.taken) == CREDIT
    host.router.pass_time(900)
    assert not sender.gone
    host.router.pass_time(200)
    assert sender.gone


def test_forwarded_octets_are_confirmed_periodically(host):
    (worker,) = host.router.workers
    known = host.router.core.workers[0]

    def forward(octets):
        worker.on_message(control.Send("M0nowhere", 0), bytes(octets))  # dropped, and counted as forwarded
        host.router.settle()

    forward(100)
    forward(200)
    assert known.unconfirmed == 0
    host.router.pass_time(CONFIRM_MS)
    assert known.unconfirmed == -300
    forward(CONFIRM_OCTETS)
    assert known.unconfirmed == -300 - CONFIRM_OCTETS


def test_messages_of_lost_connection_are_taken_once(host):
    sender = host.sender()
    host.router.work = False
    for n in range(CREDIT):
        sender.feed(transfer(0, n, message(b"x")))
    host.router.settle()
    sender.lose()
    host.router.work = True
    host.router.settle()
    assert len(host.taken) == CONNECTION_MESSAGES

"""Admission of connections by the supervisor, and the limits that the decision sets (security.md P-16, P-20, P-52)."""

import msgspec
import pytest

from router.control.login_messages import SaslOffer
from router.control.messages import Limits
from supervisor.auth.authentication import Authentication
from supervisor.connections.admission import Admit, Deny
from supervisor.policy.policy import Policy
from tests.component.engine.host import configuration
from tests.peer.frames import ACCEPTED, SASL_HEADER
from tests.peer.talk import consumer, frames, message, of, producer, say, settle, start, transfer

CHECK_MS = 5000  # ms between two checks of waiting clients
SECONDS = 60
SASL_FRAME = 1  # type of a frame
UNDECIDED = "the supervisor of the router did not answer in time"
CLIENT = say("open", container_id="test")
DENIED = ("amqp:resource-limit-exceeded", "connection disallowed by local policy")


def error(described):
    """Return condition and description."""
    return tuple(str(each) for each in described.value)


@pytest.fixture
def decide(monkeypatch):
    """Function that sets the decision about each open."""

    def use(decision):
        monkeypatch.setattr(Policy, "decide", lambda admission, connection, message: decision)

    return use


@pytest.fixture
def connect_limited(routers, decide):
    """Function that connects a client under these limits and begins its session. Returns (router, client)."""

    def make(**limits):
        decide(Admit(Limits(**limits)))
        router = routers(text=configuration(listener="maxFrameSize: 4096\nmaxSessions: 100"))
        peer = router.connect()
        peer.feed(start())
        router.settle()
        return router, peer

    return make


def test_undecided_open_delays_no_other_client(routers, decide):
    router = routers()
    decide(None)
    late = router.connect()
    late.feed(start() + producer(0, "balanced.a"))
    router.settle()
    decide(Admit())
    other = router.connect()
    other.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    assert frames(late) == []
    assert [f.name for f in frames(other)] == ["open", "begin", "attach"]
    waiting = router.core.workers[0].connections[late.client.number]
    assert (waiting.opened, waiting.container) == (False, "test")
    router.core.connections.decided(waiting, Admit())
    router.settle()
    assert waiting.opened
    assert [f.name for f in frames(late)] == ["open", "begin", "attach", "flow"]


def test_connection_lost_before_decision_is_removed(routers, decide):
    router = routers()
    decide(None)
    late = router.connect()
    late.feed(start())
    router.settle()
    waiting = router.core.workers[0].connections[late.client.number]
    late.lose()
    router.settle()
    router.core.connections.decided(waiting, Admit())
    router.settle()
    assert not waiting.opened
    assert router.core.connections.count == 0


def connect_clients(router, count):
    """Return clients that have sent an open, in this order."""
    peers = [router.connect() for _ in range(count)]
    for peer in peers:
        peer.feed(start())
    router.settle()
    return peers


def opens_at_supervisor(router):
    """Return the numbers of the connections whose open the supervisor has received."""
    return [number for number, each in router.core.workers[0].connections.items() if each.container is not None]


def test_undecided_opens_are_bounded(routers, decide, monkeypatch):
    """At most MAX_PENDING_OPENS opens wait at the supervisor, so that its other events do not wait behind them. The
    others follow in order; lost connections are skipped."""
    monkeypatch.setattr("workers.connections.admissions.MAX_PENDING_OPENS", 2)
    router = routers()
    decide(None)
    peers = connect_clients(router, 6)
    numbers = [peer.client.number for peer in peers]
    assert opens_at_supervisor(router) == numbers[:2]
    peers[0].lose()
    peers[3].lose()
    router.settle()
    assert opens_at_supervisor(router) == numbers[1:3]
    decide(Admit())
    router.core.connections.decided(router.core.workers[0].connections[numbers[1]], Admit())
    router.settle()
    assert opens_at_supervisor(router) == [numbers[1], numbers[2], *numbers[4:]]
    router.core.connections.decided(router.core.workers[0].connections[numbers[2]], Admit())
    router.settle()
    for peer in (peers[1], peers[2], *peers[4:]):
        assert [frame.name for frame in frames(peer)] == ["open", "begin"]


def test_undecided_open_is_refused_after_time_limit(routers, decide, monkeypatch):
    """The time limit holds whether the supervisor has received the open or not. An admitted client is not affected."""
    monkeypatch.setattr("workers.connections.admissions.MAX_PENDING_OPENS", 1)
    router = routers()
    (other,) = connect_clients(router, 1)
    decide(None)
    late = connect_clients(router, 2)
    router.pass_time(SECONDS * 1000)
    assert frames(late[0]) == frames(late[1]) == []
    router.pass_time(CHECK_MS + 1)
    for peer in late:
        opened, closed = frames(peer)
        assert (opened.name, closed.name) == ("open", "close")
        assert error(closed.error) == ("amqp:resource-limit-exceeded", UNDECIDED)
    assert [frame.name for frame in frames(other)] == ["open", "begin"]
    assert router.core.connections.count == 1
    other.feed(producer(0, "balanced.a"))
    router.settle()
    assert of(frames(other), "attach")


def test_time_limit_ignores_time_without_running(routers, decide):
    router = routers()
    decide(None)
    (late,) = connect_clients(router, 1)
    for worker in router.workers:
        worker.poller.time_ns += 10 * SECONDS * 10**9
    router.pass_time(CHECK_MS)
    assert frames(late) == []
    router.core.connections.decided(router.core.workers[0].connections[late.client.number], Admit())
    router.settle()
    assert [frame.name for frame in frames(late)] == ["open", "begin"]


@pytest.mark.parametrize("offered", [False, True])
def test_login_without_answer_is_refused_after_time_limit(routers, monkeypatch, offered):
    """Each answer restarts the time limit. A client without an answer is refused."""
    requests = []
    for name in ("_begin", "_init"):
        monkeypatch.setattr(Authentication, name, lambda _, worker, message: requests.append((worker, message.conn)))
    router = routers()
    profiles = router.workers[0].profiles
    profiles["main"] = msgspec.structs.replace(
        profiles["main"], asks_for_sasl=True, initial_handshake_timeout_seconds=0
    )
    late = router.connect()
    late.feed(SASL_HEADER)
    router.settle()
    ((worker, number),) = requests
    wanted = ["sasl-mechanisms", "sasl-outcome"]
    if offered:
        router.pass_time(SECONDS * 1000)
        worker.outbox.append(SaslOffer(number, ["PLAIN"]))
        router.settle()
        assert [frame.name for frame in frames(late)] == wanted[:1]
        chosen = bytearray(say("sasl-init", mechanism="PLAIN", initial_response=b"\0a\0b"))
        chosen[5] = SASL_FRAME
        late.feed(bytes(chosen))
        wanted = wanted[1:]
    router.pass_time(SECONDS * 1000)
    assert frames(late) == []
    router.pass_time(CHECK_MS + 1)
    received = frames(late)
    assert [frame.name for frame in received] == wanted
    assert received[-1].code == 1
    assert router.core.connections.count == 0


def test_denied_connection_gets_open_and_close(routers, decide):
    """The peer receives the listener's open, then a close (security.md P-16)."""
    router = routers(text=configuration(listener="maxFrameSize: 4096"))
    decide(Deny(*DENIED))
    peer = router.connect()
    peer.feed(start() + producer(0, "balanced.a"))
    router.settle()
    opened, closed = frames(peer)
    assert (opened.name, opened.max_frame_size, closed.name) == ("open", 4096, "close")
    assert error(closed.error) == DENIED
    assert router.core.connections.count == 0


def test_open_and_begin_carry_policy_limits(connect_limited):
    _, peer = connect_limited(max_frame=1000, sessions=7, window=5999)
    opened, begun = frames(peer)
    assert (opened.max_frame_size, opened.channel_max, begun.incoming_window) == (1000, 6, 5)


def test_missing_limits_come_from_listener(connect_limited):
    _, peer = connect_limited(message=10)
    opened, begun = frames(peer)
    assert (opened.max_frame_size, opened.channel_max, begun.incoming_window) == (4096, 99, 2147483647)


BODY = message(b"x" * 100)


@pytest.fixture
def limited_link(connect_limited):
    """(router, producer, consumer). Messages of the producer are limited to the size of `BODY`."""
    router, sender = connect_limited(message=len(BODY))
    receiver = router.connect()
    receiver.feed(start() + consumer(0, "balanced.a", 10))
    sender.feed(producer(0, "balanced.a"))
    router.settle()
    (attached,) = of(frames(sender), "attach")
    assert attached.max_message_size == len(BODY)
    assert not of(frames(receiver), "attach")[0].max_message_size
    return router, sender, receiver


def test_message_of_maximum_size_is_accepted(limited_link):
    router, sender, receiver = limited_link
    sender.feed(transfer(0, 0, BODY) + transfer(0, 1, BODY, part=30))
    router.settle()
    assert len(of(frames(receiver), "transfer")) >= 2
    receiver.feed(settle(0, 1, ACCEPTED))
    router.settle()
    assert not of(frames(sender), "close")


@pytest.mark.parametrize("part", [1000, 40, 1])
@pytest.mark.parametrize("settled", [False, True])
def test_oversized_message_ends_connection(limited_link, part, settled):
    """The message is rejected when its last octet has arrived, then link and connection end."""
    router, sender, receiver = limited_link
    sender.feed(transfer(0, 0, BODY + b"y", part=part, settled=settled))
    router.settle()
    received = frames(sender)
    assert [f.name for f in received if f.name != "flow"] == ["disposition"] * (not settled) + ["detach", "close"]
    if not settled:
        (outcome,) = of(received, "disposition")
        assert (outcome.first, outcome.settled) == (0, True)
        assert error(outcome.state.value[0]) == ("amqp:link:message-size-exceeded", "Message size exceeded")
    (closed,) = of(received, "close")
    assert error(closed.error) == ("amqp:connection:forced", "Message size exceeded")
    assert not [f for f in of(frames(receiver), "transfer") if not f.aborted and not f.more]
    assert router.core.connections.count == 1


@pytest.mark.parametrize("part", [1000, 40])
def test_oversized_message_on_link_route_ends_connection(routers, decide, part):
    """The limit holds as on other links, even before the container has answered."""
    router = routers()
    broker = router.connect(listener="broker")
    broker.feed(start())
    router.settle()
    decide(Admit(Limits(message=len(BODY))))
    sender = router.connect()
    sender.feed(start() + producer(0, "routed.a"))
    router.settle()
    assert of(frames(broker), "attach")
    sender.feed(transfer(0, 0, BODY + b"y", part=part))
    router.settle()
    assert not [f for f in of(frames(broker), "transfer") if not f.aborted and not f.more]
    received = frames(sender)
    assert error(of(received, "close")[0].error) == ("amqp:connection:forced", "Message size exceeded")
    (outcome,) = of(received, "disposition")
    assert (outcome.first, error(outcome.state.value[0])[0]) == (0, "amqp:link:message-size-exceeded")


def test_unfinished_oversized_message_is_dropped(limited_link):
    """Nothing of an unfinished message beyond the limit is kept, and nothing else of its link passes."""
    router, sender, receiver = limited_link
    part = say("transfer", payload=BODY, handle=0, delivery_id=0, delivery_tag=b"0", message_format=0, more=True)
    sender.feed(part * 50)
    router.settle()
    assert not of(frames(sender), "close")
    assert not of(frames(receiver), "transfer")
    sender.feed(say("transfer", handle=0, delivery_id=0, aborted=True))
    sender.feed(transfer(0, 1, BODY))
    router.settle()
    assert len(of(frames(receiver), "transfer")) == 1


def test_message_without_limit_passes(connect_limited):
    router, sender = connect_limited()
    sender.feed(producer(0, "balanced.a"))
    receiver = router.connect()
    receiver.feed(start() + consumer(0, "balanced.a", 10))
    router.settle()
    sender.feed(transfer(0, 0, message(b"x" * 5000), part=1000))
    router.settle()
    assert of(frames(receiver), "transfer")

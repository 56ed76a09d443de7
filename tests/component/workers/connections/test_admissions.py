"""Opens and logins that wait for the supervisor: their number and their time limit (security.md P-16, P-20)."""

import msgspec
import pytest

from sluice.router.control.login_messages import SaslOffer
from sluice.supervisor.auth.authentication import Authentication
from sluice.supervisor.connections.admission import Admit
from tests.peer.frames import SASL_HEADER
from tests.peer.talk import consumer, frames, of, producer, say, start

CHECK_MS = 5000  # ms between two checks of waiting clients
SECONDS = 60
SASL_FRAME = 1  # type of a frame
UNDECIDED = "the supervisor of the router did not answer in time"
CLIENT = say("open", container_id="test")


def error(described):
    """Return condition and description."""
    return tuple(str(each) for each in described.value)


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
    monkeypatch.setattr("sluice.workers.connections.admissions.MAX_PENDING_OPENS", 2)
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
    monkeypatch.setattr("sluice.workers.connections.admissions.MAX_PENDING_OPENS", 1)
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

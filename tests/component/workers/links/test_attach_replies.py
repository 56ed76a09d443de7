"""Order of answers to attaches: in the order of the attaches, with credit after the answer (routing-semantics.md
A-16a)."""

from typing import Any

import pytest

from sluice.router.config.entities import LinkRouteConfig
from tests.peer.frames import AMQP_HEADER, source, target
from tests.peer.talk import begin, consumer, frames, of, producer, say, start

MANAGEMENT = "$management"


def dynamic(handle, channel=0):
    """Attach a receiver to an address that the router generates."""
    wanted = source(None, dynamic=True)
    return say("attach", channel=channel, name=f"d{handle}", handle=handle, role=True, source=wanted, target=target())


def answer_frames(peer):
    """Return the names of answered links, and (`flow` or `detach`, handle) for these frames."""
    received = [frame for frame in frames(peer) if frame.name in ("attach", "flow", "detach")]
    return [frame.fields["name"] if frame.name == "attach" else (frame.name, frame.handle) for frame in received]


class HeldDeltas:
    """Worker whose deltas are held back until `release`."""

    def __init__(self, worker, monkeypatch):
        self.worker = worker
        self.deltas: list[tuple[Any, ...]] = []
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(worker.control, "on_delta", lambda *delta: self.deltas.append(delta), raising=True)

    def release(self, router):
        self.monkeypatch.undo()
        for delta in self.deltas:
            self.worker.on_delta(*delta)
        router.settle()


@pytest.fixture
def router(routers):
    return routers(2)


@pytest.fixture
def client(router):
    peer = router.connect()
    peer.feed(start() + begin(1))
    router.settle()
    frames(peer)
    return peer


@pytest.mark.parametrize("workers", [1, 2])
def test_dynamic_address_precedes_credit_for_requests(routers, workers):
    router = routers(workers)
    client = router.connect()
    client.feed(start() + dynamic(0) + producer(1, MANAGEMENT) + producer(2, None))
    router.settle()
    assert answer_frames(client) == ["d0", "p1", "p2", ("flow", 1), ("flow", 2)]


def test_answers_of_all_kinds_keep_their_order(router, client):
    client.feed(
        consumer(0, "balanced.a")
        + producer(1, "balanced.a")
        + consumer(2, "nobody.a", 0)
        + producer(3, None)
        + dynamic(4)
        + producer(5, MANAGEMENT)
    )
    router.settle()
    received = answer_frames(client)
    assert [each for each in received if isinstance(each, str)] == ["c0", "p1", "c2", "p3", "d4", "p5"]
    assert received.index(("flow", 5)) > received.index("d4")
    assert received.index(("detach", 2)) > received.index("c2")


def test_answer_waits_only_for_earlier_answers_of_session(router, client, monkeypatch):
    other = HeldDeltas(router.workers[1], monkeypatch)
    client.feed(producer(0, MANAGEMENT) + dynamic(1) + producer(2, MANAGEMENT))
    client.feed(say("attach", channel=1, name="s", handle=0, role=False, source=source(), target=target(MANAGEMENT),
                    initial_delivery_count=0))  # fmt: skip
    router.settle()
    assert answer_frames(client) == ["p0", "s", ("flow", 0), ("flow", 0)], "another session, and what came before"
    other.release(router)
    assert answer_frames(client) == ["d1", "p2", ("flow", 2)]


def test_frames_of_undecided_link_wait_for_its_answer(router, client, monkeypatch):
    other = HeldDeltas(router.workers[1], monkeypatch)
    client.feed(dynamic(0) + producer(1, MANAGEMENT) + say("detach", handle=1, closed=True))
    router.settle()
    assert answer_frames(client) == []
    other.release(router)
    assert answer_frames(client) == ["d0", "p1", ("flow", 1), ("detach", 1)]


@pytest.mark.parametrize("how", ["end", "close", "lose"])
def test_ended_session_gets_no_answers(router, client, monkeypatch, how):
    other = HeldDeltas(router.workers[1], monkeypatch)
    client.feed(dynamic(0) + producer(1, MANAGEMENT))
    router.settle()
    if how == "lose":
        client.lose()
    else:
        client.feed(say(how))
    router.settle()
    other.release(router)
    assert answer_frames(client) == []
    if how == "end":
        client.feed(begin(0) + producer(1, MANAGEMENT))
        router.settle()
        assert answer_frames(client) == ["p1", ("flow", 0)]


# -- Links of a container


@pytest.fixture
def container(router):
    routes = [
        LinkRouteConfig(
            name=way, identity=way, prefix="queue", pattern=None, direction=way, container_id="broker",
            connection=None, add_prefix=None, delete_prefix=None,
        )
        for way in ("in", "out")
    ]  # fmt: skip
    router.core.link_routes.replace(routes)
    peer = router.connect(1, "broker")
    peer.feed(AMQP_HEADER + say("open", container_id="broker"))
    router.settle()
    frames(peer)
    return peer


def test_routed_attach_waits_for_earlier_answers(router, client, container, monkeypatch):
    other = HeldDeltas(router.workers[1], monkeypatch)
    client.feed(dynamic(0) + producer(1, "queue.a"))
    router.settle()
    assert (answer_frames(client), answer_frames(container)) == ([], [])
    other.release(router)
    assert (answer_frames(client), answer_frames(container)) == (["d0"], ["p1@test"])


def test_answers_do_not_wait_for_container(router, client, container):
    client.feed(producer(0, "queue.a") + producer(1, MANAGEMENT))
    router.settle()
    assert answer_frames(client) == ["p1", ("flow", 1)]
    assert answer_frames(container) == ["p0@test"]


@pytest.mark.parametrize("lost", ["client", "container"])
def test_routed_attach_lost_before_its_answer_is_not_sent(router, client, container, monkeypatch, lost):
    other = HeldDeltas(router.workers[1], monkeypatch)
    client.feed(dynamic(0) + producer(1, "queue.a") + producer(2, MANAGEMENT))
    router.settle()
    (client if lost == "client" else container).lose()
    router.settle()
    other.release(router)
    assert of(frames(container), "attach") == []
    if lost == "container":
        received = answer_frames(client)
        assert received[0] == "d0"
        assert set(received[1:]) == {"p1", ("detach", 1), "p2", ("flow", 2)}

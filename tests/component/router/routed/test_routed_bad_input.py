"""Invalid input from a peer of a routed link closes that peer's connection; the other peer's worker continues."""

import pytest

from tests.component.engine.routed_ends import ScriptedRouteContainer, link_route
from tests.component.router.routed.test_routed_between import INTERIOR, RoutedNeighbour
from tests.peer.frames import target
from tests.peer.talk import begin, frames, of, producer, say, start
from tests.peer.types import Described, Raw, Symbol, ULong

LOST = "qd:routed-link-lost"
INNER = b"\x02\xa3\x0csluice.route\x40"
INVALID_MAPS = {
    "an octet too many": INNER + b"\xff",
    "a pair too many": INNER + b"\x40\x40",
    "half of a pair": INNER + b"\x40",
    "a count that is too small": b"\x00" + INNER[1:],
}
INVALID_ERRORS = {
    "binary": b"e" * 600,
    "symbol": Symbol("a:b"),
    "other list": Described(ULong(0x28), ["x" * 600]),
    "left over": Raw(b"\x00\x53\x1d\xc0\x06\x01\xa3\x01x\x40\x40"),
}
# Errors that the peer may send, and that must be shortened for clients with small frames.
LONG_ERRORS = {
    "long description": Described(ULong(0x1D), [Symbol("x:y"), "e" * 600]),
    "long condition": Described(ULong(0x1D), [Symbol("x" * 600)]),
    "condition is a string": Described(ULong(0x1D), ["\u00e9" * 600]),
    "condition is a number": Described(ULong(0x1D), [7, "e" * 600]),
    "no condition": Described(ULong(0x1D), [None, "e" * 600]),
}


@pytest.fixture(params=[1, 2], ids=["1-worker", "2-workers"])
def routed_ends(routers, request):
    """Return (router, container, client). The client accepts frames of 512 octets."""
    router = routers(request.param)
    router.core.link_routes.replace((link_route("in"), link_route("out")))
    container = ScriptedRouteContainer(router, request.param - 1)
    client = router.connect(0)
    client.feed(start(max_frame_size=512))
    router.settle()
    frames(client)
    return router, container, client


def connection_answers(router, peer, channel=5):
    """Return True if the peer's connection still answers."""
    peer.feed(begin(channel))
    router.settle()
    return bool(of(frames(peer), "begin"))


@pytest.mark.parametrize("inner", INVALID_MAPS.values(), ids=INVALID_MAPS)
def test_invalid_properties_of_attach_close_client(routed_ends, inner):
    router, container, client = routed_ends
    client.feed(producer(0, "queue.a", properties=Raw(b"\xc1" + bytes([len(inner)]) + inner)))
    router.settle()
    (close,) = of(frames(client), "close")
    assert close.error.value[0] == "amqp:decode-error"
    assert connection_answers(router, container.peer)


@pytest.mark.parametrize("error", INVALID_ERRORS.values(), ids=INVALID_ERRORS)
def test_invalid_error_of_detach_closes_container(routed_ends, error):
    router, container, client = routed_ends
    client.feed(producer(0, "queue.a"))
    container.accept()
    frames(client)
    container.say("detach", handle=40, closed=True, error=error)
    (close,) = of(frames(container.peer), "close")
    assert close.error is not None
    (detach,) = of(frames(client), "detach")
    assert detach.error.value[0] == LOST
    assert connection_answers(router, client)


@pytest.mark.parametrize("error", LONG_ERRORS.values(), ids=LONG_ERRORS)
def test_long_error_is_shortened_for_client(routed_ends, error):
    router, container, client = routed_ends
    client.feed(producer(0, "queue.a"))
    container.accept()
    frames(client)
    container.say("detach", handle=40, closed=True, error=error)
    (detach,) = of(frames(client), "detach")
    assert detach.closed
    assert detach.error is not None
    client.feed(say("detach", handle=0, closed=True))
    router.settle()
    assert connection_answers(router, client)
    assert connection_answers(router, container.peer, 3)


@pytest.mark.parametrize("state", [Raw(b"\xa1\x02\xff\xfe"), Raw(b"\x00\x53\x25\xc0\x03\x01\x40\x40")])
def test_invalid_state_closes_container(routed_ends, state):
    router, container, client = routed_ends
    client.feed(producer(0, "queue.a"))
    container.accept()
    container.flow(40, 10)
    client.feed(say("transfer", payload=b"x", handle=0, delivery_id=0, delivery_tag=b"t", message_format=0))
    router.settle()
    frames(client)
    container.say("disposition", role=True, first=0, state=state)
    assert of(frames(container.peer), "close")
    assert connection_answers(router, client)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("ours", [True, False])
def test_answer_with_invalid_terminus_closes_container(routers, workers, ours):
    router = routers(workers, INTERIOR)
    router.core.routers.step = lambda now=None: None
    router.core.link_routes.replace((link_route("in"), link_route("out")))
    container = ScriptedRouteContainer(router, 0)
    neighbour = RoutedNeighbour(router, workers - 1, "B", ours)
    neighbour.attach()
    attach = of(answer_begin_of_router(container), "attach")[0]
    ends = {"source": Described(ULong(0x99), ["a"]), "target": target("queue.a")}
    container.say("attach", name=attach.fields["name"], handle=40, role=True, **ends)
    (close,) = of(frames(container.peer), "close")
    assert close.error.value[0] == "amqp:invalid-field"
    assert of(neighbour.heard(), "detach")
    assert connection_answers(router, neighbour.peer)


def answer_begin_of_router(container):
    """Answer the router's begin as the container. Return the frames received before."""
    container.router.settle()
    heard = frames(container.peer)
    (opened,) = of(heard, "begin")
    numbers = {"next_outgoing_id": 0, "incoming_window": 1000, "outgoing_window": 1000}
    container.say("begin", remote_channel=opened.channel, **numbers)
    return heard

"""Routed links from and to other routers, in the engine (inter-router.md 12; decision 0012)."""

from typing import Any

import pytest

from sluice.supervisor.linkroutes.pairs import MOST_UNANSWERED
from sluice.workers.links.inter_router_link import CONTROL
from tests.component.engine.routed_ends import ScriptedRouteContainer, link_route
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, AMQP_HEADER, source, target, terminus
from tests.peer.talk import MANY, begin, flow, frames, message, of, say, start, transfer
from tests.peer.types import Described, Int, Map, Symbol, UByte, ULong

INTERIOR = """
router {
    mode: interior
    id: QDR
}
listener {
    name: main
    host: 127.0.0.1
    port: 0
    idleTimeoutSeconds: 0
}
listener {
    name: net
    host: 127.0.0.1
    port: 1
    role: inter-router
    idleTimeoutSeconds: 0
}
listener {
    name: broker
    host: 127.0.0.1
    port: 3
    role: route-container
    idleTimeoutSeconds: 0
}
"""
OURS = Map([(Symbol("sluice.bundle"), Int(1))])
NO_ROUTE = "No route to the destination node"


class RoutedNeighbour:
    """Scripted router. Channel 0 has its control links, channel 1 its routed links. `say` sends frames on channel 1."""

    def __init__(self, router, worker, name, ours):
        self.router = router
        self.peer = router.connect(worker, "net")
        properties: dict[str, Any] = {"properties": OURS} if ours else {}
        self.name = name
        self.peer.feed(AMQP_HEADER + say("open", container_id=name, **properties) + begin(0) + begin(1))
        for number, receiver in enumerate((True, False)):
            kind = Symbol(CONTROL)
            ends: dict[str, Any] = {"source": source(capabilities=kind), "target": target(capabilities=kind)}
            if not receiver:
                ends["initial_delivery_count"] = 0
            self.peer.feed(say("attach", name=f"c{number}", handle=number, role=receiver, **ends))
        self.peer.feed(flow(0, MANY))
        self.heard()

    @property
    def number(self):
        return self.peer.client.number

    def say(self, performative, channel=1, **fields):
        self.peer.feed(say(performative, channel=channel, **fields))
        self.router.settle()

    def heard(self, *names):
        self.router.settle()
        found = frames(self.peer)
        return [frame for frame in found if frame.channel != 0 and (not names or frame.name in names)]

    def attach(self, handle=0, name="link@client", address="queue.a", **fields):
        self.say("attach", name=name, handle=handle, role=False, source=source(), target=target(address),
                 initial_delivery_count=0, **fields)  # fmt: skip


class RoutedLinkNetwork:
    def __init__(self, routers, workers):
        self.workers = workers
        self.router = routers(workers, INTERIOR)
        self.core = self.router.core
        self.core.routers.step = lambda now=None: None
        self.count = 0
        self.others = {}

    def next_worker(self):
        """Return a worker number, so that the connections of a test are on different workers if there are several."""
        self.count += 1
        return (self.count - 1) % self.workers

    def container(self):
        self.core.link_routes.replace((link_route("in"), link_route("out")))
        return ScriptedRouteContainer(self.router, self.next_worker())

    def neighbour(self, name, ours):
        return RoutedNeighbour(self.router, self.next_worker(), name, ours)

    def announce(self, neighbour, index, *keys):
        """Announce the keys of link routes as the neighbour's."""
        routers = self.core.routers
        self.others[index] = neighbour
        routers.id_of = lambda number: self.others[number].name
        routers.links_of = lambda number: (self.others[number].number,)
        for each in keys:
            routers.link_routes.add(each, index)


@pytest.fixture(params=[1, 2], ids=["1-worker", "2-workers"])
def routed_network(routers, request):
    return RoutedLinkNetwork(routers, request.param)


EXTRAS: dict[str, Any] = {
    "snd_settle_mode": UByte(1),
    "rcv_settle_mode": UByte(1),
    "properties": Map([(Symbol("p"), "x")]),
    "desired_capabilities": [Symbol("cap")],
    "max_message_size": ULong(77),
}


# brokers-and-edge.md LR-13.
@pytest.mark.parametrize("ours", [True, False])
def test_link_from_router_reaches_container_with_its_name(routed_network, ours):
    container = routed_network.container()
    neighbour = routed_network.neighbour("B", ours)
    way = Map([(Symbol("p"), "x"), (Symbol("sluice.route"), ["QDR", "B"])])
    neighbour.attach(**{**EXTRAS, "properties": way})
    asked = container.accept(max_message_size=ULong(9), offered_capabilities=[Symbol("o")], snd_settle_mode=UByte(1))
    assert asked.fields["name"] == "link@client"
    assert (asked.properties, asked.snd_settle_mode, asked.rcv_settle_mode) == ({"p": "x"}, 1, 1)
    (answer,) = neighbour.heard("attach")
    assert (answer.fields["name"], terminus(answer.target)["address"]) == ("link@client", "queue.a")
    said = (answer.snd_settle_mode, answer.max_message_size, answer.offered_capabilities)
    assert said == ((1, 9, ["o"]) if ours else (2, 0, None))
    container.flow(40, 5)
    (granted,) = neighbour.heard("flow")
    assert granted.link_credit == 5


@pytest.mark.parametrize("ours", [True, False])
def test_link_of_client_reaches_next_router(routed_network, ours):
    neighbour = routed_network.neighbour("B", ours)
    routed_network.announce(neighbour, 1, "Cqueue")
    client = routed_network.router.connect(routed_network.next_worker())
    default = {"default_outcome": ACCEPTED}
    client.feed(start() + say("attach", name="p0", handle=0, role=False, source=source("s", **default),
                              target=target("queue.a", capabilities=Symbol("queue")), initial_delivery_count=7,
                              **EXTRAS))  # fmt: skip
    begun, asked = neighbour.heard("begin", "attach")
    assert begun.channel == asked.channel
    assert asked.fields["name"] == "p0@test"
    assert (terminus(asked.target)["address"], terminus(asked.target)["capabilities"]) == ("queue.a", "queue")
    assert asked.initial_delivery_count == 7
    said = (asked.snd_settle_mode, asked.rcv_settle_mode, asked.desired_capabilities, asked.max_message_size)
    if ours:
        assert said == (1, 1, ["cap"], 77)
        assert list(asked.properties.items()) == [("p", "x"), ("sluice.route", ["B", "QDR"])]
        assert terminus(asked.source)["default_outcome"] == ACCEPTED
    else:
        assert said == (2, 0, None, 0)
        assert asked.properties is None
        assert terminus(asked.source).get("default_outcome") is None
    neighbour.say("begin", channel=5, remote_channel=begun.channel, next_outgoing_id=0, incoming_window=MANY,
                  outgoing_window=MANY)  # fmt: skip
    neighbour.say("attach", channel=5, name="p0@test", handle=9, role=True, source=asked.source, target=asked.target)
    routed_network.router.settle()
    (answer,) = of(frames(client), "attach")
    assert (answer.fields["name"], terminus(answer.target)["address"]) == ("p0", "queue.a")
    neighbour.peer.lose()
    routed_network.router.settle()
    (lost,) = of(frames(client), "detach")
    assert (lost.closed, lost.error.value[0]) == (True, "qd:routed-link-lost")


@pytest.mark.parametrize("ours", [(True, True), (True, False), (False, True), (False, False)])
def test_link_passes_between_two_routers(routed_network, ours):
    first, second = routed_network.neighbour("B", ours[0]), routed_network.neighbour("C", ours[1])
    routed_network.announce(second, 2, "Cqueue")
    first.attach(name="p0@client", properties=Map([(Symbol("sluice.route"), ["C", "B"])]) if ours[0] else None)
    begun, asked = second.heard("begin", "attach")
    assert asked.fields["name"] == "p0@client"
    if ours[1]:
        assert asked.properties == {"sluice.route": ["C", "B", "QDR"] if ours[0] else ["C", "QDR"]}
    else:
        assert asked.properties is None
    second.say("begin", channel=5, remote_channel=begun.channel, next_outgoing_id=0, incoming_window=MANY,
               outgoing_window=MANY)  # fmt: skip
    second.say("attach", channel=5, name="p0@client", handle=9, role=True, source=asked.source, target=asked.target)
    second.peer.feed(flow(9, 10, channel=5))
    answer, granted = first.heard("attach", "flow")
    assert (answer.fields["name"], granted.link_credit) == ("p0@client", 10)
    first.peer.feed(transfer(0, 0, message(b"one"), channel=1))
    (got,) = second.heard("transfer")
    assert (got.payload, got.delivery_tag, got.settled or False) == (message(b"one"), b"0", False)
    second.say("disposition", channel=5, role=True, first=got.delivery_id, settled=True, state=ACCEPTED)
    (outcome,) = first.heard("disposition")
    assert (outcome.first, outcome.settled, outcome.state) == (0, True, ACCEPTED)
    first.say("detach", handle=0, closed=True)
    (gone,) = second.heard("detach")
    assert (gone.closed, gone.error, first.heard("detach")) == (True, None, [])
    second.say("detach", channel=5, handle=9, closed=True)
    assert len(first.heard("detach")) == 1


def answer_begin(channel):
    numbers: dict[str, Any] = {"next_outgoing_id": 0, "incoming_window": MANY, "outgoing_window": MANY}
    return say("begin", channel=channel + 20, remote_channel=channel, **numbers)


def test_client_sessions_have_separate_sessions_to_next_router(routed_network):
    for name, ours in (("B", True), ("C", False)):
        neighbour = routed_network.neighbour(name, ours)
        routed_network.announce(neighbour, 1, f"C{name}")
        channels = []
        for _ in range(2):
            client = routed_network.router.connect(routed_network.next_worker())
            for handle in range(2):
                client.feed((start() if not handle else b"") + say(
                    "attach", name=f"p{handle}", handle=handle, role=False, source=source(), target=target(name),
                    initial_delivery_count=0))  # fmt: skip
                heard = neighbour.heard()
                for opened in of(heard, "begin"):
                    neighbour.peer.feed(answer_begin(opened.channel))
                channels += [frame.channel for frame in heard if frame.name == "attach"]
        assert len(channels) == 4
        assert channels[0] == channels[1]
        assert channels[2] == channels[3]
        assert channels[0] != channels[2]


def test_session_of_lost_client_is_reused(routed_network):
    neighbour = routed_network.neighbour("B", True)
    routed_network.announce(neighbour, 1, "Cqueue")
    channels = []
    for _ in range(3):
        client = routed_network.router.connect(routed_network.next_worker())
        client.feed(start() + say("attach", name="p", handle=0, role=False, source=source(), target=target("queue"),
                                  initial_delivery_count=0))  # fmt: skip
        heard = neighbour.heard("begin", "attach")
        for begun in of(heard, "begin"):
            neighbour.say("begin", channel=5, remote_channel=begun.channel, next_outgoing_id=0, incoming_window=MANY,
                          outgoing_window=MANY)  # fmt: skip
        (asked,) = of(heard, "attach")
        channels.append(asked.channel)
        neighbour.say("attach", channel=5, name=asked.fields["name"], handle=9, role=True, source=asked.source,
                      target=asked.target)  # fmt: skip
        client.lose()
        (lost,) = neighbour.heard("detach")
        assert lost.error.value[0] == "qd:routed-link-lost"
        neighbour.say("detach", channel=5, handle=9, closed=True)
    assert len(set(channels)) == 1


def test_equal_link_names_from_router_are_made_distinct(routed_network):
    container = routed_network.container()
    neighbour = routed_network.neighbour("B", False)
    for handle in range(2):
        neighbour.attach(handle)
        asked = container.accept()
        assert asked.fields["name"] == ("link@client" if handle == 0 else "link@client#2")
    assert [frame.handle for frame in neighbour.heard("attach")] == [0, 1]
    neighbour.say("detach", handle=0, closed=True)
    container.say("detach", handle=40, closed=True)
    assert [frame.handle for frame in neighbour.heard("detach")] == [0]
    neighbour.attach(2)
    assert container.accept().fields["name"] == "link@client"


def test_link_without_matching_route_is_refused(routed_network):
    neighbour = routed_network.neighbour("B", True)
    neighbour.attach(address="queue.a")
    answer, gone = neighbour.heard("attach", "detach")
    assert answer.target is None
    assert (gone.closed, gone.error.value[:2]) == (True, ["qd:no-route-to-dest", NO_ROUTE])


def test_looping_link_is_refused(routed_network):
    first, second = routed_network.neighbour("B", False), routed_network.neighbour("C", False)
    routed_network.announce(second, 2, "Cqueue")
    for number in range(MOST_UNANSWERED + 1):
        first.attach(number)
        refused = first.heard("detach")
        assert len(refused) == (number == MOST_UNANSWERED)
    assert refused[0].error.value[0] == "qd:no-route-to-dest"
    first.attach(number + 1, name="another")
    assert first.heard("detach") == []


def test_link_from_router_without_free_slot_is_refused(routed_network):
    container = routed_network.container()
    neighbour = routed_network.neighbour("B", True)
    client = routed_network.router.connect(neighbour.peer.worker.setup.worker)
    client.feed(start())
    handle = 0
    while not neighbour.peer.worker.slots.full:
        client.feed(say("attach", name=f"p{handle}", handle=handle, role=False, source=source(),
                        target=target(), initial_delivery_count=0))  # fmt: skip
        handle += 1
        routed_network.router.settle()
    neighbour.attach(50)
    answer, gone = neighbour.heard("attach", "detach")
    assert (answer.target, gone.error.value[0]) == (None, "amqp:resource-limit-exceeded")
    neighbour.say("detach", handle=50, closed=True)
    client.lose()
    routed_network.router.settle()
    neighbour.attach(50)
    assert container.accept().fields["name"] == "link@client"


def test_route_property_from_client_is_ignored(routed_network):
    neighbour = routed_network.neighbour("B", True)
    routed_network.announce(neighbour, 1, "Cqueue")
    client = routed_network.router.connect(routed_network.next_worker())
    client.feed(start() + say("attach", name="p0", handle=0, role=False, source=source(), target=target("queue"),
                              properties=Map([(Symbol("sluice.route"), ["x", "QDR", "B"])])))  # fmt: skip
    (asked,) = neighbour.heard("attach")
    assert asked.properties == {"sluice.route": ["B", "QDR"]}


def test_attach_too_long_for_next_connection_is_refused(routed_network):
    """The router's peer accepts frames of 512 octets."""
    container = routed_network.container()
    client = routed_network.router.connect(routed_network.next_worker())
    client.feed(start(max_frame_size=512) + say("attach", name="c0", handle=0, role=True, source=source("queue.a"),
                                                target=target()))  # fmt: skip
    routed_network.router.settle()
    asked = container.accept(properties=Map([(Symbol("long"), "x" * 2000)]))
    assert terminus(asked.source)["address"] == "queue.a"
    heard = frames(client)
    (answer,), (gone,) = of(heard, "attach"), of(heard, "detach")
    assert answer.source is None
    assert gone.error.value[0] == "amqp:resource-limit-exceeded"
    (lost,) = of(frames(container.peer), "detach")
    assert lost.error.value[0] == "qd:routed-link-lost"


def test_error_text_too_long_for_peer_is_omitted(routed_network):
    container = routed_network.container()
    client = routed_network.router.connect(routed_network.next_worker())
    client.feed(start(max_frame_size=512) + say("attach", name="p0", handle=0, role=False, source=source(),
                                                target=target("queue.a"), initial_delivery_count=0))  # fmt: skip
    container.accept()
    container.flow(40, 10)
    client.feed(transfer(0, 0, message(b"one")))
    routed_network.router.settle()
    frames(client)
    error = Described(ULong(0x1D), [Symbol("amqp:internal-error"), "x" * 2000])
    container.say("disposition", role=True, first=0, settled=True, state=Described(ULong(0x25), [error]))
    (outcome,) = of(frames(client), "disposition")
    assert (outcome.settled, outcome.state) == (True, Described(ULong(0x25), []))
    container.say("detach", handle=40, closed=True, error=error)
    (gone,) = of(frames(client), "detach")
    assert (gone.closed, gone.error.value) == (True, ["amqp:internal-error"])
    assert len(encode(gone.error)) < 512

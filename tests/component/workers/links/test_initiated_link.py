"""Sessions, links and connections that the router initiates, on the real engine."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sluice.router.testing.engine as engine
from sluice.supervisor.links.attach import NO_LINK_ROUTE, TABLE_FULL, AttachAccepted
from sluice.supervisor.links.initiated import InitiatedLinkOptions
from tests.component.engine.host import InProcessRouter, configuration
from tests.component.engine.routed_ends import link_route
from tests.peer.frames import ACCEPTED, AMQP_HEADER, RELEASED, SASL_HEADER, error, source, target
from tests.peer.talk import consumer, flow, frames, message, messages, of, producer, say, settle, start, transfer
from tests.peer.types import Array, Described, Symbol, ULong

MANY = 0x7FFFFFFF
CONTAINERS = "listener { name: containers; host: 127.0.0.1; port: 3; role: route-container; idleTimeoutSeconds: 0 }"
FALLBACK = Symbol("qd.fallback")
LINKS = 256  # links of a worker in this host


class RecordingLinkOwner:
    """Owner of initiated links, bound to an address of the test. `calls` records its callbacks."""

    def __init__(self, router, address, fallback=True):
        self.router = router
        self.address = address
        self.fallback = fallback
        self.calls = []

    def begun(self, link):
        self.calls.append(("begun", link.name))

    def answered(self, link, active, address):
        self.calls.append(("answered", active))
        if link.consumer and not active:
            return None
        table, settings = self.router.core.table, self.router.core.settings
        record = table.open_mobile(self.address, 0, settings.current.lookup(self.address))
        return AttachAccepted(record, to=self.address, fallback=self.fallback)

    def ended(self, reason):
        self.calls.append(("ended", reason))


@pytest.fixture
def router(routers):
    return routers(1, configuration(more=CONTAINERS))


@pytest.fixture
def container(router):
    """Peer on a route-container listener, without sessions of its own."""
    peer = router.connect(listener="containers")
    peer.feed(AMQP_HEADER + say("open", container_id="broker"))
    router.settle()
    frames(peer)
    return peer


def request_link(router, peer, direction, address="balanced.own", fallback=True):
    """Request a link; return its owner, its reference and the frames that the router sends."""
    owner = RecordingLinkOwner(router, address, fallback)
    reference = router.core.initiated_links.attach(
        peer.known, direction == "out", InitiatedLinkOptions(address=address), owner
    )
    router.settle()
    return owner, reference, frames(peer)


def begin(channel, remote):
    numbers: dict[str, Any] = {"next_outgoing_id": 0, "incoming_window": MANY, "outgoing_window": MANY}
    return say("begin", channel=channel, remote_channel=remote, **numbers)


def answer(attach, channel=0, handle=7, **fields):
    given = {"name": attach.fields["name"], "source": attach.source, "target": attach.target}
    given = {**given, "initial_delivery_count": 0, **fields}
    return say("attach", channel=channel, handle=handle, role=not attach.role, **given)


def test_initiated_links_share_one_session(router, container):
    _, _, first = request_link(router, container, "out")
    container.feed(begin(0, 0))
    _, _, second = request_link(router, container, "in")
    (opened,), (attach,) = of(first, "begin"), of(first, "attach")
    assert opened.remote_channel is None
    assert (of(second, "begin"), of(second, "attach")[0].channel) == ([], opened.channel)
    assert attach.handle != of(second, "attach")[0].handle


def test_early_sender_matches_documented_octets(router, container, monkeypatch):
    """Octets of an early sender, as in docs/internals/edge.md, "The first message"."""
    monkeypatch.setattr("sluice.supervisor.links.initiated.make_name", lambda: "qdlink.qSzVa9-LfJ4M3pE")
    request_link(router, container, "in")
    container.feed(begin(0, 0))
    wanted = InitiatedLinkOptions(address="plant", capability=NO_LINK_ROUTE, use="messages")
    router.core.initiated_links.attach(container.known, True, wanted, RecordingLinkOwner(router, "plant"))
    router.settle()
    expected = """
    0000007e 02000000 005312 c0710e
      a116 71646c696e6b2e71537a5661392d4c664a344d337045
      5201 42 5002 5000
      005328c01104 40 43 a30b6c696e6b2d646574616368 43
      005329c02f07 a105706c616e74 43 a30b6c696e6b2d646574616368 43 42 40
        a314736c756963652e6e6f2d6c696e6b2d726f757465
      4040 43 40404040
    """
    assert container.take().hex() == "".join(expected.split())


def test_peer_on_other_channel_is_answered(router, container):
    owner, _, received = request_link(router, container, "out")
    (attach,) = of(received, "attach")
    container.feed(begin(5, 0) + answer(attach, 5) + flow(7, 10).replace(b"\x02\x00\x00\x00", b"\x02\x00\x00\x05", 1))
    router.settle()
    assert owner.calls == [("begun", attach.fields["name"]), ("answered", True)]
    sending = router.connect()
    sending.feed(start() + say("attach", name="p", handle=0, role=False, source=source(), target=target("balanced.own"),
                               initial_delivery_count=0))  # fmt: skip
    router.settle()
    sending.feed(transfer(0, 0, message(b"x")))
    router.settle()
    received = frames(container)
    assert len(messages(received)) == 1
    assert of(received, "transfer")[0].channel == 0, "ours"
    container.feed(settle(0, 0, ACCEPTED).replace(b"\x02\x00\x00\x00", b"\x02\x00\x00\x05", 1))
    router.settle()
    assert of(frames(sending), "disposition")[0].settled


def test_incoming_link_counts_from_initial_delivery_count(router, container):
    _, _, received = request_link(router, container, "in")
    (attach,) = of(received, "attach")
    container.feed(begin(0, 0) + answer(attach, initial_delivery_count=1000))
    consuming = router.connect()
    consuming.feed(start() + consumer(0, "balanced.own", 0))
    router.settle()
    (credit,) = of(frames(container), "flow")
    assert (credit.delivery_count, credit.link_credit) == (1000, 250)


class ContainerProducer:
    """Producer of a container on a link that the router has attached, with the credit that the flows give it."""

    def __init__(self, router, container, **bound):
        self.router = router
        self.container = container
        _, _, received = request_link(router, container, "in", **bound)
        (attach,) = of(received, "attach")
        self.handle = attach.handle
        container.feed(begin(0, 0) + answer(attach))
        self.flows = self.new_flows()

    def new_flows(self):
        """Return (delivery-count, link-credit) of the flows since the last call."""
        self.router.settle()
        flows = of(frames(self.container), "flow")
        assert all(each.handle == self.handle and not each.drain for each in flows), "brokers take a drain badly"
        return [(each.delivery_count, each.link_credit) for each in flows]


def receiver(router, address="balanced.own", worker=0, capabilities=None):
    """Connect a client that receives, without credit."""
    consuming = router.connect(worker)
    wanted = source(address, capabilities=capabilities)
    consuming.feed(start() + say("attach", name="c", handle=0, role=True, source=wanted, target=target()))
    router.settle()
    return consuming


@pytest.mark.parametrize("workers", [1, 2])
def test_container_has_credit_while_consumers_exist(routers, workers):
    """Without a consumer the message would be released. A broker counts that as a delivery attempt and finally
    discards the message."""
    router = routers(workers, configuration(more=CONTAINERS))
    container = router.connect(listener="containers")
    container.feed(AMQP_HEADER + say("open", container_id="broker"))
    router.settle()
    frames(container)
    sender = ContainerProducer(router, container)
    assert sender.flows == [], "no consumer"
    first = receiver(router, worker=workers - 1)
    assert sender.new_flows() == [(0, 250)]
    second = receiver(router)
    assert sender.new_flows() == []
    first.feed(say("detach", handle=0))
    assert sender.new_flows() == []
    second.lose()
    assert sender.new_flows() == [(0, 0)], "taken back"
    container.feed(transfer(7, 0, message(b"on its way")))
    router.settle()
    (outcome,) = of(frames(container), "disposition")
    assert (outcome.state, outcome.settled) == (RELEASED, True)
    third = receiver(router, worker=workers - 1)
    assert sender.new_flows() == [(1, 250)]
    third.feed(say("close"))
    assert sender.new_flows() == [(1, 0)]


@pytest.mark.parametrize("address", ["exchange", "$management"])
def test_container_has_credit_for_exchange_and_management(router, container, address):
    assert ContainerProducer(router, container, address=address).flows == [(0, 250)]


def test_fallback_consumer_gives_container_credit(router, container):
    sender = ContainerProducer(router, container, address="spare.a")
    assert sender.flows == []
    fallback = receiver(router, "spare.a", capabilities=FALLBACK)
    assert sender.new_flows() == [(0, 250)]
    fallback.lose()
    assert sender.new_flows() == [(0, 0)]


def test_link_from_fallback_gets_no_credit_for_fallback_consumer(router, container):
    """The router would not return the messages to the fallback consumer, but release them."""
    receiver(router, "spare.a", capabilities=FALLBACK)
    sender = ContainerProducer(router, container, address="spare.a", fallback=False)
    assert sender.flows == []
    consuming = receiver(router, "spare.a")
    assert sender.new_flows() == [(0, 250)]
    consuming.lose()
    assert sender.new_flows() == [(0, 0)]


def test_echo_of_broker_reports_current_credit(router, container):
    sender = ContainerProducer(router, container)
    receiver(router).lose()
    assert sender.new_flows() == [(0, 250), (0, 0)]
    container.feed(flow(7, 250, echo=True))
    assert sender.new_flows() == [(0, 0)]


def test_refused_link_notifies_owner(router, container):
    owner, reference, received = request_link(router, container, "out")
    (attach,) = of(received, "attach")
    refusal = say("detach", handle=7, error=error("amqp:not-found", "no queue"))
    container.feed(begin(0, 0) + answer(attach, target=None) + refusal)
    router.settle()
    assert owner.calls[1:] == [("answered", False), ("ended", "no queue")]
    (detach,) = of(frames(container), "detach")
    assert detach.closed
    assert reference not in router.core.links.by_identity


@pytest.mark.parametrize("direction", ["in", "out"])
def test_link_cancelled_before_answer_is_detached(router, container, direction):
    owner, reference, received = request_link(router, container, direction)
    (attach,) = of(received, "attach")
    router.core.initiated_links.detach(container.known, reference)
    router.settle()
    (detach,) = of(frames(container), "detach")
    assert (detach.handle, detach.closed, detach.error) == (attach.handle, True, None)
    container.feed(begin(0, 0) + answer(attach) + say("detach", handle=7, closed=True))
    router.settle()
    assert frames(container) == []
    assert owner.calls == [("begun", attach.fields["name"])]
    _, _, received = request_link(router, container, direction)
    assert of(received, "attach")[0].handle == attach.handle, "the handle is free again"


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_link_cancelled_during_decision_is_detached(router, container, direction, early):
    """The peer has answered, the supervisor has not decided. `early`: the peer's detach waits already."""
    _, reference, received = request_link(router, container, direction)
    (attach,) = of(received, "attach")
    detach = say("detach", handle=7, closed=True)
    container.feed(begin(0, 0) + answer(attach) + (detach if early else b""))
    router.core.initiated_links.detach(container.known, reference)
    router.settle()
    if not early:
        assert of(frames(container), "detach")[0].closed
        container.feed(detach)
    container.feed(begin(1, None))
    router.settle()
    assert of(frames(container), "begin"), "the connection is read"
    _, _, received = request_link(router, container, direction)
    assert of(received, "attach")[0].handle == attach.handle, "the handle is free again"


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_link_without_room_in_table_is_closed_with_error(router, container, direction, active):
    owner, _, received = request_link(router, container, direction)
    (attach,) = of(received, "attach")
    owner.answered = lambda link, active, address: TABLE_FULL
    end = {} if active else {"target" if direction == "out" else "source": None}
    container.feed(begin(0, 0) + answer(attach, **end))
    router.settle()
    (detach,) = of(frames(container), "detach")
    assert detach.closed
    assert detach.error.value == list(TABLE_FULL)
    container.feed(say("detach", handle=7, closed=True) + begin(1, None))
    router.settle()
    assert of(frames(container), "begin"), "the connection is read"
    assert owner.calls == [("begun", attach.fields["name"]), ("ended", TABLE_FULL.description)]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "the peer has ended the session without a reason"),
        (error("amqp:not-found", "no queue"), "amqp:not-found no queue"),
    ],
)
def test_session_ended_by_peer_ends_its_links(router, container, given, reason):
    owner, _, received = request_link(router, container, "out")
    container.feed(begin(0, 0) + answer(of(received, "attach")[0]) + say("end", error=given))
    router.settle()
    assert owner.calls[-1] == ("ended", reason)
    assert [frame.name for frame in frames(container)] == ["end"]
    _, _, received = request_link(router, container, "out")
    assert [frame.name for frame in received] == ["begin", "attach"]


def test_peer_session_beside_initiated_session_is_answered(router, container):
    owner, _, received = request_link(router, container, "out")
    container.feed(begin(3, None))
    router.settle()
    (answered,) = of(frames(container), "begin")
    assert (answered.remote_channel, answered.channel) == (3, 3)
    container.feed(begin(0, 0) + answer(of(received, "attach")[0]))
    router.settle()
    assert owner.calls[-1] == ("answered", True)


def test_connection_lost_before_answer_removes_link(router, container):
    owner, reference, received = request_link(router, container, "in")
    container.lose()
    router.settle()
    assert owner.calls == [("begun", of(received, "attach")[0].fields["name"])]
    assert reference not in router.core.links.by_identity


def test_invalid_terminus_ends_connection(router, container):
    _, _, received = request_link(router, container, "out")
    bad = Described(ULong(0x99), [])
    container.feed(begin(0, 0) + answer(of(received, "attach")[0], target=bad))
    router.settle()
    assert of(frames(container), "close")


def test_link_beyond_worker_limit_is_refused(router, container):
    owners = [request_link(router, container, "in")[0]]
    container.feed(begin(0, 0))
    owners += [request_link(router, container, "in")[0] for _ in range(LINKS)]
    assert owners[-1].calls == [("ended", "this worker has no room for another link")]
    assert all(len(owner.calls) == 1 and owner.calls[0][0] == "begun" for owner in owners[:-1])


# -- Connections that the router initiates


class RecordingInitiator:
    """Initiator of a connection that records how it opened and ended."""

    def opened(self, connection):
        self.connection = connection

    def ended(self, connection, ending, text):
        self.ending = ending


CONNECTOR = "connector { name: out; host: broker.example; port: 1; idleTimeoutSeconds: 0 }"


def initiate_connection(router, initiator):
    """Initiate a connection to the peer that the test plays; no frame has been exchanged yet."""
    (config,) = router.configuration.connectors
    peer = router.initiate(0, config, initiator)
    router.settle()
    return peer


def sasl(name, **fields):
    """Return a SASL frame."""
    octets = bytearray(say(name, **fields))
    octets[5] = 1
    return bytes(octets)


PEER_OCTETS = [
    SASL_HEADER,
    sasl("sasl-mechanisms", sasl_server_mechanisms=Array([Symbol("ANONYMOUS")])),
    sasl("sasl-outcome", code=0),
    AMQP_HEADER,
    say("open", container_id="broker"),
]


@pytest.fixture
def initiating_router(routers):
    return routers(1, configuration(more=CONNECTOR))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_initiated_connection_opens_with_octets_cut_anywhere(initiating_router, size):
    initiator = RecordingInitiator()
    peer = initiate_connection(initiating_router, initiator)
    octets = b"".join(PEER_OCTETS)
    for at in range(0, len(octets), size):
        peer.feed(octets[at : at + size])
        initiating_router.settle()
    assert initiator.connection.container == "broker"
    sent = peer.take()
    assert sent.startswith(SASL_HEADER)
    assert sent.count(AMQP_HEADER) == 1


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_malformed_answers_leave_worker_unharmed(data):
    """Whatever a peer answers at any point, the connection ends or makes progress, and the worker survives."""
    before = engine.live_objects()
    initiating_router = InProcessRouter(1, configuration(more=CONNECTOR))
    initiator = RecordingInitiator()
    peer = initiate_connection(initiating_router, initiator)
    octets = bytearray(b"".join(PEER_OCTETS))
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    peer.feed(bytes(octets))
    initiating_router.settle()
    peer.lose()
    initiating_router.settle()
    assert hasattr(initiator, "ending")
    assert not initiating_router.core.workers[0].connections
    initiating_router.check_quiet()
    initiating_router.check_empty()
    initiating_router.close()
    assert engine.live_objects() == before


# -- handle-max -------------------------------------------------------------------------------------------------------


class HandleMaxContainer:
    """Container with a low handle-max. It answers all begins and attaches, and records the handles."""

    def __init__(self, router, peer, handle_max):
        self.router, self.peer, self.handle_max = router, peer, handle_max
        self.handles = {}  # by the router's channel
        self.gone = []

    def answer(self):
        self.router.settle()
        while received := frames(self.peer):
            for frame in received:
                if frame.name == "begin" and frame.remote_channel is None:
                    self.peer.feed(begin_with_handle_max(frame.channel + 100, frame.channel, self.handle_max))
                elif frame.name == "attach":
                    self.handles.setdefault(frame.channel, []).append(frame.handle)
                    handle = 500 + frame.handle
                    self.peer.feed(answer(frame, channel=frame.channel + 100, handle=handle))
                elif frame.name == "detach":
                    self.handles[frame.channel].remove(frame.handle)
                    closed = say("detach", channel=frame.channel + 100, handle=500 + frame.handle, closed=True)
                    self.peer.feed(closed)
            self.router.settle()

    def check(self, links):
        used = [handle for handles in self.handles.values() for handle in handles]
        assert len(used) == links
        assert max(used) <= self.handle_max
        assert all(len(handles) == len(set(handles)) for handles in self.handles.values())


def begin_with_handle_max(channel, remote, handle_max):
    numbers: dict[str, Any] = {"next_outgoing_id": 0, "incoming_window": MANY, "outgoing_window": MANY}
    return say("begin", channel=channel, remote_channel=remote, handle_max=handle_max, **numbers)


@pytest.mark.parametrize("handle_max", [0, 1, 3])
def test_links_beyond_handle_max_get_further_sessions(router, container, handle_max):
    limited_peer = HandleMaxContainer(router, container, handle_max)
    owners = []
    for number in range(10):
        owner = RecordingLinkOwner(router, f"balanced.{number}")
        owners.append(
            (
                owner,
                router.core.initiated_links.attach(
                    container.known, number % 2 == 0, InitiatedLinkOptions(address=f"a{number}"), owner
                ),
            )
        )
    limited_peer.answer()
    limited_peer.check(10)
    assert len(limited_peer.handles) == -(-10 // (handle_max + 1))
    assert all(owner.calls[-1] == ("answered", True) for owner, _ in owners)
    for _, reference in owners[:5]:
        router.core.initiated_links.detach(container.known, reference)
    limited_peer.answer()
    for _ in range(5):
        router.core.initiated_links.attach(
            container.known, True, InitiatedLinkOptions(address="more"), RecordingLinkOwner(router, "balanced.more")
        )
    limited_peer.answer()
    limited_peer.check(10)
    assert len(limited_peer.handles) == -(-10 // (handle_max + 1)), "handles are used again"


def test_link_cancelled_before_answer_to_begin_is_not_attached(router, container):
    request_link(router, container, "out")
    owner, reference, received = request_link(router, container, "out")
    assert received == []
    router.core.initiated_links.detach(container.known, reference)
    router.settle()
    limited_peer = HandleMaxContainer(router, container, 5)
    container.feed(begin_with_handle_max(100, 0, 5))
    limited_peer.answer()
    assert limited_peer.handles == {}
    assert owner.calls == []


@pytest.mark.parametrize("handle_max", [0, 2])
def test_routed_links_beyond_handle_max_get_further_sessions(router, container, handle_max):
    router.core.link_routes.replace((link_route("in"), link_route("out")))
    limited_peer = HandleMaxContainer(router, container, handle_max)
    client = router.connect()
    client.feed(start() + b"".join(producer(handle, "queue.a") for handle in range(7)))
    limited_peer.answer()
    limited_peer.check(7)
    assert len(of(frames(client), "attach")) == 7
    client.feed(b"".join(say("detach", handle=handle, closed=True) for handle in range(7)))
    limited_peer.answer()
    client.feed(b"".join(producer(handle, "queue.a") for handle in range(7)))
    limited_peer.answer()
    limited_peer.check(7)


def test_routed_link_lost_before_answer_to_begin_is_detached(router, container):
    router.core.link_routes.replace((link_route("in"), link_route("out")))
    client = router.connect()
    client.feed(start() + producer(0, "queue.a") + producer(1, "queue.a"))
    router.settle()
    assert len(of(frames(container), "attach")) == 1
    client.lose()
    router.settle()
    limited_peer = HandleMaxContainer(router, container, 5)
    limited_peer.handles[0] = [0]  # attach and detach of the first link have been sent already
    container.feed(begin_with_handle_max(100, 0, 5))
    limited_peer.answer()
    assert not [handle for handles in limited_peer.handles.values() for handle in handles]

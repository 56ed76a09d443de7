"""Error nets: an internal error ends one link or connection, and other clients of the worker are not affected."""

import gc
import socket
from types import SimpleNamespace
from typing import Any

import pytest

import sluice.router.testing.engine as engine
import sluice.workers.connections.role
import sluice.workers.links.requested_link
import sluice.workers.worker
from sluice.router.amqp.errors import FatalFault
from sluice.router.control import messages as control
from sluice.router.control.ops import BindingOp
from sluice.router.links.pause import RouterPause
from sluice.router.table.table import TableError
from sluice.router.testing.engine import consumers_by_address
from sluice.workers.frame_trace import Tracing
from sluice.workers.inprocess import CONFIRM_MS
from sluice.workers.links.record import LinkRecord
from sluice.workers.links.requested_link import RequestedLink
from sluice.workers.links.routed import RoutedEnd
from sluice.workers.testing import InjectedTransportError as LoopInjectedError
from sluice.workers.worker import WorkerRuntime
from tests.component.engine.host import LINKS, InProcessRouter
from tests.component.engine.routed_ends import ScriptedRouteContainer, link_route
from tests.component.workers.loops import LoopRouter
from tests.peer.frames import ACCEPTED, source, target
from tests.peer.talk import (
    consumer,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    settle,
    start,
    transfer,
)
from tests.peer.types import Symbol

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
"""


class NetInjectedError(Exception):
    """Error raised by a test."""


class UnaffectedClients:
    """Producer and consumer on connections of their own, which faults beside them must not affect."""

    def __init__(self, router, consuming=0, sending=0):
        self.router = router
        self.consuming, self.sending = router.connect(consuming), router.connect(sending)
        self.consuming.feed(start() + consumer(0, "balanced.others"))
        router.settle()
        self.sending.feed(start() + producer(0, "balanced.others"))
        router.settle()
        self.sent = 0
        frames(self.consuming)

    def check(self):
        """Check that a message and its outcome pass."""
        octets = message(b"%d" % self.sent)
        self.sending.feed(transfer(0, self.sent, octets))
        self.router.settle()
        assert messages(frames(self.consuming)) == [octets]
        self.consuming.feed(settle(self.sent, state=ACCEPTED))
        self.router.settle()
        assert of(frames(self.sending), "disposition")[-1].state == ACCEPTED
        self.sent += 1


def take_faults(router, worker=0):
    """Return the faults that the worker has reported since the last call."""
    found, router.workers[worker].faults = router.workers[worker].faults, []
    return found


def close_condition(peer):
    """Return the condition with which the router has closed the connection."""
    (close,) = of(frames(peer), "close")
    return str(close.error.value[0])


def test_link_beyond_worker_limit_ends_its_connection(routers):
    router = routers(1)
    bystanders = UnaffectedClients(router)
    peer = router.connect()
    peer.feed(start() + b"".join(producer(handle, None) for handle in range(LINKS)))
    router.settle()
    assert close_condition(peer) == "amqp:resource-limit-exceeded"
    bystanders.check()


@pytest.mark.parametrize("capability", ["qd.router", "qd.router-data"])
def test_router_link_beyond_worker_limit_ends_its_connection(routers, capability):
    router = routers(1, INTERIOR)
    bystanders = UnaffectedClients(router)
    filling = router.connect()
    filling.feed(start() + b"".join(producer(handle, None) for handle in range(LINKS - 2)))
    router.settle()
    peer = router.connect(listener="net")
    peer.feed(start() + router_link(0, capability))
    router.settle()
    assert close_condition(peer) == "amqp:resource-limit-exceeded"
    bystanders.check()


def router_link(handle, capability):
    kind = Symbol(capability)
    ends: dict[str, Any] = {"source": source(capabilities=kind), "target": target(capabilities=kind)}
    return say("attach", name=f"l{handle}", handle=handle, role=False, initial_delivery_count=0, **ends)


@pytest.mark.parametrize("where", ["unbinding", "behind it"])
@pytest.mark.parametrize("how", ["close", "bad frame", "socket lost", "end", "detach"])
def test_fault_in_link_loss_ends_its_connection(routers, monkeypatch, how, where):
    """The other links of the connection are released nevertheless."""
    router = routers(1)
    bystanders = UnaffectedClients(router)
    peer = router.connect()
    peer.feed(start() + consumer(0, "balanced.a") + consumer(1, "balanced.a") + producer(2, "balanced.b"))
    router.settle()
    name = "_unbind" if where == "unbinding" else "detached"
    real = getattr(LinkRecord, name)

    def raise_error(record):
        answer = real(record)
        if record.link.name == "c0":
            raise NetInjectedError
        return answer

    monkeypatch.setattr(LinkRecord, name, raise_error)
    if how == "close":
        peer.feed(say("close"))
    elif how == "bad frame":
        peer.feed(say("transfer", handle=9, delivery_id=0))
    elif how == "end":
        peer.feed(say("end"))
    elif how == "detach":
        peer.feed(say("detach", handle=0, closed=True))
    else:
        peer.lose()
    assert [type(fault) for fault in take_faults(router)] == [NetInjectedError]
    router.settle()
    if how == "detach":
        assert close_condition(peer) == "amqp:internal-error"
    assert not consumers_by_address(router.workers[0].table).get("M0balanced.a")
    bystanders.check()


# -- The event loop, on sockets


@pytest.fixture
def socket_router():
    made = LoopRouter()
    yield made
    for peer in made.peers:
        peer.lose()
    made.settle()
    made.check_empty()
    made.close()


def take_fault_types(router, worker=0):
    return [type(fault) for fault in take_faults(router, worker)]


@pytest.mark.parametrize("where", ["read", "write", "go on"])
def test_fault_in_transport_ends_its_connection(socket_router, where):
    bystanders = UnaffectedClients(socket_router)
    peer = socket_router.connect()
    peer.feed(start() + consumer(0, "balanced.a") + producer(1, "balanced.b"))
    socket_router.settle()
    frames(peer)
    client = peer.client
    if where == "go on":
        client.connection.pause(RouterPause.PAUSE_LOCAL)
    client.transport.fails = where
    peer.feed(say("begin", channel=1, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    client.connection.resume(RouterPause.PAUSE_LOCAL)
    socket_router.settle()
    assert take_fault_types(socket_router) == [LoopInjectedError]
    peer.take()
    assert peer.gone
    assert not consumers_by_address(socket_router.workers[0].table).get("M0balanced.a")
    bystanders.check()


def test_fault_in_frame_trace_ends_its_connection(socket_router, monkeypatch):
    bystanders = UnaffectedClients(socket_router)
    peer = socket_router.connect()
    peer.feed(start())
    socket_router.settle()
    frames(peer)

    def frame(tracing, client, received, octets, size):
        if not received:
            raise NetInjectedError

    monkeypatch.setattr(Tracing, "frame", frame)
    peer.client.connection.trace(True)
    peer.feed(say("begin", channel=1, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    socket_router.settle()
    assert take_fault_types(socket_router) == [NetInjectedError]
    peer.take()
    assert peer.gone
    bystanders.check()


def raise_error(*arguments):
    raise NetInjectedError


def test_fault_in_timer_ends_its_connection(socket_router):
    bystanders = UnaffectedClients(socket_router)
    peer = socket_router.connect()
    peer.feed(start())
    socket_router.settle()
    frames(peer)
    loop = socket_router.workers[0].loop
    loop.call_at(loop.scheduler.now, raise_error, peer.client.connection)
    socket_router.settle()
    assert take_fault_types(socket_router) == [NetInjectedError]
    assert close_condition(peer) == "amqp:internal-error"
    bystanders.check()


def test_fault_in_starvation_check_ends_its_connection(socket_router):
    class FailingStarvedLink:
        def __init__(self, link):
            self.link = link

        def check_starved(self):
            raise NetInjectedError

        def end_by(self, fault):
            self.link.end_by(fault)

    bystanders = UnaffectedClients(socket_router)
    peer = socket_router.connect()
    peer.feed(start() + producer(0, "balanced.a"))
    socket_router.settle()
    frames(peer)
    (record,) = peer.client.links.by_number.values()
    engine.add_starved_link(socket_router.workers[0].loop.scheduler, FailingStarvedLink(record.link))
    socket_router.settle()
    assert take_fault_types(socket_router) == [NetInjectedError]
    assert close_condition(peer) == "amqp:internal-error"
    bystanders.check()


@pytest.mark.parametrize("where", ["timer", "descriptor"])
def test_fault_outside_connections_ends_worker_with_log_line(socket_router, monkeypatch, where):
    worker = socket_router.workers[0]
    loop = worker.loop
    if where == "timer":
        loop.call_at(loop.scheduler.now, raise_error)
    else:
        reading, writing = socket.socketpair()
        writing.send(b"x")
        loop.add(reading.fileno(), raise_error)
    reports = []
    monkeypatch.setattr(worker, "report_fault", lambda what, fault: reports.append((what, fault)))
    monkeypatch.setattr(worker, "control", SimpleNamespace(poll=lambda: None, dirty=False, busy=False, more=False))
    monkeypatch.setattr(gc, "set_threshold", lambda *thresholds: None)
    monkeypatch.setattr(sluice.workers.worker, "set_heap_limits", lambda: None)
    assert WorkerRuntime.run(worker) == 1
    ((what, fault),) = reports
    assert what == "Worker 0 ends because of an internal error outside any connection"
    assert type(fault) is NetInjectedError
    if where == "descriptor":
        loop.remove(reading.fileno())
        reading.close()
        writing.close()


# -- Messages of the supervisor


def test_fault_in_supervisor_message_ends_named_connection(routers, monkeypatch):
    router = routers(1)
    bystanders = UnaffectedClients(router)
    peer = router.connect()
    peer.feed(start())
    router.settle()
    frames(peer)
    with monkeypatch.context() as patched:
        patched.setattr(RequestedLink, "attached", raise_error)
        peer.feed(consumer(0, "balanced.a"))
        router.settle_with_faults()
    assert take_fault_types(router) == [NetInjectedError]
    router.settle()
    assert close_condition(peer) == "amqp:internal-error"
    bystanders.check()


def test_fault_in_message_without_connection_ends_worker(routers):
    router = routers(1)
    with pytest.raises(FatalFault, match="message taken of the supervisor: KeyError"):
        router.workers[0].on_message(control.Taken([], [(77, 1, 1)]), None)


def test_malformed_router_message_is_dropped(routers, monkeypatch):
    router = routers(1)
    bystanders = UnaffectedClients(router)
    worker = router.workers[0]
    worker.on_message(control.Send("M0balanced.others", 0), b"\x00\x53\x72\xff")
    assert take_fault_types(router) == [ValueError]
    router.pass_time(CONFIRM_MS)
    assert router.core.workers[0].unconfirmed == -4, "it counts as forwarded"
    bystanders.check()


def test_invalid_table_change_leads_to_snapshot(routers):
    router = routers(2)
    bystanders = UnaffectedClients(router, 0, 1)
    for worker in router.workers:
        wrong = BindingOp(exchange=99, id=1, key="a", next_hop=1, counters=2)
        worker.on_delta(worker.table.epoch + 1, [wrong])
    assert take_fault_types(router, 0) == take_fault_types(router, 1) == [TableError]
    router.settle()
    assert all(worker.live for worker in router.workers)
    bystanders.check()


def test_consumer_is_chosen_again_after_snapshot(routers):
    """Deliveries that were on their way to the consumer when the snapshot arrived do not count against it."""
    router = routers(2)
    near, remote, sending = router.connect(0), router.connect(1), router.connect(0)
    for peer in (near, remote):
        peer.feed(start() + consumer(0, "balanced.a"))
        router.settle()
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    for number in range(10):
        sending.feed(transfer(0, number, message(b"x"), settled=True))
    worker = router.workers[0]
    router.core.receive(router.core.workers[0], control.Resync())
    worker.live = False
    router.decide()
    router.settle()
    assert worker.live
    before = len(messages(frames(remote)))
    for number in range(10, 30):
        sending.feed(transfer(0, number, message(b"x"), settled=True))
        router.settle()
    assert len(messages(frames(remote))) > 5, before


# -- Records of other workers


@pytest.fixture
def two_workers(routers, monkeypatch):
    """Router with two workers, whose links fail on request."""
    monkeypatch.setattr(sluice.workers.links.requested_link, "ProducerLink", engine.FaultyProducerLink)
    monkeypatch.setattr(sluice.workers.connections.role, "ConsumerLink", engine.FaultyConsumerLink)
    return routers(2)


def link_of(peer, name):
    (found,) = [record.link for record in peer.client.links.by_number.values() if record.link.name == name]
    return found


@pytest.mark.parametrize("settled", [None, True])
@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize("where", ["offer", "offered"])
def test_fault_in_delivery_ends_its_consumer(two_workers, where, size, settled):
    bystanders = UnaffectedClients(two_workers, 0, 1)
    consuming, sending = two_workers.connect(0), two_workers.connect(1)
    consuming.feed(start() + consumer(0, "balanced.a"))
    two_workers.settle()
    sending.feed(start() + producer(0, "balanced.a"))
    two_workers.settle()
    frames(sending)
    link_of(consuming, "c0").fails = where
    sending.feed(transfer(0, 0, message(bytes(size)), settled=settled))
    two_workers.settle_with_faults()
    assert take_fault_types(two_workers) == [engine.InjectedError]
    assert close_condition(consuming) == "amqp:internal-error"
    outcomes = of(frames(sending), "disposition")
    assert [frame.settled for frame in outcomes if frame.settled] == ([] if settled else [True])
    bystanders.check()


@pytest.mark.parametrize("faulty_one", [0, 1, 2])
@pytest.mark.parametrize("where", ["offer", "offered"])
@pytest.mark.parametrize("size", [10, 300_000])
def test_multicast_with_faulty_consumer_reaches_other_consumers(two_workers, where, faulty_one, size):
    bystanders = UnaffectedClients(two_workers, 0, 1)
    consuming = [two_workers.connect(0) for _ in range(3)]
    sending = two_workers.connect(1)
    for peer in consuming:
        peer.feed(start() + consumer(0, "multicast.a"))
        two_workers.settle()
    sending.feed(start() + producer(0, "multicast.a"))
    two_workers.settle()
    frames(sending)
    link_of(consuming[faulty_one], "c0").fails = where
    octets = message(bytes(size))
    sending.feed(transfer(0, 0, octets))
    two_workers.settle_with_faults()
    assert take_fault_types(two_workers) == [engine.InjectedError]
    assert close_condition(consuming.pop(faulty_one)) == "amqp:internal-error"
    for peer in consuming:
        received_frames = frames(peer)
        assert messages(received_frames) == [octets]
        peer.feed(settle(of(received_frames, "transfer")[0].delivery_id, state=ACCEPTED))
    two_workers.settle()
    assert of(frames(sending), "disposition")[-1].state == ACCEPTED
    bystanders.check()


def test_fault_in_streamed_message_ends_its_consumer(two_workers):
    bystanders = UnaffectedClients(two_workers, 0, 1)
    consuming, sending = two_workers.connect(0), two_workers.connect(1)
    consuming.feed(start() + consumer(0, "balanced.a"))
    two_workers.settle()
    sending.feed(start() + producer(0, "balanced.a"))
    two_workers.settle()
    octets = transfer(0, 0, message(bytes(400_000)))
    sending.feed(octets[:200_000])
    two_workers.settle()
    link_of(consuming, "c0").fails = "more"
    sending.feed(octets[200_000:])
    two_workers.settle_with_faults()
    assert take_fault_types(two_workers) == [engine.InjectedError]
    frames(consuming)
    assert consuming.gone
    assert of(frames(sending), "disposition")[-1].settled
    bystanders.check()


def test_fault_in_producer_disposition_ends_its_consumer(two_workers):
    bystanders = UnaffectedClients(two_workers, 0, 1)
    consuming, sending = two_workers.connect(0), two_workers.connect(1)
    consuming.feed(start() + consumer(0, "balanced.a"))
    two_workers.settle()
    sending.feed(start() + producer(0, "balanced.a") + transfer(0, 0, message(b"x")))
    two_workers.settle()
    link_of(consuming, "c0").fails = "update"
    sending.feed(settle(0, role=False, state=ACCEPTED))
    two_workers.settle_with_faults()
    assert take_fault_types(two_workers) == [engine.InjectedError]
    assert close_condition(consuming) == "amqp:internal-error"
    bystanders.check()


@pytest.mark.parametrize("faulty_one", [0, 1, 2])
def test_fault_in_outcome_ends_its_producer(two_workers, faulty_one):
    """Outcomes of three producers arrive in one record. The other two producers receive theirs."""
    bystanders = UnaffectedClients(two_workers, 0, 1)
    consuming = two_workers.connect(0)
    consuming.feed(start() + consumer(0, "balanced.a"))
    two_workers.settle()
    sending = [two_workers.connect(1) for _ in range(3)]
    for peer in sending:
        peer.feed(start() + producer(0, "balanced.a"))
        two_workers.settle()
        peer.feed(transfer(0, 0, message(b"x")))
        two_workers.settle()
        frames(peer)
    link_of(sending[faulty_one], "p0").fails = True
    consuming.feed(settle(0, 2, state=ACCEPTED))
    two_workers.settle_with_faults()
    assert take_fault_types(two_workers, 1) == [engine.InjectedError]
    assert close_condition(sending.pop(faulty_one)) == "amqp:internal-error"
    for peer in sending:
        assert [frame.state for frame in of(frames(peer), "disposition")] == [ACCEPTED]
    bystanders.check()


@pytest.mark.parametrize("consumer_at", [0, 1])
def test_fault_in_run_of_outcomes_ends_one_connection(two_workers, consumer_at):
    """On one worker the fault ends the consumer that sent the disposition; across workers it ends the producer. The
    other producer receives its outcomes."""
    bystanders = UnaffectedClients(two_workers, 0, 1)
    consuming = two_workers.connect(consumer_at)
    consuming.feed(start() + consumer(0, "balanced.a"))
    two_workers.settle()
    sending = [two_workers.connect(1) for _ in range(2)]
    for peer in sending:
        peer.feed(start() + producer(0, "balanced.a"))
        two_workers.settle()
        peer.feed(b"".join(transfer(0, number, message(b"x")) for number in range(10)))
        two_workers.settle()
        frames(peer)
    link_of(sending[0], "p0").run_fails = True
    consuming.feed(settle(0, 19, state=ACCEPTED))
    two_workers.settle_with_faults()
    assert take_fault_types(two_workers, 1) == [engine.InjectedError]
    apart = consumer_at == 0
    assert close_condition(sending[0] if apart else consuming) == "amqp:internal-error"
    (report,) = of(frames(sending[1]), "disposition")
    assert (report.first, report.last) == (0, 9)
    assert (report.state == ACCEPTED) == apart
    bystanders.check()


def test_fault_outside_record_net_ends_worker(monkeypatch):
    monkeypatch.setattr(sluice.workers.connections.role, "ConsumerLink", engine.FaultyConsumerLink)
    two_workers = InProcessRouter(2)
    consuming, sending = two_workers.connect(0), two_workers.connect(1)
    consuming.feed(start() + consumer(0, "balanced.a"))
    two_workers.settle()
    sending.feed(start() + producer(0, "balanced.a"))
    two_workers.settle()
    link = link_of(consuming, "c0")
    link.fails = "offer"
    monkeypatch.setattr(two_workers.workers[0], "report_fault", raise_error)  # an error net that fails
    sending.feed(transfer(0, 0, message(b"x")))
    with pytest.raises(FatalFault, match="a record .* of worker 1 could not be taken"):
        two_workers.wake(two_workers.workers[0])
    two_workers.abandon()


@pytest.mark.parametrize("workers_number", [1, 2])
@pytest.mark.parametrize("sender", ["client", "container"])
def test_fault_in_routed_link_ends_the_pair(routers, monkeypatch, workers_number, sender):
    router = routers(workers_number)
    router.core.link_routes.replace((link_route("in"), link_route("out")))
    container = ScriptedRouteContainer(router, workers_number - 1)
    client = router.connect(0)
    client.feed(start())
    router.settle()
    frames(client)
    real = RoutedEnd.on_event

    def on_event(end, what, body):
        if end.inbound == (sender == "client"):
            raise NetInjectedError
        real(end, what, body)

    with monkeypatch.context() as patched:
        patched.setattr(RoutedEnd, "on_event", on_event)
        client.feed(producer(0, "queue.a"))
        router.settle_with_faults()
        if sender == "client":
            received = frames(container.peer)
            (opened,), (attach,) = of(received, "begin"), of(received, "attach")
            numbers: dict[str, Any] = {"next_outgoing_id": 0, "incoming_window": 1000, "outgoing_window": 1000}
            ends: dict[str, Any] = {"source": attach.source, "target": attach.target}
            container.peer.feed(say("begin", channel=7, remote_channel=opened.channel, **numbers))
            name = attach.fields["name"]
            container.peer.feed(say("attach", channel=7, name=name, handle=40, role=True, **ends))
            router.settle_with_faults()
    assert take_fault_types(router, 0 if sender == "client" else workers_number - 1) == [NetInjectedError]
    router.settle()
    (detach,) = of(frames(client), "detach")
    assert detach.error is not None
    client.feed(say("begin", channel=1, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    router.settle()
    assert of(frames(client), "begin")
    assert not of(frames(container.peer), "close")

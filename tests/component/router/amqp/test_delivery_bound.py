"""Unsettled deliveries count towards the memory bounds (docs/internals/credit.md, "Octets").

A producer is slowed down at the bound of its connection. At the bound of the process, receivers that do not settle
lose their connection.
"""

import pytest

import sluice.router.testing.engine as engine
from tests.component.engine.actor import ActorReceiver, ActorSender, AmqpActor, run
from tests.component.engine.flows import MEGABYTE, check_served, pass_time, send
from tests.component.engine.host import InProcessRouter, configuration

DELIVERY = 512  # octets counted for a delivery with one copy
LEAST = 1 << 20  # octets that a connection may always hold, regardless of other connections
CAPACITY = 250
EXCEEDED = "amqp:resource-limit-exceeded"


def receiver_without_settling(actor: AmqpActor, address: str, credit: int = 1_000_000) -> ActorReceiver:
    """Return a receiver that settles nothing."""
    link = actor.session(1_000_000).receiver(address, credit)
    link.withholds_settlement = True
    return link


def in_flight() -> int:
    """Return the octets counted for the live deliveries of this process."""
    incoming, outgoing = engine.live_objects()[:2]
    return (incoming + outgoing) * DELIVERY // 2


class BoundedPair:
    """Bystanders: a producer and its consumer."""

    def __init__(self, router: InProcessRouter) -> None:
        self.producer, self.consumer = AmqpActor(router, "p"), AmqpActor(router, "g")
        self.actors = [self.producer, self.consumer]
        self.receiver = self.consumer.session().receiver("balanced.good")
        run(router, self.actors)
        self.sender = self.producer.session().sender("balanced.good")
        run(router, self.actors)

    def send(self, messages: int = 100) -> None:
        send(self.sender, [10] * messages, first=self.sender.count)

    def check(self) -> None:
        check_served(self.sender, [self.receiver])
        assert not any(actor.peer.gone for actor in self.actors)


def many_senders(actor: AmqpActor, address: str, count: int) -> list[ActorSender]:
    """Return `count` senders, spread over ten sessions."""
    sessions = [actor.session() for _ in range(10)]
    return [sessions[number % 10].sender(address) for number in range(count)]


def test_producer_at_connection_bound_is_slowed(routers):
    """Receivers settle late: no link ends, and everything arrives."""
    router = routers(text=configuration(listener="maxBufferedMegabytes: 1"))
    pair = BoundedPair(router)
    worker, gateway = AmqpActor(router, "worker"), AmqpActor(router, "gateway")
    receiver = receiver_without_settling(worker, "balanced.jobs")
    run(router, [worker])
    senders = many_senders(gateway, "balanced.jobs", 40)
    run(router, [gateway])
    for sender in senders:
        send(sender, [10] * CAPACITY)
    everybody = [worker, gateway, *pair.actors]
    pair.send()
    run(router, everybody, rounds=2000)
    assert MEGABYTE * 9 // 10 <= in_flight() <= MEGABYTE * 5 // 4 + LEAST // 8
    assert not all(sender.idle for sender in senders)
    pass_time(router, everybody)
    pair.check()
    assert [sender.ended for sender in senders] == [None] * len(senders)
    receiver.withholds_settlement = False
    run(router, everybody, rounds=5000)
    assert len(receiver.got) == 40 * CAPACITY
    assert all(sender.idle for sender in senders)


@pytest.mark.parametrize("workers", [1, 2])
def test_receiver_that_never_settles_is_closed_at_process_bound(routers, workers):
    """Its producers detach and attach again, so their credit does not bound the receiver's deliveries."""
    limit = 4 * MEGABYTE
    router = routers(workers=workers, text=configuration(), content_limit=limit)
    pair = BoundedPair(router)
    hoarder, gateway = AmqpActor(router, "hoarder"), AmqpActor(router, "gateway", workers - 1)
    hoarder.may_close = True
    receiver = receiver_without_settling(hoarder, "balanced.hoard")
    run(router, [hoarder, gateway])
    session = gateway.session()
    most = 0
    for _ in range(100):
        sender = session.sender("balanced.hoard")
        run(router, [gateway])
        send(sender, [10] * CAPACITY)
        pair.send(10)
        run(router, [hoarder, gateway, *pair.actors])
        sender.detach()
        run(router, [hoarder, gateway])
        most = max(most, in_flight())
        if hoarder.peer.gone:
            break
        router.pass_time(100)
    assert hoarder.closed is not None
    assert hoarder.closed.error.value[0] == EXCEEDED
    assert most <= limit * 3 // 2  # sum over both workers, which share a process here
    assert len(receiver.got) * DELIVERY // 2 > limit // (2 * workers)  # not before the memory is needed
    run(router, [gateway, *pair.actors])
    pair.check()
    assert not gateway.peer.gone
    assert in_flight() < DELIVERY * CAPACITY
    assert router.region.worker_counters(0)["given_up"] == 1


def test_receiver_with_few_deliveries_survives_full_process(routers):
    """A receiver with few unsettled deliveries stays when messages fill the process."""
    limit = 4 * MEGABYTE
    router = routers(text=configuration(listener="maxSessionFrames: 20"), content_limit=limit)
    pair = BoundedPair(router)
    worker, filler = AmqpActor(router, "worker"), AmqpActor(router, "filler")
    receiver = receiver_without_settling(worker, "balanced.jobs")
    full = worker.session(2).receiver("balanced.full")
    full.session.window_stays_shut = True
    run(router, [worker, filler])
    jobs, filling = filler.session().sender("balanced.jobs"), filler.session().sender("balanced.full")
    run(router, [worker, filler])
    send(jobs, [10] * 200)
    run(router, [worker, filler])
    send(filling, [60_000] * 100)
    pair.send()
    everybody = [worker, filler, *pair.actors]
    run(router, everybody, rounds=2000)
    pass_time(router, everybody)
    pair.check()
    assert not worker.peer.gone
    assert len(receiver.got) == 200
    assert jobs.ended is None


@pytest.mark.parametrize("workers", [1, 2])
def test_routed_receiver_that_never_settles_is_closed_but_not_broker(routers, workers):
    """Only the receiver's credit bounds the broker's deliveries. The broker's other clients continue. If the broker's
    worker is another one, and is full first, it closes the broker's window for that receiver."""
    limit = 4 * MEGABYTE
    router = routers(workers=workers, text=configuration(), content_limit=limit)
    broker = AmqpActor(router, "broker", workers - 1, "broker")
    run(router, [broker])
    hoarder, client = AmqpActor(router, "hoarder"), AmqpActor(router, "client")
    hoarder.may_close = True
    receiver_without_settling(hoarder, "routed.hoard")
    run(router, [hoarder, broker])
    (filling,) = broker.senders
    receiver = client.session().receiver("routed.good")
    run(router, [client, broker])
    served = next(link for link in broker.senders if link is not filling)
    most = 0
    for _ in range(100):
        send(filling, [10] * CAPACITY)
        send(served, [10] * 10, first=served.count)
        run(router, [hoarder, client, broker], rounds=2000)
        most = max(most, in_flight())
        if hoarder.peer.gone:
            break
        router.pass_time(100)
    assert most <= limit * 3 // 2
    run(router, [client, broker])
    check_served(served, [receiver])
    assert not broker.peer.gone
    if workers == 1:
        assert hoarder.closed is not None
        assert hoarder.closed.error.value[0] == EXCEEDED
        assert in_flight() < DELIVERY * CAPACITY


def test_remote_receiver_that_never_settles_is_closed_at_its_router(networks):
    """The link between the routers, and its other users, continue."""
    network = networks("AB", 1)
    network.join("A", "B", workers=(0, 0))
    network.converge()
    near, far = network["A"], network["B"]
    hoarder, good = AmqpActor(far, "hoarder"), AmqpActor(far, "good")
    hoarder.may_close = True
    receiver_without_settling(hoarder, "balanced.hoard")
    receiver = good.session().receiver("balanced.good")
    run(far, [hoarder, good])
    for address in ("balanced.hoard", "balanced.good"):
        network.known(f"M0{address}", "B")
    far.workers[0].loop.scheduler.memory.content_limit = 4 * MEGABYTE
    gateway, client = AmqpActor(near, "gateway"), AmqpActor(near, "client")
    session, served = gateway.session(), client.session().sender("balanced.good")
    run(near, [gateway, client])

    def settle_routers(rounds: int = 10) -> None:
        for _ in range(rounds):
            run(near, [gateway, client])
            network.settle()
            run(far, [hoarder, good])
            network.settle()

    for _ in range(100):
        sender = session.sender("balanced.hoard")
        run(near, [gateway])
        send(sender, [10] * CAPACITY)
        send(served, [10] * 10, first=served.count)
        settle_routers(4)
        sender.detach()
        settle_routers(1)
        if hoarder.peer.gone:
            break
        far.pass_time(100)
    assert hoarder.closed is not None
    assert hoarder.closed.error.value[0] == EXCEEDED
    settle_routers()
    check_served(served, [receiver])
    assert not gateway.peer.gone
    assert network.joints[0].ends[0].blocked is False

"""Laws of flow control (docs/internals/credit.md).

There are no circular waits, a slow consumer costs only its own producers, turns are measured in octets, and no credit
is lost. All actors obey the protocol; scenarios are drawn from a seed. For the bounds of memory see test_memory_laws.
"""

from collections import defaultdict
from itertools import chain
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import sluice.router.testing.engine as engine
import tests.component.engine.actor as acting
from tests.component.engine.actor import ActorReceiver, ActorSender, AmqpActor, run, step
from tests.component.engine.flows import blocked_consumer, check_served, one_router, pass_time, send
from tests.component.engine.host import InProcessRouter, configuration

SEEDS = st.integers(0, 1 << 32)
QUANTUM = 32768  # octets of a turn
CAPACITY = 250  # credit of a producer
BIG = (1 << 31, (1 << 32) - 1)
SIZES = (10, 10, 1000, 15000, 40000, 140_000, 300_000)


# -- no circular waits ------------------------------------------------------------------------------------------------


class FlowScenario:
    """Clients, a broker, links and messages, drawn from a seed."""

    def __init__(self, router: InProcessRouter, random: Random) -> None:
        self.router = router
        self.random = random
        workers = len(router.workers)
        self.broker = AmqpActor(router, "broker", random.randrange(workers), "broker")
        self.broker.window = random.choice((1, 3, 10, 2048))
        self.broker.pattern = random.choice((1, 5, 1000))
        self.clients = [AmqpActor(router, f"k{n}", random.randrange(workers)) for n in range(random.randint(1, 3))]
        self.actors = [self.broker, *self.clients]
        for client in self.clients:
            for _ in range(random.randint(1, 2)):
                client.session(random.choice((1, 2, 3, 10, 2048)))
        self.to: dict[str, list[ActorSender]] = defaultdict(list)
        self.by: dict[str, list[ActorReceiver]] = defaultdict(list)
        self.broker.attached = self.attached
        for address in random.sample(("balanced.a", "balanced.b", "multicast.c", "routed.d", "closest.e"), 3):
            self.add(address)
        run(router, self.actors)
        for sender in chain(*self.to.values()):
            sizes = [random.choice(SIZES) for _ in range(random.randint(1, 5))]
            send(sender, sizes, settled=random.random() < 0.2)

    def session(self):
        return self.random.choice(list(self.random.choice(self.clients).sessions.values()))

    def attached(self, link: ActorReceiver) -> None:
        """Record a link that the router attaches to the broker as receiver."""
        self.by["routed.d"].append(link)

    def add(self, address: str) -> None:
        random = self.random
        for _ in range(random.randint(1, 2)):
            sender = self.session().sender(address)
            sender.frames_at_once = random.choice((0, 1, 3))
            sender.empty_frames = random.random() < 0.3
            self.to[address].append(sender)
        for _ in range(0 if address == "routed.d" else random.randint(1, 2)):
            receiver = self.session().receiver(address, random.choice((1, 2, 20, *BIG)))
            receiver.withholds_settlement = random.random() < 0.3
            receiver.withholds_credit = random.random() < 0.3
            self.by[address].append(receiver)

    def misbehave(self, steps: int) -> None:
        """Let actors stop, drain and split their output at random, all within the protocol."""
        random = self.random
        for _ in range(steps):
            actor = random.choice(self.actors)
            what = random.randrange(8)
            if what == 0:
                actor.stop(not actor.stopped)
            elif what == 1:
                session = random.choice(list(actor.sessions.values()) or [None])
                if session is not None:
                    session.window_stays_shut = not session.window_stays_shut
            elif what == 2:
                for link in actor.receivers:
                    link.withholds_credit = random.random() < 0.5
            elif what == 3:
                for link in actor.receivers:
                    if link.attached and not link.draining:
                        link.grant(random.choice((0, 1, 30)), drain=True)
            if not actor.stopped:
                actor.read_frames()
                actor.act(random.randint(1, 30))
                actor.feed(random.choice((1, 100, 20_000, 100_000, None)))
                self.router.settle()

    def behave(self) -> None:
        for actor in self.actors:
            actor.stop(False)
            for session in actor.sessions.values():
                session.window_stays_shut = False
            for link in actor.receivers:
                link.withholds_settlement = link.withholds_credit = False
        run(self.router, self.actors, rounds=3000)


@pytest.mark.parametrize("workers", [1, 2])
@given(seed=SEEDS)
@settings(max_examples=30, deadline=None, derandomize=True, phases=[Phase.generate])
def test_random_scenario_comes_to_rest(workers: int, seed: int) -> None:
    random = Random(seed)
    frames = random.choice(("", "maxSessionFrames: 2", "maxSessionFrames: 5", "maxSessionFrames: 10"))
    before = engine.live_objects()
    with one_router(frames, workers) as router:
        scenario = FlowScenario(router, random)
        scenario.misbehave(40)
        scenario.behave()
        for address, senders in scenario.to.items():
            for sender in senders:
                check_served(sender, scenario.by[address], everyone=address.startswith("multicast"))
                if address != "routed.d":
                    assert sender.credit == CAPACITY, sender.name
        assert engine.live_objects() == before


def test_window_shut_for_lack_of_credit_opens_with_new_credit(routers):
    router = routers(text=configuration(listener="maxSessionFrames: 10; linkCapacity: 250"))
    producer, bad, good = (AmqpActor(router, name) for name in ("p", "b", "g"))
    session = producer.session()
    blocked_consumer(bad, "balanced.deaf")
    run(router, [bad])
    held, later = session.sender("balanced.deaf"), session.sender("balanced.later")
    send(held, [600_000])
    run(router, [producer, bad, good])
    assert session.remote_window == 0
    assert later.credit == 0
    receiver = good.session().receiver("balanced.later", 300)
    receiver.withholds_settlement = True
    send(later, [10] * (CAPACITY + 1))
    run(router, [producer, bad, good])
    # The consumer's whole credit is used. When credit returns, the window must open again.
    assert len(receiver.got) == CAPACITY
    receiver.withholds_settlement = False
    run(router, [producer, bad, good])
    check_served(later, [receiver])
    assert later.credit == CAPACITY


def test_window_follows_frame_length(routers):
    """Default window: short messages are limited only by credit, long ones by octets. inter-router-protocol.md 3.3."""
    router = routers(text=configuration(listener="linkCapacity: 1000"))
    producer, consumer = AmqpActor(router, "p"), AmqpActor(router, "c")
    session = producer.session()
    sender, receiver = session.sender("balanced.x"), consumer.session(2048).receiver("balanced.x", 1000)
    run(router, [producer, consumer])
    for sizes, least, most in (([10] * 1000, 1025, 2048), ([15000] * 3000, 257, 600)):
        receiver.got.clear()
        send(sender, sizes)
        run(router, [producer, consumer])
        assert len(receiver.got) == len(sizes)
        assert least <= session.remote_window <= most


@pytest.mark.parametrize("window", [1, 3, 10])
def test_fast_reader_of_stream_does_not_wait_for_slow_reader(routers, window):
    router = routers(text=configuration(listener="maxSessionFrames: 10"))
    producer, bad, good = (AmqpActor(router, name) for name in ("p", "b", "g"))
    blocked_consumer(bad, "multicast.x")
    fast = good.session(window).receiver("multicast.x")
    run(router, [bad, good])
    sender = producer.session().sender("multicast.x")
    send(sender, [1_600_000])
    run(router, [producer, bad, good])
    assert fast.got == sender.sent


@pytest.mark.parametrize("window", [1, 3, 10])
def test_empty_frames_do_not_stall_waiting_reader(routers, window):
    router = routers(text=configuration(listener="maxSessionFrames: 30"))
    producer, bad, good = (AmqpActor(router, name) for name in ("p", "b", "g"))
    blocked_consumer(bad, "balanced.x")
    run(router, [bad])
    sender = producer.session().sender("balanced.x")
    send(sender, [300_000])
    run(router, [producer, bad])
    # its credit is used up by what the first consumer does not read; the next message goes to another consumer
    assert len(sender.sent) == 1
    receiver = good.session(window).receiver("balanced.x")
    run(router, [good])
    sender.empty_frames = True
    send(sender, [600_000], first=1)
    run(router, [producer, bad, good])
    assert receiver.got == sender.sent[1:]


def test_stream_of_detached_consumer_is_read_to_its_end(routers, monkeypatch):
    monkeypatch.setattr(acting, "PART", 300_000)
    router = routers(text=configuration(listener="maxSessionFrames: 4; maxFrameSize: 400000"))
    producer, bad = AmqpActor(router, "p"), AmqpActor(router, "b")
    consumer = blocked_consumer(bad, "balanced.x")
    run(router, [bad])
    sender = producer.session().sender("balanced.x")
    send(sender, [6_000_000], settled=True)
    run(router, [producer, bad])
    assert not sender.idle
    consumer.detach()
    run(router, [producer, bad])
    assert sender.idle


# -- isolation of slow consumers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
@given(seed=SEEDS)
@settings(max_examples=30, deadline=None, derandomize=True, phases=[Phase.generate])
def test_slow_consumer_delays_only_its_own_producers(workers: int, seed: int) -> None:
    """A consumer forever grants no credit, keeps its window shut or is stopped. With a bound of 1 MiB its producers
    exhaust the bound, and the other links are served once the router has dropped the stalled messages."""
    random = Random(seed)
    frames = random.choice(("", "maxSessionFrames: 2", "maxSessionFrames: 10", "maxBufferedMegabytes: 1"))
    with one_router(frames, workers) as router:
        broker = AmqpActor(router, "broker", random.randrange(workers), "broker")
        clients = [AmqpActor(router, f"k{n}", random.randrange(workers)) for n in range(3)]
        bad = AmqpActor(router, "bad", random.randrange(workers))
        actors = [broker, bad, *clients]
        at_broker: list[ActorReceiver] = []
        held_at_broker = random.random() < 0.5

        def attached(link: ActorReceiver) -> None:
            # Links are recognised by the router's link names, which end with the client's link name.
            if held_at_broker and link.name.startswith("bad"):
                link.session.window_stays_shut = True
            else:
                at_broker.append(link)

        broker.attached = attached
        broker.window = random.choice((1, 5, 2048))
        mode = random.choice(("credit", "window", "stopped"))
        badly = bad.session(random.choice((1, 3))).receiver("balanced.bad")
        if held_at_broker:
            routed = bad.session().sender("routed.bad")
            send(routed, [300_000] * 5)
        good = clients[0].session(random.choice((1, 5, 2048))).receiver("balanced.good", random.choice((1, 30)))
        run(router, actors)
        if mode == "credit":
            badly.withholds_credit = True
            badly.grant(0)
        elif mode == "window":
            badly.session.window_stays_shut = True
        victims, senders, routed_senders = [], [], []
        for client in clients[1:]:
            session = client.session(random.choice((1, 2048)))
            for _ in range(random.randint(1, 2)):
                victims.append(session.sender("balanced.bad"))
                senders.append(session.sender("balanced.good"))
            routed_senders.append(session.sender("routed.good"))
        run(router, actors)
        bad.stop(mode == "stopped")
        for link in victims:
            send(link, [random.choice((10, 140_000, 600_000)) for _ in range(8)])
        for link in senders + routed_senders:
            link.frames_at_once = random.choice((0, 1))
            send(link, [random.choice(SIZES) for _ in range(6)])
        run(router, actors, frames=random.choice((3, 64)), rounds=2000)
        if "Buffered" in frames:
            pass_time(router, actors, 30)
        for link in senders:
            assert link.ended is None
            check_served(link, [good])
        for link in routed_senders:
            check_served(link, [one for one in at_broker if one.name.split("@")[0] == link.name])
        bad.stop(False)


def test_link_without_deliveries_keeps_its_credit_at_bound(routers):
    router = routers(text=configuration(listener="maxBufferedMegabytes: 1"))
    producer, bad, good = (AmqpActor(router, name) for name in ("p", "b", "g"))
    blocked_consumer(bad, "balanced.x")
    receiver = good.session(100).receiver("balanced.y")
    run(router, [bad, good])
    session = producer.session()
    filling, served = session.sender("balanced.x"), session.sender("balanced.y")
    run(router, [producer])
    receiver.session.window_stays_shut = True
    send(served, [1000] * 240)
    send(filling, [100_000] * 30)
    run(router, [producer, bad, good])
    assert filling.credit <= CAPACITY - 8
    receiver.session.window_stays_shut = False
    send(served, [10] * 300, first=240)
    run(router, [producer, bad, good])
    assert len(receiver.got) == 540


def connected_routers(networks, workers: int):
    """Return two connected routers (network, near, far): producers attach at the first, consumers at the second."""
    network = networks("AB", workers)
    network.join("A", "B", workers=(workers - 1, 0))
    network.converge()
    return network, network["A"], network["B"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("settled", [False, True])
def test_slow_remote_consumer_delays_only_its_own_producers(networks, workers, settled):
    network, near, far = connected_routers(networks, workers)
    producer, bad, good = AmqpActor(near, "p"), AmqpActor(far, "b", workers - 1), AmqpActor(far, "g")
    blocked_consumer(bad, "closest.bad")
    receiver = good.session(10).receiver("closest.good", 20)
    run(far, [bad, good])
    network.known("M0closest.bad", "B")
    network.known("M0closest.good", "B")
    session = producer.session()
    victim, served = session.sender("closest.bad"), session.sender("closest.good")
    run(near, [producer])
    send(victim, [10, 300_000, 100_000, 140_000] * 150, settled=settled)
    send(served, [10, 300_000, 1000] * 5)
    for _ in range(300):
        moved = step(near, [producer])
        network.settle()
        if not (step(far, [good, bad]) or moved):
            break
        network.settle()
    # streams use separate links between the routers, so order is not kept
    check_served(served, [receiver], ordered=False)


# -- fair turns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 5, 10])
def test_links_and_sessions_have_turns_by_octets(routers, window):
    """Two sessions of one connection, each with three streams, and a link with small messages."""
    router = routers(text=configuration())
    producer, consumer = AmqpActor(router, "p"), AmqpActor(router, "c")
    sessions = [consumer.session(window) for _ in range(2)]
    streams = [session.receiver(f"balanced.{n}{session.channel}") for session in sessions for n in range(3)]
    small = sessions[0].receiver("balanced.small")
    run(router, [consumer])
    for session in sessions:
        session.window_stays_shut = True
    senders = [producer.session().sender(f"balanced.{n}{c}") for c in range(2) for n in range(3)]
    little = producer.session().sender("balanced.small")
    run(router, [producer])
    for sender in senders:
        send(sender, [400_000] * 4)
    send(little, [100] * 40)
    run(router, [producer])
    consumer.read_frames()
    before = {link: link.octets for link in streams}
    for session in sessions:
        session.window_stays_shut = False
    while all(len(link.got) < 3 for link in streams):
        assert step(router, [producer, consumer])
        for session in sessions:
            octets = [link.octets - before[link] for link in session.receivers if link is not small]
            assert max(octets) - min(octets) <= 3 * QUANTUM, octets
        if max(link.octets for link in streams) > 4 * window * QUANTUM + 40 * QUANTUM:
            assert len(small.got) == 40  # the small messages need at most one turn each
    each = [sum(link.octets for link in session.receivers) for session in sessions]
    assert abs(each[0] - each[1]) <= 10 * max(window, 4) * QUANTUM, each
    run(router, [producer, consumer])
    assert all(sender.idle for sender in [*senders, little])


# -- credit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None, derandomize=True, phases=[Phase.generate])
def test_credit_is_kept_while_consumers_attach_detach_and_drain(workers: int, seed: int) -> None:
    random = Random(seed)
    with one_router(random.choice(("", "linkCapacity: 5")), workers) as router:
        producer, consumer = (AmqpActor(router, name, random.randrange(workers)) for name in ("p", "c"))
        actors = [producer, consumer]
        senders = [producer.session().sender(f"balanced.{n % 2}") for n in range(3)]
        session = consumer.session(random.choice((1, 10, 2048)))
        receivers: list[ActorReceiver] = []
        for number in range(30):
            what = random.randrange(6)
            if what == 0:
                receivers.append(session.receiver(f"balanced.{random.randrange(2)}", random.choice((1, 7, *BIG))))
            elif what == 1 and receivers:
                receivers.pop(random.randrange(len(receivers))).detach()
            elif what == 2:
                for link in receivers:
                    if link.attached and not link.draining:
                        link.grant(random.choice((0, 1, 3, *BIG)), drain=random.random() < 0.6)
            elif what == 3:
                send(random.choice(senders), [random.choice((10, 20_000))], first=number)
            for actor in random.sample(actors, random.randint(0, 2)):
                if random.random() < 0.7:
                    actor.read_frames()
                actor.act(random.randint(1, 5))
                actor.feed(random.choice((10, 500, None)))
                router.settle()
        session.receiver("balanced.0")
        session.receiver("balanced.1")
        run(router, actors)
        for sender in senders:
            assert sender.idle
            assert sender.credit == (5 if sender.capacity == 5 else CAPACITY)


@pytest.mark.parametrize("workers", [1, 2])
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None, derandomize=True, phases=[Phase.generate])
def test_ends_of_routed_link_agree_on_credit(workers: int, seed: int) -> None:
    """Credit agrees for every interleaving of drains with deliveries that wait in the router."""
    random = Random(seed)
    with one_router(workers=workers) as router:
        broker = AmqpActor(router, "broker", random.randrange(workers), "broker")
        client = AmqpActor(router, "k", random.randrange(workers))
        broker.window = random.choice((1, 3, 2048))
        pairs: list[tuple[ActorSender, ActorReceiver]] = []
        broker.pattern = 0
        actors = [broker, client]
        sender = client.session().sender("routed.a")
        receiver = client.session(random.choice((1, 3, 2048))).receiver("routed.b", 0)
        run(router, actors)
        (at_broker,), (from_broker,) = list(broker.receivers), list(broker.senders)
        pairs = [(sender, at_broker), (from_broker, receiver)]
        for _ in range(40):
            sending, receiving = random.choice(pairs)
            what = random.randrange(5)
            if what == 0:
                send(sending, [random.choice((10, 5000, 100_000))], first=sending.count)
            elif what == 1 and not receiving.draining:
                receiving.grant(random.choice((0, 1, 4, 50)), drain=random.random() < 0.5)
            elif what == 2:
                receiving.session.window_stays_shut = random.random() < 0.5
            actor = random.choice(actors)
            if random.random() < 0.7:
                actor.read_frames()
            actor.act(random.randint(1, 5))
            actor.feed(random.choice((10, 3000, None)))
            router.settle()
        for _, receiving in pairs:
            receiving.session.window_stays_shut = False
        run(router, actors)
        for sending, receiving in pairs:
            assert receiving.draining is False
            assert sending.credit == max(receiving.credit, 0)
            assert sending.sent == receiving.got
            receiving.grant(1000, drain=True)
        run(router, actors)
        for sending, receiving in pairs:
            check_served(sending, [receiving])
            assert (receiving.draining, sending.credit, receiving.credit) == (False, 0, 0)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("credit", [20_000, *BIG])
@pytest.mark.parametrize("messages", [0, 3])
def test_routed_receiver_with_large_credit_is_drained(routers, workers, credit, messages):
    router = routers(workers=workers, text=configuration())
    broker, client = AmqpActor(router, "broker", workers - 1, "broker"), AmqpActor(router, "k")
    receiver = client.session().receiver("routed.b", 0)
    run(router, [broker, client])
    (sender,) = broker.senders
    send(sender, [10] * messages)
    receiver.grant(credit, drain=True)
    run(router, [broker, client])
    assert len(receiver.got) == messages
    assert (receiver.draining, receiver.credit) == (False, 0)
    receiver.grant(5)
    send(sender, [10] * 5, first=messages)
    run(router, [broker, client])
    assert (len(receiver.got), sender.credit, receiver.credit) == (messages + 5, 0, 0)

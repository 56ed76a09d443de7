"""Memory bounds of a connection and of the process (docs/internals/credit.md).

Links make progress at a bound: the link that fills it ends, no other link does, and links that wait for room continue
as soon as there is some.
"""

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import sluice.router.testing.engine as engine
import tests.component.engine.actor as acting
from sluice.workers.connections.handler import ConnectionHandler
from tests.component.engine.actor import ActorReceiver, ActorSender, AmqpActor, run, step
from tests.component.engine.flows import (
    MEGABYTE,
    blocked_consumer,
    check_served,
    one_router,
    pass_time,
    producer_and_number,
    send,
)
from tests.component.engine.host import FaultError, InProcessRouter, configuration
from tests.peer.talk import message

SEEDS = st.integers(0, 1 << 32)
LITTLE = 150_000  # octets: enough to shut its session's window at a bound
LIMIT = 4 * MEGABYTE
LENGTH = 60_000  # octets of each message on the links that fill a connection's sessions
ROOM = 65_400  # octets of the chunk that holds such a message
UNFINISHED = 131_072  # octets of a message that is not streamed yet
LEAST = 1 << 20  # octets that the sessions of a connection may always hold together, regardless of other connections
EXCEEDED = "amqp:resource-limit-exceeded"


def condition(link: ActorSender | ActorReceiver) -> str | None:
    """Return the condition with which the router ended the link; None if it did not."""
    return None if link.ended is None else link.ended.error.value[0]


def full_connections(
    router: InProcessRouter, connections: int = 5, *, producers: int = 0
) -> tuple[list[AmqpActor], list[ActorSender]]:
    """Return connections that hold 0.9 MiB each, of messages whose consumers read nothing. producers: their worker."""
    consumers, senders, actors = AmqpActor(router, "deaf"), [], []
    for number in range(connections):
        blocked_consumer(consumers, f"balanced.deaf{number}")
    run(router, [consumers])
    for number in range(connections):
        actors.append(AmqpActor(router, f"f{number}", producers))
        senders.append(actors[-1].session().sender(f"balanced.deaf{number}"))
    run(router, [consumers, *actors])
    for sender in senders:
        send(sender, [9_500] * 100)
    run(router, [consumers, *actors])
    return [consumers, *actors], senders


class BystanderSession:
    """Bystander session: one link that holds little, and one whose consumer reads everything."""

    def __init__(self, router: InProcessRouter) -> None:
        self.producer, self.bad, self.good = (AmqpActor(router, name) for name in ("p", "b", "g"))
        self.actors = [self.producer, self.bad, self.good]
        blocked_consumer(self.bad, "balanced.little")
        self.receiver = self.good.session(100).receiver("balanced.good")
        run(router, self.actors)
        self.session = self.producer.session()
        self.little = self.session.sender("balanced.little")
        self.served = self.session.sender("balanced.good")
        run(router, self.actors)
        send(self.little, [LITTLE])
        run(router, self.actors)

    def check(self) -> None:
        check_served(self.served, [self.receiver])
        assert (self.little.ended, self.served.ended) == (None, None)


def held() -> int:
    """Return the octets of messages and of deliveries in this process."""
    incoming, outgoing, stored = engine.live_objects()[:3]
    return stored + (incoming + outgoing) * 256


def counter_of(router, what):
    """Return a counter of the first worker."""
    return router.region.worker_counters(0)[what]


# -- bound of the process ---------------------------------------------------------------------------------------------


def test_link_that_fills_process_is_ended_and_waiting_link_kept(routers):
    router = routers(text=configuration(listener="maxBufferedMegabytes: 1; maxSessionFrames: 20"), content_limit=LIMIT)
    given_up = counter_of(router, "given_up")
    bystander = BystanderSession(router)
    actors, filling = full_connections(router)
    send(bystander.served, [12_000_000])
    run(router, [*actors, *bystander.actors])
    shut = counter_of(router, "windows_shut")
    assert shut >= 1
    assert not bystander.served.idle
    pass_time(router, [*actors, *bystander.actors])
    bystander.check()
    ended = [condition(link) for link in filling if link.ended is not None]
    assert ended in ([EXCEEDED], [EXCEEDED] * 2)  # as many as make room
    assert counter_of(router, "given_up") == given_up + len(ended)
    assert engine.live_objects()[2] < LIMIT


def test_full_process_ends_no_link_while_none_waits(routers):
    router = routers(text=configuration(listener="maxBufferedMegabytes: 1"), content_limit=LIMIT)
    actors, filling = full_connections(router)
    assert router.workers[0].loop.scheduler.memory.crowded
    pass_time(router, actors)
    assert [link.ended for link in filling] == [None] * len(filling)


def test_full_process_ends_no_link_that_is_served(routers):
    """Consumers read messages of all links except the one that holds little."""
    router = routers(text=configuration(listener="maxSessionFrames: 20"), content_limit=LIMIT)
    bystander = BystanderSession(router)
    actors, filling = full_connections(router)
    send(bystander.served, [12_000_000])
    everybody = [*actors, *bystander.actors]
    run(router, everybody)
    assert not bystander.served.idle
    sessions = list(actors[0].sessions.values())
    for _ in range(8):
        for session in sessions:
            session.window = 3
            session.window_stays_shut = False
            session.flow()
            session.window_stays_shut = True
        pass_time(router, everybody, 1)
    assert [link.ended for link in filling] == [None] * len(filling)
    assert (bystander.little.ended, bystander.served.ended) == (None, None)
    for session in sessions:
        session.window = 2048
        session.window_stays_shut = False
    run(router, everybody)
    bystander.check()


def test_link_that_holds_little_keeps_its_credit_in_full_process(routers):
    router = routers(text=configuration(), content_limit=LIMIT)
    bystander = BystanderSession(router)
    sender = bystander.producer.session().sender(None)  # anonymous sender
    full_connections(router)
    assert router.workers[0].loop.scheduler.memory.crowded
    run(router, bystander.actors)
    for number in range(300):
        to = "balanced.little" if number == 10 else "balanced.good"
        sender.send(message(b"<n:%d>" % number, to=to))
    run(router, bystander.actors)
    assert len(bystander.receiver.got) == 299
    assert sender.credit == 249


def test_fault_while_ending_link_closes_its_connection(routers, monkeypatch):
    def faulty(*_arguments: object) -> None:
        raise engine.InjectedError

    router = routers(text=configuration(listener="maxSessionFrames: 20"), content_limit=LIMIT)
    bystander = BystanderSession(router)
    actors, _ = full_connections(router)
    send(bystander.served, [12_000_000])
    run(router, [*actors, *bystander.actors])
    monkeypatch.setattr(ConnectionHandler, "on_link_evicted", faulty)
    faults = router.workers[0].faults
    with pytest.raises(FaultError):
        pass_time(router, bystander.actors)
    assert [type(fault) for fault in faults] == [engine.InjectedError]
    faults.clear()
    router.settle()
    assert [actor.peer.gone for actor in [*actors, *bystander.actors]].count(True) == 1
    assert not bystander.producer.peer.gone


@pytest.mark.timeout(900)  # for runs under the sanitizers on a shared machine
@given(seed=SEEDS)
@settings(max_examples=15, deadline=None, derandomize=True, phases=[Phase.generate])
def test_process_memory_is_bounded_without_stalls(seed: int) -> None:
    """Producers of all kinds, on several connections, send to consumers that read nothing. Producers with a responsive
    consumer are served and do not end. There are two exceptions: producers that share that consumer may wait behind
    the unfinished message of another one whose window is shut, and the unfinished messages of all links may be a
    quarter of the bound. Then a link may have to end."""
    random = Random(seed)
    frames = random.choice((10, 50, 200))
    limit = random.choice((1, 2, 8)) * MEGABYTE
    tight = limit < 4 * UNFINISHED * 13
    listener = random.choice(("", "maxBufferedMegabytes: 1; ")) + f"maxSessionFrames: {frames}"
    with one_router(listener, content_limit=limit) as router:
        producers = [AmqpActor(router, f"p{n}") for n in range(random.randint(2, 6))]
        bad, good = AmqpActor(router, "b"), AmqpActor(router, "g")
        for n in range(2):
            blocked_consumer(bad, f"balanced.bad{n}", random.choice((1, 2, 10)))
        shared = random.random() < 0.3
        receivers = [
            good.session(random.choice((1, 10, 100))).receiver(f"balanced.good{n}") for n in range(1 if shared else 5)
        ]
        run(router, [bad, good])
        sessions = [producer.session() for producer in producers for _ in range(random.randint(1, 2))]
        filling = [random.choice(sessions).sender(f"balanced.bad{random.randrange(2)}") for _ in range(8)]
        served = [random.choice(sessions).sender(f"balanced.good{0 if shared else n}") for n in range(5)]
        actors = [*producers, bad, good]
        run(router, actors)
        for link in filling:
            send(link, [random.choice((1000, 50_000, 120_000, 1_000_000)) for _ in range(60)])
        for link in served:
            send(link, [random.choice((10, 120_000, 500_000)) for _ in range(8)])
        bound = limit + len(sessions) * (frames * acting.PART + 200_000)
        for _ in range(20):
            step(router, actors, frames=random.choice((5, 64, 300)))
            unsent = sum(len(link.current[1]) for link in filling + served if link.current is not None)
            sent = sum(sum(map(len, link.sent)) for link in filling + served) + unsent
            assert min(sent, engine.live_objects()[2] // 2) <= bound
        run(router, actors, rounds=3000)
        pass_time(router, actors, 60)
        for link in served:
            assert link.ended is None or ((shared or tight) and condition(link) == EXCEEDED)
            if link.ended is None:
                check_served(link, receivers)
        assert {condition(link) for link in filling} <= {None, EXCEEDED}


# -- windows are promises of memory -----------------------------------------------------------------------------------


def filling_sessions(
    router: InProcessRouter, connections: int, sessions: int
) -> tuple[list[AmqpActor], list[ActorSender]]:
    """Return actors whose sessions each send 2.4 MB, within window and credit, to a consumer that reads nothing."""
    consumer = AmqpActor(router, "deaf")
    blocked_consumer(consumer, "balanced.deaf")
    run(router, [consumer])
    producers = [AmqpActor(router, f"p{number}") for number in range(connections)]
    senders = [producer.session().sender("balanced.deaf") for producer in producers for _ in range(sessions)]
    run(router, [consumer, *producers])
    for sender in senders:
        send(sender, [LENGTH] * 40)
    return [consumer, *producers], senders


def most_held(router: InProcessRouter, actors: list[AmqpActor], frames: int = 64) -> int:
    """Return the most octets of messages that the router held while actors sent at most `frames` frames per step."""
    most = 0
    for _ in range(400):
        step(router, actors, frames=frames)
        most = max(most, engine.live_objects()[2])
    return most * LENGTH // ROOM


# How soon producers see the current windows.
@pytest.mark.parametrize("frames", [64, 10_000], ids=["soon", "late"])
@pytest.mark.parametrize("listener", ["", "; maxSessionFrames: 500"], ids=["any", "frames"])
def test_sessions_of_connection_share_its_bound(routers, listener, frames):
    limit = 4 * MEGABYTE
    router = routers(text=configuration(listener=f"maxBufferedMegabytes: 4{listener}"))
    actors, senders = filling_sessions(router, connections=1, sessions=20)
    most = most_held(router, actors, frames)
    # Each session has an unfinished message, whose chunk has room for the whole message.
    assert limit * 9 // 10 <= most <= limit + limit // 4 + LEAST + 20 * ROOM
    assert [sender.ended for sender in senders] == [None] * 20
    assert not actors[1].peer.gone


def test_connections_share_bound_of_process(routers):
    router = routers(text=configuration(), content_limit=LIMIT)
    actors, senders = filling_sessions(router, connections=20, sessions=1)
    most = most_held(router, actors)
    assert LIMIT * 9 // 10 <= most <= LIMIT + LIMIT // 4 + LIMIT // 8
    assert [sender.ended for sender in senders] == [None] * 20


def test_shortened_window_grows_again_with_room(routers):
    router = routers(text=configuration(listener="maxBufferedMegabytes: 4"))
    actors, senders = filling_sessions(router, connections=1, sessions=2)
    most_held(router, actors)
    assert min(sender.session.remote_window for sender in senders) <= 4
    taker = AmqpActor(router, "taker")
    receiver = taker.session(1000).receiver("balanced.deaf")
    actors[0].peer.lose()
    run(router, [taker, *actors[1:]], rounds=5000)
    for sender in senders:
        send(sender, [LENGTH] * 20, first=40)
    run(router, [taker, *actors[1:]], rounds=5000)
    assert all(sender.idle for sender in senders)
    assert sum(producer_and_number(octets)[1] >= 40 for octets in receiver.got) == 2 * 20
    assert min(sender.session.remote_window for sender in senders) > 20


# -- messages of links that have ended --------------------------------------------------------------------------------


def test_consumer_of_lost_producers_messages_is_ended(routers):
    router = routers(text=configuration(), content_limit=LIMIT)
    (consumers, *producers), _ = full_connections(router)
    for producer in producers:
        producer.peer.lose()
    router.settle()
    bystander = BystanderSession(router)
    send(bystander.served, [12_000_000])
    run(router, [consumers, *bystander.actors])
    assert not bystander.served.idle
    pass_time(router, [consumers, *bystander.actors])
    bystander.check()
    ended = [condition(link) for link in consumers.receivers if link.ended is not None]
    assert ended in ([EXCEEDED], [EXCEEDED] * 2)


def test_consumer_of_detached_links_messages_is_ended(routers):
    router = routers(text=configuration(listener="maxBufferedMegabytes: 1; maxSessionFrames: 20"))
    bystander = BystanderSession(router)
    consumers = [blocked_consumer(bystander.bad, f"balanced.deaf{number}") for number in range(2)]
    run(router, bystander.actors)
    for consumer, messages in zip(consumers, (20, 100), strict=True):
        link = bystander.producer.session().sender(f"balanced.deaf{consumers.index(consumer)}")
        run(router, bystander.actors)
        send(link, [9_500] * messages, settled=True)
        run(router, bystander.actors)
        link.detach()
        run(router, bystander.actors)
    send(bystander.served, [12_000_000])
    run(router, bystander.actors)
    assert not bystander.served.idle
    pass_time(router, bystander.actors)
    bystander.check()
    assert [condition(link) for link in consumers] == [None, EXCEEDED]


# -- messages of other workers ----------------------------------------------------------------------------------------


def test_consumer_of_other_workers_messages_is_ended(routers):
    """The unread messages belong to no link of the consumer's worker."""
    router = routers(workers=2, text=configuration(), content_limit=9 * LIMIT // 8)
    actors, filling = full_connections(router, producers=1)
    consumers = list(actors[0].receivers)
    pass_time(router, actors)
    assert [link.ended for link in consumers] == [None] * len(consumers)  # no link waits for room
    bystander = BystanderSession(router)
    send(bystander.served, [12_000_000])
    everybody = [*actors, *bystander.actors]
    run(router, everybody)
    assert not bystander.served.idle
    pass_time(router, everybody)
    bystander.check()
    ended = [condition(link) for link in consumers if link.ended is not None]
    assert ended in ([EXCEEDED], [EXCEEDED] * 2)
    assert [link.ended for link in filling] == [None] * len(filling)
    for link, consumer in zip(filling, consumers, strict=True):
        released = [state for state in link.outcomes.values() if state.descriptor == 0x26]
        assert bool(released) == (consumer.ended is not None)


def test_messages_from_other_workers_are_bounded_while_no_link_waits(routers):
    router = routers(workers=2, text=configuration(), content_limit=LIMIT)
    actors, _ = full_connections(router, 8, producers=1)
    assert held() > 5 * LIMIT // 4
    pass_time(router, actors)
    assert held() < 5 * LIMIT // 4


def test_link_to_other_router_drops_waiting_messages_and_stays(networks):
    network = networks("AB", 2)
    network.join("A", "B", workers=(0, 0))
    network.converge()
    near, far = network["A"], network["B"]
    consumer = AmqpActor(far, "c")
    receiver = consumer.session(100).receiver("closest.far")
    run(far, [consumer])
    network.known("M0closest.far", "B")
    near.workers[0].loop.scheduler.memory.content_limit = LIMIT
    producers = [AmqpActor(near, f"p{n}", 1) for n in range(8)]
    senders = [producer.session().sender("closest.far") for producer in producers]
    run(near, producers)
    network.joints[0].ends[0].blocked = True  # the peer reads nothing
    for sender in senders:
        send(sender, [9_500] * 100)
    run(near, producers)
    assert held() > 5 * LIMIT // 4
    pass_time(near, producers, 6)
    assert held() < 5 * LIMIT // 4
    assert [sender.ended for sender in senders] == [None] * len(senders)
    network.joints[0].ends[0].blocked = False
    network.settle()
    before = len(receiver.got)
    send(senders[0], [10], first=1000)
    for _ in range(20):
        step(near, producers)
        network.settle()
        step(far, [consumer])
        network.settle()
    assert len(receiver.got) > before
    assert all(sender.idle for sender in senders)


# -- room becomes available -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["connection", "process"])
def test_window_opens_as_soon_as_there_is_room(routers, bound):
    """The window opens without a timer."""
    listener = "maxSessionFrames: 20; maxBufferedMegabytes: 1" if bound == "connection" else "maxSessionFrames: 20"
    router = routers(text=configuration(listener=listener), content_limit=MEGABYTE if bound == "process" else None)
    bystander = BystanderSession(router)
    filler = bystander.producer if bound == "connection" else AmqpActor(router, "f")
    consumer = blocked_consumer(bystander.bad, "balanced.x")
    everybody = [*bystander.actors, filler]
    run(router, everybody)
    filling = filler.session().sender("balanced.x")
    run(router, everybody)
    send(filling, [9_500] * 200)
    send(bystander.served, [12_000_000])
    run(router, everybody)
    assert not bystander.served.idle
    assert counter_of(router, "windows_shut") >= 1
    consumer.session.window = 2048
    consumer.session.window_stays_shut = False
    run(router, everybody)
    bystander.check()
    check_served(filling, [consumer])


def test_session_that_ends_while_waiting_for_room_is_forgotten(routers):
    router = routers(text=configuration(listener="maxSessionFrames: 20"), content_limit=MEGABYTE)
    bystander = BystanderSession(router)
    actors, _ = full_connections(router, 2)
    everybody = [*bystander.actors, *actors]
    send(bystander.served, [12_000_000])
    run(router, everybody)
    shut = counter_of(router, "windows_shut")
    bystander.session.put("end")
    bystander.producer.feed()
    router.settle()
    assert counter_of(router, "windows_shut") == shut - 1
    pass_time(router, actors)

"""Laws of memory bounds (docs/internals/credit.md): memory is bounded, and the bound stalls no link that is served."""

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import sluice.router.testing.engine as engine
import tests.component.engine.actor as acting
from tests.component.engine.actor import AmqpActor, run, step
from tests.component.engine.flows import MEGABYTE, blocked_consumer, check_served, one_router, pass_time, send
from tests.component.engine.host import configuration

SEEDS = st.integers(0, 1 << 32)
CAPACITY = 250  # credit of a producer


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate])
def test_memory_is_bounded_without_stalls_at_bound(seed: int) -> None:
    """Producers of all kinds send to consumers that read nothing. Producers with a responsive consumer are served."""
    random = Random(seed)
    frames = random.choice((10, 50, 200))
    with one_router(f"maxBufferedMegabytes: 1; maxSessionFrames: {frames}") as router:
        producer, bad, good = (AmqpActor(router, name) for name in ("p", "b", "g"))
        for n in range(2):
            blocked_consumer(bad, f"balanced.bad{n}", random.choice((1, 2, 10)))
        receiver = good.session(random.choice((1, 10, 100))).receiver("balanced.good")
        run(router, [bad, good])
        sessions = [producer.session() for _ in range(random.randint(1, 3))]
        filling = [random.choice(sessions).sender(f"balanced.bad{random.randrange(2)}") for _ in range(5)]
        served = [random.choice(sessions).sender("balanced.good") for _ in range(3)]
        run(router, [producer])
        for link in filling:
            send(link, [random.choice((1000, 50_000, 120_000, 1_000_000)) for _ in range(60)])
        for link in served:
            send(link, [random.choice((10, 120_000, 500_000)) for _ in range(8)])
        bound = MEGABYTE + (len(sessions) * frames + 20) * acting.PART
        actors = [producer, bad, good]
        for _ in range(20):
            step(router, actors, frames=random.choice((5, 64, 300)))
            unsent = sum(len(link.current[1]) for link in filling + served if link.current is not None)
            sent = sum(sum(map(len, link.sent)) for link in filling + served) + unsent
            assert min(sent, engine.live_objects()[2] // 2) <= bound
        run(router, actors, rounds=2000)
        pass_time(router, actors, 30)
        for link in served:
            assert link.ended is None, link.ended
            check_served(link, [receiver])
        for link in filling:
            if link.ended is not None:
                assert link.ended.error.value[0] == "amqp:resource-limit-exceeded"


def router_near_bound(routers, frames: int = 20):
    """Return (router, its actors, the producer's session, a consumer that reads), for tests at the memory bound."""
    router = routers(text=configuration(listener=f"maxBufferedMegabytes: 1; maxSessionFrames: {frames}"))
    producer, bad, good = (AmqpActor(router, name) for name in ("p", "b", "g"))
    blocked_consumer(bad, "balanced.x")
    blocked_consumer(bad, "balanced.z")
    receiver = good.session(100).receiver("balanced.y")
    run(router, [bad, good])
    return router, [producer, bad, good], producer.session(), receiver


def test_stalled_message_is_freed_though_consumer_reads_nothing(routers):
    router, actors, session, receiver = router_near_bound(routers)
    filling, waiting = session.sender("balanced.x"), session.sender("balanced.y")
    run(router, actors)
    send(filling, [3_000_000])
    run(router, actors)
    pass_time(router, actors)
    assert filling.ended.error.value[0] == "amqp:resource-limit-exceeded"
    assert engine.live_objects()[2] < 2 * 65536
    send(waiting, [3_000_000])
    run(router, actors)
    check_served(waiting, [receiver])


def test_served_links_do_not_delay_end_of_stalled_link(routers):
    router, actors, session, receiver = router_near_bound(routers)
    trickle = actors[2].session(1).receiver("balanced.t")
    run(router, actors)
    filling, waiting = session.sender("balanced.x"), session.sender("balanced.y")
    drops = actors[0].session().sender("balanced.t")
    send(filling, [3_000_000])
    send(waiting, [3_000_000])
    run(router, actors)
    for number in range(8):
        send(drops, [200_000], first=number)
        run(router, actors)
        pass_time(router, actors, 2)
    assert len(trickle.got) == 8
    check_served(waiting, [receiver])
    assert waiting.ended is None


def test_link_that_fills_connection_is_ended(routers):
    """The link of the waiting session survives."""
    router, actors, session, receiver = router_near_bound(routers, 100)
    other = actors[0].session()
    filling, waiting, little = session.sender("balanced.x"), other.sender("balanced.y"), other.sender("balanced.z")
    send(filling, [100_000] * 30)
    run(router, actors)
    send(little, [300_000])
    send(waiting, [3_000_000])
    run(router, actors)
    pass_time(router, actors)
    assert (filling.ended is None, waiting.ended, little.ended) == (False, None, None)
    check_served(waiting, [receiver])


def test_memory_of_whole_messages_is_bounded(routers):
    router, actors, session, _ = router_near_bound(routers, 100)
    filling = [session.sender("balanced.x") for _ in range(2)]
    for link in filling:
        send(link, [100_000] * CAPACITY)
    run(router, actors)
    assert sum(sum(map(len, link.sent)) for link in filling) <= MEGABYTE + 101 * acting.PART


@pytest.mark.parametrize("listener", ["maxBufferedMegabytes: 1", "maxSessionFrames: 1000"])
def test_lagging_peer_may_use_window_granted_earlier(routers, listener):
    router = routers(text=configuration(listener=listener))
    producer, taker, other = (AmqpActor(router, name) for name in ("p", "t", "o"))
    taker.session(10).receiver("balanced.x")
    other.session(100).receiver("balanced.y")
    run(router, [taker, other])
    session = producer.session()
    sender = session.sender("balanced.x")
    session.sender("balanced.y")
    run(router, [producer])
    send(sender, [200_000] * 200)
    producer.act(2000)  # a whole window
    behind = len(producer.out) // 2
    while len(producer.out) > behind:
        producer.feed(16_100)
        router.settle()
        if len(producer.out) > behind + 30 * acting.PART:
            run(router, [taker, other])
    for _ in range(4):
        producer.feed(2_000_000)
        router.settle()
    producer.read_frames()  # raises if the router has reported an error

"""Helpers for flow-control tests: checked routers, blocked consumers, and checks that producers were served."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import sluice.router.testing.engine as engine
from tests.component.engine.actor import ActorReceiver, ActorSender, AmqpActor, numbered, run
from tests.component.engine.host import InProcessRouter, configuration

MEGABYTE = 1 << 20


@contextmanager
def one_router(listener: str = "", workers: int = 1, content_limit: int | None = None) -> Iterator[InProcessRouter]:
    """Yield a router. At the end nothing may be left behind."""
    before = engine.live_objects()
    router = InProcessRouter(workers, configuration(listener=listener), content_limit=content_limit)
    yield router
    router.check_quiet()
    for peer in list(router.peers):
        peer.lose()
    router.settle()
    router.check_empty()
    router.close()
    assert engine.live_objects() == before


def blocked_consumer(actor: AmqpActor, address: str, window: int = 2) -> ActorReceiver:
    """Return a consumer in its own session, whose window never opens again."""
    session = actor.session(window)
    link = session.receiver(address)
    session.window_stays_shut = True
    return link


def producer_and_number(octets: bytes) -> tuple[str, int]:
    """Return producer and number of a message."""
    found = re.search(rb"<([^<:]+):(\d+)>", octets)
    assert found is not None
    return found[1].decode(), int(found[2])


def send(link: ActorSender, sizes: list[int], *, settled: bool = False, first: int = 0) -> None:
    for number, size in enumerate(sizes, first):
        link.send(numbered(link.name.lower(), number, size), settled=settled)


def check_served(
    sender: ActorSender, receivers: list[ActorReceiver], *, everyone: bool = False, ordered: bool = True
) -> None:
    """Check that each of the sender's messages has its outcome and arrived once, in order. everyone: at each
    receiver."""
    name = sender.name.lower()
    assert sender.idle, (
        f"{name}: {len(sender.waiting)} wait, {sender.unsettled} unsettled, credit {sender.credit}, "
        f"window {sender.session.remote_window}, under way {sender.current is not None}, {receivers[0].credit=}"
    )
    arrived = [[number for by, number in map(producer_and_number, link.got) if by == name] for link in receivers]
    every = list(range(len(sender.sent)))
    for numbers in arrived:
        assert not ordered or numbers == sorted(numbers), f"{name}: {numbers}"
    if everyone:
        assert all(numbers == every for numbers in arrived)
    else:
        assert sorted(chain(*arrived)) == every
    assert all(
        octets in sender.sent for link in receivers for octets in link.got if producer_and_number(octets)[0] == name
    )


def pass_time(router: InProcessRouter, actors: list[AmqpActor], seconds: int = 10) -> None:
    for _ in range(seconds):
        router.pass_time(1100)
        run(router, actors, rounds=2000)

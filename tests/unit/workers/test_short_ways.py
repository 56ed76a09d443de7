"""The short ways do what the general ways do: random scenarios go through both, and every octet that peers get and
every counter of the router is compared (docs/internals/engine.md, "The short way")."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import router.testing.engine as engine
from router.stats.snapshot import LinkReader
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, FRAME_HEADER, REJECTED, RELEASED, modified, parse_frame, rejected
from tests.peer.types import Described, UByte, ULong
from tests.unit.engine.host import Peer, Router
from tests.unit.engine.talk import consumer, flow, key, message, producer, say, settle, start, transfer

HEADER = 0x70
OUTCOMES = [
    ACCEPTED, ACCEPTED, ACCEPTED, RELEASED, REJECTED, modified(True, False), rejected("a:b", "c" * 30), None,
]  # fmt: skip
#: Fields of a worker's slot that say when, how often it woke up, or which process.
OF_ONE_RUN = ("pid", "heartbeat", "heard", "wakes")
CONSUMERS = 3
PRODUCERS = 2

headers = st.one_of(
    st.none(),
    st.lists(st.sampled_from([None, True, False]), max_size=1),
    st.tuples(st.sampled_from([None, True]), st.integers(0, 12).map(lambda n: ("ubyte", n))).map(list),
    st.tuples(st.none(), st.none(), st.integers(0, 2**32 - 1)).map(list),
    st.just(["neither", "nor"]),
)
contents = st.fixed_dictionaries(
    {
        "size": st.sampled_from([0, 1, 5, 100, 100, 2000, 20_000]),
        "header": headers,
        "to": st.sampled_from([None, "balanced.b", "nowhere"]),
        "annotated": st.booleans(),
        "broken": st.sampled_from([False] * 9 + [True]),
    }
)
action = st.one_of(
    st.tuples(st.just("send"), st.integers(0, PRODUCERS - 1), st.integers(1, 90), st.booleans(), contents),
    st.tuples(st.just("settle"), st.integers(0, CONSUMERS - 1), st.integers(0, 100), st.sampled_from(OUTCOMES)),
    st.tuples(st.just("state"), st.integers(0, CONSUMERS - 1), st.integers(0, 3), st.sampled_from(OUTCOMES)),
    st.tuples(st.just("skip"), st.integers(0, CONSUMERS - 1), st.integers(1, 3)),
    st.tuples(st.just("update"), st.integers(0, PRODUCERS - 1), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("flow"), st.integers(0, CONSUMERS - 1), st.sampled_from([0, 1, 20, 1000]), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([1, 300, 1100, 11_000])),
    st.tuples(st.just("lose"), st.integers(0, CONSUMERS + PRODUCERS - 1), st.booleans()),
)


def ubyte(value: Any) -> Any:
    return UByte(value[1]) if isinstance(value, tuple) else value


def content(number: int, *, size: int, header: Any, to: str | None, annotated: bool, broken: bool) -> bytes:
    octets: bytes = message(
        number.to_bytes(4, "big") + bytes(size), to=to, annotations=[(key("x-user"), number)] if annotated else None
    )
    if header is not None:
        octets = encode(Described(ULong(HEADER), [ubyte(item) for item in header])) + octets
    return octets[:5] if broken else octets


class Scenario:
    """With two workers the first consumer and the first producer are apart."""

    def __init__(self, router: Router, address: str, attach: dict[str, Any], consumers: int) -> None:
        self.router = router
        last = len(router.workers) - 1
        self.consuming: list[Peer | None] = [None] * CONSUMERS
        self.heard: list[bytes] = [b""] * (CONSUMERS + PRODUCERS)
        for number in range(consumers):
            peer = router.connect(min(number, last), "kept" if number == 2 else "main")
            peer.feed(start() + consumer(0, address, 60 if number else 1000, **attach))
            router.settle()
            self.consuming[number] = peer
        self.sending: list[Peer | None] = []
        for number in range(PRODUCERS):
            peer = router.connect(last - min(number, last))
            peer.feed(start() + producer(0, address))
            router.settle()
            self.sending.append(peer)
        self.sent = [0] * PRODUCERS
        self.settled = [0] * CONSUMERS

    @property
    def peers(self) -> list[Peer | None]:
        return self.consuming + self.sending

    def act(self, what: str, *how: Any) -> None:
        getattr(self, what)(*how)
        self.router.settle()
        self.router.check_quiet()
        for number, peer in enumerate(self.peers):
            if peer is not None:
                self.heard[number] += peer.take()

    def send(self, who: int, count: int, settled: bool, what: dict[str, Any]) -> None:
        peer = self.sending[who]
        if peer is None:
            return
        octets = []
        for number in range(self.sent[who], self.sent[who] + count):
            octets.append(transfer(0, number, content(number, **what), settled=settled or None))
        self.sent[who] += count
        peer.feed(b"".join(octets))

    def settle(self, who: int, count: int, outcome: Any) -> None:
        peer = self.consuming[who]
        if peer is not None:
            peer.feed(settle(self.settled[who], self.settled[who] + count, outcome))
            self.settled[who] += count + 1

    def state(self, who: int, after: int, outcome: Any) -> None:
        """The consumer says an outcome, and settles later."""
        peer = self.consuming[who]
        if peer is not None and outcome is not None:
            first = self.settled[who] + after
            peer.feed(say("disposition", role=True, first=first, last=first + 1, settled=False, state=outcome))

    def skip(self, who: int, count: int) -> None:
        self.settled[who] += count

    def update(self, who: int, back: int, settled: bool) -> None:
        """The producer says something of what it has sent."""
        peer = self.sending[who]
        if peer is not None and self.sent[who] > back:
            first = self.sent[who] - 1 - back
            peer.feed(say("disposition", role=False, first=first, last=first + 1, settled=settled, state=ACCEPTED))

    def flow(self, who: int, credit: int, drain: bool) -> None:
        peer = self.consuming[who]
        if peer is not None:
            peer.feed(flow(0, credit, delivery_count=self.settled[who], drain=drain))

    def time(self, milliseconds: int) -> None:
        self.router.pass_time(milliseconds)

    def lose(self, who: int, detach: bool) -> None:
        peer = self.peers[who]
        if peer is None:
            return
        if detach:
            peer.feed(say("detach", handle=0, closed=True))
            self.router.settle()
        else:
            peer.lose()
        self.heard[who] += peer.take()
        if who < CONSUMERS:
            self.consuming[who] = None
        else:
            self.sending[who - CONSUMERS] = None


def spread(octets: bytes) -> Iterator[Any]:
    """Frames, each as its octets; of dispositions what they say of each delivery. (The short way may say in one frame
    what is the same for several.)"""
    at = 0
    while at < len(octets):
        if octets.startswith(b"AMQP", at):
            at += FRAME_HEADER
            continue
        size = int.from_bytes(octets[at : at + 4], "big")
        frame = parse_frame(octets[at : at + size])
        if frame.name == "disposition":
            for number in range(frame.first, (frame.first if frame.last is None else frame.last) + 1):
                yield frame.role, number, frame.settled, repr(frame.state)
        else:
            yield octets[at : at + size]
        at += size


def play(
    short: bool, address: str, attach: dict[str, Any], consumers: int, actions: list[Any], workers: int = 1
) -> tuple[list[list[Any]], list[dict[str, Any]], list[Any]]:
    """What each peer heard, and what the router has counted."""
    router = Router(workers)
    engine.use_short_ways(short)
    try:
        scenario = Scenario(router, address, attach, consumers)
        for one in actions:
            scenario.act(*one)
        counted = [router.region.worker_counters(worker) for worker in range(workers)]
        for of_worker in counted:
            for name in OF_ONE_RUN:
                del of_worker[name]
        heard = [[*spread(octets)] for octets in scenario.heard]
        return heard, counted, [LinkReader(router.region, worker).look() for worker in range(workers)]
    finally:
        engine.use_short_ways(True)
        router.close()


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    address=st.sampled_from(["balanced.a", "balanced.a", "closest.a", "multicast.a", "spare.a"]),
    attach=st.sampled_from([{}, {}, {}, {"snd_settle_mode": 1}]),
    consumers=st.sampled_from([1, 1, 1, 2, 3]),
    actions=st.lists(action, min_size=1, max_size=20),
    workers=st.sampled_from([1, 2, 2]),
)
def test_like_the_general_way(
    address: str, attach: dict[str, Any], consumers: int, actions: list[Any], workers: int
) -> None:
    short = play(True, address, attach, consumers, actions, workers)
    general = play(False, address, attach, consumers, actions, workers)
    for mine, theirs in zip(short, general, strict=True):
        assert mine == theirs


@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED, rejected("a:b", "c")])
@pytest.mark.parametrize("lost", ["consumer", "producer"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_connection_that_is_lost_within_a_run(outcome: Any, lost: str, workers: int) -> None:
    what = {"size": 10, "header": None, "to": None, "annotated": False, "broken": False}
    actions = [
        ("send", 0, 90, False, what),
        ("settle", 0, 40, outcome),
        ("lose", 0 if lost == "consumer" else CONSUMERS, False),
        ("time", 1),
    ]
    short = play(True, "balanced.a", {}, 1, actions, workers)
    assert short == play(False, "balanced.a", {}, 1, actions, workers)
    said = [one for one in short[0][CONSUMERS] if isinstance(one, tuple)]
    assert [one[:3] for one in said] == [(True, number, True) for number in range(90 if lost == "consumer" else 41)]

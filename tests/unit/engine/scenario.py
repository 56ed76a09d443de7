"""Random scenarios: producers and consumers that do everything a client may do. The octets that each peer receives are
kept.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from router.stats.snapshot import LinkReader
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, FRAME_HEADER, REJECTED, RELEASED, modified, parse_frame, rejected
from tests.peer.types import Described, UByte, ULong
from tests.unit.engine.host import ADDRESSES, InProcessPeer, InProcessRouter
from tests.unit.engine.talk import flow, key, message, say, settle, transfer

HEADER = 0x70
OUTCOMES = [
    ACCEPTED, ACCEPTED, ACCEPTED, RELEASED, REJECTED, modified(True, False), rejected("a:b", "c" * 30), None,
]  # fmt: skip
#: Fields of a worker's slot that differ between runs.
OF_ONE_RUN = ("pid", "heartbeat", "heard", "wakes")
CONSUMERS = 3
PRODUCERS = 2
#: Message-annotations: none, users' (different or equal in each message), routers', both.
ANNOTATIONS: dict[str, Callable[[int], Any]] = {
    "none": lambda number: None,
    "others": lambda number: [(key("x-user"), number)],
    "same": lambda number: [(key("x-user"), 1)],
    "routers": lambda number: [(key("x-opt-qd.ingress"), "0/Z"), (key("x-opt-qd.trace"), ["0/Z"])],
    "both": lambda number: [(key("x-user"), 1), (key("x-opt-qd.trace"), ["0/Y", "0/Z"])],
}

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
        "user": st.sampled_from([None, None, None, b"anonymous", b"other", b"x" * 300]),
        "annotated": st.sampled_from([*ANNOTATIONS]),
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


def content(
    number: int, *, size: int, header: Any, to: str | None, annotated: str, broken: bool, user: bytes | None = None
) -> bytes:
    body = number.to_bytes(4, "big") + bytes(size)
    octets: bytes = message(body, user=user, to=to, annotations=ANNOTATIONS[annotated](number))
    if header is not None:
        octets = encode(Described(ULong(HEADER), [ubyte(item) for item in header])) + octets
    return octets[:5] if broken else octets


class RandomScenario:
    def __init__(
        self,
        routers: Sequence[InProcessRouter],
        quiet: Callable[[], object],
        consuming: Sequence[InProcessPeer],
        sending: Sequence[InProcessPeer],
    ) -> None:
        """At most CONSUMERS and PRODUCERS peers, each with one attached link. quiet: returns when nothing moves in
        these routers."""
        self.routers = routers
        self.quiet = quiet
        self.consuming: list[InProcessPeer | None] = [*consuming, *[None] * (CONSUMERS - len(consuming))]
        self.sending: list[InProcessPeer | None] = [*sending, *[None] * (PRODUCERS - len(sending))]
        self.heard: list[bytes] = [b""] * (CONSUMERS + PRODUCERS)
        self.sent = [0] * PRODUCERS
        self.settled = [0] * CONSUMERS

    @property
    def peers(self) -> list[InProcessPeer | None]:
        return self.consuming + self.sending

    def act(self, what: str, *how: Any) -> None:
        getattr(self, what)(*how)
        self.quiet()
        for router in self.routers:
            router.check_quiet()
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
        """Report an outcome as the consumer; it is settled later."""
        peer = self.consuming[who]
        if peer is not None and outcome is not None:
            first = self.settled[who] + after
            peer.feed(say("disposition", role=True, first=first, last=first + 1, settled=False, state=outcome))

    def skip(self, who: int, count: int) -> None:
        self.settled[who] += count

    def update(self, who: int, back: int, settled: bool) -> None:
        """Report a state as the producer, for a delivery already sent."""
        peer = self.sending[who]
        if peer is not None and self.sent[who] > back:
            first = self.sent[who] - 1 - back
            peer.feed(say("disposition", role=False, first=first, last=first + 1, settled=settled, state=ACCEPTED))

    def flow(self, who: int, credit: int, drain: bool) -> None:
        peer = self.consuming[who]
        if peer is not None:
            peer.feed(flow(0, credit, delivery_count=self.settled[who], drain=drain))

    def time(self, milliseconds: int) -> None:
        for router in self.routers:
            router.pass_time(milliseconds)

    def lose(self, who: int, detach: bool) -> None:
        peer = self.peers[who]
        if peer is None:
            return
        if detach:
            peer.feed(say("detach", handle=0, closed=True))
            self.quiet()
        else:
            peer.lose()
        self.heard[who] += peer.take()
        if who < CONSUMERS:
            self.consuming[who] = None
        else:
            self.sending[who - CONSUMERS] = None


def frames_by_delivery(octets: bytes) -> Iterator[Any]:
    """Yield frames as octets, and dispositions as one report per delivery: the router may merge equal reports into one
    frame."""
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


def all_counters(router: InProcessRouter, *but: str) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
    """Return the counters of a router: of each worker without the counters `but`, of links, and of addresses."""
    workers = range(len(router.workers))
    counters = [router.region.worker_counters(worker) for worker in workers]
    for of_worker in counters:
        for name in (*OF_ONE_RUN, *but):
            del of_worker[name]
    links = [LinkReader(router.region, worker).look() for worker in workers]
    addresses = [router.region.address_counters(worker, number) for worker in workers for number in range(ADDRESSES)]
    return counters, links, addresses

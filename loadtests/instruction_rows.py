"""Scenarios of `loadtests.instructions`: traffic patterns and their settlement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import pytest

from loadtests.configuration import configuration_text
from loadtests.instructions import Play, Row
from loadtests.policy_rows import many_rules
from sluice.router.config.entities import TracingConfig
from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.component.engine.network import IgnoringObserver, InProcessNetwork, RouterConnection, client
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED
from tests.peer.talk import MANY, consumer, flow, frames, message, of, producer, say, start, transfer
from tests.peer.types import Described, ULong

BODY: Final = bytes(100)
HEADER: Final = 0x70
TRANSFER: Final = 0x14
DESCRIPTOR_AT: Final = 10  # offset of the descriptor in a frame, after the codes of described type and small ulong
LISTENER: Final = "linkCapacity: 250"
MANY_LINKS: Final = 4096  # link slots of a worker
CHANNEL: Final = 3  # channel on which a broker answers
NEIGHBOURS: Final = ("A", "B")
EDGE_LISTENER: Final = """
listener {
    name: edges
    host: 127.0.0.1
    port: 4
    role: edge
    idleTimeoutSeconds: 0
}
"""
EDGE: Final = """
router {
    mode: edge
    id: E
}
listener {
    name: main
    host: 127.0.0.1
    port: 0
    idleTimeoutSeconds: 0
    linkCapacity: 250
}
connector {
    host: peer.example
    port: 1
    role: edge
    idleTimeoutSeconds: 0
}
"""

Settle = Callable[[], object]


def proton_message(body: bytes) -> bytes:
    """Encode a message with the header and properties that Proton sends."""
    header: bytes = encode(Described(ULong(HEADER), [True]))
    rest: bytes = message(body, to="balanced.a", subject="subject")
    return header + rest


def started(
    router: InProcessRouter, worker: int, octets: bytes, listener: str = "main", hostname: str | None = None
) -> InProcessPeer:
    peer = router.connect(worker, listener)
    peer.feed(start(hostname=hostname) + octets)
    router.settle()
    peer.take()
    return peer


class Round:
    """Round of a scenario: a batch arrives, copies go out, and each consumer accepts its own by one disposition."""

    def __init__(
        self, quiet: Settle, sending: InProcessPeer, receiving: Sequence[InProcessPeer], octets: bytes, settled: bool,
        channel: int = 0, credit: int = MANY,
    ) -> None:  # fmt: skip
        """Prepare the rounds. channel: the consumers' channel. credit: deliveries that a consumer takes at a time."""
        self.quiet = quiet
        self.sending = sending
        self.taken = dict.fromkeys(receiving, 0)  # deliveries received, by consumer
        self.octets = octets
        self.settled = settled
        self.channel = channel
        self.credit = credit
        self.sent = 0

    def play(self, batch: int, copies: int = 1) -> None:
        numbers = range(self.sent, self.sent + batch)
        self.sent += batch
        self.sending.feed(b"".join(transfer(0, one, self.octets, settled=self.settled or None) for one in numbers))
        self.quiet()
        before = sum(self.taken.values())
        for peer, first in self.taken.items():
            while got := transfers(peer.take()):
                self.taken[peer] += got
                if self.credit != MANY:
                    peer.feed(flow(0, self.credit, delivery_count=self.taken[peer]))
                    self.quiet()
            if self.taken[peer] > first and not self.settled:
                last = self.taken[peer] - 1
                peer.feed(
                    say("disposition", channel=self.channel, role=True, first=first, last=last, settled=True,
                        state=ACCEPTED)
                )  # fmt: skip
        assert sum(self.taken.values()) - before == batch * copies
        self.quiet()
        assert self.settled or self.sending.take()


def transfers(octets: bytes) -> int:
    """Count the deliveries, each in one frame."""
    at = count = 0
    while at < len(octets):
        count += octets[at + DESCRIPTOR_AT] == TRANSFER
        at += int.from_bytes(octets[at : at + 4], "big")
    return count


@contextmanager
def one_router(
    octets: bytes = message(BODY), *, address: str = "balanced.a", consumers: int = 1, copies: int = 1,
    settled: bool = False, anonymous: bool = False, workers: int = 1, more: str = "", hostname: str | None = None,
    slots: int | None = None, credit: int = MANY, to: str = "main", by: str = "main", copied_to: str | None = None,
) -> Iterator[Play]:  # fmt: skip
    """Run a scenario in one router.

    slots: worker slots in shared memory; those beyond `workers` stay idle. to, by: listeners of consumers and producer.
    copied_to: address that gets the copies of a tap, for a consumer of its own.
    """
    router = InProcessRouter(workers, configuration(LISTENER, more), 1 << 22, slots=slots, links=MANY_LINKS)
    for section in router.configuration.of_type("tracing"):
        assert isinstance(section, TracingConfig)
        router.core.delivery_traces.configure(section, lambda _: None)
    receiving = [started(router, 0, consumer(0, address, credit), to, hostname) for _ in range(consumers)]
    if copied_to is not None:
        receiving.append(started(router, 0, consumer(0, copied_to), to, hostname))
    sending = started(router, workers - 1, producer(0, None if anonymous else address), by, hostname)
    yield partial(Round(router.settle, sending, receiving, octets, settled, credit=credit).play, copies=copies)
    router.close()


@contextmanager
def hop(slots: int | None = None, between: str = "") -> Iterator[Play]:
    """Run a scenario over a hop between two routers. between: attributes of the connection between them."""
    with pytest.MonkeyPatch.context() as patch:
        network = InProcessNetwork(
            "".join(NEIGHBOURS), monkeypatch=patch, slots=slots, listener=LISTENER, between=between
        )
        network.join(*NEIGHBOURS)
        network.converge()
        receiving = client(network, "B", consumer(0, "balanced.a"))
        network.known("M0balanced.a", "B")
        sending = client(network, "A", producer(0, "balanced.a"))
        receiving.take(), sending.take()
        yield Round(network.settle, sending, [receiving], message(BODY), settled=False).play
        for router in network.routers.values():
            router.close()


@contextmanager
def edge() -> Iterator[Play]:
    """Run a scenario from a client of an edge router to one of its interior router."""
    with pytest.MonkeyPatch.context() as patch:
        network = InProcessNetwork("A", monkeypatch=patch, listener=LISTENER, more=EDGE_LISTENER)
        e = network.routers["E"] = InProcessRouter(1, EDGE)
        (up,) = e.configuration.connectors
        network.joints.append(
            RouterConnection(network, e.initiate(0, up, IgnoringObserver()), network["A"].connect(0, "edges"))
        )
        network.settle()
        receiving = client(network, "A", consumer(0, "balanced.a"))
        sending = client(network, "E", producer(0, "balanced.a"))
        receiving.take(), sending.take()
        yield Round(network.settle, sending, [receiving], message(BODY), settled=False).play
        for router in network.routers.values():
            router.close()


@contextmanager
def link_route() -> Iterator[Play]:
    router = InProcessRouter(1, configuration(LISTENER))
    broker = started(router, 0, b"", "broker")
    sending = router.connect(0)
    sending.feed(start() + producer(0, "routed.a"))
    router.settle()
    heard = frames(broker)
    (opened,), (attach,) = of(heard, "begin"), of(heard, "attach")
    broker.feed(
        say("begin", channel=CHANNEL, remote_channel=opened.channel, next_outgoing_id=0, incoming_window=MANY,
            outgoing_window=MANY)
        + say("attach", channel=CHANNEL, name=attach.fields["name"], handle=0, role=True, source=attach.source,
              target=attach.target)
        + flow(0, MANY, channel=CHANNEL)
    )  # fmt: skip
    router.settle()
    sending.take(), broker.take()
    yield Round(router.settle, sending, [broker], message(BODY), settled=False, channel=CHANNEL).play
    router.close()


#: Policy with many rules for clients of vhost `v`.
RULES: Final = configuration_text(*many_rules("v", "balanced.a"))

#: Tracing of a share of the deliveries, and, with `parents`, of those that their producer has sampled (none here).
TRACING: Final = """
tracing {{
    endpoint: http://127.0.0.1:1/v1/traces
    ratio: {ratio}
    parentBased: {parents}
    addresses: {addresses}
    spansPerSecond: 10000
}}
"""

TAP: Final = """
tap {
    pattern: balanced.a
    address: taps.a
}
"""

ROWS: Final[dict[str, Row]] = {
    "unsettled": one_router,
    "presettled": partial(one_router, settled=True),
    "properties": partial(one_router, proton_message(BODY)),
    "balanced-4": partial(one_router, consumers=4),
    "multicast-10": partial(one_router, address="multicast.a", consumers=10, copies=10),
    "anonymous": partial(one_router, message(BODY, to="balanced.a"), anonymous=True),
    "anonymous-policy": partial(one_router, message(BODY, to="balanced.a"), anonymous=True, more=RULES, hostname="v"),
    "policy": partial(one_router, proton_message(BODY), more=RULES, hostname="v"),
    "to-broker": partial(one_router, to="broker"),
    "from-broker": partial(one_router, by="broker"),
    "two-workers": partial(one_router, workers=2),
    "queued": partial(one_router, credit=50),
    "hop": hop,
    "hop-queued": partial(hop, between="linkCapacity: 50"),
    "edge": edge,
    "link-route": link_route,
    "untraced": partial(one_router, more=TRACING.format(ratio=1, parents="no", addresses="elsewhere")),
    "traced-none": partial(one_router, more=TRACING.format(ratio=0.000001, parents="no", addresses="#")),
    "traced-all": partial(one_router, more=TRACING.format(ratio=1, parents="no", addresses="#")),
    "traced": partial(one_router, more=TRACING.format(ratio=0.01, parents="no", addresses="#")),
    "traced-parents": partial(one_router, more=TRACING.format(ratio=0.01, parents="yes", addresses="#")),
    "tapped": partial(one_router, more=TAP, copied_to="taps.a", copies=2),
}

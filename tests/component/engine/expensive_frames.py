"""Rows of frames with expensive but legal arguments: the router configuration, the preparation, and the octets sent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.component.engine.host import LISTENER, InProcessPeer, InProcessRouter, configuration
from tests.component.engine.replay import BETWEEN, EDGE_TO_EDGE, INTERIOR
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, AMQP_HEADER, SASL_HEADER, frame_octets, received, rejected, source, target
from tests.peer.neighbour import CONTROL, DATA, properties
from tests.peer.talk import (
    MANY,
    begin,
    consumer,
    flow,
    frames,
    message,
    of,
    producer,
    say,
    settle,
    start,
    transfer,
)
from tests.peer.types import Described, Symbol, UByte, ULong

MOST: Final = 0xFFFFFFFF
FRAMES: Final = 2000
COPIES: Final = 197  # consumers, and so copies, of a multicast message
#: Handles of the links that client rows start with.
SENDING, RECEIVING, CROWD = 0, 1, 2
#: Long description for an error, and delivery states that are expensive to keep or to decode.
LONG: Final = rejected("amqp:internal-error", "x" * 8000)
MAP: Final = rejected("amqp:internal-error", "x", {str(number): number for number in range(700)})
SECTION: Final = b"\x00\x53\x72\xd1\x00\xff\xff\xff\x00\x00\x00\x02"  # annotations section that claims 16 MB
OPEN: Final = AMQP_HEADER + say("open", container_id="test")
LINKS: Final = (
    start()
    + producer(SENDING, "balanced.cost", rcv_settle_mode=UByte(1))  # the router relays states to it
    + consumer(RECEIVING, "balanced.cost")
    + producer(CROWD, "multicast")
)
CREDIT: Final = "linkCapacity: 4000; maxSessionFrames: 8000"
Prepare = Callable[[InProcessRouter], InProcessPeer]


@dataclass(frozen=True)
class FrameRow:
    """Frames to measure. frame: type of the frames in `octets`. prepare: connects the peer that sends them. text: the
    router's configuration. deliveries: number of deliveries that the frames make, copies included, or whose messages
    or outcomes they release."""

    frame: str
    prepare: Prepare
    octets: bytes
    text: str = configuration(CREDIT)
    deliveries: int = 0

    def router(self, routers: Callable[..., InProcessRouter]) -> InProcessRouter:
        """Return a new router with one worker."""
        return routers(1, self.text)


# -- senders ----------------------------------------------------------------------------------------------------------


def connected(router: InProcessRouter, listener: str, octets: bytes) -> InProcessPeer:
    peer = router.connect(0, listener)
    if octets:
        peer.feed(octets)
    router.settle()
    peer.take()
    return peer


def connected_to(listener: str, before: bytes = b"") -> Prepare:
    """Return a function that connects a peer to `listener` and lets it send `before`."""
    return lambda router: connected(router, listener, before)


def terminus(kind: Any, capability: str) -> Any:
    return kind(None, capabilities=Symbol(capability))


def attach_between_routers(handle: int, capability: str, *, receives: bool) -> bytes:
    """Encode the attach of a link between routers on the first session."""
    attach = say(
        "attach",
        name=f"b{handle}",
        handle=handle,
        role=receives,
        snd_settle_mode=2,
        rcv_settle_mode=0,
        source=terminus(source, capability),
        target=terminus(target, capability),
        initial_delivery_count=None if receives else 0,
    )
    return attach + (flow(handle, MANY) if receives else b"")


def neighbour(before: bytes = b"", others: bytes = b"") -> Prepare:
    """Prepare another interior router, which sends on handle SENDING and has sent `before`. A client has sent
    `others`."""
    opened = start(properties=properties())
    links = attach_between_routers(8, CONTROL, receives=True) + attach_between_routers(9, CONTROL, receives=False)
    links += attach_between_routers(SENDING, DATA, receives=False) + attach_between_routers(
        RECEIVING, DATA, receives=True
    )

    def prepare(router: InProcessRouter) -> InProcessPeer:
        connected(router, LISTENER, start() + others)
        return connected(router, BETWEEN, opened + links + before)

    return prepare


def other_edge(before: bytes = b"", others: bytes = b"") -> Prepare:
    """Prepare another edge router, which has sent `before`. A client has sent `others`."""
    known: dict[str, Any] = {"sluice.edge": f"{1:016x}", "sluice.inter-edge": 1, "sluice.edge-checks": 1}
    opened = start(properties=properties(**known))

    def prepare(router: InProcessRouter) -> InProcessPeer:
        connected(router, LISTENER, start() + others)
        return connected(router, BETWEEN, opened + before)

    return prepare


def routed(after: bytes = b"", *, broker_sends: bytes = b"", receives: bool = True) -> Prepare:
    """Prepare a client with a routed link on handle SENDING or RECEIVING. The client has sent `after`, its broker
    `broker_sends`."""

    def prepare(router: InProcessRouter) -> InProcessPeer:
        broker = connected(router, "broker", start())
        attach = consumer(RECEIVING, "routed.a") if receives else producer(SENDING, "routed.a")
        peer = connected(router, LISTENER, start() + attach)
        heard = frames(broker)
        (begun,) = [frame for frame in of(heard, "begin") if frame.fields.get("remote_channel") is None]
        (attached,) = of(heard, "attach")
        answer = say(
            "attach", channel=1, name=attached.fields["name"], handle=0, role=not receives, source=attached.source,
            target=attached.target, initial_delivery_count=0 if receives else None,
        )  # fmt: skip
        session = say(
            "begin", channel=1, remote_channel=begun.channel, next_outgoing_id=0, incoming_window=MANY,
            outgoing_window=MANY,
        )  # fmt: skip
        grant = b"" if receives else flow(0, MANY, channel=1)
        broker.feed(session + answer + grant + broker_sends)
        router.settle()
        if after:
            peer.feed(after)
            router.settle()
        for each in (broker, peer):
            each.take()
        return peer

    return prepare


# -- frames -----------------------------------------------------------------------------------------------------------


def send(count: int, handle: int = SENDING, payload: bytes | None = None, **fields: Any) -> bytes:
    """Encode `count` deliveries of small messages."""
    octets = message(b"x") if payload is None else payload
    return b"".join(transfer(handle, number, octets, **fields) for number in range(count))


def for_router(to: str, trace: int = 1) -> bytes:
    """Encode a message with router annotations."""
    passed = [f"0/N{number}" for number in range(trace)]
    pairs = (("to", to), ("ingress", "0/N0"), ("trace", passed))
    octets: bytes = message(b"x", annotations=[(Symbol(f"x-opt-qd.{name}"), value) for name, value in pairs])
    return octets


def crowd(count: int, address: str = "multicast", credit: int = 0) -> bytes:
    """Encode the attaches of `count` consumers, with handles from 3."""
    return b"".join(consumer(handle, address, credit) for handle in range(3, 3 + count))


def sasl(performative: int, *values: Any) -> bytes:
    return frame_octets(encode(Described(ULong(performative), list(values))), kind=1)


MECHANISMS, INIT, RESPONSE = 0x40, 0x41, 0x43
ANONYMOUS: Final = SASL_HEADER + sasl(INIT, Symbol("ANONYMOUS"), b"")


def rows_of_clients(listener: str) -> dict[str, FrameRow]:
    """Return the rows of clients, or of route containers, without routed links."""

    def client(before: bytes = LINKS) -> Prepare:
        return connected_to(listener, before)

    return {
        "protocol header": FrameRow("header", client(b""), AMQP_HEADER),
        "open with many capabilities": FrameRow(
            "open", client(AMQP_HEADER), say("open", container_id="x" * 200, desired_capabilities=["y"] * 700)
        ),
        "empty frames": FrameRow("empty", client(OPEN), frame_octets(b"") * FRAMES),
        "begin and end": FrameRow("begin", client(OPEN), (begin(1) + say("end", channel=1)) * FRAMES),
        "begin of the highest channel": FrameRow("begin", client(OPEN), begin(100)),
        "sessions": FrameRow("begin", client(OPEN), b"".join(map(begin, range(200)))),
        "attach and detach": FrameRow(
            "attach", client(), (consumer(9, "balanced.new", 0) + say("detach", handle=9, closed=True)) * 200
        ),
        "consumers": FrameRow("attach", client(start()), b"".join(consumer(h, "balanced.new", 0) for h in range(200))),
        "producers": FrameRow("attach", client(start()), b"".join(producer(h, "balanced.new") for h in range(200))),
        "links of as many addresses": FrameRow(
            "attach", client(start()), b"".join(producer(h, f"balanced.{h}") for h in range(200))
        ),
        "detach with deliveries": FrameRow(
            "detach",
            client(LINKS + flow(RECEIVING, 0) + send(200)),
            say("detach", handle=RECEIVING, closed=True),
            deliveries=200,
        ),
        "end with many links": FrameRow("end", client(LINKS + crowd(97, credit=MOST)), say("end")),
        "end with deliveries": FrameRow("end", client(LINKS + send(200)), say("end"), deliveries=200),
        "close with many links": FrameRow("close", client(LINKS + crowd(97, credit=MOST)), say("close")),
        "close with deliveries": FrameRow("close", client(LINKS + send(200)), say("close"), deliveries=200),
        "session flows with echo": FrameRow("flow", client(), flow(None, echo=True, window=MOST) * FRAMES),
        "link flows with echo": FrameRow("flow", client(), flow(RECEIVING, MOST, echo=True) * FRAMES),
        "link flows with drain": FrameRow("flow", client(), flow(RECEIVING, MOST, drain=True) * FRAMES),
        "flows of a producer": FrameRow("flow", client(), flow(SENDING, MOST, available=MOST, echo=True) * FRAMES),
        "credit for what waits": FrameRow(
            "flow",
            client(start() + producer(SENDING, "balanced.cost") + consumer(RECEIVING, "balanced.cost", 0) + send(200)),
            flow(RECEIVING, MOST),
            deliveries=200,
        ),
        "small transfers": FrameRow("transfer", client(), send(FRAMES, settled=True), deliveries=FRAMES),
        "transfers that wait": FrameRow(
            "transfer",
            client(start() + producer(SENDING, "balanced.cost") + consumer(RECEIVING, "balanced.cost", 0)),
            send(FRAMES),
            deliveries=FRAMES,
        ),
        "unsettled transfers": FrameRow("transfer", client(), send(FRAMES), deliveries=FRAMES),
        "batchable transfers": FrameRow("transfer", client(), send(200, batchable=True), deliveries=200),
        "aborted transfers": FrameRow("transfer", client(), send(200, aborted=True), deliveries=200),
        "resumed transfers": FrameRow("transfer", client(), send(200, resume=True), deliveries=200),
        "multicast transfers": FrameRow(
            "transfer", client(LINKS + crowd(COPIES)), send(200, CROWD, settled=True), deliveries=200 * COPIES
        ),
        "multicast transfers for all": FrameRow(
            "transfer", client(LINKS + crowd(COPIES, credit=MOST)), send(200, CROWD), deliveries=200 * COPIES
        ),
        "message of one-octet frames": FrameRow(
            "transfer", client(), transfer(SENDING, 0, message(bytes(4000)), part=1), deliveries=1
        ),
        "section that does not end": FrameRow(
            "transfer", client(), transfer(SENDING, 0, SECTION + bytes(60_000), part=64), deliveries=1
        ),
        "message of many sections": FrameRow(
            "transfer", client(), transfer(SENDING, 0, message(b"") * 10_000), deliveries=1
        ),
        "transfers with maps": FrameRow("transfer", client(), send(200, state=MAP), deliveries=200),
        "dispositions of nothing": FrameRow("disposition", client(), settle(0, 1 << 30, ACCEPTED) * FRAMES),
        "dispositions of all with long states": FrameRow(
            "disposition", client(LINKS + send(200)), settle(0, 1 << 30, LONG, settled=False) * 200, deliveries=200
        ),
        "dispositions with maps": FrameRow(
            "disposition", client(LINKS + send(200)), settle(0, 199, MAP, settled=False) * 200, deliveries=200
        ),
        "dispositions with received": FrameRow(
            "disposition",
            client(LINKS + send(200)),
            settle(0, 199, received(MOST, MOST), settled=False) * FRAMES,
            deliveries=200,
        ),
        "dispositions of a producer": FrameRow(
            "disposition",
            client(LINKS + send(200)),
            settle(0, 199, ACCEPTED, role=False, settled=False) * FRAMES,
            deliveries=200,
        ),
        "outcomes for as many producers": FrameRow(
            "disposition",
            client(
                start()
                + consumer(RECEIVING, "balanced.cost")
                + b"".join(
                    producer(handle, "balanced.cost") + transfer(handle, handle - 2, message(b"x"))
                    for handle in range(2, 202)
                )
            ),
            settle(0, 199, ACCEPTED),
            deliveries=200,
        ),
        "outcomes that the router settles": FrameRow(
            "disposition",
            client(start() + producer(SENDING, "balanced.cost") + consumer(RECEIVING, "balanced.cost") + send(200)),
            settle(0, 199, LONG, settled=False),
            deliveries=200,
        ),
        "outcomes of all": FrameRow("disposition", client(LINKS + send(200)), settle(0, 199, ACCEPTED), deliveries=200),
    }


#: Rows of clients that log in. The router does not offer the mechanism of the second row.
LOGINS: Final = {
    "SASL header": FrameRow("sasl", connected_to(LISTENER), SASL_HEADER),
    "SASL init": FrameRow(
        "sasl", connected_to(LISTENER, SASL_HEADER), sasl(INIT, Symbol("ANONYMOUS"), b"x" * 400, "h" * 60)
    ),
    "SASL init of another mechanism": FrameRow(
        "sasl", connected_to(LISTENER, SASL_HEADER), sasl(INIT, Symbol("m" * 250), b"x" * 200)
    ),
    "SASL response": FrameRow("sasl", connected_to(LISTENER, SASL_HEADER), sasl(RESPONSE, b"x" * 480)),
    "header after SASL": FrameRow("header", connected_to(LISTENER, ANONYMOUS), AMQP_HEADER),
}

#: Rows of a client with a routed link.
ROUTED: Final = {
    "routed flows with properties": FrameRow(
        "flow", routed(), flow(RECEIVING, 1, properties={Symbol("x"): "y" * 12_000}) * 200
    ),
    "routed flows with echo": FrameRow("flow", routed(), flow(RECEIVING, MOST, echo=True) * FRAMES),
    "routed transfers": FrameRow("transfer", routed(receives=False), send(FRAMES), deliveries=FRAMES),
    "routed transfers with states": FrameRow(
        "transfer", routed(receives=False), send(200, state=received(MOST, MOST)), deliveries=200
    ),
    "routed dispositions of nothing": FrameRow("disposition", routed(), settle(0, 1 << 30, ACCEPTED) * FRAMES),
    "routed dispositions with long states": FrameRow(
        "disposition",
        routed(broker_sends=send(200, handle=0, channel=1)),
        settle(0, 199, LONG, settled=False) * 200,
        deliveries=200,
    ),
    "routed dispositions": FrameRow(
        "disposition",
        routed(broker_sends=send(200, handle=0, channel=1)),
        settle(0, 199, received(MOST, MOST), settled=False) * FRAMES,
        deliveries=200,
    ),
    "routed detach": FrameRow(
        "detach",
        routed(broker_sends=send(200, handle=0, channel=1)),
        say("detach", handle=RECEIVING, error=LONG.value[0], closed=True),
        deliveries=200,
    ),
}

NEAR = consumer(RECEIVING, "balanced.cost")
NEAR_CROWD = crowd(COPIES)

#: Rows of another interior router.
ROUTERS: Final = {
    "transfers of a router": FrameRow(
        "transfer",
        neighbour(others=NEAR),
        send(FRAMES, payload=for_router("balanced.cost")),
        INTERIOR,
        deliveries=FRAMES,
    ),
    "transfers with a long trace": FrameRow(
        "transfer", neighbour(others=NEAR), send(200, payload=for_router("balanced.cost", 10)), INTERIOR, deliveries=200
    ),
    "transfers of a router for nobody": FrameRow(
        "transfer", neighbour(), send(FRAMES, payload=for_router("balanced.cost")), INTERIOR, deliveries=FRAMES
    ),
    "multicast transfers of a router": FrameRow(
        "transfer",
        neighbour(others=NEAR_CROWD),
        send(200, payload=for_router("multicast")),
        INTERIOR,
        deliveries=200 * COPIES,
    ),
    "control messages": FrameRow(
        "transfer", neighbour(), send(20, 9, payload=for_router("_local/qdhello", 1)), INTERIOR, deliveries=20
    ),
    "dispositions of a router": FrameRow(
        "disposition",
        neighbour(send(200, payload=for_router("balanced.cost")), NEAR),
        settle(0, 199, ACCEPTED, role=False, settled=False) * FRAMES,
        INTERIOR,
        deliveries=200,
    ),
    "flows of a router with echo": FrameRow("flow", neighbour(), flow(RECEIVING, MOST, echo=True) * FRAMES, INTERIOR),
    "data links of a router": FrameRow(
        "attach", neighbour(), b"".join(attach_between_routers(h, DATA, receives=True) for h in range(10, 40)), INTERIOR
    ),
}

#: Rows of another edge router, whose receivers serve its clients.
EDGES: Final = {
    "consumers of an edge router": FrameRow(
        "attach", other_edge(), b"".join(consumer(h, f"balanced.{h}", MOST) for h in range(200)), EDGE_TO_EDGE
    ),
    "flows of an edge router with echo": FrameRow(
        "flow",
        other_edge(consumer(RECEIVING, "balanced.cost")),
        flow(RECEIVING, MOST, echo=True) * FRAMES,
        EDGE_TO_EDGE,
    ),
    "transfers of an edge router": FrameRow(
        "transfer",
        other_edge(producer(SENDING, None), NEAR),
        send(200, payload=message(b"x", to="balanced.cost", annotations=[(Symbol("x-opt-qd.ingress"), "0/N1")])),
        EDGE_TO_EDGE,
        deliveries=200,
    ),
    "multicast transfers of an edge router": FrameRow(
        "transfer",
        other_edge(producer(SENDING, None), NEAR_CROWD),
        send(200, payload=message(b"x", to="multicast")),
        EDGE_TO_EDGE,
        deliveries=200 * COPIES,
    ),
}

#: All rows by name.
ROWS: Final[dict[str, FrameRow]] = {
    **rows_of_clients(LISTENER),
    **LOGINS,
    **ROUTED,
    **ROUTERS,
    **EDGES,
    **{f"{name}, route container": row for name, row in rows_of_clients("broker").items()},
}

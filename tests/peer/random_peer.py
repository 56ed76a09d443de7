"""Random peer for fuzzing, tests and load tests: mostly valid AMQP, with everything a peer may do.

The peer ignores input. Counting is enough to guess the router's handles and delivery-ids.
"""

import struct
import zlib
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from tests.peer.codec import encode
from tests.peer.damage import spoil, value
from tests.peer.frames import AMQP_HEADER, PERFORMATIVES, SASL_HEADER, _typed, frame_octets, source, target
from tests.peer.types import Described, Map, Raw, Symbol, UByte, UInt, ULong

ROUTED = ("routed.a", "routed/b", "routed")
ANSWERS = 5  # channel on which a broker answers the router's session
ECHO = "org.apache.qpid.dispatch.router/test/echo"
ADDRESSES = (
    "balanced.a",
    "balanced.b",
    "closest.a",
    "multicast.a",
    "multicast.b",
    "spare.a",
    "block.a",
    "oldest.a",
    "nobody.a",
    "exchange",
    "balanced.hop",
    "multicast.hop",
    "balanced.alternate",
    "$management",
    "_local/x",
    "_topo/0/QDR/$management",
    "amqp:/balanced.a",
    "/balanced.b",
    "//h/closest.a",
    "",
    "ä/€",
    "x" * 300,
    ECHO,
    "org.apache.qpid.dispatch.router/test/deny",
)
MANY = 0x7FFFFFFF
STREAMED = 140_000  # octets: more than a message that is forwarded whole
FRAME = 16384  # octets of the largest frame that the router accepts
HEADER_CODE, DELIVERY_CODE, ANNOTATIONS_CODE, PROPERTIES_CODE, DATA_CODE = 0x70, 0x71, 0x72, 0x73, 0x75

MARK = b"\xf5Mark"
HEAD = struct.Struct(">5sBHII")  # mark, connection, link, number, checksum of the rest
# Correlation-id of messages that may return through the router itself, and so not in order with others.
ECHOED = "echoed"


def mark(connection: int, link: int, number: int, size: int) -> bytes:
    """Return the body of a message with `size` octets behind its head."""
    rest = (struct.pack(">III", connection, link, number) * (size // 12 + 1))[:size]
    return HEAD.pack(MARK, connection, link, number, zlib.crc32(rest)) + rest


class LinkModel:
    """Client's model of a link."""

    def __init__(self, uid: int, receives: bool) -> None:
        self.uid = uid
        self.receives = receives
        self.number = 0
        self.count = 0
        self.parts: list[bytes] = []  # of the message being sent
        self.delivery_id = 0
        self.credit = 0


class SessionModel:
    def __init__(self) -> None:
        self.links: dict[int, LinkModel] = {}
        self.next_delivery = 0
        self.transfers = 0


@dataclass(frozen=True)
class Habits:
    """Habits of all clients in a case. Clients that share addresses cross workers and fill rings."""

    addresses: tuple[str, ...] = ADDRESSES[:9]  # of most links
    routed: float = 0.3  # probability that a link belongs to a link route
    large: float = 0.04  # probability that a message has many frames
    drains: float = 0.15  # probability that credit is drained
    states: float = 0.03  # probability that a transfer has a state
    users: tuple[bytes | None, ...] = ()  # user-ids of messages; empty: none
    loyal: float = 0.8  # probability that a link is for one of the addresses, and not for any
    orderly: bool = False  # avoid valid encodings that the router always answers by a close
    rudeness: tuple[float, ...] = (0.0, 0.0, 0.002, 0.01, 0.05)  # probabilities that a frame is spoiled; one is chosen
    windows: tuple[int, ...] = (MANY, MANY, 2, 0, 50)  # of a session at its beginning
    later_windows: tuple[int, ...] = (MANY, MANY, MANY, 0, 1, 10)  # of a flow that grants credit
    batches: tuple[int, ...] = (1, 1, 1, 5, 20)  # deliveries that are sent together
    spread: int = 0  # consumers from which multicast copies are spread over turns; 0: default

    @classmethod
    def steady(cls, address: str, routed: float = 0.0) -> "Habits":
        """Return habits of clients that mostly exchange messages over one address and keep their connections."""
        return cls(
            (address,) * 30,
            routed,
            users=(None, None, None, b"anonymous", b"other", b"x" * 300),
            loyal=0.95,
            orderly=True,
            rudeness=(0.0, 0.0, 0.002),
            windows=(MANY, MANY, MANY, 50),
            later_windows=(MANY, MANY, MANY, 10),
            batches=(1, 5, 20, 90),
        )

    @classmethod
    def chosen(cls, rng: Random) -> "Habits":
        """Return random habits."""
        addresses = rng.choice((cls.addresses, rng.sample(cls.addresses, 2), [rng.choice(cls.addresses)]))
        return cls(
            tuple(addresses),
            rng.choice((0.05, 0.3, 0.8)),
            rng.choice((0.04, 0.3, 0.3)),
            rng.choice((0.15, 0.15, 0.6)),
            rng.choice((0.03, 0.03, 0.4)),
            spread=rng.choice((0, 0, 1, 2)),
        )


class RandomPeer:
    """Client or broker. `act` returns its next frames."""

    CHANNEL_MAXES: ClassVar[tuple[int | None, ...]] = (None, 0, 3, 100)

    def __init__(self, rng: Random, number: int, rudeness: float, routed: list[tuple[str, bool]] | None = None) -> None:
        """routed: (name, receives) of links for link routes, as brokers will see them."""
        self.rng = rng
        self.routed = [] if routed is None else routed
        self.broker = False
        self.number = number
        self.habits = Habits()
        self.rudeness = rudeness  # probability that a frame is spoiled
        self.spoiled = False
        self.sessions: dict[int, SessionModel] = {}
        self.undecided: list[tuple[int, int]] = []  # channel and handle of links for which a route may still be sought
        self.next_uid = 0
        self.pending = b""
        self.open = True
        self.now_spoiled = False

    # -- frames --------------------------------------------------------------------------------------------------------

    def say(self, name: str, channel: int = 0, payload: bytes = b"", /, **fields: Any) -> bytes:
        rng = self.rng
        descriptor, table = PERFORMATIVES[name]
        items = [encode(_typed(fields.get(field), kind)) for field, kind in table]
        while items and items[-1] == b"\x40" and rng.random() < 0.95:
            items.pop()
        if rng.random() < self.rudeness:
            self.now_spoiled = True
            for _ in range(rng.choice((1, 1, 2))):
                index = rng.randrange(len(items) + 1)
                items[index : index + rng.choice((0, 1, 1, 1))] = [value(rng)]
        code: Any = ULong(descriptor)
        if rng.random() < 0.01:
            code = Symbol(f"amqp:{name}:list")
        if rng.random() < 0.01:
            code = Raw(b"\x80" + descriptor.to_bytes(8, "big"))
        body = encode(Described(code, [Raw(item) for item in items]))
        octets = frame_octets(body + payload, channel, doff=2 if rng.random() < 0.99 else 3)
        if rng.random() < self.rudeness:
            self.now_spoiled = True
            octets = spoil(rng, octets)
        return octets

    def begin_connection(self) -> bytes:
        rng = self.rng
        octets = AMQP_HEADER
        if rng.random() < 0.2:
            init = encode(Described(ULong(0x41), [Symbol("ANONYMOUS"), b"x"]))
            octets = SASL_HEADER + frame_octets(init, kind=1) + AMQP_HEADER
        octets += self.say(
            "open",
            container_id=f"c{self.number}",
            hostname=rng.choice((None, "t", "u")),
            max_frame_size=rng.choice((None, None, 512, 600, 4096, 1 << 20)),
            channel_max=rng.choice(self.CHANNEL_MAXES),
            idle_time_out=None if self.habits.orderly else rng.choice((None, None, 1, 1000)),
            properties=self.open_properties(),
        )
        return octets + self.begin(0)

    def open_properties(self) -> Map | None:
        """Return the properties of the open."""
        return None

    def begin(self, channel: int) -> bytes:
        rng = self.rng
        self.sessions[channel] = SessionModel()
        return self.say(
            "begin",
            channel,
            next_outgoing_id=rng.choice((0, 0, 1, 0xFFFFFFFE)),
            incoming_window=rng.choice(self.habits.windows),
            outgoing_window=MANY,
        )

    def attach(self, channel: int, session: SessionModel) -> bytes:
        rng = self.rng
        handle = rng.choice([h for h in range(8) if h not in session.links] or [0])
        receives = rng.random() < 0.5
        link = session.links[handle] = LinkModel(self.next_uid, receives)
        self.next_uid += 1
        address: Any = (
            rng.choice((*self.habits.addresses, ECHO))
            if rng.random() < self.habits.loyal
            else rng.choice((*ADDRESSES, None))
        )
        if rng.random() < self.habits.routed:
            address = rng.choice(ROUTED)
            self.routed.append((f"l{link.uid}@c{self.number}", receives))
            self.undecided.append((channel, handle))
        dynamic = address is None and rng.random() < 0.5
        capabilities = rng.choice((None,) * 8 + (["qd.fallback"], "qd.waypoint_2", ["qd.router"]))
        ours = (source if receives else target)(address, dynamic=dynamic or None, capabilities=capabilities)
        octets = self.say(
            "attach",
            channel,
            name=f"l{link.uid}" if rng.random() < 0.97 else "l0",
            handle=handle,
            role=receives,
            snd_settle_mode=rng.choice((None, None, 0, 1, 2)),
            rcv_settle_mode=rng.choice((None, 0, 1)),
            source=ours if receives else rng.choice((source(), None)),
            target=target("mine") if receives else ours,
            initial_delivery_count=None if receives else rng.choice((0, 0, 0xFFFFFFFE)),
        )
        return octets + (self.grant(channel, handle, link) if receives and rng.random() < 0.8 else b"")

    def answer(self) -> bytes:
        """Return a broker's frames for the router's session and links."""
        rng = self.rng
        session = self.sessions.get(ANSWERS)
        if session is None or rng.random() < 0.02:
            self.sessions[ANSWERS] = SessionModel()
            return self.say(
                "begin",
                ANSWERS,
                remote_channel=rng.choice((1, 1, 1, 0)),
                next_outgoing_id=0,
                incoming_window=rng.choice((MANY, MANY, 2, 50)),
                outgoing_window=MANY,
            )
        if not self.routed:
            return b""
        name, client_receives = self.routed.pop(rng.randrange(len(self.routed)))
        handle = rng.choice([h for h in range(20) if h not in session.links] or [0])
        link = session.links[handle] = LinkModel(1000 + self.next_uid, not client_receives)
        self.next_uid += 1
        octets = self.say(
            "attach",
            ANSWERS,
            name=name,
            handle=handle,
            role=not client_receives,
            source=source("routed.a") if rng.random() < 0.9 else None,
            target=target("routed.a") if rng.random() < 0.9 else None,
            initial_delivery_count=rng.choice((0, 0, 5, 0xFFFFFFFE)) if client_receives else None,
        )
        if rng.random() < 0.05:
            del session.links[handle]
            return octets + self.say("detach", ANSWERS, handle=handle, closed=True)
        return octets + (self.grant(ANSWERS, handle, link) if link.receives else b"")

    def grant(self, channel: int, handle: int, link: LinkModel) -> bytes:
        rng = self.rng
        credit = rng.choice((0, 1, 2, 10, 100, 1000, MANY, 0xFFFFFFFF))
        return self.say(
            "flow",
            channel,
            next_incoming_id=rng.choice((0, 0, None, 5, 1000)),
            incoming_window=rng.choice(self.habits.later_windows),
            next_outgoing_id=0,
            outgoing_window=MANY,
            handle=handle,
            delivery_count=rng.choice((0, 0, None, 1, 5, 50)),
            link_credit=credit,
            drain=rng.random() < self.habits.drains or None,
            echo=rng.random() < 0.2 or None,
        )

    def flow(self, channel: int, session: SessionModel) -> bytes:
        rng = self.rng
        handles = [handle for handle, link in session.links.items() if link.receives]
        if handles and rng.random() < 0.7:
            handle = rng.choice(handles)
            return self.grant(channel, handle, session.links[handle])
        about: int | None = rng.choice((None, *session.links))
        return self.say(
            "flow",
            channel,
            next_incoming_id=rng.choice((0, None, 5, 1 << 31, 0xFFFFFFFF)),
            incoming_window=rng.choice((MANY, 0, 3)),
            next_outgoing_id=session.transfers,
            outgoing_window=MANY,
            handle=about,
            delivery_count=rng.choice((None, 0, 3, 0xFFFFFFFF)) if about is not None else None,
            link_credit=rng.choice((None, 0, 7)) if about is not None else None,
            echo=rng.random() < 0.5 or None,
        )

    # -- messages ------------------------------------------------------------------------------------------------------

    def message(self, link: LinkModel) -> bytes:
        rng = self.rng
        size = rng.choice((0, 1, 20, 20, 100, 100, 500, 2000, 9000, 15000))
        if rng.random() < self.habits.large:
            size = rng.choice((30_000, STREAMED, 2 * STREAMED, 600_000))
        if rng.random() < 0.02:
            return b""
        sections = []
        if rng.random() < 0.4:
            sections.append(Described(ULong(HEADER_CODE), [rng.random() < 0.5, UByte(rng.randrange(12))]))
        if rng.random() < 0.1:
            sections.append(Described(ULong(DELIVERY_CODE), Map([(Symbol("d"), "e" * rng.choice((1, 300)))])))
        if rng.random() < 0.4:
            sections.append(Described(ULong(ANNOTATIONS_CODE), Map(self.annotations())))
        if rng.random() < 0.6:
            to = rng.choice((None, ECHO, ECHO, *ADDRESSES))
            user = rng.choice(self.habits.users) if self.habits.users else None
            fields: list[Any] = [None, user, to, rng.choice((None, "a/b", "a", "x" * 300))]
            if rng.random() < 0.7:
                fields += [rng.choice((*ADDRESSES[:9], 7, rng.choice(ADDRESSES))), ECHOED]
            sections.append(Described(ULong(PROPERTIES_CODE), fields))
        body = Described(ULong(DATA_CODE), mark(self.number, link.uid, link.number, size))
        return b"".join(map(encode, [*sections, body]))

    def annotations(self) -> list[tuple[Any, Any]]:
        rng = self.rng
        pairs: list[tuple[Any, Any]] = []
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            pairs.append(
                rng.choice(
                    (
                        (Symbol("x-user"), "v" * rng.choice((0, 10, 260))),
                        (Symbol("x-opt-qd.to"), rng.choice(ADDRESSES)),
                        (Symbol("x-opt-qd.ingress"), "0/other"),
                        (Symbol("x-opt-qd.trace"), ["0/a"] * rng.choice((0, 1, 3, 130))),
                        (Symbol("x-opt-qd.phase"), rng.randrange(-1, 3)),
                        (Symbol("x-opt-qd.stream"), 1),
                        (Symbol("x-opt-qd.trace"), [1]),
                        (ULong(7), self.odd()),
                    )
                )
            )
        if rng.random() < 0.02:
            pairs.append((Symbol("x-opt-qd.to"), f"amqp://{'h' * rng.choice((10, 70_000, 240_000))}/balanced.a"))
        if rng.random() < 0.02:
            pairs.append((Symbol("x-large"), "v" * rng.choice((5000, 40_000, 140_000))))
        return pairs

    def odd(self) -> Any:
        """Return None, or rarely a random value that may be unreadable."""
        if self.rng.random() < 0.9:
            return None
        self.now_spoiled = True
        return Raw(value(self.rng))

    def transfer(self, channel: int, session: SessionModel) -> bytes:
        rng = self.rng
        senders = [handle for handle, link in session.links.items() if not link.receives]
        if not senders:
            return self.attach(channel, session)
        handle = rng.choice(senders)
        link = session.links[handle]
        if link.parts:
            return self.next_part(channel, session, handle, link)
        octets = b""
        for _ in range(rng.choice(self.habits.batches)):
            octets += self.first_part(channel, session, handle, link)
            if link.parts:
                break
        return octets

    def first_part(self, channel: int, session: SessionModel, handle: int, link: LinkModel) -> bytes:
        rng = self.rng
        message = self.message(link)
        link.number += 1
        step = rng.choice((3, 100, 5000, FRAME - 100, FRAME - 100)) if rng.random() < 0.3 else FRAME - 100
        step = max(step, len(message) // 60)
        parts = [message[at : at + step] for at in range(0, len(message), step)] or [b""]
        if rng.random() < 0.05:
            parts.insert(rng.randrange(len(parts) + 1), b"")
        link.delivery_id = session.next_delivery
        session.next_delivery = (session.next_delivery + 1) & 0xFFFFFFFF
        session.transfers += 1
        link.parts = parts[1:]
        return self.say(
            "transfer",
            channel,
            parts[0],
            handle=handle,
            delivery_id=link.delivery_id,
            delivery_tag=b"t" * rng.choice((1, 1, 8, 32, 33)) if rng.random() < 0.1 else b"t",
            message_format=rng.choice((0, 0, None, 1)),
            settled=rng.random() < 0.3 or None,
            more=len(parts) > 1 or None,
            aborted=rng.random() < 0.01 or None,
            state=self.state() if rng.random() < self.habits.states else None,
        )

    def next_part(self, channel: int, session: SessionModel, handle: int, link: LinkModel) -> bytes:
        rng = self.rng
        octets = b""
        for _ in range(rng.choice((1, 1, 4, 100))):
            if not link.parts:
                break
            part = link.parts.pop(0)
            aborted = rng.random() < 0.01
            if aborted:
                link.parts = []
            session.transfers += 1
            octets += self.say(
                "transfer",
                channel,
                part,
                handle=handle,
                settled=rng.random() < 0.03 or None,
                more=bool(link.parts) or None,
                state=self.state() if rng.random() < self.habits.states else None,
                delivery_id=link.delivery_id if rng.random() < 0.3 else None,
                aborted=aborted or None,
            )
        return octets

    def state(self) -> Any:
        rng = self.rng
        return rng.choice(
            (
                None,
                Described(ULong(0x24), []),
                Described(ULong(0x24), []),
                Described(ULong(0x25), []),
                Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("x:y"), "z" * rng.choice((1, 300))])]),
                Described(ULong(0x26), []),
                Described(ULong(0x27), [True, True]),
                Described(ULong(0x23), [UInt(0), ULong(1)]),
                Described(ULong(0x33), [b"t"]),
                Described(ULong(0x34), [b"t", Described(ULong(0x24), [])]),
                Described(Symbol("amqp:accepted:list"), []),
                Described(Symbol("other"), []),
                self.odd(),
            )
        )

    def disposition(self, channel: int, session: SessionModel) -> bytes:
        rng = self.rng
        receiver = rng.random() < 0.75
        first = rng.choice((0, 0, 1, rng.randrange(30), max(session.next_delivery - 3, 0), 0xFFFFFFF0))
        last = rng.choice((None, first, first + 1, first + rng.randrange(100), first + MANY, first - 1, 5))
        if self.habits.orderly and last is not None and last < first:
            last = first
        return self.say(
            "disposition",
            channel,
            role=receiver,
            first=first,
            last=None if last is None else last & 0xFFFFFFFF,
            settled=rng.random() < 0.7 or None,
            state=self.state(),
        )

    # -- actions -------------------------------------------------------------------------------------------------------

    def act(self) -> bytes:
        """Return some octets, perhaps none."""
        rng = self.rng
        if self.broker and rng.random() < (0.4 if self.routed else 0.02):
            return self.answer()
        if self.undecided and rng.random() < 0.4:
            channel, handle = self.undecided[-1]
            if rng.random() < 0.3:
                self.undecided.pop()
            if channel in self.sessions and handle in self.sessions[channel].links:
                return self.grant(channel, handle, self.sessions[channel].links[handle])
        channel = rng.choice(list(self.sessions) or [0])
        session = self.sessions.get(channel)
        if session is None or rng.random() < 0.01:
            free = [n for n in range(4) if n not in self.sessions]
            return self.begin(rng.choice(free)) if free else b""
        choice = rng.random()
        if choice < 0.12:
            return self.attach(channel, session)
        if choice < 0.55:
            return self.transfer(channel, session)
        if choice < 0.72:
            return self.disposition(channel, session)
        if choice < 0.90:
            return self.flow(channel, session)
        if choice < 0.95 and session.links:
            handle = rng.choice(list(session.links))
            del session.links[handle]
            return self.say("detach", channel, handle=handle, closed=rng.random() < 0.7 or None)
        if choice < 0.965:
            del self.sessions[channel]
            return self.say("end", channel)
        if choice < 0.97:
            self.open = False
            return self.say("close")
        if choice < 0.98:
            return b"\x00\x00\x00\x08\x02\x00\x00\x00"
        if self.rudeness and choice < 0.982:
            self.now_spoiled = True
            return rng.randbytes(rng.choice((8, 20, 600)))
        return b""

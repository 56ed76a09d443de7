"""Frames that a client sends, as octets, and the frames and messages that it receives."""

from typing import Any, Protocol

from tests.peer.codec import decode, encode
from tests.peer.frames import AMQP_HEADER, FRAME_HEADER, Frame, Performative, frame_octets, parse_frame, source, target
from tests.peer.types import Described, Map, Symbol, ULong

MANY = 0x7FFFFFFF  # a window or credit that never runs out
PART = 16000  # octets of payload in one frame, below the router's maximum of 16384
ANNOTATIONS = 0x72
PROPERTIES = 0x73
DATA = 0x75


def say(performative: str, /, *, channel: int = 0, payload: bytes = b"", **fields: Any) -> bytes:
    """Encode one frame."""
    return frame_octets(Performative(performative, **fields).encode() + payload, channel)


def start(window: int = MANY, next_outgoing_id: int = 0, **fields: Any) -> bytes:
    """Encode header, open and a first session on channel 0."""
    return AMQP_HEADER + say("open", container_id="test", **fields) + begin(0, window, next_outgoing_id)


def begin(channel: int, window: int = MANY, next_outgoing_id: int = 0) -> bytes:
    return say(
        "begin", channel=channel, next_outgoing_id=next_outgoing_id, incoming_window=window, outgoing_window=MANY
    )


def consumer(handle: int, address: str, credit: int = MANY, **fields: Any) -> bytes:
    """Encode the attach of a receiver and a flow that grants credit."""
    attach = say(
        "attach", name=f"c{handle}", handle=handle, role=True, source=source(address), target=target(), **fields
    )
    return attach + (flow(handle, credit) if credit else b"")


def producer(handle: int, address: str | None, **fields: Any) -> bytes:
    """Encode the attach of a sender. Without an address each message names its own."""
    fields = {"initial_delivery_count": 0, **fields}
    return say(
        "attach", name=f"p{handle}", handle=handle, role=False, source=source(), target=target(address), **fields
    )


def flow(
    handle: int | None, credit: int | None = None, window: int = MANY, delivery_count: int | None = 0, **fields: Any
) -> bytes:
    return say(
        "flow",
        next_incoming_id=0,
        incoming_window=window,
        next_outgoing_id=0,
        outgoing_window=MANY,
        handle=handle,
        delivery_count=delivery_count if handle is not None else None,
        link_credit=credit,
        **fields,
    )


def transfer(handle: int, number: int, message: bytes, part: int = PART, **fields: Any) -> bytes:
    """Encode one delivery, in as many frames as it needs."""
    parts = [message[at : at + part] for at in range(0, len(message), part)] or [b""]
    return b"".join(
        say(
            "transfer",
            payload=octets,
            handle=handle,
            delivery_id=number,
            delivery_tag=b"%d" % number,
            message_format=0,
            more=index < len(parts) - 1 or None,
            **fields,
        )
        for index, octets in enumerate(parts)
    )


def settle(first: int, last: int | None = None, state: Any = None, *, role: bool = True, settled: bool = True) -> bytes:
    return say("disposition", role=role, first=first, last=last, settled=settled or None, state=state)


def message(
    body: bytes,
    *,
    user: bytes | None = None,
    to: str | None = None,
    subject: str | None = None,
    annotations: list[tuple[Any, Any]] | None = None,
):
    """Encode a message."""
    sections = b""
    if annotations is not None:
        sections += encode(Described(ULong(ANNOTATIONS), Map(annotations)))
    if user is not None or to is not None or subject is not None:
        sections += encode(Described(ULong(PROPERTIES), [None, user, to, subject]))
    return sections + encode(Described(ULong(DATA), body))


def key(text: str) -> Symbol:
    return Symbol(text)


def sections(octets: bytes) -> list[tuple[int, Any]]:
    """Return (descriptor, value) of each section of a message."""
    found, at = [], 0
    while at < len(octets):
        value, at = decode(octets, at)
        found.append((int(value.descriptor), value.value))
    return found


class OctetSource(Protocol):
    """Test's end of a connection."""

    def take(self) -> bytes: ...


def frames(peer: OctetSource) -> list[Frame]:
    """Return the frames received since the last call, without protocol headers."""
    octets, at, found = peer.take(), 0, []
    while len(octets) - at >= FRAME_HEADER:
        if octets.startswith(b"AMQP", at):
            at += FRAME_HEADER
            continue
        size = int.from_bytes(octets[at : at + 4], "big")
        found.append(parse_frame(octets[at : at + size]))
        at += size
    return found


def messages(heard: list[Frame]) -> list[bytes]:
    """Return the whole messages in the frames, in the order of their last frames, without aborted ones."""
    partial: dict[tuple[int, int], bytes] = {}
    whole = []
    for frame in heard:
        if frame.name == "transfer":
            link = (frame.channel, frame.handle)
            partial[link] = partial.get(link, b"") + frame.payload
            if not frame.more:
                octets = partial.pop(link)
                if not frame.aborted:
                    whole.append(octets)
    return whole


def of(heard: list[Frame], name: str) -> list[Frame]:
    return [frame for frame in heard if frame.name == name]

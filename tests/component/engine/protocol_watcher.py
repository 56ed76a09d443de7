"""Watcher of the router's output on one connection: valid AMQP, and messages complete.

Messages made by `mark` name their producer. The watcher recognises them, compares every octet with a checksum, and
checks order and number on each link.
"""

import zlib

from tests.peer.codec import CodecError, decode
from tests.peer.frames import FRAME_HEADER, Frame, parse_frame
from tests.peer.random_peer import ECHOED, HEAD, MARK
from tests.peer.types import Described

DATA = 0x75
PROPERTIES, CORRELATION_ID = 0x73, 5
PROTOCOL_HEADER = b"AMQP"


class ProtocolWatcher:
    """Watcher of one connection, from its client's side. spoiled: connections whose messages may be damaged."""

    def __init__(self, number: int, spoiled: set[int]) -> None:
        self.number = number
        self.spoiled = spoiled
        self.rest = b""
        self.partial: dict[tuple[int, int], bytearray] = {}
        self.next_delivery: dict[int, int] = {}
        self.seen: dict[tuple[int, int, int, int], int] = {}
        self.reported: dict[tuple[int, int], bool] = {}
        self.frames: dict[str, int] = {}
        self.closed = False
        self.heard: list[Frame] = []

    def take(self, octets: bytes) -> list[Frame]:
        """Check the octets and return their frames. Raises AssertionError, or the codec's errors."""
        data = self.rest + octets
        at = 0
        while len(data) - at >= FRAME_HEADER:
            assert not self.closed, f"connection {self.number}: octets behind a close"
            if data.startswith(PROTOCOL_HEADER, at):
                at += FRAME_HEADER
                continue
            size = int.from_bytes(data[at : at + 4], "big")
            assert FRAME_HEADER <= size <= 1 << 20, f"connection {self.number}: frame of {size} octets"
            if size > len(data) - at:
                break
            self.octets(data[at : at + size])
            at += size
        self.rest = data[at:]
        heard, self.heard = self.heard, []
        return heard

    def octets(self, frame: bytes) -> None:
        try:
            parsed = parse_frame(frame)
        except (CodecError, UnicodeError, IndexError):
            if not self.spoiled:  # otherwise the router may have relayed unreadable octets
                raise
        else:
            self.frame(parsed)

    def frame(self, frame: Frame) -> None:
        self.heard.append(frame)
        self.frames[frame.name] = self.frames.get(frame.name, 0) + 1
        if frame.name == "transfer":
            self.transfer(frame)
        elif frame.name == "close":
            self.closed = True
        elif frame.name == "begin":
            self.next_delivery[frame.channel] = 0
            self.reported = {key: value for key, value in self.reported.items() if key[0] != frame.channel}
        elif frame.name == "attach" and frame.performative is not None and frame.performative.role is False:
            link = (frame.channel, frame.handle)
            assert link not in self.partial
            self.seen = {key: value for key, value in self.seen.items() if key[:2] != link}
        elif frame.name in ("detach", "end"):
            for channel, handle in list(self.partial):
                if channel == frame.channel and (frame.name == "end" or handle == frame.handle):
                    del self.partial[channel, handle]

    def transfer(self, frame: Frame) -> None:
        link = (frame.channel, frame.handle)
        if link not in self.partial:
            expected = self.next_delivery[frame.channel]
            assert frame.delivery_id == expected, f"delivery-id {frame.delivery_id}, expected {expected}"
            self.next_delivery[frame.channel] = (expected + 1) & 0xFFFFFFFF
            self.partial[link] = bytearray()
        message = self.partial[link]
        message += frame.payload
        if frame.aborted:
            del self.partial[link]
        elif not frame.more:
            del self.partial[link]
            self.message(link, bytes(message))

    def message(self, link: tuple[int, int], octets: bytes) -> None:
        """Check the sections of a whole message and its mark."""
        at = octets.find(MARK)
        if at < 0:
            return
        _, connection, sender, number, checksum = HEAD.unpack_from(octets, at)
        if connection in self.spoiled:
            return
        assert zlib.crc32(octets[at + HEAD.size :]) == checksum, f"message {number} of {connection} is damaged"
        offset = 0
        sections = []
        echoed = False
        while offset < len(octets):
            section, offset = decode(octets, offset)
            assert isinstance(section, Described), "a message holds what is not a section"
            sections.append(section.descriptor)
            echoed |= section.descriptor == PROPERTIES and section.value[CORRELATION_ID:][:1] == [ECHOED]
        last = self.seen.get((*link, connection, sender), -1)
        assert echoed or number > last, f"link {link} of {self.number}: message {number} of {connection} after {last}"
        self.seen[*link, connection, sender] = max(number, last)
        assert sections == sorted(set(sections)), f"sections {sections} of message {number}"

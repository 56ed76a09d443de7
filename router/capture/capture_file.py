"""File of captured messages: a header, a record for each message, and a trailer (docs/user/capture.md#the-file)."""

import contextlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct as Layout
from types import TracebackType
from typing import BinaryIO, Final, Self, TypeVar

import msgspec
from msgspec import Struct, field

from sluice.router import json_codec

MAGIC: Final = b"SLUICAP1"
RECORD_MOST: Final = 16 << 20  # octets of a record
TEXT_MOST: Final = 64 << 10  # octets of header and trailer, and of an address
MESSAGE_MOST: Final = RECORD_MOST - 2 * TEXT_MOST  # octets of a message, also of those that are not in the file
HEADER: Final = b"H"
MESSAGE: Final = b"M"
TRAILER: Final = b"T"
_FRAME: Final = Layout(">cII")  # kind, octets of the content, CRC-32 of both and of the content
_FIELDS: Final = Layout(">QIBQH")  # arrival (ns since the epoch), format, flags, omitted octets, octets of the address
_SETTLED: Final = 1  # flag

T = TypeVar("T")


class CaptureError(ValueError):
    """Raised for a file that is not a capture, or is damaged; its text names file and place."""


class CaptureHeader(Struct, frozen=True, kw_only=True):
    """Facts about a capture, known at its beginning.

    began: ns since the epoch. router: its id. patterns: of the captured addresses. payload: whether bodies are kept.
    """

    began: int
    router: str
    patterns: list[str]
    payload: bool
    version: str  # of Sluice


class CaptureTrailer(Struct, frozen=True, kw_only=True):
    """Facts about a capture, known at its end.

    reason: of its end. selected: messages that the taps were to copy, None if their counters could not be read.
    missed: messages without a record, by reason.
    """

    ended: int
    messages: int
    reason: str
    selected: int | None = None
    missed: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True if no message is known to be missing."""
        return self.selected is not None and not any(self.missed.values())


class CapturedMessage(Struct, frozen=True):
    """Message of a capture.

    arrived: ns since the epoch. message_format: of the transfer. octets: encoded sections. omitted: octets of body and
    footer that are missing in `octets`.
    """

    arrived: int
    address: str
    octets: bytes
    settled: bool = False
    message_format: int = 0
    omitted: int = 0

    @property
    def size(self) -> int:
        """Octets of the whole message."""
        return len(self.octets) + self.omitted


class CaptureWriter:
    """Writer of a capture, to a file that it creates with mode 0600. Owner: the command.

    messages: records written. octets: size of the file so far.
    """

    def __init__(self, path: Path, header: CaptureHeader) -> None:
        """Create the file. Raises OSError, FileExistsError among them."""
        self.path = path
        self.messages = 0
        self.octets = 0
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
        try:
            self._put(MAGIC)
            self._record(HEADER, _json(header))
            self.flush()
        except BaseException:
            self.discard()
            raise

    def write(self, message: CapturedMessage) -> None:
        """Write a message. Raises OSError, and CaptureError for a message that no reader would accept."""
        address = message.address.encode()
        if len(address) > min(TEXT_MOST, 0xFFFF) or message.size > MESSAGE_MOST:
            raise CaptureError(f"{self.path}: a message of {message.size} octets is too long for a capture")
        flags = _SETTLED if message.settled else 0
        head = _FIELDS.pack(message.arrived, message.message_format, flags, message.omitted, len(address))
        self._record(MESSAGE, head + address + message.octets)
        self.messages += 1

    def flush(self) -> None:
        """Hand all records to the kernel, so that they outlive this process. Raises OSError."""
        with self._named():
            self._file.flush()

    def finish(self, trailer: CaptureTrailer) -> None:
        """Write the trailer, and close the file durably. Raises OSError."""
        self._record(TRAILER, _json(trailer))
        self.flush()
        with self._named():
            os.fsync(self._file.fileno())
            self._file.close()

    def discard(self) -> None:
        """Remove the file."""
        self._file.close()
        self.path.unlink()

    def _record(self, kind: bytes, content: bytes) -> None:
        self._put(_FRAME.pack(kind, len(content), _checksum(kind, content)))
        self._put(content)

    def _put(self, octets: bytes) -> None:
        with self._named():
            self._file.write(octets)
        self.octets += len(octets)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Name the file in errors of writing it, such as those of a full disk."""
        try:
            yield
        except OSError as error:
            error.filename = str(self.path)
            raise


class CaptureReader:
    """Reader of a capture. Iteration yields the messages in their order.

    header: of the file. trailer: None until the end is reached, and for a capture that was killed. cut: octets of an
    incomplete record at the end, which are ignored. A file has at most one record in memory.
    """

    def __init__(self, path: Path) -> None:
        """Open the file and read its header. Raises OSError, CaptureError."""
        self.path = path
        self.trailer: CaptureTrailer | None = None
        self.cut = 0
        self._file: BinaryIO = path.open("rb")
        try:
            if self._file.read(len(MAGIC)) != MAGIC:
                raise CaptureError(f"{path} is not a capture: it does not begin with {MAGIC.decode()}")
            self._at = len(MAGIC)
            first = self._next()
            if first is None or first[0] != HEADER:
                raise CaptureError(f"{path} has no header")
            self.header = _parsed(CaptureHeader, first[1], f"{path}: header")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[CapturedMessage]:
        """Yield the messages. Raises OSError, CaptureError at a damaged record."""
        while (record := self._next()) is not None:
            kind, content, at = record
            if self.trailer is not None:
                raise self._damaged(at, "follows the trailer")
            if kind == TRAILER:
                self.trailer = _parsed(CaptureTrailer, content, f"{self.path}: trailer at octet {at}")
            elif kind == MESSAGE:
                yield self._message(content, at)
            else:
                raise self._damaged(at, "is a second header")

    def _next(self) -> tuple[bytes, bytes, int] | None:
        """Return kind, content and offset of the next record; None at the end of the whole records."""
        at = self._at
        head = self._file.read(_FRAME.size)
        if len(head) < _FRAME.size:
            self.cut = len(head)
            return None
        kind, size, checksum = _FRAME.unpack(head)
        most = RECORD_MOST if kind == MESSAGE else TEXT_MOST
        if kind not in (HEADER, MESSAGE, TRAILER) or size > most:
            raise self._damaged(at, "has no valid kind and length")
        content = self._file.read(size)
        if len(content) < size:
            self.cut = _FRAME.size + len(content)
            return None
        if _checksum(kind, content) != checksum:
            raise self._damaged(at, "has a wrong checksum")
        self._at = at + _FRAME.size + size
        return kind, content, at

    def _message(self, content: bytes, at: int) -> CapturedMessage:
        if len(content) < _FIELDS.size:
            raise self._damaged(at, "is too short")
        arrived, message_format, flags, omitted, length = _FIELDS.unpack_from(content)
        end = _FIELDS.size + length
        if end > len(content):
            raise self._damaged(at, "has an address that is cut off")
        if len(content) - end + omitted > MESSAGE_MOST:
            raise self._damaged(at, f"has a message of {len(content) - end + omitted} octets")
        try:
            address = content[_FIELDS.size : end].decode()
        except UnicodeDecodeError as error:
            raise self._damaged(at, "has an address that is not UTF-8") from error
        return CapturedMessage(arrived, address, content[end:], bool(flags & _SETTLED), message_format, omitted)

    def _damaged(self, at: int, why: str) -> CaptureError:
        return CaptureError(f"{self.path} is damaged: the record at octet {at} {why}")


def _checksum(kind: bytes, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(kind + len(content).to_bytes(4)))


def _json(value: Struct) -> bytes:
    octets = json_codec.encode(msgspec.to_builtins(value))
    if len(octets) > TEXT_MOST:
        raise CaptureError(f"header or trailer has more than {TEXT_MOST} octets")
    return octets


def _parsed(kind: type[T], octets: bytes, what: str) -> T:
    try:
        return msgspec.convert(json_codec.decode(octets), kind)
    except ValueError as error:
        raise CaptureError(f"{what} is damaged: {error}") from error

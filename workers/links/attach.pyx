"""Fields of an attach (AMQP 1.0 part 2, 2.7.3): their positions, and the values that decide about a link."""

from typing import Final

from sluice.router.amqp.codec import decode_one
from sluice.router.amqp.errors import INVALID_FIELD, RemoteError
from sluice.workers.links.terminus import NULL

(
    NAME, HANDLE, ROLE, SND_MODE, RCV_MODE, SOURCE_FIELD, TARGET_FIELD, UNSETTLED, INCOMPLETE, INITIAL_COUNT,
    MAX_SIZE, OFFERED, DESIRED, PROPERTIES,
) = range(14)  # fmt: skip
FIELDS: Final = 14
SENDER: Final = b"\x42"  # role false
RECEIVER: Final = b"\x41"
SND_SETTLED: Final = 1
SND_MIXED: Final = 2
RCV_FIRST: Final = 0
RCV_SECOND: Final = 1


def padded(items: list[bytes]) -> list[bytes]:
    """Pad the items of an attach to all fields."""
    return items + [NULL] * (FIELDS - len(items))


def check_attach(items: list[bytes]) -> None:
    """Check the fields that the engine does not read. Raises RemoteError."""
    for index, name in ((SND_MODE, "snd-settle-mode"), (RCV_MODE, "rcv-settle-mode")):
        value = decode_one(items[index]) if index < len(items) else None
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value > SND_MIXED):
            raise RemoteError("link", INVALID_FIELD, f"attach: {name} is not valid")


def settle_mode(items: list[bytes], index: int) -> int:
    """Return the settle mode at a position of padded items, or its default."""
    value = decode_one(items[index])
    if isinstance(value, int) and 0 <= value <= SND_MIXED:
        return value
    return RCV_FIRST if index == RCV_MODE else SND_MIXED


def initial_count(items: list[bytes]) -> int:
    """Return the initial delivery-count in padded items; 0 if there is no valid one.

    The first flow counts from it (routing-semantics.md A-5).
    """
    count = decode_one(items[INITIAL_COUNT])
    valid = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= 0xFFFFFFFF
    return int(count) if valid else 0


def message_limit(items: list[bytes]) -> int:
    """Return the largest message in octets that the peer of an attach accepts, from padded items; 0: any size."""
    value = decode_one(items[MAX_SIZE])
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 64 else 0

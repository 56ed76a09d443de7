"""Resets of groups of readers: positions at which their queries have to go on.

The position of a query is in its checkpoint, which only Spark writes. A reset therefore waits in _resets/GROUP.json
until the query plans its next batch. That batch begins at the offsets of the reset, and the offset in the checkpoint
has the identity of the reset, so it happens once.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from sluice.pipeline.errors import LandingError
from sluice.pipeline.stores import LandingStore
from sluice.router import json_codec

RESETS = "_resets"
#: Keys in the offset of a stream: identity of the last reset, and where the batch begins that follows it.
RESET, BEGIN = "_reset", "_begin"


@dataclass(frozen=True)
class Reset:
    """Next segment of each log after a reset."""

    identity: str
    offsets: dict[str, int]


def read_reset(store: LandingStore, group: str) -> Reset | None:
    """Return the last reset of a group. Raises LandingError for a damaged file."""
    path = f"{RESETS}/{group}.json"
    octets = store.read(path)
    if octets is None:
        return None
    try:
        found = json_codec.decode(octets)
        return Reset(str(found["id"]), {str(log): int(number) for log, number in found["offsets"].items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LandingError(f"{store.url}/{path} is damaged") from None


def write_reset(store: LandingStore, group: str, offsets: Mapping[str, int]) -> None:
    made = {"id": uuid.uuid4().hex, "offsets": dict(sorted(offsets.items()))}
    store.make_folder(RESETS)
    store.publish(f"{RESETS}/{group}.json", json_codec.encode(made))


def delete_reset(store: LandingStore, group: str) -> None:
    store.delete(f"{RESETS}/{group}.json")

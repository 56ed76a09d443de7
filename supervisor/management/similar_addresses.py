"""EXPLAIN: addresses with consumers whose names are similar to an address without any, which may be misspelt."""

import heapq
from collections.abc import Generator, Iterable
from difflib import SequenceMatcher
from typing import Final

from sluice.router.addressing.address import MOBILE
from sluice.supervisor.addresses.record import AddressRecord

# A comparison of names of this length takes at most some milliseconds, whatever the names.
_NAME_MOST: Final = 100  # characters
_EXAMINED_MOST: Final = 20_000  # addresses
_COMPARED_MOST: Final = 500  # addresses whose letters are similar, so that their order is compared as well
_EXAMINED_A_STEP: Final = 200
_SIMILARITY: Final = 0.75  # least ratio of `SequenceMatcher`; `ordres` and `orders` have 0.83
_SHOWN: Final = 3
_HIDDEN: Final = ("$", "_")  # beginnings of addresses of the router itself


def similar_addresses(records: Iterable[AddressRecord], name: str) -> Generator[None, None, list[str]]:
    """Return a finding about similar addresses, or nothing. Yields before other events are to be handled."""
    if len(name) > _NAME_MOST:
        return []
    matcher = SequenceMatcher(b=name)
    found: list[tuple[float, str]] = []
    compared = 0
    for number, record in enumerate(list(records)[:_EXAMINED_MOST], 1):
        if not number % _EXAMINED_A_STEP:
            yield
        other = record.key[2:]
        if record.key[0] != MOBILE or not (record.consumers or record.remotes) or other.startswith(_HIDDEN):
            continue
        if len(other) > _NAME_MOST or other == name or compared == _COMPARED_MOST:
            continue
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() < _SIMILARITY or matcher.quick_ratio() < _SIMILARITY:
            continue
        compared += 1
        if not compared % 10:
            yield
        if (ratio := matcher.ratio()) >= _SIMILARITY:
            found.append((ratio, other))
    names = dict.fromkeys(other for _, other in heapq.nlargest(_SHOWN, found))
    if not names:
        return []
    listed = ", ".join(f"'{other}'" for other in names)
    return [f"Is it misspelt? There are consumers at {listed}"]

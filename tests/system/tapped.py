"""Counters of taps, and the deliveries of their consumers."""

from __future__ import annotations

from collections.abc import Callable

from tests.peer.links import PeerReceiver
from tests.peer.management import Management
from tests.system.router import poll

TAP = "router.config.tap"
#: Annotation of a copy with the address that its original was sent to.
ADDRESS = "x-opt-sluice.address"


def counters(management: Management, name: str) -> dict[str, int]:
    """Return the counters of a tap, without `Count` at the end of their names, and without those by address."""
    row = management.one(TAP, name=name)
    del row["missedElsewhereCount"]
    return {key.removesuffix("Count"): value for key, value in row.items() if key.endswith("Count")}


def growth(management: Management, name: str) -> Callable[..., None]:
    """Return a function that waits until counters of a tap have grown by numbers since this call."""
    before = counters(management, name)

    def wait(**grown: int) -> None:
        def present() -> dict[str, int]:
            return {key: value - before[key] for key, value in counters(management, name).items()}

        wanted = {**dict.fromkeys(before, 0), **grown}
        last: dict[str, int] = {}

        def reached() -> bool:
            last.update(present())
            return last == wanted

        try:
            poll(reached, f"counters of {name}: {wanted}")
        except AssertionError:
            assert last == wanted
            raise

    return wait


def no_more(receiver: PeerReceiver) -> bool:
    """Return True if no delivery waits that has not been taken."""
    receiver.peer.barrier()
    return len(receiver.deliveries) == receiver.taken


def missed(management: Management, name: str) -> tuple[dict[str, int], int]:
    """Return the missed messages of a tap by address, and the number of those of further addresses."""
    row = management.one(TAP, name=name)
    return row["missedByAddress"], row["missedElsewhereCount"]

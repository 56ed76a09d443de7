"""Taps of `sluice capture`: made for patterns or found by name, their counters, and their removal.

A capture attaches its receiver before it makes its taps. So a tap of a capture whose address has no consumer belongs to
a capture that was killed, and any later capture removes it.
"""

import contextlib
import uuid
from collections.abc import Sequence
from typing import Final

from sluice.router.cli.client import CREATED, NO_CONTENT, PREFIX, ManagementClient, NotFoundStatus, Row
from sluice.router.cli.errors import ToolError
from sluice.router.cli.options import QueryTarget

TYPE: Final = "router.config.tap"
NAMES: Final = "capture-"  # beginning of the names of taps
ADDRESSES: Final = "capture/"  # beginning of their addresses
#: Attributes of a tap that count messages without a copy, by the reason in the trailer of a capture.
MISSED: Final = {
    "without consumer": "withoutConsumerCount",
    "beyond bounds": "beyondBoundsCount",
    "too long": "tooLongCount",
    "stalled": "stalledCount",
    "returned": "returnedCount",
}
_SELECTED: Final = "selectedCount"
_REJECTED: Final = "rejectedCount"
#: Reason for which the router rejects a copy itself: it is longer than the max-message-size of the capture.
TOO_LONG_FOR_FILE: Final = "too long for the file"


class CaptureTaps:
    """Taps of one capture. Each call has a connection of its own, because the capture may last for hours.

    address: from which the capture receives. patterns: of the captured addresses. router: id of the router.
    """

    def __init__(self, where: QueryTarget, patterns: Sequence[str], tap: str | None) -> None:
        """Find the tap named `tap`, or choose names for taps of the patterns. Raises ToolError."""
        self._where = where
        self._made: list[str] = []  # names of the taps to remove
        self._before: dict[str, int] = {}  # counters of a found tap at the beginning
        self._id = uuid.uuid4().hex[:12]
        with ManagementClient(where) as client:
            self.router = str(client.rows("router", ["id"])[0]["id"])
            if tap is None:
                self.patterns = list(patterns)
                self.address = ADDRESSES + self._id
                self._names = [f"{NAMES}{self._id}-{number}" for number in range(len(patterns))]
                return
            found = [row for row in client.rows(TYPE) if row["name"] == tap]
            if not found:
                raise ToolError(f"the router has no tap '{tap}': `sluice manage query --type {TYPE}` lists its taps")
            self.patterns = [str(found[0]["pattern"])]
            self.address = str(found[0]["address"])
            self._names = [tap]
            self._before = _sum(found)

    def make(self) -> list[str]:
        """Make the taps, after the receiver is attached. Return the names of taps of killed captures that were removed.

        Raises ToolError, ManagementError; then `remove` removes those that were made.
        """
        if self._before:
            return []
        with ManagementClient(self._where) as client:
            stale = _remove_stale(client)
            for name, pattern in zip(self._names, self.patterns, strict=True):
                self._made.append(name)  # before the call: its answer may be lost
                body = {"pattern": pattern, "address": self.address}
                client.call("CREATE", {"type": PREFIX + TYPE, "name": name}, body, expect=CREATED)
        return stale

    def counters(self, rejected: int) -> tuple[int, dict[str, int]]:
        """Return the number of selected messages, and of those without a record by reason, since the beginning.

        rejected: copies that the capture has rejected, which have no reason here.
        """
        with ManagementClient(self._where) as client:
            rows = [row for row in client.rows(TYPE) if row["name"] in self._names]
        if len(rows) < len(self._names):
            raise ToolError("a tap of this capture was removed meanwhile")
        found = {key: value - self._before.get(key, 0) for key, value in _sum(rows).items()}
        missed = {reason: found[key] for reason, key in MISSED.items()}
        return found[_SELECTED], {**missed, TOO_LONG_FOR_FILE: max(found[_REJECTED] - rejected, 0)}

    def remove(self) -> None:
        """Remove the taps that were made. Raises ToolError, ManagementError."""
        if not self._made:
            return
        with ManagementClient(self._where) as client:
            while self._made:
                with contextlib.suppress(NotFoundStatus):
                    _delete(client, self._made[-1])
                self._made.pop()

    @property
    def left(self) -> list[str]:
        """Names of the taps that are still to be removed."""
        return self._made


def _sum(rows: Sequence[Row]) -> dict[str, int]:
    return {key: sum(int(row[key]) for row in rows) for key in (_SELECTED, _REJECTED, *MISSED.values())}


def _remove_stale(client: ManagementClient) -> list[str]:
    """Remove the taps of captures whose receiver is gone. Return their names."""
    taps = [row for row in client.rows(TYPE, ["name", "address"]) if str(row["name"]).startswith(NAMES)]
    taps = [row for row in taps if str(row["address"]).startswith(ADDRESSES)]
    if not taps:
        return []
    columns = ["name", "subscriberCount", "remoteCount"]
    consumed = {
        str(row["name"])[2:]  # without class and phase
        for row in client.rows("router.address", columns)
        if row["subscriberCount"] or row["remoteCount"]
    }
    stale = [str(row["name"]) for row in taps if row["address"] not in consumed]
    for name in stale:
        with contextlib.suppress(NotFoundStatus):  # another capture has removed it
            _delete(client, name)
    return stale


def _delete(client: ManagementClient, name: str) -> None:
    client.call("DELETE", {"type": PREFIX + TYPE, "name": name}, expect=NO_CONTENT)

"""An address table with its counter slots and journal, for tests of subsystems without a core."""

from typing import Any

from sluice.router.control.ops import Op
from sluice.supervisor.addresses.counter_slots import CounterSlots
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.journal.journal import Journal
from tests.unit.ops import wire


class JournaledTable:
    """Address table whose changes leave through a journal."""

    def __init__(self, limit: int = 100) -> None:
        self.journal = Journal()
        self.reset: list[int] = []  # counter slots that were reset
        self.slots = CounterSlots(self.journal, limit, self.reset.append)
        self.table = AddressTable(self.journal, self.slots)

    def take_delta(self) -> tuple[int, list[Op]] | None:
        self.table.before_delta()
        delta = self.journal.take_delta()
        self.slots.after_delta()
        return delta

    def take_ops(self) -> list[Any]:
        """Return the ops of all pending deltas."""
        result = []
        while (delta := self.take_delta()) is not None:
            result += wire(delta[1])
        return result

"""Counter slots: allocation, and reuse after the removal of their users is acknowledged."""

from sluice.router.control.ops import AddressGone
from sluice.supervisor.addresses.counter_slots import CounterSlots
from sluice.supervisor.journal.journal import Journal


def test_slots_end_at_limit() -> None:
    slots = CounterSlots(Journal(), 3, lambda number: None)
    assert [slots.allocate(), slots.allocate(), slots.allocate()] == [1, 2, None]
    assert (slots.used, slots.end, slots.limit) == (2, 3, 3)


def test_released_slot_is_reset_after_acknowledgement() -> None:
    journal = Journal()
    journal.join(0, 0)
    reset: list[int] = []
    slots = CounterSlots(journal, 3, reset.append)
    first, second = slots.allocate(), slots.allocate()
    assert (first, second) == (1, 2)
    journal.append(AddressGone(2))
    slots.release(2)
    slots.after_delta()  # the removal is not published yet
    journal.take_delta()
    journal.append(AddressGone(1))
    slots.release(1)
    journal.take_delta()
    slots.after_delta()
    assert (reset, slots.allocate()) == ([], None)
    journal.acknowledge(0, 1)
    slots.after_delta()
    assert (reset, slots.allocate(), slots.allocate()) == ([2], 2, None)
    journal.acknowledge(0, 2)
    slots.after_delta()
    assert (reset, slots.allocate()) == ([2, 1], 1)
    assert slots.used == 2

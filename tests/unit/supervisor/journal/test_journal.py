"""Journal: deltas of ops, acknowledgements of epochs, and actions that wait for them."""

from sluice.router.control.ops import AddressGone
from sluice.supervisor.journal.journal import Journal


def journal_with_epochs(count):
    """Return a journal with `count` deltas taken."""
    journal = Journal()
    for _ in range(count):
        journal.append(AddressGone(1))
        journal.take_delta()
    return journal


def test_delta_has_ops_since_the_last_one():
    journal = Journal()
    assert (journal.epoch, journal.pending_epoch, journal.next_epoch) == (0, 0, 1)
    assert journal.take_delta() is None
    assert [journal.append(AddressGone(1)), journal.append(AddressGone(2))] == [1, 1]
    assert (journal.epoch, journal.pending_epoch, journal.next_epoch) == (0, 1, 1)
    assert journal.take_delta() == (1, [AddressGone(1), AddressGone(2)])
    assert (journal.epoch, journal.pending_epoch, journal.next_epoch) == (1, 1, 2)
    assert journal.take_delta() is None
    journal.append(AddressGone(3))
    assert journal.take_delta() == (2, [AddressGone(3)])


def test_epoch_is_settled_by_all_live_workers():
    journal = journal_with_epochs(7)
    assert journal.settled == 7  # without workers
    journal.join(0, 5)
    journal.join(1, 5)
    journal.acknowledge(0, 7)
    assert (journal.settled, journal.late(7)) == (5, [1])
    journal.acknowledge(1, 6)
    assert journal.settled == 6
    journal.leave(1)
    assert journal.settled == 7
    journal.acknowledge(1, 7)  # sent before its exit, received after it
    assert (journal.has(1), journal.acknowledged(1)) == (False, -1)


def test_actions_run_in_order_when_settled():
    journal = journal_with_epochs(3)
    journal.join(0, 1)
    done = []
    journal.call_when_acknowledged(lambda: done.append(2), 2)
    journal.call_when_acknowledged(lambda: done.append(3))
    journal.run_actions()
    assert done == []
    journal.acknowledge(0, 2)
    journal.run_actions()
    assert done == [2]
    journal.leave(0)
    journal.run_actions()
    assert done == [2, 3]


def test_awaited_epochs_are_known():
    journal = Journal()
    journal.join(0, 1)
    assert not journal.awaits(2)
    journal.call_when_acknowledged(list, 4)
    assert journal.awaits(4)
    journal.await_all(5)
    assert journal.awaits(5)
    assert not journal.awaits(6)

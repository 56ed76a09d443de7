"""Acknowledgements of epochs, and actions that wait for them."""

from supervisor.journal.epochs import Epochs


def test_epoch_is_settled_by_all_live_workers():
    epochs = Epochs()
    assert epochs.settled(7) == 7  # without workers
    epochs.join(0, 5)
    epochs.join(1, 5)
    epochs.acknowledge(0, 7)
    assert (epochs.settled(7), epochs.late(7)) == (5, [1])
    epochs.acknowledge(1, 6)
    assert epochs.settled(7) == 6
    epochs.leave(1)
    assert epochs.settled(7) == 7
    epochs.acknowledge(1, 7)  # sent before its exit, received after it
    assert (epochs.has(1), epochs.acknowledged(1)) == (False, -1)


def test_actions_run_in_order_when_settled():
    epochs = Epochs()
    epochs.join(0, 1)
    done = []
    epochs.call_when_acknowledged(2, lambda: done.append(2))
    epochs.call_when_acknowledged(3, lambda: done.append(3))
    epochs.run_actions(3)
    assert done == []
    epochs.acknowledge(0, 2)
    epochs.run_actions(3)
    assert done == [2]
    epochs.leave(0)
    epochs.run_actions(3)
    assert done == [2, 3]


def test_awaited_epochs_are_known():
    epochs = Epochs()
    epochs.join(0, 1)
    assert not epochs.awaits(2)
    epochs.call_when_acknowledged(4, list)
    assert epochs.awaits(4)
    epochs.await_all(5)
    assert epochs.awaits(5)
    assert not epochs.awaits(6)

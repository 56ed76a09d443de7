"""Acknowledgements of epochs, and actions that wait for them."""

from supervisor.journal.epochs import Epochs


def test_actions_wait_for_all_or_one_worker():
    epochs: Epochs[str] = Epochs()
    epochs.join(0, 5)
    epochs.join(1, 5)
    epochs.hold_for_all(6, "all 6")
    epochs.hold_for_all(7, "all 7")
    epochs.hold_for_worker(0, 6, "own 6")
    assert list(epochs.released(7)) == []
    epochs.acknowledge(0, 6)
    assert list(epochs.released(7)) == ["own 6"]
    epochs.acknowledge(1, 7)
    assert list(epochs.released(7)) == ["all 6"]
    assert epochs.late(7) == [0]
    epochs.acknowledge(0, 7)
    assert list(epochs.released(7)) == ["all 7"]


def test_lost_worker_does_not_block_epoch():
    epochs: Epochs[str] = Epochs()
    epochs.join(0, 5)
    epochs.join(1, 5)
    epochs.hold_for_all(6, "all")
    epochs.hold_for_worker(1, 6, "own")
    epochs.acknowledge(0, 6)
    epochs.leave(1)
    assert list(epochs.released(6)) == ["all"]
    epochs.acknowledge(1, 6)  # sent before its exit, received after it
    assert epochs.acknowledged(1) == -1
    assert epochs.settled(6) == 6


def test_epoch_without_workers_is_acknowledged():
    epochs: Epochs[str] = Epochs()
    epochs.hold_for_all(3, "all")
    assert list(epochs.released(3)) == ["all"]


def test_actions_run_in_order_when_settled():
    epochs: Epochs[str] = Epochs()
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
    epochs: Epochs[str] = Epochs()
    epochs.join(0, 1)
    assert not epochs.awaits(2)
    epochs.hold_for_worker(1, 2, "for a worker that is not there")
    assert not epochs.awaits(2)
    epochs.hold_for_worker(0, 2, "own")
    assert epochs.awaits(2)
    assert not epochs.awaits(3)
    epochs.hold_for_all(3, "all")
    epochs.call_when_acknowledged(4, list)
    assert epochs.awaits(4)
    epochs.await_all(5)
    assert epochs.awaits(5)
    assert not epochs.awaits(6)

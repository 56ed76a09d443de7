"""Time at which a worker acknowledges an epoch."""

from sluice.router.control.messages import Ack
from sluice.router.control.ops import DefaultOp, UnawaitedOp


def test_acknowledgement_of_later_epoch_does_not_wake_supervisor(routers):
    (worker,) = routers(1).workers
    control, epoch = worker.control, worker.table.epoch
    worker.on_delta(epoch + 1, [DefaultOp("closest"), UnawaitedOp()])
    assert not control.dirty
    worker.on_delta(epoch + 2, [DefaultOp("balanced")])
    assert control.dirty
    assert control.pending == [(Ack(epoch + 1), None), (Ack(epoch + 2), None)]

from sluice.router.amqp.scheduler import Scheduler
from sluice.workers.poller import Poller
from sluice.workers.transport.base import Transport

class LoopScheduler(Scheduler):
    def __init__(self, poller: Poller) -> None: ...
    @property
    def entering(self) -> list[tuple[int, int, Transport]]: ...

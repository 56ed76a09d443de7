from collections import deque

from router.amqp.scheduler import Scheduler
from workers.poller import Poller
from workers.transport.base import Transport

class LoopScheduler(Scheduler):
    def __init__(self, poller: Poller) -> None: ...
    @property
    def entering(self) -> deque[tuple[int, Transport]]: ...

"""Router without processes that drains, on a manual clock. Its links have the counters that a test gives them."""

from types import SimpleNamespace
from typing import Any

from sluice.router.control import messages
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.drain.drain import STEP_SECONDS, RouterDrain
from tests.unit.supervisor.core_with_replicas import CoreWithReplicas

VERBOSE = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")})


class DrainingRouter(CoreWithReplicas):
    """Core with replicas, and the drain of the router. Workers end a connection when the test calls `close`."""

    def __init__(self, workers: int = 1, text: str | None = None) -> None:
        super().__init__(workers, text)
        self.now = 100.0
        self.steps: list[Any] = []
        self.ends = 0
        self.calls: list[str] = []
        self.counters: dict[tuple[int, int], dict[str, int]] = {}  # by worker and slot
        self.log = ProcessLog(VERBOSE)
        core: Any = self.core
        core.waker = SimpleNamespace(later=self._later, wake=lambda: None)
        services: Any = SimpleNamespace(
            acceptor=SimpleNamespace(drain=lambda: self.calls.append("acceptor")),
            connectors=SimpleNamespace(stop=lambda: self.calls.append("connectors")),
        )
        self.drain = RouterDrain(core, services, self, self._finished, self.log, lambda: self.now)

    def _later(self, seconds: float, function: Any) -> Any:
        assert seconds == STEP_SECONDS
        self.steps.append(function)
        return SimpleNamespace(cancel=self.steps.clear)

    def _finished(self) -> None:
        self.ends += 1

    def link_counters(self, worker: int, slot: int) -> dict[str, int]:
        return self.counters.setdefault((worker, slot), {"held": 0, "undelivered": 0, "deliveries": 0})

    def open(self, index: int = 0, listener: int = 0, **properties: Any) -> int:
        """Return the number of a new open connection."""
        worker = self.replicas[index].worker
        number = self.core.connections.adopt(worker, self.configuration.listeners[listener], "host:1", "peer:2").number
        opened = messages.Opened(conn=number, container="c", hostname=None, user=None, properties=properties, tls=None)
        self.core.receive(worker, opened)
        self.flush()
        return number

    def pass_time(self, seconds: float) -> None:
        """Make the steps of some time. All workers apply all deltas at once."""
        for _ in range(round(seconds / STEP_SECONDS)):
            self.now += STEP_SECONDS
            steps, self.steps = self.steps, []
            for step in steps:
                step()
            self.settle()

    def sent(self, kind: type[Any]) -> list[int]:
        """Return the connections that were sent orders of a type, in order."""
        return [
            answer.conn for replica in self.replicas.values() for answer in replica.answers if isinstance(answer, kind)
        ]

    @property
    def closed(self) -> list[int]:
        """Connections that the workers were ordered to close."""
        return self.sent(messages.Close)

    def lines(self) -> list[str]:
        """Return the lines of the log."""
        return [entry.text for entry in self.log.recent(None)]

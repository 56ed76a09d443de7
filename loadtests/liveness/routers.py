"""Routers under test: started once, used for many rounds, inspected between them."""

from __future__ import annotations

import re
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loadtests.liveness.neighbour import NeighbourRouter19
from tests.peer.management import Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.system.bystanders.bystanders import Bystanders
from tests.system.bystanders.harness import clients_sections
from tests.system.counters import Counters
from tests.system.networks import CONVERGENCE, interior, ports
from tests.system.router import SETTINGS, RouterProcess, Section, listener, poll

#: Frames of a session window at listeners that limit it.
SMALL_WINDOW = 20
CAPACITY = 250
#: Routers between clients: one; two; one and a neighbour of 1.19.
HOPS = ("none", "two", "1.19")
#: Seconds after which a management client's connection is replaced; the router's idle time-out is 16 s.
AGENT_AGE = 6.0
_HELD = re.compile(r"^(sluice_(?!pool_)\w*(?:buffered|held)_(?:bytes|octets)(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)

KINDS = {"connector": "connector", "linkRoute": "router.config.linkRoute", "autoLink": "router.config.autoLink"}


def _listeners() -> list[Section]:
    return [
        listener("clients"),
        listener("small", maxSessionFrames=SMALL_WINDOW, maxFrameSize=2048),
        listener("brokers", role="route-container"),
        listener("web", http=True),
        *clients_sections(),
    ]


class RoutersUnderTest:
    """Single router, or two with a connection between them."""

    def __init__(self, workers: int, hop: str) -> None:
        self.workers = workers
        #: two: both Sluice; 1.19: one with a neighbour of 1.19
        self.kind = hop
        self.hop = hop != "none"
        self.neighbour: NeighbourRouter19 | None = None
        self._stack = ExitStack()
        self.routers: list[RouterProcess] = []
        self._agents: dict[int, tuple[Management, float]] = {}
        self._counters: list[Counters] = []
        self._bystanders: Bystanders | None = None

    def __enter__(self) -> Self:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="liveness-")))
        configurations = [[*_listeners(), *SETTINGS]]
        if self.kind == "1.19":
            inner = [one for one in interior("A") if one[1].get("name") or one[0] != "listener"]
            configurations = [[*inner, *configurations[0]]]
        elif self.hop:
            (port,) = ports(1)
            configurations = [
                [
                    *(one for one in interior("A", port) if one[1].get("name") or one[0] != "listener"),
                    *configurations[0],
                ],
                [
                    *(one for one in interior("B", to=(port,)) if one[1].get("name") or one[0] != "listener"),
                    *configurations[0],
                ],
            ]
        try:
            for number, sections in enumerate(configurations):
                directory = folder / f"router{number}"
                directory.mkdir()
                router = RouterProcess(directory, sections, self.workers)
                self.routers.append(router)
                router.start()
                self._counters.append(self._stack.enter_context(Counters(router)))
            for number in range(len(self.routers)):
                self.agent(number)
            if self.kind == "two":
                self._converge()
            elif self.hop:
                self.neighbour = NeighbourRouter19(self.routers[0].ports["net"], "A")
            self._bystanders = Bystanders(self.routers[0], self.routers[1] if self.kind == "two" else None)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _converge(self) -> None:
        poll(
            lambda: all(len(self.query(n, "router.node")) == 2 for n in (0, 1)), "routers know each other", CONVERGENCE
        )

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bystanders is not None:
            self._bystanders.stop()
        if self.neighbour is not None:
            self.neighbour.close()
        for agent, _used in self._agents.values():
            agent.peer.drop()
        for router in self.routers:
            router.kill()
        self._stack.close()

    # --- management ---------------------------------------------------------------------------------------------------

    def agent(self, number: int) -> Management:
        """Return a management client. It sends no heartbeats, so one that was idle for long is replaced."""
        agent, used = self._agents.get(number, (None, 0.0))
        now = time.monotonic()
        if agent is None or now - used > AGENT_AGE:
            if agent is not None:
                agent.peer.drop()
            agent = Management(AmqpPeer.opened(self.routers[number].ports["clients"], container_id="agent"))
        self._agents[number] = agent, now
        return agent

    def create(self, number: int, kind: str, name: str, **attributes: Any) -> None:
        """Create a configured entity."""
        self.agent(number).create(KINDS[kind], name, **attributes)

    def delete(self, number: int, kind: str, name: str) -> None:
        """Delete a configured entity."""
        self.agent(number).delete(KINDS[kind], name)

    def delete_any(self, number: int, kind: str, name: str) -> None:
        """Delete a configured entity, if it exists."""
        try:
            self.delete(number, kind, name)
        except ManagementStatusError as error:
            if error.code != 404:
                raise

    def query(self, number: int, kind: str) -> list[dict[str, Any]]:
        """Return the rows of a type."""
        return self.agent(number).query(kind)

    # --- bystanders ---------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Let the bystanders send."""
        assert self._bystanders is not None
        self._bystanders.go_on()

    def rest(self) -> list[str]:
        """Stop the bystanders. Return their disturbances."""
        assert self._bystanders is not None
        try:
            self._bystanders.check(rest=True)
        except AssertionError as error:
            return [str(error)]
        return []

    # --- from inside --------------------------------------------------------------------------------------------------

    def gauges(self) -> list[dict[str, int]]:
        """Return the gauges of each router."""
        return [counters.gauges() for counters in self._counters]

    def held(self) -> dict[str, float]:
        """Return the metrics of held octets that are not 0."""
        found: dict[str, float] = {}
        for number, router in enumerate(self.routers):
            url = f"http://127.0.0.1:{router.ports['web']}/metrics"
            with urllib.request.urlopen(url, timeout=10) as answer:
                page = answer.read().decode()
            found.update({f"{number}: {name}": float(value) for name, value in _HELD.findall(page) if float(value)})
        return found

    def trouble(self) -> list[str]:
        """Describe faults independent of traffic: a router that ended, workers that crashed, faults in logs."""
        found = []
        for router in self.routers:
            if not router.alive:
                found.append(f"the router in {router.directory.name} ended:\n{router.tail(20)}")
            marks = ("(critical)", "Traceback", "died")
            found += [line for line in router.log.splitlines() if any(mark in line for mark in marks)]
        return found

    def drops(self) -> list[dict[str, int]]:
        """Return the deliveries that each router has dropped since its start, by reason."""
        found = []
        for counters in self._counters:
            totals = counters.totals()
            found.append({name: totals[name] for name in totals if name.startswith("dropped.") and totals[name]})
        return found

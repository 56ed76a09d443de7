"""Router with a management agent, a real core and real shared memory, but no processes. Requests go in and answers
come out as octets."""

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.control.ops import Op
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.router.ring.region import Region
from sluice.router.testing.interworker import claim_link, set_worker
from sluice.supervisor.addresses.inprocess import LocalMessage
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.composition import RouterCore, add_services
from sluice.supervisor.configuration.live import LiveConfiguration
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.listeners.acceptor import Acceptor
from sluice.supervisor.management.agent import Agent
from sluice.supervisor.runtime.host_names import Resolver
from tests.peer import message
from tests.peer.management import PREFIX, ManagementReply
from tests.unit.supervisor.harness import attach

QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})
VERBOSE = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null"), "AGENT": ModuleSettings(mask=127)})
WORKERS = 2
PATIENCE = 30.0  # seconds for an answer that waits for a thread
CONFIGURATION = """
router {
    id: QDR
    metadata: of tests
    workerThreads: 2
}
listener {
    host: 127.0.0.1
    port: 0
    name: main
}
listener {
    host: 127.0.0.1
    port: 1
    name: tenants
    multiTenant: yes
    role: route-container
}
address {
    prefix: closest/
    distribution: closest
    priority: 7
}
address {
    name: fb
    pattern: fb.*
    enableFallback: yes
}
address {
    prefix: way
    waypoint: yes
}
exchange {
    name: E
    address: ex
}
binding {
    exchangeName: E
    bindingKey: a.b
    nextHopAddress: hop
}
"""


def _no_http(acceptor: Acceptor) -> NoReturn:
    raise AssertionError("there are no HTTP listeners here")


class ManagedRouter:
    """Router without its processes. `later` holds the calls that the agent has requested."""

    def __init__(self, links: int = 64, log: LogSettings = QUIET, text: str = CONFIGURATION) -> None:
        self.region = Region.create(WORKERS, links, 64, 4096)
        self.log = ProcessLog(log)
        self.configuration = load_text("router.conf", text)
        self.core = RouterCore(self.configuration, self.log, 64, self.region.reset_address)
        self.workers = [WorkerProcess(index, 1) for index in range(WORKERS)]
        for worker in self.workers:
            worker.stage = WorkerStage.SERVING
            self.core.workers[worker.index] = worker
            self.core.journal.join(worker.index, 0)
            set_worker(self.region, worker.index, generation=1)
        self.sent: list[tuple[str, bytes, int]] = []
        self.published: list[Op] = []
        self.admissions: dict[int, messages.Admitted | messages.Denied] = {}  # answers to opens
        self.reachable = True
        self.later: deque[Callable[[], None]] = deque()
        self.loop = asyncio.new_event_loop()
        # An event loop collected while open is a warning, which pytest would count as an error of another test.
        weakref.finalize(self, self.loop.close)
        core = self.core
        core.waker.connect(self.loop, lambda: None)
        self.services = add_services(
            core,
            self.loop,
            Resolver(self.loop),
            self.configuration,
            _no_http,
            lambda listener: None,
            lambda: False,
            self.log,
        )
        self.live = LiveConfiguration(
            self.loop, self.configuration, core.settings.current, core.events, core.waker, self.log
        )
        self.continued = 0
        self.agent = Agent(
            self.core, self.region, self.log, self.live, "9.9", self._send, self.later.append, self._continue
        )
        self._slots = [0] * WORKERS

    def _continue(self) -> None:
        self.continued += 1

    def _send(self, address: str, octets: bytes, near: int) -> bool:
        self.sent.append((address, octets, near))
        return self.reachable

    # -- Connections and links

    def connection(
        self, worker: int = 0, listener: int = 0, peer: str | None = None, groups: tuple[str, ...] = (), **more: Any
    ) -> RegisteredConnection:
        """Open a connection to `worker`. `groups`: from the token of its user."""
        owner = self.workers[worker]
        peer = peer or f"10.0.0.1:{1000 + self.core.connections.accepted}"
        made = self.core.connections.adopt(owner, self.configuration.listeners[listener], "127.0.0.1:5672", peer)
        made.groups = groups
        values: dict[str, Any] = {
            "container": f"c{made.number}", "hostname": None, "user": "anonymous", "mechanism": "ANONYMOUS",
            "properties": {}, "tls": None, **more,
        }  # fmt: skip
        self.core.receive(owner, messages.Opened(conn=made.number, **values))
        answer = owner.outbox.pop()
        assert isinstance(answer, messages.Admitted | messages.Denied)
        self.admissions[made.number] = answer
        return made

    def link(
        self,
        connection: RegisteredConnection,
        direction: str = "in",
        address: str | None = None,
        capabilities: tuple[str, ...] = (),
        **fields: Any,
    ) -> int:
        """Attach a link with these counters; return its identity."""
        assert connection.worker is not None
        slot = self._slots[connection.worker]
        self._slots[connection.worker] += 1
        generation = (1 << 20) + slot + 1
        claim_link(self.region, connection.worker, slot, generation, direction=1 if direction == "in" else 2, **fields)
        values = {"slot": slot, "gen": generation, "conn": connection.number, "caps": [list(capabilities), False]}
        attach_message = attach(slot, direction, address, **values)
        self.core.receive(self.workers[connection.worker], attach_message)
        return max(self.core.links.by_identity)

    # -- Requests

    def raw(self, octets: bytes, connection: int | None = None) -> list[ManagementReply]:
        """Hand over a message, make all requested calls, and let the workers acknowledge. Return the answers."""
        self.sent.clear()
        self.agent.handle(LocalMessage(1, connection, octets))
        return self._answers()

    def finish(self) -> None:
        """Make all calls that the agent has requested."""
        while self.later:
            self.later.popleft()()

    def _answers(self) -> list[ManagementReply]:
        self.finish()
        while (delta := self.core.take_delta()) is not None:
            self.published += delta[1]
            for worker in self.workers:
                self.core.journal.acknowledge(worker.index, delta[0])
        return [ManagementReply.of(octets) for _, octets, _ in self.sent]

    def ask(
        self, operation: str | None, body: Any = None, connection: int | None = None, **properties: Any
    ) -> ManagementReply:
        """Send one request; return its answer."""
        given = properties if operation is None else {"operation": operation, **properties}
        answers = self.raw(request(given, {} if body is None else body), connection)
        deadline = time.monotonic() + PATIENCE
        while not answers:  # a thread looks up a name or opens a file
            assert time.monotonic() < deadline, "no answer"
            self.loop.run_until_complete(asyncio.sleep(0.001))
            answers = self._answers()
        (answer,) = answers
        return answer

    def query(self, kind: str, *names: Any, **properties: Any) -> list[dict[str, Any]]:
        """Return the rows of a type, given by its short name."""
        answer = self.ask("QUERY", {"attributeNames": list(names)}, entityType=PREFIX + kind, **properties)
        assert answer.outcome == (200, "OK")
        return [dict(zip(answer.body["attributeNames"], row, strict=True)) for row in answer.body["results"]]


def request(properties: Any, body: Any = None, **fields: Any) -> bytes:
    """Return a request; `fields` are those of the properties section."""
    return (
        message.properties(**{"reply_to": "amqp:/_topo/0/QDR/temp.x", "correlation_id": "1", **fields})
        + message.application_properties(properties)
        + message.value(body)
    )

"""A router in this process: real engine, tables, ports and supervisor's core; octets are fed and taken by hand.

Nothing here waits: `Router.settle` runs wakes of all workers, and the supervisor's reactions, until nothing is left
to do.
"""

import heapq
import itertools
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from router.amqp.connection import Connection, Pause, Scheduler
from router.amqp.message import use_node
from router.routing.port import WorkerPort
from router.routing.table import Table
from workers.slots import SlotPool

import router.routing.testing as engine
from router.config.load import load_text
from router.ipc import control
from router.ipc.layout import Region
from router.log import Log, LogSettings, ModuleSettings
from supervisor.core import Core
from supervisor.worker import Stage
from supervisor.worker import Worker as Known
from workers.client import Client
from workers.inprocess import InProcess
from workers.routed import RoutedEnd, RoutedEnds
from workers.stuck import StuckScan
from workers.tracing import Tracing
from workers.worker import Worker

QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})
RING_OCTETS = 1 << 18
LINKS = 256
ADDRESSES = 256
MS = 1_000_000  # nanoseconds
ROUNDS = 10_000  # wakes of one `settle`: more is a loop without end
LISTENER = "main"
CONFIGURATION = """
router { mode: standalone; id: QDR }
listener { name: main; host: 127.0.0.1; port: 0; saslMechanisms: ANONYMOUS; idleTimeoutSeconds: 0; %(listener)s }
listener { name: kept; host: 127.0.0.1; port: 1; idleTimeoutSeconds: 0; stripAnnotations: no; linkCapacity: 4 }
listener { name: tenants; host: 127.0.0.1; port: 2; multiTenant: yes; maxSessionFrames: 10; linkCapacity: 3 }
listener { name: broker; host: 127.0.0.1; port: 3; role: route-container; idleTimeoutSeconds: 0 }
address { prefix: multicast; distribution: multicast }
address { prefix: closest; distribution: closest }
address { prefix: balanced; distribution: balanced }
address { prefix: spare; enableFallback: yes }
address { prefix: block; presettledOverflow: block }
address { prefix: oldest; presettledOverflow: dropOldest }
address { prefix: nobody; distribution: unavailable }
linkRoute { prefix: routed; direction: in; connection: broker }
linkRoute { prefix: routed; direction: out; connection: broker }
exchange { name: ex; address: exchange; matchMethod: mqtt; alternateAddress: balanced.alternate }
binding { name: b1; exchangeName: ex; bindingKey: a/+; nextHopAddress: balanced.hop }
binding { name: b2; exchangeName: ex; bindingKey: a/#; nextHopAddress: multicast.hop }
%(more)s
"""


def configuration(listener: str = "", more: str = "") -> str:
    """The configuration's text: `listener` attributes for the first listener, `more` sections."""
    text = CONFIGURATION % {"listener": listener, "more": more}
    return text.replace("; ", "\n").replace(" {", " {\n").replace(" }", "\n}")


class FaultError(AssertionError):
    """The engine ended a connection by a fault of the router."""


class Control:
    """Keeps what a worker tells the supervisor, as it would be on the wire."""

    def __init__(self) -> None:
        self.told: deque[tuple[bytes, bytes | None]] = deque()

    def tell(self, message: control.Message, raw: bytes | None = None) -> None:
        self.told.append((control.encode([message]), raw))


class Clock:
    """In the place of the worker's event loop."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.timers: list[tuple[int, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.scheduler.set_time(1000 * MS)

    def call_at(self, due: int, what: Callable[[], None], connection: Connection | None = None) -> None:
        """As the loop's; `Router.pass_time` lets it come true, and a fault ends the test."""
        heapq.heappush(self.timers, (due, next(self.numbers), what))

    def beat(self) -> None:
        """As the loop's: nobody looks whether a worker without process hangs."""

    def used_memory(self) -> None:
        """As the loop's: nothing is given back here."""

    def advance(self, milliseconds: int) -> None:
        """Move on, timer by timer."""
        end = self.scheduler.now_ns + milliseconds * MS
        while self.timers and self.timers[0][0] * MS <= end:
            due, _, what = heapq.heappop(self.timers)
            self.scheduler.set_time(max(due * MS, self.scheduler.now_ns))
            what()
        self.scheduler.set_time(end)


class InProcessWorker(Worker):
    """A worker without process, sockets and channels; every handler is the real one."""

    def __init__(self, router: "Router", number: int) -> None:
        workers = len(router.eventfds)
        self.setup = control.WorkerSetup(
            worker=number,
            generation=1,
            workers=workers,
            region_fd=-1,
            eventfds=router.eventfds,
            handover_fd=-1,
            pub_endpoint="",
            ctl_endpoint="",
            server_public=b"",
            client_public=b"",
            client_secret=b"",
            cpu=None,
            router={
                "id": router.identity,
                "product": "sluice",
                "version": "0",
                "maxBufferedMegabytes": 1024,
                "testHooks": router.test_hooks,
                "scrubSeconds": 5 if router.test_hooks else 30,
                "streamsKept": 2 if router.test_hooks else 128,
                "stuckScanSeconds": 30,
                "stuckAgeSeconds": 10,
            },
            log={},
        )
        self.log = Log(router.log.settings)
        self.log_opened = None
        self.router = self.setup.router
        self.region = router.region
        self.clock: Any = self.make_clock()
        self.loop = self.clock
        self.links = {}
        self.slots = SlotPool(self.region, number, 1)
        self.ports = [
            WorkerPort(self.region, number, peer, router.eventfds[peer], self.links, self.clock.scheduler)
            if peer != number
            else None
            for peer in range(workers)
        ]
        self.routed = RoutedEnds(self)
        for port in self.peers:
            port.routed = self.routed.by_slot
        self.in_process = InProcess(self)
        self.table = Table(self.region, number, router.identity, self.ports, self.links, self.in_process.accept)
        self.offers = {}
        self.clients = {}
        self.stuck = StuckScan(self)
        self.tracing = Tracing(self)
        self.live = False
        self.early = []
        self.sent = Control()
        self.control = self.sent  # type: ignore[assignment]
        self.fed: list[Any] = []
        self.faults: list[BaseException] = []
        self.handlers = {
            control.SNAPSHOT: self.on_snapshot,
            control.ATTACHED: self.on_answer,
            control.REFUSED: self.on_answer,
            control.DECIDED: self.on_answer,
            control.DETACHED: self.on_answer,
            control.GONE: self.on_gone,
            control.LINK: self.on_link,
            control.UNLINK: self.on_unlink,
            control.CLOSE: self.on_close,
            control.SEND: self.on_send,
            control.CONTROL: self.on_control,
            control.TAKEN: self.on_taken,
            control.PAIR: self.routed.pair,
            control.PAIRED: self.on_paired,
            control.UNPAIR: self.routed.unpair,
            control.WATCH: self.on_watch,
        }

    def make_clock(self) -> Any:
        """What stands for the event loop."""
        return Clock()

    @property
    def peers(self) -> list[Any]:
        """Ports to the other workers."""
        return [port for port in self.ports if port is not None]

    def report_fault(self, what: str, fault: BaseException) -> None:
        self.faults.append(fault)

    def crash(self) -> None:
        """Forget everything, as a process does that dies."""
        self.live = False
        self.clients = {}


class Peer:
    """A client of the router: octets go in by `feed`, what the router says is in `output`."""

    def __init__(self, host: "Router", worker: InProcessWorker, known: Any, offer: str, initiate: Any = None) -> None:
        self.host = host
        self.worker = worker
        self.known = known
        self.client = Client(worker, known.number, worker.offers[offer], initiate)
        self.connection = self.client.connection
        self.connection.owner = self
        self.client.transport = self
        worker.clients[known.number] = self.client
        self.output = bytearray()
        self.rest = b""
        self.blocked = False  # does not read: nothing leaves the router
        self.gone = False

    def schedule(self) -> None:
        """The connection wants to be ticked; the host has no time of its own."""

    def feed(self, octets: bytes) -> None:
        """Octets arrive; what is not taken now is offered again with what follows."""
        self.rest += octets
        if self.gone or self.connection.paused:
            return
        self.host.enter()
        self.worker.fed.append(self.connection)
        self.rest = self.rest[self.connection.feed(self.rest) :]

    def lose(self) -> None:
        """The socket is gone."""
        if not self.gone:
            self.connection.transport_lost()
            self.end()

    def collect(self) -> None:
        """What the router has to say now."""
        if self.gone or self.blocked:
            return
        while octets := self.connection.take_output():
            if self.connection.silent:
                break
            self.output += octets
        if self.connection.finished:
            self.end()

    def end(self) -> None:
        """As the transport does when its socket is closed."""
        self.gone = True
        self.rest = b""
        self.connection.owner = None
        self.connection.release()

    def take(self) -> bytes:
        """What has come since the last call."""
        octets = bytes(self.output)
        self.output.clear()
        return octets


class Router:
    """A whole router. `close` it: it holds descriptors."""

    worker_type = InProcessWorker

    def __init__(
        self,
        workers: int = 1,
        text: str | None = None,
        ring_octets: int = RING_OCTETS,
        *,
        test_hooks: bool = False,
        log: LogSettings = QUIET,
        links: int = LINKS,
        addresses: int = ADDRESSES,
        worker_types: Sequence[type[InProcessWorker]] = (),
    ) -> None:
        """worker_types: of the first workers, where they are others."""
        self.log = Log(log)
        self.links = links
        self.test_hooks = test_hooks
        self.region = Region.create(workers, links, addresses, ring_octets)
        self.eventfds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers)]
        self.configuration = load_text("router.conf", text or configuration())
        self.identity = self.configuration.router.id
        self.core = Core(self.configuration, self.log, addresses, self.region.reset_address, test_hooks=test_hooks)
        self.listeners = {listener.name: listener for listener in self.configuration.listeners}
        self.peers: list[Peer] = []
        self.work = True  # messages for the router itself are handled
        types = [*worker_types, *[self.worker_type] * workers][:workers]
        self.workers = [kind(self, number) for number, kind in enumerate(types)]
        for worker in self.workers:
            known = Known(worker.setup.worker, 1)
            known.stage = Stage.STARTING
            self.core.workers[worker.setup.worker] = known
            self.core.subscribed(known)
        self.settle()

    def close(self) -> None:
        for peer in self.peers:
            peer.lose()
        self.settle()
        self.region.close()
        for descriptor in self.eventfds:
            os.close(descriptor)

    def connect(self, worker: int = 0, listener: str = LISTENER) -> Peer:
        """A new connection to a worker."""
        known = self.core.workers[worker]
        adopted = self.core.adopt(known, self.listeners[listener], "127.0.0.1:0", "127.0.0.1:1")
        peer = Peer(self, self.workers[worker], adopted, listener)
        self.peers.append(peer)
        return peer

    def enter(self) -> None:
        """What the engine writes from now on is this router's."""
        use_node(f"0/{self.identity}")

    # -- running -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Until nothing moves. Raises FaultError."""
        self.enter()
        for _ in range(ROUNDS):
            moved = self.decide()
            for worker in self.workers:
                moved |= self.wake(worker)
            moved |= any(engine.waiting(port) for worker in self.workers for port in worker.peers)
            if not moved:
                break
        else:
            raise FaultError(f"still not quiet after {ROUNDS} wakes")
        self.peers = [peer for peer in self.peers if not peer.gone]
        for worker in self.workers:
            if worker.faults:
                raise FaultError(f"worker {worker.setup.worker}: {worker.faults[0]!r}") from worker.faults[0]

    def wake(self, worker: InProcessWorker) -> bool:
        """One wake of a worker, in the order of its loop. True: something happened."""
        if not isinstance(worker.clock, Clock):
            worker.clock.step()  # the real one
            return False
        moved = False
        for port in worker.peers:
            if port.alive:
                moved |= engine.receive(port) > 0
        moved |= self.collect(worker)
        for port in worker.peers:
            if port.alive and engine.flush(port):
                for connection in worker.fed:
                    port.throttle(connection)
        worker.fed.clear()
        for connection in engine.take_resumed(worker.clock.scheduler):
            if connection.owner is not None and not connection.paused and not connection.finished:
                connection.owner.feed(b"")
                moved = True
        return moved | self.collect(worker)

    def collect(self, worker: InProcessWorker) -> bool:
        dirty = engine.take_dirty(worker.clock.scheduler)
        for connection in dirty:
            if connection.owner is not None:
                connection.owner.collect()
        return bool(dirty)

    def decide(self) -> bool:
        """The supervisor takes what workers told, and they what it answers. True: something was said."""
        moved = False
        for worker in self.workers:
            known = self.core.workers[worker.setup.worker]
            while worker.sent.told:
                octets, raw = worker.sent.told.popleft()
                for message in control.decode(octets):
                    self.core.receive(known, message, raw)
                moved = True
        if self.work:
            moved |= self.core.in_process.work()
        while (delta := self.core.take_delta()) is not None:
            decoded = control.decode_delta(control.encode_delta(*delta))
            for worker in self.workers:
                worker.on_delta(decoded["epoch"], decoded["ops"])
            moved = True
        for worker in self.workers:
            known = self.core.workers[worker.setup.worker]
            answers, known.outbox = known.outbox, []
            for message in control.decode(control.encode(answers)):
                worker.on_message(message, None)
                moved = True
            while known.sends:
                order, octets = known.sends.popleft()
                worker.on_message(control.decode(control.encode([order]))[0], octets)
                moved = True
        return moved

    # -- time ----------------------------------------------------------------------------------------------------------

    def pass_time(self, milliseconds: int) -> None:
        """Clocks move on; heartbeats, time-outs and starved links get their turn."""
        for worker in self.workers:
            scheduler = worker.clock.scheduler
            worker.clock.advance(milliseconds)
            for peer in self.peers:
                if peer.worker is worker and not peer.gone:
                    peer.connection.tick(scheduler.now)
            for link in engine.take_starved(scheduler):
                if link.check_starved():
                    engine.starve(scheduler, link)
        self.settle()

    def pause_reasons(self, peer: Peer) -> Pause:
        """Why the peer's frames wait."""
        return Pause(peer.connection.paused)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check_empty(self) -> None:
        """Nothing is left of what was on its way; to be called when every connection is gone and all is settled."""
        for worker in self.workers:
            number = worker.setup.worker
            assert not worker.clients, f"worker {number} keeps clients"
            assert not worker.links, f"worker {number} keeps links {sorted(worker.links)}"
            for index in range(self.links):
                gauges = self.region.link_counters(number, index)
                assert gauges is None, f"worker {number} keeps link slot {index}: {gauges}"
            assert worker.in_process.held() == (0, 0, 0, 0), f"worker {number} keeps messages of the router itself"
            for port in worker.peers:
                assert port.counts() == (0, 0, 0), f"port {number} to {port.peer} holds {port.counts()}"
                assert engine.streams(port) == 0, f"port {number} from {port.peer} holds {engine.streams(port)} streams"
        used = {key: value for key, value in self.workers[0].table.describe().items() if value}
        assert not used, f"addresses keep consumers: {used}"

    def check_quiet(self) -> None:
        """Lists, counts and gauges of everything that lives fit together."""
        for worker in self.workers:
            for client in worker.clients.values():
                for record in client.links.values():
                    if isinstance(record, RoutedEnd):
                        engine.check_routed(record.link)
                    elif record.outgoing:
                        engine.check_outgoing(record.link)
                    else:
                        engine.check_incoming(record.link)
            for port in worker.peers:
                engine.check_port(port)

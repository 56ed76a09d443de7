"""Router in this process, with the real worker event loops and the real core of the supervisor.

Time, the octets of connections, and the messages between workers and supervisor are in memory. A loop runs until it
would sleep, and again when an event, another worker or a timer would wake it. Nothing here blocks:
`InProcessRouter.settle` runs until all loops sleep and the supervisor has no more messages.
"""

import contextlib
import os
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

import sluice.router.testing.engine as engine
from sluice.router.config.load import load_text
from sluice.router.config.roles import EDGE, INTER_EDGE
from sluice.router.control import messages as control
from sluice.router.control.codec import decode_events, encode, encode_delta, encode_handover, join_octets
from sluice.router.control.handover import Handover, InitiateData
from sluice.router.control.setup import WorkerSetup
from sluice.router.links.consumer_link import set_tag_space
from sluice.router.links.pause import RouterPause
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.router.message.annotations import use_node
from sluice.router.ring.region import Region
from sluice.router.testing.engine import consumers_by_address, port_counts
from sluice.supervisor.children.worker import WorkerCorruptError, WorkerStage
from sluice.supervisor.children.worker import WorkerProcess as Known
from sluice.supervisor.composition import RouterCore
from sluice.workers.links.routed import RoutedEnd
from sluice.workers.testing import LoopWouldSleep, MemoryPoller, MemoryTransport, count_in
from sluice.workers.transport.base import Transport
from sluice.workers.worker import WorkerRuntime
from tests.unit.router.control.facts import facts

QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})
RING_OCTETS = 1 << 18
LINKS = 256
ADDRESSES = 256
MS = 1_000_000  # nanoseconds
ROUNDS = 10_000  # most iterations of one `settle`; more is an endless conversation
# First number of in-memory connections. No open descriptor is that high; a loop's table has entries up to it.
FIRST_DESCRIPTOR = 20_000
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
    """Return the configuration's text. listener: attributes of the first listener; more: further sections."""
    text = CONFIGURATION % {"listener": listener, "more": more}
    return text.replace("; ", "\n").replace(" {", " {\n").replace(" }", "\n}")


class FaultError(AssertionError):
    """Raised when the engine closed a connection after an internal error."""


class StoppedTimers:
    """Event loop of a supervisor whose timers never expire, and a timer of it."""

    def call_later(self, seconds: float, action: object) -> "StoppedTimers":
        del seconds, action
        return self

    def cancel(self) -> None:
        """Cancel a timer, which nothing waits for."""


class MemoryChannels:
    """Channels between a worker and the supervisor. Messages are encoded as on the wire and kept until they are
    taken."""

    def __init__(self) -> None:
        self.announcer = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.announces_deltas = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.handover = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.deltas: deque[bytes] = deque()
        self.orders: deque[list[bytes]] = deque()
        self.given: deque[tuple[bytes, list[int]]] = deque()
        self.events: deque[list[bytes]] = deque()

    # -- the supervisor's end ------------------------------------------------------------------------------------------

    def announce_delta(self, octets: bytes) -> None:
        self.deltas.append(octets)
        os.eventfd_write(self.announces_deltas, 1)

    def order(self, orders: list[control.Order], raw: bytes | None = None) -> None:
        self.orders.append([encode(orders)] if raw is None else [encode(orders), raw])
        os.eventfd_write(self.announcer, 1)

    def hand_over(self, message: Handover, descriptor: int) -> None:
        self.given.append((encode_handover(message), [descriptor]))
        os.eventfd_write(self.handover, 1)

    # -- the worker's end: the channel interface of its Control -------------------------------------------------------

    def announcers(self) -> list[int]:
        return [self.announcer]

    def delta_announcer(self) -> int:
        return self.announces_deltas

    def connections(self) -> int:
        return self.handover

    def receive_delta(self) -> bytes | None:
        self._empty(self.announces_deltas, self.deltas)
        return self.deltas.popleft() if self.deltas else None

    def receive(self) -> list[bytes] | None:
        self._empty(self.announcer, self.orders)
        return self.orders.popleft() if self.orders else None

    def receive_connection(self) -> tuple[bytes, list[int]] | None:
        self._empty(self.handover, self.given)
        return self.given.popleft() if self.given else None

    def send(self, parts: list[bytes]) -> None:
        self.events.append(parts)

    def send_back(self, data: bytes, descriptor: int) -> None:
        raise AssertionError("there is no HTTPS in memory")

    def close(self) -> None:
        os.close(self.announcer)
        os.close(self.announces_deltas)
        os.close(self.handover)

    @staticmethod
    def _empty(descriptor: int, kept: object) -> None:
        """Clear the eventfd once the queue is empty."""
        if not kept:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(descriptor)


class InProcessWorker(WorkerRuntime):
    """Worker without a process and sockets."""

    transport: type[Transport] = MemoryTransport

    def __init__(self, router: "InProcessRouter", number: int) -> None:
        workers = len(router.eventfds)
        self.faults: list[BaseException] = []
        self.awake = False  # true between two wakes
        self.poller = self.make_poller()
        self.channels = MemoryChannels()
        setup = WorkerSetup(
            worker=number,
            generation=1,
            workers=workers,
            region_fd=os.dup(router.region.fd),
            eventfds=router.eventfds,
            handover_fd=-1,
            control_fd=-1,
            directory="",
            server_public=b"",
            client_public=b"",
            client_secret=b"",
            cpu=None,
            router=facts(router.identity, router.configuration.router.mode, test_hooks=router.test_hooks),
            log=router.log.settings.to_dict(),
        )
        super().__init__(setup, self.poller, self.channels)

    def make_poller(self) -> Any:
        """Return the source of events and time."""
        return MemoryPoller()

    @property
    def peers(self) -> list[Any]:
        """Ports to the other workers."""
        return [port for port in self.ports if port.peer != self.setup.worker]

    def report_fault(self, what: str, fault: BaseException) -> None:
        super().report_fault(what, fault)
        self.faults.append(fault)

    def close(self) -> None:
        self.control.close()
        self.region.close()


class InProcessPeer:
    """Remote end of a connection of the router."""

    def __init__(self, router: "InProcessRouter", worker: InProcessWorker, known: Any) -> None:
        self.host = router
        self.worker = worker
        self.known = known
        self.client = worker.clients[known.number]
        self.connection = self.client.connection
        self.transport = worker.poller.memory[FIRST_DESCRIPTOR + known.number]

    def put(self, octets: bytes) -> None:
        """Queue octets without waking the worker."""
        self.transport.put(bytes(octets))

    def feed(self, octets: bytes) -> None:
        """Queue octets and wake the worker until it has read them all."""
        self.put(octets)
        self.host.wake(self.worker)
        while self.transport.readable_now():
            self.host.wake(self.worker)

    def lose(self) -> None:
        """Reset the connection: nothing more is read."""
        if not self.gone:
            self.transport.lose()
            self.host.wake(self.worker)

    @property
    def gone(self) -> bool:
        """The router has closed its end."""
        return bool(self.transport.fd < 0)

    @property
    def blocked(self) -> bool:
        """True if the peer does not read, so that nothing leaves the router."""
        return bool(self.transport.blocked)

    @blocked.setter
    def blocked(self, blocked: bool) -> None:
        self.transport.blocked = blocked

    def take(self) -> bytes:
        """Return the octets received since the last call."""
        octets: bytes = self.transport.take()
        return octets


class InProcessRouter:
    """Whole router in memory. It holds descriptors: a router that a test leaves open is abandoned at the end of the
    test."""

    all_open: ClassVar[set["InProcessRouter"]] = set()

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
        content_limit: int | None = None,
        slots: int | None = None,
    ) -> None:
        """worker_types: types of the first workers, where they differ from `worker_type`. content_limit: octets of
        messages that this process may hold, where the configuration's unit is too coarse. slots: number of worker
        slots in shared memory. Slots beyond `workers` have no worker; the workers see them as live, quiet peers."""
        slots = slots or workers
        self.log = ProcessLog(log)
        self.links = links
        self.test_hooks = test_hooks
        self.region = Region.create(slots, links, addresses, ring_octets)
        self.eventfds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(slots)]
        self.configuration = load_text("router.conf", text or configuration())
        self.identity = self.configuration.router.id
        self.core = RouterCore(
            self.configuration, self.log, addresses, self.region.reset_address, test_hooks=test_hooks
        )
        self.core.waker.connect(StoppedTimers(), lambda: None)  # type: ignore[arg-type]
        self.listeners = {listener.name: listener for listener in self.configuration.listeners}
        self.peers: list[InProcessPeer] = []
        self.work = True  # messages for the router itself are handled
        types = [*worker_types, *[self.worker_type] * workers][:workers]
        self.workers = [kind(self, number) for number, kind in enumerate(types)]
        self.lost_workers: list[InProcessWorker] = []
        InProcessRouter.all_open.add(self)
        for worker in self.workers:
            worker.loop.scheduler.memory.content_limit = (
                content_limit or self.configuration.router.buffered_megabytes << 20
            )
        for worker in self.workers:
            known = Known(worker.setup.worker, 1)
            known.stage = WorkerStage.STARTING
            self.core.workers[worker.setup.worker] = known
            self.core.subscribed(known)
        self.settle()
        for worker in self.workers:
            for port in worker.ports[workers:]:
                port.up(1)

    def close(self) -> None:
        for peer in self.peers:
            peer.lose()
        self.settle()
        InProcessRouter.all_open.remove(self)
        self._free_deliveries(self.lost_workers)
        count_in(None)
        for worker in [*self.workers, *self.lost_workers]:
            worker.close()
        self.region.close()
        for descriptor in self.eventfds:
            os.close(descriptor)

    def abandon(self) -> None:
        """Drop a router whose worker ended by an internal error, or that a test leaves open."""
        InProcessRouter.all_open.remove(self)
        self._free_deliveries([*self.workers, *self.lost_workers])
        count_in(None)
        for worker in [*self.workers, *self.lost_workers]:
            worker.channels.close()
        for descriptor in self.eventfds:
            os.close(descriptor)

    def _free_deliveries(self, workers: Sequence[InProcessWorker]) -> None:
        """Free the deliveries of workers that have exited. All workers share this process, whose counts of deliveries
        and octets decide at the memory bounds of later tests."""
        for worker in workers:
            if worker.poller is None:
                continue  # with the system's poller, tests close their sockets themselves
            self.enter(worker)
            for port in worker.ports:
                engine.hold_ring(port, True)  # the port is not to process another record
                port.down()
            for transport in list(worker.poller.memory.values()):
                if transport.fd >= 0:
                    transport.lose()
            self.run(worker)

    def connect(self, worker: int = 0, listener: str = LISTENER) -> InProcessPeer:
        """Connect a new client to a worker."""
        known = self.core.workers[worker]
        adopted = self.core.connections.adopt(known, self.listeners[listener], "127.0.0.1:0", "127.0.0.1:1")
        admits = self.core.connections.worker_admits(adopted)
        message = Handover(adopted.number, listener, adopted.peer, admits=admits)
        return self.hand_over(worker, message, adopted)

    def initiate(self, worker: int, config: Any, watching: Any) -> InProcessPeer:
        """Open a connection of a connector from a worker. watching: the observer of the connection."""
        offer, _ = self.core.profiles.add(config)
        self.settle()
        to = InitiateData(config.host, None)
        if config.role in (EDGE, INTER_EDGE):  # as `Connectors` does
            to.mark = self.core.connections.mark
        number = self.core.connections.take_number()
        known = self.core.connections.initiate(number, config, offer, watching, to)
        self.core.connections.move(known, self.core.workers[worker])
        return self.hand_over(worker, Handover(number, offer, known.peer, initiate=to), known)

    def hand_over(self, worker: int, message: Handover, known: Any) -> InProcessPeer:
        own = self.workers[worker]
        own.channels.hand_over(message, FIRST_DESCRIPTOR + message.conn)
        self.wake(own)
        peer = InProcessPeer(self, own, known)
        self.peers.append(peer)
        return peer

    def lose_worker(self, index: int = -1) -> None:
        """Simulate the exit of a worker (the last one by default), which loses its connections."""
        worker = self.workers.pop(index)
        self.lost_workers.append(worker)
        self.peers = [peer for peer in self.peers if peer.worker is not worker]
        self.core.lost(self.core.workers[worker.setup.worker], lambda: None)

    def enter(self, worker: InProcessWorker | None = None) -> None:
        """Switch the per-process state of compiled code to this worker."""
        worker = worker or self.workers[0]
        use_node(f"0/{self.identity}")
        set_tag_space(worker.setup.worker)
        count_in(worker.loop)

    # -- running -------------------------------------------------------------------------------------------------------

    def wake(self, worker: InProcessWorker) -> None:
        """Run one wake of a worker, needed or not."""
        self.enter(worker)
        worker.awake = True
        worker.loop.step()

    def run(self, worker: InProcessWorker) -> None:
        """Run a worker until it would sleep."""
        self.enter(worker)
        worker.awake = False
        with contextlib.suppress(LoopWouldSleep):
            worker.loop.run()

    def settle(self) -> None:
        """Run until nothing moves. Raises FaultError."""
        self.settle_with_faults()
        self._check_faults()

    def _check_faults(self) -> None:
        for worker in self.workers:
            if worker.faults:
                raise FaultError(f"worker {worker.setup.worker}: {worker.faults[0]!r}") from worker.faults[0]

    def settle_with_faults(self) -> None:
        """Run until nothing moves; faults are kept by the worker that reported them."""
        for worker in self.workers:
            if not worker.awake and not worker.poller.awaited():
                self.wake(worker)  # the test may have changed it directly
        self._run_all()

    def _run_all(self) -> None:
        for _ in range(ROUNDS):
            moved = self.supervise()
            for worker in self.workers:
                if worker.awake or worker.poller.awaited():
                    self.run(worker)
                    moved = True
            if not moved:
                break
        else:
            raise FaultError(f"still not quiet after {ROUNDS} rounds")
        self.peers = [peer for peer in self.peers if not peer.gone]

    def decide(self) -> bool:
        """Let the supervisor act and let workers read its messages at once. Return True if any message was
        exchanged."""
        moved = self.supervise()
        for worker in self.workers:
            self.enter(worker)
            worker.control.poll()
            worker.awake = False
        return moved

    def supervise(self, only: int | None = None) -> bool:
        """Let the supervisor take and answer the workers' messages. Return True if there were any. only: of one
        worker."""
        self.log.hold()  # as the service does
        moved = False
        corrupt: list[Known] = []
        for worker in self.workers:
            if only is not None and worker.setup.worker != only:
                continue
            known = self.core.workers[worker.setup.worker]
            events = worker.channels.events
            if worker.control.pending:  # the worker would send these with its next batch
                worker.control.send()
            while events:
                encoded, *octets = events.popleft()
                for message, own in join_octets(decode_events(encoded), octets):
                    try:
                        self.core.receive(known, message, own)
                    except WorkerCorruptError as error:
                        corrupt.append(error.worker)
                moved = True
        for known in corrupt:
            self.lose_worker(next(at for at, each in enumerate(self.workers) if each.setup.worker == known.index))
        if self.work:
            moved |= self.core.work()
        while (delta := self.core.take_delta()) is not None:
            octets = encode_delta(*delta)
            for worker in self.workers:
                worker.channels.announce_delta(octets)
            moved = True
        _ = self.core.deadline  # read in each wake, as by the service
        self.log.release()
        for worker in self.workers:
            known = self.core.workers[worker.setup.worker]
            answers, known.outbox = known.outbox, []
            if answers:
                worker.channels.order(answers)
                moved = True
            while known.sends:
                order, octets = known.sends.popleft()
                worker.channels.order([order], octets)
                moved = True
        return moved

    # -- time ----------------------------------------------------------------------------------------------------------

    def pass_time(self, milliseconds: int) -> None:
        """Advance time from one worker timer to the next."""
        self.settle()
        now = self.workers[0].poller.time_ns
        end = now + milliseconds * MS
        while now < end:
            dues = [worker.poller.until * MS for worker in self.workers if worker.poller.until is not None]
            now = min(end, max(now, min(dues, default=end)))
            for worker in self.workers:
                worker.poller.time_ns = now
            self._run_all()
            self._check_faults()

    def pause_reasons(self, peer: InProcessPeer) -> RouterPause:
        """Return the reasons why the peer's frames wait."""
        return RouterPause(peer.connection.paused)

    # -- invariants ---------------------------------------------------------------------------------------------------

    def check_empty(self) -> None:
        """Check that nothing in flight is left. Call it when every connection is gone and all is settled."""
        for worker in self.workers:
            number = worker.setup.worker
            assert not worker.clients, f"worker {number} keeps clients"
            assert not worker.links, f"worker {number} keeps links {sorted(worker.links)}"
            for index in range(self.links):
                gauges = self.region.link_counters(number, index)
                assert gauges is None, f"worker {number} keeps link slot {index}: {gauges}"
            assert worker.in_process.held() == (0, 0, 0, 0), f"worker {number} keeps messages of the router itself"
            for port in worker.ports:
                assert port_counts(port) == (0, 0, 0, 0), f"port {number} to {port.peer} holds {port_counts(port)}"
                assert engine.streams(port) == 0, f"port {number} from {port.peer} holds {engine.streams(port)} streams"
        used = {key: value for key, value in consumers_by_address(self.workers[0].table).items() if value}
        assert not used, f"addresses keep consumers: {used}"

    def check_quiet(self) -> None:
        """Check that lists, counts and gauges of all live objects agree."""
        for worker in self.workers:
            for client in worker.clients.values():
                for record in client.links.by_number.values():
                    if isinstance(record, RoutedEnd):
                        engine.check_routed(record.link)
                    elif record.outgoing:
                        engine.check_outgoing(record.link)
                    else:
                        engine.check_incoming(record.link)
            for port in worker.ports:
                engine.check_port(port)

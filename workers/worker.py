"""Worker: its table, ports, link slots and connections, and the execution of orders."""

import gc
import socket
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, assert_never, cast, get_args

from sluice.router.addressing.address import EDGE_MODE
from sluice.router.amqp.errors import FatalFault
from sluice.router.amqp.session import Session
from sluice.router.control import messages as control
from sluice.router.control import pair_messages
from sluice.router.control.handover import Handover
from sluice.router.control.ops import (
    CredentialsGone,
    CredentialsOp,
    LogOp,
    Op,
    Profile,
    ProfileGone,
    ProfileOp,
    SamplingOp,
    TraceOp,
    UnawaitedOp,
    WorkerOp,
    WorkerStateOp,
)
from sluice.router.control.setup import WorkerSetup
from sluice.router.links.consumer_link import ConsumerLink, set_tag_space
from sluice.router.links.delivery_link import DeliveryLink
from sluice.router.log import CRITICAL, ERROR, LEVELS, WARNING, LogEntry, LogError, LogSettings, ProcessLog, place
from sluice.router.message.annotations import use_node
from sluice.router.ring.link_table import LinkTable
from sluice.router.ring.port import WorkerPort
from sluice.router.ring.region import Region
from sluice.router.table.table import Table
from sluice.router.table.tap import Tap
from sluice.router.tls.context import TlsError
from sluice.router.websocket.origins import OriginPolicy
from sluice.workers.background import BackgroundThread
from sluice.workers.connections.admissions import Admissions
from sluice.workers.connections.handler import ConnectionHandler
from sluice.workers.connections.orders import register
from sluice.workers.control import Channels, SocketChannels, WorkerControl
from sluice.workers.credentials import CredentialStore
from sluice.workers.frame_trace import Tracing
from sluice.workers.inprocess import InProcessRelay
from sluice.workers.links.routed import RoutedEnds
from sluice.workers.links.suspended import SuspendedLinks
from sluice.workers.loop import Loop, set_heap_limits
from sluice.workers.missed_copies import MissedCopies
from sluice.workers.orders import OrderHandlers
from sluice.workers.poller import Poller
from sluice.workers.revocations import Revocations
from sluice.workers.rules import RuleStore
from sluice.workers.slots import Slot, SlotPool
from sluice.workers.stalls import StallScan
from sluice.workers.stuck import StuckScan
from sluice.workers.transport.base import Transport
from sluice.workers.transport.tcp import TcpTransport
from sluice.workers.transport.tls import TlsTransport
from sluice.workers.transport.websocket import ClientSide, ServerSide, WebSocketTransport

# Types of ops that do not change the table. `isinstance` takes a microsecond for such a union.
STATE_OPS: Final = frozenset(get_args(WorkerStateOp))
# Thresholds of the garbage collector. A wake leaves no reference cycles, so full collections are as rare as possible.
# The others are frequent: each object created since the last collection may take it a microsecond, which stalls the
# worker.
GC_THRESHOLDS: Final = (200, 1, 25_000)
# Most attaches that wait for a decision of the supervisor. Further ones wait until half of them are decided, so that
# other events, such as control messages of routers, never wait behind more, however many links a client attaches.
MAX_UNDECIDED_ATTACHES: Final = 512
DRAIN_STEP_MS: Final = 10
LINES_AFTER_MS: Final = 100  # interval at which log lines are sent to management

SETUP_ERROR: Final = ("amqp:connection:framing-error", "Connection aborted due to internal setup error")
# Log texts of Dispatch for parts of an sslProfile that cannot be used, for listeners and for connectors.
_CREDENTIALS: Final = "Cannot set SSL credentials"
LISTENER_FAULTS: Final = {
    "certificates": _CREDENTIALS,
    "key": _CREDENTIALS,
    "trusted": "Cannot set trusted SSL CA",
    "peer": "Cannot set peer authentication",
    "ciphers": "Cannot set ciphers. The ciphers string might be invalid. Use openssl ciphers -v <ciphers> to validate",
    "protocols": "Cannot set protocols. The protocols string might be invalid. "
    "This list is a space separated string of the allowed TLS protocols (TLSv1 TLSv1.1 TLSv1.2)",
}
_CERTIFICATE: Final = "SSL local certificate configuration failed"
CONNECTOR_FAULTS: Final = {
    "certificates": _CERTIFICATE,
    "key": _CERTIFICATE,
    "trusted": "SSL CA configuration failed",
    "peer": "SSL CA configuration failed",
    "ciphers": "SSL cipher configuration failed",
    "protocols": "Permitted TLS protocols configuration failed",
}


def open_log(settings: Mapping[str, object]) -> ProcessLog:
    """Return the log used until the first snapshot: with the settings of the start, or on stderr if that fails."""
    try:
        return ProcessLog(LogSettings.from_dict(settings))
    except LogError:
        return ProcessLog()


class WorkerRuntime:
    """Worker process. Owner: `run` of sluice.workers.main."""

    transport: type[Transport] = TcpTransport  # transport of a connection without TLS

    def __init__(self, setup: WorkerSetup, poller: Poller | None = None, channels: Channels | None = None) -> None:
        """Create a worker. poller, channels: sources of events, time and messages; None: those of the system."""
        self.setup = setup
        self.router = setup.router
        self.log = open_log(setup.log)
        self.log.on_line = self._schedule_lines
        self.lines_scheduled = False  # lines wait to be sent to the supervisor
        self.log_opened: int | None = None  # reopen count of the last log settings
        self.region = Region.attach(setup.region_fd)
        self.loop = Loop(self.region, setup.worker, poller)
        self.loop.scheduler.memory.content_limit = setup.router.buffered_megabytes << 20
        self.log.later = self._later
        self.links: dict[int, ConsumerLink] = {}  # by slot index
        self.link_table = LinkTable(self.region.links_per_worker)  # same links as in `links`, for ports
        self.slots = SlotPool(self.region, setup.worker, setup.generation)
        self.ports = [
            WorkerPort(
                self.region,
                setup.worker,
                peer,
                setup.eventfds[peer],
                self.link_table,
                self.loop.scheduler,
                self.loop.port_work,
            )
            for peer in range(setup.workers)
        ]
        self.routed = RoutedEnds(self)
        for port in self.ports:
            port.routed = self.routed.by_slot
            port.on_closed = self._port_closed
        self.in_process = InProcessRelay(self)
        router, accept = setup.router, self.in_process.accept
        missed = MissedCopies(self)
        make_tap: Callable[..., Tap] = Tap
        self.table = Table(
            self.region,
            setup.worker,
            router.id,
            self.ports,
            self.links,
            accept,
            router.mode,
            lambda *given: make_tap(*given, missed.add),
        )
        self.profiles: dict[str, Profile] = {}
        self.rules = RuleStore(self)
        self.credentials = CredentialStore()
        self.revocations = Revocations(self)
        self.clients: dict[int, ConnectionHandler] = {}
        self.questions = 0
        self.admissions = Admissions(self)
        self.stuck = StuckScan(self)
        self.stalls = StallScan(self)
        self.tracing = Tracing(self)
        self.suspended = SuspendedLinks(self)
        self.background = BackgroundThread(self.loop)
        self.orders = self._order_handlers()
        self.live = False
        self.early: list[tuple[int, list[Op]]] = []  # deltas received before the snapshot that they follow
        self.control = WorkerControl(
            channels or SocketChannels(setup),
            self.on_message,
            self.on_delta,
            self.adopt,
            self._after,
            self.loop.scheduler.has_time,
        )
        self.loop.use_ports(self.ports)
        self.loop.control = self.control
        for descriptor, callback in self.control.descriptors():
            self.loop.add(descriptor, callback)
        self.loop.add_signal(setup.eventfds[setup.worker])
        set_tag_space(setup.worker)
        use_node(f"0/{setup.router.id}", forwarded=setup.router.mode != EDGE_MODE)

    def _order_handlers(self) -> OrderHandlers:
        """Return the handlers of orders that the parts of the worker register."""
        orders = OrderHandlers(self.clients)
        register(orders.of_connections)
        for part in (self.rules, self.in_process, self.routed, self.tracing, self.suspended):
            part.messages(orders.others)
        orders.others.on(control.Snapshot, lambda _, order: self.on_snapshot(order))
        orders.others.on(control.Drain, lambda _, order: self.on_drain(order))
        orders.check_complete()
        return orders

    def run(self) -> int:
        """Run until `drain`; return the exit status."""
        gc.set_threshold(*GC_THRESHOLDS)
        set_heap_limits()
        try:
            self.control.poll()
            if self.control.dirty:  # the loop sends events at the end of a wake, and there may be none
                self.control.send()
            self.loop.run()
        except (Exception, FatalFault) as fault:  # noqa: BLE001 - the outermost error net
            # The state of this process is unknown. A new process begins with a snapshot.
            what = f"Worker {self.setup.worker} ends because of an internal error outside any connection"
            self.report_fault(what, fault)
            return 1
        self.control.close()
        return 0

    def report_fault(self, what: str, fault: BaseException) -> None:
        """Log an unexpected exception with its traceback, and count it."""
        trace = "".join(traceback.format_exception(fault)).rstrip()
        self.log.repeated(CRITICAL, "SERVER", place(fault), f"{what}: {trace}")
        self.loop.count_fault()

    def _port_closed(self, port: WorkerPort, error: Exception) -> None:
        """Report a malformed record, after which the supervisor replaces the worker that wrote it."""
        self.report_fault(f"A record from worker {port.peer} is malformed, so that worker will be replaced", error)
        self.control.send_event(control.PortClosed(port.peer, port.generation, str(error)))

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._after(round(seconds * 1000), action)

    def _after(self, ms: int, action: Callable[[], None]) -> None:
        self.loop.call_at(self.loop.scheduler.now + ms, action)

    def send_log(self, level: str, module: str, text: str) -> None:
        """Write a line to the router's log, in order with events. Nothing is sent if the level is off."""
        if self.log.enabled(module, LEVELS[level]):
            self.control.send_event(control.Log(module, level, text))

    def _schedule_lines(self, entry: LogEntry) -> None:
        """Send new lines to management, at most once in LINES_AFTER_MS."""
        if not self.lines_scheduled:
            self.lines_scheduled = True
            self.loop.call_at(self.loop.scheduler.now + LINES_AFTER_MS, self._send_lines)

    def _send_lines(self) -> None:
        self.lines_scheduled = False
        written = self.log.fresh
        counts, lines = self.log.take_log_changes()
        self.control.send_event(control.Logged(counts, lines, written - len(lines)))

    def log_changed(self) -> None:
        """Apply changed log settings to the traces."""
        self.tracing.log_changed()

    def on_message(self, message: control.Order, raw: bytes | None) -> None:
        """Execute an order of the supervisor. A fault closes the connection that the order is about."""
        self.loop.beat()
        try:
            self.orders.handle(message, raw)
        except Exception as fault:
            client = self._about(message)
            if client is None:
                what = f"{type(fault).__name__}: {fault}"
                raise FatalFault(f"message {message.kind_name} of the supervisor: {what}") from fault
            client.connection.end_by(fault)

    def _about(self, message: control.Order) -> ConnectionHandler | None:
        """Return the connection that an order is about; None: no connection."""
        if isinstance(message, pair_messages.Unpair):
            return self.routed.client_of(message.pair)
        return self.orders.connection_of(message)

    # -- table --------------------------------------------------------------------------------------------------------

    def on_snapshot(self, message: control.Snapshot) -> None:
        self.profiles = {}
        self.credentials.clear()
        ops = message.ops
        up = {op.worker: op.generation for op in ops if isinstance(op, WorkerOp) and op.state == "up"}
        gone = [port for port in self.ports if port.alive and up.get(port.peer) != port.generation]
        for client in self.clients.values():
            self.tracing.trace(client, None)
        self._apply(message.epoch, ops, self.table.replace)
        for port in gone:
            port.down()
            if port.peer in up:
                port.up(up[port.peer])
        self.live = True
        early, self.early = self.early, []
        self.control.send_event(control.Ready(message.epoch))
        for epoch, changes in early:
            self.on_delta(epoch, changes)

    def on_delta(self, epoch: int, ops: list[Op]) -> None:
        self.loop.beat()
        if not self.live:
            self.early.append((epoch, ops))
            return
        if epoch <= self.table.epoch:
            return
        if epoch != self.table.epoch + 1:
            self.live = False
            self.early = [(epoch, ops)]
            self.control.send_event(control.Resync())
            return
        try:
            self._apply(epoch, ops, self.table.apply)
        except Exception as fault:  # noqa: BLE001 - a half-applied table is useless, whatever the fault
            # All workers get the same delta, and must not all end. A snapshot replaces the half-applied change.
            self.report_fault(
                f"Epoch {epoch} of the address table cannot be applied, and all of it is requested again", fault
            )
            self.live = False
            self.control.send_event(control.Resync())
            return
        if ops and isinstance(ops[-1], UnawaitedOp):
            self.control.send_event_later(control.Ack(epoch))
        else:
            self.control.send_event(control.Ack(epoch))

    def _apply(self, epoch: int, ops: list[Op], change: Callable[[int, list[Op]], None]) -> None:
        for op in ops:
            if type(op) in STATE_OPS:
                self._apply_state(cast("WorkerStateOp", op))
        change(epoch, ops)
        for op in ops:
            if type(op) is WorkerOp and op.state == "down":
                self.ports[op.worker].down()
        self.in_process.table_changed()
        self.routed.table_changed()

    def _apply_state(self, op: WorkerStateOp) -> None:
        """Apply an op that does not change the table; called before the table changes."""
        match op:
            case ProfileOp():
                self.profiles[op.key] = op.profile
            case ProfileGone():
                self.profiles.pop(op.key, None)
            case CredentialsOp() | CredentialsGone():
                self.credentials.apply(op)
                self.revocations.changed(op.name)
            case LogOp():
                self.use_log(op.settings, op.opened)
            case TraceOp():
                client = self.clients.get(op.conn)
                if client is not None:
                    self.tracing.trace(client, op.on)
            case SamplingOp():
                self.tracing.sample(op)
            case WorkerOp():
                port = self.ports[op.worker]
                if op.state == "up" and not port.alive:
                    port.up(op.generation)
            case UnawaitedOp():
                pass
            case _:
                assert_never(op)

    def use_log(self, settings: Mapping[str, object], opened: int) -> None:
        """Apply the log settings of the supervisor. opened: if this number changed, reopen the files."""
        again = self.log_opened is not None and opened != self.log_opened
        self.log_opened = opened
        try:
            self.log.apply(LogSettings.from_dict(settings))
            if again:
                self.log.reopen()
        except LogError as error:
            self.log.error(
                "SERVER", f"Worker {self.setup.worker} cannot use the new log settings and keeps the old ones: {error}"
            )
        self.log_changed()

    # -- connections --------------------------------------------------------------------------------------------------

    def adopt(self, message: Handover, descriptor: int) -> None:
        """Take a connection that the supervisor accepted or opened."""
        profile = self.profiles.get(message.profile)
        initiate = message.initiate
        if descriptor < 0 or profile is None:
            reason = "no file descriptor is left" if descriptor < 0 else f"profile {message.profile} is unknown"
            way = "from" if initiate is None else "to"
            text = f"[C{message.conn}] Connection {way} {message.peer} dropped: {reason}"
            self.log.repeated(ERROR, "SERVER", "dropped", text)
            if descriptor >= 0:
                self.loop.close_descriptor(descriptor)
            self.control.send_event(control.Closed(conn=message.conn, error=None))
            return
        client = ConnectionHandler(self, message.conn, profile, initiate, admits=message.admits)
        try:
            client.transport = transport = self._transport(client, descriptor, bool(message.octets))
        except TlsError as error:
            self._report_credentials(message, error)
            self.loop.close_descriptor(descriptor)
            self.control.send_event(control.Closed(conn=message.conn, error=SETUP_ERROR))
            return
        self.clients[client.number] = client
        self.loop.add(descriptor, transport)
        try:
            if initiate is not None:
                client.connection.start()
            transport.begin(message.octets)
        except Exception as fault:  # noqa: BLE001 - error net of a new connection
            client.connection.end_by(fault)

    def _transport(self, client: ConnectionHandler, descriptor: int, asked: bool) -> Transport:
        """Return the transport of a connection. asked: the supervisor has read a request for WebSocket, without TLS.
        Raises TlsError."""
        profile, initiate, connection = client.profile, client.initiate, client.connection
        encrypted = profile.tls is not None and not asked
        below = (
            self._tls_transport(client, descriptor) if encrypted else self.transport(self.loop, descriptor, connection)
        )
        if not profile.websockets:
            return below
        side: ServerSide | ClientSide
        if initiate is None:
            side = ServerSide(
                self._site(profile, descriptor),
                encrypted,
                partial(self._ask_page, client.number) if encrypted else None,
            )
        else:
            side = ClientSide(initiate.host, initiate.port, profile.websocket_path, encrypted)
        return WebSocketTransport(self.loop, descriptor, connection, below, side)

    @staticmethod
    def _site(profile: Profile, descriptor: int) -> OriginPolicy:
        """Return the listener of a request for WebSocket, as the rules for web pages need it."""
        opened = socket.socket(fileno=descriptor)
        try:
            return OriginPolicy(profile.host, tuple(profile.allowed_origins), str(opened.getsockname()[0]))
        finally:
            opened.detach()

    def _tls_transport(self, client: ConnectionHandler, descriptor: int) -> TlsTransport:
        """Return a transport over TLS. Raises TlsError."""
        profile, initiate = client.profile, client.initiate
        context = self.credentials.of_endpoint(profile, server=initiate is None)
        host = None if initiate is None else initiate.host
        return TlsTransport(self.loop, descriptor, client.connection, context, host, profile.verify_hostname)

    def _ask_page(self, connection: int, request: bytes) -> int:
        """Return the descriptor of the supervisor's answer to a request for a page; -1: there will be none."""
        client = self.clients.get(connection)
        tls = None if client is None or client.transport is None else client.transport.tls
        certified = tls is not None and tls.subject is not None
        try:
            return self.control.request_page(connection, request, certified=certified)
        except OSError as error:
            text = f"[C{connection}] The request for a page is not answered: {error.strerror}"
            self.log.repeated(WARNING, "HTTP", "page", text)
            return -1

    def _report_credentials(self, message: Handover, error: TlsError) -> None:
        """Log that a connection cannot be made with the credentials of its profile (security.md T-12, T-13)."""
        if message.initiate is None:
            self.log.repeated(ERROR, "ERROR", error.part, f"Run Time: {LISTENER_FAULTS[error.part]}")
            return
        place = f"for connection [C{message.conn}] to {message.peer}"
        self.log.error("SERVER", f"{CONNECTOR_FAULTS[error.part]} {place}")
        self.log.error("SERVER", f"[C{message.conn}] Connection aborted due to internal setup error")

    def forget_client(self, client: ConnectionHandler) -> None:
        self.clients.pop(client.number, None)
        self.admissions.done(client)
        self.in_process.forget(client.number)

    def count_undecided(self, more: int) -> None:
        """Change the number of attaches that wait for a decision."""
        self.questions += more
        if self.questions >= MAX_UNDECIDED_ATTACHES:
            self.loop.scheduler.behind = True
        elif self.questions <= MAX_UNDECIDED_ATTACHES // 2:
            self.loop.scheduler.behind = False

    # -- link slots ---------------------------------------------------------------------------------------------------

    def enter_link(
        self,
        session: Session,
        link: DeliveryLink,
        name: str,
        handle: int | None,
        *,
        incoming: bool,
        container: bool = False,
    ) -> Slot:
        """Give a link its slot and its handle; return the slot. Raises RemoteError if no slot or no handle is free;
        the link then has neither.
        """
        slot = self.slots.claim(link, incoming, container, self.loop.scheduler.now_ns)
        try:
            session.add_link(link, name, handle, incoming)
        except BaseException:
            self.slots.release(slot, self.loop.scheduler.now_ns)
            raise
        self.stuck.wanted()
        self.stalls.wanted()
        if isinstance(link, ConsumerLink):
            self.links[slot.index] = link
            self.link_table.enter(slot.index, slot.generation, link)
        return slot

    def leave_slot(self, slot: Slot) -> None:
        """Hide the link of a slot from deliveries. The slot stays claimed."""
        self.links.pop(slot.index, None)
        self.link_table.leave(slot.index)

    def release_slot(self, slot: Slot) -> None:
        self.leave_slot(slot)
        self.slots.release(slot, self.loop.scheduler.now_ns)
        self.loop.note_memory_use()

    # -- the end ------------------------------------------------------------------------------------------------------

    def on_drain(self, message: control.Drain) -> None:
        """Stop reading, send queued output, then end; at the deadline in any case (routing-semantics.md O-4)."""
        self.loop.pause_clients()
        self._drain_until(self.loop.scheduler.now + message.deadline_ms)

    def _drain_until(self, deadline: int) -> None:
        if self.loop.idle() or self.loop.scheduler.now >= deadline:
            self.loop.running = False
        else:
            self.loop.call_at(self.loop.scheduler.now + DRAIN_STEP_MS, lambda: self._drain_until(deadline))

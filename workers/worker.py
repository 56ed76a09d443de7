"""The worker: its table, ports, link slots and clients, and what the supervisor's messages do to them."""

import gc
import traceback
from collections.abc import Callable
from typing import Any, Final

from router.amqp.message import use_node
from router.amqp.outgoing_link import OutgoingLink, set_tag_space
from router.amqp.session import Session
from router.routing.port import WorkerPort
from router.routing.table import Table

from router.amqp.errors import FatalFault
from router.ipc import control
from router.ipc.control import Message, WorkerSetup
from router.ipc.layout import Region
from router.log import CRITICAL, ERROR, LEVELS, Log, LogError, LogSettings, place
from workers.client import Client
from workers.control import Control
from workers.inprocess import InProcess
from workers.loop import Loop, Transport
from workers.routed import RoutedEnds
from workers.slots import SlotPool
from workers.stuck import StuckScan
from workers.tracing import Tracing

GC_THRESHOLD: Final = 100_000  # objects between collections: what a wake leaves behind has no cycles
DRAIN_STEP_MS: Final = 10
LINES_AFTER_MS: Final = 100  # until management knows of lines that a worker has written


def open_log(settings: dict[str, Any]) -> Log:
    """The log until the supervisor says more: as it was at the start of the router, or to stderr if that fails now."""
    try:
        return Log(LogSettings.from_dict(settings))
    except LogError:
        return Log()


class Worker:
    """One worker process. Owner: `run` of workers.main."""

    def __init__(self, setup: WorkerSetup) -> None:
        self.setup = setup
        self.router = setup.router
        self.log = open_log(setup.log)
        self.log.on_line = self._line_written
        self.lines_due = False  # the supervisor is to hear of lines that were written here
        self.log_opened: int | None = None  # how often the files were to be opened anew
        self.region = Region.attach(setup.region_fd)
        self.loop = Loop(self.region, setup.worker)
        self.loop.scheduler.content_limit = setup.router["maxBufferedMegabytes"] << 20
        self.log.later = self._later
        self.links: dict[int, Any] = {}  # slot index -> OutgoingLink
        self.slots = SlotPool(self.region, setup.worker, setup.generation)
        self.ports = [
            WorkerPort(self.region, setup.worker, peer, setup.eventfds[peer], self.links, self.loop.scheduler)
            if peer != setup.worker
            else None
            for peer in range(setup.workers)
        ]
        self.routed = RoutedEnds(self)
        for port in self.ports:
            if port is not None:
                port.routed = self.routed.by_slot
        self.in_process = InProcess(self)
        self.table = Table(
            self.region, setup.worker, setup.router["id"], self.ports, self.links, self.in_process.accept
        )
        self.offers: dict[str, dict[str, Any]] = {}
        self.clients: dict[int, Client] = {}
        self.stuck = StuckScan(self)
        self.tracing = Tracing(self)
        self.live = False
        self.early: list[tuple[int, list[list[Any]]]] = []  # deltas that came before the snapshot they go with
        self.control = Control(setup, self.on_message, self.on_delta, self.adopt)
        self.loop.use_ports(self.ports)
        self.loop.control = self.control
        for descriptor, callback in self.control.descriptors():
            self.loop.add(descriptor, callback)
        self.loop.add(setup.eventfds[setup.worker], self._drain_eventfd)
        set_tag_space(setup.worker)
        use_node(f"0/{setup.router['id']}")
        self.handlers: dict[str, Callable[[Message, bytes | None], None]] = {
            control.SNAPSHOT: self.on_snapshot,
            control.ATTACHED: self.on_answer,
            control.REFUSED: self.on_answer,
            control.DECIDED: self.on_answer,
            control.DETACHED: self.on_answer,
            control.GONE: self.on_gone,
            control.LINK: self.on_link,
            control.UNLINK: self.on_unlink,
            control.CLOSE: self.on_close,
            control.DRAIN: self.on_drain,
            control.PAIR: self.routed.pair,
            control.PAIRED: self.on_paired,
            control.UNPAIR: self.routed.unpair,
            control.SEND: self.on_send,
            control.CONTROL: self.on_control,
            control.TAKEN: self.on_taken,
            control.WATCH: self.on_watch,
        }

    def run(self) -> int:
        """Until the supervisor says `drain`; the exit status."""
        gc.set_threshold(GC_THRESHOLD)
        try:
            self.control.poll()
            while self.control.dirty:  # the loop sends what was told at the end of a wake, and none may come
                self.control.flush()
            self.loop.run()
        except (Exception, FatalFault) as fault:  # noqa: BLE001 - the last net
            # Nobody knows what it has left behind: a new process begins with all that the supervisor knows.
            what = f"Worker {self.setup.worker} ends because of a fault that no connection can answer for"
            self.report_fault(what, fault)
            return 1
        self.control.close()
        return 0

    def report_fault(self, what: str, fault: BaseException) -> None:
        """An exception that nothing expects: logged with where it came from, and counted."""
        trace = "".join(traceback.format_exception(fault)).rstrip()
        self.log.repeated(CRITICAL, "SERVER", place(fault), f"{what}: {trace}")
        self.loop.count_fault()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self.loop.call_at(self.loop.scheduler.now + round(seconds * 1000), action)

    def tell_log(self, level: str, module: str, text: str) -> None:
        """A line for the router's log, in the order of what is told about it; nothing when the level is off."""
        if self.log.enabled(module, LEVELS[level]):
            self.control.tell({"t": control.LOG, "module": module, "level": level, "text": text})

    def _line_written(self) -> None:
        """Management counts and shows our lines too: tell of them, not too often."""
        if not self.lines_due:
            self.lines_due = True
            self.loop.call_at(self.loop.scheduler.now + LINES_AFTER_MS, self._tell_lines)

    def _tell_lines(self) -> None:
        self.lines_due = False
        self.control.tell({"t": control.LOGGED, **self.log.take_news()})

    def log_changed(self) -> None:
        """The log's settings have changed: what is written for each frame or message is looked up anew."""
        self.tracing.log_changed()

    def on_message(self, message: Message, raw: bytes | None) -> None:
        """The net below each message of the supervisor: what it raises ends the connection that it is about."""
        self.loop.beat()
        try:
            self.handlers[message["t"]](message, raw)
        except Exception as fault:
            client = self._about(message)
            if client is None:
                what = f"{type(fault).__name__}: {fault}"
                raise FatalFault(f"message {message['t']} of the supervisor: {what}") from fault
            client.connection.end_by(fault)

    def _about(self, message: Message) -> Client | None:
        """The connection that a message of the supervisor is about, if it is about one."""
        if message["t"] == control.UNPAIR:
            return self.routed.client_of(message["pair"])
        return self.clients.get(message.get("conn", 0))

    def _drain_eventfd(self) -> None:
        self.loop.clear_eventfd(self.setup.eventfds[self.setup.worker])

    # -- table --------------------------------------------------------------------------------------------------------

    def on_snapshot(self, message: Message, raw: bytes | None) -> None:
        self.offers = {}
        ops = message["ops"]
        up = {op[1]: op[2] for op in ops if op[0] == control.OP_WORKER and op[3] == "up"}
        gone = [port for port in self.ports if port is not None and port.alive and up.get(port.peer) != port.generation]
        for client in self.clients.values():
            self.tracing.trace(client, None)
        self._apply(message["epoch"], ops, self.table.replace)
        for port in gone:
            port.down()
            if port.peer in up:
                port.up(up[port.peer])
        self.live = True
        early, self.early = self.early, []
        self.control.tell({"t": control.READY, "epoch": message["epoch"]})
        for epoch, changes in early:
            self.on_delta(epoch, changes)

    def on_delta(self, epoch: int, ops: list[list[Any]]) -> None:
        self.loop.beat()
        if not self.live:
            self.early.append((epoch, ops))
            return
        if epoch <= self.table.epoch:
            return
        if epoch != self.table.epoch + 1:
            self.live = False
            self.early = [(epoch, ops)]
            self.control.tell({"t": control.RESYNC})
            return
        try:
            self._apply(epoch, ops, self.table.apply)
        except Exception as fault:  # noqa: BLE001 - a table that is half changed is good for nothing, whatever it was
            # All workers get the same: they are not all to end. What is half done is replaced by a snapshot.
            self.report_fault(f"Epoch {epoch} of the address table does not fit", fault)
            self.live = False
            self.control.tell({"t": control.RESYNC})
            return
        self.control.tell({"t": control.ACK, "epoch": epoch})

    def _apply(self, epoch: int, ops: list[list[Any]], change: Callable[[int, list[list[Any]]], None]) -> None:
        for op in ops:
            if op[0] == control.OP_OFFER:
                self.offers[op[1]] = op[2]
            elif op[0] == control.OP_OFFER_GONE:
                self.offers.pop(op[1], None)
            elif op[0] == control.OP_LOG:
                self.use_log(op[1], op[2])
            elif op[0] == control.OP_TRACE:
                client = self.clients.get(op[1])
                if client is not None:
                    self.tracing.trace(client, op[2])
            elif op[0] == control.OP_WORKER and op[3] == "up":
                port = self.ports[op[1]]
                if port is not None and not port.alive:
                    port.up(op[2])
        change(epoch, ops)
        for op in ops:
            if op[0] == control.OP_WORKER and op[3] == "down":
                port = self.ports[op[1]]
                if port is not None:
                    port.down()
        self.in_process.table_changed()

    def use_log(self, settings: dict[str, Any], opened: int) -> None:
        """Log as the supervisor does. `opened`: another number than before means to open the files anew."""
        again = self.log_opened is not None and opened != self.log_opened
        self.log_opened = opened
        try:
            self.log.apply(LogSettings.from_dict(settings))
            if again:
                self.log.reopen()
        except LogError as error:
            self.log.error("SERVER", f"Worker {self.setup.worker} goes on with its log as it was: {error}")
        self.log_changed()

    # -- connections --------------------------------------------------------------------------------------------------

    def adopt(self, message: Message, descriptor: int) -> None:
        """A connection that the supervisor accepted or opened."""
        offer = self.offers.get(message["offer"])
        initiate = message.get("initiate")
        if descriptor < 0 or offer is None:
            reason = "no descriptor is free" if descriptor < 0 else f"offer {message['offer']} is not known"
            way = "from" if initiate is None else "to"
            text = f"[C{message['conn']}] Connection {way} {message['peer']} dropped: {reason}"
            self.log.repeated(ERROR, "SERVER", "dropped", text)
            if descriptor >= 0:
                self.loop.close_descriptor(descriptor)
            self.control.tell({"t": control.CLOSED, "conn": message["conn"], "error": None})
            return
        client = Client(self, message["conn"], offer, initiate)
        client.transport = transport = Transport(self.loop, descriptor, client.connection)
        self.clients[client.number] = client
        self.loop.add(descriptor, transport)
        try:
            if initiate is not None:
                client.connection.start()
            transport.schedule()
        except Exception as fault:  # noqa: BLE001 - the net below a new connection
            client.connection.end_by(fault)

    def forget_client(self, client: Client) -> None:
        self.clients.pop(client.number, None)
        self.in_process.forget(client.number)

    def on_answer(self, message: Message, raw: bytes | None) -> None:
        client = self.clients.get(message["conn"])
        if client is not None:
            client.answer(message)

    def on_paired(self, message: Message, raw: bytes | None) -> None:
        client = self.clients.get(message["conn"])
        if client is not None:
            client.answer(message)
        else:
            self.routed.unwanted(message)

    def on_gone(self, message: Message, raw: bytes | None) -> None:
        client = self.clients.get(message["conn"])
        if client is not None:
            client.connection.answer_close()

    def on_link(self, message: Message, raw: bytes | None) -> None:
        client = self.clients.get(message["conn"])
        if client is not None:
            client.link(message)

    def on_unlink(self, message: Message, raw: bytes | None) -> None:
        client = self.clients.get(message["conn"])
        if client is not None:
            client.unlink(message)

    def on_close(self, message: Message, raw: bytes | None) -> None:
        client = self.clients.get(message["conn"])
        if client is not None:
            client.close(message)

    def on_watch(self, message: Message, raw: bytes | None) -> None:
        client = self.clients.get(message["conn"])
        self.tracing.watch(message["conn"], client, message["on"], message.get("due_ms"))

    # -- link slots ---------------------------------------------------------------------------------------------------

    def enter_link(
        self, session: Session, link: Any, name: str, handle: int | None, *, incoming: bool, container: bool = False
    ) -> Any:
        """Give a link its slot and its handle; returns the slot. Raises RemoteError when there is none left of either:
        the link has got nothing then, and its session does not know it.
        """
        slot = self.slots.claim(link, incoming, container, self.loop.scheduler.now_ns)
        try:
            session.add_link(link, name, handle, incoming)
        except BaseException:
            self.slots.release(slot)
            raise
        self.stuck.wanted()
        if isinstance(link, OutgoingLink):
            self.links[slot.index] = link
        return slot

    def release_slot(self, slot: Any) -> None:
        self.links.pop(slot.index, None)
        self.slots.release(slot)
        self.loop.used_memory()

    # -- the router itself --------------------------------------------------------------------------------------------

    def on_send(self, message: Message, raw: bytes | None) -> None:
        assert raw is not None
        self.in_process.send(message, raw)

    def on_control(self, message: Message, raw: bytes | None) -> None:
        assert raw is not None
        self.in_process.send_control(message, raw)

    def on_taken(self, message: Message, raw: bytes | None) -> None:
        self.in_process.taken(message["counts"])
        self.in_process.control_taken(message.get("control", ()))

    # -- the end ------------------------------------------------------------------------------------------------------

    def on_drain(self, message: Message, raw: bytes | None) -> None:
        """Read nothing more, let what is queued leave, then end; at the deadline in any case."""
        self.loop.stop_reading()
        self._drain_until(self.loop.scheduler.now + message["deadline_ms"])

    def _drain_until(self, deadline: int) -> None:
        if self.loop.idle() or self.loop.scheduler.now >= deadline:
            self.loop.running = False
        else:
            self.loop.call_at(self.loop.scheduler.now + DRAIN_STEP_MS, lambda: self._drain_until(deadline))

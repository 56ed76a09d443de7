"""What happens in the router: messages of workers come in, answers and deltas go out. No input or output here."""
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from router.config.entities import Configuration, ConnectorConfig, ListenerConfig
from router.ipc.control import (
    ACK,
    ATTACH,
    CLOSE,
    CLOSED,
    CONTROL_KEY,
    DETACH,
    DETACHED,
    FORWARDED,
    GONE,
    INITIATED,
    LINKED,
    LOCAL,
    LOG,
    LOGGED,
    OP_LOG,
    OP_TRACE,
    OP_WORKER,
    OPENED,
    PAIRABLE,
    READY,
    RESYNC,
    ROUTEDUP,
    ROUTERLINK,
    SNAPSHOT,
    TRACED,
    UNLINKED,
    UNPAIRABLE,
    UNPAIRED,
    Initiate,
    Message,
)
from router.log import DEBUG, LEVELS, MODULES, WARNING, Log, LogSettings
from router.routing.address import INTERIOR_MODE, MOBILE, key
from router.routing.address import LOCAL as LOCAL_CLASS
from supervisor.attach import Attaching
from supervisor.configure import address_entries
from supervisor.connections import (
    Connection,
    Ending,
    Initiator,
    log_accepted,
    log_closed,
    log_opened,
    tell_ended,
)
from supervisor.containers import Containers
from supervisor.epochs import Epochs
from supervisor.exchanges import Exchanges
from supervisor.inprocess import InProcess
from supervisor.linkroutes import LinkRoutes
from supervisor.links import Links, Waiting
from supervisor.linktargets import Targets
from supervisor.neighbours import Neighbours
from supervisor.offers import Offers
from supervisor.own_links import OwnLinks
from supervisor.settings import Settings
from supervisor.table import Op, Table
from supervisor.testhooks import add_test_hooks
from supervisor.watches import Watches
from supervisor.worker import Stage, Worker, WorkerFaultError

if TYPE_CHECKING:
    from supervisor.routers import Routers

MANAGEMENT: Final = "$management"
# Addresses served by the router itself: class and name.
IN_PROCESS: Final = ((MOBILE, MANAGEMENT), (LOCAL_CLASS, MANAGEMENT))

class Core:
    """The router's state and its reactions. Owner: supervisor."""

    def __init__(
        self,
        configuration: Configuration,
        log: Log,
        addresses: int,
        reset_address: Callable[[int], None],
        *,
        test_hooks: bool = False,
    ) -> None:
        """`addresses`: counter slots in shared memory; `reset_address` zeroes one before its id is used again."""
        self._log = log
        self._reset_address = reset_address
        self.table = Table(addresses)
        self.epochs: Epochs[Waiting] = Epochs()
        self.workers: dict[int, Worker] = {}  # the current generation of each, dead or alive
        self.opened: dict[int, Connection] = {}  # connections with an AMQP open, by number, in order of opening
        self.auto_links = 0  # configured
        self.containers = Containers()
        self.own_links = OwnLinks(self.take_identity, self._tell_worker_of)
        self.started_at = time.monotonic()
        self.ending = False  # the router stops: workers close their connections and end
        self.denied = 0  # sockets refused by the limit of all connections
        router = configuration.router
        entries, refused = address_entries(configuration.addresses)
        for text in refused:
            log.error("ERROR", text)
        self.settings = Settings(self.table, entries, router.default_distribution)
        self.link_routes = LinkRoutes(self.containers, log)
        self.routers: Routers | None = None  # of an interior router
        if router.mode == INTERIOR_MODE:
            from supervisor import routers  # the engine takes a while to load, which only such a router needs

            self.routers = routers.Routers(router, self.table, self.settings, log)
            self.link_routes.local_changed = self.routers.link_address_changed
        targets = Targets(router.id, self.link_routes, self.routers, self._router_of)
        self._attaching = Attaching(router.id, router.mode, self.settings.current, self.table, targets)
        self.exchanges = Exchanges(router.id, router.mode, self.settings.current, self.table)
        self.offers = Offers(self.table, [listener for listener in configuration.listeners if not listener.http])
        # What waits for a round of the settings, which is given, to be through.
        self._when_in_force: deque[tuple[int, Callable[[], object]]] = deque()
        self._log_op: Op = [OP_LOG, log.settings.to_dict(), 0]
        self._next_connection = 1
        self._accepted = 0
        self._initiated: set[int] = set()  # numbers of our own connections that a worker has
        # Links share their numbers with the configured objects, which come first.
        self._next_identity = 1 + sum(
            len(entities)
            for entities in (
                configuration.addresses,
                configuration.link_routes,
                configuration.auto_links,
                configuration.exchanges,
                configuration.bindings,
            )
        )
        self.watches = Watches(self._tell_worker_of)
        self.in_process = InProcess(self.table, self.workers, self._attaching.find, log)
        self.neighbours = Neighbours(self.table, self.in_process, self.take_identity, log)
        if self.routers is not None:
            self.neighbours.network = self.routers
            self.routers.send_control = self.neighbours.send_control
            self.routers.known = self.neighbours.known
        self._links = links = Links(
            self.workers,
            self.table,
            self.epochs,
            self._attaching,
            self.own_links,
            self.neighbours,
            self._router_of,
            self.take_identity,
            log,
        )
        self.links = links.by_identity
        self._handlers: dict[str, Callable[[Worker, Message], None]] = {
            READY: self._ready,
            RESYNC: self._resync,
            ACK: self._ack,
            OPENED: self._opened,
            CLOSED: self._closed,
            ATTACH: links.attach,
            DETACH: self._detach,
            INITIATED: links.own_begun,
            LINKED: links.own_answered,
            UNLINKED: links.own_refused,
            ROUTERLINK: links.router_link,
            PAIRABLE: links.pairs.pairable,
            UNPAIRABLE: links.pairs.unpairable,
            UNPAIRED: links.pairs.unpaired,
            ROUTEDUP: links.routed_up,
            FORWARDED: self._forwarded,
            LOG: self._log_line,
            LOGGED: self._logged,
            TRACED: self._traced,
        }
        for cls, name in IN_PROCESS:
            self.in_process.open(key(cls, name))
        if test_hooks:
            add_test_hooks(self.in_process, self._attaching)
        self._add_exchanges(configuration)
        self.use_link_routes(configuration)

    def use_link_routes(self, configuration: Configuration) -> None:
        """Go by what a configuration says of routed links."""
        self._attaching.resumable = configuration.router.resumable_routed_links
        self.link_routes.replace(configuration.link_routes)

    @property
    def addresses(self) -> int:
        """Number of addresses, those of link routes included."""
        link_routes = {address.key for address in self.link_routes.addresses()}
        if self.routers is not None:
            link_routes.update(address.key for address in self.routers.link_routes)
        return len(self.table.records) + len(link_routes)

    @property
    def connections(self) -> int:
        """Number of accepted connections that are there, those not yet opened by AMQP included."""
        return sum(len(worker.connections) for worker in self.workers.values()) - len(self._initiated)

    @property
    def busy(self) -> bool:
        """Whether `take_delta` has more to do when other events have had their turn."""
        return self.settings.waiting(self.epochs) or (self.routers is not None and self.routers.waiting(self.epochs))

    @property
    def accepted(self) -> int:
        """Number of connections ever accepted, those closed since included."""
        return self._accepted

    def take_connection_number(self) -> int:
        """A number for a connection, or for an attempt to open one; never given twice."""
        number = self._next_connection
        self._next_connection += 1
        return number

    def take_identity(self) -> int:
        """A number for a link or configured object; never given twice."""
        identity = self._next_identity
        self._next_identity += 1
        return identity

    def when_in_force(self, action: Callable[[], object]) -> None:
        """Call `action` when all workers go by the configuration as it is now."""
        self._when_in_force.append((self.settings.last_round, action))

    def change_log(self, settings: LogSettings, reopen: bool) -> None:
        """Tell the workers how to log; `reopen`: to open their files again."""
        self._log_op = [OP_LOG, settings.to_dict(), self._log_op[2] + reopen]
        self.table.change(self._log_op)

    # From outside

    def adopt(
        self, worker: Worker, listener: ListenerConfig, local: str, peer: str, offer: str | None = None
    ) -> Connection:
        """Count and number an accepted connection that goes to `worker`.

        offer: what workers know the listener by; of those of the start, its name.
        """
        connection = Connection(self.take_connection_number(), listener, local, peer, offer or listener.name)
        self.offers.enter(connection.offer)
        self._accepted += 1
        self.move(connection, worker)
        log_accepted(self._log, connection)
        return connection

    def initiate(
        self, number: int, connector: ConnectorConfig, offer: str, initiator: Initiator, initiate: Initiate
    ) -> Connection:
        """Know a connection that a connector has opened; `move` gives it to a worker.

        offer: what workers know the connector by. initiate: what the worker has to know besides, see Handover.
        """
        connection = Connection(number, connector, "", connector.place, offer)
        connection.initiator = initiator
        connection.initiate = initiate
        self.offers.enter(offer)
        return connection

    def move(self, connection: Connection, worker: Worker) -> None:
        """A connection that no worker has got goes to this one."""
        worker.connections[connection.number] = connection
        connection.worker = worker.index
        if connection.initiator is not None:
            self._initiated.add(connection.number)

    def take_back(self, connection: Connection, worker: Worker) -> None:
        """A worker has not got a connection after all."""
        del worker.connections[connection.number]
        self._initiated.discard(connection.number)

    def give_up(self, connection: Connection, reason: str) -> None:
        """No worker has got a connection, and none will."""
        self._forget(None, connection)
        self._log.error("SERVER", f"[C{connection.number}] Connection of {connection.peer} dropped: {reason}")
        if connection.initiator is not None:
            tell_ended(self._log, connection, Ending.FAILED, ["amqp:internal-error", reason])

    def close(self, connection: Connection, condition: str | None = None, description: str | None = None) -> None:
        """Have a connection closed by its worker."""
        connection.closing = True
        message = {"t": CLOSE, "conn": connection.number, "condition": condition, "description": description}
        self._tell_worker_of(connection, message)

    def trace(self, connection: Connection, on: bool) -> None:
        """Switch the log of a connection's frames; in force as the configuration is (`when_in_force`)."""
        if connection.trace is not on:
            connection.trace = on
            self.table.change([OP_TRACE, connection.number, on])

    def _tell_worker_of(self, connection: Connection, message: Message) -> None:
        worker = None if connection.worker is None else self.workers.get(connection.worker)
        if worker is not None and connection.number in worker.connections:
            worker.outbox.append(message)

    def receive(self, worker: Worker, message: Message, raw: bytes | None = None) -> None:
        """React to a message of a worker, `raw` the octets that came with it. Raises WorkerFaultError."""
        if message["t"] == LOCAL:
            if raw is None:
                raise WorkerFaultError("local: the octets of the message are missing")
            if message["key"] == CONTROL_KEY:
                self.neighbours.receive(worker, message["conn"], raw)
            else:
                self.in_process.receive(worker, message, raw)
            return
        handler = self._handlers.get(message["t"])
        if handler is None:
            raise WorkerFaultError(f"{message['t']} is no message of a worker")
        handler(worker, message)

    def subscribed(self, worker: Worker) -> None:
        """The worker hears all deltas from now on: it needs the table."""
        worker.wants_snapshot = True

    def lost(self, worker: Worker, settled: Callable[[], None]) -> None:
        """A worker died. `settled` is called when all others have settled what they had sent to it."""
        was_live = worker.live
        worker.stage = Stage.DEAD
        for connection in worker.connections.values():
            self._forget(worker, connection)
            self.watches.gone(connection.number)
            if connection.initiator is not None:
                tell_ended(self._log, connection, Ending.CLOSED if self.ending else Ending.ORPHANED, None)
            else:
                log_closed(self._log, connection, None)
        worker.connections = {}
        self.epochs.leave(worker.index)
        if was_live:
            epoch = self.table.change([OP_WORKER, worker.index, worker.generation, "down"])
            self.epochs.call_when_all(epoch, settled)
        else:
            settled()

    def take_delta(self) -> tuple[int, list[Op]] | None:
        """Settle what can be settled; then the changes to publish, or None. Call until it is None."""
        table, epochs = self.table, self.epochs
        epochs.run_actions(table.epoch)
        self.settings.step(epochs)
        if self.routers is not None:
            self.routers.step(epochs)
        while self._when_in_force and self.settings.through(self._when_in_force[0][0]):
            epochs.call_when_all(table.pending_epoch, self._when_in_force.popleft()[1])
        epochs.run_actions(table.epoch)
        self.neighbours.publish()
        delta = table.take_delta()
        settled = epochs.settled(table.epoch)
        table.reclaim(settled, self._reset_address)
        for worker, link, answer in epochs.released(table.epoch):
            if not link.closed:
                link.up = True
                worker.outbox.append(answer)
        if delta is None:
            for worker in self.workers.values():
                if worker.wants_snapshot:
                    worker.wants_snapshot = False
                    worker.outbox.append({"t": SNAPSHOT, "epoch": table.epoch, "ops": self.snapshot()})
        return delta

    def snapshot(self) -> list[Op]:
        """The whole table as ops. Nothing may wait to be published."""
        ops: list[Op] = [self._log_op, *self.offers.ops(), self.settings.op(), *self.neighbours.ops()]
        if self.routers is not None:
            ops += self.routers.ops()
        ops += self.table.address_ops()
        ops += self.exchanges.ops()
        ops += ([OP_WORKER, w.index, w.generation, "up"] for w in self.workers.values() if w.live)
        ops += self.table.consumer_ops()
        ops += ([OP_TRACE, each.number, each.trace] for each in self.opened.values() if each.trace is not None)
        return ops

    # Messages of workers

    def _ready(self, worker: Worker, message: Message) -> None:
        if worker.live:  # after a resync
            self._ack(worker, message)
            return
        if worker.stage is not Stage.STARTING:
            return
        worker.stage = Stage.LIVE
        self.epochs.join(worker.index, message["epoch"])
        worker.serving_from = self.table.change([OP_WORKER, worker.index, worker.generation, "up"])

    def _resync(self, worker: Worker, message: Message) -> None:
        del message
        level = WARNING if worker.stage is Stage.SERVING else DEBUG  # while it starts this is nothing unusual
        self._log.write(level, "SERVER", f"{worker} missed a change of the address table and gets all of it")
        worker.wants_snapshot = True

    def _ack(self, worker: Worker, message: Message) -> None:
        epoch = message["epoch"]
        self.epochs.acknowledge(worker.index, epoch)
        if worker.stage is Stage.LIVE and epoch >= worker.serving_from:
            worker.stage = Stage.SERVING

    def _opened(self, worker: Worker, message: Message) -> None:
        connection = worker.connections.get(message["conn"])
        if connection is None:
            return
        connection.opened = True
        connection.opened_at = time.monotonic()
        connection.mechanism = message.get("mechanism")
        connection.tls = message["tls"]
        connection.container = message["container"]
        connection.hostname = message["hostname"]
        connection.user = message["user"]
        connection.properties = message["properties"] or None
        self.opened[connection.number] = connection
        log_opened(self._log, connection)
        if connection.initiator is not None:
            connection.initiator.opened(connection)
        self.neighbours.opened(connection, message.get("announced") or {})
        self.containers.opened(connection)

    def _closed(self, worker: Worker, message: Message) -> None:
        connection = worker.connections.pop(message["conn"], None)
        if connection is not None:
            self._forget(worker, connection)
            if connection.initiator is not None:
                ending = Ending.CLOSED if message.get("graceful") else Ending.FAILED
                tell_ended(self._log, connection, ending, message["error"])
            else:
                log_closed(self._log, connection, message["error"])
        if message.get("confirm"):
            self._confirm(worker, {"t": GONE, "conn": message["conn"]})

    def _detach(self, worker: Worker, message: Message) -> None:
        self._links.detach(worker, message)
        if message.get("confirm"):
            self._confirm(worker, {"t": DETACHED, "conn": message["conn"], "link": message["link"]})

    def _router_of(self, number: int) -> tuple[Connection, bool] | None:
        neighbour = self.neighbours.get(number)
        return None if neighbour is None else (neighbour.connection, neighbour.ours)

    def _confirm(self, worker: Worker, answer: Message) -> None:
        """Tell a worker when all have applied the change that is being made."""
        self.epochs.call_when_all(self.table.pending_epoch, lambda: worker.outbox.append(answer))

    def _forwarded(self, worker: Worker, message: Message) -> None:
        worker.unconfirmed -= message["octets"]

    def _log_line(self, worker: Worker, message: Message) -> None:
        module, level = message["module"], message["level"]
        if level not in LEVELS or module not in MODULES:
            raise WorkerFaultError(f"log: {worker} names module {module!r}, level {level!r}")
        self._log.write(LEVELS[level], module, message["text"])

    def _logged(self, worker: Worker, message: Message) -> None:
        try:
            self._log.add_news(message)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WorkerFaultError(f"logged: {worker} sends no lines: {error!r}") from error

    def _traced(self, worker: Worker, message: Message) -> None:
        del worker
        self.watches.told(message)

    def _forget(self, worker: Worker | None, connection: Connection) -> None:
        """A connection is gone, and its links with it. worker: that had it."""
        self.opened.pop(connection.number, None)
        self.offers.leave(connection.offer)
        self._initiated.discard(connection.number)
        if worker is not None:
            for link in connection.links.values():
                self._links.drop(worker, link)
        self.own_links.gone(connection)
        self._links.pairs.connection_gone(connection)
        self.neighbours.closed(connection)
        self.link_routes.gone(connection)
        self.containers.closed(connection)

    # Configuration

    def _add_exchanges(self, configuration: Configuration) -> None:
        for text in self.exchanges.replace(configuration.exchanges, configuration.bindings):
            self._log.error("ROUTER_CORE", text)

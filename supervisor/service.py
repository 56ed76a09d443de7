"""Running supervisor: an event loop with the core, the channels to workers, and the listeners."""

import asyncio
import gc
import os
import signal
import time
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import psutil

from sluice.router.addressing.address import key
from sluice.router.config.diff import Plan
from sluice.router.config.entities import Configuration
from sluice.router.control.messages import MESSAGES_A_PART, Event
from sluice.router.control.ops import Op, UnawaitedOp
from sluice.router.log import CRITICAL, ProcessLog
from sluice.router.log import place as place_of
from sluice.router.pacing.admission_share import ACTIVE_MS
from sluice.router.policy.management import SERVED_KEYS
from sluice.router.process import forbid_memory_access, set_no_new_privileges
from sluice.router.stats.sums import AddressCounters
from sluice.router.version import VERSION
from sluice.supervisor.audit.audit import AuditStartError
from sluice.supervisor.children.channels import WorkerChannels
from sluice.supervisor.children.handover_sockets import HandoverSockets
from sluice.supervisor.children.pool import WorkerPool
from sluice.supervisor.children.privileges import Identity, forbid_core_dumps
from sluice.supervisor.children.probes import Probes
from sluice.supervisor.children.shared_resources import SharedResources
from sluice.supervisor.children.worker import WorkerCorruptError, WorkerFaultError, WorkerProcess, WorkerStage
from sluice.supervisor.children.zygote import Zygote
from sluice.supervisor.composition import IN_PROCESS, RouterCore, add_services
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.configuration.live import LiveConfiguration
from sluice.supervisor.configuration.reload_requests import HangUp, register_reload
from sluice.supervisor.configuration.reloads import Reloads
from sluice.supervisor.configuration.show_requests import register_show
from sluice.supervisor.configuration.watch import ConfigurationWatch
from sluice.supervisor.drain.drain import DEFAULT_GRACE, DrainBegun, RouterDrain
from sluice.supervisor.drain.requests import register_drain
from sluice.supervisor.history.reader import FigureReader
from sluice.supervisor.listeners.listener import Listener, ListenError
from sluice.supervisor.listeners.open_listeners import describe_configured
from sluice.supervisor.management.agent import Agent
from sluice.supervisor.management.usage_view import register_usage
from sluice.supervisor.otlp.collector_export import CollectorExport
from sluice.supervisor.otlp.metric_pages import MetricSource
from sluice.supervisor.runtime.host_names import AddressesByHosts, Resolver, place
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.service_manager import ServiceManager
from sluice.supervisor.subsystem import NEVER
from sluice.supervisor.takeover.offer import TakeOverOffer
from sluice.supervisor.takeover.offered import OfferedRouter
from sluice.supervisor.takeover.predecessor import Predecessor
from sluice.supervisor.telemetry.health import Health, Lag, ListenerState
from sluice.supervisor.telemetry.telemetry import Telemetry
from sluice.supervisor.telemetry.usage import Usage
from sluice.supervisor.telemetry.usage_meter import UsageMeter
from sluice.supervisor.tls.profiles import TlsStartError

if TYPE_CHECKING:
    from sluice.supervisor.web.server import HttpService

EXIT_FAILED: Final = 1
# Signals that end the router.
ENDING: Final = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)
METRIC_PIECES: Final = "sluice.supervisor.telemetry.metric_pieces"
STOP_SECONDS: Final = 10  # most seconds from the end of a drain to the exit
_MODE_TEXTS: Final = {
    "standalone": "Router started in Standalone mode",
    "edge": "Router started in Edge mode",
}
# Thresholds of the garbage collector. Records of connections and links are freed without it when they end; each
# collection in between scans them for nothing. 5,000 new objects take it less than a millisecond.
GC_THRESHOLDS: Final = (5_000, 10, 10)
_LEAST_WAIT: Final = 0.001  # minimum seconds between two wakes for deadlines
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


class Supervisor:
    """Supervisor process: the core and all services around it. Owner: `sluice.supervisor.main`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        configuration: Configuration,
        log: ProcessLog,
        core: RouterCore,
        zygote: Zygote,
        shared: SharedResources,
        counters: AddressCounters,
        become: Identity | None = None,
    ) -> None:
        """Create all services; `run` starts them. become: user and group to change to once the ports are open."""
        self._configuration = configuration
        self._zygote = zygote
        self._shared = shared
        self._become = become
        self._predecessor: Predecessor | None = None  # running router that this one takes over
        self._reported_ready = False  # to the predecessor
        self._taken: list[int] = []  # numbers of the predecessor's sockets that this router uses
        self._loop = loop
        loop.set_exception_handler(self._internal_error)
        log.later = loop.call_later
        self._log = log
        self._core = core
        self._ended: asyncio.Future[int] = loop.create_future()  # number of a signal, or minus the exit status
        self._channels = WorkerChannels(loop, str(shared.directory.path), shared.keys, self)
        self._lag = Lag()
        region = shared.region
        core.policy.measure(region)
        core.history.measure(FigureReader(core, region).read, lambda: self._services.connectors.states())
        self._health = Health(
            core, self._lag, self._listener_states, lambda: self._ended.done() or self._drain.active,
            connectors=lambda: self._services.connectors.states(),
        )  # fmt: skip
        usage = Usage(configuration, region, core.policy.vhost_of)
        core.policy.denials.when_refused(usage.refused)
        self._telemetry = Telemetry(loop, core, region, VERSION, log, core.program)
        rows_lost = self._telemetry.rows_lost
        exports = self._export_counts
        self._metric_parts = (
            *(configuration.router, VERSION, core, region, counters, usage, self._health, rows_lost), exports
        )  # fmt: skip
        self._names = Resolver(loop)
        self._services = add_services(
            core,
            loop,
            self._names,
            configuration,
            lambda own: _make_http(loop, log, *self._metric_parts, own),
            self._log_listening,
            self._clients_active,
            log,
        )
        acceptor = self._services.acceptor
        self._drain = RouterDrain(core, self._services, region, lambda: self._end(signal.SIGTERM), log)
        core.events.add(usage)
        core.events.add(self._telemetry)
        self._collector_export = CollectorExport(
            loop, core.delivery_traces, core.logging, log, core.program, self._metric_source
        )
        core.events.add(self._collector_export)
        handover = HandoverSockets(loop, acceptor, self._services.http, log)
        self._pool = WorkerPool(loop, core, zygote, region, self._channels, handover, log, self._fatal)
        self._probes = Probes(loop, core, shared, acceptor, log)
        core.tls.on_first_profile(self._protect_keys)
        self._serving = False  # True: the router listens
        self._wake: asyncio.Handle | None = None  # scheduled wake
        self._hearing = False  # True: within a wake, from the first message until `work` is done
        self._timer: asyncio.TimerHandle | None = None  # timer of the earliest deadline
        core.waker.connect(loop, self._wake_soon)
        self._live = LiveConfiguration(loop, configuration, core.settings.current, core.events, core.waker, log)
        manager = ServiceManager(loop, log, self._ended.done, os.environ)
        core.events.add(manager)  # last, because it reports that the router is ready
        self._manager = manager
        self._reloads = Reloads(loop, self._live, core.settings.when_in_force, core.waker, log, self._reloaded, manager)
        register_reload(self._reloads)
        register_show(self._reloads)
        register_usage(UsageMeter(core, region, usage))
        register_drain(self.drain)
        offered = OfferedRouter(core, self._services, self._live, self._drain, manager, self._ended.done)
        self._offer = TakeOverOffer(loop, shared.directory.path, offered, log)
        self._watch = ConfigurationWatch(loop, self._live, self._reloads, log)
        agent = Agent(core, region, log, self._live, VERSION, core.in_process.send, self._later, core.in_process.go_on)
        for cls, name in IN_PROCESS:
            core.in_process.serve(key(cls, name), agent.handle, agent.ready)
        if configuration.router.mode != "standalone":
            for record_key, rights in SERVED_KEYS.items():
                core.in_process.serve(record_key, partial(agent.handle, carried=rights), agent.ready)

    async def run(self, predecessor: Predecessor | None = None) -> int:
        """Run until a signal or a failure. Returns the number of the signal, or minus the exit status of a failure.

        predecessor: running router that this one takes over.
        """
        self._predecessor = predecessor
        for number in ENDING:
            self._loop.add_signal_handler(number, self._end, number)
        self._loop.add_signal_handler(signal.SIGTERM, self._terminate)
        hang_up = HangUp(self._loop, self._core.logging, self._core.audit, self._reloads, self._log)
        self._loop.add_signal_handler(signal.SIGHUP, hang_up)
        self._log_start()
        # Signals that end the router are handled even while a name server does not respond.
        asked = self._loop.create_task(self._gather())
        await asyncio.wait((asked, self._ended), return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            try:
                self._begin(asked.result())
            except TlsStartError as error:
                self._log.critical("CONN_MGR", f"{error}. Shutting down")
                self._end(-EXIT_FAILED)
        else:
            asked.cancel()
        result = await self._ended
        await self._stop(result)
        return result

    async def _gather(self) -> AddressesByHosts:
        """Read credentials and resolve the hosts of listeners. Raises TlsStartError."""
        await self._core.tls.load(self._configuration)
        return await self._names.find(self._configuration.listeners)

    def _begin(self, answers: AddressesByHosts) -> None:
        """Bind the listeners, drop privileges and start the workers. answers: addresses of the listeners' hosts."""
        try:
            inherited = self._core.inherited_sockets
            amqp = tuple(config for config in self._configuration.listeners if not config.http)
            self._services.acceptor.bind(amqp, answers, inherited)
            if self._bind_http(answers):
                self._taken = inherited.close_unused()
                if self._become is not None:
                    self._shared.directory.give(*self._become.numbers)
                    self._become.drop()
                set_no_new_privileges()
                router = self._configuration.router
                self._core.audit.open(self._configuration, {"version": VERSION, "mode": router.mode})
                self._start_workers()
        except ListenError as error:
            self._listener_failed(error)
        except AuditStartError as error:
            self._fatal(str(error))
        except OSError as error:
            self._fatal(f"The router cannot drop its privileges: {error.strerror}")

    def _protect_keys(self) -> None:
        """Forbid core dumps of all processes, now that their memory contains private keys."""
        processes = [os.getpid(), self._zygote.pid, *(worker.pid for worker in self._core.workers.values())]
        try:
            forbid_core_dumps(process for process in processes if process)
            forbid_memory_access()
        except OSError as error:
            text = f"Core dumps cannot be disabled, so a dump may contain private keys: {error.strerror}"
            self._log.warning("SERVER", text)

    def _start_workers(self) -> None:
        for index in range(self._configuration.router.workers):
            self._pool.start(index)

    # Events

    def receive(self, identity: bytes, messages: list[tuple[Event, bytes | None]]) -> None:
        """Handle messages of a worker. A message whose handler fails does not stop the others."""
        worker = self._pool.find(identity)
        if worker is None:
            return
        self._hearing = True
        self._log.hold()
        for message, octets in messages:
            before = worker.stage
            try:
                self._core.receive(worker, message, octets)
            except WorkerFaultError as error:
                self.refuse(identity, str(error))
                return
            except WorkerCorruptError as error:
                self._replace(error.worker, str(error))
            except Exception as error:  # noqa: BLE001 - logged with its trace; the other messages are handled all the same
                trace = "".join(traceback.format_exception(error)).rstrip()
                text = f"Internal error while handling message {message.kind_name} of {worker}\n{trace}"
                self._log.critical("SERVER", text)
            if worker.stage is not before:
                self._pool.update(worker, before)
                if worker.stage is WorkerStage.SERVING:
                    self._worker_serves()

    def subscribed(self, topic: bytes) -> None:
        """Note that a worker has subscribed to deltas."""
        worker = self._pool.find(topic)
        if worker is not None:
            self._core.subscribed(worker)

    def _replace(self, worker: WorkerProcess, text: str) -> None:
        """Kill a worker whose memory cannot be trusted; another one replaces it."""
        self._log.critical("SERVER", f"Worker {worker.index} (process {worker.pid}) is killed: {text}")
        worker.kill()

    def refuse(self, identity: bytes, text: str) -> None:
        """Kill a worker that sent an invalid message."""
        worker = self._pool.find(identity)
        if worker is not None:
            self._replace(worker, f"it sent a bad message: {text}")

    def flush(self) -> None:
        """Do the work of a wake, and set the timer for the next deadline."""
        try:
            self._work()
        finally:  # even after an error, because the routing protocol depends on the timer
            self._log.release()
            due = self._core.deadline
            if due < NEVER:
                self._wake_at(max(due, self._loop.time() + _LEAST_WAIT))

    def _work(self) -> None:
        """Handle messages for the router itself, publish changes and send messages."""
        self._hearing = True
        self._log.hold()
        more = True  # holds also if a handler fails, because the rest is skipped then
        try:
            more = self._core.work()
        finally:
            self._hearing = False
            if more:
                self._wake_soon()
        deltas = []
        while (delta := self._core.take_delta()) is not None:
            deltas.append(delta)
        if self._core.busy:
            self._wake_soon()
        self._log.release()  # the log has its lines before clients get the answers
        # Orders are sent before deltas: they depend only on acknowledged deltas, and ZeroMQ's threads take a while.
        try:
            for worker in self._core.workers.values():
                if worker.runs:
                    self._send_orders(worker)
        finally:
            for epoch, ops in deltas:
                self._publish(epoch, ops)

    def _send_orders(self, worker: WorkerProcess) -> None:
        """Send the queued orders of a worker in batches, followed by messages from the router itself.

        The router's messages fill up the last batch, because each batch wakes the worker, which costs more than most
        messages.
        """
        orders, sends, at = worker.outbox, worker.sends, 0
        while at < len(orders) or (sends and worker.live):
            part = orders[at : at + MESSAGES_A_PART]
            own = list(islice(sends, MESSAGES_A_PART - len(part))) if worker.live else []
            messages, octets = [*part, *(message for message, _ in own)], [each for _, each in own]
            self._channels.send(worker.identity, messages, octets)
            at += len(part)
            for _ in own:
                sends.popleft()
        orders.clear()

    def _wake_soon(self) -> None:
        """Schedule a wake after other events, unless the present wake still does the work."""
        if self._wake is None and not self._hearing:
            self._wake = self._loop.call_soon(self._run_scheduled_wake)

    def _wake_at(self, due: float) -> None:
        """Schedule a wake at a time of the monotonic clock, which is also the clock of the loop.

        A timer that fires early re-reads the deadline; deadlines usually move later.
        """
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._deadline_reached)

    def _deadline_reached(self) -> None:
        self._timer = None
        self._channels.wake()

    def _later(self, function: Callable[[], None]) -> None:
        """Call `function` after other events, and send the resulting messages."""
        self._loop.call_soon(function)
        if self._wake is None:
            self._wake = self._loop.call_soon(self._run_scheduled_wake)

    def _run_scheduled_wake(self) -> None:
        self._wake = None
        self._channels.wake()

    def _publish(self, epoch: int, ops: list[Op]) -> None:
        self._channels.publish(epoch, ops if self._core.journal.awaits(epoch) else [*ops, UnawaitedOp()])
        self._lag.published(epoch)
        self._pool.watch()

    def _worker_serves(self) -> None:
        if self._serving:
            self._services.acceptor.resume()
        elif not self._ended.done() and all(own.stage is WorkerStage.SERVING for own in self._core.workers.values()):
            if self._predecessor is None:
                self._serve()
            elif not self._reported_ready:
                self._reported_ready = True
                self._predecessor.report_ready(self._loop, self._taken, self._serve, self._fatal, self._log)

    def _serve(self) -> None:
        """Open the listeners, start the connectors, and offer the sockets to a later process."""
        if not self._ended.done():
            self._serving = True
            self._log_running()
            gc.freeze()  # garbage collections, and the one at the end, need not scan the modules
            gc.set_threshold(*GC_THRESHOLDS)
            try:
                self._services.acceptor.open(self._log_listening)
            except ListenError as error:
                self._listener_failed(error)
            self._open_http()
            self._core.start(self._live.configuration)
            self._reloads.start()
            self._watch.start()
            self._offer.open()

    # HTTP

    def _bind_http(self, answers: AddressesByHosts) -> bool:
        """Bind the HTTP listeners of the configuration. Returns False if one fails; then the router ends."""
        inherited = self._core.inherited_sockets
        for config in self._configuration.listeners:
            if config.http:
                try:
                    self._services.http.service().bind(config, answers.get(place(config)), inherited)
                except ListenError as error:
                    self._http_failed(error)
                    return False
        return True

    def _open_http(self) -> None:
        for config in self._configuration.listeners:
            if config.http:
                try:
                    self._log_listening(self._services.http.service().listen(config.name))
                except ListenError as error:
                    self._http_failed(error)
                    return

    def _reloaded(self, source: str, path: str, result: Plan | ChangeError) -> None:
        """Report a reload. source: its requester."""
        self._core.audit.trail.reloaded(source, path, result)
        if isinstance(result, ChangeError):
            self._core.history.reload_refused(result.text)

    def _listener_states(self) -> list[ListenerState]:
        """Return the state of each configured listener, for health and metrics."""
        opened = {listener.config.name: listener for listener in self._services.acceptor.listeners}
        opened.update((listener.config.name, listener) for listener in self._services.http.open_listeners)
        states = []
        for config in self._live.configuration.listeners:
            listener = opened.get(config.name)
            text = f"{config.host}:{config.port_text}" if listener is None else listener.text
            up = listener is not None and (config.http or self._services.acceptor.accepting)
            states.append(ListenerState(config.name, text, config.role, config.http, up))
        return states

    # The end

    def _terminate(self) -> None:
        """Handle SIGTERM: drain if the configuration says so, or end at once. A second SIGTERM ends a drain."""
        router = self._live.configuration.router
        if router.shutdown_grace_seconds and self._serving and not self._drain.active:
            self.drain(router.shutdown_grace_seconds, router.shutdown_connections_per_second, "SIGTERM")
        else:
            self._end(signal.SIGTERM)

    def drain(self, seconds: int | None, per_second: int | None, reason: str) -> DrainBegun:
        """Begin to drain; the router exits at the end.

        seconds: time limit. per_second: connections closed in a second. None: as configured.
        """
        router = self._live.configuration.router
        seconds = seconds or router.shutdown_grace_seconds or DEFAULT_GRACE
        self._manager.draining(seconds + STOP_SECONDS)
        return self._drain.begin(seconds, per_second or router.shutdown_connections_per_second, reason)

    def _end(self, number: int) -> None:
        if not self._ended.done():
            self._ended.set_result(number)

    def _internal_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log the internal error of a failed event handler, and continue."""
        del loop
        error = context.get("exception")
        details = "".join(traceback.format_exception(error)) if isinstance(error, Exception) else ""
        kind = "" if error is None else place_of(error)
        self._log.repeated(CRITICAL, "SERVER", kind, f"Internal error: {context['message']}\n{details}".rstrip())

    def _fatal(self, text: str) -> None:
        self._log.critical("SERVER", f"{text}. Shutting down")
        self._end(-EXIT_FAILED)

    def _listener_failed(self, error: ListenError) -> None:
        # brokers-and-edge.md L-4.
        self._log.error("SERVER", f"Listener error on {error.address}: {error.reason}")
        self._log.critical("SERVER", f"Shutting down, required listener failed {error.address}")
        self._end(-EXIT_FAILED)

    def _http_failed(self, error: ListenError) -> None:
        self._log.error("HTTP", f"Listener error on {error.address}: {error.reason}")
        self._log.critical("CONN_MGR", f"Listen on {error.address} failed during initial config")
        self._end(-EXIT_FAILED)

    async def _stop(self, result: int) -> None:
        """Stop accepting, let the workers flush, close everything."""
        if result > 0:
            self._log.notice("SERVER", "Shut Down")
        self._drain.stop()
        self._offer.close()
        if self._predecessor is not None:
            self._predecessor.close()
        self._services.acceptor.close()
        self._core.inherited_sockets.close()
        self._core.stop()
        self._watch.stop()
        for worker in self._core.workers.values():
            for number in worker.connections:
                self._log.info("SERVER", f"[C{number}] Closing connection on shutdown")
        self._probes.close()
        await self._pool.stop()
        await self._services.http.close()  # late, so that the health page reports the shutdown until now
        self._pool.close()
        await self._telemetry.finish()
        await self._core.history.finish()
        await self._core.audit.finish(signal.Signals(result).name if result > 0 else "a failure, see the log")
        await self._collector_export.finish()
        for handle in (self._wake, self._timer):
            if handle is not None:
                handle.cancel()
        self._core.waker.disconnect()
        self._channels.close()
        self._log.info("ROUTER_CORE", "Router Core thread exited")

    # Log lines of the start

    def _log_start(self) -> None:
        router, policy = self._configuration.router, self._configuration.policy
        log = self._log
        for module, text in self._configuration.warnings:
            log.warning(module, text)
        log.info("ROUTER_CORE", "Protocol adaptor registered: amqp")
        log.info("ROUTER_CORE", f"Router Core thread running. 0/{router.id}")
        for cls, name in IN_PROCESS:
            log.info("ROUTER_CORE", f"In-process subscription {cls}/{name}")
        log.info("AGENT", "Activating management agent on $_management_internal")
        log.info(
            "POLICY",
            f"Policy configured maxConnections: {policy.max_connections}, policyDir: '{policy.directory}',"
            f"access rules enabled: '{_word(policy.vhosts_enabled)}', "
            f"use hostname patterns: '{_word(policy.vhost_patterns)}'",
        )
        if policy.default_vhost:
            log.info("POLICY", f"Policy fallback defaultVhost is defined: '{policy.default_vhost}'")
        for listener in self._configuration.listeners:
            log.info("CONN_MGR", describe_configured(listener))

    def _log_running(self) -> None:
        workers = len(self._core.workers)
        size = psutil.Process().memory_info().vms / _MIB
        available = psutil.virtual_memory().available / _GIB
        self._log.notice("SERVER", f"Operational, {workers} Threads Running (process ID {os.getpid()})")
        self._log.notice("SERVER", f"Process VmSize {size:.2f} MiB ({available:.2f} GiB available memory)")

    def _clients_active(self) -> bool:
        """True if a worker has lately read from an established client."""
        since = 1000 * time.monotonic() - ACTIVE_MS
        return any(self._shared.region.worker_heard(index) >= since for index in self._core.workers)

    def _export_counts(self) -> dict[tuple[str, str], int]:
        """Return the counts of the export to a collector, for metrics."""
        return self._collector_export.counts()

    async def _metric_source(self, pause: Callable[[], Awaitable[None]]) -> MetricSource:
        """Return a source of metrics for the export. Its libraries take long to load, so a thread loads them."""
        module = await Threads(self._loop, "metrics", 1).run(partial(import_module, METRIC_PIECES))
        source: MetricSource = module.make(pause, lambda: self._services.http.counts, *self._metric_parts)
        return source

    def _log_listening(self, listener: Listener) -> None:
        # brokers-and-edge.md L-3.
        name = f" ({listener.config.name})" if listener.config.named else ""
        console = listener.config.console_url(listener.port)
        page = "" if console is None else f", console at {console}"
        self._log.notice("SERVER", f"Listening on {listener.text}{name}{page}")


def _make_http(loop: asyncio.AbstractEventLoop, log: ProcessLog, *parts: Any) -> "HttpService":
    """Create the HTTP service. It is imported on demand, because its libraries take long to load."""
    from sluice.supervisor.web.server import make

    return make(loop, log, *parts)


def _word(flag: bool) -> str:
    return "true" if flag else "false"


def log_identity(log: ProcessLog, configuration: Configuration, version: str) -> None:
    """Log the first lines of a start: name, mode and version."""
    router = configuration.router
    log.info("SERVER", f"Container Name: {router.id}")
    interior = f"Router started in Interior mode, area=0 id={router.id}"
    log.info("ROUTER", _MODE_TEXTS.get(router.mode, interior))
    log.info("ROUTER", f"Version: {version}")

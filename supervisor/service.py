"""The running supervisor: an event loop around the core, its channels, the workers and the listeners."""
import asyncio
import os
import signal
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import psutil

from router.config.entities import Configuration
from router.ipc.control import Message, Op
from router.ipc.layout import Region
from router.ipc.scan import AddressCounters
from router.log import CRITICAL, Log
from router.log import place as place_of
from router.routing.address import key
from supervisor.acceptor import Acceptor, Listener, ListenError
from supervisor.autolinks import AutoLinks
from supervisor.connectors.connectors import Connectors
from supervisor.control import Channels, Endpoints, Keys
from supervisor.core import IN_PROCESS, Core
from supervisor.http.health import Health, Lag, ListenerState
from supervisor.live.configuration import LiveConfiguration
from supervisor.live.listeners import Listening
from supervisor.live.reload import HangUp, register_reload
from supervisor.live.reloads import Reloads
from supervisor.management.agent import Agent
from supervisor.names import Answers, Resolver, place
from supervisor.worker import Stage, Worker, WorkerFaultError
from supervisor.workers import Pool
from supervisor.zygote import Zygote

if TYPE_CHECKING:
    from supervisor.http.service import HttpService

EXIT_FAILED: Final = 1
# Signals that end the router.
ENDING: Final = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)
_MODE_TEXTS: Final = {
    "standalone": "Router started in Standalone mode",
    "edge": "Router started in Edge mode",
}
_LEAST_WAIT: Final = 0.001  # seconds between two wakes for what is due
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


class Supervisor:
    """Everything that runs in the supervisor process. Owner: `supervisor.main`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        configuration: Configuration,
        log: Log,
        core: Core,
        zygote: Zygote,
        region: Region,
        endpoints: Endpoints,
        keys: Keys,
        version: str,
        counters: AddressCounters,
        eventfds: list[int],
    ) -> None:
        self._configuration = configuration
        self._loop = loop
        loop.set_exception_handler(self._internal_error)
        log.later = loop.call_later
        self._log = log
        self._core = core
        self._ended: asyncio.Future[int] = loop.create_future()  # the signal, or 0 - exit status of a failure
        self._channels = Channels(
            loop,
            endpoints,
            keys,
            receive=self._receive,
            subscribed=self._subscribed,
            refuse=self._refuse,
            flush=self._flush,
        )
        self._acceptor = Acceptor(loop, core, log)
        self._pool = Pool(
            loop,
            core,
            zygote,
            region,
            log,
            eventfds,
            changed=self._channels.wake,
            fatal=self._fatal,
            withdraw=self._acceptor.withdraw,
            recovered=lambda worker: self._acceptor.resume(),
        )
        self._serving = False  # listening
        self._wake: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None  # of the network of routers
        core.in_process.changed = self._wake_soon
        self._names = Resolver(loop)
        self._listening = listening = Listening(
            loop,
            self._names,
            self._acceptor,
            lambda: self._http,
            lambda: self.http,
            core,
            log,
            self._log_listening,
            self._wake_soon,
        )
        self._connectors = Connectors(loop, core, self._acceptor, log, self._wake_soon)
        self._live = LiveConfiguration(
            loop,
            configuration,
            core,
            self._acceptor,
            listening,
            self._connectors,
            AutoLinks(core, log, loop.call_later, self._wake_soon),
            log,
            self._wake_soon,
        )
        self._reloads = Reloads(loop, self._live)
        register_reload(self._reloads)
        agent = Agent(core, region, log, self._live, version, core.in_process.send, self._later, core.in_process.go_on)
        for cls, name in IN_PROCESS:
            core.in_process.serve(key(cls, name), agent.handle, agent.ready)
        self._lag = Lag()
        self._health = Health(core, self._lag, self._listener_states, self._ended.done)
        self._http_parts = (configuration.router, version, core, region, counters, self._health)
        self._http: HttpService | None = None  # made for the first HTTP listener

    async def run(self) -> int:
        """Run until a signal or a failure; returns the signal's number, or 0 - exit status after a failure."""
        for number in ENDING:
            self._loop.add_signal_handler(number, self._end, number)
        self._loop.add_signal_handler(signal.SIGHUP, HangUp(self._loop, self._live, self._reloads, self._log))
        self._log_start()
        # The signals that end the router count while a name server does not answer.
        asked = self._loop.create_task(self._names.find(self._configuration.listeners))
        await asyncio.wait((asked, self._ended), return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            self._begin(asked.result())
        else:
            asked.cancel()
        result = await self._ended
        await self._stop(result)
        return result

    def _begin(self, answers: Answers) -> None:
        """Bind the listeners, and start the workers. answers: what the hosts of the listeners stand for."""
        try:
            self._acceptor.bind(tuple(config for config in self._configuration.listeners if not config.http), answers)
            if self._bind_http(answers):
                self._start_workers()
        except ListenError as error:
            self._listener_failed(error)

    def _start_workers(self) -> None:
        for index in range(self._configuration.router.workers):
            self._pool.start(index)

    # Events

    def _receive(self, identity: bytes, messages: list[Message], raw: bytes | None) -> None:
        worker = self._pool.find(identity)
        if worker is None:
            return
        for left, message in enumerate(messages, 1 - len(messages)):
            before = worker.stage
            try:
                self._core.receive(worker, message, None if left else raw)
            except WorkerFaultError as error:
                self._refuse(identity, str(error))
                return
            except Exception as error:  # noqa: BLE001 - logged with its trace; the other messages count all the same
                trace = "".join(traceback.format_exception(error)).rstrip()
                self._log.critical("SERVER", f"Internal error: message {message['t']} of {worker}\n{trace}")
            if worker.stage is not before:
                self._pool.update(worker, before)
                if worker.stage is Stage.SERVING:
                    self._worker_serves()

    def _subscribed(self, topic: bytes) -> None:
        worker = self._pool.find(topic)
        if worker is not None:
            self._core.subscribed(worker)

    def _refuse(self, identity: bytes, text: str) -> None:
        """A worker sent what makes no sense: it cannot be trusted with connections any more."""
        worker = self._pool.find(identity)
        if worker is not None:
            self._log.critical("SERVER", f"Worker {worker.index} (process {worker.pid}) sent a bad message: {text}")
            self._pool.kill(worker)

    def _flush(self) -> None:
        """Do what is due."""
        try:
            self._work()
        finally:  # an error must not stop the clock of the network
            if self._core.routers is not None:
                self._wake_at(max(self._core.routers.deadline, self._loop.time() + _LEAST_WAIT))

    def _work(self) -> None:
        """Deal with messages for the router itself, publish what has changed and send what waits."""
        more = True  # also when a handler fails, for what is below is not done then
        try:
            more = self._core.in_process.work()
        finally:
            if more:
                self._wake_soon()
        while (delta := self._core.take_delta()) is not None:
            self._publish(*delta)
        if self._core.busy:
            self._wake_soon()
        for worker in self._core.workers.values():
            if (
                worker.outbox
                and worker.stage not in (Stage.FORKING, Stage.DEAD)
                and self._channels.send(worker.identity, worker.outbox)
            ):
                worker.outbox = []
            if not worker.outbox:
                self._send_own(worker)

    def _send_own(self, worker: Worker) -> None:
        """Messages of the router itself."""
        if worker.live:
            while worker.sends and self._channels.send(worker.identity, [worker.sends[0][0]], worker.sends[0][1]):
                worker.sends.popleft()

    def _wake_soon(self) -> None:
        """There is something to send, or to work on, when other events have had their turn."""
        if self._wake is None:
            self._wake = self._loop.call_soon(self._awake)

    def _wake_at(self, due: float) -> None:
        """There will be something to do at a time of the monotonic clock, which is that of the loop."""
        if self._timer is not None:
            if self._timer.when() == due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self._channels.wake()

    def _later(self, function: Callable[[], None]) -> None:
        """Call `function` when other events have had their turn, and send what came of it."""
        self._loop.call_soon(function)
        self._wake_soon()

    def _awake(self) -> None:
        self._wake = None
        self._channels.wake()

    def _publish(self, epoch: int, ops: list[Op]) -> None:
        self._channels.publish(epoch, ops)
        self._lag.published(epoch)
        self._pool.watch()

    def _worker_serves(self) -> None:
        if self._serving:
            self._acceptor.resume()
        elif not self._ended.done() and all(own.stage is Stage.SERVING for own in self._core.workers.values()):
            self._serving = True
            self._log_running()
            self._live.autolinks.replace(self._live.configuration.auto_links)
            self._connectors.replace(self._live.configuration.connectors)
            try:
                self._acceptor.open(self._log_listening)
            except ListenError as error:
                self._listener_failed(error)
            self._open_http()
            self._live.start()
            self._reloads.start()

    # HTTP

    @property
    def http(self) -> "HttpService":
        """The HTTP listeners. Its libraries are loaded when it is first asked for: most routers need none."""
        if self._http is None:
            from supervisor.http.service import make

            self._http = make(self._loop, self._log, *self._http_parts)
        return self._http

    def _bind_http(self, answers: Answers) -> bool:
        """Bind the HTTP listeners of the configuration; all of them are required. False: the router ends."""
        for config in self._configuration.listeners:
            if config.http:
                try:
                    self.http.bind(config, answers.get(place(config)))
                except ListenError as error:
                    self._http_failed(error)
                    return False
        return True

    def _open_http(self) -> None:
        for config in self._configuration.listeners:
            if config.http:
                try:
                    self._log_listening(self.http.listen(config.name))
                except ListenError as error:
                    self._http_failed(error)
                    return

    def _listener_states(self) -> list[ListenerState]:
        """What health and metrics say of each configured listener."""
        opened = {listener.config.name: listener for listener in self._acceptor.listeners}
        if self._http is not None:
            opened.update((listener.config.name, listener) for listener in self._http.open_listeners)
        states = []
        for config in self._live.configuration.listeners:
            listener = opened.get(config.name)
            text = f"{config.host}:{config.port_text}" if listener is None else listener.text
            up = listener is not None and (config.http or self._acceptor.accepting)
            states.append(ListenerState(config.name, text, config.role, config.http, up))
        return states

    # The end

    def _end(self, number: int) -> None:
        if not self._ended.done():
            self._ended.set_result(number)

    def _internal_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A reaction to an event failed: a fault of this program. It is told, and all else goes on."""
        del loop
        error = context.get("exception")
        details = "".join(traceback.format_exception(error)) if isinstance(error, Exception) else ""
        kind = "" if error is None else place_of(error)
        self._log.repeated(CRITICAL, "SERVER", kind, f"Internal error: {context['message']}\n{details}".rstrip())

    def _fatal(self, text: str) -> None:
        self._log.critical("SERVER", f"{text}. Shutting down")
        self._end(-EXIT_FAILED)

    def _listener_failed(self, error: ListenError) -> None:
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
        self._core.ending = True
        self._acceptor.close()
        self._connectors.stop()
        self._listening.stop()
        for worker in self._core.workers.values():
            for number in worker.connections:
                self._log.info("SERVER", f"[C{number}] Closing connection on shutdown")
        await self._pool.stop()
        if self._http is not None:
            await self._http.stop()  # until now it says that the router drains
        self._pool.close()
        for handle in (self._wake, self._timer):
            if handle is not None:
                handle.cancel()
        self._core.in_process.changed = _nothing
        self._channels.close()
        self._log.info("ROUTER_CORE", "Router Core thread exited")

    # Log lines of the start

    def _log_start(self) -> None:
        router = self._configuration.router
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
            f"Policy configured maxConnections: {self._acceptor.limit}, policyDir: '',access rules enabled: 'false', "
            "use hostname patterns: 'false'",
        )
        for listener in self._configuration.listeners:
            family = listener.family or "any"
            log.info(
                "CONN_MGR",
                f"Configured Listener: {listener.host}:{listener.port_text} proto={family}, role={listener.role}"
                + (", http" if listener.http else ""),
            )

    def _log_running(self) -> None:
        workers = len(self._core.workers)
        size = psutil.Process().memory_info().vms / _MIB
        available = psutil.virtual_memory().available / _GIB
        self._log.notice("SERVER", f"Operational, {workers} Threads Running (process ID {os.getpid()})")
        self._log.notice("SERVER", f"Process VmSize {size:.2f} MiB ({available:.2f} GiB available memory)")

    def _log_listening(self, listener: Listener) -> None:
        name = f" ({listener.config.name})" if listener.config.named else ""
        self._log.notice("SERVER", f"Listening on {listener.text}{name}")


def _nothing() -> None:
    """In the place of a callback when the end has come."""


def log_identity(log: Log, configuration: Configuration, version: str) -> None:
    """The first lines of a start: who this is."""
    router = configuration.router
    log.info("SERVER", f"Container Name: {router.id}")
    interior = f"Router started in Interior mode, area=0 id={router.id}"
    log.info("ROUTER", _MODE_TEXTS.get(router.mode, interior))
    log.info("ROUTER", f"Version: {version}")

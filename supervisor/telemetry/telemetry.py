"""Telemetry in the supervisor: the process that writes it, and the facts about connections and links that it needs.

Before each reading of the counters the process sends `describe`. The answer contains what is new since the last one,
so that neither side has to scan all connections and links.
"""

import asyncio
import os
import socket
import time
import uuid
from collections import deque
from collections.abc import Mapping
from typing import Final

from sluice.router import json_codec
from sluice.router.addressing.address import LOCAL, key
from sluice.router.amqp.codec import encode_binary, encode_described, encode_string, encode_symbol, encode_value
from sluice.router.config.entities import Configuration, TelemetryConfig
from sluice.router.config.policy_entities import VhostConfig
from sluice.router.config.roles import INTER_ROUTER
from sluice.router.control.messages import Opened
from sluice.router.log import ERROR, LEVELS, ProcessLog
from sluice.router.ring.region import Region
from sluice.router.telemetry.schema import Row
from sluice.supervisor.children.child_process import ChildProcess, ChildProgram, module_command
from sluice.supervisor.children.framing import MessageError
from sluice.supervisor.children.json_messages import Message, decode, encode
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.policy.denials import DenialKind
from sluice.supervisor.subsystem import LiveAttributes, Subsystem
from sluice.supervisor.telemetry.messages import MAX_REPORT, MAX_REQUEST
from sluice.supervisor.telemetry.usage import KEEP_LINKS_NS

MODULE: Final = "sluice.supervisor.telemetry.process"
LOG_MODULE: Final = "SERVER"
MOST_PAUSE: Final = 60.0  # maximum seconds before a restart; nobody waits for the process
END_SECONDS: Final = 5.0  # time limit for the last files of the process
ADDRESS: Final = "_local/$telemetry"
RECORD: Final = key(LOCAL, "$telemetry")
LATE: Final = 10  # seconds beyond an interval for which the counters of a detached link are kept
MOST_NEWS: Final = 100_000  # limit of messages that wait for the process, or to be saved by it
PROPERTIES, DATA = 0x73, 0x75
_NS: Final = 1_000_000_000


class Telemetry(Subsystem):
    """Telemetry subsystem. Owner: the supervisor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        core: RouterCore,
        region: Region,
        version: str,
        log: ProcessLog,
        name: str,
    ) -> None:
        """name: of the program."""
        self._loop: Final = loop
        self._core: Final = core
        self._region: Final = region
        self._version: Final = version
        self._log: Final = log
        self._boot: Final = uuid.uuid4().hex
        # Opened before the router may change its user. The process cannot write through this descriptor.
        self._descriptor: Final = os.open(f"/proc/self/fd/{region.fd}", os.O_RDONLY | os.O_CLOEXEC)
        self._program: Final = ChildProgram(
            label="telemetry",
            command=module_command(MODULE, f"{name}-tel", self._descriptor),
            log_module=LOG_MODULE,
            log_level=ERROR,
            most_message=MAX_REPORT,
            most_unsent=MAX_REQUEST,
            most_pause=MOST_PAUSE,
            descriptors=(self._descriptor,),
        )
        self._configuration: Configuration | None = None
        self._config: TelemetryConfig | None = None
        self._process: ChildProcess | None = None  # None: telemetry is off
        self._news: deque[Message] = deque(maxlen=MOST_NEWS)
        # Messages sent to processes, with the number of their `describe`, until their rows are in files. The next
        # process receives them again.
        self._unsaved: deque[tuple[int, Message]] = deque(maxlen=MOST_NEWS)
        # State of the present process.
        # links not described yet, and number of `describe` messages since
        self._pending: dict[int, tuple[RegisteredLink, int]] = {}
        self._rows_lost = 0
        self._addresses: set[str] = set()
        self._denied: dict[DenialKind, int] = {}
        core.links.on_link_added(self._link_added)

    def rows_lost(self) -> int:
        """Return the number of rows that were never written, since the start of the router."""
        return self._rows_lost

    def live_attributes(self) -> Mapping[str, LiveAttributes]:
        return {TelemetryConfig.type: lambda _: {"rowsLost": self._rows_lost}}

    # Life and configuration

    def start(self, configuration: Configuration) -> None:
        self._use(configuration)

    def commit(self, change: ConfigurationChange) -> None:
        self._event("reload" if change.whole else "configuration", change.new.path or "", {})
        self._use(change.new)

    def stop(self) -> None:
        self._event("router", "stop", {})

    async def finish(self) -> None:
        """Write the last rows, after the workers have exited."""
        if self._process is not None:
            self._collect_news()
            for message in self._news:
                self._process.send(encode(message))
            await self._process.finish(END_SECONDS)
            self._process = None
        os.close(self._descriptor)

    def _use(self, configuration: Configuration) -> None:
        found = next((each for each in configuration.others if isinstance(each, TelemetryConfig)), None)
        before, self._config, self._configuration = self._config, found, configuration
        if found == before:
            return
        if self._process is not None:
            self._process.stop()
            self._process = None
        seconds = 0 if found is None else found.interval_seconds + LATE
        self._region.keep_links(max(KEEP_LINKS_NS, seconds * _NS))
        if found is not None:
            self._process = ChildProcess(self._loop, self._program, self, self._log)
            self._process.start()

    # Events

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        if self._process is not None:
            self._describe_connection(connection)
            self._event("connection open", str(connection.number), _who(connection))

    def connection_closed(self, connection: RegisteredConnection) -> None:
        if self._process is not None and connection.container is not None:
            self._event("connection close", str(connection.number), _who(connection))
            if connection.origin.role == INTER_ROUTER:
                self._news.append({"gone": connection.number})

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        if self._pending.pop(link.identity, None) is not None and self._process is not None:
            self._describe_link(link)

    def _link_added(self, link: RegisteredLink) -> None:
        if self._process is not None:
            self._pending[link.identity] = link, 0

    def worker_lost(self, worker: WorkerProcess) -> None:
        self._event("worker lost", str(worker.index), {})

    def _event(self, kind: str, subject: str, detail: dict[str, str]) -> None:
        if self._config is not None:
            self._rows("event", [{"ts": _now(), "kind": kind, "subject": subject, "detail": detail}])

    # The process

    def child_started(self) -> None:
        """Send all known facts to a new process."""
        config, configuration, process = self._config, self._configuration, self._process
        assert config is not None
        assert configuration is not None
        assert process is not None
        self._addresses = set()
        self._news.extendleft(news for _, news in reversed(self._unsaved))
        self._unsaved.clear()
        self._pending = {identity: (link, 0) for identity, link in self._core.links.by_identity.items()}
        router = configuration.router
        setup = {
            "path": config.path,
            "router": router.id,
            "boot": self._boot,
            "interval": config.interval_seconds,
            "period": config.file_seconds,
            "max_megabytes": config.max_megabytes,
            "keep_hours": config.keep_hours,
        }
        process.send(encode({"setup": setup}))
        facts = {
            "host": socket.gethostname(),
            "cores": os.cpu_count() or 1,
            "workers": router.workers,
            "version": self._version,
            "mode": router.mode,
        }
        self._rows("dim_router", [facts])
        self._rows("dim_policy", [_limits(vhost) for vhost in configuration.vhosts])
        for connection in self._core.connections.opened.values():
            self._describe_connection(connection)

    def child_reported(self, content: bytes) -> None:
        """Handle a message of the process. Raises MessageError."""
        message = decode(content)
        try:
            self._handle(message)
        except (ValueError, KeyError, TypeError) as error:
            raise MessageError(str(error)) from error

    def child_lost(self, why: str) -> None:
        """Do nothing: the next process gets all facts, and again the rows that are in no file."""

    def _handle(self, message: Message) -> None:
        if "describe" in message:
            self._answer(int(message["describe"]))
        elif "saved" in message:
            while self._unsaved and self._unsaved[0][0] <= message["saved"]:
                self._unsaved.popleft()
        elif "live" in message:
            self._core.in_process.send(ADDRESS, _encode(str(message["live"]), message["rows"], self._router_id()))
        elif "lost" in message:
            self._rows_lost += int(message["lost"])
        elif "log" in message:
            level = LEVELS.get(message["log"])
            if level is not None:
                self._log.write(level, LOG_MODULE, str(message["text"]))

    def _answer(self, number: int) -> None:
        """Answer a `describe` with all that is new."""
        assert self._process is not None
        self._collect_news()
        while self._news:
            news = self._news.popleft()
            self._unsaved.append((number, news))
            self._process.send(encode(news))
        receives = self._config is not None and self._config.live and self._has_receivers()
        self._process.send(encode({"described": number, "receivers": receives}))

    def _router_id(self) -> str:
        assert self._configuration is not None
        return self._configuration.router.id

    def _has_receivers(self) -> bool:
        record = self._core.table.records.get(RECORD)
        return record is not None and bool(record.consumers)

    def _rows(self, table: str, rows: list[Row]) -> None:
        if rows:
            now = _now()
            made = [{"boot_id": self._boot, **({"valid_from": now} if table != "event" else {}), **row} for row in rows]
            self._news.append({"table": table, "rows": made})

    # News

    def _collect_news(self) -> None:
        """Describe links that have an address by now, and count refusals."""
        for identity, (link, asked) in list(self._pending.items()):
            if link.up or link.record is not None or asked:
                del self._pending[identity]
                self._describe_link(link)
            else:
                self._pending[identity] = link, asked + 1
        for kind, count in self._core.policy.denials.counts.items():
            more = count - self._denied.get(kind, 0)
            if more:
                self._denied[kind] = count
                detail = {"group": kind.group, "reason": kind.reason, "count": str(more)}
                self._event("policy denial", kind.vhost, detail)

    def _describe_connection(self, connection: RegisteredConnection) -> None:
        tls = connection.tls
        row: Row = {
            "connection_id": connection.number,
            "worker": connection.worker,
            "container": connection.container,
            "user": connection.user,
            "vhost": connection.hostname,
            "peer": connection.peer,
            "listener": connection.origin.name,
            "role": connection.origin.role,
            "tls": None if tls is None else tls.protocol,
        }
        self._rows("dim_connection", [row])
        if connection.origin.role == INTER_ROUTER:
            peer = [connection.number, connection.container or "", connection.origin.cost]
            self._news.append({"peer": peer})

    def _describe_link(self, link: RegisteredLink) -> None:
        record, connection = link.record, link.connection
        address = link.routed_to if record is None else _text(record.key)
        known = [link.identity, connection.number, address]
        self._news.append({"link": [link.worker, link.slot, link.generation, *known]})
        row: Row = {
            "link_id": link.identity,
            "connection_id": connection.number,
            "worker": link.worker,
            "name": link.name,
            "dir": "out" if link.consumer else "in",
            "address": address,
            "kind": link.kind,
            "capacity": connection.origin.link_capacity,
        }
        self._rows("dim_link", [row])
        if record is not None and record.key not in self._addresses:
            self._addresses.add(record.key)
            self._rows("dim_address", [{"address": address, "distribution": record.treatment}])


def _now() -> int:
    return time.time_ns() // 1000


def _who(connection: RegisteredConnection) -> dict[str, str]:
    found = {
        "container": connection.container,
        "user": connection.user,
        "peer": connection.peer,
        "role": connection.origin.role,
        "worker": str(connection.worker),
    }
    return {name: value for name, value in found.items() if value}


def _text(record_key: str) -> str:
    """Return an address as clients write it, without its class and the phase of a mobile address."""
    return record_key[2:] if record_key.startswith("M") else record_key[1:]


def _limits(vhost: VhostConfig) -> Row:
    limits = {name: value for name, value in vhost.values.items() if name not in ("hostname", "groups")}
    shown = {name: json_codec.encode(value).decode() for name, value in limits.items()}
    return {"vhost": vhost.hostname, "user_group": "", "limits": shown}


def _encode(table: str, rows: list[Row], router: str) -> bytes:
    """Return a message with rows. The table is its subject, the rows are lines of JSON."""
    null = encode_value(None)
    properties = [null, null, encode_string(ADDRESS), encode_string(table), null, null]
    lines = b"".join(json_codec.encode({"router": router, **row}) + b"\n" for row in rows)
    octets: bytes = encode_described(PROPERTIES, [*properties, encode_symbol("application/x-ndjson")])
    return octets + b"\x00\x53" + bytes([DATA]) + bytes(encode_binary(lines))

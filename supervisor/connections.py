"""What the supervisor knows of each connection and link, and the log lines about them."""
from collections.abc import Mapping
from typing import Any

from router.config.entities import ListenerConfig
from router.log import INFO, Log
from supervisor.table import Record


class Link:
    """A link of a connection. Owner: its connection."""

    __slots__ = (
        "closed", "connection", "consumer", "generation", "identity", "name", "record", "slot", "up", "worker",
    )  # fmt: skip

    def __init__(
        self,
        identity: int,
        name: str,
        consumer: bool,
        slot: int,
        generation: int,
        connection: "Connection",
        worker: int,
    ) -> None:
        self.identity = identity  # number shown to people, unique in the router
        self.connection = connection
        self.worker = worker  # index
        self.name = name
        self.consumer = consumer
        self.slot = slot  # in shared memory, with its generation
        self.generation = generation
        self.record: Record | None = None  # None: anonymous, or not attached
        self.up = False  # the attach has been answered
        self.closed = False  # an answer that still waits must not be sent


class Connection:
    """An accepted connection. Owner: the worker it was given to."""

    __slots__ = (
        "closing",
        "container",
        "hostname",
        "last_delivery",
        "links",
        "local",
        "mechanism",
        "number",
        "offer",
        "opened",
        "opened_at",
        "origin",
        "peer",
        "properties",
        "tls",
        "trace",
        "user",
        "worker",
    )

    def __init__(self, number: int, origin: ListenerConfig, local: str, peer: str, offer: str) -> None:
        """`offer`: what workers know the origin by."""
        self.number = number
        self.offer = offer
        self.origin = origin  # what it came by
        self.local = local  # address of the listener, host:port
        self.peer = peer  # ip:port
        self.worker: int | None = None  # index of the one that has it
        self.opened = False
        self.opened_at = 0.0  # seconds of the monotonic clock
        self.closing = False  # by request of management
        self.trace = False  # frames are logged whatever the level of PROTOCOL
        self.mechanism: str | None = None  # of SASL; None: without
        self.tls: Mapping[str, Any] | None = None
        self.last_delivery = 0  # CLOCK_MONOTONIC ns, of links that are gone; of the others see their slots. 0: none
        self.container: str | None = None
        self.hostname: str | None = None
        self.user: str | None = None
        self.properties: dict[str, Any] | None = None
        self.links: dict[int, Link] = {}  # by the worker's number

    @property
    def tenant(self) -> str | None:
        """The prefix of its addresses, on a multi-tenant listener."""
        return f"{self.hostname}/" if self.origin.multi_tenant and self.hostname is not None else None


def log_accepted(log: Log, connection: Connection) -> None:
    if log.enabled("SERVER", INFO):
        log.info("SERVER", f"[C{connection.number}] Accepted connection to {connection.local} from {connection.peer}")


def log_opened(log: Log, connection: Connection, message: Mapping[str, Any]) -> None:
    """Log an `opened` message."""
    if log.enabled("ROUTER_CORE", INFO):
        tls = message["tls"]
        encrypted = "no" if tls is None else tls.get("protocol", "yes")
        log.info(
            "ROUTER_CORE",
            f"[C{connection.number}] Connection Opened: dir=in host={connection.peer} vhost= encrypted={encrypted} "
            f"auth={message.get('mechanism') or 'no'} user={connection.user or '(null)'} "
            f"container_id={connection.container} props={format_properties(connection.properties)}",
        )


def log_closed(log: Log, connection: Connection, error: list[str] | None) -> None:
    if error is not None and log.enabled("SERVER", INFO):
        log.info(
            "SERVER",
            f"[C{connection.number}] Connection from {connection.peer} (to {connection.local}) failed: "
            f"{error[0]} {error[1] or ''}".rstrip(),
        )
    if connection.opened and log.enabled("ROUTER_CORE", INFO):
        log.info("ROUTER_CORE", f"[C{connection.number}] Connection Closed")


def log_attached(log: Log, connection: Connection, link: Link, text: str) -> None:
    """Log an attach; `text` describes the termini."""
    if log.enabled("ROUTER_CORE", INFO):
        direction = "out" if link.consumer else "in"
        log.info("ROUTER_CORE", f"[C{connection.number}][L{link.identity}] Link attached: dir={direction} {text}")


def format_properties(properties: Mapping[str, Any] | None) -> str:
    """Connection properties as the log shows them: `{:product="x", :count=1}`."""
    if not properties:
        return ""
    return "{" + ", ".join(f":{name}={_format_value(value)}" for name, value in properties.items()) + "}"


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)

"""Records of connections and links, and the log lines about them."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Protocol

from router.config.entities import EndpointConfig
from router.config.roles import BETWEEN_ROUTERS
from router.control.handover import Begun, Initiate
from router.control.messages import ErrorText, Tls
from router.log import DEBUG, INFO, Log
from supervisor.addresses.record import HERE, Record, Way

# The error of a connection that the router opened that ends without one.
_ABORTED: Final = ("amqp:connection:framing-error", "connection aborted")
_ORPHANED: Final = ("amqp:internal-error", "the worker that had it died")


ANNOTATIONS_VERSION: Final = "qd.annotations-version"  # open property of routers
ENDPOINT: Final = "endpoint"
DATA: Final = "inter-router"  # kind of links between routers for messages
PRIORITY: Final = 4  # of links of clients


class Ending(Enum):
    """How a connection that the router opened has ended."""

    CLOSED = "closed"  # by either side, after it was open
    FAILED = "failed"  # lost, or never opened
    ORPHANED = "orphaned"  # its worker died


class Initiator(Protocol):
    """The owner of a connection that the router opened."""

    def opened(self, connection: "Connection") -> None:
        """The peer's open has come."""

    def ended(self, connection: "Connection", ending: Ending, text: str) -> None:
        """The connection is gone; `text` is the reason, as the log shows it."""


class Link:
    """A link of a connection. Owner: its connection."""

    __slots__ = (
        "closed", "connection", "consumer", "generation", "identity", "kind", "name", "number", "other",
        "owner", "priority", "record", "routed_to", "slot", "up", "waits", "worker",
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
        self.identity = identity  # number shown to users, unique in the router
        self.connection = connection
        self.worker = worker  # index
        self.number = 0  # that worker's for it
        self.name = name
        self.consumer = consumer
        self.slot = slot  # in shared memory, with its generation
        self.generation = generation
        self.record: Record | None = None  # None: anonymous, or not attached
        self.waits = False  # a consumer that gets nothing, because another router has the edge router's consumers
        self.other: int | None = None  # identity of the other end of a routed link
        self.routed_to: str | None = None  # address of a routed link
        self.kind = ENDPOINT  # as management calls it
        self.priority = PRIORITY
        self.owner: str | None = None  # key of the address of a link without record, as management shows it
        self.up = False  # the attach has been answered
        self.closed = False  # an answer that still waits must not be sent


class Connection:
    """A connection, accepted or (with an initiator) opened by us. Owner: the worker it was given to."""

    __slots__ = (
        "begun",
        "closing",
        "container",
        "epoch",
        "groups",
        "hostname",
        "initiate",
        "initiator",
        "last_delivery",
        "links",
        "local",
        "mechanism",
        "moved",
        "number",
        "opened",
        "opened_at",
        "origin",
        "page",
        "peer",
        "permissions",
        "profile",
        "properties",
        "read_before",
        "sessions_at_end",
        "tenant",
        "tls",
        "trace",
        "user",
        "way",
        "worker",
    )

    def __init__(self, number: int, origin: EndpointConfig, local: str, peer: str, profile: str) -> None:
        """`profile`: key of the profile of `origin`."""
        self.number = number
        self.profile = profile
        self.origin = origin  # its listener or connector
        self.local = local  # address of the listener, host:port
        self.peer = peer  # ip:port; of a connection that the router opened host:port as configured
        self.initiator: Initiator | None = None
        self.initiate: Initiate | None = None  # data for its worker to open it, see Handover
        self.read_before = b""  # octets that the supervisor has read from its socket, until a worker has them
        self.begun: Begun | None = None  # of one that has left its worker with its open, until another has it
        self.moved = False  # it has left the worker that it was accepted for, or has not and is to stay
        self.worker: int | None = None  # index of the one that has it
        self.epoch = -1  # that its worker had acknowledged when it got the connection
        self.opened = False
        self.opened_at = 0.0  # seconds of the monotonic clock
        self.closing = False  # by request of management
        self.page = False  # its client has asked for a page over HTTPS, which is no fault
        # Frames are logged, or not, whatever the level of PROTOCOL; None: that decides.
        self.trace: bool | None = None
        self.mechanism: str | None = None  # of SASL; None: without
        self.tls: Tls | None = None
        self.last_delivery = 0  # CLOCK_MONOTONIC ns, of links that are gone; of the others see their slots. 0: none
        self.container: str | None = None
        self.hostname: str | None = None
        self.tenant: str | None = None  # prefix of its mobile addresses, see tenants.py
        self.user: str | None = None
        # Addresses to send to and to receive from that an authentication service names; None: it names none.
        self.groups: tuple[str, ...] = ()  # in the token of its user
        self.permissions: tuple[list[str], list[str]] | None = None
        self.properties: dict[str, Any] | None = None
        self.links: dict[int, Link] = {}  # by the worker's number
        self.sessions_at_end: int | None = None  # that it had when its worker reported its end; None: it has not
        self.way: Way = HERE  # once it is open: to or from an edge router, or none

    @property
    def edge(self) -> int:
        """The number of its bundle, if it is to or from an edge router."""
        return self.way.edge


def log_accepted(log: Log, connection: Connection) -> None:
    if log.enabled("SERVER", INFO):
        log.info("SERVER", f"[C{connection.number}] Accepted connection to {connection.local} from {connection.peer}")


def log_opened(log: Log, connection: Connection) -> None:
    if log.enabled("ROUTER_CORE", INFO):
        log.info(
            "ROUTER_CORE",
            f"{describe_opened(connection)} props={format_properties(connection.properties)}",
        )
    version = (connection.properties or {}).get(ANNOTATIONS_VERSION)
    if version is not None and connection.origin.role in BETWEEN_ROUTERS and log.enabled("ROUTER", DEBUG):
        log.debug("ROUTER", f"Remote router annotations version: {version}")


def describe_opened(connection: Connection) -> str:
    """An open connection, as the log shows it and as the message of its connector."""
    direction = "in" if connection.initiator is None else "out"
    encrypted = "no" if connection.tls is None else connection.tls.protocol
    return (
        f"[C{connection.number}] Connection Opened: dir={direction} host={connection.peer} vhost= "
        f"encrypted={encrypted} auth={connection.mechanism or 'no'} user={connection.user or '(null)'} "
        f"container_id={connection.container}"
    )


def describe_failed(connection: Connection, error: ErrorText) -> str:
    """Why a connection ended, as the log shows it and as the message of its connector."""
    way = f"from {connection.peer} (to {connection.local})" if connection.initiator is None else f"to {connection.peer}"
    return f"[C{connection.number}] Connection {way} failed: {error[0]} {error[1] or ''}".rstrip()


def log_closed(log: Log, connection: Connection, error: ErrorText | None) -> None:
    if error is not None and not connection.page and log.enabled("SERVER", INFO):
        log.info("SERVER", describe_failed(connection, error))
    if connection.opened and log.enabled("ROUTER_CORE", INFO):
        log.info("ROUTER_CORE", f"[C{connection.number}] Connection Closed")


def report_ended(log: Log, connection: Connection, ending: Ending, error: ErrorText | None) -> None:
    """Log the end of a connection that the router opened, and report it to its initiator."""
    if ending is Ending.CLOSED:
        error = None
    elif error is None:
        error = _ABORTED if ending is Ending.FAILED else _ORPHANED
    log_closed(log, connection, error)
    if connection.initiator is not None:
        text = "" if error is None else describe_failed(connection, error)
        connection.initiator.ended(connection, ending, text)


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

"""Records of connections and links, and their log lines."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Protocol

from sluice.router.config.entities import EndpointConfig
from sluice.router.config.roles import BETWEEN_ROUTERS
from sluice.router.control.handover import InitiateData
from sluice.router.control.messages import ErrorText, Resume, TlsFacts
from sluice.router.log import DEBUG, INFO, ProcessLog
from sluice.supervisor.addresses.record import NOT_ON_EDGE, AddressRecord, ConsumerEdge

# Errors reported for connections opened by the router that end without an error of their own.
_ABORTED: Final = ("amqp:connection:framing-error", "connection aborted")
_ORPHANED: Final = ("amqp:internal-error", "the worker of this connection exited")


ANNOTATIONS_VERSION: Final = "qd.annotations-version"  # open property of routers
ENDPOINT: Final = "endpoint"  # kind of links of clients
DATA: Final = "inter-router"  # kind of links between routers for messages
PRIORITY: Final = 4  # priority of links of clients


class ConnectionEnd(Enum):
    """Kind of end of a connection that the router opened."""

    CLOSED = "closed"  # closed by either side after it was open
    FAILED = "failed"  # lost, or never open
    ORPHANED = "orphaned"  # lost because its worker died


class Initiator(Protocol):
    """Owner of a connection that the router opened."""

    def opened(self, connection: "RegisteredConnection") -> None:
        """Handle the peer's open."""

    def ended(self, connection: "RegisteredConnection", ending: ConnectionEnd, text: str) -> None:
        """Handle the end of the connection. text: reason, as in the log."""


class RegisteredLink:
    """Record of a link. Owner: its connection."""

    __slots__ = (
        "closed", "connection", "consumer", "error", "generation", "identity", "kind", "name", "number", "other",
        "owner", "priority", "record", "resumes", "routed_to", "slot", "suspended", "up", "waits", "worker",
    )  # fmt: skip

    def __init__(
        self,
        identity: int,
        name: str,
        consumer: bool,
        slot: int,
        generation: int,
        connection: "RegisteredConnection",
        worker: int,
    ) -> None:
        self.identity = identity  # number shown to users, unique in the router
        self.connection = connection
        self.worker = worker  # index of the worker
        self.number = 0  # number by which the worker knows the link
        self.name = name
        self.consumer = consumer  # True: outgoing link to a consumer; False: incoming link of a producer
        self.slot = slot  # slot in shared memory, valid with `generation`
        self.generation = generation
        self.record: AddressRecord | None = None  # address; None: anonymous link, or not attached
        # True: consumer that gets nothing, because another router serves its edge router, or its connection drains
        self.waits = False
        self.other: int | None = None  # identity of the other link of a routed link
        self.routed_to: str | None = None  # address of a routed link
        self.kind = ENDPOINT  # kind of link as in management
        self.priority = PRIORITY
        self.owner: str | None = None  # address key shown by management for a link without record
        self.up = False  # True: the attach has been answered
        self.closed = False  # True: a pending answer must not be sent
        self.suspended = False  # True: its end leaves the consumer in the table (SuspendedConsumer)
        self.resumes: Resume | None = None  # order that lets it take over a suspended link before it is answered
        self.error: ErrorText | None = None  # error with which a container has ended a link of the router


class RegisteredConnection:
    """Record of a connection: accepted, or with an initiator opened by the router. Owner: the worker that has it."""

    __slots__ = (
        "closing",
        "container",
        "end_reason",
        "epoch",
        "groups",
        "hostname",
        "initiate",
        "initiator",
        "last_delivery",
        "links",
        "local",
        "mechanism",
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
        """Create the record. profile: key of the profile of `origin`."""
        self.number = number
        self.profile = profile
        self.origin = origin  # its listener or connector
        self.local = local  # address of the listener, host:port
        self.peer = peer  # ip:port; if the router opened the connection host:port as configured
        self.initiator: Initiator | None = None
        self.initiate: InitiateData | None = None  # data for the worker that opens it, see Handover
        # octets that the supervisor read from the socket; cleared once a worker has reported the open
        self.read_before = b""
        self.worker: int | None = None  # index of the worker that has it
        self.epoch = -1  # epoch that its worker had acknowledged when the connection was assigned to it
        self.opened = False
        self.opened_at = 0.0  # time of the open, in seconds of the monotonic clock
        self.closing = False  # True: the supervisor has asked the worker to close it
        self.page = False  # True: its client has requested a page over HTTPS, so its end is not an error
        # Frame log: True: on, False: off; None: on or off by the level of log module PROTOCOL.
        self.trace: bool | None = None
        self.mechanism: str | None = None  # SASL mechanism; None: no SASL
        self.tls: TlsFacts | None = None
        # Time of the last delivery of links that are gone (CLOCK_MONOTONIC, ns; 0: none). Present links: see slots.
        self.last_delivery = 0
        self.container: str | None = None  # container id of the peer
        self.hostname: str | None = None  # hostname in the peer's open
        self.tenant: str | None = None  # prefix of its mobile addresses, see tenants.py
        self.user: str | None = None
        self.groups: tuple[str, ...] = ()  # groups in the token of its user
        # Allowed targets and sources by an authentication service; None: the service does not restrict them.
        self.permissions: tuple[list[str], list[str]] | None = None
        self.properties: dict[str, Any] | None = None
        self.links: dict[int, RegisteredLink] = {}  # by the worker's number of the link
        self.end_reason = ""  # why it has ended, as one line; set before other subsystems are notified of the end
        self.sessions_at_end: int | None = None  # number of sessions at the end; None: the end is not reported yet
        self.way: ConsumerEdge = NOT_ON_EDGE  # edge connection, once it is open; HERE: it is none

    @property
    def edge(self) -> int:
        """Number of the bundle of a connection to or from an edge router; 0 for other connections."""
        return self.way.edge


def log_accepted(log: ProcessLog, connection: RegisteredConnection) -> None:
    if log.enabled("SERVER", INFO):
        log.info("SERVER", f"[C{connection.number}] Accepted connection to {connection.local} from {connection.peer}")


def log_opened(log: ProcessLog, connection: RegisteredConnection) -> None:
    # brokers-and-edge.md C-32.
    if log.enabled("ROUTER_CORE", INFO):
        log.info(
            "ROUTER_CORE",
            f"{describe_opened(connection)} props={format_properties(connection.properties)}",
        )
    version = (connection.properties or {}).get(ANNOTATIONS_VERSION)
    if version is not None and connection.origin.role in BETWEEN_ROUTERS and log.enabled("ROUTER", DEBUG):
        log.debug("ROUTER", f"Remote router annotations version: {version}")


def describe_opened(connection: RegisteredConnection) -> str:
    """Describe an open connection for the log and for the message of its connector (brokers-and-edge.md W-9)."""
    direction = "in" if connection.initiator is None else "out"
    encrypted = "no" if connection.tls is None else connection.tls.protocol
    return (
        f"[C{connection.number}] Connection Opened: dir={direction} host={connection.peer} vhost= "
        f"encrypted={encrypted} auth={connection.mechanism or 'no'} user={connection.user or '(null)'} "
        f"container_id={connection.container}"
    )


def describe_failed(connection: RegisteredConnection, error: ErrorText) -> str:
    """Describe the error of a connection for the log and for the message of its connector (brokers-and-edge.md W-8)."""
    way = f"from {connection.peer} (to {connection.local})" if connection.initiator is None else f"to {connection.peer}"
    return f"[C{connection.number}] Connection {way} failed: {error[0]} {error[1] or ''}".rstrip()


def describe_error(error: ErrorText) -> str:
    """Return condition and description of an error as one line."""
    return f"{error[0]} {error[1] or ''}".strip()


def describe_end(connection: RegisteredConnection, ending: ConnectionEnd, error: ErrorText | None) -> str:
    """Describe why a connection has ended, in the words of the peer if it gave a reason."""
    if error is None and ending is ConnectionEnd.ORPHANED:
        error = _ORPHANED
    if error is not None:
        return describe_error(error)
    if connection.closing:
        return "the router has closed the connection"
    if ending is ConnectionEnd.CLOSED:
        return "the peer has closed the connection"
    return "the connection has ended"


def log_closed(log: ProcessLog, connection: RegisteredConnection, error: ErrorText | None) -> None:
    if error is not None and not connection.page and log.enabled("SERVER", INFO):
        log.info("SERVER", describe_failed(connection, error))
    if connection.opened and log.enabled("ROUTER_CORE", INFO):
        log.info("ROUTER_CORE", f"[C{connection.number}] Connection Closed")


def report_ended(
    log: ProcessLog, connection: RegisteredConnection, ending: ConnectionEnd, error: ErrorText | None
) -> None:
    """Log the end of a connection that the router opened, and report it to its initiator."""
    if ending is ConnectionEnd.CLOSED:
        error = None
    elif error is None:
        error = _ABORTED if ending is ConnectionEnd.FAILED else _ORPHANED
    log_closed(log, connection, error)
    if connection.initiator is not None:
        text = "" if error is None else describe_failed(connection, error)
        connection.initiator.ended(connection, ending, text)


def log_attached(log: ProcessLog, connection: RegisteredConnection, link: RegisteredLink, text: str) -> None:
    """Log an attach; `text` describes the termini."""
    if log.enabled("ROUTER_CORE", INFO):
        direction = "out" if link.consumer else "in"
        log.info("ROUTER_CORE", f"[C{connection.number}][L{link.identity}] Link attached: dir={direction} {text}")


def format_properties(properties: Mapping[str, Any] | None) -> str:
    """Format connection properties for the log: `{:product="x", :count=1}`."""
    if not properties:
        return ""
    return "{" + ", ".join(f":{name}={_format_value(value)}" for name, value in properties.items()) + "}"


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)

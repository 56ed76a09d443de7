"""Records of connections and links, and their log lines."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Protocol

from msgspec import Struct, field

from sluice.router.config.entities import EndpointConfig
from sluice.router.config.roles import BETWEEN_ROUTERS
from sluice.router.control.handover import InitiateData
from sluice.router.control.messages import ErrorText, Resume, TlsFacts
from sluice.router.log import DEBUG, INFO, ProcessLog
from sluice.supervisor.addresses.consumer_edge import NOT_ON_EDGE, ConsumerEdge
from sluice.supervisor.addresses.record import AddressRecord

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


# Globals, because the end of each connection reads them, and a member of an enum takes 17 times as long (Python 3.11).
CLOSED: Final = ConnectionEnd.CLOSED
FAILED: Final = ConnectionEnd.FAILED
ORPHANED: Final = ConnectionEnd.ORPHANED


class Initiator(Protocol):
    """Owner of a connection that the router opened."""

    def opened(self, connection: "RegisteredConnection") -> None:
        """Handle the peer's open."""

    def ended(self, connection: "RegisteredConnection", ending: ConnectionEnd, text: str) -> None:
        """Handle the end of the connection. text: reason, as in the log."""


class RegisteredLink(Struct, eq=False):
    """Record of a link. Owner: its connection.

    A `Struct`, as the other records of each client: it sets fields to their defaults in compiled code.
    """

    identity: int  # number shown to users, unique in the router
    name: str
    consumer: bool  # True: outgoing link to a consumer; False: incoming link of a producer
    slot: int  # slot in shared memory, valid with `generation`
    generation: int
    connection: "RegisteredConnection"
    worker: int  # index of the worker
    number: int = 0  # number by which the worker knows the link
    record: AddressRecord | None = None  # address; None: anonymous link, or not attached
    # True: consumer that gets nothing, because another router serves its edge router, or its connection drains
    waits: bool = False
    other: int | None = None  # identity of the other link of a routed link
    routed_to: str | None = None  # address of a routed link
    kind: str = ENDPOINT  # kind of link as in management
    priority: int = PRIORITY
    owner: str | None = None  # address key shown by management for a link without record
    up: bool = False  # True: the attach has been answered
    closed: bool = False  # True: a pending answer must not be sent
    suspended: bool = False  # True: its end leaves the consumer in the table (SuspendedConsumer)
    resumes: Resume | None = None  # order that lets it take over a suspended link before it is answered
    error: ErrorText | None = None  # error with which a container has ended a link of the router

    __repr__ = object.__repr__  # a link and its connection refer to each other


class RegisteredConnection(Struct, eq=False):
    """Record of a connection: accepted, or with an initiator opened by the router. Owner: the worker that has it."""

    number: int
    origin: EndpointConfig  # its listener or connector
    local: str  # address of the listener, host:port
    peer: str  # ip:port; if the router opened the connection host:port as configured
    profile: str  # key of the profile of `origin`
    initiator: Initiator | None = None
    initiate: InitiateData | None = None  # data for the worker that opens it, see Handover
    # octets that the supervisor read from the socket; cleared once a worker has reported the open
    read_before: bytes = b""
    worker: int | None = None  # index of the worker that has it
    epoch: int = -1  # epoch that its worker had acknowledged when the connection was assigned to it
    opened: bool = False
    opened_at: float = 0.0  # time of the open, in seconds of the monotonic clock
    closing: bool = False  # True: the supervisor has asked the worker to close it
    page: bool = False  # True: its client has requested a page over HTTPS, so its end is not an error
    # Frame log: True: on, False: off; None: on or off by the level of log module PROTOCOL.
    trace: bool | None = None
    mechanism: str | None = None  # SASL mechanism; None: no SASL
    tls: TlsFacts | None = None
    # Time of the last delivery of links that are gone (CLOCK_MONOTONIC, ns; 0: none). Present links: see slots.
    last_delivery: int = 0
    container: str | None = None  # container id of the peer
    hostname: str | None = None  # hostname in the peer's open
    tenant: str | None = None  # prefix of its mobile addresses, see tenants.py
    user: str | None = None
    groups: tuple[str, ...] = ()  # groups in the token of its user
    # Allowed targets and sources by an authentication service; None: the service does not restrict them.
    permissions: tuple[list[str], list[str]] | None = None
    properties: dict[str, Any] | None = None
    links: dict[int, RegisteredLink] = field(default_factory=dict)  # by the worker's number of the link
    end_reason: str = ""  # why it has ended, as one line; set before other subsystems are notified of the end
    sessions_at_end: int | None = None  # number of sessions at the end; None: the end is not reported yet
    way: ConsumerEdge = NOT_ON_EDGE  # edge connection, once it is open; HERE: it is none

    __repr__ = object.__repr__  # the password in `initiate` is not to appear in logs

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
    if error is None and ending is ORPHANED:
        error = _ORPHANED
    if error == _ABORTED:  # Dispatch's words for it read like an error in a frame
        return "the peer has closed the TCP connection without an AMQP close"
    if error is not None:
        return describe_error(error)
    if connection.closing:
        return "the router has closed the connection"
    if ending is CLOSED:
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
    if ending is CLOSED:
        error = None
    elif error is None:
        error = _ABORTED if ending is FAILED else _ORPHANED
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

"""Control messages between supervisor and workers, with their fields. See docs/internals/control-protocol.md.

A worker sends events (`Event`), the supervisor sends orders (`Order`), among them the answers to events. On the wire a
message is an object whose field `t` is the class name in lower case. Decoding checks the type of every field
(`router/control/codec.py`). A field whose value is its default is omitted. Messages about logins are in
`router/control/login_messages.py`, messages about routed links in `router/control/pair_messages.py`.

No message is part of a reference cycle, so messages are exempt from garbage collection (`gc=False`).
"""

from typing import Any, Final, Literal

from msgspec import Struct, field

from sluice.router.control.login_messages import (
    LoginFailed,
    SaslBegin,
    SaslChallenge,
    SaslInit,
    SaslOffer,
    SaslOutcome,
    SaslResponse,
)
from sluice.router.control.message import ControlMessage
from sluice.router.control.ops import Op
from sluice.router.control.pair_messages import Pair, Pairable, Paired, RoutedUp, Unpair, Unpairable, Unpaired
from sluice.router.log import LogEntry

MESSAGES_A_PART: Final = 64  # messages in one part; a reader processes a part as a whole
END_LINES: Final = 8  # log lines about links in one `closed`: most clients have fewer links

Direction = Literal["in", "out"]  # as seen by the router; "in": the peer sends
ErrorText = tuple[str, str | None]  # condition, description
Count = tuple[int, int, int]  # connection, messages, octets of the messages
#: Quota slot in shared memory, messages per second, octets per second, octets buffered; 0: no limit.
Scope = tuple[int, int, int, int]


# -- worker to supervisor -----------------------------------------------------------------------------------------


class Ready(ControlMessage):
    """Report that the snapshot of `epoch` is applied; the worker is live from now on."""

    epoch: int


class Resync(ControlMessage):
    """Request for a new snapshot, because an epoch is missing or could not be applied."""


class PortClosed(ControlMessage):
    """Report of a malformed ring record, described by `text`. The worker stops reading the ring of its sender."""

    worker: int
    gen: int
    text: str


class Ack(ControlMessage):
    """Acknowledgement that the delta of `epoch` is applied."""

    epoch: int


class TlsFacts(Struct, omit_defaults=True, kw_only=True, gc=False):
    """Negotiated parameters of a TLS connection, and contents of the peer's certificate."""

    protocol: str  # such as TLSv1.3
    cipher: str
    ssf: int  # key length in bits
    resumed: bool = False
    # Names in the peer's certificate in the form of RFC 2253. None: no certificate. Empty: the name is empty.
    subject: str | None = None
    issuer: str | None = None
    attributes: list[tuple[str, str]] = []  # pairs (short name such as CN, value) of the subject, in their order
    fingerprints: dict[str, str] = {}  # hexadecimal digests by "1" (SHA-1), "2" (SHA-256) and "5" (SHA-512)
    names: dict[str, str] = {}  # first alternative name by kind: host (d), URI (i), e-mail address (e)


class Opened(ControlMessage, kw_only=True):
    """Report of a received AMQP open. The connection's further frames wait for `admitted` or `denied`, unless the
    worker has admitted the client.

    `conn` is the number assigned at hand-over.
    """

    conn: int
    container: str
    hostname: str | None
    user: str | None
    mechanism: str | None = None  # SASL mechanism; None: without SASL
    properties: dict[str, Any]
    tls: TlsFacts | None
    admitted: bool = False  # by the worker, since its hand-over said so
    announced: dict[str, int] | None = None  # valid entries of `properties` that routers exchange: cost, versions


class Oversized(ControlMessage):
    """Report that a client has sent a message larger than its connection allows."""

    conn: int
    link: int  # number of the link in the log


class SessionDenied(ControlMessage):
    """Report that a client has begun more sessions than its group allows; its connection is closed."""

    conn: int


class Forbidden(ControlMessage, kw_only=True):
    """Report of messages of a client that the policy has rejected since the last report."""

    conn: int
    targets: int  # messages rejected because of their address
    users: int  # messages rejected because of their user-id
    address: str | None = None  # an item of the addresses


class CopiesMissed(ControlMessage):
    """Report of messages that a tap has missed since the last report, by address."""

    tap: int
    counts: dict[str, int]  # "": those of further addresses


class HeartbeatMissed(ControlMessage):
    """Report that an edge router has sent no heartbeat for longer than two periods."""

    conn: int


class Closed(ControlMessage, kw_only=True):
    """Report of the end of a connection with all its links."""

    conn: int
    error: ErrorText | None
    confirm: bool = False  # answer with `gone` when no worker has its consumers in the table
    graceful: bool = False  # closed by AMQP, by either side; only for connections that the router opened
    sessions: int = 0  # sessions that ended with the connection
    lines: tuple[str, ...] = ()  # log lines about the last of its links, at most END_LINES; those before came as `log`


class Attach(ControlMessage, kw_only=True):
    """Request for a decision about an attach."""

    conn: int
    link: int  # the worker's number of the link
    slot: int  # the link's slot; `gen` is the slot's generation
    gen: int
    dir: Direction
    name: str
    address: str | None  # as the client wrote it
    route: list[str] | None = None  # for a link from another Sluice router; see `pair`
    channel: int  # the router's channel number of the session
    dynamic: bool = False
    dynamic_address: str | None = None  # value of x-opt-qd.address
    caps: tuple[list[str], bool]  # capabilities, and whether they were encoded as an array
    coordinator: bool = False
    expiry: str | None = None
    timeout: int = 0
    tenant: str | None = None  # prefix
    text: str  # the terminus as shown in the log


class Detach(ControlMessage, kw_only=True):
    """Report of the end of a link."""

    conn: int
    link: int
    confirm: bool = False  # answer with `detached` when no worker has it in the table
    last: int = 0  # time of its last delivery (CLOCK_MONOTONIC ns); 0: it had none
    line: str | None = None  # log line about its end
    error: ErrorText | None = None  # error in the peer's detach, for a link that the router attached


class Suspended(ControlMessage):
    """Report that a link is suspended: its peer is lost, and what waits for it waits for the peer's return.

    The report of the link's end follows. The consumer stays in the table until the supervisor removes it.
    """

    conn: int
    link: int
    waiting: int  # deliveries


class Initiated(ControlMessage, kw_only=True):
    """Report that the attach requested by `link` was sent. Fields other than those of `link` are as in `attach`."""

    conn: int
    ref: int
    dir: Direction
    name: str
    link: int
    slot: int
    gen: int
    text: str


class Linked(ControlMessage):
    """Report that the peer has answered the attach of a link that the router attached."""

    conn: int
    link: int
    active: bool  # the peer accepts the link: its attach has the requested terminus
    address: str | None = None  # address of a dynamic terminus


class Unlinked(ControlMessage):
    """Report that the link requested by `link` cannot be created; `error` is the reason."""

    conn: int
    ref: int
    error: str


class RouterLink(ControlMessage, kw_only=True):
    """Report that a link between routers is attached by both sides. Answered with `attached`, which has its identity.

    Fields without a comment are as in `attach`.
    """

    conn: int
    link: int
    dir: Direction
    kind: Literal["control", "data", "stream"]  # data: one of the ten data links, by priority
    priority: int
    slot: int
    gen: int
    name: str
    text: str


class Traced(ControlMessage, kw_only=True):
    """Frames of a connection, requested by `watch`."""

    conn: int
    lines: list[tuple[float, str]]  # seconds since the epoch, text
    lost: int  # number of lines dropped before these
    ended: bool  # the connection has ended; no further lines follow


class Spans(ControlMessage, kw_only=True):
    """Spans of sampled deliveries that have ended (`sampling` op). router/tracing/spans.py decodes them."""

    octets: bytes
    recorded: int  # spans recorded since the start of the worker
    dropped: int  # spans dropped since then, at a bound
    offset_ns: int  # to be added to their times for the time since the Unix epoch


class Local(ControlMessage):
    """Accepted AMQP message for the router itself. Its octets are a further part of the control frame."""

    key: str  # key of its address, or CONTROL_KEY
    conn: int  # connection on which it arrived


class Forwarded(ControlMessage):
    """Report of the octets of router-initiated messages that were forwarded or dropped."""

    octets: int


class Log(ControlMessage):
    """Log line for the supervisor to write."""

    module: str
    level: str
    text: str


class Logged(ControlMessage):
    """Log lines that the worker has written itself since the last report."""

    counts: dict[str, list[int]]  # by module: number of lines for each level from trace to critical
    lines: list[LogEntry]  # the latest lines
    missing: int = 0  # number of earlier lines since the last report that are not among them


Event = (
    Ready
    | Resync
    | PortClosed
    | Ack
    | SaslBegin
    | SaslInit
    | SaslResponse
    | LoginFailed
    | Opened
    | Oversized
    | SessionDenied
    | Forbidden
    | CopiesMissed
    | HeartbeatMissed
    | Closed
    | Attach
    | Detach
    | Suspended
    | Initiated
    | Linked
    | Unlinked
    | Pairable
    | Unpairable
    | Unpaired
    | RoutedUp
    | RouterLink
    | Traced
    | Spans
    | Local
    | Forwarded
    | Log
    | Logged
)


# -- supervisor to worker -----------------------------------------------------------------------------------------


class Snapshot(ControlMessage):
    """Whole table as ops. It replaces the worker's table."""

    epoch: int
    ops: list[Op]


class Limits(Struct, omit_defaults=True, gc=False):
    """Limits of a connection that differ from those of its listener. None: the limit of the listener applies."""

    max_frame: int | None = None  # octets
    sessions: int | None = None
    window: int | None = None  # incoming window of a session in octets
    message: int = 0  # octets of an incoming message; 0: no limit


class Rules(ControlMessage):
    """Rules about the addresses of messages. `permit` assigns them to connections; kept until `rulesgone`."""

    number: int
    items: list[str]
    patterns: bool
    quotas: list[Scope] = field(default_factory=list)  # quotas that the connections with these rules share


class RulesGone(ControlMessage):
    """Order to forget rules that no connection of the worker uses."""

    number: int


class Permit(ControlMessage, kw_only=True):
    """Rules for the messages of a connection from now on. The first `permit` precedes the answer to the open."""

    conn: int
    rules: int  # number of the rules about addresses of anonymous senders' messages
    user: str | None
    proxies: bool  # messages may have any user-id
    rights: str | None = None  # name of the rights at management nodes; None: all


class Admitted(ControlMessage):
    """Answer to an open: the connection is admitted.

    `edge`: number of the bundle of an edge connection. `mark`: text that identifies this router to other routers.
    `tenant`: prefix of the client's mobile addresses.
    """

    conn: int
    limits: Limits | None = None
    edge: int = 0
    mark: str = ""
    tenant: str | None = None


class Denied(ControlMessage):
    """Answer to an open: close the connection with an error. `mark` is as in Admitted."""

    conn: int
    condition: str
    description: str
    mark: str = ""


class Attached(ControlMessage, kw_only=True):
    """Answer to an attach: the link is accepted.

    `kind`: "address" with `addr`, an id of the table; "anonymous"; "router": a link between routers is registered;
    "source": the worker sends numbered messages, `settled` or not; "heartbeat": an edge router sends heartbeats on it.
    On an "anonymous" link on which the peer receives, the worker sends the messages of `control`.
    """

    conn: int
    link: int
    kind: Literal["anonymous", "address", "router", "source", "heartbeat"]
    identity: int  # number of the link in the log
    settled: bool = False
    addr: int | None = None
    generated: str | None = None  # generated address of a dynamic terminus
    to: str | None = None  # value of x-opt-qd.to; None for consumers
    phase: int = 0  # value of x-opt-qd.phase
    fallback: bool = True  # False: the link's deliveries never go to the fallback
    capacity: int | None = None  # greatest credit of the peer; None: linkCapacity of its listener


class Resume(ControlMessage):
    """Order to end the suspension of a link. What waits for it goes to another link, or is released."""

    slot: int  # the link's slot; `gen` is the slot's generation
    gen: int
    conn: int = 0  # connection of the other link, if it is this worker's; 0, or ended: there is no such link
    link: int = 0
    other: tuple[int, int, int] | None = None  # worker, slot and generation of a link of another worker


class Refused(ControlMessage):
    """Answer to an attach: the link is refused. `condition`: AMQP error condition; None: the detach has no error."""

    conn: int
    link: int
    condition: str | None
    description: str | None
    termini: bool = False  # the attach sent in response has a source and a target, both without an address


class Decided(ControlMessage):
    """Interim answer to an attach: the link belongs to a link route, whose container decides.

    Answers to later attaches do not wait for this link.
    """

    conn: int
    link: int


class Postponed(ControlMessage):
    """Interim answer to an attach: the decision waits for another router.

    The supervisor continues with later attaches, but their answers wait for this link.
    """

    conn: int
    link: int


class Detached(ControlMessage):
    """Confirmation of `detach`: no worker has the link in its table."""

    conn: int
    link: int


class Gone(ControlMessage):
    """Confirmation of `closed`: no worker has a consumer of the connection in its table."""

    conn: int


class Link(ControlMessage, kw_only=True):
    """Order to attach a link, on the connection's session for router-initiated links."""

    conn: int
    ref: int  # identity of the link
    dir: Direction
    name: str
    address: str | None  # address of the peer's terminus
    # "address": the supervisor binds the link when the peer has answered. "anonymous": each message has its address.
    # "messages": incoming messages go to the supervisor (`local` with `service`), outgoing ones come from it
    # (`control`). "heartbeat": the worker sends heartbeats.
    use: Literal["address", "anonymous", "messages", "heartbeat"] = "address"
    capability: str | None = None  # capability of the peer's terminus
    mirrored: bool = False  # set on this router's own terminus, too
    dynamic: bool = False  # the peer generates the address
    bare: bool = False  # set if this router's own terminus is null
    second: bool = False  # on a separate session
    session: str = ""  # key of the session, which only links with the same key use; empty: shared
    capacity: int | None = None  # credit of the peer; None: linkCapacity of the connector
    service: str = ""  # key of `local`
    waits: bool = False  # the link is suspended if its peer is lost


class Unlink(ControlMessage):
    """Order to close a link that the router attached, with an error if `condition` is set."""

    conn: int
    ref: int
    condition: str | None = None
    description: str | None = None
    quiet: bool = False  # wait until its deliveries are settled, for a limited time


class CloseLink(ControlMessage):
    """Order to close a link that a client has attached, with an error."""

    conn: int
    link: int
    condition: str
    description: str


class Close(ControlMessage):
    """Order to close a connection, with an error if `condition` is set."""

    conn: int
    condition: str | None = None
    description: str | None = None
    silent: bool = False  # close the socket without sending frames
    redirect: bool = False  # the error names the first of the listener's failover servers, if it has any


class WithdrawCredit(ControlMessage):
    """Order to withdraw the credit of a link on which the peer sends messages, because the router is about to exit.

    Without `link` it concerns all such links, and those that the peer attaches later.
    """

    conn: int
    link: int | None = None


class Watch(ControlMessage):
    """Order to start or stop reporting the frames of a connection with `traced`."""

    conn: int
    on: bool
    due_ms: int | None = None  # send `traced` after this time, even without frames


class Drain(ControlMessage):
    """Order to stop reading, flush all output, and exit with status 0 within `deadline_ms` milliseconds."""

    deadline_ms: int


class Send(ControlMessage):
    """AMQP message of the router itself, for an address. Its octets are a further part of the control frame."""

    key: str  # key of the address
    epoch: int  # epoch after which the worker's table has the address


class Control(ControlMessage):
    """AMQP message for the control link of an inter-router connection, or for `link` of an edge connection.

    Its octets are a further part of the control frame. It is answered with `forwarded`.
    """

    conn: int
    link: int | None = None  # the worker's number of the link


class Taken(ControlMessage):
    """Report that the supervisor has processed `local` messages."""

    counts: list[Count]
    control: list[Count] = field(default_factory=list)  # control messages, which are counted separately


Answer = Attached | Refused | Decided | Postponed | Paired  # answers to an attach
Order = (
    Snapshot
    | SaslOffer
    | SaslChallenge
    | SaslOutcome
    | Rules
    | RulesGone
    | Permit
    | Admitted
    | Denied
    | Attached
    | Resume
    | Refused
    | Decided
    | Postponed
    | Pair
    | Paired
    | Unpair
    | Detached
    | Gone
    | Link
    | Unlink
    | CloseLink
    | Close
    | WithdrawCredit
    | Watch
    | Drain
    | Send
    | Control
    | Taken
)


# -- deltas of the table ------------------------------------------------------------------------------------------


class Delta(Struct, gc=False):
    """Ops of one epoch, published to all workers after DELTA_TOPIC."""

    epoch: int
    ops: list[Op]

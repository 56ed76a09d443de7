"""Control messages between supervisor and workers: their fields. See docs/internals/control-protocol.md.

A worker sends events (`Event`), the supervisor sends orders (`Order`): answers are orders, too. On the wire a message
is an object whose field `t` is the name of its class in lower case. Decoding checks the type of every field
(`router/control/codec.py`). A field with a default may be missing; it is left out where it has that value. Those about
a login are in `router/control/login_messages.py`.

No message is part of a reference cycle, so the garbage collector need not look at them (`gc=False`).
"""

from typing import Any, Final, Literal

from msgspec import Struct, field

from router.control.login_messages import (
    LoginFailed,
    SaslBegin,
    SaslChallenge,
    SaslInit,
    SaslOffer,
    SaslOutcome,
    SaslResponse,
)
from router.control.message import Message
from router.control.ops import Op
from router.log import Entry

MESSAGES_A_PART: Final = 64  # messages sent together; a reader cannot divide a part

Direction = Literal["in", "out"]  # as the router sees it: "in" when the peer sends
ErrorText = tuple[str, str | None]  # condition and description
Count = tuple[int, int, int]  # connection, messages, their octets
#: Slot of a quota in shared memory, messages a second, octets a second, octets buffered; 0: no limit.
Scope = tuple[int, int, int, int]


# -- worker to supervisor -----------------------------------------------------------------------------------------


class Ready(Message):
    """The snapshot of `epoch` is applied: this worker is live."""

    epoch: int


class Resync(Message):
    """An epoch is missing or could not be applied: send a new snapshot."""


class PortClosed(Message):
    """A malformed record of another worker came, of which nothing is read any more; `text` describes the record."""

    worker: int
    gen: int
    text: str


class Ack(Message):
    """The delta of `epoch` is applied."""

    epoch: int


class Tls(Struct, omit_defaults=True, kw_only=True, gc=False):
    """What TLS has negotiated, and the certificate that the peer has presented."""

    protocol: str  # as TLSv1.3
    cipher: str
    ssf: int  # bits of the key
    resumed: bool = False
    # Names of the peer's certificate in the form of RFC 2253. None: it has presented none. Empty: it names nobody.
    subject: str | None = None
    issuer: str | None = None
    attributes: list[tuple[str, str]] = []  # of the subject, in the order of the certificate: short name as CN, value
    fingerprints: dict[str, str] = {}  # by 1, 2 and 5: SHA-1, SHA-256, SHA-512, in hexadecimal digits
    names: dict[str, str] = {}  # the first alternative name of a kind: host (d), URI (i), e-mail address (e)


class Opened(Message, kw_only=True):
    """An AMQP open was received. `conn`: the number given at hand-over. Further frames of the connection wait for
    `admitted` or `denied`."""

    conn: int
    container: str
    hostname: str | None
    user: str | None
    mechanism: str | None = None  # of SASL; None: without
    properties: dict[str, Any]
    tls: Tls | None
    announced: dict[str, int] | None = None  # what a router says to routers in `properties`, as far as it is valid


class Unmoved(Message):
    """The worker keeps a connection that `move` has asked for: it cannot be handed over, or not now."""

    conn: int


class Oversized(Message):
    """A client has sent more of one message than its connection may."""

    conn: int
    link: int  # the link's number in the log


class SessionDenied(Message):
    """A client has begun one session more than its group may have; its connection ends."""

    conn: int


class Forbidden(Message, kw_only=True):
    """Messages of a client were rejected because of its rules: so many since the last such message."""

    conn: int
    targets: int  # for the address that they name
    users: int  # for the user that they name
    address: str | None = None  # one of the addresses


class HeartbeatMissed(Message):
    """An edge router has sent no heartbeat for longer than two periods."""

    conn: int


class Closed(Message, kw_only=True):
    """A connection is gone and all its links with it."""

    conn: int
    error: ErrorText | None
    confirm: bool = False  # answer `gone` when no worker has its consumers any more
    graceful: bool = False  # closed by AMQP, by either side; only of connections that the router opened
    sessions: int = 0  # that it still had


class Attach(Message, kw_only=True):
    """A link needs a decision."""

    conn: int
    link: int  # the worker's number for it
    slot: int  # its link slot, and that slot's generation
    gen: int
    dir: Direction
    name: str
    address: str | None  # as the client wrote it
    route: list[str] | None = None  # of a link from another Sluice router, see `pair`
    channel: int  # the router's number of its session
    dynamic: bool
    dynamic_address: str | None  # value of x-opt-qd.address
    caps: tuple[list[str], bool]  # symbols, and whether they came as an array
    coordinator: bool
    expiry: str | None
    timeout: int
    tenant: str | None  # prefix
    text: str  # the terminus as the log shows it


class Detach(Message, kw_only=True):
    """A link is gone."""

    conn: int
    link: int
    confirm: bool = False  # answer `detached` when no worker has it any more
    last: int = 0  # when its last delivery came or went (CLOCK_MONOTONIC ns); 0: there was none
    error: ErrorText | None = None  # of the peer's detach, for a link that the router attached


class Initiated(Message, kw_only=True):
    """The attach that `link` asked for has been sent. Fields that are not of `link` are as in `attach`."""

    conn: int
    ref: int
    dir: Direction
    name: str
    link: int
    slot: int
    gen: int
    text: str


class Linked(Message):
    """The peer has answered the attach of a link that the router attached."""

    conn: int
    link: int
    active: bool  # with the terminus that was asked for: the peer accepts the link
    address: str | None = None  # of a dynamic terminus


class Unlinked(Message):
    """The link that `link` asked for cannot be made; the text says why."""

    conn: int
    ref: int
    error: str


class Pairable(Message):
    """The container's link of a pair is there, not attached yet. slot, gen: its link slot and that one's generation."""

    conn: int
    pair: int
    link: int
    slot: int
    gen: int


class Unpairable(Message):
    """The container's link of a pair cannot be made: the error for its client."""

    pair: int
    condition: str
    description: str


class Unpaired(Message):
    """The client's link of a pair was gone before the two were connected."""

    pair: int


class RoutedUp(Message):
    """A routed link is answered."""

    conn: int
    link: int


class RouterLink(Message, kw_only=True):
    """A link between routers is attached by both sides. The other fields are as in `attach`. It is answered with
    `attached`, for its identity."""

    conn: int
    link: int
    dir: Direction
    kind: Literal["control", "data", "stream"]  # data: one of the ten of the priorities
    priority: int
    slot: int
    gen: int
    name: str
    text: str


class Traced(Message, kw_only=True):
    """Frames of a connection that `watch` asked for."""

    conn: int
    lines: list[tuple[float, str]]  # seconds since the epoch, text
    lost: int  # lines dropped before these
    ended: bool  # the connection is gone, nothing follows


class Local(Message):
    """A message for the router itself, accepted; its octets are the second part of the multipart message."""

    key: str  # of its address, or CONTROL_KEY
    conn: int  # the connection that it came by


class Forwarded(Message):
    """Octets of messages of the router itself that were forwarded or dropped."""

    octets: int


class Log(Message):
    """A line that the supervisor must log."""

    module: str
    level: str
    text: str


class Logged(Message):
    """Lines that the worker has written itself since the last such message."""

    counts: dict[str, list[int]]  # by module, a number for each level from trace to critical
    lines: list[Entry]  # the last of them


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
    | Unmoved
    | Oversized
    | SessionDenied
    | Forbidden
    | HeartbeatMissed
    | Closed
    | Attach
    | Detach
    | Initiated
    | Linked
    | Unlinked
    | Pairable
    | Unpairable
    | Unpaired
    | RoutedUp
    | RouterLink
    | Traced
    | Local
    | Forwarded
    | Log
    | Logged
)


# -- supervisor to worker -----------------------------------------------------------------------------------------


class Snapshot(Message):
    """The whole table. It replaces what the worker holds."""

    epoch: int
    ops: list[Op]


class Limits(Struct, omit_defaults=True, gc=False):
    """What a connection may, where that is not what its listener says. None: as the listener says."""

    max_frame: int | None = None  # octets
    sessions: int | None = None
    window: int | None = None  # octets of a session
    message: int = 0  # octets of a message that comes by it; 0: any number


class Rules(Message):
    """Addresses that messages may name, for connections that `permit` tells to go by them; kept until `rulesgone`."""

    number: int
    items: list[str]
    patterns: bool
    quotas: list[Scope] = field(default_factory=list)  # that these connections share with others


class RulesGone(Message):
    """No connection of the worker goes by these rules any more."""

    number: int


class Permit(Message, kw_only=True):
    """What messages of a connection may say from now on. The first one comes before the answer to the open."""

    conn: int
    rules: int  # where those of anonymous senders may go
    user: str | None
    proxies: bool  # they may name any user
    rights: str | None = None  # of requests to management nodes, by name; None: all


class Admitted(Message):
    """The answer to an open: the connection may go on. edge: number of the bundle of an edge connection. mark: the text
    by which other routers know this one. tenant: the prefix of the client's mobile addresses."""

    conn: int
    limits: Limits | None = None
    edge: int = 0
    mark: str = ""
    tenant: str | None = None


class Move(Message):
    """The first answer to an open: hand the connection over with `Moved`, for another worker, or say `unmoved`. It is
    asked about its open again."""

    conn: int


class Denied(Message):
    """The answer to an open: a close with an error. mark: as of Admitted."""

    conn: int
    condition: str
    description: str
    mark: str = ""


class Attached(Message, kw_only=True):
    """The link is accepted.

    kind: "address" with `addr`, an id of the table; "anonymous"; "router": a link between routers is registered;
    "source": the worker sends numbered messages, `settled` or not; "heartbeat": an edge router says on it that it
    lives. An "anonymous" link on which the peer receives gets what the supervisor sends (`control`).
    """

    conn: int
    link: int
    kind: Literal["anonymous", "address", "router", "source", "heartbeat"]
    identity: int  # the link's number in the log
    settled: bool = False
    addr: int | None = None
    generated: str | None = None  # text for a dynamic terminus
    to: str | None = None  # text for x-opt-qd.to; None for consumers
    phase: int = 0  # for x-opt-qd.phase
    fallback: bool = True  # False: the link's deliveries never go to the fallback
    capacity: int | None = None  # credit that the peer gets at most; None: as its listener says


class Refused(Message):
    """The link is refused. `condition`: AMQP error symbol; None: the detach has no error."""

    conn: int
    link: int
    condition: str | None
    description: str | None
    termini: bool = False  # the attach that answers has a source and a target, without addresses


class Decided(Message):
    """The link will be routed, or refused, when its container allows; answers to later attaches do not wait for it."""

    conn: int
    link: int


class Postponed(Message):
    """The answer waits for another router. Answers to later attaches wait for it; the supervisor goes on with them."""

    conn: int
    link: int


class Pair(Message, kw_only=True):
    """Make the container's link of a pair."""

    conn: int
    pair: int
    identity: int
    outgoing: bool  # the container receives
    name: str  # of the link
    worker: int  # of the client's link, with its slot …
    epoch: int  # … and the epoch that brought that worker up
    slot: int
    gen: int
    survives: bool  # the client's terminus outlives its connection
    address: str | None  # address for the container; None: the one that the client wrote
    answer: tuple[str, str]  # text taken off the front of the answered address, text put there
    # For a link to the next router instead of a container: ids of the router that has the container and of those
    # passed, if it is Sluice; else empty.
    route: list[str] | None = None
    group: str  # the client's session; the links of one client session share a session here


class Paired(Message, kw_only=True):
    """The container's link is there; the client's link is the other end."""

    conn: int
    link: int
    pair: int
    identity: int
    worker: int  # of the container's link, with its slot; `epoch` brought that worker up
    epoch: int
    slot: int
    gen: int
    survives: bool
    plain: bool = False  # the peer is a router of 1.19


class Unpair(Message):
    """The client's link of a pair will not come: end the container's."""

    pair: int


class Detached(Message):
    """No worker has the link in its table any more."""

    conn: int
    link: int


class Gone(Message):
    """No worker has a consumer of the connection any more."""

    conn: int


class Link(Message, kw_only=True):
    """Attach a link, on the connection's session for links of the router."""

    conn: int
    ref: int  # the link's identity
    dir: Direction
    name: str
    address: str | None  # of the terminus at the peer
    # "address": the supervisor binds the link when the peer has answered; "anonymous": each message names its address;
    # "messages": what comes is the supervisor's (`local` with `service`), what goes comes from there (`control`);
    # "heartbeat": the worker says that it lives.
    use: Literal["address", "anonymous", "messages", "heartbeat"] = "address"
    capability: str | None = None  # of the terminus at the peer, and (mirrored) of the other one
    mirrored: bool = False
    dynamic: bool = False  # the peer generates the address
    bare: bool = False  # this router's own terminus is null
    second: bool = False  # on another session than other links
    capacity: int | None = None  # credit of the peer; None: as the connector says
    service: str = ""  # key of `local`


class Unlink(Message):
    """Close a link that the router attached, with an error where there is one."""

    conn: int
    ref: int
    condition: str | None = None
    description: str | None = None
    quiet: bool = False  # not before its deliveries are settled, or a while has passed


class CloseLink(Message):
    """Close a link that a client has attached, with an error."""

    conn: int
    link: int
    condition: str
    description: str


class Close(Message):
    """Close a connection, with an error where there is one."""

    conn: int
    condition: str | None = None
    description: str | None = None
    silent: bool = False  # drop the socket without frames


class Watch(Message):
    """Send the frames of a connection with `traced`, or stop that."""

    conn: int
    on: bool
    due_ms: int | None = None  # send `traced` after so many milliseconds, also without frames


class Drain(Message):
    """Stop reading, flush, exit 0 within `deadline_ms` milliseconds."""

    deadline_ms: int


class Send(Message):
    """A message from the router itself; its octets are the second part of the multipart message."""

    key: str  # of its address …
    epoch: int  # … which the worker has once it has applied this


class Control(Message):
    """A message for the control link of an inter-router connection, or for `link` of an edge connection; its octets are
    the second part of the multipart message. It is answered with `forwarded`."""

    conn: int
    link: int | None = None  # the worker's number for it


class Taken(Message):
    """The supervisor has handled `local` messages."""

    counts: list[Count]
    control: list[Count] = field(default_factory=list)  # the same for control messages, which count separately


Answer = Attached | Refused | Decided | Postponed | Paired  # to an attach
Order = (
    Snapshot
    | SaslOffer
    | SaslChallenge
    | SaslOutcome
    | Rules
    | RulesGone
    | Permit
    | Admitted
    | Move
    | Denied
    | Attached
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
    | Watch
    | Drain
    | Send
    | Control
    | Taken
)


# -- the table: one object for each epoch -------------------------------------------------------------------------


class Delta(Struct, gc=False):
    """One epoch of the table, published to all workers after DELTA_TOPIC."""

    epoch: int
    ops: list[Op]

"""Control messages between supervisor and workers: names, fields, encoding. See docs/internals/control-protocol.md.

Messages are dictionaries; a TypedDict for each says what it holds. Decoding checks that nothing required is missing, so
that a message of another version is refused with its name, and trusts the types of values: both ends are ours.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict, cast

import orjson

Message = dict[str, Any]
Op = list[Any]  # ["addr", id, ...]: see OP_ names

DELTA_TOPIC = b"d"  # first octet of each delta, and what a worker subscribes to for them

OP_OFFER = "offer"
OP_OFFER_GONE = "-offer"
OP_SETTINGS = "settings"
OP_SETTING = "setting"
OP_DEFAULT = "default"
OP_LOG = "log"
OP_TRACE = "trace"
LOGGED = "logged"
OP_ADDRESS = "addr"
OP_ADDRESS_GONE = "-addr"
OP_CONSUMER = "+c"
OP_CONSUMER_GONE = "-c"
OP_EXCHANGE = "exchange"
OP_EXCHANGE_GONE = "-exchange"
OP_BINDING = "bind"
OP_BINDING_GONE = "-bind"
OP_WORKER = "worker"
OP_HOP = "hop"
OP_HOP_GONE = "-hop"
OP_ROUTER = "router"
OP_ROUTER_GONE = "-router"
OP_RADIUS = "radius"
OP_REMOTE = "+r"
OP_REMOTE_GONE = "-r"

READY = "ready"
RESYNC = "resync"
ACK = "ack"
OPENED = "opened"
CLOSED = "closed"
ATTACH = "attach"
DETACH = "detach"
INITIATED = "initiated"
LINKED = "linked"
UNLINKED = "unlinked"
LOCAL = "local"
FORWARDED = "forwarded"
LOG = "log"
SNAPSHOT = "snapshot"
ATTACHED = "attached"
REFUSED = "refused"
DECIDED = "decided"
DETACHED = "detached"
GONE = "gone"
LINK = "link"
UNLINK = "unlink"
CLOSE = "close"
DRAIN = "drain"
WATCH = "watch"
TRACED = "traced"
PAIR = "pair"
PAIRABLE = "pairable"
UNPAIRABLE = "unpairable"
PAIRED = "paired"
UNPAIRED = "unpaired"
UNPAIR = "unpair"
ROUTEDUP = "routedup"
ROUTERLINK = "routerlink"
CONTROL = "control"
CONTROL_KEY = "control"  # of `local`, in the place of an address: a control message of another router
SEND = "send"
TAKEN = "taken"


class ControlError(ValueError):
    """Octets that are no control message, or a message that cannot be encoded. The text says which and why."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker is born with, inherited through fork. Secrets are not shown by repr()."""

    worker: int
    generation: int
    workers: int
    region_fd: int
    eventfds: list[int]
    handover_fd: int
    pub_endpoint: str
    ctl_endpoint: str
    server_public: bytes
    client_public: bytes
    client_secret: bytes = field(repr=False)
    cpu: int | None
    router: dict[str, Any]
    log: dict[str, Any]


# Worker to supervisor


class Ready(TypedDict):
    """The snapshot of `epoch` is applied: this worker is live."""

    t: Literal["ready"]
    epoch: int


class Resync(TypedDict):
    """An epoch is missing: a new snapshot, please."""

    t: Literal["resync"]


class Ack(TypedDict):
    """The delta of `epoch` is applied."""

    t: Literal["ack"]
    epoch: int


class Opened(TypedDict):
    """An AMQP open was received. `conn`: the number given at hand-over."""

    t: Literal["opened"]
    conn: int
    container: str
    hostname: str | None
    user: str | None
    mechanism: NotRequired[str | None]  # of SASL; None: without
    properties: dict[str, Any]
    tls: dict[str, Any] | None
    announced: NotRequired[dict[str, int]]  # what a router says to routers in `properties`, as far as it is valid


class Closed(TypedDict):
    """A connection is gone and all its links with it. `error`: [condition, description]. `confirm`: answer `gone` when
    no worker knows its consumers any more."""

    t: Literal["closed"]
    conn: int
    error: list[str] | None
    confirm: NotRequired[bool]
    graceful: NotRequired[bool]  # closed by AMQP, by either side; told of connections of ours


class Attach(TypedDict):
    """A decision on a link is wanted.

    link: the worker's number for it. slot, gen: its link slot and that slot's generation. dir: as the router sees it,
    "in" when the client sends. address: as the client wrote it. dynamic_address: value of x-opt-qd.address. caps:
    [symbols, whether they came as an array]. tenant: prefix. text: the terminus as the log shows it.
    route: of a link from another router of ours, see `pair`. channel: our number of its session.
    """

    t: Literal["attach"]
    conn: int
    link: int
    slot: int
    gen: int
    dir: Literal["in", "out"]
    name: str
    address: str | None
    route: NotRequired[list[str]]
    channel: int
    dynamic: bool
    dynamic_address: str | None
    caps: list[Any]
    coordinator: bool
    expiry: str | None
    timeout: int
    tenant: str | None
    text: str


class Detach(TypedDict):
    """A link is gone. `confirm`: answer `detached` when no worker knows it any more. `last`: when its last delivery
    came or went (CLOCK_MONOTONIC ns), if there was one."""

    t: Literal["detach"]
    conn: int
    link: int
    confirm: NotRequired[bool]
    last: NotRequired[int]
    error: NotRequired[list[str]]  # [condition, description] of the peer's detach, for a link of ours


class Initiated(TypedDict):
    """What `link` asked for: the attach has gone out. What is not of `link` is as in `attach`."""

    t: Literal["initiated"]
    conn: int
    ref: int
    dir: Literal["in", "out"]
    name: str
    link: int
    slot: int
    gen: int
    text: str


class Linked(TypedDict):
    """The peer has answered the attach of a link of ours. `active`: with an address, so it means it."""

    t: Literal["linked"]
    conn: int
    link: int
    active: bool


class Unlinked(TypedDict):
    """What `link` asked for cannot be; the text says why."""

    t: Literal["unlinked"]
    conn: int
    ref: int
    error: str


class Pairable(TypedDict):
    """The container's link of a pair is there, not attached yet. slot, gen: its link slot and that one's generation."""

    t: Literal["pairable"]
    conn: int
    pair: int
    link: int
    slot: int
    gen: int


class Unpairable(TypedDict):
    """The container's link of a pair cannot be made: what its client is to hear."""

    t: Literal["unpairable"]
    pair: int
    condition: str
    description: str


class Unpaired(TypedDict):
    """The client's link of a pair is gone, and the container's knows nothing of it."""

    t: Literal["unpaired"]
    pair: int


class RoutedUp(TypedDict):
    """A routed link is answered."""

    t: Literal["routedup"]
    conn: int
    link: int


class RouterLink(TypedDict):
    """A link between routers is attached by both sides. kind: "control", "data" (one of the ten of the priorities) or
    "stream". The rest is as in `attach`. It is answered with `attached`, for its identity."""

    t: Literal["routerlink"]
    conn: int
    link: int
    dir: Literal["in", "out"]
    kind: Literal["control", "data", "stream"]
    priority: int
    slot: int
    gen: int
    name: str
    text: str


class Traced(TypedDict):
    """What `watch` asked for: frames of a connection. lines: [seconds since the epoch, text]. lost: lines left out
    before these, because there were too many. ended: the connection is gone, this is all."""

    t: Literal["traced"]
    conn: int
    lines: list[list[Any]]
    lost: int
    ended: bool


class Local(TypedDict):
    """A message for the router itself, accepted; its octets are the second part of the multipart message. `key`: of its
    address, or CONTROL_KEY. `conn`: the connection that it came by."""

    t: Literal["local"]
    key: str
    conn: int


class Forwarded(TypedDict):
    """Messages of the router itself were forwarded, or dropped: `octets` of them."""

    t: Literal["forwarded"]
    octets: int


class Log(TypedDict):
    """A line that must be logged by the supervisor."""

    t: Literal["log"]
    module: str
    level: str
    text: str


class Logged(TypedDict):
    """Lines that the worker has written itself since the last such message. counts: by module, a number for each level
    from trace to critical. lines: the last of them, as GET-LOG shows them."""

    t: Literal["logged"]
    counts: dict[str, list[int]]
    lines: list[list[Any]]



# Supervisor to worker


class Snapshot(TypedDict):
    """The whole table. It replaces what the worker holds."""

    t: Literal["snapshot"]
    epoch: int
    ops: list[Op]


class Attached(TypedDict):
    """Decision: yes. `addr`: address id, null for an anonymous link. Kind "router": a link between routers is known.
    Kind "source": the worker is to send numbered messages, `settled` or not.
    """

    t: Literal["attached"]
    conn: int
    link: int
    kind: Literal["anonymous", "address", "router", "source"]
    settled: NotRequired[bool]
    identity: NotRequired[int]
    addr: NotRequired[int | None]
    generated: NotRequired[str | None]
    to: NotRequired[str | None]
    phase: NotRequired[int | None]


class Refused(TypedDict):
    """Decision: no. `condition`: AMQP error symbol."""

    t: Literal["refused"]
    conn: int
    link: int
    condition: str
    description: str


class Decided(TypedDict):
    """The link will be routed, or refused, when its container allows; answers to later attaches do not wait for it."""

    t: Literal["decided"]
    conn: int
    link: int


class PairOrder(TypedDict):
    """Make the container's link of a pair. outgoing: the container receives. name: of the link. worker, slot, gen: of
    the client's link. survives: its terminus outlives its connection. address: what the container is to see, None:
    what the client wrote. answer: [text taken off the front of the answered address, text put there]. route: the link
    is for the next router on the way, not for a container: ids of the router that has the container and of those
    passed, for one of ours; none: it is another one. group: the client's session, whose
    links have one of their own."""

    t: Literal["pair"]
    conn: int
    pair: int
    identity: int
    outgoing: bool
    name: str
    worker: int
    slot: int
    gen: int
    survives: bool
    address: str | None
    answer: list[str]
    route: NotRequired[list[str]]
    group: str


class Paired(TypedDict):
    """The container's link is there: `worker`, `slot`, `gen` say where. The client's link is the other end. plain: the
    peer is a router that is not ours."""

    t: Literal["paired"]
    conn: int
    link: int
    pair: int
    identity: int
    worker: int
    slot: int
    gen: int
    survives: bool
    plain: NotRequired[bool]


class Unpair(TypedDict):
    """The client's link of a pair will not come: the container's ends."""

    t: Literal["unpair"]
    pair: int


class Detached(TypedDict):
    """No worker knows the link any more."""

    t: Literal["detached"]
    conn: int
    link: int


class Gone(TypedDict):
    """No worker knows a consumer of the connection any more."""

    t: Literal["gone"]
    conn: int


class Link(TypedDict):
    """Attach a link, on the connection's session for those of the router. `ref`: the link's identity. `dir`: as in
    `attach`. `address`: of the terminus at the peer."""

    t: Literal["link"]
    conn: int
    ref: int
    dir: Literal["in", "out"]
    name: str
    address: str


class Unlink(TypedDict):
    """Close a link of ours, with an error where there is one."""

    t: Literal["unlink"]
    conn: int
    ref: int
    condition: NotRequired[str]
    description: NotRequired[str]


class Close(TypedDict):
    """Close a connection; `silent`: drop the socket without frames."""

    t: Literal["close"]
    conn: int
    condition: NotRequired[str | None]
    description: NotRequired[str | None]
    silent: NotRequired[bool]


class Watch(TypedDict):
    """Tell the frames of a connection with `traced`, or no more. `due_ms`: tell, even if there are none, when so many
    milliseconds are over."""

    t: Literal["watch"]
    conn: int
    on: bool
    due_ms: NotRequired[int]


class Drain(TypedDict):
    """Stop reading, flush, exit 0 within `deadline_ms` milliseconds."""

    t: Literal["drain"]
    deadline_ms: int


class Send(TypedDict):
    """A message from the router itself; its octets are the second part of the multipart message. `key`: of its address,
    which the worker knows when it has applied `epoch`."""

    t: Literal["send"]
    key: str
    epoch: int


class Control(TypedDict):
    """A message for the control link of an inter-router connection; its octets are the second part of the multipart
    message. It is answered with `forwarded`."""

    t: Literal["control"]
    conn: int


class Taken(TypedDict):
    """`local` messages were dealt with. `counts`: [connection, messages, their octets]. `control`: the same of control
    messages, which count apart."""

    t: Literal["taken"]
    counts: list[list[int]]
    control: NotRequired[list[list[int]]]


# Other channels: one object for each message


class Delta(TypedDict):
    """One epoch of the table, published to all workers behind DELTA_TOPIC."""

    epoch: int
    ops: list[Op]


class Handover(TypedDict):
    """Supervisor to worker, with the descriptor of a TCP connection. `offer`: what listener or connector is known by.
    `peer`: "ip:port", or "host:port" of a connector. `initiate`: the connection is ours."""

    conn: int
    offer: str
    peer: str
    initiate: NotRequired["Initiate"]


class Initiate(TypedDict):
    """Of a connection that we open: the peer's host, and who we are. `password`: with `user`, for SASL PLAIN."""

    host: str
    user: str | None
    password: NotRequired[str]


class ForkRequest(TypedDict):
    """Supervisor to zygote, with the worker's end of its hand-over pair."""

    worker: int
    generation: int


class ForkAnswer(TypedDict):
    """Zygote to supervisor, with a pidfd."""

    pid: int


# How a hand-over begins.
_HANDOVER_NUMBER = re.compile(rb'\{"conn":([0-9]{1,19}),')

# Required fields by message type.
REQUIRED: dict[str, frozenset[str]] = {
    READY: Ready.__required_keys__,
    RESYNC: Resync.__required_keys__,
    ACK: Ack.__required_keys__,
    OPENED: Opened.__required_keys__,
    CLOSED: Closed.__required_keys__,
    ATTACH: Attach.__required_keys__,
    DETACH: Detach.__required_keys__,
    INITIATED: Initiated.__required_keys__,
    LINKED: Linked.__required_keys__,
    UNLINKED: Unlinked.__required_keys__,
    LOCAL: Local.__required_keys__,
    FORWARDED: Forwarded.__required_keys__,
    LOG: Log.__required_keys__,
    LOGGED: Logged.__required_keys__,
    SNAPSHOT: Snapshot.__required_keys__,
    ATTACHED: Attached.__required_keys__,
    REFUSED: Refused.__required_keys__,
    DECIDED: Decided.__required_keys__,
    DETACHED: Detached.__required_keys__,
    GONE: Gone.__required_keys__,
    LINK: Link.__required_keys__,
    PAIRABLE: Pairable.__required_keys__,
    UNPAIRABLE: Unpairable.__required_keys__,
    UNPAIRED: Unpaired.__required_keys__,
    ROUTEDUP: RoutedUp.__required_keys__,
    PAIR: PairOrder.__required_keys__,
    PAIRED: Paired.__required_keys__,
    UNPAIR: Unpair.__required_keys__,
    UNLINK: Unlink.__required_keys__,
    CLOSE: Close.__required_keys__,
    DRAIN: Drain.__required_keys__,
    WATCH: Watch.__required_keys__,
    TRACED: Traced.__required_keys__,
    SEND: Send.__required_keys__,
    CONTROL: Control.__required_keys__,
    ROUTERLINK: RouterLink.__required_keys__,
    TAKEN: Taken.__required_keys__,
}


def identity(worker: int, generation: int) -> bytes:
    """ZeroMQ identity of a worker's control socket, and the topic that says it is subscribed."""
    return b"w%d.%d" % (worker, generation)


def encode(messages: Sequence[Mapping[str, Any]]) -> bytes:
    """One part of the control channel: a JSON list of messages. Raises ControlError."""
    return _dump(list(messages), "control messages")


def decode(data: bytes) -> list[Message]:
    """The messages of one part, each of a known type with all its required fields. Raises ControlError."""
    messages = _load(data, "control messages")
    if not isinstance(messages, list):
        raise ControlError(f"control messages: a {type(messages).__name__} where a list is expected")
    for number, message in enumerate(messages):
        _check_object(message, f"control message {number}")
        kind = message.get("t")
        required = REQUIRED.get(kind) if isinstance(kind, str) else None
        if required is None:
            raise ControlError(f"control message {number}: unknown type {kind!r}")
        _check_fields(message, required, f"control message {number} ({kind})")
    return messages


def encode_delta(epoch: int, ops: Sequence[Op]) -> bytes:
    """A published delta, its topic included. Raises ControlError."""
    return DELTA_TOPIC + _dump({"epoch": epoch, "ops": list(ops)}, "delta")


def decode_delta(data: bytes) -> Delta:
    """What encode_delta made. Raises ControlError."""
    if not data.startswith(DELTA_TOPIC):
        raise ControlError(f"delta: topic is {data[:8]!r}, expected {DELTA_TOPIC!r}")
    return cast(Delta, _decode_object(data[len(DELTA_TOPIC) :], Delta.__required_keys__, "delta"))


def encode_handover(message: Handover) -> bytes:
    """What goes with the descriptor of a connection. Raises ControlError."""
    return _dump(message, "hand-over")


def decode_handover(data: bytes) -> Handover:
    """What encode_handover made. Raises ControlError."""
    return cast(Handover, _decode_object(data, Handover.__required_keys__, "hand-over"))


def handover_number(data: bytes) -> int | None:
    """The number of the connection in a hand-over that is cut off, or cannot be read for another reason."""
    found = _HANDOVER_NUMBER.match(data)
    return None if found is None else int(found.group(1))


def encode_fork(message: ForkRequest | ForkAnswer) -> bytes:
    """What supervisor and zygote say to each other. Raises ControlError."""
    return _dump(message, "fork message")


def decode_fork_request(data: bytes) -> ForkRequest:
    """At the zygote. Raises ControlError."""
    return cast(ForkRequest, _decode_object(data, ForkRequest.__required_keys__, "fork request"))


def decode_fork_answer(data: bytes) -> ForkAnswer:
    """At the supervisor. Raises ControlError."""
    return cast(ForkAnswer, _decode_object(data, ForkAnswer.__required_keys__, "fork answer"))


def _dump(value: object, what: str) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Text or a number of a peer that JSON does not know: what one peer says is not to stop what others say.
        try:
            return orjson.dumps(_plain(value))
        except (orjson.JSONEncodeError, RecursionError) as error:
            raise ControlError(f"{what}: {error}") from error


def _plain(value: object) -> object:
    """The value without halves of surrogate pairs and with text in the place of integers beyond 64 bits."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _load(data: bytes, what: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ControlError(f"{what}: {error}") from error


def _decode_object(data: bytes, required: frozenset[str], what: str) -> Message:
    message = _load(data, what)
    _check_object(message, what)
    _check_fields(message, required, what)
    return cast(Message, message)


def _check_object(message: object, what: str) -> None:
    if not isinstance(message, dict):
        raise ControlError(f"{what}: a {type(message).__name__} where an object is expected")


def _check_fields(message: Message, required: frozenset[str], what: str) -> None:
    missing = required - message.keys()
    if missing:
        raise ControlError(f"{what}: no {', '.join(sorted(missing))}")
